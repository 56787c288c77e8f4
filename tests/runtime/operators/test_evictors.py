"""Evictors: what is thrown out of a window, before or after it is evaluated."""

from __future__ import annotations

from typing import Any

import pytest
from tests.runtime.operators.windows import add, at, hostile, untimed, window_operator

from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    EventTimeSessionWindows,
    Evictor,
    GlobalWindows,
    PurgingTrigger,
    TimeEvictor,
    TimestampedValue,
    TumblingEventTimeWindows,
)
from penstock.runtime.operators.window.base import AggregatingContents, ApplyResult, ReducingContents
from penstock.runtime.records import MIN_TIMESTAMP, Watermark
from penstock.testing import OneInputOperatorHarness, Record

GLOBAL = "GlobalWindow()"


def sliding_count(evictor: Evictor, every: int = 2, **arguments: Any) -> Any:
    return window_operator(GlobalWindows(), CountTrigger(every), evictor=evictor, **arguments)


def test_count_evictor_keeps_the_last(backend: str) -> None:
    """C1: with a count trigger it makes sliding windows by count that fire from the first slide on."""
    expected = [("a", GLOBAL, [1, 2]), ("a", GLOBAL, [2, 3, 4]), ("a", GLOBAL, [4, 5, 6])]
    hostile(backend, sliding_count(CountEvictor.of(3)), untimed(1, 2, 3, 4, 5, 6), expected)


def test_count_evictor_afterwards(backend: str) -> None:
    """C1: evicting after the evaluation leaves that many for the next."""
    expected = [("a", GLOBAL, [1, 2]), ("a", GLOBAL, [1, 2, 3, 4]), ("a", GLOBAL, [3, 4, 5, 6])]
    hostile(backend, sliding_count(CountEvictor.of(2, True)), untimed(1, 2, 3, 4, 5, 6), expected)


def test_count_evictor_that_keeps_nothing() -> None:
    """C1: a window that was emptied is evaluated without records before, and is gone after."""
    before = sliding_count(CountEvictor.of(0))
    hostile("hashmap", before, untimed(1, 2, 3, 4), [("a", GLOBAL, [])] * 2)
    after = sliding_count(CountEvictor.of(0, do_evict_after=True))
    hostile("hashmap", after, untimed(1, 2, 3, 4), [("a", GLOBAL, [1, 2]), ("a", GLOBAL, [3, 4])])


def test_time_evictor_counts_back_from_the_latest_record(backend: str) -> None:
    """C1: a record exactly as old as the size goes; what goes is gone for later firings too."""
    factory = sliding_count(TimeEvictor.of(10))
    inputs = [*at(5, 20), *at(10, 19), *at(26, 25)]
    expected = [("a", GLOBAL, [20]), ("a", GLOBAL, [19, 20]), ("a", GLOBAL, [19, 20, 25, 26])]
    hostile(backend, factory, inputs, expected)


def test_time_evictor_leaves_records_without_time_alone() -> None:
    """C1: without timestamps there is nothing to go by."""
    hostile("hashmap", sliding_count(TimeEvictor.of(10)), untimed(1, 2), [("a", GLOBAL, [1, 2])])


def test_delta_evictor(backend: str) -> None:
    """C1: what differs from the last record by the threshold or more goes."""
    evictor = DeltaEvictor.of(10, lambda one, last: abs(one[1] - last[1]))
    inputs = untimed(1, 20, 24, 14, 33, 40)
    expected = [("a", GLOBAL, [20]), ("a", GLOBAL, [14, 20]), ("a", GLOBAL, [33, 40])]
    hostile(backend, sliding_count(evictor), inputs, expected)


def test_delta_evictor_takes_a_function_object() -> None:
    """C1: `get_delta` of an object does as well."""

    class Delta:
        def get_delta(self, old: Any, new: Any) -> float:
            return abs(old[1] - new[1])  # type: ignore[no-any-return]

    evictor = DeltaEvictor.of(2, Delta(), do_evict_after=True)
    hostile("hashmap", sliding_count(evictor), untimed(1, 5, 6, 7), [("a", GLOBAL, [1, 5]), ("a", GLOBAL, [5, 6, 7])])


class Mean:
    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        accumulator[0] += value[1]
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator: list[int]) -> float:
        return accumulator[0] / accumulator[1]


def test_reduce_and_aggregate_over_what_is_left() -> None:
    """C1: folding happens when the window fires, over what was not thrown out; over nothing it gives nothing."""
    inputs = untimed(1, 2, 3, 4)
    reducing = sliding_count(CountEvictor.of(1), contents=ReducingContents(add))
    hostile("hashmap", reducing, inputs, [("a", 2), ("a", 4)])
    aggregating = sliding_count(CountEvictor.of(3), contents=AggregatingContents(Mean()))
    hostile("hashmap", aggregating, inputs, [1.5, 3.0])
    shown = sliding_count(
        CountEvictor.of(3),
        contents=AggregatingContents(Mean()),
        result=ApplyResult(lambda key, window, inputs: [(key, *inputs)], False),
    )
    hostile("hashmap", shown, inputs, [("a", 1.5), ("a", 3.0)])
    nothing = sliding_count(CountEvictor.of(0), contents=AggregatingContents(Mean()))
    hostile("hashmap", nothing, inputs, [])


def test_evictor_with_purging_trigger(backend: str) -> None:
    """C1: the trigger purges after the evictor had its say."""
    factory = window_operator(GlobalWindows(), PurgingTrigger(CountTrigger(2)), evictor=CountEvictor(1))
    hostile(backend, factory, untimed(1, 2, 3, 4), [("a", GLOBAL, [2]), ("a", GLOBAL, [4])])


def test_evictor_on_merging_windows(backend: str) -> None:
    """C1: sessions that merge put their records together, in the order of the windows."""
    factory = window_operator(EventTimeSessionWindows(10), evictor=CountEvictor.of(2))
    inputs = [*at(0), *at(15), *at(8), Watermark(100)]
    hostile(backend, factory, inputs, [Record(("a", (0, 25), [8, 15]), 24)])


class Odd(Evictor):
    """Writes down what it is handed, and throws odd values out."""

    def evict_before(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        assert size == len(elements)
        assert all(element.get_timestamp() == element.get_value()[1] for element in elements)
        assert evictor_context.get_current_watermark() >= 4
        assert evictor_context.get_current_processing_time() == 0
        elements[:] = [element for element in elements if element.get_value()[1] % 2 == 0]

    def evict_after(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        assert size == len(elements)
        if window.start == 0:
            elements.clear()


def test_a_custom_evictor(backend: str) -> None:
    """C1: an evictor sees records with their timestamps, the window and the times."""
    trigger = ContinuousEventTimeTrigger.of(5)
    factory = window_operator(TumblingEventTimeWindows(10), trigger, evictor=Odd())
    inputs = [*at(1, 2, 4, 11, 12), Watermark(5), *at(6), Watermark(16), *at(14), Watermark(20)]
    expected = [("a", (0, 10), [2, 4]), ("a", (0, 10), [6]), ("a", (10, 20), [12]), ("a", (10, 20), [12, 14])]
    hostile(backend, factory, inputs, expected)


def test_an_evictor_may_count() -> None:
    """C1: an evictor's metrics are those of its operator."""

    class Measuring(CountEvictor):
        def evict_before(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
            evictor_context.get_metric_group().counter("looked").inc(size)
            super().evict_before(elements, size, window, evictor_context)

    with OneInputOperatorHarness(sliding_count(Measuring(1), 1)) as harness:
        for n in range(3):
            harness.process(("a", n), n)
        assert harness.operator.context.metrics.counters() == {"looked": 1 + 2 + 2}


def test_timestamped_values() -> None:
    """C1: a record of a window with its event time, or without."""
    assert (TimestampedValue("a", 5).get_value(), TimestampedValue("a", 5).get_timestamp()) == ("a", 5)
    assert not TimestampedValue("a").has_timestamp()
    assert TimestampedValue("a").get_timestamp() == MIN_TIMESTAMP


def test_a_negative_count_is_refused() -> None:
    """C1: nobody can keep fewer than no records."""
    with pytest.raises(ValueError, match="-1"):
        CountEvictor.of(-1)
