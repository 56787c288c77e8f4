"""`'type' = 'file'`: what is in a catalog survives the program, and several programs share it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import UnsupportedError
from penstock.sql.catalogs.columns import Schema
from penstock.sql.catalogs.ddl import build_catalog_table as table_of_ddl
from penstock.sql.catalogs.file_catalog import FileCatalog, build_catalog_table, table_document
from penstock.sql.catalogs.manager import InlineView
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.nodes import RowSchema, Values
from penstock.sql.parser import parse_statement, to_sql
from penstock.table import EnvironmentSettings, TableEnvironment
from penstock.table.catalog import Catalog, CatalogBaseTable, CatalogDatabase, CatalogFunction, ObjectPath

TABLES = [
    "CREATE TABLE t (id BIGINT NOT NULL, name STRING COMMENT 'a \"name\"', PRIMARY KEY (id) NOT ENFORCED)",
    "CREATE TABLE t (a DECIMAL(10, 2), r ROW<x INT NOT NULL, `y z` ARRAY<MAP<STRING, DATE>>>, b BYTES, c CHAR(3))",
    "CREATE TABLE t (ts TIMESTAMP(3), z TIMESTAMP_LTZ(3) METADATA FROM 'time' VIRTUAL, o INT METADATA, "
    "late AS ts - INTERVAL '5' SECOND COMMENT 'x', p AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)",
    "CREATE TABLE t (a INT, b STRING) COMMENT 'it''s' DISTRIBUTED BY HASH(a) INTO 4 BUCKETS PARTITIONED BY (b) "
    "WITH ('connector' = 'filesystem', 'path' = '/ö', 'format' = 'csv')",
]


def environment(path: Path) -> TableEnvironment:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local")
    tables.execute_sql(f"CREATE CATALOG files WITH ('type' = 'file', 'path' = '{path}')")
    tables.execute_sql("USE CATALOG files")
    return tables


def column(tables: TableEnvironment, sql: str) -> list[Any]:
    with tables.execute_sql(sql).collect() as rows:
        return [row[0] for row in rows]


# --- documents --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ddl", TABLES)
def test_tables_come_back_as_they_were(ddl: str) -> None:
    def shown(table: CatalogBaseTable) -> Any:
        schema = table.schema
        columns = [
            (one.name, str(one.data_type), one.is_metadata, one.metadata_key, one.is_virtual, one.comment)
            for one in schema.columns
        ]
        computed = [to_sql(one.expression) for one in schema.columns if one.expression is not None]
        marks = [(one.column, to_sql(one.expression)) for one in schema.watermarks]
        key = schema.primary_key, schema.primary_key_name
        return (
            columns,
            computed,
            marks,
            key,
            dict(table.options),
            table.comment,
            table.partition_keys,
            table.distribution,
        )

    table = table_of_ddl(parse_statement(ddl))  # type: ignore[arg-type]
    assert shown(build_catalog_table(table_document(table))) == shown(table)


def test_a_view_without_a_text_is_refused(tmp_path: Path) -> None:
    schema = RowSchema(())
    view = InlineView(schema=Schema(), plan=Values(schema=schema, rows=()))
    with pytest.raises(ValidationError, match="a view that the Table API made has no text"):
        FileCatalog("c", tmp_path).create_table(ObjectPath("default", "v"), view)


# --- by SQL -----------------------------------------------------------------------------------------------------------


def test_everything_is_there_in_the_next_program(tmp_path: Path) -> None:
    first = environment(tmp_path)
    first.execute_sql("CREATE DATABASE shop COMMENT 'all' WITH ('a' = 'b')")
    first.execute_sql("USE shop")
    first.execute_sql(
        "CREATE TABLE orders (id INT, price INT) WITH ('connector' = 'datagen', 'number-of-rows' = '3', "
        "'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '3')"
    )
    first.execute_sql("CREATE VIEW ids AS SELECT id FROM orders WHERE id > 1")
    first.execute_sql("CREATE FUNCTION twice AS 'tests.table.udf.importable.twice' LANGUAGE PYTHON")
    second = environment(tmp_path)
    assert column(second, "SHOW DATABASES") == ["default", "shop"]
    second.execute_sql("USE shop")
    assert column(second, "SHOW TABLES") == ["ids", "orders"]
    assert column(second, "SHOW VIEWS") == ["ids"]
    assert "twice" in column(second, "SHOW USER FUNCTIONS")
    assert column(second, "DESCRIBE orders") == ["id", "price"]
    assert "'number-of-rows' = '3'" in column(second, "SHOW CREATE TABLE orders")[0]
    assert "COMMENT 'all'" in column(second, "SHOW CREATE DATABASE shop")[0]
    second.execute_sql("USE `default`")
    assert sorted(column(second, "SELECT id FROM shop.ids")) == [2, 3]  # names of a view are those of where it was made


def test_what_is_altered_and_dropped_is_so_for_all(tmp_path: Path) -> None:
    first, second = environment(tmp_path), environment(tmp_path)
    first.execute_sql("CREATE TABLE t (a INT) WITH ('connector' = 'print')")
    second.execute_sql("ALTER TABLE t ADD (b STRING)")
    assert column(first, "DESCRIBE t") == ["a", "b"]
    second.execute_sql("ALTER TABLE t SET ('print-identifier' = 'x')")
    assert "print-identifier" in column(first, "SHOW CREATE TABLE t")[0]
    second.execute_sql("ALTER TABLE t RENAME TO u")
    assert column(first, "SHOW TABLES") == ["u"]
    with pytest.raises(ValidationError, match="already exists"):
        first.execute_sql("CREATE TABLE u (a INT) WITH ('connector' = 'print')")
    first.execute_sql("DROP TABLE u")
    assert column(second, "SHOW TABLES") == []
    first.execute_sql("CREATE DATABASE d")
    first.execute_sql("CREATE VIEW d.v AS SELECT 1 AS first_one")
    with pytest.raises(ValidationError, match=r"is not empty: it has d\.v"):
        second.execute_sql("DROP DATABASE d")
    second.execute_sql("DROP DATABASE d CASCADE")
    assert column(first, "SHOW DATABASES") == ["default"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ("", ValidationError, "needs the option 'path'"),
        (", 'path' = 's3://b/c'", UnsupportedError, "is not in a local file system"),
        (", 'path' = '/tmp/x', 'colour' = 'red'", ValidationError, "Unsupported options found for catalog 'c': colour"),
    ],
)
def test_options_that_it_does_not_take_are_refused(options: str, error: type[Exception], message: str) -> None:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    with pytest.raises(error, match=message):
        tables.execute_sql(f"CREATE CATALOG c WITH ('type' = 'file'{options})")


# --- the same as in memory --------------------------------------------------------------------------------------------


def _table(text: str) -> CatalogBaseTable:
    return table_of_ddl(parse_statement(f"CREATE TABLE t (a INT) WITH ('x' = '{text}')"))  # type: ignore[arg-type]


STEPS: list[tuple[str, tuple[Any, ...]]] = [
    ("create_database", ("d", CatalogDatabase({"k": "v"}, "c"))),
    ("create_database", ("d", CatalogDatabase())),
    ("create_database", ("d", CatalogDatabase(), True)),
    ("get_database", ("d",)),
    ("get_database", ("none",)),
    ("alter_database", ("d", CatalogDatabase({"k": "w"}))),
    ("get_database", ("d",)),
    ("create_table", (ObjectPath("none", "t"), _table("1"))),
    *(("create_table", (ObjectPath("d", name), _table(name))) for name in ("t", "A b/c", "..", ".x", "ü%2E", "T")),
    ("create_table", (ObjectPath("d", "t"), _table("2"))),
    ("list_tables", ("d",)),
    ("list_tables", ("none",)),
    ("get_table", (ObjectPath("d", "T"),)),
    ("alter_table", (ObjectPath("d", "t"), _table("3"))),
    ("get_table", (ObjectPath("d", "t"),)),
    ("alter_table", (ObjectPath("d", "none"), _table("3"), True)),
    ("alter_table", (ObjectPath("d", "none"), _table("3"))),
    ("rename_table", (ObjectPath("d", "t"), "T")),
    ("rename_table", (ObjectPath("d", "t"), "u")),
    ("table_exists", (ObjectPath("d", "t"),)),
    ("table_exists", (ObjectPath("d", "u"),)),
    ("drop_table", (ObjectPath("d", "none"),)),
    ("drop_table", (ObjectPath("d", "u"),)),
    ("create_function", (ObjectPath("d", "f"), CatalogFunction("a.b"))),
    ("create_function", (ObjectPath("d", "f"), CatalogFunction("a.b"))),
    ("alter_function", (ObjectPath("d", "f"), CatalogFunction("a.c", "JAVA"))),
    ("get_function", (ObjectPath("d", "f"),)),
    ("list_functions", ("d",)),
    ("drop_function", (ObjectPath("d", "f"),)),
    ("drop_function", (ObjectPath("d", "f"),)),
    ("drop_database", ("d",)),
    ("drop_database", ("d", False, True)),
    ("drop_database", ("d",)),
    ("list_databases", ()),
]


def test_each_step_answers_as_the_catalog_in_memory(tmp_path: Path) -> None:
    memory, files = Catalog("c", "default"), FileCatalog("c", tmp_path)

    def answer(catalog: Catalog, name: str, arguments: tuple[Any, ...]) -> Any:
        try:
            found = getattr(catalog, name)(*arguments)
        except ValidationError as error:
            return str(error)
        return dict(found.options) if isinstance(found, CatalogBaseTable) else found

    for name, arguments in STEPS:
        assert answer(files, name, arguments) == answer(memory, name, arguments), (name, arguments)


def test_a_file_that_is_no_document_is_told_by_its_path(tmp_path: Path) -> None:
    catalog = FileCatalog("c", tmp_path)
    catalog.create_table(ObjectPath("default", "t"), _table("1"))
    file = tmp_path / "default" / "tables" / "t.json"
    assert json.loads(file.read_text())["options"] == {"x": "1"}
    file.write_text("{")
    with pytest.raises(ValidationError, match=r"tables/t\.json of the catalog cannot be read"):
        catalog.get_table(ObjectPath("default", "t"))


# --- two processes ----------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
from penstock.sql.catalogs.file_catalog import FileCatalog
from penstock.sql.catalogs.ddl import build_catalog_table
from penstock.sql.catalogs.catalog import CatalogDatabase, ObjectPath
from penstock.sql.data.errors import ValidationError
from penstock.sql.parser import parse_statement

path, mine = sys.argv[1:]
catalog = FileCatalog("c", path)
won = 0
for number in range(60):
    table = build_catalog_table(parse_statement(f"CREATE TABLE t (a{mine} INT) WITH ('connector' = '{'x' * 2000}')"))
    try:
        catalog.create_table(ObjectPath("default", f"t{number}"), table)
        won += 1
    except ValidationError as error:
        assert "already exists" in str(error), error
    catalog.get_table(ObjectPath("default", f"t{number}"))
    catalog.alter_table(ObjectPath("default", "t0"), table)
    catalog.create_database("d", CatalogDatabase(), True)
    catalog.drop_database("d", True, True)
print(won)
"""


@pytest.mark.slow
def test_of_two_processes_one_makes_each_table(tmp_path: Path) -> None:
    """And whoever reads meanwhile sees whole documents."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    running = [subprocess.Popen([*command, mine], stdout=subprocess.PIPE, text=True) for mine in ("1", "2")]
    won = [int(one.communicate(timeout=120)[0]) for one in running]
    assert sum(won) == 60
    assert FileCatalog("c", tmp_path).list_databases() == ["default"]
    assert not [file for file in tmp_path.rglob(".*") if file.name != ".lock"]
