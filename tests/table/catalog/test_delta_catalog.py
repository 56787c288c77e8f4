"""`'type' = 'delta'`: forty operations by SQL and by delta-rs in turn, and both see the same after each."""

from __future__ import annotations

import datetime
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from tests.table.catalog.crosswise import Described, Operation, column, environment, plain, rows, run_operations

from penstock.base.errors import JobExecutionError, OperationError, UnsupportedError
from penstock.sql.data.errors import ValidationError
from penstock.table import TableEnvironment

_NAMES = {
    "boolean": "BOOLEAN",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "string": "STRING",
    "binary": "BYTES",
    "timestamp": "TIMESTAMP_LTZ(6)",
    "timestamp_ntz": "TIMESTAMP(6)",
}


def sql_type(kind: Any) -> str:
    """The type as SQL has it, written down a second time."""
    if isinstance(kind, str):
        return kind.upper().replace(",", ", ") if kind.startswith("decimal") else _NAMES[kind]
    if kind["type"] == "struct":
        fields = ("`{}` {}".format(field["name"], _field(field)) for field in kind["fields"])
        return f"ROW<{', '.join(fields)}>"
    if kind["type"] == "array":
        return f"ARRAY<{_part(kind['elementType'], kind['containsNull'])}>"
    return f"MAP<{_part(kind['keyType'], False)}, {_part(kind['valueType'], kind['valueContainsNull'])}>"


def _part(kind: Any, may_be_null: bool) -> str:
    return sql_type(kind) + ("" if may_be_null else " NOT NULL")


def _field(field: Any) -> str:
    comment = field["metadata"].get("comment")
    return _part(field["type"], field["nullable"]) + (f" '{comment}'" if comment else "")


class DeltaRs:
    """The directory, as delta-rs sees it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def databases(self) -> dict[str, dict[str, str]]:
        found = {}
        for folder in sorted(self.root.iterdir()):
            document = folder / ".database.json"
            content = json.loads(document.read_text()) if document.exists() else {"properties": {}, "comment": None}
            comment = {"comment": content["comment"]} if content["comment"] else {}
            found[folder.name] = content["properties"] | comment
        return found

    def tables(self, database: str) -> list[str]:
        folders = [folder for folder in (self.root / database).iterdir() if folder.is_dir()]
        return [folder.name for folder in folders if DeltaTable.is_deltatable(str(folder))]

    def describe(self, database: str, table: str) -> Described:
        loaded = DeltaTable(self.root / database / table)
        fields = json.loads(loaded.schema().to_json())["fields"]
        columns = [
            (field["name"], sql_type(field["type"]), field["nullable"], field["metadata"].get("comment"))
            for field in fields
        ]
        key = [field["name"] for field in fields if field["metadata"].get("penstock.key")]
        keys, partitions = loaded.metadata().partition_columns, None
        if keys:
            values = loaded.partitions()
            texts = ("/".join(f"{key}={each[key] or '__HIVE_DEFAULT_PARTITION__'}" for key in keys) for each in values)
            partitions = sorted(texts)
        found = [plain(tuple(row.values())) for row in loaded.to_pyarrow_table().to_pylist()]
        return Described(columns, key, loaded.metadata().description or None, partitions, sorted(found, key=repr))

    def load(self, name: str) -> DeltaTable:
        return DeltaTable(self.root / "shop" / name)


def _write_elsewhere(lake: DeltaRs) -> None:
    inner = pa.struct([("x", pa.float64()), ("y", pa.list_(pa.int16()))])
    schema = pa.schema(
        [
            pa.field("c0", pa.int64(), False, metadata={"comment": "theirs"}),
            pa.field("r", inner),
            pa.field("m", pa.map_(pa.string(), pa.decimal128(5, 1))),
            pa.field("p", pa.string()),
            pa.field("t", pa.timestamp("us")),
        ]
    )
    row = {"c0": 7, "r": {"x": 0.5, "y": [1, None]}, "m": None, "p": "x", "t": datetime.datetime(2026, 1, 31)}
    data = pa.Table.from_pylist([row, row | {"c0": 8, "p": None}], schema=schema)
    write_deltalake(lake.root / "shop" / "theirs", data, partition_by=["p"], description="made by delta-rs")


def _add_theirs(lake: DeltaRs) -> None:
    lake.load("theirs").alter.add_columns(Field("later", PrimitiveType("integer"), nullable=True))


def _append(lake: DeltaRs) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), ("name", pa.string()), ("day", pa.date32())])
    row = {"id": 9, "name": "nine", "day": None}
    write_deltalake(lake.root / "shop" / "ours", pa.Table.from_pylist([row], schema=schema), mode="append")


def _make_empty(lake: DeltaRs) -> None:
    (lake.root / "plain").mkdir()


OURS, THEIRS = ("shop.ours",), ("shop.theirs",)
OPERATIONS = [
    Operation("CREATE DATABASE shop COMMENT 'All shops' WITH ('a' = 'b')"),
    Operation("CREATE DATABASE shop", error="already exists"),
    Operation("CREATE DATABASE IF NOT EXISTS shop"),
    Operation("ALTER DATABASE shop SET ('a' = 'c', 'd' = 'e')"),
    Operation(_make_empty),
    Operation(
        "CREATE TABLE shop.ours (id BIGINT NOT NULL COMMENT 'which', name STRING, `day` DATE, "
        "PRIMARY KEY (id) NOT ENFORCED) COMMENT 'it''s ours' PARTITIONED BY (name) "
        "WITH ('delta.enableChangeDataFeed' = 'true', 'k' = 'v')",
        OURS,
    ),
    Operation("CREATE TABLE shop.ours (id INT)", OURS, "already exists"),
    Operation("CREATE TABLE IF NOT EXISTS shop.ours (id INT)", OURS),
    Operation("INSERT INTO shop.ours VALUES (1, 'a', DATE '2026-01-31') ON CONFLICT DO DEDUPLICATE", OURS),
    Operation(_append, OURS),
    Operation("INSERT INTO shop.ours VALUES (9, 'new', NULL) ON CONFLICT DO DEDUPLICATE", OURS),
    Operation(_write_elsewhere, THEIRS),
    Operation("INSERT INTO shop.theirs (c0, p) VALUES (9, 'z')", THEIRS),
    Operation(_add_theirs, THEIRS),
    Operation("ALTER TABLE shop.theirs ADD (extra DECIMAL(9, 2) COMMENT 'money', more ROW<a INT, b STRING>)", THEIRS),
    Operation("ALTER TABLE shop.theirs ADD (extra INT)", THEIRS, "already exists"),
    Operation("ALTER TABLE shop.theirs MODIFY extra DECIMAL(9, 2) COMMENT 'a lot'", THEIRS),
    Operation("ALTER TABLE shop.theirs MODIFY later BIGINT", THEIRS, "delta-rs changes no type: alter it with Spark"),
    Operation("ALTER TABLE shop.theirs ADD (early INT FIRST)", THEIRS, "adds columns behind the others"),
    Operation("ALTER TABLE shop.theirs ADD (late INT NOT NULL)", THEIRS, "cannot be added as NOT NULL"),
    Operation("ALTER TABLE shop.theirs DROP extra", THEIRS, "needs mapped columns"),
    Operation("ALTER TABLE shop.theirs RENAME extra TO plus", THEIRS, "CREATE OR REPLACE TABLE"),
    Operation("ALTER TABLE shop.theirs ADD PRIMARY KEY (c0) NOT ENFORCED", THEIRS),
    Operation("INSERT INTO shop.theirs (c0, p) VALUES (7, 'seven') ON CONFLICT DO DEDUPLICATE", THEIRS),
    Operation("ALTER TABLE shop.theirs DROP PRIMARY KEY", THEIRS),
    Operation("ALTER TABLE shop.theirs MODIFY c0 BIGINT", THEIRS),
    Operation("ALTER TABLE shop.theirs ADD PRIMARY KEY (c0) NOT ENFORCED", THEIRS, "may be NULL"),
    Operation("ALTER TABLE shop.ours SET ('k' = 'w', 'delta.logRetentionDuration' = 'interval 60 days')", OURS),
    Operation("ALTER TABLE shop.ours RESET ('k')", OURS, "delta-rs removes none"),
    Operation("CREATE TABLE shop.copy LIKE shop.ours", ("shop.copy",)),
    Operation("CREATE TABLE plain.made AS SELECT c0, p FROM shop.theirs", ("plain.made",)),
    Operation("CREATE TABLE plain.made AS SELECT 1 AS n", ("plain.made",), "already exists"),
    Operation("CREATE OR REPLACE TABLE plain.made AS SELECT p FROM shop.theirs", ("plain.made",)),
    Operation("ALTER TABLE plain.made RENAME TO renamed", ("plain.renamed",)),
    Operation(lambda lake: DeltaTable(lake.root / "plain" / "renamed").delete("p = 'z'"), ("plain.renamed",)),
    Operation(lambda lake: shutil.rmtree(lake.root / "plain" / "renamed")),
    Operation("DROP TABLE shop.copy"),
    Operation("DROP TABLE shop.copy", error="does not exist"),
    Operation("DROP TABLE IF EXISTS shop.copy"),
    Operation("DROP DATABASE shop", error="is not empty"),
    Operation("DROP DATABASE shop CASCADE"),
    Operation("DROP DATABASE shop", error="does not exist"),
    Operation(lambda lake: (lake.root / "plain").rmdir(), error="OSError"),
]


def _register(tables: TableEnvironment, path: Path | str) -> TableEnvironment:
    tables.execute_sql(f"CREATE CATALOG lake WITH ('type' = 'delta', 'path' = '{path}')")
    tables.execute_sql("USE CATALOG lake")
    return tables


@pytest.fixture
def lake(tmp_path: Path) -> TableEnvironment:
    return _register(environment(), tmp_path)


@pytest.mark.slow
def test_forty_operations_crosswise(lake: TableEnvironment, tmp_path: Path) -> None:
    operations = OPERATIONS[:-1]  # a folder that SQL has written into is not empty
    assert run_operations(lake, DeltaRs(tmp_path), operations) >= 40


def test_every_type_comes_back(lake: TableEnvironment) -> None:
    lake.execute_sql(
        "CREATE TABLE t (c CHAR(3), ti TINYINT, si SMALLINT, m MULTISET<STRING>, d DECIMAL(38, 10), b BINARY(4), "
        "ts TIMESTAMP(3), z TIMESTAMP_LTZ(3), a ARRAY<ROW<x INT NOT NULL, y MAP<STRING, DATE>>>)"
    )
    assert [row[1] for row in rows(lake, "DESCRIBE t")] == [
        *("STRING", "TINYINT", "SMALLINT", "MAP<STRING NOT NULL, INT NOT NULL>", "DECIMAL(38, 10)", "BYTES"),
        *("TIMESTAMP(6)", "TIMESTAMP_LTZ(6)", "ARRAY<ROW<`x` INT NOT NULL, `y` MAP<STRING NOT NULL, DATE>>>"),
    ]
    lake.execute_sql(
        "INSERT INTO t (ti, a) VALUES (CAST(3 AS TINYINT), ARRAY[ROW(1, MAP['k', DATE '2026-01-31'])])"
    ).wait()
    assert rows(lake, "SELECT ti, a[1].y['k'] FROM t") == [(3, datetime.date(2026, 1, 31))]


def test_a_protocol_lists_what_spark_wants_for_not_null(lake: TableEnvironment, tmp_path: Path) -> None:
    lake.execute_sql("CREATE TABLE t (a TIMESTAMP(6), b ROW<x INT NOT NULL>)")
    lake.execute_sql("INSERT INTO t VALUES (TIMESTAMP '2026-01-31 00:00:00', ROW(1))").wait()
    features = DeltaTable(tmp_path / "default" / "t").protocol().writer_features
    assert sorted(features or ()) == ["invariants", "timestampNtz"]
    lake.execute_sql("CREATE TABLE u (a TIMESTAMP(6), b INT)")
    assert DeltaTable(tmp_path / "default" / "u").version() == 0


REFUSED = [
    ("CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS ts)", "keeps no watermarks: make a TEMPORARY TABLE"),
    ("CREATE TABLE t (a INT, b AS a + 1)", "keeps no computed and metadata columns"),
    ("CREATE TABLE t (a INT) WITH ('connector' = 'print')", "tables of Delta Lake alone, not of the connector 'print'"),
    ("CREATE TABLE t (a INT) WITH ('mode' = 'streaming')", "give it by a hint"),
    ("CREATE TABLE t (a TIMESTAMP(9))", "keeps points in time with 6 digits"),
    ("CREATE TABLE t (a TIME)", r"column 'a': Delta Lake has no type for TIME\(0\)"),
    ("CREATE TABLE `_t` (a INT)", "is no name in catalog lake"),
    ("CREATE TABLE nowhere.t (a INT)", "Database nowhere does not exist"),
    ("CREATE VIEW v AS SELECT 1 AS a", "keeps no views: make a TEMPORARY VIEW"),
    ("CREATE FUNCTION f AS 'a.b' LANGUAGE PYTHON", "keeps no functions: make a TEMPORARY FUNCTION"),
    ("CREATE CATALOG c WITH ('type' = 'delta')", "needs the option 'path'"),
    ("CREATE CATALOG c WITH ('type' = 'delta', 'path' = '/tmp/x', 'colour' = 'red')", "Unsupported options .*: colour"),
]


@pytest.mark.parametrize(("sql", "message"), REFUSED)
def test_what_delta_lake_does_not_keep_is_refused(lake: TableEnvironment, sql: str, message: str) -> None:
    with pytest.raises((UnsupportedError, ValidationError), match=message):
        lake.execute_sql(sql)
    assert column(lake, "SHOW TABLES") == []


def test_a_folder_with_other_files_is_not_dropped(lake: TableEnvironment, tmp_path: Path) -> None:
    lake.execute_sql("CREATE DATABASE d")
    (tmp_path / "d" / "notes.txt").write_text("keep me")
    with pytest.raises(OperationError, match=r"has notes\.txt in its folder"):
        lake.execute_sql("DROP DATABASE d CASCADE")
    assert (tmp_path / "d" / "notes.txt").exists()


def test_a_table_that_is_dropped_while_it_is_used_is_told(lake: TableEnvironment) -> None:
    lake.execute_sql("CREATE TABLE t (a INT)")
    plan = lake.sql_query("SELECT a FROM t")
    lake.execute_sql("DROP TABLE t")
    with pytest.raises(JobExecutionError, match="there is no Delta table at"):
        plan.execute().wait()
    with pytest.raises(ValidationError, match="Cannot find table"):
        lake.execute_sql("INSERT INTO t VALUES (1)")


def test_earlier_versions_and_tables_about_a_table(lake: TableEnvironment, tmp_path: Path) -> None:
    lake.execute_sql("CREATE TABLE t (a INT, p STRING) PARTITIONED BY (p)")
    lake.execute_sql("INSERT INTO t VALUES (1, 'x')").wait()
    lake.execute_sql("ALTER TABLE t ADD b INT")
    lake.execute_sql("INSERT INTO t VALUES (2, 'y', 3)").wait()
    history = sorted(rows(lake, "SELECT `version`, operation, `timestamp` FROM t$history"))
    assert [row[:2] for row in history] == [(0, "CREATE TABLE"), (1, "WRITE"), (2, "ADD COLUMN"), (3, "WRITE")]
    moment = history[1][2].astimezone(datetime.UTC).replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")
    lake.get_config().set_local_timezone("UTC")
    assert rows(lake, f"SELECT * FROM t FOR SYSTEM_TIME AS OF TIMESTAMP '{moment}'") == [(1, "x")]
    assert rows(lake, "SELECT a FROM t /*+ OPTIONS('versionAsOf' = '1') */") == [(1,)]
    assert sorted(rows(lake, "SELECT num_records, `partition` FROM t$files")) == [(1, '{"p": "x"}'), (1, '{"p": "y"}')]
    with pytest.raises(UnsupportedError, match="tells about a table"):
        lake.execute_sql("INSERT INTO t$files SELECT * FROM t$files")
    with pytest.raises(ValidationError, match="does not exist"):
        lake.execute_sql("DROP TABLE t$files")
    assert DeltaRs(tmp_path).tables("default") == ["t"]


def test_two_writers_at_once_lose_nothing(lake: TableEnvironment, tmp_path: Path) -> None:
    made = [lake, _register(environment(), tmp_path)]
    lake.execute_sql("CREATE TABLE t (a INT)")
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
    assert sorted(column(lake, "DESCRIBE t")) == ["a", *(f"{mine}{n}" for mine in "xy" for n in range(8))]
