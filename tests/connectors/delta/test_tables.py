"""The connector `delta` of tables: what it writes and reads, in three execution modes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.table.batch.batches import SETTINGS

from penstock.base.errors import UnsupportedError
from penstock.common import Configuration
from penstock.sql.data.errors import ValidationError
from penstock.table import EnvironmentSettings, TableEnvironment

pytestmark = pytest.mark.slow

STREAMING = {"execution.target": "local", "parallelism.default": "2", "execution.checkpointing.interval": "100 ms"}
NO_RESTART = {"restart-strategy.type": "none"}
EXECUTION_MODES = [
    pytest.param("STREAMING", id="STREAMING"),
    pytest.param("MICRO_BATCH", id="MICRO_BATCH"),
    pytest.param("BATCH", id="BATCH", marks=pytest.mark.spark),
]


def environment(execution_mode: str = "STREAMING") -> TableEnvironment:
    builder = EnvironmentSettings.new_instance()
    if execution_mode == "BATCH":
        settings = builder.in_batch_mode().with_configuration(Configuration.from_dict(SETTINGS)).build()
        return TableEnvironment.create(settings)
    tables = TableEnvironment.create(builder.in_streaming_mode().build())
    for key, value in {**STREAMING, **NO_RESTART}.items():
        tables.get_config().set(key, value)
    if execution_mode == "MICRO_BATCH":
        tables.get_config().set("execution.runtime-mode", execution_mode).set("execution.micro-batch.interval", "10 ms")
        tables.get_config().set("execution.micro-batch.max-records", "100")
    return tables


def ddl(name: str, path: Path, columns: str, more: str = "", partitions: str = "") -> str:
    by = f"PARTITIONED BY ({partitions}) " if partitions else ""
    return f"CREATE TABLE {name} ({columns}) {by}WITH ('connector' = 'delta', 'table-path' = '{path}'{more})"


def collected(tables: TableEnvironment, query: str, count: int | None = None) -> list[Any]:
    found = []
    with tables.execute_sql(query).collect() as rows:
        for row in rows:
            found.append(tuple(row))
            if len(found) == count:
                break
    return sorted(found, key=repr)


def numbers(tables: TableEnvironment, count: int = 1_000) -> None:
    tables.execute_sql(
        "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
        f"'fields.n.start' = '0', 'fields.n.end' = '{count - 1}', 'rows-per-second' = '100000')"
    )


def read_rows(path: Path) -> list[tuple[Any, ...]]:
    columns = DeltaTable(path).to_pyarrow_table().to_pydict()
    return sorted(zip(*columns.values(), strict=True), key=repr)


@pytest.mark.parametrize("execution_mode", EXECUTION_MODES)
def test_rows_are_added_and_read(tmp_path: Path, execution_mode: str) -> None:
    """G9: in every execution mode each row once, with a directory for each partition."""
    tables = environment(execution_mode)
    numbers(tables)
    tables.execute_sql(ddl("t", tmp_path, "n BIGINT, s STRING, k INT", partitions="k"))
    tables.execute_sql("INSERT INTO t SELECT n, CAST(n AS STRING), CAST(n AS INT) / 250 FROM numbers").wait()
    assert read_rows(tmp_path) == sorted([(n, str(n), n // 250) for n in range(1_000)], key=repr)
    assert len(DeltaTable(tmp_path).partitions()) == 4
    assert collected(tables, "SELECT s FROM t WHERE k = 2 AND n < 503") == [("500",), ("501",), ("502",)]


@pytest.mark.parametrize("execution_mode", ["STREAMING", "MICRO_BATCH"])
def test_updates_and_deletions_by_key(tmp_path: Path, execution_mode: str) -> None:
    """G9: a sum goes away as soon as it is above 50,000."""
    tables = environment(execution_mode)
    numbers(tables)
    tables.execute_sql(ddl("t", tmp_path, "k INT, j STRING, total BIGINT, PRIMARY KEY (k, j) NOT ENFORCED"))
    tables.execute_sql(
        "INSERT INTO t SELECT CAST(k AS INT), 'x', SUM(n) FROM (SELECT n, n % 10 AS k FROM numbers) "
        "GROUP BY k HAVING SUM(n) <= 50000 - 10 * k"
    ).wait()
    sums = {k: sum(range(k, 1_000, 10)) for k in range(10)}
    assert read_rows(tmp_path) == sorted(
        [(k, "x", total) for k, total in sums.items() if total <= 50_000 - 10 * k], key=repr
    )


TYPES = (
    "id BIGINT, b BOOLEAN, ti TINYINT, si SMALLINT, f FLOAT, d DOUBLE, de DECIMAL(20, 5), s STRING, c CHAR(3), "
    "y BYTES, da DATE, ts TIMESTAMP(6), t3 TIMESTAMP(3), lt TIMESTAMP_LTZ(3), ar ARRAY<INT>, m MAP<STRING, INT>, "
    "r ROW<x INT, y STRING>"
)


def test_all_types_come_back(tmp_path: Path) -> None:
    tables = environment()
    tables.execute_sql(ddl("t", tmp_path, TYPES))
    tables.execute_sql(
        "INSERT INTO t VALUES (1, true, CAST(2 AS TINYINT), CAST(3 AS SMALLINT), CAST(1.5 AS FLOAT), 2.5e0, 3.25, "
        "'é', 'abc', x'00ff', DATE '2020-02-29', TIMESTAMP '2020-01-01 00:00:00.000001', "
        "TIMESTAMP '2020-01-01 00:00:00.001', TO_TIMESTAMP_LTZ(1577836800001, 3), ARRAY[1, 2], MAP['k', 7], "
        "ROW(1, 'y'))"
    ).wait()
    (row,) = collected(tables, "SELECT * FROM t")
    assert row[:10] == (1, True, 2, 3, 1.5, 2.5, row[6], "é", "abc", b"\x00\xff")
    assert str(row[6]) == "3.25000"
    assert [str(one) for one in row[10:13]] == [
        "2020-02-29",
        "2020-01-01 00:00:00.000001",
        "2020-01-01 00:00:00.001000",
    ]
    assert list(row[14]) == [1, 2]
    assert dict(row[15]) == {"k": 7}
    assert tuple(row[16]) == (1, "y")


def test_only_what_a_query_needs_is_read(tmp_path: Path) -> None:
    """Files are passed over by their partitions and figures: those that are gone would fail the query."""
    tables = environment()
    tables.execute_sql(ddl("t", tmp_path, "n INT, moment TIMESTAMP(3), k STRING", partitions="k"))
    for k in "abc":
        tables.execute_sql(
            f"INSERT INTO t VALUES ({ord(k)}, TIMESTAMP '2020-01-0{ord(k) - 96} 00:00:00.5', '{k}')"
        ).wait()
    plan = tables.explain_sql("SELECT n FROM t WHERE k = 'b'")
    assert "filter=[" in plan
    assert "fields=[n, k]" in plan
    (kept,) = (tmp_path / "k=b").glob("*.parquet")
    for file in tmp_path.glob("k=*/*.parquet"):
        if file != kept:
            file.unlink()
    for condition in (
        "k = 'b'",
        "k IN ('b', 'x')",
        "k > 'a' AND n = 98",
        "n BETWEEN 98 AND 98",
        "moment = TIMESTAMP '2020-01-02 00:00:00.5'",
        "moment > TIMESTAMP '2020-01-02 00:00:00' AND moment < TIMESTAMP '2020-01-03 00:00:00'",
    ):
        assert collected(tables, f"SELECT n, k FROM t WHERE {condition}") == [(98, "b")], condition
    with pytest.raises(Exception, match="VACUUM has removed it"):
        collected(tables, "SELECT n FROM t WHERE n >= 98")


def test_versions_and_following(tmp_path: Path) -> None:
    tables = environment()
    streaming = ", 'mode' = 'streaming', 'updateCheckIntervalMillis' = '20'"
    tables.execute_sql(ddl("t", tmp_path, "n INT"))
    tables.execute_sql("INSERT INTO t VALUES (1), (2)").wait()
    tables.execute_sql("INSERT INTO t VALUES (3)").wait()
    first = DeltaTable(tmp_path).version() - 1
    tables.execute_sql(ddl("follows", tmp_path, "n INT", streaming))
    assert collected(tables, "SELECT * FROM follows", 3) == [(1,), (2,), (3,)]
    assert collected(tables, f"SELECT * FROM t /*+ OPTIONS('versionAsOf' = '{first}') */") == [(1,), (2,)]
    since = f"'startingVersion' = '{first + 1}'"
    assert collected(tables, f"SELECT * FROM follows /*+ OPTIONS({since}) */", 1) == [(3,)]


def test_changes_of_a_table_as_a_changelog(tmp_path: Path) -> None:
    """What one job merges another one reads as changes, and keeps the sum right."""
    tables = environment()
    columns = "k INT, v INT, PRIMARY KEY (k) NOT ENFORCED"
    tables.execute_sql(ddl("t", tmp_path, columns, ", 'delta.enableChangeDataFeed' = 'true'"))
    tables.execute_sql("INSERT INTO t VALUES (1, 10), (2, 20) ON CONFLICT DO DEDUPLICATE").wait()
    tables.execute_sql("INSERT INTO t VALUES (1, 11), (3, 30) ON CONFLICT DO DEDUPLICATE").wait()
    more = ", 'mode' = 'streaming', 'updateCheckIntervalMillis' = '20', 'readChangeFeed' = 'true'"
    tables.execute_sql(ddl("changes", tmp_path, columns, more + ", 'startingVersion' = '1'"))
    totals = []
    with tables.execute_sql("SELECT SUM(v) FROM changes").collect() as rows:
        for row in rows:
            totals.append(row[0])
            if row[0] == 61 and "DELETE" not in str(row.get_row_kind()):
                break
    assert totals[-1] == 61


def test_mistakes_are_named(tmp_path: Path) -> None:
    tables = environment()

    def fails(columns: str, more: str, kind: type[Exception], text: str, statement: str = "SELECT * FROM t") -> None:
        tables.execute_sql("DROP TABLE IF EXISTS t")
        tables.execute_sql(ddl("t", tmp_path, columns, more))
        with pytest.raises(kind, match=text):
            tables.execute_sql(statement).wait()

    fails("n INT", ", 'startingVersion' = '1'", ValidationError, "'mode' = 'streaming'")
    fails("n INT", ", 'mode' = 'both'", ValidationError, "batch or streaming, not both")
    fails("n INT", ", 'versionAsOf' = '1', 'timestampAsOf' = '2020-01-01'", ValidationError, "not at both")
    fails("n TIME(0)", "", UnsupportedError, "table .*: column 'n' has the type time32")
    fails("n TIMESTAMP(9)", "", UnsupportedError, r"use 6 digits, TIMESTAMP\(6\)")
    fails("n INT", ", 'compactAfterVersions' = '0'", ValidationError, "1 or above", "INSERT INTO t VALUES (1)")
    fails("n INT", "", Exception, "there is no Delta table at")
    tables.execute_sql("INSERT INTO t VALUES (1)").wait()
    fails("n STRING", "", Exception, "column 'n' of the Delta table .* is int32, and is read as string")
    fails("n INT, m INT", "", Exception, "has no columns m: add them", "INSERT INTO t VALUES (1, 2)")
    tables.execute_sql(ddl("there", tmp_path, "n INT"))
    with pytest.raises(ValidationError, match="doesn't support consuming update"):
        tables.execute_sql("INSERT INTO t SELECT CAST(COUNT(*) AS INT), 1 FROM there").wait()
