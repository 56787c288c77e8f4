"""Timestamps, watermarks and idleness: the operator, the generator, the valve."""

from functools import partial

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from penstock.base.watermark_strategy import WatermarkGenerator as UserGenerator
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.runtime.columns import ColumnBatch, SplitColumnBatch
from penstock.runtime.connector import SplitBatch
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.record.stateless import TimestampsAndWatermarksOperator
from penstock.runtime.operators.watermarks import AssignerError, WatermarkGenerator
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP, Batch
from penstock.runtime.task.channels.input_gate import WatermarkValve
from penstock.testing import OneInputOperatorHarness, Record, run_hostile

BOUNDED = WatermarkStrategy.for_bounded_out_of_orderness(5)


def operator(strategy):
    return partial(TimestampsAndWatermarksOperator, strategy)


def test_timestamps_are_assigned():
    """C2: a record's timestamp is what the assigner says; a two-argument assigner also sees the old one."""
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    run_hostile(
        operator(strategy.with_timestamp_assigner(lambda v: v * 2)),
        [Record(1), Record(4)],
        [Record(1, 2), Record(4, 8)],
    )
    two = strategy.with_timestamp_assigner(lambda value, old: value + old)
    run_hostile(operator(two), [Record(1, 10), Record(4, 20)], [Record(1, 11), Record(4, 24)])


NAMED = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")


@pytest.mark.parametrize("knows_origin", [True, False])
def test_null_in_the_timestamp_column_names_column_and_origin(knows_origin):
    batch = ColumnBatch(pa.record_batch({"at": [1, 2, None, None]}))
    batch.origin = (lambda index: f"offset {index + 10}") if knows_origin else None
    generator = WatermarkGenerator(NAMED)
    with pytest.raises(AssignerError) as raised:
        generator.assign(SplitColumnBatch(batch, "orders-0"), 0)
    origin = "at offset 12" if knows_origin else "of split orders-0"
    cause = str(raised.value.__cause__)
    assert cause.startswith("column 'at' is null in 2 records, so they have no timestamp; the first is record 3")
    assert cause.endswith(f", {origin}")


def test_none_in_the_timestamp_field_of_a_row_names_field_record_and_split():
    with pytest.raises(AssignerError) as raised:
        WatermarkGenerator(NAMED).assign(SplitBatch([{"at": 1}, {"at": None}], None, "orders-0"), 0)
    assert raised.value.record == {"at": None}
    assert "the timestamp column 'at' returned None" in str(raised.value.__cause__)
    assert str(raised.value.__cause__).endswith("It is a record of split orders-0")


def test_watermarks_follow_the_highest_timestamp():
    """C2: the watermark is the highest timestamp minus the bound minus 1 ms, behind the batch, and never falls."""
    with OneInputOperatorHarness(operator(BOUNDED)) as harness:
        harness.process_batch("abc", [10, 30, 20])
        harness.process("d", 12)
        harness.process("e", 31)
        assert harness.watermarks == [24, 25]
        assert harness.captured.order[3] == 24


def test_upstream_watermarks_end_here_but_for_the_last():
    """C2: watermarks from upstream are replaced; only the end of time passes."""
    with OneInputOperatorHarness(operator(BOUNDED)) as harness:
        harness.watermark(1000)
        assert harness.watermarks == []
        harness.end()
        assert harness.watermarks == [MAX_WATERMARK]


def test_no_watermarks():
    """C2: a strategy without watermarks gives none."""
    with OneInputOperatorHarness(operator(WatermarkStrategy.no_watermarks())) as harness:
        harness.process("a", 5)
        assert harness.watermarks == []


def test_idleness_after_the_last_record():
    """C2: without records for the idle time the stream becomes idle, once; the next record makes it active again."""
    with OneInputOperatorHarness(operator(BOUNDED.with_idleness(100))) as harness:
        harness.process("a", 1)
        harness.advance_processing_time(99)
        assert harness.idle_changes == []
        harness.advance_processing_time(1)
        harness.advance_processing_time(500)
        assert harness.idle_changes == [True]
        harness.process("b", 2)
        assert harness.idle_changes == [True, False]
        assert harness.captured.order[-3:-1] == [False, Record("b", 2)]


def test_idleness_of_a_stream_without_any_record():
    """C2: a stream on which nothing ever comes becomes idle too: it is what idleness is most needed for."""
    with OneInputOperatorHarness(operator(BOUNDED.with_idleness(100))) as harness:
        harness.advance_processing_time(500)
        assert harness.idle_changes == [True]


def test_end_of_time_of_an_idle_stream_counts():
    """C2, F3: an idle stream becomes active before its last watermark, or those downstream would not hear it."""
    with OneInputOperatorHarness(operator(BOUNDED.with_idleness(100))) as harness:
        harness.process("a", 1)
        harness.advance_processing_time(500)
        harness.end()
        assert harness.captured.order[-2:] == [False, MAX_WATERMARK]


class Punctuated(UserGenerator):
    """A record ("mark", t) is a watermark; by the clock, one more than before."""

    def __init__(self):
        self.periods = 0

    def on_event(self, value, timestamp_ms):  # type: ignore[override]
        return timestamp_ms if value == "mark" else None

    def on_periodic_emit(self):  # type: ignore[override]
        self.periods += 1
        return self.periods if self.periods > 1 else None


def test_a_generators_watermark_stands_right_behind_its_record():
    """C2: punctuated watermarks, whatever the batches."""
    for size in (1, 2, 6):
        with OneInputOperatorHarness(operator(WatermarkStrategy.for_generator(Punctuated))) as harness:
            values, times = ["a", "mark", "b", "mark", "mark", "c"], [1, 5, 2, 4, 9, 3]
            for begin in range(0, 6, size):
                harness.process_batch(values[begin : begin + size], times[begin : begin + size])
            assert [r if isinstance(r, int) else r.value for r in harness.captured.order] == [
                *("a", "mark", 5, "b", "mark", "mark", 9, "c")
            ]


def test_a_generator_is_asked_by_the_clock():
    """C2: every pipeline.auto-watermark-interval, and not once the end of time has come."""
    with OneInputOperatorHarness(operator(WatermarkStrategy.for_generator(Punctuated))) as harness:
        harness.advance_processing_time(199)
        assert harness.watermarks == []
        harness.advance_processing_time(801)
        assert harness.watermarks == [2, 3, 4, 5]
        harness.watermark(MAX_WATERMARK)
        harness.advance_processing_time(1000)
        assert harness.watermarks == [2, 3, 4, 5, MAX_WATERMARK]


def test_an_idle_generator_is_not_asked():
    """C2: an idle stream says nothing until its next record."""
    strategy = WatermarkStrategy.for_generator(Punctuated).with_idleness(500)
    with OneInputOperatorHarness(operator(strategy)) as harness:
        harness.advance_processing_time(10_000)
        assert harness.watermarks == [2]
        assert harness.idle_changes == [True]


class Raises(Punctuated):
    def on_event(self, value, timestamp_ms):  # type: ignore[override]
        raise ValueError("no")


def test_an_error_of_a_generator_names_it_and_the_record():
    """C2: what the generator raises tells where."""
    with OneInputOperatorHarness(operator(WatermarkStrategy.for_generator(Raises)), name="Times") as harness:
        with pytest.raises(UserCodeError) as raised:
            harness.process("a", 1)
        assert (raised.value.operator_name, raised.value.record) == ("Times", "a")
        assert raised.value.what == "the watermark generator"


def test_ingestion_time_is_the_clocks():
    """C2: records have the time at which they come, and event time goes on without any."""
    with OneInputOperatorHarness(operator(WatermarkStrategy.for_ingestion_time())) as harness:
        harness.advance_processing_time(150)
        harness.process("a", 7)
        assert harness.output == [Record("a", 150)]
        assert harness.watermarks == [149]
        harness.advance_processing_time(60)
        assert harness.watermarks == [149, 199]
        harness.process("b")
        assert harness.output[1:] == [Record("b", 210)]


def test_ingestion_time_has_no_assigner():
    """C2: two sources of timestamps contradict each other."""
    with pytest.raises(ValueError, match="takes its timestamps from the clock"):
        WatermarkStrategy.for_ingestion_time().with_timestamp_assigner(lambda v: v)


def test_alignment_is_for_sources():
    """C2: an operator in the middle of a stream cannot hold anything back."""
    with pytest.raises(NotImplementedError, match="from_source"):
        TimestampsAndWatermarksOperator(BOUNDED.with_watermark_alignment("group", 10))


def test_a_source_without_watermarks_cannot_be_aligned():
    """C2: the others would wait for it for ever."""
    with pytest.raises(ValueError, match="forever"):
        WatermarkStrategy.no_watermarks().with_watermark_alignment("group", 10)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(-100, 100), max_size=4), max_size=8), st.integers(0, 20))
def test_generator_against_model(batches, bound):
    """C2: the watermark after each batch is as high as the highest timestamp so far allows."""
    generator = WatermarkGenerator(WatermarkStrategy.for_bounded_out_of_orderness(bound))
    seen, current = [], MIN_TIMESTAMP
    for timestamps in batches:
        seen += timestamps
        given_out = generator.advance(Batch(timestamps, timestamps))
        wanted = max(seen) - bound - 1 if seen else MIN_TIMESTAMP
        assert given_out == (wanted if wanted > current else None)
        current = max(current, wanted)


# --- the valve ------------------------------------------------------------------------------------------------------


def test_valve_takes_the_lowest():
    """C2: a task's watermark is the lowest of its channels, and starts when each has one."""
    valve = WatermarkValve(3)
    advances = [valve.on_watermark(channel, time).watermark for channel, time in ((0, 10), (1, 20), (2, 5))]
    assert advances == [None, None, 5]
    assert valve.on_watermark(2, 15) == (10, None)
    assert valve.on_watermark(0, 9) == (None, None)  # never falls


def test_valve_leaves_idle_channels_out():
    """C2: an idle channel does not hold the watermark back; when all are idle the task is."""
    valve = WatermarkValve(2)
    valve.on_watermark(0, 10)
    assert valve.on_status(1, True) == (10, None)
    assert valve.on_watermark(0, 20) == (20, None)
    assert valve.on_status(0, True) == (None, True)
    assert valve.on_status(1, False) == (None, False)
    assert valve.on_watermark(1, 15) == (None, None)  # behind what was given out
    assert valve.on_watermark(1, 25) == (25, None)


def test_valve_with_one_channel():
    """C2: one channel is passed through."""
    valve = WatermarkValve(1)
    advances = [valve.on_watermark(0, w).watermark for w in (1, 1, 3, 2, MAX_WATERMARK)]
    assert advances == [1, None, 3, None, MAX_WATERMARK]


@pytest.mark.parametrize("ends_first", [True, False], ids=["ended, then idle", "idle, then ended"])
def test_task_is_idle_when_some_inputs_have_ended_and_all_others_are_idle(ends_first):
    """C2: an ended input does not count as active, and event time does not end while an idle input may go on."""
    valve = WatermarkValve(2)
    valve.on_watermark(0, 10)
    if ends_first:
        assert valve.on_watermark(1, MAX_WATERMARK) == (10, None)
        assert valve.on_status(0, True) == (None, True)
    else:
        assert valve.on_status(0, True) == (None, None)
        assert valve.on_watermark(1, MAX_WATERMARK) == (10, True)
    assert valve.on_status(0, False) == (None, False)
    assert valve.on_watermark(0, 30) == (30, None)
    assert valve.on_watermark(0, MAX_WATERMARK) == (MAX_WATERMARK, None)


def test_event_time_goes_to_the_idle_input_furthest_ahead_once_the_others_have_ended():
    """C2: with no active input left, nobody is waited for, and the end of another input is no end of time."""
    valve = WatermarkValve(3)
    valve.on_watermark(0, 10)
    valve.on_watermark(1, 25)
    assert valve.on_status(0, True) == (None, None)
    assert valve.on_status(1, True) == (None, None)
    assert valve.on_watermark(2, MAX_WATERMARK) == (25, True)


def test_idle_input_ends_without_becoming_active():
    """C2: the end of time counts for an idle input, too; what it says about idleness after that does not."""
    valve = WatermarkValve(2)
    valve.on_status(0, True)
    assert valve.on_watermark(0, MAX_WATERMARK) == (None, None)
    assert valve.on_status(0, True) == (None, None)
    assert valve.on_watermark(1, 7) == (7, None)
    assert valve.on_watermark(1, MAX_WATERMARK) == (MAX_WATERMARK, None)


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.one_of(st.integers(0, 20), st.booleans(), st.just(MAX_WATERMARK))), max_size=20
)  # (channel, watermark or idleness)


@settings(deadline=None, max_examples=500)
@given(STEPS)
def test_valve_against_model(steps):
    """C2: the output never falls, and is the lowest of the active channels whenever that is higher; with none of them
    left it is the highest of the idle ones, and the end of time once all have ended."""
    valve = WatermarkValve(3)
    marks, states, output, idle = [MIN_TIMESTAMP] * 3, ["active"] * 3, MIN_TIMESTAMP, False
    for channel, step in steps:
        if isinstance(step, bool):
            if states[channel] != "ended":
                states[channel] = "idle" if step else "active"
            change = valve.on_status(channel, step)
        else:
            if states[channel] == "active" or step == MAX_WATERMARK:
                marks[channel] = max(marks[channel], step)
            if step == MAX_WATERMARK:
                states[channel] = "ended"
            change = valve.on_watermark(channel, step)
        of = {state: [m for m, s in zip(marks, states, strict=True) if s == state] for state in ("active", "idle")}
        reached = min(of["active"]) if of["active"] else max(of["idle"], default=MAX_WATERMARK)
        was_idle, idle = idle, not of["active"] and bool(of["idle"])
        assert change == (reached if reached > output else None, None if idle == was_idle else idle)
        output = max(output, reached)
        valve.validate()
