"""K1: sums, means and variances of rows that are retracted are those of the rows that are left."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.table.running import Rows, run
from tests.table.streaming.windowed import Timed

from penstock.sql.data.types import DataType, DecimalType, DoubleType, FloatType, IntType
from penstock.sql.logical.nodes import AggregateCall
from penstock.sql.stream.aggregates.accumulators import build_accumulator
from penstock.sql.stream.aggregates.numbers import EMPTY, changed, to_float
from penstock.sql.typed import Field

INT, DOUBLE, FLOAT = IntType(), DoubleType(), FloatType()
INF, NAN = math.inf, math.nan
MOMENTS = "SUM(v), AVG(v), STDDEV_POP(v), VAR_SAMP(v), SUM(DISTINCT v)"

numbers = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.1, 1e17, -1e308, 5e-324, 3.0])


def after(kind: DataType, function: str, *steps: float | list[float]) -> Any:
    """The result of an aggregate of rows that may be retracted; those in lists are retracted."""
    accumulator = build_accumulator(AggregateCall(function, (Field(kind, 0),), kind), True)
    held = accumulator.create()
    for step in steps:
        values = tuple(step) if isinstance(step, list) else (step,)
        held = (accumulator.retract if isinstance(step, list) else accumulator.add)(held, values)
    return accumulator.value(held)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.lists(numbers, min_size=1, max_size=12), st.lists(numbers | st.sampled_from([INF, -INF, NAN]), max_size=12))
def test_the_sum_is_the_nearest_float_whatever_was_there_meanwhile(left: list[float], gone: list[float]) -> None:
    total = EMPTY
    for value in [*gone, *left]:
        total = changed(total, value, 1)
    for value in gone:
        total = changed(total, value, -1)
    exact = sum(map(Fraction, left))
    try:
        wanted = exact.numerator / exact.denominator
    except OverflowError:
        wanted = INF if exact > 0 else -INF
    assert to_float(total) == wanted
    for value in left:
        total = changed(total, value, -1)
    assert total == EMPTY


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ((INF, 1.0), INF),
        ((-INF, 1.0), -INF),
        ((INF, -INF), NAN),
        ((NAN, INF), NAN),
        ((INF, [INF], 2.0), 2.0),
        (([INF], 2.0, 3.0), 5.0),
        ((1e308, 1e308), INF),
        ((1e308, 1e308, [1e308]), 1e308),
        ((-1e308, -1e308), -INF),
        ((0.1, 0.2), 0.1 + 0.2),
        ((-0.0,), 0.0),
        ((1.0, [1.0]), None),
    ],
)
def test_values_that_are_not_finite_are_counted_beside_the_sum(values: tuple[Any, ...], wanted: float | None) -> None:
    assert repr(after(DOUBLE, "SUM", *values)) == repr(wanted)


@pytest.mark.parametrize("others", [(INF,), (NAN,), (-INF, INF, NAN), (1e17,), (0.1, 50.7), (1e308, 1e308)])
def test_groups_windows_and_frames_recover(others: tuple[float, ...]) -> None:
    """Flink's sums stay infinite, NaN or wrong, and its variances become NULL."""
    left = [(1, 0.3), (1, 0.3)]
    columns = {"k": INT, "v": DOUBLE}
    (wanted,) = run(f"SELECT {MOMENTS} FROM t", t=Rows(columns, left)).rows()
    changes = [*(("+I", (1, value)) for value in others), *(("+I", row) for row in left)]
    changes += [("-D", (1, value)) for value in others]
    for at_once in (None, 1):
        answer = run(f"SELECT k, {MOMENTS} FROM t GROUP BY k", t=Rows(columns, changes, at_once))
        assert answer.rows() == [(1, *wanted)]
        assert wanted[2] == 0.0


@pytest.mark.parametrize("frame", ["ROWS BETWEEN 1 PRECEDING AND", "RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND"])
def test_a_bounded_frame_recovers(frame: str) -> None:
    values = [INF, 1.0, 2.0, NAN, 3.0, 4.0, 1e17, 5.0, 6.0]
    rows = Timed(*(("a", index, index * 1000) for index in range(len(values))))
    cases = " ".join(f"WHEN {index} THEN CAST('{value}' AS DOUBLE)" for index, value in enumerate(values))
    sql = f"SELECT v, SUM(d) OVER w, AVG(d) OVER w FROM (SELECT *, CASE v {cases} END AS d FROM t) WINDOW w AS"
    sql = sql.replace("'inf'", "'Infinity'").replace("'nan'", "'NaN'")
    answer = run(f"{sql} (ORDER BY ts {frame} CURRENT ROW)", t=rows)
    sums = {row[0]: row[1:] for row in answer.rows()}
    assert (sums[2], sums[5], sums[8]) == ((3.0, 1.5), (7.0, 3.5), (11.0, 5.5))
    assert math.isnan(sums[4][0])


def test_floats_of_single_precision_are_rounded_once() -> None:
    assert after(FLOAT, "SUM", 0.1, 0.2, [0.1]) == 0.20000000298023224
    assert after(FLOAT, "AVG", 3e38, 3e38) == pytest.approx(3e38)


@pytest.mark.parametrize(
    ("function", "kind", "held", "wanted"),
    [
        ("SUM", DOUBLE, (4.5, 2), (5.5, 4.5)),
        ("SUM", DOUBLE, (INF, 2), (INF, INF)),
        ("SUM", DOUBLE, (NAN, 2), (NAN, NAN)),
        ("AVG", DOUBLE, (4.5, 2), (5.5 / 3, 2.25)),
        ("VAR_POP", DOUBLE, (2, 2.0, 2.0), (8 / 9, 1.0)),
        ("SUM", DecimalType(38, 0), (None, 2), (Decimal(1), Decimal(0))),
    ],
)
def test_state_of_an_earlier_release_goes_on(function: str, kind: DataType, held: Any, wanted: Any) -> None:
    """A sum was a float and a count, a variance a mean and squared distances."""
    accumulator = build_accumulator(AggregateCall(function, (Field(kind, 0),), kind), True)
    one = Decimal(1) if isinstance(kind, DecimalType) else 1.0
    more = accumulator.add(held, (one,))
    values = accumulator.value(more), accumulator.value(accumulator.retract(more, (one,)))
    assert repr(values) == repr(wanted) or values == pytest.approx(wanted)
    assert not accumulator.is_spent(more)


def test_a_decimal_sum_comes_back_from_overflow() -> None:
    """Flink's begins again after NULL: 9e37 + 9e37 - 9e37 is -9e37 there."""
    kind = DecimalType(38, 0)
    large, last = Decimal("9e37"), Decimal("9" * 38)
    cases: list[tuple[list[Any], Decimal | None]] = [
        ([large, large, -large], large),
        ([large, large], None),
        ([last, Decimal(7), ("-D", last)], Decimal(7)),
        ([last, Decimal(1), ("-D", Decimal("9" * 37 + "8"))], Decimal(2)),
    ]
    for changes, wanted in cases:
        rows = [("+I", (step,)) if isinstance(step, Decimal) else (step[0], step[1:]) for step in changes]
        assert run("SELECT SUM(v) FROM t", t=Rows({"v": kind}, rows)).rows() == [(wanted,)]


def test_decimals_keep_all_digits_when_they_are_retracted() -> None:
    """Python negates a Decimal with 28 digits."""
    value = Decimal("1234567890123456789012345678901234567.8")
    rows = [("+I", (value,)), ("+I", (Decimal("0.1"),)), ("-D", (value,))]
    assert run("SELECT SUM(v), AVG(v) FROM t", t=Rows({"v": DecimalType(38, 1)}, rows)).rows()[0][0] == Decimal("0.1")
