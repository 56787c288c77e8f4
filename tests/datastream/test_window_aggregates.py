"""`sum`, `min`, `max`, `min_by` and `max_by` of a field over windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from tests.datastream.environments import collect, local_environment

from penstock.base.errors import UserFunctionError
from penstock.base.types import Row
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    TumblingEventTimeWindows,
)


class Bid(NamedTuple):
    item: str
    price: int
    note: str


FORMS: dict[str, Callable[..., Any]] = {
    "tuple": lambda *fields: tuple(fields),
    "list": lambda *fields: list(fields),
    "row": lambda *fields: Row(item=fields[0], price=fields[1], note=fields[2]),
    "named tuple": Bid,
}
AGGREGATES = {
    "sum": ("a", 16, "x"),
    "min": ("a", 2, "x"),
    "max": ("a", 9, "x"),
    "min_by": ("a", 2, "y"),
    "max_by": ("a", 9, "z"),
}
BIDS = [("a", 5, "x", 1), ("a", 2, "y", 3), ("a", 9, "z", 5), ("a", 1, "later", 15)]


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH", "BATCH"])
@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_keyed", [True, False])
def test_a_field_is_aggregated_over_each_window(mode: str, name: str, form: str, is_keyed: bool) -> None:
    """A2, C1: `sum`, `min`, `max`, `min_by` and `max_by` of windows, as of keyed streams, in every form of record."""
    make = FORMS[form]
    env = local_environment(execution__runtime_mode=mode)
    by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda bid, _: bid[3])
    bids = env.from_collection(BIDS).assign_timestamps_and_watermarks(by_time).map(lambda bid: make(*bid[:3]))
    windows = TumblingEventTimeWindows.of(10)
    windowed: Any = bids.key_by(lambda bid: bid[0]).window(windows) if is_keyed else bids.window_all(windows)
    found = collect(getattr(windowed, name)(1))
    assert found == [make(*AGGREGATES[name]), make("a", 1, "later")]


def test_windows_that_keep_all_records_and_windows_that_merge_aggregate_a_field_too() -> None:
    """A2, C1: with an evictor, with a trigger, and in sessions; by name, and of plain numbers."""
    env = local_environment()
    by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda bid, _: bid[3])
    bids = env.from_collection(BIDS).assign_timestamps_and_watermarks(by_time).key_by(lambda bid: bid[0])
    assert collect(bids.window(EventTimeSessionWindows.with_gap(11)).sum("f1")) == [("a", 17, "x", 1)]
    assert collect(bids.count_window(2).max(1)) == [("a", 5, "x", 1), ("a", 9, "z", 5)]
    last = bids.window(GlobalWindows.create()).trigger(CountTrigger.of(1)).evictor(CountEvictor.of(2))
    assert [bid[1] for bid in collect(last.sum(1))] == [5, 7, 11, 10]
    numbers = local_environment().from_collection([4, 1, 2]).key_by(lambda number: 0)
    assert collect(numbers.count_window(3).min()) == [1]


def test_a_field_that_a_window_cannot_aggregate_is_an_error_of_the_first_record() -> None:
    """A2: also in a window with one record; a negative position is refused when the program is built."""
    windows = local_environment().from_collection([("a", 1)]).key_by(lambda bid: bid[0]).count_window(1)
    with pytest.raises(UserFunctionError, match="has no field 'price'"):
        collect(windows.sum("price"))
    with pytest.raises(ValueError, match="position from 0 on"):
        windows.max(-1)
