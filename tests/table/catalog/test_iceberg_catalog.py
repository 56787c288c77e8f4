"""`'type' = 'iceberg'`: forty operations by SQL and by pyiceberg in turn, and both see the same after each.

`python -m tests.table.catalog.test_iceberg_catalog rest|hive SCRIPT` runs them with a server that SCRIPT starts on a
port, such as `iceberg-rest.sh PORT DIRECTORY`.
"""

from __future__ import annotations

import datetime
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from tests.connectors.iceberg.test_exactly_once import commit, host, prepared
from tests.servers.ports import free_port
from tests.table.catalog.crosswise import Operation, Pyiceberg, column, environment, rows, run_operations

from penstock.base.errors import ConfigurationError, JobExecutionError, OperationError, UnsupportedError
from penstock.base.secrets import hide
from penstock.connectors.iceberg.committer import CommitError
from penstock.connectors.iceberg.sink import IcebergSink
from penstock.connectors.iceberg.tables import CatalogLoader, NewTable, SinkSettings, TableLoader
from penstock.sql.catalogs.ddl import build_catalog_table
from penstock.sql.connectors.iceberg import METADATA_TABLES, NEW_TABLE
from penstock.sql.connectors.iceberg_catalog import iceberg_catalog
from penstock.sql.data.errors import ValidationError
from penstock.sql.parser import parse_statement
from penstock.table import TableEnvironment
from penstock.table.catalog import ObjectPath


def _create_elsewhere(catalog: Any) -> None:
    kinds = [iceberg.LongType(), iceberg.StringType(), iceberg.TimestamptzType(), iceberg.FixedType(4)]
    fields = [iceberg.NestedField(n + 1, f"c{n}", kind, required=not n) for n, kind in enumerate(kinds)]
    inner = iceberg.StructType(iceberg.NestedField(11, "x", iceberg.DoubleType(), required=True, doc="inner"))
    fields.append(iceberg.NestedField(9, "r", inner, doc="a row"))
    table = catalog.create_table(("shop", "theirs"), Schema(*fields, identifier_field_ids=[1]), properties={"k": "v"})
    row = {"c0": 7, "c1": "x", "c2": None, "c3": b"1234", "r": {"x": 0.5}}
    table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))


def _change(name: str, act: Any) -> Any:
    return lambda catalog: act(catalog.load_table(("shop", name)))


def _evolve(table: Any) -> None:
    with table.update_schema() as update:
        update.add_column("later", iceberg.IntegerType(), "added by pyiceberg")
        update.rename_column("c1", "name")
        update.move_first("later")


def _append(table: Any) -> None:
    rows_ = [{"id": 9, "name": "nine", "day": None}]
    table.append(pa.Table.from_pylist(rows_, schema=table.schema().as_arrow()))


def operations(has_properties: bool, renames: bool) -> list[Operation]:
    """The operations; a catalog of directories has neither properties of databases nor other names for tables."""
    made = " COMMENT 'All shops' WITH ('a' = 'b')" if has_properties else ""
    no_rename = "" if renames else "does not rename tables"
    no_properties = "" if has_properties else "does not keep properties"
    ours, theirs = ("shop.ours",), ("shop.theirs",)
    return [
        Operation(f"CREATE DATABASE shop{made}"),
        Operation("CREATE DATABASE shop", error="already exists"),
        Operation("CREATE DATABASE IF NOT EXISTS shop"),
        Operation("ALTER DATABASE shop SET ('a' = 'c', 'd' = 'e')", error=no_properties),
        Operation(lambda catalog: catalog.create_namespace("other")),
        Operation(
            "CREATE TABLE shop.ours (id BIGINT NOT NULL COMMENT 'which', name STRING, `day` DATE, "
            "PRIMARY KEY (id) NOT ENFORCED) COMMENT 'it''s ours' PARTITIONED BY (name) WITH ('k' = 'v')",
            ours,
        ),
        Operation("CREATE TABLE shop.ours (id INT)", ours, "already exists"),
        Operation("CREATE TABLE IF NOT EXISTS shop.ours (id INT)", ours),
        Operation("INSERT INTO shop.ours VALUES (1, 'a', DATE '2026-01-31') ON CONFLICT DO DEDUPLICATE", ours),
        Operation(_change("ours", _append), ours),
        Operation("INSERT INTO shop.ours VALUES (9, 'new', NULL) ON CONFLICT DO DEDUPLICATE", ours),
        Operation(_create_elsewhere, theirs),
        Operation(
            "INSERT INTO shop.theirs VALUES (8, 'y', NULL, X'01020304', ROW(1.5E0)) ON CONFLICT DO DEDUPLICATE", theirs
        ),
        Operation(_change("theirs", _evolve), theirs),
        Operation("ALTER TABLE shop.theirs ADD (extra DECIMAL(9, 2) COMMENT 'money' AFTER later)", theirs),
        Operation("ALTER TABLE shop.theirs RENAME later TO earlier", theirs),
        Operation("ALTER TABLE shop.theirs MODIFY (earlier BIGINT COMMENT 'wider', name STRING FIRST)", theirs),
        Operation("ALTER TABLE shop.theirs MODIFY earlier INT", theirs, "Cannot change column type"),
        Operation("ALTER TABLE shop.theirs DROP extra", theirs),
        Operation("ALTER TABLE shop.theirs DROP PRIMARY KEY", theirs),
        Operation("ALTER TABLE shop.theirs ADD PRIMARY KEY (c0) NOT ENFORCED", theirs),
        Operation("ALTER TABLE shop.theirs ADD PRIMARY KEY (name) NOT ENFORCED", theirs, "already defined the primary"),
        Operation("ALTER TABLE shop.theirs ADD (late INT NOT NULL)", theirs, "cannot be added as NOT NULL"),
        Operation("ALTER TABLE shop.ours SET ('k' = 'w', 'write.metadata.metrics.default' = 'full')", ours),
        Operation("ALTER TABLE shop.ours RESET ('k')", ours),
        Operation("ALTER TABLE shop.ours DROP name", ours, "is used as the partition keys"),
        Operation("CREATE TABLE shop.copy LIKE shop.ours (EXCLUDING OPTIONS)", ("shop.copy",)),
        Operation(
            "CREATE TABLE other.hidden (id BIGINT, ts TIMESTAMP(3)) "
            "WITH ('sink.partitioning' = 'day(ts), bucket(4, id)')",
            ("other.hidden",),
        ),
        Operation(
            "INSERT INTO other.hidden VALUES (1, TIMESTAMP '2026-01-31 10:00:00'), (2, CAST(NULL AS TIMESTAMP(3)))",
            ("other.hidden",),
        ),
        Operation("ALTER TABLE other.hidden SET ('sink.partitioning' = 'month(ts)')", ("other.hidden",)),
        Operation("INSERT INTO other.hidden VALUES (3, TIMESTAMP '2026-02-28 10:00:00')", ("other.hidden",)),
        Operation("CREATE TABLE shop.made AS SELECT name, c0 FROM shop.theirs", ("shop.made",)),
        Operation("CREATE OR REPLACE TABLE shop.made AS SELECT id FROM other.hidden", ("shop.made",)),
        Operation("CREATE TABLE shop.made AS SELECT 1 AS n", ("shop.made",), "already exists"),
        Operation("ALTER TABLE shop.made RENAME TO renamed", error=no_rename),
        Operation(lambda catalog: catalog.drop_table(("shop", "renamed" if renames else "made"))),
        Operation("DROP TABLE shop.copy"),
        Operation("DROP TABLE shop.copy", error="does not exist"),
        Operation("DROP TABLE IF EXISTS shop.copy"),
        Operation("DROP DATABASE shop", error="is not empty"),
        Operation("DROP DATABASE shop CASCADE"),
        Operation(lambda catalog: catalog.drop_namespace("empty"), error="NoSuchNamespaceError"),
        Operation("DROP DATABASE shop", error="does not exist"),
    ]


def _options(kind: str, folder: Path) -> dict[str, str]:
    found = {"catalog-type": kind, "warehouse": f"file://{folder}/warehouse"}
    return found | ({"uri": f"sqlite:///{folder}/catalog.db"} if kind == "sql" else {})


def _register(tables: TableEnvironment, options: dict[str, str], name: str = "lake") -> None:
    told = ", ".join(f"'{key}' = '{value}'" for key, value in {"type": "iceberg", **options}.items())
    tables.execute_sql(f"CREATE CATALOG {name} WITH ({told})")
    tables.execute_sql(f"USE CATALOG {name}")


@pytest.fixture
def lake(tmp_path: Path) -> TableEnvironment:
    tables = environment()
    _register(tables, _options("sql", tmp_path))
    return tables


def _other(options: dict[str, str], *hidden: str) -> Pyiceberg:
    loader = CatalogLoader.of("lake", options)
    return Pyiceberg(loader.load_catalog, hidden)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sql", "hadoop"])
def test_forty_operations_crosswise(kind: str, tmp_path: Path) -> None:
    tables, options = environment(), _options(kind, tmp_path)
    _register(tables, options)
    others = operations(has_properties=kind == "sql", renames=kind == "sql")
    assert run_operations(tables, _other(options), others) >= 40


def test_every_type_comes_back(lake: TableEnvironment) -> None:
    lake.execute_sql(
        "CREATE TABLE t (c CHAR(3), ti TINYINT, si SMALLINT, m MULTISET<STRING>, d DECIMAL(38, 10), b BINARY(4), "
        "bs BYTES, ts TIMESTAMP(3), z TIMESTAMP_LTZ(3), t TIME, a ARRAY<ROW<x INT NOT NULL, y MAP<STRING, DATE>>>)"
    )
    assert [row[1] for row in rows(lake, "DESCRIBE t")] == [
        *("STRING", "INT", "INT", "MAP<STRING NOT NULL, INT NOT NULL>", "DECIMAL(38, 10)", "BINARY(4)", "BYTES"),
        *("TIMESTAMP(6)", "TIMESTAMP_LTZ(6)", "TIME(6)"),
        "ARRAY<ROW<`x` INT NOT NULL, `y` MAP<STRING NOT NULL, DATE>>>",
    ]
    lake.execute_sql("INSERT INTO t (b, a) VALUES (X'01020304', ARRAY[ROW(1, MAP['k', DATE '2026-01-31'])])").wait()
    assert str(rows(lake, "SELECT b, a[1].x, a[1].y['k'] FROM t")[0][2]) == "2026-01-31"


REFUSED = [
    ("CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS ts)", "keeps no watermarks: make a TEMPORARY TABLE"),
    ("CREATE TABLE t (a INT, b AS a + 1)", "keeps no computed and metadata columns"),
    ("CREATE TABLE t (a INT) WITH ('connector' = 'print')", "tables of Iceberg alone, not of the connector 'print'"),
    ("CREATE TABLE t (a TIMESTAMP(9))", "keeps points in time with 6 digits"),
    ("CREATE TABLE t (a INTERVAL DAY)", "column 'a': Iceberg has no type for INTERVAL DAY"),
    ("CREATE TABLE t (a INT) WITH ('sink.partitioning' = 'day(a)')", "day cannot transform int"),
    ("CREATE TABLE t (a INT) WITH ('sink.partitioning' = 'day(b)')", "names no column with 'b'"),
    ("CREATE TABLE nowhere.t (a INT)", "Database nowhere does not exist"),
    ("CREATE VIEW v AS SELECT 1 AS a", "keeps no views: make a TEMPORARY VIEW"),
    ("CREATE FUNCTION f AS 'a.b' LANGUAGE PYTHON", "keeps no functions: make a TEMPORARY FUNCTION"),
]


@pytest.mark.parametrize(("sql", "message"), REFUSED)
def test_what_iceberg_does_not_keep_is_refused(lake: TableEnvironment, sql: str, message: str) -> None:
    with pytest.raises((UnsupportedError, ValidationError), match=message):
        lake.execute_sql(sql)
    assert column(lake, "SHOW TABLES") == []


WRONG = [
    ({}, "needs 'catalog-type', one of rest, sql"),
    ({"catalog-type": "blue"}, "there is no 'catalog-type' 'blue'"),
    ({"catalog-type": "in-memory"}, "no worker would find a table"),
    ({"catalog-type": "nessie"}, "Nessie serves the REST protocol"),
    ({"catalog-impl": "org.example.Own"}, "is a class of Java that pyiceberg has no counterpart for"),
    ({"catalog-impl": "org.apache.iceberg.rest.RESTCatalog", "catalog-type": "rest"}, "leave out one of the two"),
    ({"catalog-type": "hadoop"}, "needs 'warehouse'"),
    ({"catalog-type": "hadoop", "warehouse": "s3://bucket/lake"}, "for an object store"),
    ({"catalog-type": "sql", "warehouse": "/tmp/w"}, "needs 'uri'"),
    ({"catalog-type": "sql", "warehouse": "/tmp/w", "uri": "jdbc:oracle:thin"}, "use PostgreSQL, MySQL or SQLite"),
    ({"catalog-type": "rest", "uri": "http://127.0.0.1:1"}, "does not do this"),
    ({"catalog-type": "rest", "uri": "http://127.0.0.1:1", "colour": "red"}, "Unsupported options .*: colour"),
    ({"catalog-type": "hive", "uri": "thrift://x", "hive-conf-dir": "/etc"}, "give the metastore's address in 'uri'"),
    ({"catalog-type": "rest", "uri": "http://127.0.0.1:1", "property-version": "2"}, "'property-version' is 1"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_options_are_told_with_a_remedy(options: dict[str, str], message: str) -> None:
    with pytest.raises((UnsupportedError, ValidationError, ConfigurationError, OperationError), match=message):
        _register(environment(), options)


def test_options_of_java_are_translated(tmp_path: Path) -> None:
    tables = environment()
    options = {"catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog", "uri": f"jdbc:sqlite:{tmp_path}/c.db"}
    more = {"warehouse": f"file://{tmp_path}/w", "cache-enabled": "false", "default-database": "first"}
    _register(tables, options | more | {"io-impl": "org.apache.iceberg.io.ResolvingFileIO", "property-version": "1"})
    assert column(tables, "SHOW CURRENT DATABASE") == ["first"]
    tables.execute_sql("CREATE TABLE t (a INT)")
    assert _other(_options("sql", tmp_path) | {"uri": f"sqlite:///{tmp_path}/c.db"}).tables("first") == ["t"]


def test_secrets_are_shown_nowhere(tmp_path: Path) -> None:
    tables = environment()
    _register(tables, _options("sql", tmp_path) | {"s3.secret-access-key": "letmein12", "token": "letmein34"})
    tables.execute_sql("CREATE TABLE t (a INT)")
    shown = [
        *("SHOW CREATE CATALOG lake", "DESCRIBE CATALOG EXTENDED lake", "SHOW CREATE TABLE t"),
        "EXPLAIN SELECT * FROM t",
    ]
    for sql in shown:
        assert "letmein" not in str(rows(tables, sql)), sql
    assert all("******" in str(rows(tables, sql)) for sql in shown[:2])
    assert hide("letmein12 and letmein34") == "****** and ******"


def test_a_copy_elsewhere_reads_the_same_table(lake: TableEnvironment) -> None:
    """A temporary table LIKE it adds the event time, and one in another catalog has the options of the connector."""
    lake.execute_sql("CREATE TABLE t (id INT, ts TIMESTAMP(3)) WITH ('owner' = 'me')")
    lake.execute_sql("INSERT INTO t VALUES (1, TIMESTAMP '2026-01-31 10:00:00')").wait()
    lake.execute_sql(
        "CREATE TEMPORARY TABLE timed (t3 AS CAST(ts AS TIMESTAMP(3)), WATERMARK FOR t3 AS t3) LIKE lake.`default`.t"
    )
    assert [row[0] for row in rows(lake, "SELECT id FROM timed")] == [1]
    lake.execute_sql("CREATE TABLE default_catalog.default_database.t LIKE lake.`default`.t")
    assert rows(lake, "SELECT id FROM default_catalog.default_database.t") == [(1,)]


def test_changing_the_options_of_the_catalog_takes_effect(lake: TableEnvironment, tmp_path: Path) -> None:
    lake.execute_sql("CREATE TABLE t (a INT)")
    lake.execute_sql(f"ALTER CATALOG lake SET ('uri' = 'sqlite:///{tmp_path}/second.db')")
    assert column(lake, "SHOW TABLES") == []
    lake.execute_sql("USE CATALOG default_catalog")
    lake.execute_sql("DROP CATALOG lake")
    assert "lake" not in column(lake, "SHOW CATALOGS")


def test_a_table_that_is_dropped_while_it_is_used_is_told(lake: TableEnvironment, tmp_path: Path) -> None:
    lake.execute_sql("CREATE TABLE t (a INT)")
    plan = lake.sql_query("SELECT a FROM t")
    _other(_options("sql", tmp_path)).drop_table(("default", "t"))
    with pytest.raises(JobExecutionError, match=r"there is no table lake\.default\.t: create it"):
        plan.execute().wait()
    with pytest.raises(ValidationError, match="'t'"):
        lake.execute_sql("SELECT a FROM t")


def test_earlier_versions_are_read_with_their_columns(lake: TableEnvironment, tmp_path: Path) -> None:
    lake.execute_sql("CREATE TABLE t (a INT)")
    lake.execute_sql("INSERT INTO t VALUES (1)").wait()
    lake.execute_sql("ALTER TABLE t ADD b INT")
    lake.execute_sql("INSERT INTO t VALUES (2, 3)").wait()
    loaded = _other(_options("sql", tmp_path)).load_table(("default", "t"))
    first, second = loaded.history()
    loaded.manage_snapshots().create_tag(first.snapshot_id, "one").create_branch(first.snapshot_id, "audit").commit()
    for zone in ("UTC", "Asia/Tokyo"):
        lake.get_config().set_local_timezone(zone)
        between = datetime.datetime.fromtimestamp(second.timestamp_ms / 1000 - 0.001, ZoneInfo(zone))
        moment = f"TIMESTAMP '{between.isoformat(sep=' ', timespec='milliseconds')[:23]}'"
        assert rows(lake, f"SELECT * FROM t FOR SYSTEM_TIME AS OF {moment}") == [(1,)]
        assert rows(lake, f"SELECT x.b FROM t AS x JOIN t FOR SYSTEM_TIME AS OF {moment} AS y ON x.a = y.a") == [
            (None,)
        ]
    assert rows(lake, "SELECT a FROM t /*+ OPTIONS('tag' = 'one') */") == [(1,)]
    assert rows(lake, f"SELECT a FROM t /*+ OPTIONS('snapshot-id' = '{first.snapshot_id}') */") == [(1,)]
    lake.execute_sql("INSERT INTO t /*+ OPTIONS('branch' = 'audit') */ VALUES (9, 9)").wait()
    assert sorted(rows(lake, "SELECT a FROM t /*+ OPTIONS('branch' = 'audit') */")) == [(1,), (9,)]
    assert sorted(rows(lake, "SELECT a FROM t")) == [(1,), (2,)]
    with pytest.raises(ValidationError, match="no snapshot at or before 1999-12-31T15:00:00"):
        lake.execute_sql("SELECT * FROM t FOR SYSTEM_TIME AS OF TIMESTAMP '2000-01-01 00:00:00'")
    lake.execute_sql("CREATE TEMPORARY VIEW v AS SELECT * FROM t")
    with pytest.raises(UnsupportedError, match="is a view or temporary: name the table itself"):
        lake.execute_sql("SELECT * FROM v FOR SYSTEM_TIME AS OF TIMESTAMP '2000-01-01 00:00:00'")
    lake.execute_sql("CREATE TABLE default_catalog.default_database.p (a INT) WITH ('connector' = 'print')")
    with pytest.raises(UnsupportedError, match="keeps no earlier versions"):
        lake.execute_sql(
            "SELECT * FROM default_catalog.default_database.p FOR SYSTEM_TIME AS OF TIMESTAMP '2000-01-01 00:00:00'"
        )


def test_tables_about_a_table(lake: TableEnvironment, tmp_path: Path) -> None:
    lake.execute_sql("CREATE TABLE t (a INT, p STRING) PARTITIONED BY (p)")
    lake.execute_sql("INSERT INTO t VALUES (1, 'x'), (2, 'y')").wait()
    (snapshot,) = _other(_options("sql", tmp_path)).load_table(("default", "t")).snapshots()
    assert rows(lake, "SELECT snapshot_id, operation, summary['added-records'] FROM t$snapshots") == [
        (snapshot.snapshot_id, "append", "2")
    ]
    (history,) = rows(lake, "SELECT * FROM t$history")
    assert history[1:] == (snapshot.snapshot_id, None, True)
    assert round(history[0].timestamp() * 1000) == snapshot.timestamp_ms
    files = "SELECT f.`partition`.p, record_count, readable_metrics.a.upper_bound FROM lake.`default`.t$files AS f"
    assert sorted(rows(lake, files)) == [("x", 1, 1), ("y", 1, 2)]
    for kind in METADATA_TABLES:
        rows(lake, f"SELECT * FROM t${kind}")
    with pytest.raises(UnsupportedError, match="tells about a table, and is not written"):
        lake.execute_sql("INSERT INTO t$refs SELECT * FROM t$refs")
    with pytest.raises(ValidationError, match="does not exist"):
        lake.execute_sql("DROP TABLE t$refs")
    assert column(lake, "SHOW TABLES") == ["t"]


@pytest.mark.parametrize("kind", ["sql", "hadoop"])
def test_two_writers_at_once_lose_nothing(kind: str, tmp_path: Path) -> None:
    """Both add columns to one table: each change is made on top of the other's."""
    options = _options(kind, tmp_path)
    made = [environment(), environment()]
    for tables in made:
        _register(tables, options)
    made[0].execute_sql("CREATE TABLE t (a INT)")
    failed: list[BaseException] = []

    def add(tables: TableEnvironment, mine: str) -> None:
        try:
            for number in range(8):
                tables.execute_sql(f"ALTER TABLE t ADD {mine}{number} INT")
        except BaseException as error:  # noqa: BLE001 - told by the test
            failed.append(error)

    threads = [threading.Thread(target=add, args=(tables, mine)) for tables, mine in zip(made, "xy", strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    assert sorted(column(made[0], "DESCRIBE t")) == ["a", *(f"{mine}{n}" for mine in "xy" for n in range(8))]


def _staged_sink(tmp_path: Path, ddl: str, replaces: bool) -> IcebergSink:
    """The sink of CREATE TABLE AS in batch."""
    catalog = iceberg_catalog("lake", _options("sql", tmp_path))
    table = build_catalog_table(parse_statement(ddl))  # type: ignore[arg-type]
    staged = catalog.stage_table(ObjectPath("default", "t"), table, replaces).options_for_connector()
    loader = TableLoader.from_catalog(CatalogLoader.of("lake", _options("sql", tmp_path)), "default.t")
    return IcebergSink(SinkSettings(loader, new=NewTable.from_text(staged[NEW_TABLE])))


def test_the_commit_of_a_new_table_is_once_and_not_in_the_place_of_another(tmp_path: Path) -> None:
    other = _other(_options("sql", tmp_path))
    sink = _staged_sink(tmp_path, "CREATE TABLE t (a INT, b STRING)", False)
    second = _staged_sink(tmp_path, "CREATE TABLE t (c INT)", False)
    staged = prepared(sink, [(1, "x"), (2, "y")], host("a"))
    assert other.tables("default") == []
    commit(sink, staged)
    commit(sink, staged, again=True)
    assert (len(other.load_table(("default", "t")).history()), len(other.describe("default", "t").rows)) == (1, 2)
    with pytest.raises(CommitError, match="was created by another writer while this job made its rows"):
        commit(second, prepared(second, [(1,)], host("b")))
    replacing = _staged_sink(tmp_path, "CREATE TABLE t (b INT, d STRING)", True)
    late = _staged_sink(tmp_path, "CREATE TABLE t (e INT)", True)
    of_late = prepared(late, [(7,)], host("d"))
    staged = prepared(replacing, [(5, "z")], host("c"))
    commit(replacing, staged)
    commit(replacing, staged, again=True)
    assert other.describe("default", "t").rows == [(5, "z")]
    with pytest.raises(CommitError, match="was altered by another writer"):
        commit(late, of_late)
    assert other.describe("default", "t").rows == [(5, "z")]
    earlier = other.load_table(("default", "t")).history()[0].snapshot_id
    assert other.load_table(("default", "t")).scan(snapshot_id=earlier).to_arrow().num_rows == 2


def test_a_job_that_cannot_be_planned_leaves_no_table(lake: TableEnvironment) -> None:
    lake.execute_sql("CREATE TABLE s (id INT, name STRING)")
    with pytest.raises(ValidationError, match="upsert key"):
        lake.execute_sql("CREATE TABLE t (PRIMARY KEY (id) NOT ENFORCED) AS SELECT id, name FROM s")
    assert column(lake, "SHOW TABLES") == ["s"]


def main(kind: str, script: str) -> None:
    """Run the operations with a server."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        server = subprocess.Popen([script, str(port), folder])
        try:
            scheme = "http" if kind == "rest" else "thrift"
            options = {"catalog-type": kind, "uri": f"{scheme}://127.0.0.1:{port}", "warehouse": f"file://{folder}/w"}
            _wait_for(port)
            tables = environment()
            _register(tables, options)
            others = operations(has_properties=True, renames=True)
            count = run_operations(tables, _other(options), others)
            print(f"{count} operations with {kind}: SQL and pyiceberg agree after each")
        finally:
            server.terminate()
            server.wait()


def _wait_for(port: int) -> None:
    import socket
    import time

    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"nothing answers on port {port}")


if __name__ == "__main__":
    main(*sys.argv[1:])
