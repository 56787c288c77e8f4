"""Earlier versions by number and name, branches and tags, and INSERT OVERWRITE of lakes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from tests.table.catalog.crosswise import column, environment, rows
from tests.table.catalog.test_created_as import Lake, batch

from penstock.base.errors import UnsupportedError
from penstock.connectors.delta.commits import Target, overwrite_files
from penstock.connectors.delta.table import TablePlace
from penstock.sql.data.errors import ValidationError
from penstock.sql.parser import parse_statement, statements, to_sql
from penstock.sql.parser.lexer import SqlParserError
from penstock.table import TableEnvironment

PARTITIONS = (
    "(1, DATE '2026-01-01', 'a b'), (2, DATE '2026-01-01', 'b'), (3, DATE '2026-01-02', 'a b'), "
    "(4, CAST(NULL AS DATE), 'a b')"
)


def shop(tmp_path: Path, kind: str) -> TableEnvironment:
    tables = Lake(kind, tmp_path).register(environment())
    tables.execute_sql("CREATE TABLE t (id BIGINT)")
    for number in (1, 2, 3):
        tables.execute_sql(f"INSERT INTO t VALUES ({number})")
    return tables


def test_versions_of_iceberg_by_number_and_name(tmp_path: Path) -> None:
    tables = shop(tmp_path, "iceberg")
    first, second, _ = column(tables, "SELECT snapshot_id FROM t$history")
    assert column(tables, f"SELECT id FROM t VERSION AS OF {first}") == [1]
    assert sorted(column(tables, f"SELECT o.id FROM t FOR VERSION AS OF '{second}' AS o")) == [1, 2]
    tables.execute_sql(f"ALTER TABLE t CREATE TAG early AS OF VERSION {second} RETAIN 7 DAYS")
    tables.execute_sql("ALTER TABLE t CREATE BRANCH audit WITH SNAPSHOT RETENTION 3 SNAPSHOTS 2 DAYS")
    tables.execute_sql("INSERT INTO t /*+ OPTIONS('branch' = 'audit') */ VALUES (4)")
    tables.execute_sql("ALTER TABLE t ADD (name STRING)")
    assert sorted(column(tables, "SELECT * FROM t VERSION AS OF 'early'")) == [1, 2]
    assert sorted(column(tables, "SELECT id FROM t VERSION AS OF 'audit'")) == [1, 2, 3, 4]
    assert sorted(column(tables, "SELECT id FROM t")) == [1, 2, 3]
    assert sorted(column(tables, "SELECT id FROM t TIMESTAMP AS OF '2099-01-01 00:00:00'")) == [1, 2, 3]
    refs = {row[0]: row[1:] for row in rows(tables, "SELECT * FROM t$refs")}
    assert refs["early"] == ("TAG", second, 7 * 86_400_000, None, None)
    assert (refs["audit"][0], refs["audit"][2:]) == ("BRANCH", (None, 3, 2 * 86_400_000))
    tables.execute_sql(f"ALTER TABLE t REPLACE TAG early AS OF VERSION {first}")
    assert column(tables, "SELECT * FROM t VERSION AS OF 'early'") == [1]
    tables.execute_sql("ALTER TABLE t CREATE BRANCH IF NOT EXISTS audit")
    tables.execute_sql("ALTER TABLE t DROP TAG IF EXISTS nothing")
    for wrong, message in (
        ("ALTER TABLE t CREATE BRANCH audit", "exists already"),
        ("ALTER TABLE t DROP BRANCH nothing", "does not exist"),
        ("ALTER TABLE t DROP TAG audit", "is a branch"),
        ("ALTER TABLE t DROP BRANCH main", "cannot be dropped"),
        ("ALTER TABLE t CREATE TAG late AS OF VERSION 7", "no snapshot 7"),
        ("SELECT * FROM t VERSION AS OF 'nothing'", "there are audit, early, main"),
    ):
        with pytest.raises(ValidationError, match=message):
            tables.execute_sql(wrong)
    tables.execute_sql("ALTER TABLE t DROP BRANCH audit")
    tables.execute_sql("ALTER TABLE t DROP TAG early")
    assert column(tables, "SELECT name FROM t$refs") == ["main"]
    hint = f"OPTIONS('streaming' = 'true', 'start-snapshot-id' = '{second}', 'monitor-interval' = '100 ms')"
    with tables.execute_sql(f"SELECT id FROM t /*+ {hint} */").collect() as followed:
        assert [next(followed)[0] for _ in range(2)] == [2, 3]


def test_versions_of_delta(tmp_path: Path) -> None:
    tables = shop(tmp_path, "delta")
    assert column(tables, "SELECT id FROM t VERSION AS OF 1") == [1]
    with pytest.raises(ValidationError, match="no branches or tags"):
        tables.execute_sql("SELECT * FROM t VERSION AS OF 'early'")
    with pytest.raises(UnsupportedError, match="Delta Lake has no branches"):
        tables.execute_sql("ALTER TABLE t CREATE TAG early")
    hint = "OPTIONS('mode' = 'streaming', 'startingVersion' = '2', 'updateCheckIntervalMillis' = '100')"
    with tables.execute_sql(f"SELECT id FROM t /*+ {hint} */").collect() as followed:
        assert [next(followed)[0] for _ in range(2)] == [2, 3]
    tables.execute_sql("CREATE TEMPORARY VIEW v AS SELECT * FROM t")
    with pytest.raises(UnsupportedError, match="VERSION AS OF reads an earlier version"):
        tables.execute_sql("SELECT * FROM v VERSION AS OF 1")
    tables.execute_sql("CREATE TABLE default_catalog.default_database.n (id INT) WITH ('connector' = 'print')")
    with pytest.raises(UnsupportedError, match="keeps no earlier versions"):
        tables.execute_sql("SELECT * FROM default_catalog.default_database.n VERSION AS OF 1")


def test_words_of_versions_remain_names() -> None:
    for sql in ("SELECT * FROM t VERSION AS OF 12", "SELECT * FROM t VERSION AS OF 'b' AS x"):
        statement = parse_statement(sql)
        assert isinstance(statement, statements.QueryStatement)
        assert parse_statement(to_sql(statement.query)) == statement
    action = parse_statement("ALTER TABLE t DROP branch")
    assert isinstance(action, statements.AlterTable)
    assert action.actions[0].verb == "DROP COLUMN"
    parse_statement("SELECT version.a FROM t version")
    for wrong in ("SELECT * FROM (SELECT 1) VERSION AS OF 1", "ALTER TABLE t CREATE COLUMN a"):
        with pytest.raises(SqlParserError):
            parse_statement(wrong)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_insert_overwrite_replaces_partitions_in_one_commit(kind: str, tmp_path: Path) -> None:
    lake = Lake(kind, tmp_path)
    tables = lake.register(batch())
    tables.execute_sql("CREATE TABLE p (id BIGINT, d DATE, s STRING) PARTITIONED BY (d, s)")
    tables.execute_sql(f"INSERT INTO p VALUES {PARTITIONS}")
    before = lake.versions("p")
    tables.execute_sql("INSERT OVERWRITE p PARTITION (d = DATE '2026-01-01', s = 'a b') SELECT 7")
    assert sorted(column(tables, "SELECT id FROM p")) == [2, 3, 4, 7]
    assert lake.versions("p") == before + 1
    tables.execute_sql("INSERT OVERWRITE p SELECT id * 10, d, s FROM p WHERE d IS NULL OR id = 3")
    assert sorted(column(tables, "SELECT id FROM p")) == [2, 7, 30, 40]
    tables.execute_sql("INSERT OVERWRITE p PARTITION (d = DATE '2026-01-01') SELECT id, s FROM p WHERE FALSE")
    assert sorted(column(tables, "SELECT id FROM p")) == [30, 40]
    tables.execute_sql("CREATE TABLE whole AS SELECT id FROM p")
    tables.execute_sql("INSERT OVERWRITE whole SELECT id + 1 FROM whole")
    assert sorted(column(tables, "SELECT id FROM whole")) == [31, 41]
    tables.execute_sql("INSERT OVERWRITE whole SELECT id FROM whole WHERE FALSE")
    assert lake.look("whole") == (["id"], 0)
    assert lake.versions("whole") == 3


@pytest.mark.parametrize("text", ["\u00e9 d%20", "a=b/c?", "#&+'"])
def test_partitions_of_delta_rs_are_replaced(text: str, tmp_path: Path) -> None:
    """Their folders have names in which delta-rs encodes other characters than letters."""
    table = pa.table({"id": [1, 2], "p": [text, "other"]})
    write_deltalake(tmp_path, table, partition_by=["p"])
    target = Target(TablePlace.of(tmp_path), table.schema, None, overwrites=True, replaced=(("p", text),))
    overwrite_files(target)(DeltaTable(tmp_path), [], CommitProperties())
    assert DeltaTable(tmp_path).to_pyarrow_table().column("id").to_pylist() == [2]
