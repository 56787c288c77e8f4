"""Tables of other writers: types that SQL does not have, version 3 of the format, and what is refused by name."""

from __future__ import annotations

import contextlib
import datetime
import json
import sqlite3
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from tests.connectors.iceberg.lake import Lake
from tests.connectors.iceberg.test_tables import collected, environment

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.connectors.iceberg.data_files import read_column
from penstock.connectors.iceberg.source import IcebergSource
from penstock.testing.connectors import read_source

FIVE = uuid.UUID(int=5)
BEFORE_1970 = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)


def create(lake: Lake, *fields: NestedField, rows: pa.Table | None = None) -> None:
    with lake.loader("t").catalog.load_catalog() as catalog:
        table = catalog.create_table("db.t", Schema(*fields))
        if rows is not None:
            table.append(rows.cast(table.schema().as_arrow()))


def change_metadata(lake: Lake, change: Callable[[dict[str, Any]], None]) -> None:
    """Let the catalog point to changed metadata of the table, as another writer would leave it."""
    with contextlib.closing(sqlite3.connect(lake.folder / "catalog.db")) as catalog, catalog:
        (location,) = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
        path = Path(location.removeprefix("file://"))
        metadata = json.loads(path.read_text())
        change(metadata)
        changed = path.with_name(f"{uuid.uuid4()}.metadata.json")
        changed.write_text(json.dumps(metadata))
        catalog.execute("UPDATE iceberg_tables SET metadata_location = ?", (f"file://{changed}",))


def to_version_3(metadata: dict[str, Any]) -> None:
    metadata["format-version"] = 3
    metadata["next-row-id"] = 100


def read(lake: Lake, columns: str, condition: str = "TRUE", more: str = "") -> list[tuple[Any, ...]]:
    tables = environment()
    tables.execute_sql(f"CREATE TABLE t ({columns}) WITH ({lake.options()}{more})")
    return collected(tables, f"SELECT * FROM t WHERE {condition}")


@pytest.fixture
def foreign(lake: Lake) -> Lake:
    create(
        lake,
        NestedField(1, "u", UUIDType()),
        NestedField(2, "tm", TimeType()),
        NestedField(3, "ts", TimestampType()),
        NestedField(4, "lt", TimestamptzType()),
        NestedField(5, "l", ListType(6, UUIDType(), False)),
        NestedField(7, "r", StructType(NestedField(8, "u", UUIDType()), NestedField(9, "tm", TimeType()))),
        rows=pa.table(
            {
                "u": pa.array([FIVE.bytes, None], pa.binary(16)),
                "tm": pa.array([datetime.time(1, 2, 3, 456_789), None], pa.time64("us")),
                "ts": pa.array([BEFORE_1970, None], pa.timestamp("us")),
                "lt": pa.array([BEFORE_1970, None], pa.timestamp("us", "UTC")),
                "l": pa.array([[FIVE.bytes, None], None], pa.list_(pa.binary(16))),
                "r": pa.array(
                    [{"u": FIVE.bytes, "tm": datetime.time(0, 0, 0, 1_999)}, None],
                    pa.struct([("u", pa.binary(16)), ("tm", pa.time64("us"))]),
                ),
            }
        ),
    )
    return lake


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("u BINARY(16)", FIVE.bytes),
        ("u BYTES", FIVE.bytes),
        ("u STRING", str(FIVE)),
        ("tm TIME(3)", datetime.time(1, 2, 3, 456_000)),
        ("ts TIMESTAMP(3)", datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000)),
        ("ts TIMESTAMP(6)", BEFORE_1970),
        ("ts TIMESTAMP(9)", BEFORE_1970),
        ("l ARRAY<STRING>", [str(FIVE), None]),
        ("l ARRAY<BYTES>", [FIVE.bytes, None]),
        ("r ROW<u STRING, tm TIME(3)>", (str(FIVE), datetime.time(0, 0, 0, 1_000))),
    ],
)
def test_types_that_sql_does_not_have(foreign: Lake, column: str, value: Any) -> None:
    """K4: uuid as bytes or text; digits of a time are cut off towards the past, as Flink does."""
    found = [row[0] for row in read(foreign, column)]
    assert None in found
    (one,) = [row for row in found if row is not None]
    assert (tuple(one) if isinstance(value, tuple) else one) == value


def test_a_stream_reads_uuids_as_bytes(foreign: Lake) -> None:
    source = IcebergSource.builder().table_loader(foreign.loader("t")).project("u").build()
    assert sorted((row.u for row in read_source(source).all_values), key=repr) == [None, FIVE.bytes]


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ("u INT", "It is uuid: declare it as BYTES or STRING"),
        ("tm STRING", r"It is time64\[us\]: declare it as TIME"),
        ("ts TIMESTAMP_LTZ(3)", r"declare it as TIMESTAMP\(6\)"),
        ("missing INT", "has no column 'missing'"),
    ],
)
def test_columns_are_refused_while_the_statement_is_planned(foreign: Lake, column: str, says: str) -> None:
    tables = environment()
    tables.execute_sql(f"CREATE TABLE t ({column}) WITH ({foreign.options()})")
    with pytest.raises(ConfigurationError, match=says):
        tables.execute_sql("SELECT * FROM t")


def test_times_beyond_nanoseconds_are_not_wrapped() -> None:
    far = pa.array([datetime.datetime(9999, 12, 31)], pa.timestamp("us"))
    with pytest.raises(pa.ArrowException, match="does not fit"):
        read_column(far, pa.timestamp("ns"))


def test_slices_of_nested_columns_are_read() -> None:
    lists = pa.array([[1], None, [2, 3], []], pa.list_(pa.time64("us"))).slice(1)
    found = read_column(lists, pa.list_(pa.time32("ms")))
    assert [None if one is None else len(one) for one in found.to_pylist()] == [None, 2, 0]


def test_version_3_is_read_with_its_defaults(lake: Lake) -> None:
    """Older files lack the column, and have its initial default in each row; conditions know that."""
    create(lake, NestedField(1, "id", LongType()), rows=pa.table({"id": [1, 2]}))

    def add_columns(metadata: dict[str, Any]) -> None:
        to_version_3(metadata)
        metadata["schemas"][-1]["fields"] += [
            {"id": 2, "name": "x", "required": False, "type": "int", "initial-default": 7, "write-default": 8},
            {"id": 3, "name": "nothing", "required": False, "type": "unknown"},
        ]
        metadata["last-column-id"] = 3

    change_metadata(lake, add_columns)
    assert read(lake, "id BIGINT, x INT, nothing STRING") == [(1, 7, None), (2, 7, None)]
    assert read(lake, "id BIGINT, x INT", "x = 7") == [(1, 7), (2, 7)]
    assert read(lake, "id BIGINT, x INT", "x > 7 OR x IS NULL") == []


def test_nanoseconds_of_version_3_are_read(lake: Lake) -> None:
    create(
        lake,
        NestedField(1, "id", LongType()),
        NestedField(2, "ts", TimestampType()),
        rows=pa.table({"id": [1], "ts": pa.array([0], pa.timestamp("us"))}),
    )
    (file,) = (lake.folder / "warehouse").rglob("*.parquet")
    fields = [
        field.with_metadata({"PARQUET:field_id": str(number)})
        for number, field in enumerate(pa.schema([("id", pa.int64()), ("ts", pa.timestamp("ns"))]), 1)
    ]
    pq.write_table(pa.table([pa.array([1]), pa.array([-1], pa.timestamp("ns"))], schema=pa.schema(fields)), file)

    def make_finer(metadata: dict[str, Any]) -> None:
        to_version_3(metadata)
        metadata["schemas"][-1]["fields"][1]["type"] = "timestamp_ns"

    change_metadata(lake, make_finer)
    assert read(lake, "ts TIMESTAMP(6)") == [(BEFORE_1970,)]
    tables = environment()
    tables.execute_sql(f"CREATE TABLE t (ts TIMESTAMP(9)) WITH ({lake.options()})")
    assert collected(tables, "SELECT CAST(ts AS STRING) FROM t") == [("1969-12-31 23:59:59.999999999",)]


def test_tables_that_cannot_be_written_are_refused_while_planning(foreign: Lake) -> None:
    """K4: the job failed at its first commit."""
    tables = environment()
    tables.execute_sql(f"CREATE TABLE t (u BYTES) WITH ({foreign.options()})")
    with pytest.raises(UnsupportedError, match=r"column 'u' .* uuid, which is read and not written"):
        tables.execute_sql("INSERT INTO t VALUES (X'00')")
    change_metadata(foreign, to_version_3)
    with pytest.raises(UnsupportedError, match=r"has version 3 of the format, .* version 2"):
        tables.execute_sql("INSERT INTO t VALUES (X'00')")


def test_nine_digits_are_read_and_not_written(lake: Lake) -> None:
    tables = environment()
    tables.execute_sql(f"CREATE TABLE t (ts TIMESTAMP(9)) WITH ({lake.options()})")
    with pytest.raises(UnsupportedError, match="it keeps points in time with 6 digits"):
        tables.execute_sql("INSERT INTO t VALUES (TIMESTAMP '2020-01-01 00:00:00')")


def test_what_pyiceberg_cannot_load_is_named(lake: Lake) -> None:
    create(lake, NestedField(1, "id", LongType()))

    def add_variant(metadata: dict[str, Any]) -> None:
        to_version_3(metadata)
        metadata["schemas"][-1]["fields"].append({"id": 2, "name": "v", "required": False, "type": "variant"})

    change_metadata(lake, add_variant)
    with pytest.raises(UnsupportedError, match=r"table lake\.db\.t has what pyiceberg cannot read: .*variant"):
        read(lake, "id BIGINT")


def test_data_files_in_avro_are_refused_while_planning(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.manifest import DataFile, FileFormat

    create(lake, NestedField(1, "id", LongType()), rows=pa.table({"id": [1]}))
    monkeypatch.setattr(DataFile, "file_format", property(lambda _: FileFormat.AVRO))
    tables = environment()
    tables.execute_sql(f"CREATE TABLE t (id BIGINT) WITH ({lake.options()})")
    with pytest.raises(UnsupportedError, match="files in AVRO"):
        tables.execute_sql("SELECT * FROM t")
    with pytest.raises(UnsupportedError, match="files in AVRO"):
        IcebergSource.builder().table_loader(lake.loader("t")).build()


def test_statistics_of_promoted_and_strange_columns_lose_no_row(lake: Lake) -> None:
    """K4: bounds of a narrower type, of NaN, and of texts that are cut within the bounds."""
    create(
        lake,
        NestedField(1, "id", IntegerType()),
        NestedField(2, "f", DoubleType()),
        NestedField(3, "s", StringType()),
        rows=pa.table(
            {"id": pa.array([1, 2], pa.int32()), "f": [float("nan"), 3.0], "s": ["é" * 40, "\U0010ffff" * 40]}
        ),
    )
    with lake.loader("t").opened() as table:
        with table.update_schema() as update:
            update.update_column("id", LongType())
        table.append(pa.table({"id": [3, 2**40], "f": [float("nan")] * 2, "s": [None, "x"]}))
    for condition, ids in (
        ("id = 1", [1]),
        ("id < 3000000000", [1, 2, 3]),
        ("id IN (2, 1099511627776)", [2, 2**40]),
        ("f = 3", [2]),
        ("f > 2", [2]),
        ("f IS NOT NULL", [1, 2, 3, 2**40]),
        (f"s = '{'é' * 40}'", [1]),
        (f"s >= '{chr(0x10FFFF) * 40}'", [2]),
        ("s IS NULL", [3]),
    ):
        found = read(lake, "id BIGINT, f DOUBLE, s STRING", condition)
        assert sorted(row[0] for row in found) == ids, condition
