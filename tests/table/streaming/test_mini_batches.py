"""Mini-batches: aggregates gather rows, up to a number or a time, and send one change for each group."""

from __future__ import annotations

from functools import partial

import pytest
from tests.table.streaming.ranked import NAMES, TS, TYPES, K, Under, V

from penstock.base.errors import ConfigurationError
from penstock.runtime.records import MAX_WATERMARK
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import IntType
from penstock.sql.logical.nodes import AggregateCall
from penstock.sql.stream.groups.operators import GroupAggregateOperator
from penstock.sql.stream.planning.options import PlanOptions, plan_options
from penstock.sql.stream.rows.state_ttl import MiniBatch, lasting
from penstock.sql.typed import Field

CALLS = (
    AggregateCall("SUM", (Field(IntType(), V),), IntType()),
    AggregateCall("MAX", (Field(TYPES[TS], TS),), TYPES[TS]),
)


def totals(size: int = 3, before: bool = True, latency_ms: int = 10) -> Under:
    """SELECT k, SUM(v) over rows that come and go."""
    limits = MiniBatch(latency_ms, size)
    return Under(partial(GroupAggregateOperator, (K,), CALLS, TYPES, NAMES, True, before, limits))


def test_rows_wait_until_there_are_enough() -> None:
    found = totals(3)
    found.rows(("a", 1), ("a", 2))
    assert found.take() == []
    found.rows(("b", 5))
    assert found.take() == [("+I", "a", 3), ("+I", "b", 5)]


def test_a_batch_that_is_larger_makes_several_bundles() -> None:
    found = totals(2)
    found.rows(("a", 1), ("a", 2), ("a", 3), ("a", 4), ("a", 5))
    assert found.take() == [("+I", "a", 3), ("-U", "a", 3), ("+U", "a", 10)]
    found.later(10)
    assert found.take() == [("-U", "a", 10), ("+U", "a", 15)]


def test_rows_wait_no_longer_than_they_may() -> None:
    """They are due at multiples of the latency."""
    found = totals(100)
    found.later(7)
    found.rows(("a", 1))
    found.later(2)
    found.rows(("a", 2))
    assert found.take() == []
    found.later(1)
    assert found.take() == [("+I", "a", 3)]


@pytest.mark.parametrize("rows", [3, 100])
def test_a_group_that_comes_and_goes_within_a_bundle_sends_nothing(rows: int) -> None:
    found = totals(2 * rows)
    found.rows(*[("a", 1)] * rows, *[("-D", "a", 1)] * rows)
    assert found.take() == []


def test_a_group_that_is_the_same_after_a_bundle_sends_nothing() -> None:
    found = totals(2)
    found.rows(("a", 1), ("a", 1))
    found.take()
    found.rows(("a", 4), ("a", -4))
    assert found.take() == []


def test_a_group_that_goes_is_deleted() -> None:
    found = totals(2)
    found.rows(("a", 1), ("a", 2))
    found.take()
    found.rows(("-D", "a", 2), ("-D", "a", 1))
    assert found.take() == [("-D", "a", 3)]


def test_updates_may_come_without_the_rows_as_they_were() -> None:
    found = totals(1, before=False)
    found.rows(("a", 1), ("a", 2))
    assert found.take() == [("+I", "a", 1), ("+U", "a", 3)]


def test_no_row_waits_in_a_snapshot() -> None:
    """What waits is sent ahead of the barrier."""
    found = totals(100)
    found.rows(("a", 1))
    found.harnesses[0].operator.prepare_snapshot(1)
    assert found.take() == [("+I", "a", 1)]
    found.recover()
    found.rows(("a", 2))
    found.later(10)
    assert found.take() == [("-U", "a", 1), ("+U", "a", 3)]


def test_event_time_does_not_overtake_rows_that_wait() -> None:
    found = totals(2)
    found.rows(("a", 1))
    found.watermark(5)
    assert found.harnesses[0].captured.watermarks == []
    found.rows(("a", 2))
    assert found.harnesses[0].captured.watermarks == [5]
    found.watermark(6)
    assert found.harnesses[0].captured.watermarks == [5, 6]


def test_no_row_is_left_at_the_end() -> None:
    found = totals(100)
    found.rows(("a", 1))
    found.watermark(MAX_WATERMARK)
    assert found.take() == [("+I", "a", 1)]
    assert found.harnesses[0].captured.watermarks == [MAX_WATERMARK]


def test_bundles_and_expiry_of_state_go_together() -> None:
    limits = MiniBatch(10, 2)
    operator = lasting(partial(GroupAggregateOperator, (K,), CALLS, TYPES, NAMES, True, True, limits), 80)
    found = Under(operator)
    found.rows(("a", 1), ("a", 2))
    assert found.take() == [("+I", "a", 3)]
    found.rows(("a", 0), ("a", 0))
    assert found.take() == [("-U", "a", 3), ("+U", "a", 3)]
    found.later(90)
    found.rows(("a", 1))
    found.later(10)
    assert found.take() == [("+I", "a", 1)]


# --- options ----------------------------------------------------------------------------------------------------------


def test_the_options_are_those_of_flink() -> None:
    found = plan_options(
        {
            "table.exec.mini-batch.enabled": "true",
            "table.exec.mini-batch.allow-latency": "5 s",
            "table.exec.mini-batch.size": "100",
            "table.exec.state.ttl": "1 h",
        }
    )
    assert found == PlanOptions(3_600_000, MiniBatch(5000, 100))
    assert plan_options({"table.exec.mini-batch.size": "100"}) == PlanOptions()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"allow-latency": "1 s"}, "table.exec.mini-batch.size.*must be > 0"),
        ({"size": "5"}, "table.exec.mini-batch.allow-latency must be greater than 0"),
    ],
)
def test_mini_batches_need_both_limits(options: dict[str, str], reason: str) -> None:
    given = {f"table.exec.mini-batch.{key}": value for key, value in options.items()}
    with pytest.raises(ValidationError, match=reason):
        plan_options({"table.exec.mini-batch.enabled": "true", **given})


def test_a_value_of_another_form_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"table\.exec\.state\.ttl"):
        plan_options({"table.exec.state.ttl": "soon"})
