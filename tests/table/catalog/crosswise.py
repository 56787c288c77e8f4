"""What a catalog has, as SQL shows it and as another library does: both must agree after each operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from pyiceberg import types as iceberg

from penstock.sql.data.errors import ValidationError
from penstock.table import EnvironmentSettings, TableEnvironment


@dataclass(frozen=True)
class Described:
    """A table: its columns (name, type, may be NULL, comment), its key, comment, partitions and rows."""

    columns: list[tuple[str, str, bool, str | None]]
    key: list[str]
    comment: str | None
    partitions: list[str] | None
    rows: list[Any]


class Other(Protocol):
    """Another library that reads and changes the same catalog."""

    def databases(self) -> dict[str, dict[str, str]]:
        """The properties of each database, its comment among them."""

    def tables(self, database: str) -> list[str]:
        """Names."""

    def describe(self, database: str, table: str) -> Described:
        """A table."""


def environment(batch: bool = False) -> TableEnvironment:
    settings = EnvironmentSettings.in_batch_mode() if batch else EnvironmentSettings.in_streaming_mode()
    tables = TableEnvironment.create(settings)
    tables.get_config().set("execution.target", "local")
    tables.get_config().set("table.dml-sync", "true")
    return tables


def rows(tables: TableEnvironment, sql: str) -> list[tuple[Any, ...]]:
    with tables.execute_sql(sql).collect() as found:
        return [tuple(row) for row in found]


def column(tables: TableEnvironment, sql: str) -> list[Any]:
    return [row[0] for row in rows(tables, sql)]


def described(tables: TableEnvironment, name: str) -> Described:
    """The table as SQL shows it."""
    columns = [(*row[:3], (*row, None)[6]) for row in rows(tables, f"DESCRIBE {name}")]
    key = [row[0] for row in rows(tables, f"DESCRIBE {name}") if row[3]]
    shown = column(tables, f"SHOW CREATE TABLE {name}")[0]
    comments = [line for line in shown.splitlines() if line.startswith("COMMENT '")]
    partitions = None
    with suppress(ValidationError):  # not partitioned
        partitions = column(tables, f"SHOW PARTITIONS {name}")
    found = sorted(map(plain, rows(tables, f"SELECT * FROM {name}")), key=repr)
    comment = comments[0].removeprefix("COMMENT '")[:-1].replace("''", "'") if comments else None
    return Described(columns, key, comment, partitions, found)


def plain(value: Any) -> Any:
    """A value without the classes of a library: rows and maps as tuples."""
    if hasattr(value, "as_dict"):
        return tuple(map(plain, value))
    if isinstance(value, dict):
        return tuple(map(plain, value.values()))
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    return bytes(value) if isinstance(value, bytearray) else value


def check_agreement(tables: TableEnvironment, other: Other, touched: Sequence[str] = ()) -> None:
    """Compare databases and names everywhere, and the tables that an operation touched."""
    databases = other.databases()
    assert column(tables, "SHOW DATABASES") == sorted(databases)
    for name, properties in databases.items():
        assert column(tables, f"SHOW TABLES FROM `{name}`") == sorted(other.tables(name))
        shown = {row[0]: row[1] for row in rows(tables, f"DESCRIBE DATABASE EXTENDED `{name}`")}
        assert shown.pop("name") == name
        assert (shown.pop("comment") or "") == properties.get("comment", "")
        wanted = {f"option:{key}": value for key, value in properties.items() if key != "comment"}
        assert shown == wanted
    for table in touched:
        database, name = table.split(".")
        assert described(tables, table) == other.describe(database, name), table


@dataclass(frozen=True)
class Operation:
    """One operation: SQL, or a function of the other library; the tables it touches, or the text of its error."""

    act: str | Callable[[Any], Any]
    touched: tuple[str, ...] = ()
    error: str = ""


def run_operations(tables: TableEnvironment, other: Other, operations: Sequence[Operation]) -> int:
    """Run them in order and compare after each; the number of operations."""
    for number, operation in enumerate(operations):
        where = f"operation {number}: {operation.act}"
        try:
            if isinstance(operation.act, str):
                tables.execute_sql(operation.act).wait()
            else:
                operation.act(other)
            failure = ""
        except Exception as error:  # noqa: BLE001 - each library has errors of its own
            failure = f"{type(error).__name__}: {error}"
        assert operation.error in failure, f"{where}: {failure}"
        assert bool(operation.error) == bool(failure), f"{where}: {failure}"
        try:
            check_agreement(tables, other, operation.touched)
        except AssertionError as error:
            raise AssertionError(f"{where}: {error}") from error
    return len(operations)


# --- pyiceberg --------------------------------------------------------------------------------------------------------

_NAMES: dict[type, str] = {
    iceberg.BooleanType: "BOOLEAN",
    iceberg.IntegerType: "INT",
    iceberg.LongType: "BIGINT",
    iceberg.FloatType: "FLOAT",
    iceberg.DoubleType: "DOUBLE",
    iceberg.DateType: "DATE",
    iceberg.TimeType: "TIME(6)",
    iceberg.TimestampType: "TIMESTAMP(6)",
    iceberg.TimestamptzType: "TIMESTAMP_LTZ(6)",
    iceberg.StringType: "STRING",
    iceberg.BinaryType: "BYTES",
}


def sql_type(kind: Any) -> str:
    """The type as SQL has it, written down a second time."""
    if isinstance(kind, iceberg.StructType):
        fields = (f"`{field.name}` {_field_type(field)}{_doc(field)}" for field in kind.fields)
        return f"ROW<{', '.join(fields)}>"
    if isinstance(kind, iceberg.ListType):
        return f"ARRAY<{_field_type(kind.element_field)}>"
    if isinstance(kind, iceberg.MapType):
        return f"MAP<{_field_type(kind.key_field)}, {_field_type(kind.value_field)}>"
    if isinstance(kind, iceberg.DecimalType):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if isinstance(kind, iceberg.FixedType):
        return f"BINARY({len(kind)})"
    return _NAMES[type(kind)]


def _field_type(field: Any) -> str:
    return sql_type(field.field_type) + (" NOT NULL" if field.required else "")


def _doc(field: Any) -> str:
    return f" '{field.doc}'" if field.doc else ""


class Pyiceberg:
    """The catalog in pyiceberg, opened anew for each question."""

    def __init__(self, load: Callable[[], Any], hidden: Sequence[str] = ()) -> None:
        self._load = load
        self._hidden = {"exists", *hidden}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._load(), name)

    def databases(self) -> dict[str, dict[str, str]]:
        catalog = self._load()
        return {
            namespace[0]: {
                key: value
                for key, value in catalog.load_namespace_properties(namespace).items()
                if key not in self._hidden
            }
            for namespace in catalog.list_namespaces()
        }

    def tables(self, database: str) -> list[str]:
        return [name for _, name in self._load().list_tables(database)]

    def describe(self, database: str, table: str) -> Described:
        loaded = self._load().load_table((database, table))
        schema = loaded.schema()
        columns = [(field.name, sql_type(field.field_type), not field.required, field.doc) for field in schema.fields]
        key = [field.name for field in schema.fields if field.field_id in schema.identifier_field_ids]
        partitions = None
        if not loaded.spec().is_unpartitioned():
            partitions = sorted({_partition(loaded, task.file) for task in loaded.scan().plan_files()})
        found = [plain(tuple(row.values())) for row in loaded.scan().to_arrow().to_pylist()]
        return Described(columns, key, loaded.properties.get("comment"), partitions, sorted(found, key=repr))


def _partition(table: Any, file: Any) -> str:
    spec, texts = table.specs()[file.spec_id], []
    for index, field in enumerate(spec.fields):
        kind = field.transform.result_type(table.schema().find_type(field.source_id))
        value = file.partition[index]
        text = "__HIVE_DEFAULT_PARTITION__" if value is None else field.transform.to_human_string(kind, value)
        texts.append(f"{field.name}={text}")
    return "/".join(texts)
