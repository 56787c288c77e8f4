"""Whole numbers divided by constants, as Java divides."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.table.evaluated import column

from penstock.sql.data.types import BigIntType, DataType, IntType, SmallIntType

LEAST: dict[DataType, int] = {BigIntType(): -(2**63), IntType(): -(2**31), SmallIntType(): -(2**15)}


def wrapped(number: int, kind: DataType) -> int:
    return (number - LEAST[kind]) % (-2 * LEAST[kind]) + LEAST[kind]


def truncated(number: int, divisor: int) -> int:
    found = abs(number) // abs(divisor)
    return found if (number < 0) == (divisor < 0) else -found


@st.composite
def division(draw: st.DrawFn) -> tuple[DataType, list[int | None], int]:
    kind = draw(st.sampled_from(list(LEAST)))
    edges = st.sampled_from([LEAST[kind], LEAST[kind] + 1, -1 - LEAST[kind], -1, 0, 1])
    number = st.one_of(edges, st.integers(-1000, 1000), st.integers(LEAST[kind], -1 - LEAST[kind]))
    numbers = draw(st.lists(st.one_of(st.none(), number), min_size=1, max_size=12))
    return kind, numbers, draw(st.integers(-(2**31) + 1, 2**31 - 1).filter(bool))


@settings(deadline=None)
@given(division())
def test_quotient_and_remainder(case: tuple[DataType, list[int | None], int]) -> None:
    kind, numbers, divisor = case
    # A constant of up to ten digits is an INT, so the quotient is at least one.
    wide = kind if kind == BigIntType() else IntType()
    quotients = [None if one is None else wrapped(truncated(one, divisor), wide) for one in numbers]
    remainders = [None if one is None else int(math.fmod(one, divisor)) for one in numbers]
    if kind == BigIntType():
        remainders = [None if one is None else one - truncated(one, divisor) * divisor for one in numbers]
    assert column(f"a / ({divisor})", {"a": kind}, a=numbers) == quotients
    assert column(f"MOD(a, {divisor})", {"a": kind}, a=numbers) == remainders


@pytest.mark.parametrize("least", [-(2**63)])
def test_the_least_number_as_divisor(least: int) -> None:
    assert column(f"MOD(a, CAST('{least}' AS BIGINT))", {"a": BigIntType()}, a=[5, least]) == [5, 0]
