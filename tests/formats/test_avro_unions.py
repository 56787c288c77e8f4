"""Values in unions of Avro go into the branch that holds them."""

from __future__ import annotations

import datetime
import json
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import FormatError
from penstock.codecs.avro_reading import AvroType, RecordReader, parse_record
from penstock.codecs.avro_row import PythonValues
from penstock.codecs.avro_writing import RecordWriter

MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
TENTHS = {"type": "fixed", "name": "tenths", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 1}
CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
POINT = {"type": "record", "name": "point", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}]}
NAMES = {
    "type": "record",
    "name": "names",
    "fields": [{"name": "a", "type": "string"}, {"name": "b", "type": "string"}],
}


def parse_record_type(kind: Any) -> AvroType:
    return parse_record(json.dumps({"type": "record", "name": "r", "fields": [{"name": "v", "type": kind}]}))


def written(kind: Any, value: Any) -> bytes:
    return RecordWriter(parse_record_type(kind), PythonValues()).record([value])


def read_back(kind: Any, value: Any) -> Any:
    schema = parse_record_type(kind)
    return RecordReader(schema, schema, PythonValues()).values(written(kind, value))[0]


@pytest.mark.parametrize(
    ("union", "value", "branch"),
    [
        (["float", "double"], 0.5, 0),
        (["float", "double"], 0.1, 1),
        (["float", "double"], 1e300, 1),
        (["float", "double"], float("inf"), 0),
        (["null", "float", "double"], 0.1, 2),
        (["double", "float"], 0.5, 0),
        (["double", "long"], 2**53 + 1, 1),
        (["double", "long"], 5, 1),
        (["double", "long"], 5.0, 0),
        (["float", "int", "long"], 2**40, 2),
        (["int", "long"], -(2**31), 0),
        (["null", "double"], 2**53, 1),
        ([MILLIS, {"type": "string"}], datetime.datetime(2020, 1, 1), 0),
        ([MILLIS, MICROS], datetime.datetime(2020, 1, 1, microsecond=1_000), 0),
        ([MILLIS, MICROS], datetime.datetime(2020, 1, 1, microsecond=1), 1),
        ([TENTHS, CENTS], Decimal("1.5"), 0),
        ([TENTHS, CENTS], Decimal("1.25"), 1),
        ([TENTHS, CENTS], Decimal("99999999999.5"), 1),
        ([POINT, NAMES], ["x", "y"], 1),
        ([POINT, NAMES], [1, 2], 0),
        ([{"type": "array", "items": "float"}, {"type": "map", "values": "int"}], [0.5], 0),
        ([{"type": "map", "values": "float"}, {"type": "array", "items": "int"}], {"k": 0.5}, 0),
    ],
)
def test_value_goes_into_the_branch_that_holds_it(union: list[Any], value: Any, branch: int) -> None:
    """K4: an integer goes into a branch of integers first; otherwise the first branch counts."""
    assert written(union, value)[0] == branch << 1
    found = read_back(union, value)
    assert (list(found) if isinstance(value, list) else found) == value


def test_number_that_loses_digits_in_each_branch() -> None:
    """K4: a float takes the nearest of 32 bits, as in a field of FLOAT; an integer is refused."""
    assert read_back(["null", "float"], 0.1) == struct.unpack("<f", struct.pack("<f", 0.1))[0]
    for kind in ("double", ["null", "double"], ["string", "double"]):
        with pytest.raises(FormatError):
            written(kind, 2**53 + 1)
    with pytest.raises(FormatError):
        written("float", 2**24 + 1)
    assert read_back("float", 2**24) == 2**24


@given(
    st.permutations(["int", "long", "float", "double"]),
    st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)),
)
def test_no_number_loses_digits_in_a_union_of_all_numbers(order: list[str], value: float) -> None:
    """K4: whatever the order of the branches."""
    found = read_back(order, value)
    assert found == value
    assert type(found) is type(value)
