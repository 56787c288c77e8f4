"""One task from its deployment to its end: the order of calls, checkpoints, failures, flushing."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from tests.runtime.task.fakes import Rig

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collection import CollectionSource, CollectionSplit
from penstock.datastream.functions import KeyedProcessFunction
from penstock.runtime.connector import Boundedness, InputStatus, Source, SourceReader
from penstock.runtime.operators.base import StreamOperator, UserCodeError
from penstock.runtime.operators.connector import SourceOperator
from penstock.runtime.operators.keyed.aggregates import KeyedReduceOperator
from penstock.runtime.operators.record.process import KeyedProcessOperator
from penstock.runtime.operators.record.stateless import MapOperator, TimestampsAndWatermarksOperator
from penstock.runtime.protocol import (
    AcknowledgeCheckpoint,
    AssignSplits,
    CancelTask,
    ChannelId,
    DeclineCheckpoint,
    EndOfDataReached,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    RequestSplit,
    TaskMetrics,
    TaskStateChanged,
    TriggerCheckpoint,
)
from penstock.runtime.records import (
    MAX_WATERMARK,
    Batch,
    CancelCheckpointMarker,
    CheckpointBarrier,
    EndOfData,
    EndOfPartition,
    Watermark,
    WatermarkStatus,
)
from penstock.runtime.task.channels.result_partition import BroadcastPartitioner, ForwardPartitioner, HashPartitioner

LOG: list[str] = []


@pytest.fixture(autouse=True)
def empty_log() -> None:
    LOG.clear()


class Logging(StreamOperator):
    """Writes its calls down; fails in the one that it is told to fail in."""

    def __init__(self, name: str, fails_in: str = "") -> None:
        self.name = name
        self.fails_in = fails_in

    def note(self, call: str) -> None:
        LOG.append(f"{self.name}.{call}")
        if call == self.fails_in:
            raise RuntimeError(f"{self.name} fails in {call}")

    def setup(self, context: Any, output: Any) -> None:
        super().setup(context, output)
        self.note("setup")

    def initialize_state(self) -> None:
        self.note("initialize_state")

    def open(self) -> None:
        self.note("open")

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self.note("process")
        self.output.collect(batch)

    def process_watermark(self, timestamp: int) -> None:
        self.note("MAX" if timestamp == MAX_WATERMARK else f"watermark {timestamp}")
        self.output.emit_watermark(timestamp)

    def process_status(self, idle: bool) -> None:
        self.note(f"idle {idle}")
        self.output.emit_status(idle)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self.note(f"prepare {checkpoint_id}")

    def snapshot_state(self, checkpoint_id: int) -> list:
        self.note(f"snapshot {checkpoint_id}")
        return super().snapshot_state(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.note(f"complete {checkpoint_id}")

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.note(f"aborted {checkpoint_id}")

    def end_input(self, input_index: int = 0) -> None:
        self.note("end_input")

    def finish(self) -> None:
        self.note("finish")

    def close(self) -> None:
        self.note("close")


def chain(**fails_in: str) -> list:
    # A module-level list is what the operators log into, so they must not be pickled by value.
    return [partial(Logging, name, fails_in.get(name, "")) for name in ("head", "tail")]


def calls() -> str:
    text, LOG[:] = " ".join(LOG), []
    return text


OPENED = "tail.setup head.setup tail.initialize_state head.initialize_state tail.open head.open"


# --- life cycle -----------------------------------------------------------------------------------------------------


def test_life_with_checkpoints() -> None:
    """F1, F2, F3, F6: the whole life of a task, in the order that the specification gives."""
    rig = Rig(chain(), partitioner=ForwardPartitioner())
    assert calls() == OPENED
    assert rig.states == ["INITIALIZING", "RUNNING"]
    rig.feed(0, Batch([1]), Watermark(5))
    assert calls() == "head.process tail.process head.watermark 5 tail.watermark 5"
    rig.feed(0, CheckpointBarrier(1, 0))
    assert calls() == "head.prepare 1 tail.prepare 1 head.snapshot 1 tail.snapshot 1"
    rig.message(NotifyCheckpointComplete(rig.execution, 1))
    assert calls() == "head.complete 1 tail.complete 1"
    rig.feed(0, Watermark(MAX_WATERMARK), EndOfData(True))
    assert calls() == "head.MAX tail.MAX head.end_input head.finish tail.end_input tail.finish"
    assert rig.outbox.of(EndOfDataReached) == [EndOfDataReached(rig.execution)]
    rig.feed(0, CheckpointBarrier(2, 0))
    assert calls() == "head.snapshot 2 tail.snapshot 2"
    assert [a.finished for a in rig.outbox.of(AcknowledgeCheckpoint)] == [False, True]
    rig.feed(0, EndOfPartition())
    assert calls() == ""
    rig.message(NotifyCheckpointComplete(rig.execution, 2))
    assert calls() == "head.complete 2 tail.complete 2 head.close tail.close"
    assert rig.states == ["INITIALIZING", "RUNNING", "FINISHED"]
    assert rig.executor.tasks == []
    sent = rig.outbox.elements()
    assert sent == [
        Batch([1]), Watermark(5), CheckpointBarrier(1, 0), Watermark(MAX_WATERMARK), EndOfData(True),
        CheckpointBarrier(2, 0), EndOfPartition(),
    ]  # fmt: skip


def test_life_without_checkpoints() -> None:
    """F3: without checkpoints a task that has finished its data waits for its inputs only."""
    rig = Rig(chain(), partitioner=ForwardPartitioner(), settings={"checkpointing": False})
    rig.feed(0, EndOfData(True))
    assert rig.states[-1] == "RUNNING"
    rig.feed(0, EndOfPartition())
    assert rig.states[-1] == "FINISHED"
    assert calls() == f"{OPENED} head.end_input head.finish tail.end_input tail.finish head.close tail.close"
    assert rig.outbox.elements() == [EndOfData(True), EndOfPartition()]


def test_end_without_drain() -> None:
    """F3: EndOfData without drain ends a task with neither end_input nor finish, and goes on as it came."""
    rig = Rig(chain(), partitioner=ForwardPartitioner(), settings={"checkpointing": False})
    rig.feed(0, EndOfData(False), EndOfPartition())
    assert calls() == f"{OPENED} head.close tail.close"
    assert rig.outbox.elements() == [EndOfData(False), EndOfPartition()]
    assert rig.states[-1] == "FINISHED"


def test_all_inputs_must_end() -> None:
    """F3: a task ends its data when every channel has ended its own."""
    rig = Rig(chain(), inputs=2, settings={"checkpointing": False})
    calls()
    rig.feed(0, EndOfData(True), EndOfPartition())
    rig.feed(1, Batch([1]))
    assert calls() == "head.process tail.process"
    rig.feed(1, EndOfData(True))
    assert "finish" in calls()
    rig.feed(1, EndOfPartition())
    assert rig.states[-1] == "FINISHED"


def test_cancel_skips_finish() -> None:
    """F4: a cancelled task goes to close at once, whatever it was doing."""
    rig = Rig(chain())
    rig.feed(0, Batch([1]))
    calls()
    rig.message(CancelTask(rig.execution))
    assert calls() == "head.close tail.close"
    assert rig.states[-1] == "CANCELED"
    rig.feed(0, Batch([2]), EndOfData(True))
    assert calls() == ""


def test_cancel_while_waiting_for_the_last_checkpoint() -> None:
    """F4: a task that has finished its data and waits can be cancelled."""
    rig = Rig(chain())
    rig.feed(0, EndOfData(True), EndOfPartition())
    calls()
    rig.message(CancelTask(rig.execution))
    assert calls() == "head.close tail.close"
    assert rig.states[-1] == "CANCELED"


def test_cancel_of_a_task_that_is_gone_is_answered() -> None:
    """F4: cancelling is answered also for a task that ended meanwhile."""
    rig = Rig(chain())
    rig.message(CancelTask(rig.execution))
    rig.message(CancelTask(rig.execution))
    assert rig.states[-2:] == ["CANCELED", "CANCELED"]


@pytest.mark.parametrize(
    ("fails_in", "expected"),
    [
        ("process", "head.process tail.process head.close tail.close"),
        ("watermark 5", "head.watermark 5 tail.watermark 5 head.close tail.close"),
        (
            "finish",
            "head.MAX tail.MAX head.end_input head.finish tail.end_input tail.finish head.close tail.close",
        ),
        ("snapshot 1", "head.prepare 1 tail.prepare 1 head.snapshot 1 tail.snapshot 1 head.close tail.close"),
    ],
)
def test_failure_skips_finish_and_closes_all(fails_in: str, expected: str) -> None:
    """F4: whatever raises fails the task; all operators are closed, once, and finish is not called any more."""
    rig = Rig(chain(tail=fails_in))
    calls()
    elements: Any = {
        "process": [Batch([1]), Batch([2])],
        "watermark 5": [Watermark(5), Batch([2])],
        "finish": [Watermark(MAX_WATERMARK), EndOfData(True)],
        "snapshot 1": [CheckpointBarrier(1, 0), Batch([1])],
    }[fails_in]
    rig.feed(0, *elements)
    assert calls() == expected
    (last,) = [m for m in rig.outbox.of(TaskStateChanged) if m.state == "FAILED"]
    assert "tail fails in" in last.failure.reason
    assert rig.executor.tasks == []


def test_failure_in_open_closes_all() -> None:
    """F4: also a task whose operators did not all open is closed."""
    rig = Rig(chain(tail="open"))
    assert calls() == (
        "tail.setup head.setup tail.initialize_state head.initialize_state tail.open head.close tail.close"
    )
    assert rig.states == ["INITIALIZING", "FAILED"]


def test_failure_in_close_closes_the_others() -> None:
    """F4: an operator that cannot close does not keep the others open; the task has failed, and says so once."""
    rig = Rig(chain(head="close"), settings={"checkpointing": False})
    rig.feed(0, EndOfData(True), EndOfPartition())
    assert calls().endswith("head.close tail.close")
    assert rig.states[-1] == "FAILED"


def test_program_that_cannot_be_loaded_fails_the_task() -> None:
    """F4: a program that breaks on loading is a failed task, not a dead worker."""

    class Unloadable:
        def __reduce__(self) -> Any:
            return (int, ("no number",))

    rig = Rig([partial(Logging, Unloadable())])  # type: ignore[arg-type]
    assert rig.states == ["INITIALIZING", "FAILED"]


def test_last_checkpoint_must_be_one_after_finish() -> None:
    """F3, F6: a checkpoint that was taken before finish does not let the task go, even if it completes after it."""
    rig = Rig(chain())
    rig.feed(0, CheckpointBarrier(1, 0), EndOfData(True), EndOfPartition())
    rig.message(NotifyCheckpointComplete(rig.execution, 1))
    assert rig.states[-1] == "RUNNING"
    rig.message(TriggerCheckpoint(rig.execution, 2, 0))
    rig.message(NotifyCheckpointAborted(rig.execution, 2))
    assert rig.states[-1] == "RUNNING"
    rig.message(TriggerCheckpoint(rig.execution, 3, 0))
    rig.message(NotifyCheckpointComplete(rig.execution, 3))
    assert rig.states[-1] == "FINISHED"


def test_task_is_finished_only_when_all_is_sent() -> None:
    """F3: a task without credit is not finished before its last buffer has left."""
    rig = Rig(chain(), partitioner=ForwardPartitioner(), credit=1, settings={"checkpointing": False})
    rig.feed(0, Batch([1]), EndOfData(True), EndOfPartition())
    assert rig.states[-1] == "RUNNING"
    rig.executor.on_credit(rig.outputs[0], 5)
    rig.run()
    assert rig.states[-1] == "FINISHED"
    assert rig.outbox.elements() == [Batch([1]), EndOfData(True), EndOfPartition()]


# --- checkpoints ----------------------------------------------------------------------------------------------------


def reduce_chain() -> list:
    return [partial(KeyedReduceOperator, lambda a, b: (a[0], a[1] + b[1]), lambda v: v[0])]


def test_snapshot_is_of_the_moment_of_the_barrier() -> None:
    """G7: state is captured at the barrier and written later; what happens in between does not reach it."""
    rig = Rig(reduce_chain(), partitioner=ForwardPartitioner())
    rig.background.hold = True
    rig.feed(0, Batch([("a", 1)]), CheckpointBarrier(1, 0), Batch([("a", 10)]))
    assert rig.outbox.of(AcknowledgeCheckpoint) == []
    rig.background.run()
    (ack,) = rig.outbox.of(AcknowledgeCheckpoint)
    again = Rig(reduce_chain(), partitioner=ForwardPartitioner(), restored=ack.operators)
    again.feed(0, Batch([("a", 100)]))
    assert again.outbox.elements() == [Batch([("a", 101)])]


@pytest.mark.parametrize(("path", "is_marked"), [(None, True), ("memory://savepoints/marks", False)])
def test_only_behind_a_checkpoint_changes_are_marked(path: str | None, is_marked: bool) -> None:
    """G7, H1: for the next one, which builds on it; on a savepoint nothing builds, and marks would stay for ever."""
    rig = Rig(reduce_chain(), partitioner=ForwardPartitioner())
    rig.feed(0, Batch([("a", 1), ("b", 1)]), CheckpointBarrier(1, 0, path), Batch([("b", 1)]))
    chain: Any = rig.task.chain
    (table,) = chain.contexts[0].keyed._tables.values()
    assert table.changed(None) == ({"b"} if is_marked else set())


def test_barrier_is_ahead_of_the_snapshot_and_flushed() -> None:
    """G1, G7: the barrier goes downstream at once, behind all records before it, on every channel."""
    rig = Rig(chain(), partitioner=BroadcastPartitioner(), consumers=2)
    rig.background.hold = True
    rig.feed(0, Batch([1]), CheckpointBarrier(1, 7), Batch([2]))
    for channel in rig.outputs:
        assert rig.outbox.elements(channel)[:2] == [Batch([1]), CheckpointBarrier(1, 7)]


def test_failed_write_declines() -> None:
    """G6: state that cannot be stored declines the checkpoint as a failure; the task lives on."""
    rig = Rig(reduce_chain())
    rig.executor._storage.write = lambda *a: 1 / 0  # type: ignore[method-assign, assignment]
    rig.feed(0, Batch([("a", 1)]), CheckpointBarrier(1, 0))
    (decline,) = rig.outbox.of(DeclineCheckpoint)
    assert decline.is_failure
    assert "ZeroDivisionError" in decline.reason
    assert rig.states[-1] == "RUNNING"


def test_unstorable_state_names_operator_and_state() -> None:
    """D1: a value that cannot be pickled is reported with the operator and the name of its state."""

    class Keeps(KeyedProcessFunction):
        def open(self, runtime_context: Any) -> None:
            from penstock.state.states import ValueStateDescriptor

            self.state = runtime_context.get_state(ValueStateDescriptor("connections"))

        def process_element(self, value: Any, ctx: Any) -> None:
            self.state.update(threading.Lock())

    rig = Rig([partial(KeyedProcessOperator, Keeps(), lambda v: v)])
    rig.feed(0, Batch([1]), CheckpointBarrier(1, 0))
    told = str([m.failure.reason for m in rig.outbox.of(TaskStateChanged) if m.failure]) + str(
        [m.reason for m in rig.outbox.of(DeclineCheckpoint)]
    )
    assert "'connections'" in told
    assert "Op 0" in told


def test_cancel_marker_goes_downstream() -> None:
    """G3: a task that gives a checkpoint up declines it and lets those downstream know."""
    rig = Rig(chain(), inputs=2, partitioner=ForwardPartitioner())
    rig.feed(0, CheckpointBarrier(1, 0))
    rig.feed(1, CheckpointBarrier(2, 0))
    assert [(d.checkpoint_id, d.is_failure) for d in rig.outbox.of(DeclineCheckpoint)] == [(1, False)]
    assert rig.outbox.elements() == [CancelCheckpointMarker(1)]
    rig.feed(0, CheckpointBarrier(2, 0))
    assert [a.checkpoint_id for a in rig.outbox.of(AcknowledgeCheckpoint)] == [2]


def test_trigger_that_cannot_be_followed_is_declined() -> None:
    """G10: a trigger for a task whose inputs have not ended, or that is gone, is declined, not ignored."""
    rig = Rig(chain())
    rig.message(TriggerCheckpoint(rig.execution, 1, 0))
    rig.message(CancelTask(rig.execution))
    rig.message(TriggerCheckpoint(rig.execution, 2, 0))
    assert [(d.checkpoint_id, d.is_failure) for d in rig.outbox.of(DeclineCheckpoint)] == [(1, False), (2, False)]


def test_task_whose_inputs_have_ended_takes_triggers() -> None:
    """G10: checkpoints go on below tasks that have finished: the barrier is injected there."""
    rig = Rig(chain(), partitioner=ForwardPartitioner())
    rig.feed(0, EndOfData(True), EndOfPartition())
    rig.message(TriggerCheckpoint(rig.execution, 4, 9))
    assert rig.outbox.elements()[-1] == CheckpointBarrier(4, 9)
    assert [a.checkpoint_id for a in rig.outbox.of(AcknowledgeCheckpoint)] == [4]


def test_finished_on_restore_runs_nothing() -> None:
    """G10: a task that had finished before the checkpoint says its end of time and data, and touches no operator."""
    rig = Rig(chain(), partitioner=ForwardPartitioner(), restored={}, finished_on_restore=True)
    rig.feed(0, EndOfData(True), EndOfPartition())
    rig.message(TriggerCheckpoint(rig.execution, 2, 0))
    rig.message(NotifyCheckpointComplete(rig.execution, 2))
    assert "process" not in calls()
    assert "finish" not in calls()
    assert rig.states[-1] == "FINISHED"
    sent = rig.outbox.elements()
    assert sent[0] == Watermark(MAX_WATERMARK)
    assert sent[1] == EndOfData(True)
    assert sent[-1] == EndOfPartition()


# --- time -----------------------------------------------------------------------------------------------------------


def test_watermarks_of_channels_are_combined() -> None:
    """C2: the operators see the lowest watermark of all channels, and idleness when all are idle."""
    rig = Rig(chain(), inputs=2)
    calls()
    rig.feed(0, Watermark(10))
    rig.feed(1, Watermark(3))
    rig.feed(1, WatermarkStatus(True))
    rig.feed(0, WatermarkStatus(True))
    rig.feed(0, WatermarkStatus(False))
    assert calls() == (
        "head.watermark 3 tail.watermark 3 head.watermark 10 tail.watermark 10 "
        "head.idle True tail.idle True head.idle False tail.idle False"
    )


def test_idleness_leaves_a_task_one_of_whose_inputs_has_ended() -> None:
    """C2: consumers with another input of their own do not wait for a task whose last open input is idle."""
    rig = Rig(chain(), inputs=2, partitioner=ForwardPartitioner())
    calls()
    rig.feed(0, Watermark(MAX_WATERMARK), EndOfData(True))
    rig.feed(1, Watermark(3))
    rig.feed(1, WatermarkStatus(True))
    assert rig.outbox.elements() == [Watermark(3), WatermarkStatus(True)]
    rig.feed(1, WatermarkStatus(False), Watermark(MAX_WATERMARK))
    assert rig.outbox.elements()[2:] == [WatermarkStatus(False), Watermark(MAX_WATERMARK)]


def test_event_time_of_a_checkpoint_goes_on() -> None:
    """C2: operators know it before the first record, and the next tasks too; what was passed on is not passed again."""
    rig = Rig(chain(), partitioner=ForwardPartitioner(), watermarks={-1: 10, 0: 10, 1: 7})
    assert calls() == f"{OPENED} tail.watermark 10 head.watermark 10"
    rig.feed(0, Watermark(8), Watermark(10), Batch([1]), Watermark(12), CheckpointBarrier(1, 0))
    assert calls().split(" head.prepare")[0] == "head.process tail.process head.watermark 12 tail.watermark 12"
    passed_on = [element.timestamp for element in rig.outbox.elements() if isinstance(element, Watermark)]
    assert passed_on == [7, 10, 12]
    (ack,) = rig.outbox.of(AcknowledgeCheckpoint)
    assert ack.watermarks == {"op0": (12, 12), "op1": (12, 12)}


class Tick(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_processing_time_timer(50)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "tick"


def test_output_of_processing_timers_leaves_without_further_input() -> None:
    """A1: what a processing-time timer emits is sent though nothing else ever happens."""
    rig = Rig([partial(KeyedProcessOperator, Tick(), lambda v: v)], partitioner=ForwardPartitioner())
    rig.feed(0, Batch([1]))
    rig.advance(1000)
    assert rig.outbox.elements() == [Batch(["tick"], [50])]


def test_idleness_leaves_without_further_input() -> None:
    """C2: the news that a stream is idle is sent though nothing else ever happens."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(100)
    rig = Rig([partial(TimestampsAndWatermarksOperator, strategy)], partitioner=ForwardPartitioner())
    rig.feed(0, Batch([1], [5]))
    rig.advance(1000)
    assert rig.outbox.elements() == [Batch([1], [5]), Watermark(4), WatermarkStatus(True)]


def test_processing_timers_stop_with_the_data() -> None:
    """F5: after the end of data no timer fires any more."""
    rig = Rig([partial(KeyedProcessOperator, Tick(), lambda v: v)], partitioner=ForwardPartitioner())
    rig.feed(0, Batch([1]), EndOfData(True))
    rig.advance(1000)
    assert rig.outbox.elements() == [EndOfData(True)]


def test_small_output_leaves_when_there_is_nothing_to_do() -> None:
    """B3: a half-full buffer does not wait for more when the task has nothing else to do."""
    rig = Rig(chain(), partitioner=ForwardPartitioner())
    rig.feed(0, Batch([1]))
    assert rig.outbox.elements() == [Batch([1])]


def test_task_without_credit_takes_no_input() -> None:
    """B3: back pressure: a task that cannot send stops processing, and goes on when it can."""
    rig = Rig(chain(), partitioner=ForwardPartitioner(), credit=0)
    calls()
    for number in range(10):
        rig.feed(0, Batch([number] * 4))
    assert calls().count("head.process") <= 3
    rig.executor.on_credit(rig.outputs[0], 100)
    rig.run()
    assert [b.values[0] for b in rig.outbox.elements()] == list(range(10))


def test_checkpoint_can_pass_a_task_without_credit_when_it_comes() -> None:
    """G1: barriers wait their turn behind records that cannot be sent."""
    rig = Rig(chain(), partitioner=ForwardPartitioner(), credit=0)
    rig.feed(0, Batch([1]), CheckpointBarrier(1, 0))
    rig.executor.on_credit(rig.outputs[0], 100)
    rig.run()
    assert rig.outbox.elements() == [Batch([1]), CheckpointBarrier(1, 0)]


# --- sources --------------------------------------------------------------------------------------------------------


def source_chain(values: list, strategy: WatermarkStrategy | None = None, timestamps: list | None = None) -> list:
    strategy = strategy or WatermarkStrategy.no_watermarks()
    return [partial(SourceOperator, CollectionSource(values, timestamps), strategy)]


def splits(rig: Rig, *found: Any, no_more: bool = True) -> AssignSplits:
    import pickle

    return AssignSplits(rig.execution, "op0", tuple(pickle.dumps(s) for s in found), no_more)


def test_source_from_split_to_end() -> None:
    """F3, C2: a source asks for a split, emits its records in batches with watermarks, and ends event time itself."""
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    rig = Rig(source_chain([1, 2, 3], strategy, [10, 20, 30]), 0, partitioner=ForwardPartitioner())
    assert rig.outbox.of(RequestSplit) == [RequestSplit(rig.execution, "op0")]
    rig.message(splits(rig, CollectionSplit()))
    assert rig.outbox.elements() == [
        Batch([1, 2], [10, 20]), Watermark(19), Batch([3], [30]), Watermark(29), Watermark(MAX_WATERMARK),
        EndOfData(True),
    ]  # fmt: skip


def test_source_goes_on_where_its_snapshot_stood() -> None:
    """G8: a restored source reads on behind the last record before the barrier."""
    rig = Rig(source_chain([1, 2, 3, 4, 5]), 0, partitioner=ForwardPartitioner())
    rig.executor.on_message(splits(rig, CollectionSplit(), no_more=False))
    rig.executor.step()
    rig.executor.step()
    rig.executor.on_message(TriggerCheckpoint(rig.execution, 1, 0))
    rig.executor.step()
    (ack,) = rig.outbox.of(AcknowledgeCheckpoint)
    assert rig.outbox.elements() == [Batch([1, 2]), CheckpointBarrier(1, 0)]
    again = Rig(source_chain([1, 2, 3, 4, 5]), 0, partitioner=ForwardPartitioner(), restored=ack.operators)
    assert [value for batch in again.outbox.elements() for value in batch.values] == [3, 4, 5]


class Quiet(SourceReader):
    """One record, then silence, then the end."""

    def __init__(self) -> None:
        self.left = ["only"]
        self.no_more = False

    def poll_next(self, max_records: int) -> Any:
        if self.left:
            return Batch([self.left.pop()], [10])
        return InputStatus.END_OF_INPUT if self.no_more else InputStatus.NOTHING_AVAILABLE

    def add_splits(self, splits: Any) -> None: ...

    def no_more_splits(self) -> None:
        self.no_more = True

    def snapshot_state(self, checkpoint_id: int) -> list:
        return []


class QuietSource(Source):
    boundedness = Boundedness.BOUNDED

    def create_enumerator(self, context: Any, restored: Any) -> Any: ...

    def create_reader(self, context: Any) -> Quiet:
        return Quiet()


def quiet_rig() -> Rig:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(100)
    return Rig([partial(SourceOperator, QuietSource(), strategy)], 0, partitioner=ForwardPartitioner())


def test_source_becomes_idle_and_says_so() -> None:
    """C2: a source without records for the idle time tells those downstream, though it has nothing else to send."""
    rig = quiet_rig()
    rig.advance(50)
    assert rig.outbox.elements() == [Batch(["only"], [10]), Watermark(9)]
    rig.advance(200)
    assert rig.outbox.elements()[2:] == [WatermarkStatus(True)]


def test_a_silent_source_is_asked_less_often() -> None:
    """A reader that does not know better is asked every 10 ms, after a tenth of a second of silence every 50 ms, and
    after its next record as often as at first."""
    rig = quiet_rig()
    source = rig.task.source
    assert source is not None
    reader: Any = source.reader
    rig.advance(50)
    assert reader.retry_after_ms() == 10
    rig.advance(70)
    assert reader.retry_after_ms() == 50
    in_vain = reader.polls_in_vain
    rig.advance(1_000)
    assert reader.polls_in_vain <= in_vain + 20
    reader.left.append("another")
    rig.advance(60)
    assert reader.retry_after_ms() == 10


def test_idle_source_that_ends_is_heard() -> None:
    """C2, F3: an idle source that ends becomes active before MAX_WATERMARK: idle channels' watermarks do not count."""
    rig = quiet_rig()
    rig.advance(250)
    rig.message(splits(rig))
    rig.advance(50)
    after = [e for e in rig.outbox.elements() if isinstance(e, Watermark | WatermarkStatus | EndOfData)][-3:]
    assert after == [WatermarkStatus(False), Watermark(MAX_WATERMARK), EndOfData(True)]
    consumer = Rig(chain())
    calls()
    consumer.feed(0, *rig.outbox.elements())
    assert "head.MAX" in calls()


# --- errors ---------------------------------------------------------------------------------------------------------


def failure(rig: Rig) -> Any:
    (changed,) = [m for m in rig.outbox.of(TaskStateChanged) if m.state == "FAILED"]
    return changed.failure


def test_user_error_of_a_chained_operator() -> None:
    """A2: the failure names the chained operator whose function raised, its record, and the user's traceback only."""

    def second(value: int) -> int:
        return 1 // (value - 3)

    rig = Rig([partial(MapOperator, lambda v: v + 1), partial(MapOperator, second)])
    rig.feed(0, Batch([5, 4, 2, 7]))
    found = failure(rig)
    assert (found.operator_name, found.record, found.user_code) == ("Op 1", "3", True)
    assert "ZeroDivisionError" in found.reason
    assert "in second" in found.traceback
    assert "penstock/runtime" not in found.traceback


@pytest.mark.parametrize("consumers", [1, 2])
def test_key_selector_that_raises(consumers: int) -> None:
    """A2: a key selector that raises while records are partitioned is user code: operator, record, user's traceback."""

    def select(value: dict) -> Any:
        return value["missing"]

    rig = Rig([partial(MapOperator, lambda v: v)], partitioner=HashPartitioner(select), consumers=consumers)
    rig.feed(0, Batch([{"k": 1}]))
    if consumers == 1:
        assert rig.states[-1] == "RUNNING"  # nobody needs the key here; the next operator will ask
        return
    found = failure(rig)
    assert found.user_code
    assert found.record == "{'k': 1}"
    assert "in select" in found.traceback
    assert "penstock/runtime" not in found.traceback


def test_key_without_stable_hash() -> None:
    """D4: a key whose type has no stable value fails with its type and what to do instead."""
    rig = Rig([partial(MapOperator, lambda v: v)], partitioner=HashPartitioner(lambda v: object()), consumers=2)
    rig.feed(0, Batch([1]))
    assert "no stable value to hash" in failure(rig).reason


def test_record_with_a_broken_repr() -> None:
    """A2: a record that cannot be shown is described by its type; long ones are cut."""

    class Shy:
        def __repr__(self) -> str:
            raise ValueError

    def fail(value: Any) -> Any:
        raise RuntimeError

    rig = Rig([partial(MapOperator, fail)])
    rig.feed(0, Batch([Shy()]))
    assert "Shy whose repr raised ValueError" in failure(rig).record
    rig = Rig([partial(MapOperator, fail)])
    rig.feed(0, Batch(["x" * 10_000]))
    assert len(failure(rig).record) == 200


def test_user_code_error_survives_without_cause() -> None:
    """A2: a `UserCodeError` raised by hand is reported as it is."""
    from penstock.runtime.task.failures import describe_failure

    assert describe_failure(UserCodeError("mine", 1), None).operator_name == "mine"


# --- the executor ---------------------------------------------------------------------------------------------------


def test_buffers_of_former_attempts_are_dropped() -> None:
    """E6: what a former attempt left on the wire reaches nobody."""
    rig = Rig(chain())
    calls()
    rig.executor.on_buffer(ChannelId(0, 0, 0, 99), [Batch([1])])
    rig.run()
    assert calls() == ""


def test_credit_goes_back_and_forth() -> None:
    """B3: each channel gets its credit when the task is deployed, and one back for each buffer used."""
    rig = Rig(chain(), inputs=2)
    assert rig.outbox.credits == [("there", channel, 2) for channel in rig.inputs]
    rig.feed(1, Batch([1]))
    assert rig.outbox.credits[2:] == [("there", rig.inputs[1], 1)]


def test_metrics_at_the_end() -> None:
    """E1: a task that ends reports its last figures first."""
    rig = Rig(chain(), partitioner=ForwardPartitioner(), settings={"checkpointing": False})
    rig.feed(0, Batch([1, 2]), Watermark(7), EndOfData(True), EndOfPartition())
    metrics = rig.outbox.of(TaskMetrics)[-1]
    assert (metrics.records_in, metrics.records_out, metrics.watermark_ms) == (2, 2, 7)
    assert rig.outbox.messages.index(metrics) < len(rig.outbox.messages) - 1


def test_executor_that_closes_closes_its_tasks() -> None:
    """F4: shutting a worker down closes its operators, without a word to the master."""
    rig = Rig(chain())
    calls()
    before = len(rig.outbox.messages)
    rig.executor.close()
    assert calls() == "head.close tail.close"
    assert len(rig.outbox.messages) == before
    assert rig.executor.shut_down
