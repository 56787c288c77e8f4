"""Records of Avro with the schemas of other writers, as columns of a table."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import Any

import pytest
from tests.formats.test_avro_unions import CENTS, MILLIS, TENTHS, parse_record_type, written

from penstock.base.errors import FormatError
from penstock.codecs.avro_reading import READ_ERRORS, RecordReader
from penstock.codecs.avro_row import PythonValues
from penstock.codecs.avro_writing import RecordWriter
from penstock.sql.catalogs.columns import parse_data_type
from penstock.sql.data.arrow import to_values
from penstock.sql.formats.avro import HeldValues, avro_schema
from penstock.sql.formats.format import columns_of_rows
from penstock.sql.logical.nodes import PlanColumn, RowSchema

ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


def column_of_message(column: str, kind: Any, value: Any) -> Any:
    """A value that was written with another schema, as a column, the way a table with a registry reads it."""
    schema = RowSchema((PlanColumn("v", parse_data_type(column)),))
    reader = RecordReader(parse_record_type(kind), avro_schema(schema).record, HeldValues(), narrows=True)
    try:
        rows = reader.many([written(kind, value)])
    except READ_ERRORS as error:
        raise FormatError(reader.reason(error)) from error
    return to_values(columns_of_rows(rows, schema).column(0), schema.types[0])[0]


@pytest.mark.parametrize("is_optional", [False, True])
@pytest.mark.parametrize(
    ("column", "kind", "value", "expected"),
    [
        ("DECIMAL(9, 1)", TENTHS, Decimal("-1.5"), Decimal("-1.5")),
        ("DECIMAL(9, 2)", TENTHS, Decimal("1.5"), Decimal("1.50")),
        ("BYTES", {"type": "fixed", "name": "four", "size": 4}, b"abcd", b"abcd"),
        ("STRING", {"type": "string", "logicalType": "uuid"}, str(ID), str(ID)),
        ("STRING", {"type": "fixed", "name": "id", "size": 16, "logicalType": "uuid"}, ID.bytes, str(ID)),
        ("BYTES", {"type": "fixed", "name": "id", "size": 16, "logicalType": "uuid"}, ID.bytes, ID.bytes),
        ("TIME(3)", {"type": "long", "logicalType": "time-micros"}, datetime.time(23, 59, 59, 999_999), 86_399_999),
        ("TIMESTAMP(6)", MILLIS, datetime.datetime(1970, 1, 1, 0, 0, 1), 1_000_000_000),
        ("BIGINT", MILLIS, datetime.datetime(1970, 1, 1, 0, 0, 1), 1_000),
        ("BYTES", CENTS, Decimal("1.25"), b"\x7d"),
        ("INT", "long", -(2**31), -(2**31)),
        ("FLOAT", "double", 1.5, 1.5),
        ("DOUBLE", "float", 1.5, 1.5),
    ],
)
def test_schema_of_another_writer_is_read_as_the_column(
    is_optional: bool, column: str, kind: Any, value: Any, expected: Any
) -> None:
    """K4: fixed decimals, UUIDs, microseconds of a day and wider numbers."""
    assert column_of_message(column, ["null", kind] if is_optional else kind, value) == expected


@pytest.mark.parametrize(
    ("column", "kind", "value", "reason"),
    [
        ("INT", "long", 2**31, "field 'v': 2147483648 does not fit into INT"),
        ("FLOAT", "double", 0.1, "field 'v': 0.1 does not fit into FLOAT"),
        ("FLOAT", "double", 1e300, "does not fit into FLOAT"),
        ("DECIMAL(9, 1)", CENTS, Decimal("1.25"), "column 'v' cannot be read"),
        ("DECIMAL(3, 2)", CENTS, Decimal("99.25"), "column 'v' cannot be read"),
    ],
)
def test_value_that_a_column_does_not_hold_makes_the_message_malformed(
    column: str, kind: Any, value: Any, reason: str
) -> None:
    """K4: it does not lose digits and does not wrap."""
    with pytest.raises(FormatError, match=reason):
        column_of_message(column, kind, value)


def test_columns_are_written_with_a_schema_of_others() -> None:
    """K4: a table with a registry may name the schema: fixed decimals and UUIDs, microseconds of a day."""
    kinds = [TENTHS, {"type": "fixed", "name": "id", "size": 16, "logicalType": "uuid"}]
    for kind, value in zip(kinds, (Decimal("-1.5"), str(ID)), strict=True):
        message = RecordWriter(parse_record_type(["null", kind]), HeldValues()).record([value])
        column = "STRING" if isinstance(value, str) else "DECIMAL(9, 1)"
        reader = RecordReader(
            parse_record_type(["null", kind]),
            avro_schema(RowSchema((PlanColumn("v", parse_data_type(column)),))).record,
            HeldValues(),
            narrows=True,
        )
        assert reader.values(message) == [value]
    with pytest.raises(FormatError, match=r"field 'v': .*too big"):
        RecordWriter(parse_record_type(TENTHS), HeldValues()).record([Decimal(10) ** 12])
    with pytest.raises(FormatError, match="field 'v': badly formed"):
        RecordWriter(parse_record_type(kinds[1]), HeldValues()).record(["no UUID"])


def test_union_of_a_reader_prefers_types_that_hold_all_values() -> None:
    """A long is read as a double rather than as an int, and as an int where nothing else takes it."""
    double = RecordReader(parse_record_type("long"), parse_record_type(["int", "double"]), PythonValues(), narrows=True)
    assert double.values(written("long", 2**40)) == [2.0**40]
    whole = RecordReader(parse_record_type("long"), parse_record_type(["string", "int"]), PythonValues(), narrows=True)
    assert whole.values(written("long", 7)) == [7]
