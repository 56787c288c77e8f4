"""Planted bugs: each a patch of one method of the runtime, applied for the length of a `with`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from penstock.core.checkpoint.coordinator import CheckpointCoordinator
from penstock.core.job.job_master import JobMaster
from penstock.core.job.source_coordinator import SourceCoordinator
from penstock.core.operators.process import EVENT_TIMERS
from penstock.core.operators.sink import SinkOperator
from penstock.core.operators.source import SourceOperator
from penstock.core.protocol import ChannelId, NotifyCheckpointComplete
from penstock.core.records import CheckpointBarrier
from penstock.core.task.executor import TaskExecutor
from penstock.core.task.input_gate import InputGate
from penstock.core.task.result_partition import Subpartition
from penstock.state.heap import HeapKeyedStateBackend

Mutant = Callable[[], Any]


def _around(owner: Any, name: str, mutate: Callable[..., Any]) -> Any:
    """Patch a method by a function that is handed the original one first."""
    original = getattr(owner, name)

    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
        return mutate(original, self, *args, **kwargs)

    return mock.patch.object(owner, name, patched)


def _place(channel: ChannelId) -> tuple[int, int, int]:
    return channel.edge, channel.producer, channel.consumer


def skip_alignment_of_one_channel() -> Any:
    def block(original: Any, gate: Any, channel: Any) -> None:
        if channel.index != 1:
            original(gate, channel)

    return _around(InputGate, "block", block)


def commit_when_prepared() -> Any:
    def snapshot_state(original: Any, sink: Any, checkpoint_id: int) -> Any:
        captured = original(sink, checkpoint_id)
        for committables in sink._pending.values():
            sink._committer.commit(committables)
        return captured

    return _around(SinkOperator, "snapshot_state", snapshot_state)


def restore_sources_one_record_late() -> Any:
    def initialize_state(original: Any, source: Any) -> None:
        splits = source.context.operator_state.list_state("_penstock_splits")
        splits.update([replace(s, position=s.position + 1) for s in splits.get()])
        original(source)

    return _around(SourceOperator, "initialize_state", initialize_state)


def acknowledge_without_keyed_state() -> Any:
    return mock.patch.object(HeapKeyedStateBackend, "capture", return_value=[])


def lose_timers_on_restore() -> Any:
    def restore(original: Any, backend: Any, name: str, key: Any, namespace: Any, value: Any) -> None:
        if name != EVENT_TIMERS:
            original(backend, name, key, namespace, value)

    return _around(HeapKeyedStateBackend, "restore", restore)


def take_buffers_of_former_attempts() -> Any:
    def on_buffer(original: Any, executor: Any, channel: Any, buffer: Any) -> None:
        here = next((c for c in executor._consumers if _place(c) == _place(channel)), channel)
        original(executor, here, buffer)

    return _around(TaskExecutor, "on_buffer", on_buffer)


def forget_what_an_aborted_checkpoint_prepared() -> Any:
    def notify_checkpoint_aborted(self: Any, checkpoint_id: int) -> None:
        self._pending.pop(checkpoint_id, None)

    return mock.patch.object(SinkOperator, "notify_checkpoint_aborted", notify_checkpoint_aborted)


def do_not_commit_again_after_restore() -> Any:
    def initialize_state(original: Any, sink: Any) -> None:
        sink.context.operator_state.list_state("_penstock_committables").update([])
        original(sink)

    return _around(SinkOperator, "initialize_state", initialize_state)


def notify_before_metadata_is_visible() -> Any:
    def complete(original: Any, coordinator: Any, pending: Any) -> None:
        coordinator._notify(lambda e: NotifyCheckpointComplete(e.id, pending.checkpoint_id))
        original(coordinator, pending)

    return _around(CheckpointCoordinator, "_complete", complete)


def forget_the_enumerator() -> Any:
    def reset(original: Any, source: Any, restored: Any) -> None:
        original(source, None)

    return _around(SourceCoordinator, "reset", reset)


def reuse_checkpoint_ids() -> Any:
    def start(original: Any, coordinator: Any) -> None:
        coordinator._last_id = 0
        original(coordinator)

    return _around(CheckpointCoordinator, "start", start)


def let_barriers_overtake() -> Any:
    def add_event(original: Any, subpartition: Any, event: Any) -> None:
        if isinstance(event, CheckpointBarrier):
            subpartition._open.insert(0, event)
        else:
            original(subpartition, event)

    return _around(Subpartition, "add_event", add_event)


def keep_the_oldest_checkpoint_only() -> Any:
    def on_visible(original: Any, coordinator: Any, pending: Any, metadata: Any) -> None:
        original(coordinator, pending, metadata)
        coordinator._discard(coordinator.completed[-1].checkpoint_id)

    return _around(CheckpointCoordinator, "_on_visible", on_visible)


def forget_that_a_channel_is_held_back() -> Any:
    def unblock_all(self: InputGate) -> None:
        for channel in self.channels[1:]:
            if channel.is_blocked:
                channel.is_blocked = False
                self._enqueue(channel)

    return mock.patch.object(InputGate, "unblock_all", unblock_all)


def recover_from_the_beginning() -> Any:
    def prepare_recovery(self: Any) -> None:
        self._deploy(None)

    return mock.patch.object(JobMaster, "_prepare_recovery", prepare_recovery)


#: each with the kinds of violation that give it away
MUTANTS: dict[Mutant, tuple[str, ...]] = {
    skip_alignment_of_one_channel: ("output",),
    commit_when_prepared: ("outside",),
    restore_sources_one_record_late: ("output",),
    acknowledge_without_keyed_state: ("output",),
    lose_timers_on_restore: ("output",),
    take_buffers_of_former_attempts: ("raised", "task-failed", "output", "stalled"),
    forget_what_an_aborted_checkpoint_prepared: ("output",),
    do_not_commit_again_after_restore: ("output",),
    notify_before_metadata_is_visible: ("outside",),
    forget_the_enumerator: ("output",),
    reuse_checkpoint_ids: ("checkpoint-id",),
    let_barriers_overtake: ("output",),
    keep_the_oldest_checkpoint_only: ("missing-file", "storage", "failed"),
    forget_that_a_channel_is_held_back: ("stalled",),
    recover_from_the_beginning: ("output",),
}


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """The runtime with this bug in it."""
    with mutant():
        yield
