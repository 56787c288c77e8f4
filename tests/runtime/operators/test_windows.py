"""Tumbling, sliding and session windows of event time."""

from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.runtime.operators.window_model import MAX, AlignedModel, SessionModel, find_windows

from penstock.base.output_tag import OutputTag
from penstock.datastream.functions import AggregateFunction, ProcessWindowFunction, WindowFunction
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.operators.window.aligned import AlignedWindowOperator, SessionWindowOperator
from penstock.runtime.operators.window.base import (
    AggregatingContents,
    ApplyResult,
    ListContents,
    ProcessResult,
    ReducingContents,
)
from penstock.runtime.records import Watermark
from penstock.runtime.windowing import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.testing import OneInputOperatorHarness, Record, run_hostile

LATE = OutputTag("late")
MINUTE = 60_000


def first(value):
    return value[0]


def add(one, other):
    return one[0], one[1] + other[1]


def show(key, window, inputs):
    yield key, window.start, window.end, sorted(v[1] for v in inputs)


def tumbling(contents=None, size=10, offset=0, result=None, lateness=0, late=None):
    return partial(
        AlignedWindowOperator,
        first,
        TumblingEventTimeWindows(size, offset),
        contents or ReducingContents(add),
        result,
        lateness,
        late,
    )


def session(contents=None, gap=10, result=None, lateness=0, late=None):
    return partial(
        SessionWindowOperator,
        first,
        EventTimeSessionWindows(gap),
        contents or ReducingContents(add),
        result,
        lateness,
        late,
    )


def at(*timestamps, key="a"):
    """Records (key, 1) at these times."""
    return [Record((key, 1), t) for t in timestamps]


# --- assigners ------------------------------------------------------------------------------------------------------

SIZES = st.integers(1, 50)


@settings(deadline=None)
@given(st.integers(-(10**6), 10**6), SIZES, st.data())
def test_tumbling_assigner(timestamp, size, data):
    """C1: every timestamp, negative ones too, lies in exactly one tumbling window, offset or not."""
    offset = data.draw(st.integers(-size + 1, size - 1))
    low, high, windows = TumblingEventTimeWindows(size, offset).assign(timestamp)
    assert windows == find_windows(timestamp, size, size, offset)
    assert (low, high) == windows[0]


@settings(deadline=None, max_examples=300)
@given(st.integers(-500, 500), SIZES, SIZES, st.data())
def test_sliding_assigner(timestamp, size, slide, data):
    """C1: sliding windows of any size and slide; the answer holds for the whole range that it claims."""
    offset = data.draw(st.integers(-slide + 1, slide - 1))
    low, high, windows = SlidingEventTimeWindows(size, slide, offset).assign(timestamp)
    assert low <= timestamp < high
    for other in (low, timestamp, high - 1):
        assert sorted(windows) == find_windows(other, size, slide, offset)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TumblingEventTimeWindows(0),
        lambda: TumblingEventTimeWindows(10, 10),
        lambda: SlidingEventTimeWindows(10, 0),
        lambda: SlidingEventTimeWindows(10, 5, -5),
        lambda: EventTimeSessionWindows(0),
        lambda: EventTimeSessionWindows(-1),
    ],
)
def test_impossible_windows_are_refused(make):
    """C1: windows without length, or with an offset past their size, are refused when they are made."""
    with pytest.raises(ValueError, match=r"window|offset"):
        make()


# --- firing ---------------------------------------------------------------------------------------------------------


def test_tumbling_fires_when_the_watermark_reaches_the_last_ms():
    """C1: a window [0, 10) fires at watermark 9, not at 8, its result carries timestamp 9 and leaves before it."""
    with OneInputOperatorHarness(tumbling()) as harness:
        harness.process(("a", 1), 0)
        harness.process(("a", 2), 9)
        harness.process(("a", 4), 10)
        harness.watermark(8)
        assert harness.output == []
        harness.watermark(9)
        assert harness.output == [Record(("a", 3), 9)]
        assert harness.captured.order == [8, Record(("a", 3), 9), 9]
        harness.end()
        assert harness.values == [("a", 3), ("a", 4)]


def test_windows_fire_in_order_of_their_end():
    """C1: one watermark that passes several windows fires them in order of time."""
    inputs = [*at(25, 5, 15), Watermark(100)]
    run_hostile(tumbling(), inputs, [Record(("a", 1), 9), Record(("a", 1), 19), Record(("a", 1), 29)])


def test_negative_timestamps_and_offset():
    """C1: windows before 1970, moved by an offset."""
    factory = tumbling(ListContents(), size=10, offset=3, result=ApplyResult(show, True))
    inputs = [Record(("a", t), t) for t in (-8, -7, 2, 3)]
    expected = [("a", -17, -7, [-8]), ("a", -7, 3, [-7, 2]), ("a", 3, 13, [3])]
    run_hostile(factory, inputs, expected)


def test_sliding_windows():
    """C1: a record lies in every sliding window that covers it."""
    factory = partial(
        AlignedWindowOperator,
        first,
        SlidingEventTimeWindows(10, 5),
        ListContents(),
        ApplyResult(show, True),
    )
    inputs = [Record(("a", t), t) for t in (3, 7, 12)]
    expected = [("a", -5, 5, [3]), ("a", 0, 10, [3, 7]), ("a", 5, 15, [7, 12]), ("a", 10, 20, [12])]
    run_hostile(factory, inputs, expected)


def test_record_in_the_gap_between_windows_is_not_late():
    """C1: with a slide over the size, a record that lies in no window is dropped, and is not reported as late."""
    factory = partial(
        AlignedWindowOperator, first, SlidingEventTimeWindows(5, 10), ReducingContents(add), None, 0, LATE.tag_id
    )
    with OneInputOperatorHarness(factory) as harness:
        harness.process_batch([("a", 1), ("a", 1)], [2, 7])
        harness.end()
        assert harness.values == [("a", 1)]
        assert harness.side_output(LATE) == []


def test_session_windows():
    """C1: a session ends a gap after its last record; a record that joins two sessions makes them one."""
    factory = session(ListContents(), result=ApplyResult(show, True))
    inputs = [*(Record((k, t), t) for k, t in [("a", 0), ("a", 9), ("b", 5), ("a", 40), ("a", 55), ("a", 48)])]
    expected = [("b", 5, 15, [5]), ("a", 0, 19, [0, 9]), ("a", 40, 65, [40, 48, 55])]
    run_hostile(factory, inputs, expected)


def test_session_grows_after_its_timer_was_set():
    """C1: a session that has grown does not fire at its former end."""
    inputs = [*at(0), Watermark(5), *at(8), Watermark(12), Watermark(17)]
    run_hostile(session(), inputs, [Record(("a", 2), 17)])


def test_sessions_that_touch_are_one():
    """C1: windows [0, 10) and [10, 20) touch, so they are one session, as in Flink."""
    run_hostile(session(), at(0, 10), [Record(("a", 2), 19)])
    run_hostile(session(), at(0, 11), [Record(("a", 1), 9), Record(("a", 1), 20)])


# --- contents and results -------------------------------------------------------------------------------------------


class Mean(AggregateFunction):
    def create_accumulator(self):
        return [0, 0]

    def add(self, value, accumulator):
        accumulator[0] += value[1]
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return [acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]]


class ShowProcess(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield key, window.start, window.end, list(elements), context.current_watermark() >= window.max_timestamp()


class ShowApply(WindowFunction):
    def apply(self, key, window, inputs):
        return [(key, window.start, window.end, list(inputs))]


VALUES = [Record(("a", 1), 1), Record(("a", 3), 2), Record(("b", 5), 3)]
CASES: dict[str, Any] = {
    "reduce": (lambda: ReducingContents(add), None, [("a", 4), ("b", 5)]),
    "aggregate": (lambda: AggregatingContents(Mean()), None, [2.0, 5.0]),
    "reduce, process": (
        lambda: ReducingContents(add),
        ProcessResult(ShowProcess(), False),
        [("a", 0, 10, [("a", 4)], True), ("b", 0, 10, [("b", 5)], True)],
    ),
    "reduce, apply": (
        lambda: ReducingContents(add),
        ApplyResult(ShowApply(), False),
        [("a", 0, 10, [("a", 4)]), ("b", 0, 10, [("b", 5)])],
    ),
    "aggregate, process": (
        lambda: AggregatingContents(Mean()),
        ProcessResult(ShowProcess(), False),
        [("a", 0, 10, [2.0], True), ("b", 0, 10, [5.0], True)],
    ),
    "aggregate, apply": (
        lambda: AggregatingContents(Mean()),
        ApplyResult(ShowApply(), False),
        [("a", 0, 10, [2.0]), ("b", 0, 10, [5.0])],
    ),
    "process": (
        lambda: ListContents(),
        ProcessResult(ShowProcess(), True),
        [("a", 0, 10, [("a", 1), ("a", 3)], True), ("b", 0, 10, [("b", 5)], True)],
    ),
    "apply": (
        lambda: ListContents(),
        ApplyResult(ShowApply(), True),
        [("a", 0, 10, [("a", 1), ("a", 3)]), ("b", 0, 10, [("b", 5)])],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_contents_and_results(case):
    """C1: reduce, aggregate, process and apply, and their combinations, on tumbling windows."""
    contents, result, expected = CASES[case]
    run_hostile(tumbling(contents(), result=result), VALUES, expected)


@pytest.mark.parametrize("case", ["reduce", "aggregate"])
def test_contents_of_merging_sessions(case):
    """C1: contents are merged when sessions are."""
    contents, _, _ = CASES[case]
    inputs = [Record(("a", n), t) for n, t in [(1, 0), (2, 15), (6, 8)]]
    run_hostile(session(contents()), inputs, [("a", 9)] if case == "reduce" else [3.0])


def test_aggregate_without_merge_is_told_when_needed():
    """C1: merging sessions without a merge function is an error that names the function."""

    class NoMerge(Mean):
        merge = AggregateFunction.merge

    factory = session(AggregatingContents(NoMerge()))
    with OneInputOperatorHarness(factory) as harness, pytest.raises(UserCodeError) as caught:
        harness.process_batch([("a", 1)] * 3, [0, 15, 8])
    assert "NoMerge.merge" in str(caught.value.__cause__)


def test_window_function_to_side_output():
    """C1: a window function may write to side outputs."""
    tag = OutputTag("big")
    result = ApplyResult(lambda key, window, inputs: [(tag, v) if v[1] > 2 else v for v in inputs], True)
    run_hostile(tumbling(ListContents(), result=result), VALUES, [("a", 1)], {tag: [("a", 3), ("b", 5)]})


def test_window_functions_are_opened_and_closed():
    """F1, F4: both functions of a window are opened and closed, once each."""
    calls = []

    class Opened(Mean):
        def open(self, runtime_context):
            calls.append("aggregate opened")

        def close(self):
            calls.append("aggregate closed")

    class Shown(ShowProcess):
        def open(self, runtime_context):
            calls.append("process opened")

        def close(self):
            calls.append("process closed")

    factory = tumbling(AggregatingContents(Opened()), result=ProcessResult(Shown(), False))
    with OneInputOperatorHarness(factory):
        pass
    assert sorted(calls) == ["aggregate closed", "aggregate opened", "process closed", "process opened"]


# --- lateness -------------------------------------------------------------------------------------------------------


def test_late_records_are_dropped_and_counted():
    """C1: without a side output a late record is dropped and counted."""
    with OneInputOperatorHarness(tumbling()) as harness:
        harness.watermark(9)
        harness.process_batch([("a", 1), ("a", 1), ("b", 1)], [3, 12, 9])
        harness.end()
        assert harness.values == [("a", 1)]
        assert harness.counters == {LATE_RECORDS: 2}


def test_late_records_go_to_the_side_output():
    """C1: late records go to the side output with their timestamps, and do not count as dropped."""
    inputs = [*at(1), Watermark(9), *at(9, 10, 0)]
    expected = [Record(("a", 1), 9), Record(("a", 1), 19)]
    for factory in (tumbling(late=LATE.tag_id),):
        run_hostile(factory, inputs, expected, {LATE: [Record(("a", 1), 9), Record(("a", 1), 0)]})


def test_allowed_lateness_fires_again():
    """C1: a record within the allowed lateness fires its window again, at once, for its key only; later it is late."""
    inputs = [
        *at(1), *at(2, key="b"), Watermark(9), *at(3), *at(4), Watermark(13), *at(5, key="c"), Watermark(14), *at(6),
    ]  # fmt: skip
    expected = [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("c", 1)]
    run_hostile(
        tumbling(lateness=5, late=LATE.tag_id), inputs, [Record(v, 9) for v in expected], {LATE: [Record(("a", 1), 6)]}
    )


def test_allowed_lateness_of_sliding_windows():
    """C1: a record that is late for one of its windows still counts in the others."""
    factory = partial(AlignedWindowOperator, first, SlidingEventTimeWindows(10, 5), ReducingContents(add))
    inputs = [*at(3), Watermark(4), *at(4), Watermark(100)]
    run_hostile(factory, inputs, [Record(("a", 1), 4), Record(("a", 2), 9)])


def test_allowed_lateness_of_sessions():
    """C1: a late record within the lateness extends or joins a session that fired, which then fires again."""
    inputs = [*at(0), Watermark(10), *at(1), Watermark(13), *at(2), Watermark(100)]
    # [0,10) fires at 10; [0,11) grows past 10, fires by the watermark 13; [0,12) at once; then it is cleaned up.
    expected = [Record(("a", 1), 9), Record(("a", 2), 10), Record(("a", 3), 11)]
    run_hostile(session(lateness=5), inputs, expected)


def test_a_session_whose_lateness_is_over_is_not_joined():
    """C1: to the last ms; a record that would have joined it until then begins a session of its own."""
    for watermark, count in ((14, 2), (15, 1)):
        inputs = [*at(0), Watermark(10), Watermark(watermark), *at(7), Watermark(100)]
        run_hostile(session(lateness=5), inputs, [Record(("a", 1), 9), Record(("a", count), 16)])


def test_state_is_gone_when_windows_are():
    """C1, D1: after a window was cleaned up nothing of it is left in state."""
    for factory in (tumbling(), tumbling(lateness=5), session(), session(lateness=5)):
        with OneInputOperatorHarness(factory) as harness:
            harness.process_batch([("a", 1), ("b", 1)], [1, 2])
            harness.watermark(9)
            harness.watermark(50)
            harness.process(("a", 1), 3)
            tables = harness.context.keyed._tables.values()  # type: ignore[attr-defined]
            assert tables
            assert not any(entries for table in tables for entries in table.panes.values())


# --- models ---------------------------------------------------------------------------------------------------------

EVENTS = st.lists(
    st.one_of(st.tuples(st.sampled_from("ab"), st.integers(-20, 40)), st.integers(0, 15)), max_size=14
)  # a record (key, timestamp), or by how much the watermark advances


def as_inputs(events, model):
    inputs: list = []
    watermark = -25
    for event in events:
        if isinstance(event, tuple):
            inputs.append(Record(event, event[1]))
            model.record(*event)
        else:
            watermark += event
            inputs.append(Watermark(watermark))
            model.advance(watermark)
    model.advance(MAX)
    return inputs


def run_plain(factory, inputs):
    with OneInputOperatorHarness(factory) as harness:
        for element in inputs:
            harness.feed(element)
        harness.end()
        return harness.output, harness.side_output(LATE)


def check_against(model, factory, inputs):
    output, late = run_plain(factory, inputs)
    assert sorted(r.value for r in output) == sorted(model.fired)
    assert all(r.timestamp == r.value[2] - 1 for r in output)
    assert [r.value for r in late] == model.late
    run_hostile(factory, inputs, output, {LATE: late})


@settings(deadline=None, max_examples=40)
@given(EVENTS, st.integers(1, 12), st.integers(1, 12), st.sampled_from([0, 7]), st.data())
def test_aligned_windows_against_model(events, size, slide, lateness, data):
    """C1, G8: sliding windows with lateness, late output and any number of recoveries give what the model gives."""
    slide = min(size, slide)
    offset = data.draw(st.integers(-slide + 1, slide - 1))
    model = AlignedModel(size, slide, offset, lateness)
    inputs = as_inputs(events, model)
    assigner = SlidingEventTimeWindows(size, slide, offset)
    factory = partial(
        AlignedWindowOperator, first, assigner, ListContents(), ApplyResult(show, True), lateness, LATE.tag_id
    )
    check_against(model, factory, inputs)


def show_in_order(key: Any, window: Any, inputs: Any) -> Any:
    yield key, window.start, [value[1:] for value in inputs]


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.integers(0, 99)), min_size=1, max_size=12),
    st.sampled_from([(5, 5), (15, 10), (10, 2), (4, 7)]),
    st.sampled_from([0, 30]),
    st.integers(-1, 25),
)
def test_a_batch_gives_each_key_what_its_records_give_one_by_one(records, bounds_of_assigner, lateness, watermark):
    """C1: windows have records in the order in which they came, and fire again in that order."""
    size, slide = bounds_of_assigner
    assigner = TumblingEventTimeWindows(size) if size == slide else SlidingEventTimeWindows(size, slide)
    factory = partial(
        AlignedWindowOperator, first, assigner, ListContents(), ApplyResult(show_in_order, True), lateness, LATE.tag_id
    )

    def results(batches):
        with OneInputOperatorHarness(factory) as harness:
            harness.watermark(watermark)
            for batch in batches:
                harness.process_batch(batch, [time for _, time, _ in batch])
            harness.end()
            fired = [record.value for record in harness.output]
            late = [record.value for record in harness.side_output(LATE)]
        return [[value for value in values if value[0] == key] for values in (fired, late) for key in "ab"]

    assert results([records]) == results([[record] for record in records])


@settings(deadline=None, max_examples=60)
@given(EVENTS, st.integers(1, 12), st.sampled_from([0, 7]))
def test_sessions_against_model(events, gap, lateness):
    """C1, G8: sessions that merge, fire again and recover give what the model gives."""
    model = SessionModel(gap, lateness)
    inputs = as_inputs(events, model)
    factory = session(ListContents(), gap, ApplyResult(show, True), lateness, LATE.tag_id)
    check_against(model, factory, inputs)


def test_recovery_between_firing_and_cleaning_up():
    """C1, G8: after a recovery a fired window that is still kept fires again only for the keys that get records."""
    factory = tumbling(lateness=20)
    with OneInputOperatorHarness(factory) as harness:
        harness.process_batch([("a", 1), ("b", 1)], [1, 2])
        harness.watermark(9)
        snapshot = harness.snapshot(1)
    restored = OneInputOperatorHarness(factory)
    restored.restore(snapshot)
    restored.open()
    restored.process(("a", 1), 3)
    assert restored.values == [("a", 2)]
    restored.process(("b", 1), 3)
    assert restored.values == [("a", 2), ("b", 2)]


def test_rescaled_windows():
    """D4: open windows move with their key groups."""
    keys = [f"k{n}" for n in range(40)]
    for factory in (tumbling(), session()):
        with OneInputOperatorHarness(factory) as old:
            old.process_batch([(k, 1) for k in keys], [1] * 40)
            snapshot = old.snapshot(1)
        fired = []
        for subtask in range(3):
            harness = OneInputOperatorHarness(factory, 3, subtask)
            harness.restore(snapshot)
            harness.open()
            harness.end()
            fired += [v[0] for v in harness.values]
        assert sorted(fired) == sorted(keys)
