"""A task with calls out: what it takes meanwhile, how it ends, and the savepoints that end it (A1, B3, F3, G1, H2)."""

from __future__ import annotations

import asyncio
import pickle
from functools import partial
from typing import Any

import pytest
from tests.runtime.task.fakes import Rig

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collection import CollectionSource, CollectionSplit
from penstock.datastream.functions import KeyedProcessFunction
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.calls import AsyncWaitOperator
from penstock.runtime.operators.connector import SourceOperator
from penstock.runtime.operators.record.process import KeyedProcessOperator
from penstock.runtime.operators.record.stateless import MapOperator
from penstock.runtime.protocol import (
    AcknowledgeCheckpoint,
    AssignSplits,
    CancelTask,
    DeclineCheckpoint,
    EndOfDataReached,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    StartTask,
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
)
from penstock.runtime.task.channels.result_partition import ForwardPartitioner

SAVEPOINT = "memory://savepoints/of-this-test"
LAST = CheckpointBarrier(7, 0, SAVEPOINT, ends_job=True)


async def wait(ms: int) -> list[int]:
    """Gives a record back after as many ms as it says."""
    await asyncio.sleep(ms / 1000)
    return [ms]


def calls(capacity: int = 100, function: Any = wait, timeout_ms: int = 0) -> Any:
    return partial(AsyncWaitOperator, function, True, timeout_ms, capacity)


def rig_of(*factories: Any, **options: Any) -> Rig:
    return Rig(list(factories) or [calls()], partitioner=ForwardPartitioner(), **options)


def source_rig(records: list[int], *factories: Any, **options: Any) -> Rig:
    """A source chained with operators, by default an asynchronous one; it polls two records a batch, to its end."""
    source = partial(SourceOperator, CollectionSource(records), WatermarkStrategy.no_watermarks())
    rig = Rig([source, *(factories or (calls(),))], 0, partitioner=ForwardPartitioner(), **options)
    rig.message(AssignSplits(rig.execution, "op0", (pickle.dumps(CollectionSplit()),), True))
    return rig


def values(rig: Rig) -> list[Any]:
    return [value for e in rig.outbox.elements() if isinstance(e, Batch) for value in e.values]


def restored(rig: Rig, *factories: Any) -> list[Any]:
    """What a task that begins with the last acknowledged state emits without any input."""
    again = Rig(
        list(factories) or [calls()],
        partitioner=ForwardPartitioner(),
        restored=rig.outbox.of(AcknowledgeCheckpoint)[-1].operators,
    )
    again.advance(1_000_000)
    return values(again)


# --- while it is full -------------------------------------------------------------------------------------------------


def test_a_task_with_all_calls_out_takes_no_input() -> None:
    """B3: what has not been started waits in its channel, without credit for more, until a call returns."""
    rig = rig_of(calls(capacity=2))
    rig.feed(0, Batch([10, 20]))
    before = len(rig.outbox.credits)
    rig.feed(0, Batch([30]))
    rig.feed(0, Batch([5]))
    assert len(rig.outbox.credits) == before
    rig.advance(10)
    assert values(rig) == [10]
    assert len(rig.outbox.credits) == before + 1
    rig.advance(100)
    assert values(rig) == [10, 20, 30, 5]
    assert len(rig.outbox.credits) == before + 2


def test_a_full_source_is_not_polled() -> None:
    """B3: a source chained with calls is not asked for more than they take."""
    rig = source_rig([10] * 100, calls(capacity=3))
    assert rig.task.metrics().records_in == 4  # two batches of two: the second one made it full
    rig.advance(10)
    assert rig.task.metrics().records_in == 6
    rig.advance(1_000)
    assert values(rig) == [10] * 100


def test_a_full_task_fires_its_timers() -> None:
    """A1, B3: time-outs are what may free it."""

    class Late:
        async def async_invoke(self, value: str) -> list[str]:
            await asyncio.get_running_loop().create_future()
            return []

        def timeout(self, value: str) -> list[str]:
            return [f"late {value}"]

    rig = rig_of(calls(1, Late(), 50))
    rig.feed(0, Batch(["a", "b"]))
    rig.advance(99)
    assert values(rig) == ["late a"]
    rig.advance(1)
    assert values(rig) == ["late a", "late b"]


def test_an_overtaking_barrier_is_taken_by_a_full_task() -> None:
    """G5: an unaligned barrier needs no place; records called and not called are in the snapshot."""
    rig = rig_of(calls(capacity=1), settings={"unaligned": True})
    rig.feed(0, Batch([10, 20]))
    rig.feed(0, Batch([30]))
    rig.feed(0, CheckpointBarrier(1, 0, is_unaligned=True))
    assert rig.outbox.elements() == [CheckpointBarrier(1, 0, is_unaligned=True)]
    (ack,) = rig.outbox.of(AcknowledgeCheckpoint)
    again = Rig([calls()], partitioner=ForwardPartitioner(), restored=ack.operators)
    again.advance(1_000)
    assert values(again) == [10, 20, 30]


def test_an_aligned_barrier_comes_behind_the_records_ahead_of_it() -> None:
    """G1: with room for them it does not wait for their calls, whose records are in the snapshot."""
    rig = rig_of()
    rig.feed(0, Batch([10, 20], [1, 2]), Watermark(2), CheckpointBarrier(1, 0), Batch([30], [3]))
    assert rig.outbox.elements() == [CheckpointBarrier(1, 0)]
    assert restored(rig) == [10, 20]
    rig.advance(1_000)
    assert rig.outbox.elements()[1:] == [Batch([10], [1]), Batch([20], [2]), Watermark(2), Batch([30], [3])]


def test_blocked_output_holds_results_back() -> None:
    """B3: what has returned waits in the operator while its task's output is blocked, and counts as out."""
    rig = rig_of(calls(capacity=4), credit=0, settings={"buffer_records": 1})
    rig.feed(0, Batch([1, 2, 3, 4, 5]))
    rig.advance(100)
    assert not rig.coroutines.running
    assert len(rig.task.partitions[9].subpartitions[0]._queue) == 2
    rig.executor.on_credit(rig.outputs[0], 1_000)
    rig.run()
    assert values(rig) == [1, 2, 3, 4, 5]


def test_results_do_not_wait_in_an_open_buffer() -> None:
    """B3: while calls are out and there is nothing to do, what has returned is sent."""
    rig = rig_of(calls(capacity=2), settings={"buffer_timeout_ms": -1, "buffer_records": 100})
    rig.feed(0, Batch([10, 1_000, 1_000]))
    rig.advance(10)
    assert values(rig) == [10]


def test_nothing_is_called_before_the_start() -> None:
    """H4: of a job that begins from a savepoint no call is made before all its tasks are open."""
    rig = rig_of()
    rig.feed(0, Batch([10]), CheckpointBarrier(1, 0))
    state = rig.outbox.of(AcknowledgeCheckpoint)[0].operators
    again = Rig([calls()], partitioner=ForwardPartitioner(), restored=state, awaits_start=True)
    again.advance(1_000)
    assert again.coroutines.started == 0
    again.message(StartTask(again.execution))
    again.advance(1_000)
    assert values(again) == [10]


def test_an_error_of_a_call_fails_the_task() -> None:
    """A1: in its turn, and with the record."""

    async def fail(value: int) -> list[int]:
        raise ConnectionError("no service")

    rig = rig_of(calls(function=fail))
    rig.feed(0, Batch([10]))
    assert rig.states[-1] == "FAILED"
    failure = rig.outbox.messages[-1].failure
    assert (failure.operator_name, failure.record) == ("Op 0", "10")
    assert failure.reason == "ConnectionError: no service"


def test_cancelling_a_task_cancels_its_calls() -> None:
    """F4: no call outlives its task."""
    rig = rig_of()
    rig.feed(0, Batch([10, 20]))
    rig.message(CancelTask(rig.execution))
    rig.coroutines.deliver()
    assert rig.states[-1] == "CANCELED"
    assert not rig.coroutines.running


# --- the end ----------------------------------------------------------------------------------------------------------


def test_the_end_comes_behind_all_results() -> None:
    """F3: results, the last watermark, EndOfData; nothing of it while calls are out, and the job is told only then."""
    rig = rig_of()
    rig.feed(0, Batch([10, 50]), Watermark(MAX_WATERMARK), EndOfData(True))
    rig.advance(40)
    assert rig.outbox.elements() == [Batch([10])]
    assert not rig.outbox.of(EndOfDataReached)
    rig.advance(10)
    assert rig.outbox.elements()[1:] == [Batch([50]), Watermark(MAX_WATERMARK), EndOfData(True)]
    assert len(rig.outbox.of(EndOfDataReached)) == 1


def test_the_end_of_a_source_comes_behind_all_results() -> None:
    """F3: the same where the source is in the same task."""
    rig = source_rig([10, 50, 20])
    rig.advance(49)
    assert rig.outbox.elements() == [Batch([10])]
    assert rig.next_due_ms() == 50, "nothing is to be done before"
    rig.advance(1)
    assert values(rig) == [10, 50, 20]
    assert rig.outbox.elements()[-2:] == [Watermark(MAX_WATERMARK), EndOfData(True)]


class Log(StreamOperator):
    """Notes what it is told."""

    log: list[Any]

    def __init__(self) -> None:
        self.log = []

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self.log += batch.values
        self.output.collect(batch)

    def end_input(self, input_index: int = 0) -> None:
        self.log.append("end_input")

    def finish(self) -> None:
        self.log.append("finish")


def log_of(rig: Rig, index: int) -> list[Any]:
    operator: Any = rig.task.chain.operators[index]  # type: ignore[union-attr]
    log: list[Any] = operator.log
    return log


def test_operators_downstream_end_after_the_results() -> None:
    """F3: in a chain of calls, each operator ends when all ahead of it have, and had all that they gave."""
    rig = rig_of(Log, calls(), Log, calls(function=lambda value: wait(value * 2)), Log)
    rig.feed(0, Batch([10]), EndOfData(True))
    assert [log_of(rig, i) for i in (0, 2, 4)] == [[10, "end_input", "finish"], [], []]
    rig.advance(10)
    assert [log_of(rig, i) for i in (2, 4)] == [[10, "end_input", "finish"], []]
    rig.advance(20)
    assert log_of(rig, 4) == [20, "end_input", "finish"]


class AtTheEnd(KeyedProcessFunction):
    """Emits at the end of the input only."""

    drain_processing_time_timers = True

    def process_element(self, value: int, ctx: Any) -> Any:
        ctx.timer_service().register_processing_time_timer(10**9)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key()


def test_what_operators_emit_at_their_end_is_called_too() -> None:
    """F3, F5: records that come out of the end of the operator ahead are waited for like all others."""
    rig = rig_of(partial(KeyedProcessOperator, AtTheEnd(), lambda value: value), calls())
    rig.feed(0, Batch([10, 20]), EndOfData(True))
    assert rig.outbox.elements() == []
    rig.advance(20)
    assert values(rig) == [10, 20]
    assert rig.outbox.elements()[-1] == EndOfData(True)


@pytest.mark.parametrize("unaligned", [False, True])
def test_a_barrier_behind_the_end_waits_for_the_last_calls(unaligned: bool) -> None:
    """G1, G10: its producers finish when that checkpoint is complete, so it must be the task's last one as well."""
    rig = rig_of(settings={"unaligned": unaligned})
    barrier = CheckpointBarrier(1, 0, is_unaligned=unaligned)
    rig.feed(0, Batch([10]), EndOfData(True), *([] if unaligned else [barrier]))
    if unaligned:
        rig.feed(0, barrier)
    assert not rig.outbox.of(AcknowledgeCheckpoint)
    rig.advance(10)
    assert [ack.finished for ack in rig.outbox.of(AcknowledgeCheckpoint)] == [True]
    assert restored(rig) == []
    rig.feed(0, EndOfPartition())
    rig.message(NotifyCheckpointComplete(rig.execution, 1))
    assert rig.states[-1] == "FINISHED"


def test_an_alignment_that_the_end_interrupts_does_not_time_out() -> None:
    """G5: the barrier of one channel came ahead of the end of the other: the rest waits, and nothing is to be done."""
    rig = rig_of(inputs=2, settings={"unaligned": True, "alignment_timeout_ms": 5})
    rig.feed(0, EndOfData(True), CheckpointBarrier(1, 0, alignment_timeout_ms=5))
    rig.feed(1, Batch([50]), EndOfData(True))
    assert rig.next_due_ms() == 50
    rig.advance(50)
    rig.feed(1, CheckpointBarrier(1, 0, alignment_timeout_ms=5))
    assert [ack.finished for ack in rig.outbox.of(AcknowledgeCheckpoint)] == [True]


def test_a_source_takes_part_in_checkpoints_during_its_last_calls() -> None:
    """G1, G10: it begins the barrier itself; the records on their way are in the snapshot."""
    rig = source_rig([10])
    rig.message(TriggerCheckpoint(rig.execution, 1, 0))
    assert [a.finished for a in rig.outbox.of(AcknowledgeCheckpoint)] == [False]
    rig.message(NotifyCheckpointComplete(rig.execution, 1))
    rig.advance(10)
    assert rig.outbox.elements()[:2] == [CheckpointBarrier(1, 0), Batch([10])]
    assert rig.states[-1] == "RUNNING", "that checkpoint was not one of its end"


def test_without_checkpoints_the_task_finishes_after_its_last_call() -> None:
    """F3: and not before, though its inputs are gone."""
    rig = rig_of(settings={"checkpointing": False})
    rig.feed(0, Batch([10]), EndOfData(True), EndOfPartition())
    assert rig.states[-1] == "RUNNING"
    rig.advance(10)
    assert rig.states[-1] == "FINISHED"
    assert rig.outbox.elements() == [Batch([10]), EndOfData(True), EndOfPartition()]


# --- stop-with-savepoint ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpointing", [True, False])
def test_with_drain_the_savepoint_comes_behind_the_calls(checkpointing: bool) -> None:
    """H2: a source that is stopped takes no more records, waits for the calls, ends, and then takes its part, in which
    no record is left."""
    rig = source_rig([10] * 100, calls(capacity=2), settings={"checkpointing": checkpointing})
    rig.message(TriggerCheckpoint(rig.execution, 1, 0, SAVEPOINT, stop=StopMode.DRAIN))
    assert rig.outbox.elements() == []
    rig.advance(10)
    barrier = CheckpointBarrier(1, 0, SAVEPOINT, ends_job=True)
    assert rig.outbox.elements() == [Batch([10, 10]), Watermark(MAX_WATERMARK), EndOfData(True), barrier]
    (ack,) = rig.outbox.of(AcknowledgeCheckpoint)
    assert ack.finished
    rig.message(NotifyCheckpointComplete(rig.execution, 1))
    assert rig.states[-1] == "FINISHED"


@pytest.mark.parametrize("factories", [[], [MapOperator]])
def test_without_drain_the_records_are_in_the_savepoint(factories: list[Any]) -> None:
    """H2: a suspended task waits for nothing; what is out is called again by the job that begins from the savepoint,
    and nothing that returns later is emitted."""
    rig = source_rig([10] * 100, calls(capacity=2))
    rig.message(TriggerCheckpoint(rig.execution, 1, 0, SAVEPOINT, stop=StopMode.SUSPEND))
    barrier = CheckpointBarrier(1, 0, SAVEPOINT, ends_job=True)
    assert rig.outbox.elements() == [EndOfData(False), barrier]
    rig.advance(1_000)
    assert values(rig) == []
    (ack,) = rig.outbox.of(AcknowledgeCheckpoint)
    source = partial(SourceOperator, CollectionSource([10] * 100), WatermarkStrategy.no_watermarks())
    again = Rig([source, calls()], 0, partitioner=ForwardPartitioner(), restored=ack.operators)
    again.message(AssignSplits(again.execution, "op0", (), True))
    again.advance(1_000)
    assert values(again) == [10] * 100


@pytest.mark.parametrize("settings", [{}, {"exactly_once": False}, {"unaligned": True}], ids=str)
def test_below_the_source_the_savepoint_waits_too(settings: dict[str, Any]) -> None:
    """H2, F3: its barrier has come on all channels while calls are out; it is passed on behind the end."""
    rig = rig_of(inputs=2, settings=settings)
    rig.feed(0, Batch([50]), EndOfData(True), LAST)
    rig.feed(1, EndOfData(True), LAST)
    assert rig.outbox.elements() == []
    rig.advance(50)
    assert rig.outbox.elements() == [Batch([50]), EndOfData(True), LAST]
    assert [a.finished for a in rig.outbox.of(AcknowledgeCheckpoint)] == [True]
    rig.feed(0, EndOfPartition())
    rig.feed(1, EndOfPartition())
    rig.message(NotifyCheckpointComplete(rig.execution, 7))
    assert rig.states[-1] == "FINISHED"


def test_a_producer_that_ends_completes_the_alignment_of_the_last_savepoint() -> None:
    """H2, G3: a channel that ends counts as aligned, during the last calls too: the savepoint waits all the same."""
    rig = rig_of(inputs=2)
    rig.feed(0, Batch([50]), EndOfData(True), LAST)
    rig.feed(1, EndOfData(True), EndOfPartition())
    assert rig.outbox.elements() == []
    rig.advance(50)
    assert rig.outbox.elements() == [Batch([50]), EndOfData(True), LAST]


def test_below_suspended_sources_nothing_waits() -> None:
    """H2: when one of the sources was only suspended, the end is none, and the records are in the savepoint."""
    rig = rig_of(inputs=2)
    rig.feed(0, Batch([50]), EndOfData(True), LAST)
    rig.feed(1, EndOfData(False), LAST)
    assert rig.outbox.elements() == [EndOfData(False), LAST]
    assert restored(rig) == [50]


def test_a_source_that_waits_for_its_last_calls_is_stopped() -> None:
    """H2: whatever the mode, its end is a true one, for its input was exhausted: the savepoint waits for it."""
    for mode in StopMode:
        rig = source_rig([50])
        rig.message(TriggerCheckpoint(rig.execution, 1, 0, SAVEPOINT, stop=mode))
        assert rig.outbox.elements() == []
        rig.advance(50)
        barrier = CheckpointBarrier(1, 0, SAVEPOINT, ends_job=True)
        assert rig.outbox.elements() == [Batch([50]), Watermark(MAX_WATERMARK), EndOfData(True), barrier]


def test_no_other_barrier_overtakes_the_one_that_waits() -> None:
    """G3: a newer barrier would make the savepoint's a late one, so it is declined."""
    rig = source_rig([50])
    rig.message(TriggerCheckpoint(rig.execution, 1, 0, SAVEPOINT, stop=StopMode.DRAIN))
    rig.message(TriggerCheckpoint(rig.execution, 2, 0))
    assert [d.checkpoint_id for d in rig.outbox.of(DeclineCheckpoint)] == [2]
    rig.advance(50)
    assert [e.checkpoint_id for e in rig.outbox.elements() if isinstance(e, CheckpointBarrier)] == [1]


def test_a_savepoint_that_is_given_up_meanwhile_is_not_taken() -> None:
    """G3, H2: its barrier is not sent after the calls; cancelling the task works throughout."""
    rig = source_rig([50])
    rig.message(TriggerCheckpoint(rig.execution, 1, 0, SAVEPOINT, stop=StopMode.DRAIN))
    rig.message(NotifyCheckpointAborted(rig.execution, 1))
    rig.advance(50)
    assert rig.outbox.elements()[-1] == EndOfData(True)
    assert not rig.outbox.of(AcknowledgeCheckpoint)
    rig = source_rig([50])
    rig.message(TriggerCheckpoint(rig.execution, 1, 0, SAVEPOINT, stop=StopMode.DRAIN))
    rig.message(CancelTask(rig.execution))
    rig.advance(50)
    assert rig.states[-1] == "CANCELED"
    assert rig.outbox.elements() == []
