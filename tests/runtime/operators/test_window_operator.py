"""The general window operator: the same as the fast ones where these apply, and state, merging and recovery beyond."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.runtime.operators.windows import at, first, hostile, show, untimed, window_operator

from penstock.base.output_tag import OutputTag
from penstock.base.time import Duration
from penstock.base.typeinfo import TypeSerializer
from penstock.datastream.functions import ProcessWindowFunction
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    CountTumblingWindowAssigner,
    CumulativeEventTimeWindows,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    MergingWindowAssigner,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Window,
    WindowAssigner,
)
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.operators.window.aligned import AlignedWindowOperator, SessionWindowOperator
from penstock.runtime.operators.window.base import ApplyResult, ListContents, ProcessResult, ReducingContents
from penstock.runtime.operators.window.kept_windows import slots_name
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP, Watermark
from penstock.testing import OneInputOperatorHarness, ProcessingTime, Record

LATE = OutputTag("late")

# --- the same as the fast operators -----------------------------------------------------------------------------------

EVENTS = st.lists(
    st.one_of(st.tuples(st.sampled_from("ab"), st.integers(-20, 40)), st.integers(0, 15)), max_size=14
)  # a record (key, timestamp), or by how much the watermark advances
ASSIGNERS: list[tuple[Any, type[Any]]] = [
    (TumblingEventTimeWindows(7, 2), AlignedWindowOperator),
    (SlidingEventTimeWindows(9, 4, 1), AlignedWindowOperator),
    (SlidingEventTimeWindows(4, 9), AlignedWindowOperator),
    (CumulativeEventTimeWindows(12, 4), AlignedWindowOperator),
    (EventTimeSessionWindows(5), SessionWindowOperator),
]


def group_output(harness: OneInputOperatorHarness) -> list[Any]:
    """What was emitted and the watermarks in order; the order between two watermarks is free."""
    groups: list[Any] = [Counter()]
    for element in harness.captured.order:
        if isinstance(element, Record):
            groups[-1][repr(element)] += 1
        else:
            groups += [element, Counter()]
    return groups


@pytest.mark.parametrize("lateness", [0, 6])
@pytest.mark.parametrize("case", ASSIGNERS, ids=lambda case: repr(case[0]))
@settings(deadline=None, max_examples=60)
@given(events=EVENTS, size=st.integers(1, 4))
def test_gives_what_the_fast_operator_gives(case: Any, lateness: int, events: Any, size: int) -> None:
    """C1: for any input, out of order and late, the same windows, results, late records and counts."""
    assigner, fast = case
    rest = (ListContents(), ApplyResult(show, True), lateness, LATE.tag_id)
    both = [
        OneInputOperatorHarness(partial(fast, first, assigner, *rest)),
        OneInputOperatorHarness(
            window_operator(assigner, allowed_lateness_ms=lateness, late_tag=LATE.tag_id), name="General"
        ),
    ]
    for harness in both:
        harness.open()
        watermark, waiting = -30, []
        for event in [*events, 0]:
            if isinstance(event, tuple):
                waiting.append(event)
            if waiting and (len(waiting) == size or not isinstance(event, tuple)):
                harness.process_batch(waiting, [time for _, time in waiting])
                waiting = []
            if not isinstance(event, tuple):
                watermark += event
                harness.watermark(watermark)
        harness.end()
        harness.close()
    one, other = both
    assert group_output(other) == group_output(one)
    assert other.side_output(LATE) == one.side_output(LATE)


# --- event time -------------------------------------------------------------------------------------------------------


def test_late_records_are_dropped_and_counted() -> None:
    """C1: as in the fast operators."""
    with OneInputOperatorHarness(window_operator(TumblingEventTimeWindows(10), CountTrigger(1))) as harness:
        harness.watermark(9)
        harness.process_batch([("a", 1), ("a", 12), ("b", 9)], [3, 12, 9])
        assert harness.values == [("a", (10, 20), [12])]
        assert harness.counters == {LATE_RECORDS: 2}


def test_late_data_of_sessions_with_another_trigger(backend: str) -> None:
    """C1: late records go to the side output; those within the lateness extend a session that has fired."""
    factory = window_operator(
        EventTimeSessionWindows(10), PurgingTrigger(EventTimeTrigger()), allowed_lateness_ms=5, late_tag=LATE.tag_id
    )
    inputs = [*at(0), Watermark(10), *at(1), Watermark(13), *at(2), Watermark(40), *at(3)]
    expected = [Record(("a", (0, end), [time]), end - 1) for end, time in ((10, 0), (11, 1), (12, 2))]
    hostile(backend, factory, inputs, expected, {LATE: [Record(("a", 3), 3)]})


def test_event_time_needs_timestamps() -> None:
    """C2: windows of event time on records without timestamps are an error that says what to do."""
    factory = window_operator(TumblingEventTimeWindows(10), CountTrigger(1))
    with OneInputOperatorHarness(factory) as harness, pytest.raises(TypeError, match="WatermarkStrategy"):
        harness.process(("a", 1))


def test_dynamic_sessions_of_event_time(backend: str) -> None:
    """C1: each record says for how long its session stays open; a long one swallows others."""
    factory = window_operator(DynamicEventTimeSessionWindows(lambda value: value[1] % 100))
    inputs = [Record(("a", value), time) for value, time in ((5, 0), (130, 10), (203, 4), (305, 20), (402, 50))]
    expected = [
        Record(("a", (0, 7), [5, 203]), 6),
        Record(("a", (10, 40), [130, 305]), 39),
        Record(("a", (50, 52), [402]), 51),
    ]
    hostile(backend, factory, [*inputs, Watermark(100)], expected)


def test_a_trigger_behind_the_watermark_waits_for_the_next_one(backend: str) -> None:
    """C1: a time that a trigger sets behind the watermark fires at the next one, with or without a restart before."""
    factory = window_operator(TumblingEventTimeWindows(20), ContinuousEventTimeTrigger.of(12))
    inputs = [Watermark(13), *at(1, 2), Watermark(14), Watermark(40)]
    expected = [Record(("a", (0, 20), [1, 2]), 19), Record(("a", (0, 20), [1, 2]), 19)]
    hostile(backend, factory, inputs, expected)


# --- processing time --------------------------------------------------------------------------------------------------


def test_sliding_processing_time_windows(backend: str) -> None:
    """C1: a record is in every window of the clock that covers the moment."""
    factory = window_operator(SlidingProcessingTimeWindows(10, 5))
    inputs = [ProcessingTime(3), *untimed(1), ProcessingTime(4), *untimed(2), ProcessingTime(30)]
    expected = [("a", (-5, 5), [1]), ("a", (0, 10), [1, 2]), ("a", (5, 15), [2])]
    hostile(backend, factory, inputs, expected)


def test_processing_time_sessions(backend: str) -> None:
    """C1: a key's session goes on while records come within the gap."""
    factory = window_operator(ProcessingTimeSessionWindows(10))
    inputs = [
        *untimed(1), ProcessingTime(9), *untimed(2), ProcessingTime(1), *untimed(7, key="b"), ProcessingTime(10),
        *untimed(3), ProcessingTime(10),
    ]  # fmt: skip
    expected = [("a", (0, 19), [1, 2]), ("b", (10, 20), [7]), ("a", (20, 30), [3])]
    with_times = [Record(value, value[1][1] - 1) for value in expected]
    hostile(backend, factory, inputs, with_times)


def test_dynamic_processing_time_sessions(backend: str) -> None:
    """C1: the gap of each record, by the clock."""
    factory = window_operator(DynamicProcessingTimeSessionWindows(lambda value: value[1]))
    inputs = [*untimed(5), ProcessingTime(3), *untimed(1), ProcessingTime(4), *untimed(9), ProcessingTime(20)]
    hostile(backend, factory, inputs, [("a", (0, 5), [1, 5]), ("a", (7, 16), [9])])


def test_records_of_processing_time_windows_keep_no_time() -> None:
    """C1: an assigner sees -2**63 for a record without timestamp, and its timestamp when there is one."""
    seen = []

    class Seeing(GlobalWindows):
        def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
            seen.append(timestamp)
            return super().assign_windows(element, timestamp, context)

    with OneInputOperatorHarness(window_operator(Seeing())) as harness:
        harness.process(("a", 1))
        harness.process(("a", 1), 5)
    assert seen == [MIN_TIMESTAMP, 5]


# --- assigners of one's own -------------------------------------------------------------------------------------------


class Region(Window):
    """A window that is neither of the built-in kinds."""

    def __init__(self, name: str, end: int) -> None:
        self.name = name
        self.end = end

    def max_timestamp(self) -> int:
        return self.end

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Region) and (self.name, self.end) == (other.name, other.end)

    def __hash__(self) -> int:
        return hash((self.name, self.end))

    def __repr__(self) -> str:
        return f"{self.name} until {self.end}"


class RegionSerializer(TypeSerializer[Region]):
    def serialize(self, element: Region, stream: Any) -> None:
        stream.write(f"{element.name},{element.end}".encode())

    def deserialize(self, stream: Any) -> Region:
        name, end = stream.read().decode().split(",")
        return Region(name, int(end))


class Regions(WindowAssigner):
    """Records with even values are north, those over 10 high, each until a multiple of 10 ms."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> list[Region]:
        end = timestamp // 10 * 10 + 9
        names = [name for name, belongs in (("north", element[1] % 2 == 0), ("high", element[1] > 10)) if belongs]
        return [Region(name, end) for name in names]

    def get_default_trigger(self, env: Any) -> EventTimeTrigger:
        return EventTimeTrigger()

    def get_window_serializer(self) -> TypeSerializer[Region]:
        return RegionSerializer()

    def is_event_time(self) -> bool:
        return True


def test_a_custom_assigner_with_windows_of_its_own(backend: str) -> None:
    """C1: windows of any class; one record in several, or in none, which does not make it late."""
    inputs = [Record(("a", value), time) for value, time in ((2, 1), (12, 2), (13, 3), (3, 4), (4, 15))]
    expected = [("a", "north until 9", [2, 12]), ("a", "high until 9", [12, 13]), ("a", "north until 19", [4])]
    factory = window_operator(Regions(), late_tag=LATE.tag_id)
    hostile(backend, factory, [*inputs, Watermark(100)], expected, {LATE: []})


def test_windows_that_cannot_be_written_are_an_error() -> None:
    """C1: an assigner with windows of its own needs a serializer for them."""

    class Unwritten(Regions):
        def get_window_serializer(self) -> Any:
            return None

    with OneInputOperatorHarness(window_operator(Unwritten())) as harness:
        with pytest.raises(UserCodeError) as caught:
            harness.process(("a", 2), 1)
        assert "return a TypeSerializer" in str(caught.value.__cause__)


class Days(MergingWindowAssigner):
    """Merges a key's windows of 5 ms as soon as there are three within one hundred ms, into the hundred."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> list[TimeWindow]:
        return [TimeWindow(timestamp // 5 * 5, timestamp // 5 * 5 + 5)]

    def merge_windows(self, windows: Any, callback: MergingWindowAssigner.MergeCallback) -> None:
        hundreds: dict[int, list[TimeWindow]] = {}
        for window in windows:
            hundreds.setdefault(window.start // 100 * 100, []).append(window)
        for start, parts in hundreds.items():
            whole = TimeWindow(start, start + 100)
            if len(parts) >= 3 or (len(parts) > 1 and whole in parts):
                callback.merge(parts, whole)

    def get_default_trigger(self, env: Any) -> EventTimeTrigger:
        return EventTimeTrigger()

    def get_window_serializer(self) -> Any:
        return None

    def is_event_time(self) -> bool:
        return True


def test_a_custom_merging_assigner(backend: str) -> None:
    """C1: an assigner may merge windows by any rule."""
    inputs = [*at(1, 11, 12), Watermark(3), *at(21), *at(90), *at(101), Watermark(300)]
    hostile(backend, window_operator(Days()), inputs, [("a", (0, 100), [1, 11, 12, 21, 90]), ("a", (100, 105), [101])])


def test_merging_into_the_past_is_an_error() -> None:
    """C1: contents must not get lost in a window that is over."""

    class IntoThePast(Days):
        def merge_windows(self, windows: Any, callback: MergingWindowAssigner.MergeCallback) -> None:
            if len(list(windows)) > 1:
                callback.merge(windows, TimeWindow(0, 5))

    with OneInputOperatorHarness(window_operator(IntoThePast())) as harness:
        harness.watermark(50)
        harness.process(("a", 1), 60)
        with pytest.raises(UserCodeError) as caught:
            harness.process(("a", 1), 70)
        assert "already passed" in str(caught.value.__cause__)


# --- state of window functions ----------------------------------------------------------------------------------------


class Rank(ProcessWindowFunction):
    """Tells how often this key's window has fired, how often any of the key's, and what it had before."""

    def __init__(self, cleans: bool = True) -> None:
        self.cleans = cleans

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        in_window = context.window_state().get_state(ValueStateDescriptor("fired"))
        in_all = context.global_state().get_state(ValueStateDescriptor("fired"))
        in_window.update((in_window.value() or 0) + 1)
        in_all.update((in_all.value() or 0) + 1)
        yield key, context.window().start, in_window.value(), in_all.value(), sorted(v for _, v in elements)

    def clear(self, context: Any) -> None:
        if self.cleans:
            assert context.window_state().get_state(ValueStateDescriptor("fired")).value() is not None
            context.window_state().get_state(ValueStateDescriptor("fired")).clear()


def ranking(assigner: Any, trigger: Any = None, cleans: bool = True, **arguments: Any) -> Any:
    return window_operator(assigner, trigger, ListContents(), result=ProcessResult(Rank(cleans), True), **arguments)


def test_state_of_windows_and_state_of_keys(backend: str) -> None:
    """C1, D1: `window_state` is that of key and window, `global_state` that of the key, through recoveries."""
    factory = ranking(TumblingEventTimeWindows(10), CountTrigger(1), allowed_lateness_ms=5)
    inputs = [*at(1), *at(12), *at(2), *at(3, key="b"), *at(14), Watermark(100)]
    expected = [
        ("a", 0, 1, 1, [1]), ("a", 10, 1, 2, [12]), ("a", 0, 2, 3, [1, 2]), ("b", 0, 1, 1, [3]),
        ("a", 10, 2, 4, [12, 14]),
    ]  # fmt: skip
    hostile(backend, factory, inputs, expected)


@pytest.mark.parametrize("cleans", [True, False])
def test_clear_is_called_when_a_window_is_cleaned_up(cleans: bool) -> None:
    """C1: at a window's end plus its lateness, once for each key; what is not removed there stays."""
    with OneInputOperatorHarness(
        ranking(TumblingEventTimeWindows(10), cleans=cleans, allowed_lateness_ms=5)
    ) as harness:
        harness.process_batch([("a", 1), ("b", 2)], [1, 2])
        harness.watermark(13)
        held = harness.context.keyed._tables["window-state:fired"].entries(None)  # type: ignore[attr-defined]
        assert held == {"a": {(0, 10): 1}, "b": {(0, 10): 1}}
        harness.watermark(14)
        assert bool(held) is not cleans


class Everything(ProcessWindowFunction):
    """Uses every kind of per-window state."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        store = context.window_state()
        states = [
            store.get_list_state(ListStateDescriptor("list")),
            store.get_map_state(MapStateDescriptor("map")),
            store.get_reducing_state(ReducingStateDescriptor("sum", lambda a, b: a + b)),
            store.get_aggregating_state(AggregatingStateDescriptor("len", Length())),
        ]
        in_list, in_map, in_sum, in_len = states
        for _, number in list(elements)[-1:]:
            in_list.add(number)
            in_map.put(number % 2, number)
            in_sum.add(number)
            in_len.add(number)
        yield list(in_list), dict(in_map.items()), in_sum.get(), in_len.get(), len(in_map), 1 in in_map

    def clear(self, context: Any) -> None:
        store = context.window_state()
        store.get_list_state(ListStateDescriptor("list")).clear()
        store.get_map_state(MapStateDescriptor("map")).remove(1)
        store.get_map_state(MapStateDescriptor("map")).remove(0)
        store.get_reducing_state(ReducingStateDescriptor("sum", lambda a, b: a + b)).clear()
        store.get_aggregating_state(AggregatingStateDescriptor("len", Length())).clear()


class Length:
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


def test_every_kind_of_window_state(backend: str) -> None:
    """C1, D1: list, map, reducing and aggregating state of windows, which do not mix."""
    result = ProcessResult(Everything(), True)
    factory = window_operator(TumblingEventTimeWindows(10), CountTrigger(1), ListContents(), result=result)
    expected = [
        ([1], {1: 1}, 1, 1, 1, True), ([12], {0: 12}, 12, 1, 1, False), ([1, 3], {1: 3}, 4, 2, 1, True),
        ([12, 15], {0: 12, 1: 15}, 27, 2, 2, True),
    ]  # fmt: skip
    hostile(backend, factory, [*at(1), *at(12), *at(3), *at(15), Watermark(50)], expected)


def test_windows_that_merge_have_no_state_of_their_own() -> None:
    """C1: as in Flink, for a session may become part of another; the state of the key there is."""
    for factory in (
        ranking(EventTimeSessionWindows(10)),
        partial(SessionWindowOperator, first, EventTimeSessionWindows(10), ListContents(), ProcessResult(Rank(), True)),
    ):
        with OneInputOperatorHarness(factory) as harness:
            harness.process(("a", 1), 1)
            with pytest.raises(UserCodeError) as caught:
                harness.watermark(20)
            assert "global_state" in str(caught.value.__cause__)


def test_window_state_in_the_fast_operator() -> None:
    """C1: a function that does not clean up has state of windows in the fast operator too, and keeps it."""
    factory = partial(
        AlignedWindowOperator, first, TumblingEventTimeWindows(10), ListContents(), ProcessResult(Rank(), True), 5
    )
    inputs = [*at(1), Watermark(9), *at(2), *at(11), Watermark(100)]
    hostile("hashmap", factory, inputs, [("a", 0, 1, 1, [1]), ("a", 0, 2, 2, [1, 2]), ("a", 10, 1, 3, [11])])


def test_state_of_windows_with_time_to_live() -> None:
    """D1: the state of a window expires as a whole, by the clock."""

    class Expiring(ProcessWindowFunction):
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            descriptor = ListStateDescriptor("seen")
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_millis(10)).build())
            seen = context.window_state().get_list_state(descriptor)
            seen.add(len(list(elements)))
            yield list(seen)

    factory = window_operator(GlobalWindows(), CountTrigger(1), ListContents(), result=ProcessResult(Expiring(), True))
    inputs = [*untimed(1), ProcessingTime(9), *untimed(1), ProcessingTime(10), *untimed(1)]
    hostile("hashmap", factory, inputs, [[1], [1, 2], [3]])


def test_times_of_the_context() -> None:
    """C1: a process window function sees both times."""

    class Times(ProcessWindowFunction):
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            yield context.current_watermark(), context.current_processing_time(), context.window()

    factory = window_operator(
        TumblingProcessingTimeWindows(10), contents=ListContents(), result=ProcessResult(Times(), True)
    )
    with OneInputOperatorHarness(factory) as harness:
        harness.process(("a", 1))
        harness.watermark(77)
        harness.advance_processing_time(30)
        assert harness.values == [(77, 10, TimeWindow(0, 10))]


# --- contents ---------------------------------------------------------------------------------------------------------


def test_what_was_emitted_does_not_change() -> None:
    """C1: a window that fires again hands its function another list."""
    result = ApplyResult(lambda key, window, inputs: [inputs], True)
    factory = window_operator(GlobalWindows(), CountTrigger(1), ListContents(), result=result)
    hostile("hashmap", factory, untimed(1, 2), [[("a", 1)], [("a", 1), ("a", 2)]])


def test_a_window_function_may_write_to_side_outputs() -> None:
    """C1: (tag, value) goes to the side output, with the window's last ms."""
    tag = OutputTag("odd")
    result = ApplyResult(lambda key, window, inputs: [(tag, v) if v[1] % 2 else v for v in inputs], True)
    factory = window_operator(TumblingEventTimeWindows(10), EventTimeTrigger(), ListContents(), result=result)
    hostile("hashmap", factory, at(1, 2), [Record(("a", 2), 9)], {tag: [Record(("a", 1), 9)]})


def test_sessions_are_reduced_when_they_merge(backend: str) -> None:
    """C1: contents are merged, in the order of the windows."""
    contents = ReducingContents(lambda one, other: (one[0], f"{one[1]}{other[1]}"))
    factory = window_operator(EventTimeSessionWindows(10), PurgingTrigger(EventTimeTrigger()), contents)
    inputs = [Record(("a", value), time) for value, time in (("c", 40), ("a", 10), ("b", 25), ("-", 18), ("+", 33))]
    hostile(backend, factory, inputs, [("a", "ab-c+")])


# --- state, recovery, rescaling ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "factory",
    [
        window_operator(TumblingEventTimeWindows(10), CountTrigger(2)),
        window_operator(EventTimeSessionWindows(10), PurgingTrigger(CountTrigger(2)), allowed_lateness_ms=5),
        window_operator(EventTimeSessionWindows(10), ContinuousEventTimeTrigger(4), allowed_lateness_ms=30),
        window_operator(SlidingEventTimeWindows(10, 5), PurgingTrigger(EventTimeTrigger())),
        window_operator(TumblingProcessingTimeWindows(10)),
        window_operator(ProcessingTimeSessionWindows(10)),
        window_operator(Regions()),
    ],
)
def test_nothing_is_left_of_windows_that_are_over(factory: Any) -> None:
    """C1, D1: contents, timers and state of triggers go with their window."""
    with OneInputOperatorHarness(factory) as harness:
        for time in (1, 4, 12, 3):
            harness.process_batch([("a", time), ("b", 8 * time)], [time, time])
        harness.watermark(60)
        harness.advance_processing_time(60)
        tables = harness.context.keyed._tables.values()  # type: ignore[attr-defined]
        assert tables
        assert not any(entries for table in tables for entries in table.panes.values())


@pytest.mark.parametrize(
    "assigner", [TumblingProcessingTimeWindows(10), GlobalWindows(), ProcessingTimeSessionWindows(10)]
)
def test_windows_move_with_their_key_groups(assigner: Any) -> None:
    """D4: contents, timers, state of triggers and of functions go where their key goes."""
    keys = [f"k{n}" for n in range(40)]
    factory = window_operator(assigner, CountTrigger(2))
    with OneInputOperatorHarness(factory) as old:
        old.process_batch([(key, 1) for key in keys])
        snapshot = old.snapshot(1)
    fired = []
    for subtask in range(3):
        harness = OneInputOperatorHarness(factory, 3, subtask)
        harness.restore(snapshot)
        harness.open()
        merges = isinstance(assigner, MergingWindowAssigner)
        mine = harness.context.keyed.table(slots_name(merges, evicts=False)).entries(None)
        harness.process_batch([(key, 2) for key in list(mine)])
        fired += [(key, values) for key, _, values in harness.values]
        snapshot_of_part = harness.snapshot(2)
        assert snapshot_of_part
    assert sorted(fired) == sorted((key, [1, 2]) for key in keys)


def test_timers_move_with_their_key_groups() -> None:
    """D4: each window fires in exactly one of the new subtasks."""
    factory = window_operator(TumblingProcessingTimeWindows(10))
    with OneInputOperatorHarness(factory) as old:
        old.process_batch([(n, n) for n in range(40)])
        snapshot = old.snapshot(1)
    fired = []
    for subtask in range(3):
        harness = OneInputOperatorHarness(factory, 3, subtask)
        harness.restore(snapshot)
        harness.open()
        harness.advance_processing_time(10)
        fired += [key for key, _, _ in harness.values]
    assert sorted(fired) == list(range(40))


@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        (window_operator(TumblingProcessingTimeWindows(10)), [("a", (0, 10), [1, 2])]),
        (window_operator(ProcessingTimeSessionWindows(10)), [("a", (0, 10), [1, 2])]),
        (window_operator(GlobalWindows(), ContinuousProcessingTimeTrigger(5)), [("a", "GlobalWindow()", [1, 2])]),
        (window_operator(TumblingEventTimeWindows(10), PurgingTrigger(EventTimeTrigger())), [("a", (0, 10), [1, 2])]),
        (window_operator(GlobalWindows(), CountTrigger(2)), [("a", "GlobalWindow()", [1, 2])]),
    ],
)
def test_the_end_of_a_key_in_batch_execution(factory: Any, expected: Any) -> None:
    """I1: windows of both times fire, each once, and the keys to come begin anew."""
    with OneInputOperatorHarness(factory) as harness:
        for _ in range(2):
            harness.process_batch([("a", 1), ("a", 2)], [1, 2])
            harness.operator.end_keys()
            harness.context.keyed.clear()  # type: ignore[attr-defined]
            assert [record.value for record in harness.take_output()] == expected
            harness.captured.watermarks.clear()


def test_an_aborted_checkpoint_changes_nothing() -> None:
    """G6: what went into a snapshot that did not complete goes into the next."""
    factory = window_operator(EventTimeSessionWindows(10), PurgingTrigger(EventTimeTrigger()))
    with OneInputOperatorHarness(factory) as harness:
        harness.process(("a", 1), 1)
        harness.snapshot(1)
        harness.notify_complete(1)
        harness.process(("a", 5), 5)
        harness.snapshot(2)
        harness.notify_aborted(2)
        harness.process(("a", 9), 9)
        snapshot = harness.snapshot(3)
    restored = OneInputOperatorHarness(factory)
    restored.restore(snapshot)
    restored.open()
    restored.watermark(MAX_WATERMARK)
    assert restored.values == [("a", (1, 19), [1, 5, 9])]


def test_the_general_operator_does_not_hold_windows_for_ever_that_never_fire() -> None:
    """C1: time windows whose trigger never fires are cleaned up all the same."""
    with OneInputOperatorHarness(window_operator(TumblingEventTimeWindows(10), NeverTrigger())) as harness:
        harness.process(("a", 1), 1)
        harness.watermark(9)
        assert harness.values == []
        assert not harness.context.keyed._tables["_penstock_window_slots"].entries(None)  # type: ignore[attr-defined]


def test_count_windows_number_records_through_recoveries(backend: str) -> None:
    """C1, D1: the count of a key is state."""
    factory = window_operator(CountTumblingWindowAssigner(3))
    expected = [("a", "CountWindow(id=0)", [1, 2, 3]), ("a", "CountWindow(id=1)", [4, 5, 6])]
    hostile(backend, factory, untimed(1, 2, 3, 4, 5, 6, 7), expected)
