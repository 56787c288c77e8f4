"""Records in flight through a checkpoint and back: order, credit, and the same output as without a failure."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.runtime.task.fakes import Rig

from penstock.runtime.operators.record.stateless import MapOperator
from penstock.runtime.protocol import AcknowledgeCheckpoint, NotifyCheckpointAborted, TriggerCheckpoint
from penstock.runtime.records import (
    MAX_WATERMARK,
    Batch,
    CheckpointBarrier,
    Element,
    EndOfData,
    EndOfPartition,
    Watermark,
)
from penstock.runtime.task.channels.in_flight import capture_channel
from penstock.runtime.task.channels.result_partition import ForwardPartitioner, HashPartitioner
from penstock.state.snapshot import operator_bytes
from penstock.storage.metadata import (
    CHANNEL_MODE,
    ChannelState,
    Direction,
    OperatorStateHandle,
    OperatorSubtaskState,
    StateFile,
    checksum,
)

ECHO = [partial(MapOperator, lambda value: value)]
BARRIER = CheckpointBarrier(1, 0, is_unaligned=True)
UNALIGNED = {"unaligned": True}


def in_flight(direction: str, edge: int, peer: int, *elements: Element) -> dict[str, Any]:
    """What a checkpoint holds of one channel."""
    capture = capture_channel(ChannelState(Direction(direction), edge, peer), elements)
    assert capture is not None
    data = operator_bytes(capture.items)
    file = StateFile(len(data), checksum(data), data=data)
    return {capture.channel.stored_name: (OperatorStateHandle(CHANNEL_MODE, len(capture.items), file),)}


def restored(*channels: dict[str, Any]) -> dict[str, OperatorSubtaskState]:
    return {"op0": OperatorSubtaskState({}, {name: h for channel in channels for name, h in channel.items()})}


def records(elements: list) -> list:
    return [v for e in elements if isinstance(e, Batch) for v in e.values]


def test_into_input_channels() -> None:
    """G5, G8: recovered records come ahead of new ones of their channel, in order, with timestamps and watermarks;
    they used no credit, so none is returned for them."""
    state = restored(
        in_flight("in", 0, 0, Batch([1, 2], [10, 20]), Watermark(15), Batch([3], [30])),
        in_flight("in", 0, 1, Batch(["x"])),
    )
    rig = Rig(ECHO, inputs=2, partitioner=ForwardPartitioner(), restored=state)
    assert [t for e in rig.outbox.elements() if isinstance(e, Batch) for t in e.timestamps or ()] == [10, 20, 30]
    assert [r for r in records(rig.outbox.elements()) if r != "x"] == [1, 2, 3]
    assert "x" in records(rig.outbox.elements())
    assert rig.outbox.credits == [("there", channel, 2) for channel in rig.inputs]
    rig.feed(0, Batch([4]))
    assert records(rig.outbox.elements())[-1] == 4
    assert rig.outbox.credits[2:] == [("there", rig.inputs[0], 1)]
    rig.feed(1, Watermark(40))
    assert Watermark(15) in rig.outbox.elements()


def test_into_output_channels() -> None:
    """G5, G8: recovered records leave ahead of new ones of their channel, and only with credit."""
    state = restored(
        in_flight("out", 9, 0, Batch(["old 1"]), Batch(["old 2"])), in_flight("out", 9, 1, Batch(["other"]))
    )
    rig = Rig(ECHO, partitioner=HashPartitioner(len), consumers=2, credit=0, restored=state)
    rig.feed(0, Batch(["a", "bb", "ccc", "dddd"]))
    assert rig.outbox.buffers == []
    for _ in range(2):
        for channel in rig.outputs:
            rig.executor.on_credit(channel, 1)
        rig.run()
    sent = [records(rig.outbox.elements(channel)) for channel in rig.outputs]
    assert sent[0][:2] == ["old 1", "old 2"]
    assert sent[1][:1] == ["other"]
    assert sorted(r for part in sent for r in part if len(r) < 5) == ["a", "bb", "ccc", "dddd"]
    assert [sum(c == channel for _, c, _ in rig.outbox.buffers) for channel in rig.outputs] == [2, 2]


def test_recovered_output_holds_the_task_back_until_it_is_sent() -> None:
    """B1, G5: what was recovered counts as waiting output: it must leave before the task can finish."""
    rig = Rig(
        ECHO,
        partitioner=ForwardPartitioner(),
        credit=0,
        settings={"checkpointing": False},
        restored=restored(in_flight("out", 9, 0, Batch(["old"]))),
    )
    rig.feed(0, EndOfData(True))
    rig.feed(0, EndOfPartition())
    assert rig.states[-1] == "RUNNING"
    rig.executor.on_credit(rig.outputs[0], 9)
    rig.run()
    assert rig.states[-1] == "FINISHED"
    assert records(rig.outbox.elements()) == ["old"]


def test_recovered_output_leaves_though_nothing_follows() -> None:
    """G5: the consumer may have given its credit before the task was there, and may wait for these very records."""
    rig = Rig(ECHO, partitioner=ForwardPartitioner(), restored=restored(in_flight("out", 9, 0, Batch(["old"]))))
    assert records(rig.outbox.elements()) == ["old"]


@pytest.mark.parametrize(
    "element", [Watermark(MAX_WATERMARK), EndOfData(True), EndOfPartition(), CheckpointBarrier(2, 0)]
)
def test_what_its_sender_says_again_is_not_kept(element: Element) -> None:
    """G5: ends and barriers are no state: a recovered sender says them again."""
    assert capture_channel(ChannelState(Direction.IN, 0, 0), [element]) is None


def taken(rig: Rig) -> OperatorSubtaskState:
    (ack,) = rig.outbox.of(AcknowledgeCheckpoint)
    state: OperatorSubtaskState = ack.operators["op0"]
    return state


def read_channels(state: OperatorSubtaskState) -> dict[str, int]:
    return {name.removeprefix("_penstock_in_flight."): h[0].items for name, h in state.operator.items()}


def test_through_a_failure() -> None:
    """G5, G8: what an unaligned checkpoint captured in inputs and outputs, put back, gives the same output in the same
    order as no failure at all."""
    rig = Rig(ECHO, inputs=2, partitioner=ForwardPartitioner(), credit=0, settings={**UNALIGNED, "buffer_records": 1})
    for n in range(10):
        rig.feed(0, Batch([("a", n)]))  # two fill the output, the others wait at the input
        rig.feed(1, Batch([("b", n)]))
    rig.feed(0, BARRIER)
    assert rig.outbox.elements() == [BARRIER]
    assert rig.outbox.of(AcknowledgeCheckpoint) == []
    rig.feed(1, Batch([("b", 10)]))
    rig.feed(1, BARRIER)
    rig.feed(0, Batch([("a", 10)]))  # behind the barrier
    state = taken(rig)
    assert {h[0].mode for h in state.operator.values()} == {CHANNEL_MODE}
    assert set(read_channels(state)) == {"in.0.0", "in.0.1", "out.9.0"}
    assert sum(read_channels(state).values()) == 21

    other = Rig(ECHO, inputs=2, partitioner=ForwardPartitioner(), settings=UNALIGNED, restored={"op0": state})
    other.feed(0, Batch([("a", 10)]))
    got = records(other.outbox.elements())
    assert [n for name, n in got if name == "a"] == list(range(11))
    assert [n for name, n in got if name == "b"] == list(range(11))


def test_a_blocked_task_takes_its_part() -> None:
    """G5: a task without credit, which aligned checkpoints would wait for, takes its part at once."""
    rig = Rig(ECHO, partitioner=ForwardPartitioner(), credit=0, settings={**UNALIGNED, "buffer_records": 1})
    for n in range(12):
        rig.feed(0, Batch([n]))
    rig.feed(0, BARRIER)
    assert read_channels(taken(rig)) == {"in.0.0": 10, "out.9.0": 2}  # two full output buffers


def test_a_recovered_channel_is_captured_again() -> None:
    """G5: what was recovered and is still in flight belongs to the next checkpoint too."""
    state = restored(in_flight("in", 0, 0, *(Batch([n]) for n in range(12))), in_flight("out", 9, 0, Batch(["out"])))
    rig = Rig(ECHO, partitioner=ForwardPartitioner(), credit=0, settings=UNALIGNED, restored=state)
    rig.feed(0, Batch(["new"]))
    rig.feed(0, CheckpointBarrier(2, 0, is_unaligned=True))
    again = Rig(ECHO, partitioner=ForwardPartitioner(), settings=UNALIGNED, restored={"op0": taken(rig)})
    assert records(again.outbox.elements()) == ["out", *range(12), "new"]


def test_no_part_of_an_aborted_checkpoint_is_left() -> None:
    """G3, G5: a checkpoint that is given up while its records in flight are being captured is forgotten."""
    rig = Rig(ECHO, inputs=2, partitioner=ForwardPartitioner(), settings=UNALIGNED)
    rig.feed(0, BARRIER)
    rig.message(NotifyCheckpointAborted(rig.execution, 1))
    rig.feed(1, BARRIER)
    assert rig.outbox.of(AcknowledgeCheckpoint) == []
    assert rig.task.snapshots._incomplete == {}
    for channel in (0, 1):
        rig.feed(channel, CheckpointBarrier(2, 0, is_unaligned=True))
    assert [a.checkpoint_id for a in rig.outbox.of(AcknowledgeCheckpoint)] == [2]


@pytest.mark.parametrize("mails", [0, 3])
@pytest.mark.parametrize("given_up", range(8))
def test_what_comes_after_a_barrier_waits_until_the_task_has_heard_of_it(given_up: int, mails: int) -> None:
    """G5: however many barriers and messages have arrived ahead, no record after a barrier goes into its checkpoint."""
    rig = Rig(ECHO, inputs=2, partitioner=ForwardPartitioner(), settings=UNALIGNED)
    for number in range(1, given_up + 1):
        rig.message(NotifyCheckpointAborted(rig.execution, number))
    last = given_up + 1
    for number in range(1, last + 1):
        for channel in rig.inputs:
            rig.executor.on_buffer(channel, [CheckpointBarrier(number, 0, is_unaligned=True)])
    rig.executor.on_buffer(rig.inputs[0], [Batch(["behind"])])
    for _ in range(mails):
        rig.executor.on_message(NotifyCheckpointAborted(rig.execution, 0))
    rig.run()
    elements = rig.outbox.elements()
    assert elements[-2] == CheckpointBarrier(last, 0, is_unaligned=True)
    assert records(elements[-1:]) == ["behind"]
    assert read_channels(taken(rig)) == {}


@pytest.mark.parametrize("savepoint_path", [None, "/savepoints/1"])
@pytest.mark.parametrize("timeout_ms", [0, 50])
def test_the_barrier_that_a_source_injects(timeout_ms: int, savepoint_path: str | None) -> None:
    """G5, H1: overtaking at once, after a time, or never: a savepoint is always aligned."""
    rig = Rig(ECHO, 0, partitioner=ForwardPartitioner(), settings={**UNALIGNED, "alignment_timeout_ms": timeout_ms})
    rig.message(TriggerCheckpoint(rig.execution, 1, 7, savepoint_path))
    (barrier,) = [e for e in rig.outbox.elements() if isinstance(e, CheckpointBarrier)]
    assert barrier == CheckpointBarrier(
        1,
        7,
        savepoint_path,
        is_unaligned=savepoint_path is None and timeout_ms == 0,
        alignment_timeout_ms=timeout_ms if timeout_ms and savepoint_path is None else None,
    )


def test_the_time_out_is_a_deadline_of_the_task() -> None:
    """G5: a task that waits for barriers steps when the alignment's time is up, though nothing arrives."""
    rig = Rig(ECHO, inputs=2, partitioner=ForwardPartitioner(), settings=UNALIGNED)
    rig.feed(0, CheckpointBarrier(1, 0, alignment_timeout_ms=50))
    rig.feed(1, Batch(["held", "back"]))
    rig.advance(49)
    assert BARRIER not in rig.outbox.elements()
    rig.advance(1)
    assert BARRIER in rig.outbox.elements()
    rig.feed(1, BARRIER)
    assert [(a.alignment_ms, a.checkpoint_id) for a in rig.outbox.of(AcknowledgeCheckpoint)] == [(50, 1)]
