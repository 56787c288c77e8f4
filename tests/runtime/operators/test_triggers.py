"""When windows fire, and what they forget: every trigger in the general window operator, on both backends."""

from __future__ import annotations

from typing import Any

import pytest
from tests.runtime.operators.windows import add, at, hostile, untimed, window_operator

from penstock.base.time import Time
from penstock.base.typeinfo import Types
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    CountTumblingWindowAssigner,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.window.base import ReducingContents
from penstock.runtime.records import Watermark
from penstock.testing import OneInputOperatorHarness, ProcessingTime, Record

GLOBAL = "GlobalWindow()"


def test_results_say_what_they_do() -> None:
    """C1: the four results."""
    assert [(r.name, r.is_fire(), r.is_purge()) for r in TriggerResult] == [
        ("CONTINUE", False, False),
        ("FIRE_AND_PURGE", True, True),
        ("FIRE", True, False),
        ("PURGE", False, True),
    ]


class Counting(EventTimeTrigger):
    """Counts the records that it is shown."""

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        ctx.get_metric_group().add_group("trigger").counter("seen").inc()
        return super().on_element(element, timestamp, window, ctx)


def test_a_trigger_may_count() -> None:
    """C1: a trigger's metrics are those of its operator."""
    with OneInputOperatorHarness(window_operator(TumblingEventTimeWindows(10), Counting())) as harness:
        for time in (1, 2, 11):
            harness.process(("a", time), time)
        assert harness.operator.context.metrics.counters() == {"trigger.seen": 3}


def test_which_triggers_may_be_used_where_windows_merge() -> None:
    """C1: all but those that say they cannot; a purging trigger can what the one in it can."""
    merging = (
        EventTimeTrigger.create(),
        ProcessingTimeTrigger.create(),
        ContinuousEventTimeTrigger.of(Time.seconds(1)),
        ContinuousProcessingTimeTrigger.of(Time.seconds(1)),
        CountTrigger.of(2),
    )
    for trigger in merging:
        assert trigger.can_merge()
        assert PurgingTrigger.of(trigger).can_merge()
    assert not NeverTrigger().can_merge()
    assert not PurgingTrigger.of(nested_trigger=NeverTrigger()).can_merge()


def test_what_a_trigger_does_not_go_by_changes_nothing() -> None:
    """C1: event time leaves triggers of processing time alone, and the other way round; the rest heed neither."""
    window: Any = TimeWindow(0, 10)
    nothing: Any = None
    by_clock: Any = (ProcessingTimeTrigger(), ContinuousProcessingTimeTrigger(5), CountTrigger(2), NeverTrigger())
    by_event_time: Any = (EventTimeTrigger(), ContinuousEventTimeTrigger(5), CountTrigger(2), NeverTrigger())
    for trigger in by_clock:
        assert trigger.on_event_time(9, window, nothing) is TriggerResult.CONTINUE
    for trigger in by_event_time:
        assert trigger.on_processing_time(9, window, nothing) is TriggerResult.CONTINUE
    NeverTrigger().on_merge(window, nothing)
    NeverTrigger().clear(window, nothing)


# --- by time ----------------------------------------------------------------------------------------------------------


def test_event_time_trigger(backend: str) -> None:
    """C1: fires when the watermark reaches the last ms, and at once for each record within the allowed lateness."""
    factory = window_operator(TumblingEventTimeWindows(10), EventTimeTrigger.create(), allowed_lateness_ms=5)
    inputs = [*at(1), Watermark(8), Watermark(9), *at(2), *at(12), Watermark(14), *at(3)]
    expected = [Record(("a", (0, 10), [1]), 9), Record(("a", (0, 10), [1, 2]), 9), Record(("a", (10, 20), [12]), 19)]
    hostile(backend, factory, inputs, expected)


def test_processing_time_trigger(backend: str) -> None:
    """C1: a window by the clock fires when it has passed the end, records without timestamps included."""
    factory = window_operator(TumblingProcessingTimeWindows(10), ProcessingTimeTrigger.create())
    inputs = [*untimed(1), ProcessingTime(9), *untimed(2), ProcessingTime(1), *untimed(3), ProcessingTime(10)]
    expected = [Record(("a", (0, 10), [1, 2]), 9), Record(("a", (10, 20), [3]), 19)]
    hostile(backend, factory, inputs, expected)


def test_a_record_in_the_last_ms_of_a_processing_time_window_is_not_left_out() -> None:
    """C1: the window [0, 10) fires at 10, not at 9."""
    with OneInputOperatorHarness(window_operator(TumblingProcessingTimeWindows(10))) as harness:
        harness.process(("a", 1))
        assert harness.operator.next_timer_ms() == 10
        harness.advance_processing_time(9)
        harness.process(("a", 2))
        harness.operator.on_processing_time(9)
        assert harness.values == []
        harness.advance_processing_time(1)
        assert harness.values == [("a", (0, 10), [1, 2])]
        assert harness.operator.next_timer_ms() is None


def test_processing_time_windows_do_not_fire_when_the_input_ends() -> None:
    """F5: timers of the clock that wait when the input ends are dropped, and none is taken any more."""
    with OneInputOperatorHarness(window_operator(TumblingProcessingTimeWindows(10))) as harness:
        harness.process(("a", 1))
        harness.operator.quiesce_timers()
        harness.process(("a", 2))
        harness.advance_processing_time(100)
        assert harness.values == []


def test_continuous_event_time_trigger(backend: str) -> None:
    """C1: fires at every multiple of the interval that the watermark passes, and at the end, with all so far."""
    factory = window_operator(TumblingEventTimeWindows(25), ContinuousEventTimeTrigger.of(10))
    inputs = [*at(3), Watermark(9), Watermark(10), *at(12), Watermark(19), Watermark(20), *at(21), Watermark(40)]
    expected = [("a", (0, 25), [3]), ("a", (0, 25), [3, 12]), ("a", (0, 25), [3, 12, 21])]
    hostile(backend, factory, inputs, [Record(value, 24) for value in expected])


def test_continuous_event_time_trigger_on_the_global_window() -> None:
    """C1: fires on for ever, and once more at the end of time, which it does not count its way up to."""
    factory = window_operator(GlobalWindows(), ContinuousEventTimeTrigger.of(10))
    inputs = [*at(3), Watermark(25), *at(27)]
    expected = [("a", GLOBAL, [3])] * 2 + [("a", GLOBAL, [3, 27])] * 2  # at 10, 20, 30, and at the end
    hostile("hashmap", factory, inputs, expected)


def test_continuous_event_time_trigger_fires_for_late_records() -> None:
    """C1: a record within the allowed lateness fires its window at once."""
    factory = window_operator(TumblingEventTimeWindows(10), ContinuousEventTimeTrigger.of(4), allowed_lateness_ms=5)
    with OneInputOperatorHarness(factory) as harness:
        harness.process(("a", 1), 1)
        harness.watermark(9)
        harness.take_output()
        harness.process(("a", 2), 2)
        assert harness.values == [("a", (0, 10), [1, 2])]


def test_continuous_event_time_trigger_on_sessions(backend: str) -> None:
    """C1: when sessions merge, the earliest of their next firings counts."""
    factory = window_operator(EventTimeSessionWindows(10), ContinuousEventTimeTrigger.of(6))
    inputs = [*at(1), *at(13), *at(8), Watermark(6), Watermark(12), Watermark(22)]
    expected = [("a", (1, 23), [1, 8, 13])] * 4
    hostile(backend, factory, inputs, expected)  # at 6, 12, 18, and at the end


def test_continuous_processing_time_trigger(backend: str) -> None:
    """C1: fires at every multiple of the interval by the clock, and at the window's end, but not when it is empty."""
    factory = window_operator(TumblingProcessingTimeWindows(25), ContinuousProcessingTimeTrigger.of(10))
    inputs = [ProcessingTime(3), *untimed(1), ProcessingTime(8), *untimed(2), ProcessingTime(10), ProcessingTime(50)]
    expected = [("a", (0, 25), [1]), ("a", (0, 25), [1, 2]), ("a", (0, 25), [1, 2])]
    hostile(backend, factory, inputs, expected)


def test_continuous_processing_time_trigger_on_event_time_windows() -> None:
    """C1: by the clock alone, also where the window lies in its past, until the watermark takes the window away."""
    factory = window_operator(TumblingEventTimeWindows(10), ContinuousProcessingTimeTrigger.of(100))
    with OneInputOperatorHarness(factory) as harness:
        harness.advance_processing_time(1000)
        harness.process(("a", 1), 1)
        harness.advance_processing_time(101)
        assert harness.values == [("a", (0, 10), [1])]
        harness.advance_processing_time(100)
        assert len(harness.values) == 2
        harness.watermark(9)
        harness.advance_processing_time(1000)
        assert len(harness.values) == 2
        assert harness.operator.next_timer_ms() is None


def test_continuous_processing_time_trigger_on_sessions(backend: str) -> None:
    """C1: sessions of processing time that merge fire on, and once more at their end."""
    factory = window_operator(ProcessingTimeSessionWindows(10), ContinuousProcessingTimeTrigger.of(6))
    inputs = [*untimed(1), ProcessingTime(5), *untimed(2), ProcessingTime(2), *untimed(3), ProcessingTime(20)]
    # At 6, at 12, and at the end 17.
    expected = [("a", (0, 15), [1, 2]), ("a", (0, 17), [1, 2, 3]), ("a", (0, 17), [1, 2, 3])]
    hostile(backend, factory, inputs, expected)


class HalfAsOften(ContinuousEventTimeTrigger):
    def register_next_fire_timestamp(
        self, time: int, window: Any, ctx: Trigger.TriggerContext, fire_timestamp_state: Any
    ) -> None:
        super().register_next_fire_timestamp(time + self.interval, window, ctx, fire_timestamp_state)


class HalfAsOftenByClock(ContinuousProcessingTimeTrigger):
    def register_next_fire_timestamp(
        self, time: int, window: Any, ctx: Trigger.TriggerContext, fire_timestamp_state: Any
    ) -> None:
        super().register_next_fire_timestamp(time + self.interval, window, ctx, fire_timestamp_state)


def test_when_a_continuous_trigger_fires_next_may_be_overridden() -> None:
    """C1: both ask one method of theirs for the next time."""
    with OneInputOperatorHarness(window_operator(TumblingEventTimeWindows(100), HalfAsOften(10))) as harness:
        harness.process(("a", 5), 5)
        for time, fired in ((19, 0), (20, 1), (39, 1), (40, 2), (99, 5)):
            harness.watermark(time)
            assert len(harness.values) == fired
    with OneInputOperatorHarness(window_operator(TumblingEventTimeWindows(100), HalfAsOftenByClock(10))) as harness:
        harness.process(("a", 5), 5)
        for by_ms, fired in ((20, 0), (1, 1), (19, 1), (1, 2)):  # a timer is due when the clock has passed it
            harness.advance_processing_time(by_ms)
            assert len(harness.values) == fired


@pytest.mark.parametrize("trigger", [ContinuousEventTimeTrigger, ContinuousProcessingTimeTrigger])
def test_an_interval_is_over_zero(trigger: Any) -> None:
    """C1: an interval of 0 would never let go."""
    with pytest.raises(ValueError, match="over 0 ms"):
        trigger.of(0)


# --- by count ---------------------------------------------------------------------------------------------------------


def test_count_trigger_keeps_the_records(backend: str) -> None:
    """C1: fires with every so many records of a key, with all of the window."""
    factory = window_operator(GlobalWindows.create(), CountTrigger.of(2))
    inputs = [*untimed(1), *untimed(7, key="b"), *untimed(2, 3, 4, 5)]
    hostile(backend, factory, inputs, [("a", GLOBAL, [1, 2]), ("a", GLOBAL, [1, 2, 3, 4])])


def test_purging_trigger_forgets_what_has_fired(backend: str) -> None:
    """C1: the same, but each time with the records since the last."""
    factory = window_operator(GlobalWindows.create(), PurgingTrigger.of(CountTrigger.of(2)))
    hostile(backend, factory, untimed(1, 2, 3, 4, 5), [("a", GLOBAL, [1, 2]), ("a", GLOBAL, [3, 4])])


def test_purging_trigger_over_event_time(backend: str) -> None:
    """C1: a purged window fires again for late records with these alone."""
    trigger = PurgingTrigger.of(EventTimeTrigger.create())
    factory = window_operator(TumblingEventTimeWindows(10), trigger, allowed_lateness_ms=5)
    inputs = [*at(1), Watermark(9), *at(2), *at(3), Watermark(14)]
    hostile(backend, factory, inputs, [("a", (0, 10), [n]) for n in (1, 2, 3)])


def test_purging_trigger_over_continuous_processing_time(backend: str) -> None:
    """C1: what came in each interval of the clock; nothing fires where nothing came."""
    trigger = PurgingTrigger.of(ContinuousProcessingTimeTrigger.of(10))
    factory = window_operator(TumblingProcessingTimeWindows(40), trigger)
    inputs = [*untimed(1), ProcessingTime(25), *untimed(2), ProcessingTime(30)]
    hostile(backend, factory, inputs, [("a", (0, 40), [1]), ("a", (0, 40), [2])])


def test_purging_count_trigger_on_sessions(backend: str) -> None:
    """C1: counts are added when sessions merge; a session that was purged is still there to be merged."""
    factory = window_operator(EventTimeSessionWindows(10), PurgingTrigger.of(CountTrigger.of(3)))
    inputs = [*at(0), *at(15), *at(8), *at(20), *at(24), *at(26)]
    # [0, 25) has three; what follows belongs to the same session, and fires with three again.
    hostile(backend, factory, inputs, [("a", (0, 25), [0, 8, 15]), ("a", (0, 36), [20, 24, 26])])


def test_count_trigger_on_time_windows(backend: str) -> None:
    """C1: only the count fires; the end of the window forgets records and count alike."""
    factory = window_operator(TumblingEventTimeWindows(10), CountTrigger.of(2))
    inputs = [*at(1, 2, 3), Watermark(9), *at(11), Watermark(19), *at(21, 22)]
    hostile(backend, factory, inputs, [("a", (0, 10), [1, 2]), ("a", (20, 30), [21, 22])])


def test_never_trigger(backend: str) -> None:
    """C1: the global window has no trigger of its own."""
    hostile(backend, window_operator(GlobalWindows.create(), NeverTrigger()), [*at(1, 2), Watermark(10**6)], [])


def test_tumbling_count_windows_are_forgotten_when_they_have_fired(backend: str) -> None:
    """C1: count windows fire when they are full; the rest waits for ever, and full ones leave nothing behind."""
    factory = window_operator(CountTumblingWindowAssigner(2))
    inputs = [*untimed(1, 2), *untimed(9, key="b"), *untimed(3, 4, 5)]
    expected = [("a", "CountWindow(id=0)", [1, 2]), ("a", "CountWindow(id=1)", [3, 4])]
    hostile(backend, factory, inputs, expected)
    with OneInputOperatorHarness(factory) as harness:
        for number in range(100):
            harness.process(("a", number))
        assert len(harness.snapshot(1)) < len(_snapshot_of_fresh(factory)) + 50


def _snapshot_of_fresh(factory: Any) -> bytes:
    with OneInputOperatorHarness(factory) as harness:
        harness.process_batch([("a", 1), ("a", 2)])
        return harness.snapshot(1)


# --- one's own --------------------------------------------------------------------------------------------------------


class Sum:
    """An aggregate function."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Threshold(Trigger):
    """Fires when the values seen since the last firing come to 10, and purges 5 ms of event time after a window's end.

    Uses every kind of state, timers of both kinds, and merges.
    """

    last = ValueStateDescriptor("last", Types.INT())
    seen = ListStateDescriptor("seen", Types.INT())
    counts = MapStateDescriptor("counts", Types.STRING(), Types.INT())
    total = ReducingStateDescriptor("total", lambda a, b: a + b, Types.INT())
    sum = AggregatingStateDescriptor("sum", Sum())

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        assert isinstance(ctx, Trigger.TriggerContext)
        value = element[1]
        ctx.get_partitioned_state(self.last).update(value)
        ctx.get_partitioned_state(self.seen).add(value)
        ctx.get_partitioned_state(self.total).add(value)
        ctx.get_partitioned_state(self.sum).add(value)
        counts = ctx.get_partitioned_state(self.counts)
        counts.put("all", (counts.get("all") or 0) + 1)
        assert ctx.get_current_watermark() < window.max_timestamp()
        if ctx.get_partitioned_state(self.total).get() < 10:
            ctx.register_processing_time_timer(ctx.get_current_processing_time() + 50)
            return TriggerResult.CONTINUE
        return self._fired(ctx)

    def _fired(self, ctx: Any) -> TriggerResult:
        seen = list(ctx.get_partitioned_state(self.seen))
        assert sum(seen) == ctx.get_partitioned_state(self.total).get() == ctx.get_partitioned_state(self.sum).get()
        for descriptor in (self.last, self.seen, self.counts, self.total, self.sum):
            ctx.get_partitioned_state(descriptor).clear()
        return TriggerResult.FIRE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        if ctx.get_partitioned_state(self.total).get() is None:
            return TriggerResult.PURGE
        return self._fired(ctx)

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        assert isinstance(ctx, Trigger.OnMergeContext)
        for descriptor in (self.seen, self.total, self.sum):
            ctx.merge_partitioned_state(descriptor)

    def clear(self, window: Any, ctx: Any) -> None:
        for descriptor in (self.last, self.seen, self.counts, self.total, self.sum):
            ctx.get_partitioned_state(descriptor).clear()


def numbered(*pairs: tuple[int, int]) -> list[Record]:
    """Records ("a", value) at these times, as (value, time)."""
    return [Record(("a", value), time) for value, time in pairs]


def test_a_trigger_with_state_of_every_kind(backend: str) -> None:
    """C1, D1: what a trigger remembers of a key and window, through recoveries; windows do not see each other's."""
    factory = window_operator(TumblingEventTimeWindows(100), Threshold())
    inputs = [*numbered((4, 1), (5, 101), (7, 2), (6, 102), (1, 3)), ProcessingTime(60), ProcessingTime(60)]
    expected = [
        ("a", (0, 100), [4, 7]),
        ("a", (100, 200), [5, 6]),
        ("a", (0, 100), [1, 4, 7]),  # by the clock, 50 ms after the last record
    ]
    hostile(backend, factory, inputs, expected)


def test_state_of_a_trigger_is_merged(backend: str) -> None:
    """C1: when sessions merge, a trigger can merge list, reducing and aggregating state."""
    factory = window_operator(EventTimeSessionWindows(10), Threshold())
    inputs = numbered((3, 0), (4, 15), (1, 40), (3, 8))
    hostile(backend, factory, inputs, [("a", (0, 25), [3, 3, 4])])


def test_other_state_of_a_trigger_cannot_be_merged() -> None:
    """C1: merging value state is an error that says which."""

    class Merging(Threshold):
        def on_merge(self, window: Any, ctx: Any) -> None:
            ctx.merge_partitioned_state(self.last)

    with OneInputOperatorHarness(window_operator(EventTimeSessionWindows(10), Merging())) as harness:
        with pytest.raises(UserCodeError) as caught:
            harness.process_batch([("a", 1)] * 3, [0, 15, 8])
        assert "'last'" in str(caught.value.__cause__)


class Timers(EventTimeTrigger):
    """Sets timers and deletes them again."""

    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        for time in (5, 6):
            ctx.register_event_time_timer(time)
            ctx.register_processing_time_timer(time)
        if element[1] == 1:
            ctx.delete_event_time_timer(5)
            ctx.delete_processing_time_timer(6)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE


def test_timers_of_triggers_belong_to_key_and_window(backend: str) -> None:
    """C1: deleting a timer of one window leaves that of another at the same time alone."""
    factory = window_operator(TumblingEventTimeWindows(10), Timers())
    inputs = [*numbered((1, 1), (2, 12)), Watermark(5), ProcessingTime(6), Watermark(6), ProcessingTime(7)]
    expected = [
        ("a", (10, 20), [2]),  # event time 5; the other window has deleted its timer
        ("a", (0, 10), [1]),  # clock 5, both are purged
        ("a", (10, 20), [2]),
    ]
    hostile(backend, factory, inputs, expected)


class Alarm(EventTimeTrigger):
    """A record sets a timer 5 ms after it, or takes that of `-value` ms away; late timers set one 3 ms earlier."""

    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        if element[1] < 0:
            ctx.delete_event_time_timer(-element[1])
        else:
            ctx.register_event_time_timer(timestamp + 5)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        if time >= 50:
            ctx.register_event_time_timer(time - 10)
        return TriggerResult.FIRE


def test_a_timer_that_was_deleted_stays_deleted(backend: str) -> None:
    """C1, D1: also when it was in a snapshot before."""
    factory = window_operator(TumblingEventTimeWindows(40), Alarm())
    inputs = [*at(1), *at(1, key="b"), *numbered((-6, 3)), Watermark(10)]
    hostile(backend, factory, inputs, [("b", (0, 40), [1])], end=False)


def test_a_timer_set_for_an_earlier_time_is_next() -> None:
    """C1: timers fire in the order of time, also those that are set while timers fire."""
    factory = window_operator(TumblingEventTimeWindows(1000), Alarm())
    with OneInputOperatorHarness(factory) as harness:
        harness.process_batch([("a", 1), ("b", 2)], [50, 50])
        harness.watermark(60)
        assert [key for key, _, _ in harness.values] == ["a", "a", "b", "b"]


class Haunted(PurgingTrigger):
    """Leaves a timer behind in each window, and state of which it merges only some."""

    seen = ListStateDescriptor("seen")
    last = ValueStateDescriptor("last")

    def __init__(self) -> None:
        super().__init__(CountTrigger(100))

    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        ctx.register_event_time_timer(5)
        ctx.get_partitioned_state(self.seen).add(element[1])
        ctx.get_partitioned_state(self.last).update(element[1])
        return super().on_element(element, timestamp, window, ctx)

    def on_event_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        assert window == TimeWindow(0, 25), "only the window that the others have become is there"
        return TriggerResult.FIRE

    def on_merge(self, window: TimeWindow, ctx: Any) -> None:
        super().on_merge(window, ctx)
        ctx.merge_partitioned_state(self.seen)

    def clear(self, window: TimeWindow, ctx: Any) -> None:
        super().clear(window, ctx)
        ctx.get_partitioned_state(self.last).clear()


def test_windows_that_have_become_others_leave_nothing_behind() -> None:
    """C1: their timers do not reach the trigger, their clean-up is off, and merged state has moved."""
    with OneInputOperatorHarness(window_operator(EventTimeSessionWindows(10), Haunted())) as harness:
        harness.process_batch([("a", 0), ("a", 15), ("a", 8)], [0, 15, 8])
        tables = harness.context.keyed._tables  # type: ignore[attr-defined]
        assert tables["trigger-state:seen"].entries(None) == {"a": {(0, 25): [0, 15, 8]}}
        assert tables["trigger-state:last"].entries(None) == {"a": {(0, 25): 8}}
        assert tables["trigger-state:count"].entries(None) == {"a": {(0, 25): 3}}
        assert sorted(time for time, pane in tables["_penstock_window_event_timers"].panes.items() if pane) == [5, 24]
        harness.watermark(6)
        assert harness.values == [("a", (0, 25), [0, 8, 15])]


def test_a_trigger_that_gives_nothing_is_an_error() -> None:
    """C1: forgetting to return a result is told."""

    class Silent(EventTimeTrigger):
        def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> Any:
            pass

    with OneInputOperatorHarness(window_operator(TumblingEventTimeWindows(10), Silent())) as harness:
        with pytest.raises(UserCodeError) as caught:
            harness.process(("a", 1), 1)
        assert "Silent returned None" in str(caught.value.__cause__)


def test_a_trigger_that_raises_in_a_timer_names_the_key() -> None:
    """C1: errors of triggers carry the operator, and the key whose timer fired."""

    class Broken(EventTimeTrigger):
        def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
            raise ZeroDivisionError

    with OneInputOperatorHarness(window_operator(TumblingEventTimeWindows(10), Broken()), name="Windows") as harness:
        harness.process(("k", 1), 1)
        with pytest.raises(UserCodeError, match="Windows") as caught:
            harness.watermark(100)
        assert caught.value.record == ("window of key", "k")


def test_reduced_windows_fire_and_purge() -> None:
    """C1: purging forgets what was reduced; firing without purging goes on with it."""
    for purging, expected in ((False, [("a", 3), ("a", 10)]), (True, [("a", 3), ("a", 7)])):
        trigger = PurgingTrigger.of(CountTrigger.of(2)) if purging else CountTrigger.of(2)
        factory = window_operator(GlobalWindows(), trigger, ReducingContents(add))
        hostile("hashmap", factory, untimed(1, 2, 3, 4, 5), expected)
