"""What aggregate functions give, and how they follow rows that go."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from tests.table.running import Rows, run

from penstock.base.errors import PenstockError
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import (
    ArrayType,
    BitmapType,
    BooleanType,
    DataType,
    DecimalType,
    FloatType,
    MapType,
    RowField,
    RowType,
    TinyIntType,
    VarCharType,
)
from penstock.sql.functions.bitmaps import bitmap_bytes, bitmap_class
from penstock.sql.functions.definition import BIGINT, BYTES_TYPE, DOUBLE, INT, STRING


def given(kind: DataType, *values: Any) -> Rows:
    """A table `t` of one column `a`. A list stands for a value that goes."""
    rows = [("-D", (one[0],)) if isinstance(one, list) else ("+I", (one,)) for one in values]
    return Rows({"a": kind}, rows)


def answer(call: str, table: Rows) -> Any:
    """What a call gives over all rows in the end."""
    ((value,),) = run(f"SELECT {call} FROM t", t=table).rows()
    return value


def find_result_type(call: str, kind: DataType, more: str = "") -> str:
    """The type of a call over a column of this type."""
    return str(run(f"SELECT {call} FROM t{more}", t=Rows({"a": kind, "b": INT})).types[0])


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "kind", "values", "wanted"),
    [
        ("SUM(a)", INT, (2**31 - 1, 1), -(2**31)),
        ("SUM(a)", TinyIntType(), (100, 100, [100]), 100),
        ("SUM(a)", FloatType(), (0.1, 0.2), 0.30000001192092896),
        ("SUM(a)", DecimalType(38, 2), (Decimal("1" * 36), Decimal("0.01")), Decimal("1" * 36 + ".01")),
        ("SUM(a)", DecimalType(38, 0), (Decimal("9" * 38), Decimal(1)), None),
        ("SUM(a)", DecimalType(38, 0), (Decimal("9" * 38), Decimal(1), Decimal(5)), None),
        ("SUM(a)", DecimalType(38, 0), (Decimal("9" * 38), Decimal(1), Decimal(-5)), Decimal("9" * 37 + "5")),
        ("SUM(a)", DecimalType(38, 0), (Decimal("9" * 38), Decimal(1), [Decimal(1)]), Decimal("9" * 38)),
        ("AVG(a)", DecimalType(38, 0), (Decimal("9" * 38), Decimal(1), [Decimal("9" * 38)]), Decimal(1)),
        ("SUM(a)", INT, (1, [1], None), None),
        ("SUM(DISTINCT a)", INT, (1, 1, 2, [1], [2]), 1),
        ("AVG(a)", INT, (1, -4, 1, -5), -1),
        ("AVG(a)", INT, (2**31 - 1, 2**31 - 1), 2**31 - 1),
        ("AVG(a)", DecimalType(4, 1), (Decimal("0.1"), Decimal("0.1"), Decimal("0.0")), Decimal("0.066667")),
        ("AVG(a)", FloatType(), (0.5, 1.0), 0.75),
        ("AVG(a)", DOUBLE, (0.5, 1.0, [1.0]), 0.5),
        ("VAR_POP(a)", DOUBLE, (1.0, 2.0, 3.0, 4.0, [4.0], None), 2 / 3),
        ("VAR_SAMP(a)", DOUBLE, (1.0, 2.0, 3.0), 1.0),
        ("VARIANCE(a)", DOUBLE, (1.0,), None),
        ("STDDEV_POP(a)", DOUBLE, (1.0,), 0.0),
        ("STDDEV_SAMP(a)", DOUBLE, (1.0, 3.0, [3.0]), None),
        ("STDDEV_POP(a)", INT, (1, 1, 8, 8), 3),
        ("VAR_POP(a)", DecimalType(3, 1), (Decimal("1.0"), Decimal("2.0")), Decimal("0.250000")),
        ("VAR_POP(a)", DOUBLE, (1e9 + 1, 1e9 + 2, 1e9 + 3), 2 / 3),
        ("PERCENTILE(a, 0.5)", INT, (3, 1, 2), 2.0),
        ("PERCENTILE(a, 0.5)", INT, (3, 1, 2, [3]), 1.5),
        ("PERCENTILE(a, ARRAY[1.0, 0.25, 0])", INT, (10, 20, 30), [30.0, 15.0, 10.0]),
        ("PERCENTILE(a, 0.5, a)", INT, (1, 5, None, -1), 5.0),
        ("PERCENTILE(a, 0.5)", INT, (None,), None),
        ("COUNT(DISTINCT a)", DOUBLE, (math.nan, math.nan, 1.0), 2),
    ],
)
def test_numbers(call: str, kind: DataType, values: tuple[Any, ...], wanted: Any) -> None:
    """Sums wrap or become NULL as their types say; rows that go leave no trace."""
    found = answer(call, given(kind, *values))
    assert found == pytest.approx(wanted, rel=1e-12) if isinstance(wanted, float) else found == wanted


@pytest.mark.parametrize(
    ("call", "wanted"),
    [("MIN(a)", 1.0), ("MAX(a)", math.nan)],
)
def test_what_is_no_number_is_greater_than_all(call: str, wanted: float) -> None:
    """Where rows may go, NaN is in order with numbers."""
    assert repr(answer(call, given(DOUBLE, 5.0, math.nan, 1.0, 0.0, [0.0]))) == repr(wanted)


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "kind", "values", "wanted"),
    [
        ("MIN(a)", STRING, ("b", "a", None, ["a"]), "b"),
        ("MAX(a)", BYTES_TYPE, (b"\x01", b"\xff"), b"\xff"),
        ("MAX(a)", BooleanType(), (False, True, [True]), False),
        ("MIN(DISTINCT a)", INT, (1, 1, [1], 2), 1),
        ("FIRST_VALUE(a)", STRING, (None, "b", "c"), "b"),
        ("LAST_VALUE(a)", STRING, ("b", "c", None), "c"),
        ("FIRST_VALUE(a)", STRING, ("b", "c", "b", ["b"]), "c"),
        ("LAST_VALUE(a)", STRING, ("b", "c", "b", ["b"]), "b"),
        ("LAST_VALUE(a)", INT, (1, [1], None), None),
        ("COLLECT(a)", STRING, ("a", "b", "a", None, ["b"]), [("a", 2)]),
        ("COLLECT(DISTINCT a)", STRING, ("a", "a", ["a"]), [("a", 1)]),
        ("COLLECT(a)", STRING, (None,), []),
        ("ARRAY_AGG(a)", INT, (2, None, 1, 2, [2]), [None, 1, 2]),
        ("ARRAY_AGG(a) IGNORE NULLS", INT, (2, None, 1), [2, 1]),
        ("ARRAY_AGG(a IGNORE NULLS)", INT, (None,), None),
        ("ARRAY_AGG(DISTINCT a)", INT, (2, None, 2, None), [2, None]),
        ("LISTAGG(a)", STRING, ("x", None, "y"), "x,y"),
        ("LISTAGG(a, ' - ')", STRING, ("x", "y", "x", ["x"]), "y - x"),
        ("LISTAGG(DISTINCT a)", STRING, ("x", "y", "x"), "x,y"),
        ("LISTAGG(a)", STRING, (None,), None),
        ("SINGLE_VALUE(a)", INT, (1, [1], 2), 2),
        ("COUNT(a)", STRING, ("x", None), 1),
        ("COUNT(*) FILTER (WHERE a > 'm')", STRING, ("x", "a", None), 1),
        ("COUNT(DISTINCT a) FILTER (WHERE a > 'm')", STRING, ("x", "x", "y", "a", ["y"]), 1),
    ],
)
def test_values(call: str, kind: DataType, values: tuple[Any, ...], wanted: Any) -> None:
    """Values are kept in the order in which they come, and the first equal one goes."""
    assert answer(call, given(kind, *values)) == wanted


def test_values_of_arrays_are_compared_as_values() -> None:
    """Nested values are the same where all their parts are."""
    table = Rows(
        {"a": ArrayType(INT)}, [("+I", ([1, 2],)), ("+I", ([1, None],)), ("-D", ([1, 2],)), ("+I", ([1, None],))]
    )
    ((distinct, collected, last),) = run("SELECT COUNT(DISTINCT a), COLLECT(a), LAST_VALUE(a) FROM t", t=table).rows()
    assert (distinct, collected, last) == (1, [([1, None], 2)], [1, None])


# --- JSON -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("JSON_OBJECTAGG(a VALUE b)", '{"x":1,"y":null}'),
        ("JSON_OBJECTAGG(a VALUE b ABSENT ON NULL)", '{"x":1}'),
        ("JSON_OBJECTAGG_ABSENT_ON_NULL(a, b)", '{"x":1}'),
        ("JSON_ARRAYAGG(b)", "[1]"),
        ("JSON_ARRAYAGG(b NULL ON NULL)", "[null,1]"),
        ("JSON_ARRAYAGG(a)", '["y","x"]'),
        ("JSON_ARRAYAGG(JSON_OBJECT('k' VALUE a))", '[{"k":"y"},{"k":"x"}]'),
        ("JSON_OBJECTAGG(a VALUE JSON_ARRAY(b NULL ON NULL))", '{"x":[1],"y":[null]}'),
    ],
)
def test_json(call: str, wanted: str) -> None:
    """Keys are in order; values that are made as JSON stay JSON."""
    rows = [("+I", ("y", None)), ("+I", ("z", 3)), ("+I", ("x", 1)), ("-D", ("z", 3))]
    assert answer(call, Rows({"a": STRING, "b": INT}, rows)) == wanted


@pytest.mark.parametrize("rows", [[("x", 1), ("x", 2)], [(None, 1)]])
def test_keys_of_json_objects_are_unique(rows: list[tuple[Any, ...]]) -> None:
    """A key that comes twice, or that is NULL, fails the job."""
    with pytest.raises(PenstockError):
        run("SELECT JSON_OBJECTAGG(a VALUE b) FROM t", t=Rows({"a": STRING, "b": INT}, rows))


# --- bitmaps ----------------------------------------------------------------------------------------------------------


def bitmap(*numbers: int) -> bytes:
    return bitmap_bytes(bitmap_class()(numbers))


@pytest.mark.parametrize("goes", [False, True])
@pytest.mark.parametrize(
    ("word", "wanted"),
    [("AND", (2,)), ("OR", (1, 2, 3, 4)), ("XOR", (1, 2, 3, 4))],
)
def test_bitmaps_combined(word: str, wanted: tuple[int, ...], goes: bool) -> None:
    """Bitmaps that go leave no trace."""
    rows: list[Any] = [("+I", (bitmap(1, 2),)), ("+I", (bitmap(2, 3),)), ("+I", (bitmap(2, 4),)), ("+I", (None,))]
    rows += [("+I", (bitmap(9),)), ("-D", (bitmap(9),))] if goes else []
    table = Rows({"a": BitmapType()}, rows)
    assert answer(f"BITMAP_{word}_AGG(a)", table) == bitmap(*wanted)
    assert answer(f"BITMAP_{word}_CARDINALITY_AGG(a)", table) == len(wanted)


def test_bitmaps_of_numbers() -> None:
    """A number stays as long as one of its rows does; without any there is no bitmap."""
    assert answer("BITMAP_BUILD_AGG(a)", given(INT, 5, 5, -1, None, 7, [5], [7])) == bitmap(5, 2**32 - 1)
    assert answer("BITMAP_BUILD_CARDINALITY_AGG(a)", given(INT, 5, 5, 6)) == 2
    assert answer("BITMAP_BUILD_AGG(a)", given(INT, None, 5, [5])) is None


# --- types and errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "kind", "grouped", "wanted"),
    [
        ("COUNT(a)", INT, False, "BIGINT NOT NULL"),
        ("SUM(a)", DecimalType(5, 2, False), False, "DECIMAL(38, 2)"),
        ("SUM(a)", DecimalType(5, 2, False), True, "DECIMAL(38, 2) NOT NULL"),
        ("AVG(a)", DecimalType(5, 2), False, "DECIMAL(38, 6)"),
        ("STDDEV_POP(a)", INT, False, "INT"),
        ("VAR_SAMP(a)", DOUBLE.not_null(), True, "DOUBLE"),
        ("COLLECT(a)", STRING, False, "MULTISET<STRING> NOT NULL"),
        ("ARRAY_AGG(a)", INT.not_null(), True, "ARRAY<INT NOT NULL>"),
        ("JSON_ARRAYAGG(a)", INT, False, "VARCHAR(2000) NOT NULL"),
        ("JSON_ARRAYAGG_NULL_ON_NULL(a)", INT, False, "STRING NOT NULL"),
        ("PERCENTILE(a, ARRAY[0.5])", INT, False, "ARRAY<DOUBLE>"),
        ("MAX(a)", BIGINT.not_null(), False, "BIGINT"),
        ("LISTAGG(a)", VarCharType(5, False), True, "VARCHAR(5)"),
        ("SUM0(a)", INT, False, "INT NOT NULL"),
    ],
)
def test_types(call: str, kind: DataType, grouped: bool, wanted: str) -> None:
    """Without groups there may be no row, so most results may be NULL."""
    assert find_result_type(call, kind, " GROUP BY b" if grouped else "") == wanted


# --- groups -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (ArrayType(INT), ([1, None], None, [1, None], [])),
        (MapType(STRING, INT), ([("a", 1)], None, [("a", 1)], [])),
        (RowType([RowField("x", INT), RowField("y", ArrayType(STRING))]), ((1, ["a"]), None, (1, ["a"]), (1, None))),
    ],
)
def test_rows_may_be_grouped_by_arrays_maps_and_rows(kind: DataType, values: tuple[Any, ...]) -> None:
    table = Rows({"a": kind, "b": INT}, [("+I", (value, 1)) for value in values])
    assert run("SELECT b, COUNT(*) AS n, a FROM t GROUP BY a, b", t=table).rows() == [
        (1, 1, None),
        (1, 2, values[0]),
        (1, 1, values[3]),
    ]
    assert sorted(run("SELECT COUNT(*) FROM t GROUP BY a", t=table).rows()) == [(1,), (1,), (2,)]


def test_distinct_groups_are_handed_on_as_they_are() -> None:
    """They are told apart by what they are grouped by, so an update stays one. What they give may be the same."""
    table = Rows({"a": INT, "b": INT}, [("+I", (1, 1)), ("+I", (1, 2)), ("+I", (2, 3))])
    groups = "(SELECT a, SUM(b) AS s FROM t GROUP BY a)"
    assert run(f"SELECT DISTINCT a, s FROM {groups}", t=table).shown() == [
        ("+I", 1, 1),
        ("-U", 1, 1),
        ("+U", 1, 3),
        ("+I", 2, 3),
    ]
    assert run(f"SELECT DISTINCT s FROM {groups}", t=table).shown() == [("+I", 1), ("-D", 1), ("+I", 3)]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("APPROX_COUNT_DISTINCT(a)", INT),
        ("FIRST_VALUE(a) IGNORE NULLS", INT),
        ("ARRAY_AGG(a ORDER BY a)", INT),
        ("LISTAGG(a) WITHIN GROUP (ORDER BY a)", STRING),
        ("LISTAGG(a, a)", STRING),
        ("SUM(a)", STRING),
        ("MAX(a)", ArrayType(INT)),
        ("MAX(a)", BitmapType()),
        ("PERCENTILE(a, 1.5)", INT),
        ("PERCENTILE(a, ARRAY[0.5, -1])", INT),
        ("PERCENTILE(a, CAST(NULL AS DOUBLE))", INT),
        ("BITMAP_BUILD_AGG(a)", BIGINT),
        ("BITMAP_OR_AGG(a)", INT),
        ("JSON_ARRAYAGG(JSON(a))", STRING),
    ],
)
def test_what_is_refused(call: str, kind: DataType) -> None:
    """Wrong operands, and what Flink does not take in or after a call."""
    with pytest.raises(ValidationError):
        run(f"SELECT {call} FROM t", t=Rows({"a": kind}))
