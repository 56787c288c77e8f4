"""Planted bugs: each a patch of the runtime at one place, applied for the length of a `with`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from tests.simulation.mutants_of_broadcasts import MUTANTS_OF_BROADCASTS
from tests.simulation.mutants_of_ends import MUTANTS_OF_ENDS
from tests.simulation.mutants_of_jobs import MUTANTS_OF_JOBS
from tests.simulation.mutants_of_regions import MUTANTS_OF_REGIONS
from tests.simulation.mutants_of_rescaling import MUTANTS_OF_RESCALING
from tests.simulation.mutants_of_tasks import MUTANTS_OF_TASKS
from tests.simulation.planting import Mutant, around

from penstock.drivers.simulation import cluster as master_module
from penstock.runtime.checkpoint import coordinator as coordinator_module
from penstock.runtime.checkpoint.coordinator import CheckpointCoordinator
from penstock.runtime.checkpoint.pending import CheckpointsFailed, PendingCheckpoint
from penstock.runtime.checkpoint.savepoints import Recovery
from penstock.runtime.effects import Turns, carry_out
from penstock.runtime.graph import ExecutionGraph
from penstock.runtime.job.recovery import AttemptReady, JobRecovery
from penstock.runtime.job.sources import SourceCoordinator
from penstock.runtime.operators.connector import SinkOperator, SourceOperator
from penstock.runtime.operators.record.process import EVENT_TIMERS
from penstock.runtime.protocol import AcknowledgeCheckpoint, NotifyCheckpointComplete
from penstock.runtime.records import Batch, CheckpointBarrier
from penstock.runtime.task.barriers import AlignedBarrierHandler, AtLeastOnceBarrierHandler, UnalignedBarrierHandler
from penstock.runtime.task.channels.input_gate import InputChannel, InputGate
from penstock.runtime.task.channels.result_partition import Subpartition
from penstock.runtime.task.checkpoints import SnapshotWriter, TaskCheckpoints
from penstock.runtime.task.processing import Phase
from penstock.runtime.task.stream_task import Opening, StreamTask
from penstock.state.backend import HeapKeyedStateBackend
from penstock.storage.metadata import garbage


def skip_alignment_of_one_channel() -> Any:
    def block(original: Any, gate: Any, channel: Any) -> None:
        if channel.index != 1:
            original(gate, channel)

    return around(InputGate, "block", block)


def commit_when_prepared() -> Any:
    def snapshot_state(original: Any, sink: Any, checkpoint_id: int) -> Any:
        captured = original(sink, checkpoint_id)
        for committables in sink._pending.values():
            sink._committer.commit(committables)
        return captured

    return around(SinkOperator, "snapshot_state", snapshot_state)


def restore_sources_one_record_late() -> Any:
    def initialize_state(original: Any, source: Any) -> None:
        splits = source.context.operator_state.list_state("_penstock_splits")
        splits.update([replace(s, position=s.position + 1) for s in splits.get()])
        original(source)

    return around(SourceOperator, "initialize_state", initialize_state)


def acknowledge_without_keyed_state() -> Any:
    return mock.patch.object(HeapKeyedStateBackend, "capture", return_value=[])


def lose_timers_on_restore() -> Any:
    def restore(original: Any, backend: Any, name: str, *more: Any) -> None:
        if name != EVENT_TIMERS:
            original(backend, name, *more)

    return around(HeapKeyedStateBackend, "restore", restore)


def forget_what_an_aborted_checkpoint_prepared() -> Any:
    def notify_checkpoint_aborted(self: Any, checkpoint_id: int) -> None:
        self._pending.pop(checkpoint_id, None)

    return mock.patch.object(SinkOperator, "notify_checkpoint_aborted", notify_checkpoint_aborted)


def do_not_commit_again_after_restore() -> Any:
    def commit_restored(original: Any, sink: Any) -> None:
        sink.context.operator_state.list_state("_penstock_committables", "committable").update([])
        original(sink)

    return around(SinkOperator, "_commit_restored", commit_restored)


def notify_before_metadata_is_visible() -> Any:
    def complete(original: Any, coordinator: Any, pending: Any) -> None:
        coordinator._notify(lambda e: NotifyCheckpointComplete(e.id, pending.checkpoint_id))
        original(coordinator, pending)

    return around(CheckpointCoordinator, "_complete", complete)


def forget_the_enumerator() -> Any:
    def reset(original: Any, source: Any, restored: Any, checkpoint_id: int = 0) -> None:
        original(source, None, checkpoint_id)

    return around(SourceCoordinator, "reset", reset)


def reuse_checkpoint_ids() -> Any:
    def start(original: Any, coordinator: Any) -> None:
        coordinator._last_id = 0
        original(coordinator)

    return around(CheckpointCoordinator, "start", start)


def let_barriers_overtake() -> Any:
    def add_event(original: Any, subpartition: Any, event: Any) -> None:
        if isinstance(event, CheckpointBarrier):
            subpartition._open.insert(0, event)
        else:
            original(subpartition, event)

    return around(Subpartition, "add_event", add_event)


def forget_that_a_channel_is_held_back() -> Any:
    def unblock_all(self: InputGate) -> None:
        for channel in self.channels[1:]:
            if channel.is_blocked:
                channel.is_blocked = False
                self._enqueue(channel)

    return mock.patch.object(InputGate, "unblock_all", unblock_all)


def recover_from_the_beginning() -> Any:
    def prepare_attempt(self: Any) -> None:
        self._tell(AttemptReady(None))

    return mock.patch.object(JobRecovery, "prepare_attempt", prepare_attempt)


def forget_held_back_data() -> Any:
    def unblock_all(original: Any, gate: Any) -> None:
        for channel in gate.channels:
            if channel.is_blocked and channel._position == 0:
                channel.queue.clear()
        original(gate)

    return around(InputGate, "unblock_all", unblock_all)


def do_not_release_the_channels_of_an_aborted_checkpoint() -> Any:
    def on_aborted(original: Any, handler: Any, checkpoint_id: int) -> None:
        with mock.patch.object(handler.gate, "unblock_all"):
            original(handler, checkpoint_id)

    return around(AlignedBarrierHandler, "on_aborted", on_aborted)


def count_closed_channels_twice() -> Any:
    def complete_if_aligned(original: Any, handler: Any) -> None:
        closed = sum(c.ended for c in handler.gate.channels)
        if handler._aligning is not None and len(handler._arrived) + 2 * closed >= len(handler.gate.channels):
            handler._arrived.update(range(len(handler.gate.channels)))
        original(handler)

    return around(AlignedBarrierHandler, "_complete_if_aligned", complete_if_aligned)


def lose_records_in_flight_on_restore() -> Any:
    return mock.patch.object(Opening, "_recover_channel", return_value=None)


def lose_overtaken_output() -> Any:
    def overtake(original: Any, subpartition: Any, barrier: Any) -> Any:
        original(subpartition, barrier)
        return []

    return around(Subpartition, "overtake", overtake)


def capture_what_is_behind_the_barrier_too() -> Any:
    return mock.patch.object(InputChannel, "cut", return_value=None)


def do_not_capture_what_arrives_late() -> Any:
    def on_arrival(original: Any, handler: Any, channel: Any, buffer: Any) -> None:
        kept = [e for e in buffer if not isinstance(e, Batch)]
        if kept:
            original(handler, channel, kept)

    return around(UnalignedBarrierHandler, "on_arrival", on_arrival)


def listen_to_former_attempts() -> Any:
    def find(original: Any, graph: Any, execution_id: Any) -> Any:
        return graph.vertices[execution_id.vertex].subtasks[execution_id.subtask].current

    return around(ExecutionGraph, "find", find)


def acknowledge_what_is_not_stored() -> Any:
    def write(original: Any, writer: Any, operator_id: str, name: str, data: bytes) -> Any:
        file = original(writer, operator_id, name, data)
        if file.path is not None and name == "sums":
            writer._storage.delete_file(file.path)
        return file

    return around(SnapshotWriter, "write", write)


def acknowledge_before_the_snapshot() -> Any:
    def trigger_checkpoint(original: Any, checkpoints: Any, barrier: Any, *args: Any, **kwargs: Any) -> None:
        is_source = isinstance(next(iter(checkpoints._chain.operators), None), SourceOperator)
        if is_source or checkpoints._life.phase is not Phase.PROCESSING:
            original(checkpoints, barrier, *args, **kwargs)
            return
        checkpoints._forward(barrier)
        checkpoints._tell(AcknowledgeCheckpoint(checkpoints._execution, barrier.checkpoint_id, {}))

    return around(TaskCheckpoints, "trigger_checkpoint", trigger_checkpoint)


def finish_without_a_last_checkpoint() -> Any:
    def close_when_done(original: Any, task: Any) -> None:
        task.ending.is_committed = True
        original(task)

    return around(StreamTask, "close_when_done", close_when_done)


def complete_with_one_acknowledgement_missing() -> Any:
    def acknowledge(original: Any, pending: Any, ack: Any, now_ms: int) -> bool:
        original(pending, ack, now_ms)
        if len(pending.missing) == 1:
            pending.missing.clear()
        return not pending.missing

    return around(PendingCheckpoint, "acknowledge", acknowledge)


def commit_what_later_checkpoints_hold() -> Any:
    def notify_checkpoint_complete(original: Any, sink: Any, checkpoint_id: int) -> None:
        original(sink, max([checkpoint_id, *sink._pending]))

    return around(SinkOperator, "notify_checkpoint_complete", notify_checkpoint_complete)


def confirm_changes_when_captured() -> Any:
    def capture(original: Any, backend: Any, checkpoint_id: int) -> Any:
        captured = original(backend, checkpoint_id)
        backend.confirm(checkpoint_id)
        return captured

    return around(HeapKeyedStateBackend, "capture", capture)


def delete_shared_files_early() -> Any:
    def collect(listing: Any, kept: Any, oldest_live_id: int, revoked: Any = ()) -> list[str]:
        directories = tuple(f"chk-{m.checkpoint_id}/" for m in kept)
        old = [p for p in garbage(listing, [], oldest_live_id) if not p.startswith(directories)]
        return [p for p in old if not p.endswith("_metadata")] + [p for p in old if p.endswith("_metadata")]

    return mock.patch.object(coordinator_module, "garbage", collect)


def delete_nothing() -> Any:
    return mock.patch.object(CheckpointCoordinator, "sweep")


def delete_what_checkpoints_in_the_making_build_on() -> Any:
    bases = property(lambda pending: [], lambda pending, value: None)
    return mock.patch.object(PendingCheckpoint, "bases", bases, create=True)


def begin_attempts_anew_in_a_new_job_master() -> Any:
    return mock.patch.object(Recovery, "first_attempt", 0)


def forget_checkpoints_in_a_new_job_master() -> Any:
    return mock.patch.object(CheckpointCoordinator, "recover", return_value=None)


def count_one_barrier_only() -> Any:
    def complete(original: Any, handler: Any) -> None:
        for _, arrived, *_ in handler._counting.values():
            arrived.update(range(len(handler.gate.channels)))
        original(handler)

    return around(AtLeastOnceBarrierHandler, "_complete", complete)


def carry_out_the_newest_effect_first() -> Any:
    def backwards(effects: Any, *ports: Any) -> None:
        carry_out(reversed(effects), *ports)

    return mock.patch.object(master_module, "carry_out", backwards)


def lose_the_news_that_checkpoints_failed() -> Any:
    def tell(original: Any, turns: Any, news: Any) -> None:
        if not isinstance(news, CheckpointsFailed):
            original(turns, news)

    return around(Turns, "tell", tell)


#: Each mutant, the kinds of violation that give it away, and a seed from which on it is found soon.
MUTANTS: dict[Mutant, tuple[tuple[str, ...], int]] = {
    skip_alignment_of_one_channel: (("output",), 366),
    commit_when_prepared: (("outside",), 1),
    restore_sources_one_record_late: (("lost", "output"), 20),
    acknowledge_without_keyed_state: (("output", "lost"), 17),
    lose_timers_on_restore: (("output", "lost"), 57),
    forget_what_an_aborted_checkpoint_prepared: (("lost", "output"), 5),
    do_not_commit_again_after_restore: (("lost", "output"), 3),
    notify_before_metadata_is_visible: (("outside",), 3),
    forget_the_enumerator: (("output",), 14),
    reuse_checkpoint_ids: (("checkpoint-id", "failed", "polled", "storage"), 3),
    let_barriers_overtake: (("lost", "output"), 3),
    forget_that_a_channel_is_held_back: (("stalled",), 6),
    recover_from_the_beginning: (("order", "output"), 23),
    forget_held_back_data: (("stalled", "output"), 14),
    do_not_release_the_channels_of_an_aborted_checkpoint: (("stalled",), 300),
    count_closed_channels_twice: (("output", "stalled"), 362),
    lose_records_in_flight_on_restore: (("output",), 68),
    lose_overtaken_output: (("output",), 92),
    capture_what_is_behind_the_barrier_too: (("stalled", "output"), 5),
    do_not_capture_what_arrives_late: (("output",), 152),
    listen_to_former_attempts: (("stalled",), 72),
    acknowledge_what_is_not_stored: (("missing-file",), 28),
    acknowledge_before_the_snapshot: (("lost", "output"), 3),
    finish_without_a_last_checkpoint: (("lost", "output"), 1),
    complete_with_one_acknowledgement_missing: (("lost", "output"), 3),
    commit_what_later_checkpoints_hold: (("outside",), 3),
    confirm_changes_when_captured: (("output", "lost"), 74),
    delete_shared_files_early: (("missing-file",), 8),
    delete_nothing: (("leaked-file",), 21),
    delete_what_checkpoints_in_the_making_build_on: (("missing-file",), 224),
    begin_attempts_anew_in_a_new_job_master: (("output", "outside"), 3),
    forget_checkpoints_in_a_new_job_master: (("checkpoint-id", "output"), 115),
    count_one_barrier_only: (("lost", "stalled"), 85),
    carry_out_the_newest_effect_first: (("stalled", "output", "lost"), 22),
    lose_the_news_that_checkpoints_failed: (("output", "stalled"), 351),
    **MUTANTS_OF_BROADCASTS,
    **MUTANTS_OF_ENDS,
    **MUTANTS_OF_JOBS,
    **MUTANTS_OF_REGIONS,
    **MUTANTS_OF_RESCALING,
    **MUTANTS_OF_TASKS,
}


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """The runtime with this bug in it."""
    with mutant():
        yield
