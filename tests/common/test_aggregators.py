"""Aggregators of iterations: what values amount to, and what several copies do (I3)."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from penstock.base.accumulators import (
    Aggregator,
    DoubleMaxAggregator,
    DoubleMinAggregator,
    DoubleSumAggregator,
    DoubleZeroConvergence,
    LongMaxAggregator,
    LongMinAggregator,
    LongSumAggregator,
    LongZeroConvergence,
)

KINDS: list[tuple[type[Aggregator[Any]], Any, Any]] = [
    (LongSumAggregator, sum, 0),
    (LongMinAggregator, min, 2**63 - 1),
    (LongMaxAggregator, max, -(2**63)),
    (DoubleSumAggregator, sum, 0.0),
    (DoubleMinAggregator, min, float("inf")),
    (DoubleMaxAggregator, max, float("-inf")),
]


@pytest.mark.parametrize(("kind", "fold", "nothing"), KINDS)
@given(st.lists(st.lists(st.integers(-100, 100), min_size=1), min_size=1))
def test_copies_amount_to_what_all_values_do(kind: Any, fold: Any, nothing: Any, parts: list[list[int]]) -> None:
    """I3: values dealt out over copies, and the copies' aggregates aggregated, give what one copy would."""
    whole = kind()
    for part in parts:
        copy = kind()
        for value in part:
            copy.aggregate(value)
        whole.aggregate(copy.get_aggregate())
    assert whole.get_aggregate() == fold(value for part in parts for value in part)


@pytest.mark.parametrize(("kind", "fold", "nothing"), KINDS)
def test_an_aggregator_begins_with_nothing_and_does_so_again(kind: Any, fold: Any, nothing: Any) -> None:
    """I3: the aggregate of nothing changes no other."""
    aggregator = kind()
    assert aggregator.get_aggregate() == nothing
    aggregator.aggregate(7)
    aggregator.aggregate(kind().get_aggregate())
    assert aggregator.get_aggregate() == 7
    aggregator.reset()
    assert aggregator.get_aggregate() == nothing


def test_zero_criteria_end_at_zero() -> None:
    """I3: in whatever superstep."""
    assert [LongZeroConvergence().is_converged(3, value) for value in (0, 1, -1)] == [True, False, False]
    assert [DoubleZeroConvergence().is_converged(1, value) for value in (0.0, 0.5)] == [True, False]
