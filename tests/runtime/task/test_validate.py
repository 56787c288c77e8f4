"""Each invariant of a task is found to be broken when it is: a fault is planted, and `validate` names it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.runtime.task.fakes import Rig
from tests.runtime.task.gate_rig import GateRig

from penstock.runtime.operators.record.stateless import MapOperator
from penstock.runtime.protocol import CancelTask, ChannelId, NotifyCheckpointComplete
from penstock.runtime.records import Batch, CheckpointBarrier, EndOfData, EndOfPartition
from penstock.runtime.task.channels.input_gate import RecoveredBuffer
from penstock.runtime.task.channels.result_partition import ForwardPartitioner
from penstock.runtime.task.checkpoints import HISTORY_FILES_MAX, EndOfTask, HeldBarrier, StateHistories, StoredState
from penstock.runtime.task.processing import PERMITTED, Phase
from penstock.storage.metadata import KeyedStateHandle, NativeStateHandle, StateFile

ECHO = [partial(MapOperator, lambda value: value)]
OVERTAKING = CheckpointBarrier(1, 0, is_unaligned=True)
LAST = HeldBarrier(CheckpointBarrier(7, 0, "memory://savepoint", ends_job=True), 0, 0)


def refuses(rig: Rig, words: str) -> None:
    """The task, which was right before, is not any more."""
    with pytest.raises(AssertionError, match=words):
        rig.task.validate()


def sound(inputs: int = 1, **options: Any) -> Rig:
    rig = Rig(ECHO, inputs, partitioner=ForwardPartitioner(), **options)
    rig.task.validate()
    rig.executor.validate()
    return rig


# --- the gate -------------------------------------------------------------------------------------------------------


def waiting(*channels: int) -> GateRig:
    """Two channels, in which records have arrived."""
    rig = GateRig(2)
    for channel in channels:
        rig.put(channel, "r1", "r2")
    rig.gate.validate(2)
    return rig


def test_a_channel_that_waits_for_no_turn_is_found() -> None:
    rig = waiting(0)
    rig.gate.channels[0].is_queued = False
    with pytest.raises(AssertionError, match="comes to its turn"):
        rig.gate.validate(2)


def test_a_turn_that_its_channel_does_not_know_of_is_found() -> None:
    rig = waiting(0, 1)
    rig.gate._ready.append(rig.gate.channels[0])
    with pytest.raises(AssertionError, match="one turn"):
        rig.gate.validate(2)
    rig = waiting(0)
    rig.gate._ready.append(rig.gate.channels[1])
    with pytest.raises(AssertionError, match="knows it"):
        rig.gate.validate(2)


def test_more_buffers_than_there_was_credit_for_are_found() -> None:
    """B1: recovered ones came without."""
    rig = waiting(0, 0)
    rig.gate.channels[0].prepend(RecoveredBuffer([Batch(["r0"])]))
    rig.gate.validate(2)
    rig.put(0, "r3")
    with pytest.raises(AssertionError, match="3 buffers wait, for which there never was credit"):
        rig.gate.validate(2)


def test_a_buffer_that_is_lost_half_polled_is_found() -> None:
    rig = waiting(0)
    rig.gate.poll()
    rig.gate.validate(2)
    rig.gate.channels[0].queue.clear()
    with pytest.raises(AssertionError, match="polled last"):
        rig.gate.validate(2)


def test_a_partition_that_ends_without_its_data_is_found() -> None:
    """F3: EndOfData comes first."""
    rig = waiting()
    rig.send(0, "e")
    with pytest.raises(AssertionError, match="behind its data"):
        rig.gate.validate(2)
    rig.gate.channels[0].end_of_data = EndOfData(True)
    rig.gate.validate(2)
    rig.put(0, "r1")
    with pytest.raises(AssertionError, match="nothing waits behind the end"):
        rig.gate.validate(2)


def test_a_cut_through_what_has_not_arrived_is_found() -> None:
    rig = GateRig(2, "unaligned")
    rig.put(0, "r1")
    rig.put(0, "o1")
    rig.gate.validate(2)
    rig.gate.channels[0]._cuts[1] += 1
    with pytest.raises(AssertionError, match="cuts what has arrived"):
        rig.gate.validate(2)


# --- barriers -------------------------------------------------------------------------------------------------------


def refused(rig: GateRig, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        rig.handler.validate()


def handler_rig(mode: str, script: str, channels: int = 3) -> Any:
    rig = GateRig(channels, mode)
    rig.play(script)
    rig.handler.validate()
    return rig


def test_a_channel_that_is_not_held_back_is_found() -> None:
    """G2."""
    rig = handler_rig("aligned", "0:b1 1:b1")
    rig.gate.channels[0].is_blocked = False
    refused(rig, "channels .1. are held back, and .0, 1. have delivered")


def test_a_channel_that_stays_held_back_is_found() -> None:
    """G3: whatever ends an alignment releases all channels."""
    rig = handler_rig("aligned", "0:b1")
    rig.handler._aligning = None
    refused(rig, "held back for an alignment")


@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_an_alignment_that_can_only_end_by_a_time_out_is_found(mode: str) -> None:
    rig = handler_rig(mode, "0:b1 1:b1")
    rig.gate.channels[2].ended = True
    refused(rig, "waits for no channel")


def test_an_alignment_on_what_did_not_begin_or_was_given_up_is_found() -> None:
    rig = handler_rig("aligned", "0:b1")
    rig.handler._aborted = {1}
    refused(rig, "was given up")
    rig.handler._latest_id = 0
    refused(rig, "did not begin")


def test_counting_that_waits_for_nobody_or_goes_too_far_is_found() -> None:
    """G5."""
    rig = handler_rig("at least once", "0:b1 0:b2")
    rig.handler._counting[1][1].update((1, 2))
    refused(rig, "checkpoint 1 waits for no channel")
    rig = handler_rig("at least once", "0:b1")
    rig.handler._latest_id = 0
    refused(rig, "did not begin")
    rig.gate.block(rig.gate.channels[1])
    refused(rig, "holds no channel back")
    rig = handler_rig("at least once", "0:b1")
    rig.handler._counting.update(dict.fromkeys(range(2, 60), rig.handler._counting[1]))
    refused(rig, "59 checkpoints are counted")


def test_a_capture_that_is_whole_or_belongs_to_nothing_is_found() -> None:
    """G5."""
    rig = handler_rig("unaligned", "1.r1 0:o1")
    assert rig.handler.capturing_id == 1
    rig.gate.channels[1].ended = True
    refused(rig, "has ended")
    rig.handler._open = set()
    refused(rig, "waits for no channel")
    rig.handler._latest_id = 0
    refused(rig, "did not begin")
    rig = handler_rig("unaligned", "0:o1")
    rig.handler._capturing_id = None
    refused(rig, "listened to without")
    rig.handler._open = set()
    rig.handler._in_flight = {(0, 0): [Batch(["r1"])]}
    refused(rig, "kept without a capture")


def test_a_capture_of_what_was_held_back_is_found() -> None:
    """G5: a channel that had delivered the barrier holds nothing ahead of it, and will not deliver it again."""
    rig = handler_rig("unaligned", "0:t1 +10")
    assert rig.handler._open == {1, 2}
    rig.handler._open.add(0)
    refused(rig, "has the barriers of channels that it listens to")


def test_a_capture_beside_an_alignment_is_found() -> None:
    """G3: at most one of them is in progress."""
    rig = handler_rig("unaligned", "0:b1")
    rig.handler._capturing_id = 1
    refused(rig, "while another one is aligned on")


# --- outputs --------------------------------------------------------------------------------------------------------


def spent(subpartition: Any) -> None:
    subpartition.credit = -1


def kept_though_full(subpartition: Any) -> None:
    subpartition._queue.append([Batch([1])])


def flushed_and_kept(subpartition: Any) -> None:
    subpartition._open, subpartition._open_records, subpartition._wants_flush = [Batch([1])], 1, True


def flush_of_nothing(subpartition: Any) -> None:
    subpartition._wants_flush = True


def overfull(subpartition: Any) -> None:
    subpartition._open_records = 99


def miscounted(subpartition: Any) -> None:
    subpartition._open_records = 1


def too_many_elements(subpartition: Any) -> None:
    subpartition._open = [Batch([1])] * 256


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (spent, "without credit"),
        (kept_though_full, "full leaves while there is credit"),
        (flushed_and_kept, "flushed leaves while there is credit"),
        (flush_of_nothing, "owed to what is open"),
        (overfull, "a full buffer is closed"),
        (too_many_elements, "a full buffer is closed"),
        (miscounted, "empty buffer has no records"),
    ],
)
def test_output_that_should_have_left_is_found(break_it: Callable[[Any], None], words: str) -> None:
    """B1."""
    rig = sound()
    break_it(rig.task.partitions[9].subpartitions[0])
    refuses(rig, words)


# --- the task -------------------------------------------------------------------------------------------------------


def ended(**options: Any) -> Rig:
    """A task that waits for its last checkpoint."""
    rig = sound(**options)
    rig.feed(0, EndOfData(True))
    rig.feed(0, EndOfPartition())
    assert rig.task.phase is Phase.DATA_FINISHED
    rig.task.validate()
    return rig


def test_permissions_of_another_phase_are_found() -> None:
    rig = sound()
    rig.task.life.may = PERMITTED[Phase.CLOSING]
    refuses(rig, "what the table says")


def test_an_end_that_does_not_follow_the_phase_is_found() -> None:
    """F3."""
    rig = sound()
    rig.task.ending.how = EndOfTask.FINISHED
    refuses(rig, "knows how its data ended once it has")


def test_data_that_goes_on_behind_the_input_is_found() -> None:
    """F3, F4."""
    rig = sound()
    rig.task.gate.channels[0].end_of_data = EndOfData(True)
    refuses(rig, "ends when its input does")
    rig = ended()
    rig.task.gate.channels[0].ended = False
    rig.task.gate.channels[0].end_of_data = None
    refuses(rig, "ends when its input does")


def test_a_task_that_could_close_and_does_not_is_found() -> None:
    """F3: the job would wait for it."""
    rig = ended()
    rig.task.ending.last_checkpoint_id, rig.task.ending.is_committed = 1, True
    refuses(rig, "closes as soon as it may")


def test_a_task_that_closes_before_its_last_checkpoint_is_found() -> None:
    """F3: its last output would never be committed."""
    rig = ended(credit=1)
    rig.task.life.move(Phase.CLOSING)
    refuses(rig, "and not before")


def test_an_end_that_no_checkpoint_commits_is_found() -> None:
    rig = ended()
    rig.task.ending.is_committed = True
    refuses(rig, "which there must be")


def test_a_barrier_that_is_held_for_no_reason_is_found() -> None:
    rig = sound()
    rig.task.ending.held = LAST
    refuses(rig, "in DRAINING")
    rig = ended()
    rig.task.ending.held = LAST
    refuses(rig, "behind the end of the data")


def test_a_task_without_operators_is_found() -> None:
    rig = sound()
    rig.task._loop = None
    refuses(rig, "has operators once it is opened")


def test_mail_behind_the_end_is_found() -> None:
    rig = sound()
    task = rig.task
    rig.message(CancelTask(rig.execution))
    task.validate()
    task.mail.append(NotifyCheckpointComplete(rig.execution, 1))
    with pytest.raises(AssertionError, match="has answered its mail"):
        task.validate()


def test_a_part_that_nobody_completes_is_found() -> None:
    """G5."""
    rig = sound(2, settings={"unaligned": True})
    rig.feed(0, OVERTAKING)
    rig.task.validate()
    rig.task.snapshots.forget(1)
    refuses(rig, "those of .1. are captured")


def test_a_history_of_other_key_groups_is_found() -> None:
    """D4."""
    histories, file = StateHistories(), StateFile(1, 0, data=b"x")
    histories.validate((0, 7))
    histories.confirmed = StoredState({("op", "sums"): KeyedStateHandle(0, 3, (file,))})
    with pytest.raises(AssertionError, match="histories have the key groups"):
        histories.validate((0, 7))
    histories.confirmed = StoredState(native={"op": NativeStateHandle("rocksdb", 4, 7, {})})
    with pytest.raises(AssertionError, match="histories have the key groups"):
        histories.validate((0, 7))
    histories.confirmed = StoredState({("op", "sums"): KeyedStateHandle(0, 7, (file,) * (HISTORY_FILES_MAX + 1))})
    with pytest.raises(AssertionError, match="'sums' has 17 files"):
        histories.validate((0, 7))


# --- the executor ---------------------------------------------------------------------------------------------------


def test_channels_that_lead_to_no_task_are_found() -> None:
    """A buffer or a credit for them would be lost, or kept for ever."""
    rig = sound()
    channel, other = rig.inputs[0], ChannelId(5, 0, 0, 0)
    task = rig.executor._consumers.pop(channel)
    with pytest.raises(AssertionError, match="buffers reach"):
        rig.executor.validate()
    rig.executor._consumers[channel] = task
    subpartition = rig.executor._producers.pop(rig.outputs[0])
    with pytest.raises(AssertionError, match="credit reaches"):
        rig.executor.validate()
    rig.executor._producers[rig.outputs[0]] = subpartition
    rig.executor._early_credit = {other: 1}
    rig.executor.validate()
    rig.executor._early_credit = {rig.outputs[0]: 1}
    with pytest.raises(AssertionError, match="yet to come"):
        rig.executor.validate()


def test_a_task_that_is_over_or_deployed_twice_is_found() -> None:
    rig = sound()
    rig.executor._tasks *= 2
    with pytest.raises(AssertionError, match="deployed once"):
        rig.executor.validate()
    rig.task.discard()
    with pytest.raises(AssertionError, match="forgotten in the same turn"):
        rig.executor.validate()
