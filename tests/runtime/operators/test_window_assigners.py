"""Which windows a record belongs to: every assigner by itself."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from penstock.base.time import Duration, Time
from penstock.datastream.window import (
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    CountWindow,
    CountWindowSerializer,
    CumulativeEventTimeWindows,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindow,
    GlobalWindows,
    GlobalWindowSerializer,
    MergingWindowAssigner,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeWindow,
    TimeWindowSerializer,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Window,
    WindowAssigner,
)
from penstock.runtime.records import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.runtime.windowing.windows import WindowTokens


class Value:
    """A value state of one key."""

    def __init__(self) -> None:
        self.held: Any = None

    def value(self) -> Any:
        return self.held

    def update(self, value: Any) -> None:
        self.held = value


class Context(WindowAssigner.WindowAssignerContext):
    """An assigner's context at a given processing time; itself the runtime context of one key."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms
        self.states: dict[str, Value] = {}

    def get_current_processing_time(self) -> int:
        return self.now_ms

    def get_runtime_context(self) -> Any:
        return self

    def get_state(self, descriptor: Any) -> Value:
        return self.states.setdefault(descriptor.name, Value())


def windows(
    assigner: WindowAssigner, timestamp: int = MIN_TIMESTAMP, now_ms: int = 0, element: Any = None
) -> list[Any]:
    return list(assigner.assign_windows(element, timestamp, Context(now_ms)))


class Gap(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return int(element)


def test_event_time_assigners_go_by_the_timestamp() -> None:
    """C1: tumbling, sliding and session windows of a timestamp, whatever the clock says."""
    assert windows(TumblingEventTimeWindows(10, 3), 12, now_ms=500) == [TimeWindow(3, 13)]
    assert windows(SlidingEventTimeWindows(10, 5, 0), 12) == [TimeWindow(10, 20), TimeWindow(5, 15)]
    assert windows(EventTimeSessionWindows(7), 12) == [TimeWindow(12, 19)]
    assert windows(DynamicEventTimeSessionWindows(Gap()), 12, element=4) == [TimeWindow(12, 16)]


def test_processing_time_assigners_go_by_the_clock() -> None:
    """C1: tumbling, sliding and session windows of the moment, whatever the timestamp says."""
    assert windows(TumblingProcessingTimeWindows(10, 3), 500, now_ms=12) == [TimeWindow(3, 13)]
    assert windows(SlidingProcessingTimeWindows(10, 5), now_ms=12) == [TimeWindow(10, 20), TimeWindow(5, 15)]
    assert windows(ProcessingTimeSessionWindows(7), now_ms=12) == [TimeWindow(12, 19)]
    assert windows(DynamicProcessingTimeSessionWindows(Gap()), now_ms=12, element=4) == [TimeWindow(12, 16)]


def test_durations_in_every_form() -> None:
    """C1: `of` takes durations, times and ms."""
    day = TumblingEventTimeWindows.of(Time.hours(1), Duration.of_minutes(-15))
    assert (day.size_ms, day.offset_ms) == (3_600_000, -900_000)
    assert windows(TumblingProcessingTimeWindows.of(Time.seconds(1)), now_ms=1500) == [TimeWindow(1000, 2000)]
    assert len(windows(SlidingProcessingTimeWindows.of(Time.seconds(4), Time.seconds(1)), now_ms=9000)) == 4
    assert windows(EventTimeSessionWindows.with_gap(Time.seconds(1)), 5) == [TimeWindow(5, 1005)]
    assert windows(ProcessingTimeSessionWindows.with_gap(5), now_ms=5) == [TimeWindow(5, 10)]


@pytest.mark.parametrize("sessions", [EventTimeSessionWindows, DynamicEventTimeSessionWindows])
def test_dynamic_gaps_of_event_time(sessions: Any) -> None:
    """C1: `with_dynamic_gap` takes an extractor, or a plain callable."""
    assert windows(sessions.with_dynamic_gap(Gap()), 1, element=2) == [TimeWindow(1, 3)]
    assert windows(sessions.with_dynamic_gap(lambda element: element * 2), 1, element=2) == [TimeWindow(1, 5)]


@pytest.mark.parametrize("sessions", [ProcessingTimeSessionWindows, DynamicProcessingTimeSessionWindows])
def test_dynamic_gaps_of_processing_time(sessions: Any) -> None:
    """C1: the same by the clock."""
    assert windows(sessions.with_dynamic_gap(Gap()), now_ms=1, element=2) == [TimeWindow(1, 3)]


def test_a_dynamic_gap_has_to_be_positive() -> None:
    """C1: a record that asks for no gap is an error."""
    with pytest.raises(ValueError, match="gap over 0 ms"):
        windows(DynamicEventTimeSessionWindows(Gap()), 1, element=0)


def test_tumbling_count_windows() -> None:
    """C1: records of a key are numbered, and so many share a window."""
    assigner, context = CountTumblingWindowAssigner.of(2), Context()
    assigned = [assigner.assign_windows(None, 0, context) for _ in range(5)]
    assert assigned == [[CountWindow(n)] for n in (0, 0, 1, 1, 2)]


@settings(deadline=None)
@given(st.integers(1, 7), st.integers(1, 7))
def test_sliding_count_windows(size: int, slide: int) -> None:
    """C1: window n has the `size` records from n * slide on, also where there are gaps between windows."""
    assigner, context = CountSlidingWindowAssigner.of(size, slide), Context()
    for number in range(30):
        expected = [w for w in range(31) if w * slide <= number < w * slide + size]
        assigned = assigner.assign_windows(None, 0, context)
        assert sorted(window.id for window in assigned) == expected


def test_everything_in_one_window() -> None:
    """C1: the global window never ends, and all are equal."""
    assert windows(GlobalWindows.create()) == [GlobalWindow.get()]
    assert GlobalWindow().max_timestamp() == CountWindow(3).max_timestamp() == MAX_TIMESTAMP


@settings(deadline=None)
@given(st.integers(-500, 500), st.integers(1, 9), st.integers(1, 9), st.integers(0, 8))
def test_cumulative_windows(timestamp: int, step: int, steps: int, offset: int) -> None:
    """C1: cumulative windows share their start and grow by a step; the answer holds for the range that it claims."""
    size = step * steps
    offset %= size
    assigner = CumulativeEventTimeWindows(size, step, offset)
    start = (timestamp - offset) // size * size + offset
    expected = [TimeWindow(start, start + n * step) for n in range(1, steps + 1) if timestamp < start + n * step]
    assert windows(assigner, timestamp) == expected
    low, high, _ = assigner.assign(timestamp)
    assert low <= timestamp < high
    for other in (low, high - 1):
        assert windows(assigner, other) == expected


DEFAULTS: list[tuple[WindowAssigner, type[Any], bool, type[Any]]] = [
    (TumblingEventTimeWindows(1), EventTimeTrigger, True, TimeWindowSerializer),
    (SlidingEventTimeWindows(1, 1), EventTimeTrigger, True, TimeWindowSerializer),
    (CumulativeEventTimeWindows.of(2, 1), EventTimeTrigger, True, TimeWindowSerializer),
    (EventTimeSessionWindows(1), EventTimeTrigger, True, TimeWindowSerializer),
    (DynamicEventTimeSessionWindows(Gap()), EventTimeTrigger, True, TimeWindowSerializer),
    (TumblingProcessingTimeWindows(1), ProcessingTimeTrigger, False, TimeWindowSerializer),
    (SlidingProcessingTimeWindows(1, 1), ProcessingTimeTrigger, False, TimeWindowSerializer),
    (ProcessingTimeSessionWindows(1), ProcessingTimeTrigger, False, TimeWindowSerializer),
    (DynamicProcessingTimeSessionWindows(Gap()), ProcessingTimeTrigger, False, TimeWindowSerializer),
    (CountTumblingWindowAssigner(1), PurgingTrigger, False, CountWindowSerializer),
    (CountSlidingWindowAssigner(1, 1), PurgingTrigger, False, CountWindowSerializer),
    (GlobalWindows(), NeverTrigger, False, GlobalWindowSerializer),
]


@pytest.mark.parametrize("case", DEFAULTS, ids=lambda case: type(case[0]).__name__)
def test_defaults_of_assigners(case: tuple[WindowAssigner, type[Any], bool, type[Any]]) -> None:
    """C1: the trigger that an assigner brings, its time, how its windows are written, and whether they merge."""
    assigner, trigger, is_event_time, serializer = case
    assert type(assigner.get_default_trigger(None)) is trigger
    assert assigner.is_event_time() is is_event_time
    assert type(assigner.get_window_serializer()) is serializer
    assert isinstance(assigner, MergingWindowAssigner) == ("Session" in type(assigner).__name__)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TumblingProcessingTimeWindows(0),
        lambda: TumblingProcessingTimeWindows(5, -5),
        lambda: SlidingProcessingTimeWindows(0, 1),
        lambda: SlidingProcessingTimeWindows(5, 5, 5),
        lambda: CumulativeEventTimeWindows(10, 3),
        lambda: CumulativeEventTimeWindows(10, 0),
        lambda: CumulativeEventTimeWindows(10, 5, 10),
        lambda: ProcessingTimeSessionWindows(0),
        lambda: CountTumblingWindowAssigner(0),
        lambda: CountSlidingWindowAssigner(1, 0),
        lambda: CountTrigger(0),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any) -> None:
    """C1: sizes, slides, gaps and counts are over 0, and an offset is smaller than the window."""
    with pytest.raises(ValueError, match=r"over 0|smaller"):
        make()


# --- windows ----------------------------------------------------------------------------------------------------------


class Merges(MergingWindowAssigner.MergeCallback):
    def __init__(self) -> None:
        self.told: list[Any] = []

    def merge(self, to_be_merged: Any, merge_result: Any) -> None:
        self.told.append((sorted(to_be_merged), merge_result))


@pytest.mark.parametrize("merge", [TimeWindow.merge_windows, EventTimeSessionWindows(1).merge_windows])
def test_windows_that_overlap_or_touch_are_merged(merge: Any) -> None:
    """C1: the callback hears of every group of more than one window, with the window that covers it."""
    merges = Merges()
    merge([TimeWindow(20, 30), TimeWindow(0, 5), TimeWindow(5, 8), TimeWindow(1, 2), TimeWindow(40, 50)], merges)
    assert merges.told == [([TimeWindow(0, 5), TimeWindow(1, 2), TimeWindow(5, 8)], TimeWindow(0, 8))]


def test_time_windows_as_values() -> None:
    """C1: windows compare, hash and sort by their bounds."""
    assert TimeWindow(1, 2) == TimeWindow(1, 2) != TimeWindow(1, 3)
    assert TimeWindow(1, 2) < TimeWindow(1, 3) < TimeWindow(2, 1)
    assert TimeWindow(1, 2) <= TimeWindow(1, 2)
    assert TimeWindow(1, 3).cover(TimeWindow(2, 9)) == TimeWindow(1, 9)
    assert TimeWindow(1, 3).intersects(TimeWindow(3, 4))
    assert not TimeWindow(1, 3).intersects(TimeWindow(4, 5))
    assert TimeWindow.get_window_start_with_offset(-1, 0, 10) == -10
    assert (
        len({TimeWindow(1, 2), TimeWindow(1, 2), CountWindow(1), CountWindow(1), GlobalWindow(), GlobalWindow()}) == 3
    )


@pytest.mark.parametrize(
    ("serializer", "window", "size"),
    [
        (TimeWindowSerializer(), TimeWindow(-5, 2**40), 16),
        (CountWindowSerializer(), CountWindow(7), 8),
        (GlobalWindowSerializer(), GlobalWindow(), 8),
    ],
)
def test_windows_are_written_and_read_back(serializer: Any, window: Window, size: int) -> None:
    """C1: serializers of the built-in windows, and how many bytes they write."""
    stream = BytesIO()
    serializer.serialize(window, stream)
    assert len(stream.getvalue()) == size
    assert serializer.deserialize(BytesIO(stream.getvalue())) == window
    tokens = WindowTokens(None)
    assert tokens.to_window(tokens.to_token(window)) == window
