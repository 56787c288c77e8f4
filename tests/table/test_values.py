"""Single values to columns and back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import UnsupportedError
from penstock.sql.catalogs.columns import parse_data_type
from penstock.sql.data.arrow import arrow_type, logical_type, to_column, to_full_array, to_scalar, to_values
from penstock.sql.data.types import DataType, RowType

DAY_NS = 86_400 * 10**9
SAMPLES: dict[str, list[Any]] = {
    "BOOLEAN": [True, None, False],
    "TINYINT": [-128, 127, None],
    "BIGINT": [2**62, None],
    "DOUBLE": [1.5, None, float("inf")],
    "DECIMAL(10, 2)": [Decimal("1.25"), None],
    "STRING": ["", "ä", None],
    "BYTES": [b"", b"\x00\xff", None],
    "DATE": [0, -1, None],
    "TIME(3)": [0, 86_399_999, None],
    "TIMESTAMP(3)": [1_000_000, None, -DAY_NS],
    "TIMESTAMP(6)": [1_000, None],
    "TIMESTAMP(9)": [1, None],
    "TIMESTAMP_LTZ(3)": [0, None],
    "INTERVAL YEAR TO MONTH": [13, None],
    "INTERVAL DAY TO SECOND": [-1, None],
    "ARRAY<INT>": [[1, None], [], None],
    "ARRAY<ARRAY<TIMESTAMP(3)>>": [[[1_000_000], None], None],
    "MAP<STRING, INT>": [[("a", 1), ("b", None)], [], None],
    "MULTISET<STRING>": [[("a", 2)], None],
    "ROW<a INT, b ROW<c TIMESTAMP(9)>>": [(1, (5,)), (None, None), None],
}


@pytest.mark.parametrize("text", SAMPLES)
def test_values_come_back_as_they_were(text: str) -> None:
    """NULLs and parts of values too, and from a slice of a column."""
    kind = parse_data_type(text)
    column = to_column(SAMPLES[text], kind)
    assert column.type == arrow_type(kind)
    assert to_values(column, kind) == SAMPLES[text]
    assert to_values(column.slice(1), kind) == SAMPLES[text][1:]


@pytest.mark.parametrize("text", SAMPLES)
def test_one_value_stands_for_all_rows(text: str) -> None:
    """A scalar, and the column that it stands for."""
    kind = parse_data_type(text)
    scalar = to_scalar(SAMPLES[text][0], kind)
    assert to_values(scalar, kind) == SAMPLES[text][:1]
    assert to_values(to_full_array(scalar, 3), kind) == SAMPLES[text][:1] * 3


def test_a_row_without_fields_is_a_row() -> None:
    """It differs from NULL all the same."""
    assert to_values(to_column([(), None], RowType()), RowType()) == [(), None]


def test_python_objects_travel_as_pickles() -> None:
    """RAW holds what no column does."""
    kind = parse_data_type("RAW('object', '')")
    assert to_values(to_column([{1, 2}, None], kind), kind) == [{1, 2}, None]


@given(st.lists(st.none() | st.lists(st.none() | st.integers(-(2**31), 2**31 - 1))))
def test_arrays_of_any_lengths_come_back(values: list[Any]) -> None:
    """Empty ones, missing ones, and columns of none."""
    kind = parse_data_type("ARRAY<INT>")
    assert to_values(to_column(values, kind), kind) == values


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.uint8(), "SMALLINT"),
        (pa.uint64(), "DECIMAL(20, 0)"),
        (pa.large_string(), "STRING"),
        (pa.dictionary(pa.int8(), pa.string()), "STRING"),
        (pa.timestamp("us", "Europe/Rome"), "TIMESTAMP_LTZ(6)"),
        (pa.timestamp("s"), "TIMESTAMP(0)"),
        (pa.time64("us"), "TIME(6)"),
        (pa.list_(pa.int8()), "ARRAY<TINYINT>"),
        (pa.map_(pa.string(), pa.float32()), "MAP<STRING, FLOAT>"),
        (pa.struct([("a", pa.int32())]), "ROW<`a` INT>"),
    ],
)
def test_columns_from_elsewhere_have_a_type(column: pa.DataType, expected: str) -> None:
    """That which holds all their values."""
    assert str(logical_type(column)) == expected


def test_columns_of_other_types_are_refused() -> None:
    """With the name that Arrow has for it."""
    with pytest.raises(UnsupportedError, match="sparse_union"):
        logical_type(pa.sparse_union([pa.field("a", pa.int8())]))


def test_a_type_without_columns_is_refused() -> None:
    """A name of a catalog is none that a column can have."""
    with pytest.raises(UnsupportedError, match="cannot have the type"):
        arrow_type(parse_data_type("mine.point"))


def test_each_sample_is_a_type() -> None:
    """The samples name types that print as they are written, but for quotes."""
    assert all(isinstance(parse_data_type(text), DataType) for text in SAMPLES)
