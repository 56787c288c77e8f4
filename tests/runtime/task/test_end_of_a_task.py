"""The end of one task: stopped by a savepoint, with two inputs, with savepoints that do not end it (F3, F5, H1, H2)."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import pytest
from tests.runtime.task.fakes import Rig

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collection import CollectionSource, CollectionSplit
from penstock.datastream.functions import KeyedProcessFunction
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.connector import SourceOperator
from penstock.runtime.operators.record.process import KeyedProcessOperator
from penstock.runtime.operators.record.stateless import MapOperator
from penstock.runtime.protocol import (
    AcknowledgeCheckpoint,
    AssignSplits,
    DeclineCheckpoint,
    EndOfDataReached,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    StopMode,
    TriggerCheckpoint,
)
from penstock.runtime.records import (
    MAX_WATERMARK,
    Batch,
    CheckpointBarrier,
    EndOfData,
    EndOfPartition,
    Watermark,
    WatermarkStatus,
)
from penstock.runtime.task.channels.result_partition import ForwardPartitioner

SAVEPOINT = "memory://savepoints/of-this-test"
SUSPEND = CheckpointBarrier(1, 0, SAVEPOINT, ends_job=True)


def pass_on() -> list:
    return [partial(MapOperator, lambda value: value)]


def numbers(count: int = 100) -> list:
    return [partial(SourceOperator, CollectionSource(range(count)), WatermarkStrategy.no_watermarks())]


def source_rig(steps: int = 3, **options: Any) -> Rig:
    """A source in the middle of its records, two a batch."""
    rig = Rig(numbers(), 0, partitioner=ForwardPartitioner(), **options)
    rig.executor.on_message(AssignSplits(rig.execution, "op0", (pickle.dumps(CollectionSplit()),), False))
    for _ in range(1 + steps):
        rig.executor.step()
    return rig


def values(rig: Rig) -> list:
    return [value for e in rig.outbox.elements() if isinstance(e, Batch) for value in e.values]


def stop(rig: Rig, mode: StopMode) -> TriggerCheckpoint:
    return TriggerCheckpoint(rig.execution, 1, 0, SAVEPOINT, stop=mode)


# --- sources --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpointing", [True, False])
@pytest.mark.parametrize("mode", list(StopMode))
def test_a_stopped_source_emits_nothing_more(mode: StopMode, checkpointing: bool) -> None:
    """H2, F3: from the moment at which it is stopped a source hands out no record: its end and the savepoint's barrier
    follow the last one at once, and its position is in the savepoint."""
    rig = source_rig(2, settings={"checkpointing": checkpointing})
    before = values(rig)
    assert before == [0, 1, 2, 3]
    rig.message(stop(rig, mode))
    ending = [Watermark(MAX_WATERMARK)] if mode is StopMode.DRAIN else []
    barrier = CheckpointBarrier(1, 0, SAVEPOINT, ends_job=True)
    control = [e for e in rig.outbox.elements() if not isinstance(e, Batch)]
    assert control == [*ending, EndOfData(mode is StopMode.DRAIN), barrier]
    rig.advance(60_000)
    assert values(rig) == before
    assert rig.states[-1] == "RUNNING", "it waits for the savepoint"
    (ack,) = rig.outbox.of(AcknowledgeCheckpoint)
    assert ack.finished == (mode is StopMode.DRAIN)
    again = Rig(numbers(), 0, partitioner=ForwardPartitioner(), restored=ack.operators)
    assert values(again)[:2] == [4, 5]
    rig.message(NotifyCheckpointComplete(rig.execution, 1))
    assert rig.states[-1] == "FINISHED"
    assert rig.outbox.elements()[-1] == EndOfPartition()


def test_a_plain_savepoint_ends_nothing() -> None:
    """H1: a source goes on behind the barrier of a savepoint that does not stop it."""
    rig = source_rig()
    rig.executor.on_message(TriggerCheckpoint(rig.execution, 1, 0, SAVEPOINT))
    rig.run()
    assert values(rig) == list(range(100))
    place = rig.outbox.elements().index(CheckpointBarrier(1, 0, SAVEPOINT))
    assert rig.outbox.elements()[place - 1] == Batch([4, 5])


@pytest.mark.parametrize("mode", list(StopMode))
def test_a_source_that_has_ended_by_itself_is_stopped(mode: StopMode) -> None:
    """H2: a source that had come to its end before stays at its end, whatever the mode, and takes part."""
    rig = Rig(numbers(2), 0, partitioner=ForwardPartitioner())
    rig.message(AssignSplits(rig.execution, "op0", (pickle.dumps(CollectionSplit()),), True))
    sent = rig.outbox.elements()
    assert sent[-1] == EndOfData(True)
    rig.message(stop(rig, mode))
    assert rig.outbox.elements()[len(sent) :] == [CheckpointBarrier(1, 0, SAVEPOINT, ends_job=True)]
    (ack,) = rig.outbox.of(AcknowledgeCheckpoint)
    assert ack.finished
    rig.message(NotifyCheckpointComplete(rig.execution, 1))
    assert rig.states[-1] == "FINISHED"


@pytest.mark.parametrize("mode", [None, StopMode.DRAIN])
def test_a_task_that_ends_answers_what_waits_in_its_mailbox(mode: StopMode | None) -> None:
    """F3, G10: asked for the next checkpoint with the word that lets it go, a task declines, so nobody waits for it. A
    savepoint that ends the job would make it fail by that, and does without a task that has finished."""
    rig = Rig(numbers(2), 0, partitioner=ForwardPartitioner(), settings={"checkpointing": True})
    rig.message(AssignSplits(rig.execution, "op0", (pickle.dumps(CollectionSplit()),), True))
    rig.message(TriggerCheckpoint(rig.execution, 1, 0))
    rig.executor.on_message(NotifyCheckpointComplete(rig.execution, 1))
    rig.executor.on_message(TriggerCheckpoint(rig.execution, 2, 0, stop=mode))
    rig.run()
    assert rig.states[-1] == "FINISHED"
    declined = [(one.checkpoint_id, one.reason) for one in rig.outbox.of(DeclineCheckpoint)]
    assert declined == ([(2, "the task has ended")] if mode is None else [])


def test_a_source_whose_last_records_wait_for_credit_is_stopped() -> None:
    """F3, H2: without checkpoints a source ends by itself. Asked to stop before its last records are out, it does not
    decline, which would make the job fail, as other sources have stopped by then."""
    rig = Rig(numbers(2), 0, partitioner=ForwardPartitioner(), credit=1, settings={"checkpointing": False})
    rig.message(AssignSplits(rig.execution, "op0", (pickle.dumps(CollectionSplit()),), True))
    rig.message(stop(rig, StopMode.DRAIN))
    assert rig.states[-1] == "RUNNING"
    rig.executor.on_credit(rig.outputs[0], 100)
    rig.run()
    assert rig.states[-1] == "FINISHED"
    assert rig.outbox.of(DeclineCheckpoint) == []
    assert [one for one in rig.outbox.elements() if isinstance(one, CheckpointBarrier)] == []


def ended_while_a_part_is_stored() -> Rig:
    """Checkpoint 1, after which the source may go, is complete while its part of savepoint 2 is on its way."""
    rig = Rig(numbers(2), 0, partitioner=ForwardPartitioner(), settings={"checkpointing": True})
    rig.message(AssignSplits(rig.execution, "op0", (pickle.dumps(CollectionSplit()),), True))
    rig.message(TriggerCheckpoint(rig.execution, 1, 0))
    rig.background.hold = True
    rig.message(TriggerCheckpoint(rig.execution, 2, 0, SAVEPOINT))
    rig.message(NotifyCheckpointComplete(rig.execution, 1))
    assert rig.states[-1] == "RUNNING"
    return rig


def test_a_task_does_not_leave_a_part_that_is_being_stored() -> None:
    """H1, F3: a task may go while its part of a savepoint is on its way to the store. It waits and acknowledges the
    part, or the savepoint's directory would hold a file that its metadata does not name."""
    rig = ended_while_a_part_is_stored()
    rig.background.run()
    rig.run()
    assert [a.checkpoint_id for a in rig.outbox.of(AcknowledgeCheckpoint)] == [1, 2]
    assert rig.states[-1] == "FINISHED"


def test_a_task_does_not_wait_for_a_part_that_was_given_up() -> None:
    """F3: a store that does not answer holds a task up until the checkpoint is given up, and no longer."""
    rig = ended_while_a_part_is_stored()
    rig.message(NotifyCheckpointAborted(rig.execution, 2))
    assert rig.states[-1] == "FINISHED"


def test_a_task_that_waits_for_its_parts_takes_no_more() -> None:
    """F3, G10: it would never end if each checkpoint came before the last one's part is stored."""
    rig = ended_while_a_part_is_stored()
    rig.message(TriggerCheckpoint(rig.execution, 3, 0))
    (declined,) = rig.outbox.of(DeclineCheckpoint)
    assert declined.checkpoint_id == 3


def test_savepoints_are_aligned() -> None:
    """H1, G5: whatever the mode of checkpoints, a savepoint's barrier overtakes nothing."""
    rig = source_rig(settings={"unaligned": True, "alignment_timeout_ms": 0})
    rig.message(stop(rig, StopMode.SUSPEND))
    barriers = [e for e in rig.outbox.elements() if isinstance(e, CheckpointBarrier)]
    assert [(b.is_unaligned, b.alignment_timeout_ms) for b in barriers] == [(False, None)]


# --- behind them ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpointing", [True, False])
def test_a_suspended_task_waits_for_the_savepoint(checkpointing: bool) -> None:
    """H2, F3: below a suspended source a task says so to those below it, takes its part, and waits; a checkpoint that
    had been taken before does not let it go."""
    rig = Rig(pass_on(), partitioner=ForwardPartitioner(), settings={"checkpointing": checkpointing})
    barrier = CheckpointBarrier(2, 0, SAVEPOINT, ends_job=True)
    rig.feed(0, Batch([1]), CheckpointBarrier(1, 0), EndOfData(False), barrier)
    assert rig.outbox.elements() == [Batch([1]), CheckpointBarrier(1, 0), EndOfData(False), barrier]
    assert [(a.checkpoint_id, a.finished) for a in rig.outbox.of(AcknowledgeCheckpoint)] == [(1, False), (2, False)]
    rig.feed(0, EndOfPartition())
    rig.message(NotifyCheckpointComplete(rig.execution, 1))
    assert rig.states[-1] == "RUNNING"
    rig.message(NotifyCheckpointComplete(rig.execution, 2))
    assert rig.states[-1] == "FINISHED"


def test_the_savepoint_takes_the_place_of_the_last_checkpoint() -> None:
    """H2, F3: a task that has finished and waits for checkpoint 5 when the savepoint that ends the job comes waits for
    that one."""
    rig = Rig(pass_on(), partitioner=ForwardPartitioner())
    barrier = CheckpointBarrier(6, 0, SAVEPOINT, ends_job=True)
    rig.feed(0, EndOfData(True), CheckpointBarrier(5, 0), barrier, EndOfPartition())
    rig.message(NotifyCheckpointAborted(rig.execution, 5))
    rig.message(NotifyCheckpointComplete(rig.execution, 6))
    assert rig.states[-1] == "FINISHED"


def test_a_plain_savepoint_is_not_what_an_end_waits_for() -> None:
    """H1, F3: nobody is notified of a plain savepoint, so a task that has finished waits for a checkpoint."""
    rig = Rig(pass_on())
    rig.feed(0, EndOfData(True), CheckpointBarrier(1, 0, SAVEPOINT), CheckpointBarrier(2, 0), EndOfPartition())
    rig.message(NotifyCheckpointComplete(rig.execution, 2))
    assert rig.states[-1] == "FINISHED"


@pytest.mark.parametrize("mode", ["EXACTLY_ONCE", "AT_LEAST_ONCE"])
def test_a_plain_savepoint_with_checkpoints_off_holds_nobody(mode: str) -> None:
    """H1, F3: with checkpoints off a task that has finished waits for its inputs only, though a savepoint passed it on
    the way to its end."""
    settings = {"checkpointing": False, "exactly_once": mode == "EXACTLY_ONCE"}
    rig = Rig(pass_on(), inputs=2, partitioner=ForwardPartitioner(), settings=settings)
    rig.feed(0, CheckpointBarrier(1, 0, SAVEPOINT), EndOfData(True), EndOfPartition())
    rig.feed(1, EndOfData(True), EndOfPartition())
    assert rig.states[-1] == "FINISHED"


def test_no_timer_fires_between_the_end_and_the_savepoint() -> None:
    """H2, F5: what was suspended stays as the savepoint has it: no timer fires while it is being taken, and they are
    all in it."""
    rig = Rig([partial(KeyedProcessOperator, Tick(), lambda value: value)], 2, partitioner=ForwardPartitioner())
    rig.feed(0, Batch(["a"]), EndOfData(False), SUSPEND)
    rig.feed(1, EndOfData(False))
    rig.advance(1_000)
    rig.feed(1, SUSPEND)
    rig.advance(1_000)
    assert values(rig) == []
    (ack,) = rig.outbox.of(AcknowledgeCheckpoint)
    again = Rig(
        [partial(KeyedProcessOperator, Tick(), lambda value: value)],
        partitioner=ForwardPartitioner(),
        restored=ack.operators,
    )
    again.advance(1_000)
    assert values(again) == ["tick 50"]


class Tick(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_processing_time_timer(50)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield f"tick {timestamp}"


def test_dropped_timers_are_not_in_the_snapshot_after_the_end() -> None:
    """F5: the part of a checkpoint that follows `finish` holds no processing-time timer, though an earlier one did."""
    rig = Rig([partial(KeyedProcessOperator, Tick(), lambda value: value)], partitioner=ForwardPartitioner())
    rig.feed(0, Batch(["a"]), CheckpointBarrier(1, 0))
    rig.message(NotifyCheckpointComplete(rig.execution, 1))
    rig.feed(0, EndOfData(True), CheckpointBarrier(2, 0))
    fired = []
    for ack in rig.outbox.of(AcknowledgeCheckpoint):
        again = Rig(
            [partial(KeyedProcessOperator, Tick(), lambda value: value)],
            partitioner=ForwardPartitioner(),
            restored=ack.operators,
        )
        again.advance(1_000)
        fired.append(values(again))
    assert fired == [["tick 50"], []]


# --- two inputs -----------------------------------------------------------------------------------------------------


class Inputs(StreamOperator):
    """Writes down what comes on which input."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self.log.append(f"record {input_index}")

    def process_watermark(self, timestamp: int) -> None:
        self.log.append("MAX" if timestamp == MAX_WATERMARK else str(timestamp))
        super().process_watermark(timestamp)

    def end_input(self, input_index: int = 0) -> None:
        self.log.append(f"end_input {input_index}")

    def finish(self) -> None:
        self.log.append("finish")


def two_inputs(*input_of_channel: int) -> tuple[Rig, list[str]]:
    """A task whose channels belong to these inputs."""
    rig = Rig([Inputs], len(input_of_channel), partitioner=ForwardPartitioner())
    for channel, index in zip(rig.task.gate.channels, input_of_channel, strict=True):
        channel.input_index = index
    operator: Any = rig.task.chain.operators[0]  # type: ignore[union-attr]
    return rig, operator.log


def test_end_input_of_each_input() -> None:
    """F3: an input has ended when all its channels have; the operator finishes when all inputs have."""
    rig, log = two_inputs(0, 0, 1)
    rig.feed(0, Watermark(MAX_WATERMARK), EndOfData(True))
    assert log == []
    rig.feed(1, Batch([1]), Watermark(MAX_WATERMARK), EndOfData(True))
    assert log == ["record 0", "end_input 0"]
    assert rig.outbox.of(EndOfDataReached) == []
    rig.feed(2, Batch([1]), Watermark(5), Batch([2]), Watermark(MAX_WATERMARK), EndOfData(True))
    assert log[2:] == ["record 1", "5", "record 1", "MAX", "end_input 1", "finish"]
    assert len(rig.outbox.of(EndOfDataReached)) == 1
    assert rig.outbox.elements()[-1] == EndOfData(True)


def test_an_input_that_was_suspended_has_not_ended() -> None:
    """F3, H2: when one input drained earlier and the other one is suspended, the task is suspended: it does not finish,
    and the end that was told of stays told."""
    rig, log = two_inputs(0, 1)
    rig.feed(0, Watermark(MAX_WATERMARK), EndOfData(True), EndOfPartition())
    rig.feed(1, EndOfData(False), SUSPEND)
    assert log == ["end_input 0"]
    assert rig.outbox.elements()[-2:] == [EndOfData(False), SUSPEND]
    (ack,) = rig.outbox.of(AcknowledgeCheckpoint)
    assert not ack.finished


def test_an_ended_input_holds_back_neither_time_nor_checkpoints() -> None:
    """F3, G10, C2: an input that has ended counts as being at the end of time and as aligned."""
    rig, log = two_inputs(0, 1)
    rig.feed(0, Watermark(MAX_WATERMARK), EndOfData(True), EndOfPartition())
    rig.feed(1, Watermark(7), WatermarkStatus(True), WatermarkStatus(False), CheckpointBarrier(1, 0), Watermark(9))
    assert [a.checkpoint_id for a in rig.outbox.of(AcknowledgeCheckpoint)] == [1]
    assert [entry for entry in log if entry in ("7", "9")] == ["7", "9"]
    assert rig.outbox.of(DeclineCheckpoint) == []


def test_mail_without_end_does_not_hold_up_the_end() -> None:
    """F3: a task that only waits to hand over its last buffers ends, whatever it is asked meanwhile."""
    rig = Rig(pass_on(), partitioner=ForwardPartitioner(), credit=0, settings={"checkpointing": False})
    rig.feed(0, Batch([1]), Watermark(MAX_WATERMARK), EndOfData(True), EndOfPartition())
    assert rig.states[-1] == "RUNNING"
    rig.executor.on_credit(rig.outputs[0], 100)
    for checkpoint_id in range(1, 10):
        rig.executor.on_message(TriggerCheckpoint(rig.execution, checkpoint_id, 0))
    rig.executor.step()
    assert rig.states[-1] == "FINISHED"
    assert rig.outbox.elements()[-1] == EndOfPartition()
