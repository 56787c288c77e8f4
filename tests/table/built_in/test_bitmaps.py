"""Functions of bitmaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pyroaring import BitMap
from tests.table.flink_values import parse_type
from tests.table.functions import Row, session_of, typed_sql

from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import BitmapType, VarBinaryType
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.functions.bitmaps import bitmap_text
from penstock.sql.functions.text_casts import row_text

Column = tuple[str, Sequence[Any]]


def shown(sql: str, **columns: Column) -> tuple[list[Any], str]:
    """What an expression gives for each row of these columns, and its type."""
    kinds = [parse_type(kind) for kind, _ in columns.values()]
    session = session_of()
    (found,) = typed_sql(sql, Row(list(columns), kinds, []), session)
    arrays = [to_column(values, kind) for (_, values), kind in zip(columns.values(), kinds, strict=True)]
    (column,) = Evaluator([found], session)(Columns(arrays, len(arrays[0]) if arrays else 1))
    return to_values(column, found.type), str(found.type)


def bits(*numbers: int) -> bytes:
    """A bitmap as a column holds it."""
    return bytes(BitMap(numbers).serialize())


EVEN: Column = ("BITMAP", [bits(0, 2, 4), bits(), None])
SMALL: Column = ("BITMAP NOT NULL", [bits(1, 2), bits(1), bits(2)])


@pytest.mark.parametrize(
    ("name", "first"),
    [("BITMAP_AND", "{2}"), ("BITMAP_OR", "{0,1,2,4}"), ("BITMAP_XOR", "{0,1,4}"), ("BITMAP_ANDNOT", "{0,4}")],
)
def test_two_bitmaps_are_combined(name: str, first: str) -> None:
    values, kind = shown(f"{name}(a, b)", a=EVEN, b=SMALL)
    assert kind == "BITMAP"
    assert bitmap_text(values[0]) == first
    assert values[2] is None


def test_equal_bitmaps_are_equal_bytes() -> None:
    (joined,), _ = shown("BITMAP_OR(a, b)", a=("BITMAP", [bits(1, 2)]), b=("BITMAP", [bits(3, 4, 5, 6)]))
    assert joined == bits(1, 2, 3, 4, 5, 6)


def test_bitmaps_of_arrays_leave_out_null() -> None:
    values, kind = shown("BITMAP_BUILD(a)", a=("ARRAY<INT>", [[3, 1, None, 3, -1], [], None]))
    assert (values, kind) == ([bits(1, 3, 2**32 - 1), bits(), None], "BITMAP")
    assert shown("BITMAP_BUILD(ARRAY[1])")[1] == "BITMAP NOT NULL"


@pytest.mark.parametrize(
    ("sql", "values", "kind"),
    [
        ("BITMAP_CARDINALITY(a)", [3, 0, None], "BIGINT"),
        ("BITMAP_TO_STRING(a)", ["{0,2,4}", "{}", None], "STRING"),
        ("BITMAP_TO_ARRAY(a)", [[0, 2, 4], [], None], "ARRAY<INT>"),
        ("BITMAP_TO_BYTES(a)", EVEN[1], "BYTES"),
        ("BITMAP_FROM_BYTES(BITMAP_TO_BYTES(a))", EVEN[1], "BITMAP"),
    ],
)
def test_what_is_in_a_bitmap(sql: str, values: object, kind: str) -> None:
    assert shown(sql, a=EVEN) == (values, kind)


def test_great_numbers_have_no_sign_as_text_but_one_in_arrays() -> None:
    great: Column = ("BITMAP", [bits(1, 2**31, 2**32 - 1)])
    assert shown("BITMAP_TO_STRING(a)", a=great)[0] == ["{1,2147483648,4294967295}"]
    assert shown("BITMAP_TO_ARRAY(a)", a=great)[0] == [[1, -(2**31), -1]]


def test_the_text_of_many_numbers_ends_with_dots() -> None:
    text = bitmap_text(bits(*range(200_000)))
    assert text.endswith(",...}")
    assert len(text) < 530_000


@pytest.mark.parametrize("raw", [b"", b"invalid"])
def test_bytes_that_are_no_bitmap(raw: bytes) -> None:
    with pytest.raises(TableRuntimeError, match="Failed to deserialize bitmap from bytes"):
        shown("BITMAP_FROM_BYTES(b)", b=("BYTES", [raw]))


def test_a_bitmap_that_no_array_holds() -> None:
    everything = bytes(BitMap(range(2**32)).serialize())
    with pytest.raises(TableRuntimeError, match="Failed to convert bitmap to an array"):
        shown("BITMAP_TO_ARRAY(b)", b=("BITMAP", [everything]))


@pytest.mark.parametrize("sql", ["BITMAP_AND(s, s)", "BITMAP_CARDINALITY(1)", "BITMAP_BUILD(ARRAY['x'])"])
def test_what_is_refused(sql: str) -> None:
    with pytest.raises(ValidationError):
        shown(sql, s=("STRING", ["{1}"]))


def test_rows_show_what_is_in_a_bitmap() -> None:
    """As Flink prints them, so `print` shows them."""
    assert row_text([BitmapType(), VarBinaryType(9)])("+I", (bits(5, 1), b"a")) == "+I[{1,5}, [97]]"
    assert row_text([BitmapType()])("+I", (None,)) == "+I[null]"
