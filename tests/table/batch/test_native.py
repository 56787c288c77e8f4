"""A4: what Spark answers natively is what the kernels answer: for values at all edges of types, of each function."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pytest
from tests.table.batch.batches import disagreements, run_batch
from tests.table.planned import NOW_NS
from tests.table.running import Rows

from penstock.sql.analyzer.calls import Calls
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import (
    BigIntType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    NullType,
    SmallIntType,
    TimestampType,
    TinyIntType,
    VarCharType,
    YearMonthIntervalType,
)
from penstock.sql.functions.definition import Session
from penstock.sql.spark.native import native_text
from penstock.sql.typed import Constant, Field, Typed

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CALLS = Calls(Session(now=lambda: NOW_NS))
STRING = VarCharType(2**31 - 1)
DAY = 86_400_000_000_000
WORD = NullType()
#: the values of each type, NULL among them
VALUES: dict[DataType, Sequence[Any]] = {
    BooleanType(): (True, False, None),
    TinyIntType(): (0, 1, -1, 127, -128, None),
    SmallIntType(): (7, 32767, -32768, None),
    IntType(): (0, 1, -1, 2**31 - 1, -(2**31), 46341, None),
    BigIntType(): (0, 1, -1, 3, 2**63 - 1, -(2**63), 2**32 + 1, None),
    FloatType(): (0.0, -1.5, math.nan, math.inf, None),
    DoubleType(): (0.0, -0.0, 1.5, -2.25, 1e300, math.nan, math.inf, -math.inf, None),
    DecimalType(15, 2): (Decimal("0.00"), Decimal("1.50"), Decimal("-9999999999999.99"), Decimal("0.01"), None),
    DecimalType(38, 6): (Decimal("0.000000"), Decimal("9" * 25 + ".999999"), Decimal("-3.141593"), None),
    STRING: ("", "Ab", "äöü ß", "a%b_c\\", "Österreich", "\U0001d518x", None),
    CharType(4): ("Ab  ", "äöü ", None),
    DateType(): (0, 19_000, -1, 11_016, -25_567, None),
    TimestampType(3): (0, 1_700_000_000_123_000_000, -1_000_000, None),
    TimestampType(9): (0, 1_700_000_000_123_456_789, -1, None),
    LocalZonedTimestampType(3): (0, 1_700_000_000_123_000_000, None),
}
UNARY = (
    "MINUS_PREFIX",
    "PLUS_PREFIX",
    "ABS",
    "NOT",
    "IS NULL",
    "IS NOT NULL",
    "CHAR_LENGTH",
    "YEAR",
    "QUARTER",
    "HOUR",
)
TRUTHS = ("IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE", "IS UNKNOWN", "IS NOT UNKNOWN")
BINARY = ("+", "-", "*", "=", "<>", "<", "<=", ">", ">=", "AND", "OR", "||", "GREATEST", "LEAST", "COALESCE", "IN")
DISTINCT = ("IS DISTINCT FROM", "IS NOT DISTINCT FROM")


def made(name: str, *operands: Typed) -> Iterator[Typed]:
    """A call, if the function takes these operands and Spark has it natively."""
    try:
        found = CALLS.call(name, operands)
    except ValidationError:
        return
    if native_text(found, lambda index: f"c{index}") is not None:
        yield found


def check(types: Sequence[DataType], expressions: Sequence[Typed], least: int) -> None:
    """All expressions over all combinations of values; `least`: how many there are at least."""
    rows = list(itertools.product(*(VALUES[kind] for kind in types)))
    assert len(expressions) >= least, [str(one) for one in expressions]
    found = disagreements(expressions, types, rows)
    assert not found, found[:5]


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_functions_of_one_operand(kind: DataType) -> None:
    operand = Field(kind, 0, "a")
    expressions = [one for name in (*UNARY, *TRUTHS) for one in made(name, operand)]
    for other in VALUES:
        try:
            found = CALLS.cast(operand, other)
        except ValidationError:
            continue
        if native_text(found, lambda index: f"c{index}") is not None:
            expressions.append(found)
    check([kind], expressions, 2)


PAIRS = [
    (one, other)
    for one, other in itertools.combinations_with_replacement(VALUES, 2)
    if one == other or not {type(one), type(other)} & {BooleanType, VarCharType, CharType, DateType}
]


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_functions_of_two_operands(kind: DataType) -> None:
    """Each type with all that are listed behind it, in one query."""
    kinds = [other for one, other in PAIRS if one == kind]
    expressions: list[Typed] = []
    for place, other in enumerate(kinds, 1):
        left, right = Field(kind, 0, "a"), Field(other, place, "b")
        for name in (*BINARY, *DISTINCT):
            expressions += made(name, left, right)
            if name in ("-", "<", ">="):
                expressions += made(name, right, left)
    width = len(kinds)
    rows = [
        (value, *(others[number % len(others)] for others in map(VALUES.__getitem__, kinds)))
        for value in VALUES[kind]
        for number in range(max([len(VALUES[other]) for other in kinds]))
    ]
    assert width
    found = disagreements(expressions, [kind, *kinds], rows)
    assert expressions
    assert not found, found[:5]


def number(value: Any, kind: DataType) -> Constant:
    return Constant(kind.not_null(), value)


NUMBERS = [kind for kind in VALUES if isinstance(kind, TinyIntType | IntType | BigIntType | DecimalType | DoubleType)]


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_quotients_of_numbers_that_are_not_zero(kind: DataType) -> None:
    operand = Field(kind, 0, "a")
    divisors = [
        number(3, IntType()),
        number(-1, IntType()),
        number(-1, BigIntType()),
        number(Decimal("0.07"), DecimalType(2, 2)),
        number(Decimal("-12345.678900"), DecimalType(38, 6)),
        number(-0.25, DoubleType()),
    ]
    expressions = [one for name in ("/", "MOD") for divisor in divisors for one in made(name, operand, divisor)]
    check([kind], expressions, 1)


def test_a_column_as_divisor() -> None:
    """Divided by itself, and by -1 where that leaves the type."""
    rows = Rows({"a": BigIntType(), "b": BigIntType()}, [(-(2**63), -1), (7, -2), (None, 0), (7, None)])
    wanted = [(-(2**63), 0), (-3, 1), (None, None), (None, None)]
    assert run_batch("SELECT a / b, MOD(a, b) FROM t", t=rows) == wanted


@pytest.mark.parametrize("expression", ["a / b", "MOD(a, b)", "CAST(a AS DECIMAL(10, 2)) / b"])
def test_a_divisor_that_is_zero_is_an_error(expression: str) -> None:
    rows = Rows({"a": IntType(), "b": IntType()}, [(1, 0)])
    with pytest.raises(TableRuntimeError, match="Division by zero"):
        run_batch(f"SELECT {expression} FROM t", t=rows)
    assert run_batch(f"SELECT CASE WHEN b <> 0 THEN {expression} END FROM t", t=rows) == [(None,)]


def test_text_and_dates_with_constants() -> None:
    text, day = Field(STRING, 0, "t"), Field(DateType(), 0, "d")
    stamp = Field(TimestampType(3), 0, "s")
    patterns = ("%", "A%", "%b", "%b%c%", "", "Ab", "%ß", "a%b")
    likes = [one for pattern in patterns for one in made("LIKE", text, number(pattern, STRING))]
    parts = [
        one
        for start, length in ((1, 2), (2, 0), (3, 100))
        for one in made("SUBSTRING", text, number(start, IntType()), number(length, IntType()))
    ]
    check([STRING], [*likes, *parts, *made("SUBSTRING", text, number(2, IntType()))], len(patterns) + 4)
    units = [one for unit in ("YEAR", "QUARTER", "MONTH", "DAY") for one in made("EXTRACT", Constant(WORD, unit), day)]
    months = [one for name in "+-" for one in made(name, day, number(13, YearMonthIntervalType()))]
    check([DateType()], [*units, *months], 6)
    clock = [one for unit in ("HOUR", "MINUTE", "YEAR") for one in made("EXTRACT", Constant(WORD, unit), stamp)]
    check([TimestampType(3)], clock, 3)


def test_rounding_and_choices() -> None:
    price = Field(DecimalType(15, 2), 0, "p")
    rounded = [one for digits in (0, 1) for one in made("ROUND", price, number(digits, IntType()))]
    positive = CALLS.call(">", [price, number(Decimal("0.00"), DecimalType(15, 2))])
    zero = number(Decimal("0.00"), DecimalType(15, 2))
    check([DecimalType(15, 2)], [*rounded, *made("CASE", positive, price, zero)], 3)


@pytest.mark.parametrize(
    "sql",
    ["SUBSTRING(t, -2)", "t LIKE 'a_'", "UPPER(t)", "CAST(t AS INT)", "CAST(d AS STRING)", "d / d", "CAST(d AS INT)"],
)
def test_what_spark_answers_otherwise_is_left_to_kernels(sql: str) -> None:
    """Its own answer would be another one, or nobody has shown that it is not."""
    from tests.table.planned import manager_of, plan_query

    from penstock.sql.logical.nodes import Project

    plan = plan_query(f"SELECT {sql} FROM x", manager_of("CREATE TABLE x (t STRING, d DOUBLE)"))
    assert isinstance(plan, Project)
    assert native_text(plan.expressions[0], str) is None
