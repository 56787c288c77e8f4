"""Planted bugs in the end of tasks and jobs, and in savepoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import msgspec
from tests.simulation.planting import Mutant, around

from penstock.drivers.simulation.checkpoint_store import MemoryStore
from penstock.runtime.checkpoint import coordinator as coordinator_module
from penstock.runtime.checkpoint.coordinator import CheckpointCoordinator
from penstock.runtime.checkpoint.pending import PendingCheckpoint
from penstock.runtime.checkpoint.savepoints import savepoint_path
from penstock.runtime.job import slots as scheduler_module
from penstock.runtime.job import tasks as job_tasks_module
from penstock.runtime.job.job_master import JobMaster
from penstock.runtime.job.recovery import JobSavepoints
from penstock.runtime.operators.connector import SinkOperator
from penstock.runtime.protocol import CancelTask, NotifyCheckpointComplete
from penstock.runtime.records import EndOfData, EndOfPartition
from penstock.runtime.task.channels.result_partition import ResultPartition
from penstock.runtime.task.checkpoints import Ending
from penstock.runtime.task.processing import Phase, ProcessingLoop
from penstock.runtime.task.stream_task import StreamTask
from penstock.storage import metadata as stored
from penstock.storage.metadata import StateFile


def finish_what_is_cancelled() -> Any:
    def on_mail(original: Any, task: Any, message: Any) -> None:
        if isinstance(message, CancelTask) and task.phase is Phase.PROCESSING:
            task.chain.finish(is_input_ended=False)
        original(task, message)

    return around(StreamTask, "_on_mail", on_mail)


def close_before_the_savepoint_completes() -> Any:
    def on_part_taken(original: Any, ending: Any, barrier: Any) -> None:
        original(ending, barrier)
        if barrier.ends_job:
            ending.is_committed = True

    return around(Ending, "on_part_taken", on_part_taken)


def _without(mode: str) -> Any:
    def carried(original: Any, pending: Any, operator_id: str, subtask: int) -> Any:
        state = original(pending, operator_id, subtask)
        if state is None:
            return None
        lists = {name: handles for name, handles in state.operator.items() if handles[0].mode != mode}
        return msgspec.structs.replace(state, operator=lists)

    return around(PendingCheckpoint, "_carried", carried)


def forget_union_state_of_finished_subtasks() -> Any:
    return _without("union")


@contextmanager
def take_broadcast_state_of_the_first_subtask() -> Iterator[None]:
    """And nothing is carried for it once it has finished."""
    with _without("broadcast"), mock.patch.object(stored, "_broadcaster", return_value=0):
        yield


def wait_for_what_has_finished() -> Any:
    return mock.patch.object(CheckpointCoordinator, "on_finished", return_value=None)


def end_partitions_before_the_data() -> Any:
    def broadcast(original: Any, partition: Any, event: Any, flush: bool = False) -> None:
        if isinstance(event, EndOfPartition):
            return
        if isinstance(event, EndOfData):
            original(partition, EndOfPartition(), flush)
        original(partition, event, flush)

    return around(ResultPartition, "broadcast", broadcast)


def drain_without_the_last_watermark() -> Any:
    def end_source(original: Any, loop: Any) -> None:
        if loop.source.reader.has_ended:
            original(loop)
        else:
            loop._task.finish_data(drain=True)

    return around(ProcessingLoop, "end_source", end_source)


def finish_what_is_only_suspended() -> Any:
    def finish_data(original: Any, task: Any, drain: bool) -> None:
        original(task, True)

    return around(StreamTask, "finish_data", finish_data)


def go_on_behind_the_savepoint() -> Any:
    def on_trigger(original: Any, task: Any, message: Any) -> None:
        original(task, msgspec.structs.replace(message, stop=None))

    return around(StreamTask, "_on_trigger", on_trigger)


def commit_before_the_savepoint_is_visible() -> Any:
    def complete(original: Any, coordinator: Any, pending: Any) -> None:
        if pending.savepoint is not None and pending.savepoint.command.stop is not None:
            coordinator._notify(lambda e: NotifyCheckpointComplete(e.id, pending.checkpoint_id))
        original(coordinator, pending)

    return around(CheckpointCoordinator, "_complete", complete)


def commit_what_a_savepoint_beside_the_job_holds() -> Any:
    def on_visible(original: Any, coordinator: Any, pending: Any, metadata: Any, *written: Any) -> None:
        original(coordinator, pending, metadata, *written)
        if pending.savepoint is not None:
            coordinator._notify(lambda e: NotifyCheckpointComplete(e.id, pending.checkpoint_id))

    return around(CheckpointCoordinator, "_on_visible", on_visible)


def go_on_after_the_last_savepoint() -> Any:
    def deploy(original: Any, master: Any, restored: Any) -> None:
        def processing(*args: Any) -> Any:
            return scheduler_module.deployments(*args[:6])

        with mock.patch.object(job_tasks_module, "deployments", processing):
            original(master, restored)
        if master.checkpoints.last is not None:
            master._sources.start(restored)

    return around(JobMaster, "_deploy", deploy)


def leave_files_with_the_checkpoints() -> Any:
    def contained(original: Any, store: Any, file: StateFile, path: str) -> StateFile:
        if file.path is not None and not file.path.startswith(f"{path}/"):
            return file
        return original(store, file, path)  # type: ignore[no-any-return]

    return around(MemoryStore, "contained", contained)


def leave_what_was_given_up() -> Any:
    return mock.patch.object(MemoryStore, "discard_savepoint", return_value=None)


def use_the_names_of_savepoints_again() -> Any:
    def path(directory: str, job_id: str, checkpoint_id: int, attempt: int = 0) -> str:
        return savepoint_path(directory, job_id, checkpoint_id)

    return mock.patch.object(coordinator_module, "savepoint_path", path)


def answer_before_the_job_has_ended() -> Any:
    def on_settled(original: Any, savepoints: Any, news: Any) -> None:
        savepoints._effects.answer(news.request.waiter, news.path, news.error)

    return around(JobSavepoints, "on_settled", on_settled)


def skip_committing_what_had_finished() -> Any:
    return mock.patch.object(SinkOperator, "recover_finished", return_value=None)


def refuse_what_a_task_is_not_ready_for() -> Any:
    def abort(original: Any, coordinator: Any, pending: Any, savepoint: Any, reason: str, is_unready: bool) -> None:
        original(coordinator, pending, savepoint, reason, False)

    return around(CheckpointCoordinator, "_abort_savepoint", abort)


def leave_tasks_below_those_that_finished() -> Any:
    """Without a barrier: nobody is left above them who would send it."""

    def on_finished(original: Any, coordinator: Any, execution: Any) -> None:
        with mock.patch.object(coordinator, "_ask"):
            original(coordinator, execution)

    return around(CheckpointCoordinator, "on_finished", on_finished)


#: Each mutant, the kinds of violation that give it away, and a seed from which on it is found soon.
MUTANTS_OF_ENDS: dict[Mutant, tuple[tuple[str, ...], int]] = {
    finish_what_is_cancelled: (("finish",), 3),
    close_before_the_savepoint_completes: (("waiter", "output", "lost"), 6),
    forget_union_state_of_finished_subtasks: (("lost", "output"), 132),
    take_broadcast_state_of_the_first_subtask: (("output", "lost"), 5200),
    end_partitions_before_the_data: (("stalled",), 6),
    drain_without_the_last_watermark: (("lost", "output"), 117),
    finish_what_is_only_suspended: (("output",), 9),
    go_on_behind_the_savepoint: (("polled",), 2),
    commit_before_the_savepoint_is_visible: (("outside",), 134),
    commit_what_a_savepoint_beside_the_job_holds: (("outside",), 12),
    go_on_after_the_last_savepoint: (("resumed", "stalled"), 9),
    leave_files_with_the_checkpoints: (("savepoint",), 755),
    leave_what_was_given_up: (("leaked-savepoint",), 16),
    use_the_names_of_savepoints_again: (("storage", "savepoint"), 208),
    answer_before_the_job_has_ended: (("waiter",), 6),
    skip_committing_what_had_finished: (("lost", "output"), 161),
    wait_for_what_has_finished: (("owed",), 3),
    refuse_what_a_task_is_not_ready_for: (("unready",), 223),
    leave_tasks_below_those_that_finished: (("invalid",), 593),
}
