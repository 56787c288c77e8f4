"""The harness itself: it must find what it is there to find."""

import pickle
from functools import partial
from typing import Any

import pytest

from penstock.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
)
from penstock.runtime.operators.record.process import KeyedProcessOperator, ProcessOperator
from penstock.runtime.operators.record.stateless import FilterOperator, FlatMapOperator, MapOperator
from penstock.runtime.records import Batch, Watermark
from penstock.state.snapshot import operator_bytes
from penstock.state.states import ValueStateDescriptor
from penstock.storage.metadata import (
    CHANNEL_MODE,
    ChannelState,
    CheckpointMetadata,
    Direction,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    StateFile,
    checksum,
    decode_metadata,
    encode_metadata,
)
from penstock.testing import (
    OneInputOperatorHarness,
    ProcessingTime,
    Record,
    VirtualClock,
    harness_for,
    operator_factory_for,
    run_hostile,
)


class CountsInState(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield value, self.count.value()


class CountsInSelf(KeyedProcessFunction):
    def __init__(self):
        self.count = 0

    def process_element(self, value, ctx):
        self.count += 1
        yield value, self.count


class CountsInBatches(MapOperator):
    """Emits the size of the batch: what no operator may depend on."""

    def process_batch(self, batch, input_index=0):
        self.output.collect(Batch([len(batch)] * len(batch)))


def same(value):
    return value


INPUTS = [Record("a", 1), Record("a", 2), Watermark(5), Record("a", 7)]
COUNTED = [("a", 1), ("a", 2), ("a", 3)]


def test_hostile_run_accepts_what_is_right():
    """F2: state that is kept in state survives everything."""
    run_hostile(partial(KeyedProcessOperator, CountsInState(), same), INPUTS, COUNTED)


def test_hostile_run_finds_state_outside_of_state():
    """F2, G8: what a function keeps in `self` is lost by a recovery, and the hostile run says so."""
    with pytest.raises(AssertionError, match="snapshotted and replaced between every two"):
        run_hostile(partial(KeyedProcessOperator, CountsInSelf(), same), INPUTS, COUNTED)


def test_hostile_run_finds_dependence_on_batches():
    """F2: output that depends on how records were put into batches is found."""
    with pytest.raises(AssertionError, match="in batches of 2, left alone"):
        run_hostile(lambda: CountsInBatches(same), [Record(1), Record(2)], [1, 1])


def test_hostile_run_finds_wrong_output():
    """F2: values, timestamps, missing and surplus records are all looked at."""
    for wrong in (["a", "a"], ["a", "a", "b"], ["a"] * 4, [Record("a", 1), Record("a", 2), Record("a", 8)]):
        with pytest.raises(AssertionError, match="main output, in batches of 1"):
            run_hostile(partial(MapOperator, same), INPUTS, wrong)
    run_hostile(partial(MapOperator, same), INPUTS, [Record("a", 1), "a", Record("a", 7)])


def test_hostile_run_keeps_processing_time():
    """C2: the clock goes on over recoveries."""

    class Clock(ProcessFunction):
        def process_element(self, value, ctx):
            yield ctx.timer_service().current_processing_time()

    inputs = [Record(1), ProcessingTime(10), Record(2), ProcessingTime(5), Record(3)]
    run_hostile(partial(ProcessOperator, Clock()), inputs, [0, 10, 15])


def test_snapshot_is_bytes_that_restore():
    """F1, F2: a snapshot is bytes; a new harness goes on from them."""
    with harness_for(CountsInState(), same) as harness:
        harness.process("a")
        snapshot = harness.snapshot(1)
        assert isinstance(snapshot, bytes)
    restored = harness_for(CountsInState(), same)
    restored.restore(snapshot)
    with restored:
        restored.process("a")
        assert restored.values == [("a", 2)]
        with pytest.raises(RuntimeError, match="before open"):
            restored.restore(snapshot)


def test_snapshots_of_different_runs_do_not_mix():
    """D4: snapshots of runs with different parallelism cannot be restored together."""
    snapshots = []
    for parallelism in (1, 2):
        with harness_for(CountsInState(), same, parallelism=parallelism) as harness:
            harness.process("a")
            snapshots.append(harness.snapshot(1))
    mixed = harness_for(CountsInState(), same)
    mixed.restore(*snapshots)
    with pytest.raises(ValueError, match="different runs"):
        mixed.open()


def test_output_is_checked():
    """F2: the harness refuses what no operator may emit: a falling watermark, a batch that does not fit together."""

    class Bad(MapOperator):
        def process_batch(self, batch, input_index=0):
            self.output.collect(Batch([1, 2], [1]))

    with OneInputOperatorHarness(lambda: Bad(same)) as harness:
        with pytest.raises(AssertionError, match="2 values has 1 timestamps"):
            harness.process(1)
        harness.watermark(5)
        with pytest.raises(AssertionError, match="fell from 5 to 4"):
            harness.watermark(4)


def test_harness_for_every_kind_of_function():
    """A1, A2: the right operator for each kind of function."""

    def subclass(base, method):
        return type("F", (base,), {method: lambda self, *args: args[0]})()

    assert type(operator_factory_for(subclass(FilterFunction, "filter"))()) is FilterOperator
    assert type(operator_factory_for(subclass(FlatMapFunction, "flat_map"))()) is FlatMapOperator
    assert type(operator_factory_for(subclass(MapFunction, "map"))()) is MapOperator
    assert type(operator_factory_for(subclass(ProcessFunction, "process_element"))()) is ProcessOperator
    assert type(operator_factory_for(same)()) is MapOperator
    selector = subclass(KeySelector, "get_key")
    with harness_for(subclass(ReduceFunction, "reduce"), selector) as harness:
        harness.process_batch(["a", "a"], [1, 2])
        assert harness.output == [Record("a", 1), Record("a", 2)]
        assert harness.take_output() == [Record("a", 1), Record("a", 2)]
        assert harness.output == []
    with pytest.raises(TypeError, match="needs a key selector"):
        harness_for(CountsInState())
    with pytest.raises(TypeError, match="takes no key selector"):
        harness_for(same, same)


def test_impossible_subtasks_are_refused():
    """B2: a subtask outside of the parallelism is a mistake of the test."""
    for parallelism, subtask in ((1, 1), (2, -1), (200, 0)):
        with pytest.raises(ValueError, match="no subtask"):
            OneInputOperatorHarness(partial(MapOperator, same), parallelism, subtask)


def test_elements():
    """F2: only elements of a stream can be fed."""
    with harness_for(same) as harness:
        harness.feed(Record(1))
        harness.feed(Watermark(3))
        harness.feed(ProcessingTime(4))
        harness.status(True)
        with pytest.raises(TypeError, match="not an element"):
            harness.feed("x")
        assert (harness.values, harness.watermarks, harness.idle_changes) == ([1], [3], [True])
        assert harness.clock.now_ms() == 4
    assert repr(Record("a")) == "Record('a')"


def test_clock():
    """C2: virtual time does not run backwards."""
    clock = VirtualClock(5)
    clock.advance(5)
    assert clock.now_ms() == 10
    with pytest.raises(ValueError, match="backwards"):
        clock.advance_to(9)


def test_the_example_of_the_documentation_runs():
    """F2: the package's example does what it says."""
    import doctest

    import penstock.testing

    assert doctest.testmod(penstock.testing).failed == 0


def keyed_files(snapshot):
    (handle,) = decode_metadata(snapshot, "here").operators[0].subtasks[0].keyed["count"]
    return handle.files


def test_snapshots_are_incremental_and_whole():
    """G7: as in a job a snapshot adds to the last completed one, and each can be restored by itself."""
    with harness_for(CountsInState(), same) as harness:
        for n in range(100):
            harness.process(n)
        first = harness.snapshot(1)
        harness.notify_complete(1)
        harness.process(7)
        second = harness.snapshot(2)
        harness.notify_aborted(2)
        harness.process(8)
        third = harness.snapshot(3)
    assert keyed_files(second)[:1] == keyed_files(third)[:1] == keyed_files(first)
    assert len(keyed_files(third)) == 2
    for snapshot, counts in ((first, [2, 2, 2]), (second, [3, 2, 2]), (third, [3, 3, 2])):
        restored = harness_for(CountsInState(), same)
        restored.restore(snapshot)
        restored.open()
        for key in (7, 8, 9):
            restored.process(key)
        assert [count for _, count in restored.values] == counts


def test_records_in_flight_have_no_place_in_a_harness():
    """G5: one operator has no channels: state that holds records in flight is refused, not lost."""
    data = operator_bytes([pickle.dumps(Batch([1]).content())])
    handle = OperatorStateHandle(CHANNEL_MODE, 1, StateFile(len(data), checksum(data), data=data))
    lists: Any = {ChannelState(Direction.IN, 0, 0).stored_name: (handle,)}
    state = OperatorState("operator-under-test", None, "x", 1, 128, {0: OperatorSubtaskState({}, lists)})
    harness = harness_for(same)
    harness.restore(encode_metadata(CheckpointMetadata(1, "job", "name", 0, False, (state,))))
    with pytest.raises(ValueError, match="no channels"):
        harness.open()
