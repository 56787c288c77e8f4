"""A table of a lake as this project, Spark and pyiceberg or delta-rs see it, and a plain list of what it shall have."""

from __future__ import annotations

import datetime
import json
import random
import shutil
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.expressions import EqualTo
from pyiceberg.transforms import parse_transform
from pyiceberg.types import DateType, IntegerType, LongType, StringType, TimestampType
from tests.table.catalog import test_delta_catalog as delta
from tests.table.catalog.crosswise import Pyiceberg, environment, rows, sql_type
from tests.table.catalog.spark_process import encode
from tests.table.catalog.test_created_as import batch

from penstock.connectors.iceberg.tables import CatalogLoader
from penstock.table import TableEnvironment
from penstock.table.catalog import ObjectPath

# --- types ------------------------------------------------------------------------------------------------------------

_UTC = datetime.UTC
_TIMES = [datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime.datetime(2026, 1, 31, 12, 0, 0, 1)]
#: the name of each type in Spark, and some values
TYPES: dict[str, tuple[str, list[Any]]] = {
    "BOOLEAN": ("boolean", [True, False]),
    "INT": ("int", [0, -(2**31), 2**31 - 1]),
    "BIGINT": ("bigint", [1, -(2**63), 2**63 - 1]),
    "FLOAT": ("float", [0.5, -0.0, float("inf"), float("nan")]),
    "DOUBLE": ("double", [0.1, -0.0, 1e308, float("nan")]),
    "DECIMAL(9, 2)": ("decimal(9,2)", [Decimal("0.00"), Decimal("-9999999.99"), Decimal("1.50")]),
    "DECIMAL(38, 10)": ("decimal(38,10)", [Decimal(f"{'9' * 28}.{'9' * 10}"), Decimal("-0.0000000001")]),
    "STRING": ("string", ["", "a", "it's é", "日本\n", "x" * 40]),
    "DATE": ("date", [datetime.date(1, 1, 1), datetime.date(1582, 10, 14), datetime.date(2026, 1, 31)]),
    "TIMESTAMP(6)": ("timestamp_ntz", [datetime.datetime(1582, 10, 10), *_TIMES]),
    "TIMESTAMP_LTZ(6)": ("timestamp", [time.replace(tzinfo=_UTC) for time in _TIMES]),
    "BYTES": ("binary", [b"", b"\x00\xff'"]),
    "ARRAY<INT>": ("array<int>", [[1, None], [2], []]),
    "MAP<STRING NOT NULL, BIGINT>": ("map<string,bigint>", [{"k": 1}, {"b": None, "a": 2}, {}]),
    "ROW<`x` INT, `y` STRING>": ("struct<x:int,y:string>", [(1, "a"), (None, None)]),
}


def literal(value: Any, kind: str, spark: bool) -> str:
    """A value in the SQL of Spark or of this project."""
    told = TYPES[kind][0] if spark else kind
    return f"CAST({_inner(value, spark)} AS {told})"


def _inner(value: Any, spark: bool) -> str:
    match value:
        case None:
            return "NULL"
        case bool() | int():
            return str(value)
        case float() | Decimal():
            return f"'{ {'nan': 'NaN', 'inf': 'Infinity'}.get(str(value), value) }'"
        case str():
            return "'" + (value.replace("'", "\\'").replace("\n", "\\n") if spark else value.replace("'", "''")) + "'"
        case datetime.datetime():
            word = "TIMESTAMP_NTZ" if spark and value.tzinfo is None else "TIMESTAMP"
            return f"{word} '{value.replace(tzinfo=None)}'"
        case datetime.date():
            return f"DATE '{value}'"
        case bytes():
            return f"X'{value.hex()}'"
        case list():
            items = ", ".join(f"CAST({_inner(item, spark)} AS INT)" for item in value)
            return f"array({items})" if spark else f"ARRAY[{items}]"
        case dict():
            pairs = (f"{_inner(key, spark)}, CAST({_inner(item, spark)} AS BIGINT)" for key, item in value.items())
            return f"map({', '.join(pairs)})" if spark else f"MAP[{', '.join(pairs)}]"
    number, text = (literal(item, kind, spark) for item, kind in zip(value, ("INT", "STRING"), strict=True))
    return f"named_struct('x', {number}, 'y', {text})" if spark else f"ROW({number}, {text})"


# --- what the lake shall have -----------------------------------------------------------------------------------------


@dataclass
class Column:
    """A column; `key` stays when its name changes."""

    key: int
    name: str
    kind: str
    may_be_null: bool = True
    comment: str | None = None


Row = dict[int, Any]


@dataclass
class State:
    """The columns and rows of a table at a time."""

    columns: list[Column]
    rows: list[Row]

    def shown(self, columns: Sequence[Column] | None = None) -> list[str]:
        """The rows with these columns, as all must show them."""
        wanted = self.columns if columns is None else columns
        return sorted(json.dumps([encode(row.get(column.key)) for column in wanted]) for row in self.rows)


@dataclass
class Table:
    """A table as it shall be."""

    now: State
    #: such as `name` or `bucket[4](id)`
    partitions: list[str]
    properties: dict[str, str]
    comment: str | None = None
    gone_properties: set[str] = field(default_factory=set)
    repartitioned: bool = False
    #: earlier states by snapshot or version; tags; branches
    versions: dict[int, State] = field(default_factory=dict)
    tags: dict[str, State] = field(default_factory=dict)
    branches: dict[str, list[Row]] = field(default_factory=dict)

    def column(self, name: str) -> Column:
        return next(column for column in self.now.columns if column.name == name)

    def partition_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(self._transformed(text, row) for text in self.partitions)

    def _transformed(self, text: str, row: Row) -> Any:
        transform, _, name = text.removesuffix(")").rpartition("(")
        column = self.column(name)
        value = row.get(column.key)
        kinds: dict[str, Any] = {
            "BIGINT": LongType(), "INT": IntegerType(), "STRING": StringType(), "DATE": DateType(),
            "TIMESTAMP(6)": TimestampType(),
        }  # fmt: skip
        if not transform:
            return value
        if isinstance(value, datetime.datetime):
            value = encode(value)
        elif isinstance(value, datetime.date):
            value = (value - datetime.date(1970, 1, 1)).days
        return parse_transform(transform).transform(kinds[column.kind])(value)


#: a condition in SQL, and whether a row with these `id`, `name` and `n` satisfies it; None is unknown
Condition = tuple[str, Callable[[Any, Any, Any], bool | None]]


def _either(one: bool | None, other: bool | None) -> bool | None:
    return True if one or other else None if one is None or other is None else False


def _is(value: Any, test: Callable[[Any], bool]) -> bool | None:
    return None if value is None else test(value)


def draw_condition(choose: random.Random) -> Condition:
    k, text = choose.randrange(8), choose.choice("abcd")
    return choose.choice([
        (f"id = {k}", lambda i, s, n: _is(i, lambda v: v == k)),
        (f"n < {k * 10}", lambda i, s, n: _is(n, lambda v: v < k * 10)),
        (f"name = '{text}' OR n = {k}", lambda i, s, n: _either(_is(s, lambda v: v == text), _is(n, lambda v: v == k))),
        ("n IS NULL", lambda i, s, n: n is None),
        (f"name IN ('{text}', 'c d')", lambda i, s, n: _is(s, lambda v: v in (text, "c d"))),
        (f"name = '{text}'", lambda i, s, n: _is(s, lambda v: v == text)),
        ("MOD(id, 3) = 1", lambda i, s, n: _is(i, lambda v: v % 3 == 1)),
        (f"NOT (id = {k})", lambda i, s, n: _is(i, lambda v: v != k)),
        (f"id >= {k} AND name IS NOT NULL", lambda i, s, n: s is not None and _is(i, lambda v: v >= k)),
        ("id IS NULL", lambda i, s, n: i is None),
    ])  # fmt: skip


# --- the three --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """A table as one of the three sees it."""

    columns: list[tuple[str, str, bool, str | None]]
    comment: str | None
    properties: dict[str, str]
    rows: list[str]


class Here:
    """This project, in batch; a second environment reads as in a stream."""

    name = "here"

    def __init__(self, options: dict[str, str], zone: str) -> None:
        told = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
        self.batch, self.streams = batch(), environment()
        for tables in (self.batch, self.streams):
            tables.execute_sql(f"CREATE CATALOG lake WITH ({told})")
            tables.execute_sql("USE CATALOG lake")
        self.batch.get_config().set_local_timezone("UTC")
        self.streams.get_config().set_local_timezone(zone)

    def run(self, sql: str) -> None:
        self.batch.execute_sql(sql).wait()

    def read(self, query: str, tables: TableEnvironment | None = None) -> list[str]:
        return sorted(json.dumps(list(map(encode, row))) for row in rows(tables or self.batch, query))

    def view(self, table: str, in_batch: bool) -> View:
        columns = [(*row[:3], (*row, None)[6]) for row in rows(self.streams, f"DESCRIBE {table}")]
        catalog = self.streams.get_catalog("lake")
        assert catalog is not None
        kept = catalog.get_table(ObjectPath.from_string(table))
        told = self.read(f"SELECT * FROM {table}", self.streams)
        if in_batch:
            again = self.read(f"SELECT * FROM {table}")
            assert told == again, f"batch and stream differ: {again} {told}"
        return View(columns, kept.comment, dict(kept.options), told)


class Lake:
    """The lake, and its other library."""

    name = "library"
    kind: str
    options: dict[str, str]
    spark_settings: dict[str, str]
    has_properties = True
    renames = True
    #: whether Spark and the library know its databases and tables by name
    is_catalog = True

    def spark_name(self, table: str) -> str:
        """The table in Spark's SQL."""
        raise NotImplementedError


class IcebergLake(Lake):
    """A catalog in a database of PostgreSQL, or one of directories."""

    kind = "iceberg"

    def __init__(self, folder: Path, database: str | None) -> None:
        self.has_properties = self.renames = database is not None
        place = {"warehouse": f"file://{folder}/warehouse"}
        if database is None:
            here = library = {"catalog-type": "hadoop", **place}
            spark = {"type": "hadoop", **place}
        else:
            java = {"uri": f"jdbc:{database}", "jdbc.user": "postgres", **place}
            here, spark = {"catalog-type": "jdbc", **java}, {"type": "jdbc", **java}
            library = {"catalog-type": "sql", "uri": database.replace("://", "+psycopg://postgres@"), **place}
        self.options = {"type": "iceberg", "default-database": "main", **here}
        spark["cache-enabled"] = "false"
        self.spark_settings = {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            **{f"spark.sql.catalog.lake.{key}": value for key, value in spark.items()},
        }
        self._other = Pyiceberg(CatalogLoader.of("lake", library).load_catalog)

    def spark_name(self, table: str) -> str:
        return f"lake.{table}"

    def load(self, table: str) -> Any:
        return self._other.load_table(tuple(table.split(".")))

    def databases(self) -> dict[str, dict[str, str]]:
        return self._other.databases()

    def tables(self, database: str) -> list[str]:
        return self._other.tables(database)

    def version(self, table: str) -> int | None:
        snapshot = self.load(table).current_snapshot()
        return None if snapshot is None else int(snapshot.snapshot_id)

    def view(self, table: str, kinds: Sequence[str]) -> View:
        loaded = self.load(table)
        columns = [
            (field.name, sql_type(field.field_type), not field.required, field.doc) for field in loaded.schema().fields
        ]
        told = _arrow_rows(loaded.scan().to_arrow(), kinds)
        return View(columns, loaded.properties.get("comment"), dict(loaded.properties), told)

    def read_version(self, table: str, version: int | str, kinds: Sequence[str]) -> list[str] | None:
        loaded = self.load(table)
        if isinstance(version, str) and loaded.metadata.refs[version].snapshot_ref_type == "branch":
            head = loaded.metadata.snapshot_by_name(version)
            if head is not None and head.schema_id != loaded.metadata.current_schema_id:
                return None  # pyiceberg reads a branch with the columns of its snapshot, Spark with those of the table
        scan = loaded.scan()
        scan = scan.update(snapshot_id=version) if isinstance(version, int) else scan.use_ref(version)
        return _arrow_rows(scan.to_arrow(), kinds)

    def append(self, table: str, columns: Sequence[Column], new: Sequence[Row]) -> None:
        loaded = self.load(table)
        loaded.append(_arrow(columns, new, loaded.schema().as_arrow()))

    def delete_id(self, table: str, number: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.load(table).delete(EqualTo("id", number))  # type: ignore[call-arg, arg-type]

    def drop(self, table: str) -> None:
        self._other.drop_table(tuple(table.split(".")))

    def create_database(self, name: str) -> None:
        self._other.create_namespace(name)

    def add_column(self, table: str, column: Column) -> None:
        kinds: dict[str, Any] = {"BIGINT": LongType(), "INT": IntegerType(), "STRING": StringType()}
        with self.load(table).update_schema() as update:
            update.add_column(column.name, kinds[column.kind], column.comment)


class DeltaLake(Lake):
    """A directory of directories."""

    kind = "delta"
    has_properties = False
    is_catalog = False

    def __init__(self, folder: Path) -> None:
        self.root = folder / "delta"
        self.root.mkdir()
        self.options = {"type": "delta", "default-database": "main", "path": str(self.root)}
        self.spark_settings = {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
        self._other = delta.DeltaRs(self.root)

    def spark_name(self, table: str) -> str:
        return f"delta.`{self.root / table.replace('.', '/')}`"

    def load(self, table: str) -> DeltaTable:
        return DeltaTable(self.root / table.replace(".", "/"))

    def databases(self) -> dict[str, dict[str, str]]:
        return self._other.databases()

    def tables(self, database: str) -> list[str]:
        return self._other.tables(database)

    def version(self, table: str) -> int | None:
        return self.load(table).version()

    def view(self, table: str, kinds: Sequence[str]) -> View:
        loaded = self.load(table)
        fields = json.loads(loaded.schema().to_json())["fields"]
        columns = [
            (each["name"], delta.sql_type(each["type"]), each["nullable"], each["metadata"].get("comment"))
            for each in fields
        ]
        metadata = loaded.metadata()
        return View(columns, metadata.description, dict(metadata.configuration), self._rows(loaded, kinds))

    @staticmethod
    def _rows(loaded: DeltaTable, kinds: Sequence[str]) -> list[str]:
        return _arrow_rows(pa.table(loaded.scan()), kinds)

    def read_version(self, table: str, version: int | str, kinds: Sequence[str]) -> list[str]:
        loaded = self.load(table)
        loaded.load_as_version(int(version))
        return self._rows(loaded, kinds)

    def append(self, table: str, columns: Sequence[Column], new: Sequence[Row]) -> None:
        loaded = self.load(table)
        write_deltalake(loaded, _arrow(columns, new, pa.schema(loaded.schema().to_arrow())), mode="append")

    def delete_id(self, table: str, number: int) -> None:
        self.load(table).delete(f"id = {number}")

    def drop(self, table: str) -> None:
        shutil.rmtree(self.root / table.replace(".", "/"))

    def create_database(self, name: str) -> None:
        (self.root / name).mkdir()

    def add_column(self, table: str, column: Column) -> None:
        from deltalake import Field
        from deltalake.schema import PrimitiveType

        kinds = {"BIGINT": "long", "INT": "integer", "STRING": "string"}
        metadata = {} if column.comment is None else {"comment": column.comment}
        self.load(table).alter.add_columns(
            Field(column.name, PrimitiveType(kinds[column.kind]), nullable=True, metadata=metadata)
        )


def _arrow(columns: Sequence[Column], new: Sequence[Row], schema: pa.Schema) -> pa.Table:
    texts = [{column.name: _to_arrow(row.get(column.key)) for column in columns} for row in new]
    return pa.Table.from_pylist(texts, schema=schema)


def _to_arrow(value: Any) -> Any:
    if isinstance(value, dict):
        return list(value.items())
    return dict(zip("xy", value, strict=True)) if isinstance(value, tuple) else value


def _arrow_rows(data: pa.Table, kinds: Sequence[str]) -> list[str]:
    columns = [
        [_from_arrow(value, kind) for value in column.to_pylist()]
        for column, kind in zip(data.columns, kinds, strict=True)
    ]
    return sorted(json.dumps(list(map(encode, row))) for row in zip(*columns, strict=True))


def _from_arrow(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind.startswith("MAP"):
        return dict(value)
    return tuple(value.values()) if kind.startswith("ROW") else value
