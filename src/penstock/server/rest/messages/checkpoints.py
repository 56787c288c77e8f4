"""Checkpoints of a job: counts, summaries, the latest ones and the history.

A checkpoint by the subtasks of one vertex.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from penstock.runtime.checkpoint.statistics import CheckpointRecord, CheckpointStatus, RestoredRecord, SubtaskCheckpoint
from penstock.runtime.job.view import JobView, VertexView
from penstock.server.rest.calls.answers import Summary, summary

#: Flink's text for a checkpoint without a path.
NOWHERE = "<checkpoint-not-externally-addressable>"
CheckpointType = Literal["CHECKPOINT", "UNALIGNED_CHECKPOINT", "SAVEPOINT", "SYNC_SAVEPOINT"]


class Counts(msgspec.Struct, frozen=True):
    """The numbers of checkpoints by state."""

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class Summaries(msgspec.Struct, frozen=True):
    """Summaries over the completed checkpoints in the history."""

    checkpointed_size: Summary
    state_size: Summary
    end_to_end_duration: Summary
    alignment_buffered: Summary
    processed_data: Summary
    persisted_data: Summary


class TaskCheckpoint(msgspec.Struct, frozen=True):
    """A vertex's part of a checkpoint."""

    id: int
    status: str
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int
    processed_data: int
    persisted_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A checkpoint or savepoint."""

    class_name: Literal["completed", "in_progress", "failed"] = msgspec.field(name="className")
    id: int
    status: str
    is_savepoint: bool
    savepoint_format: str | None = msgspec.field(name="savepointFormat")
    trigger_timestamp: int
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int
    processed_data: int
    persisted_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int
    checkpoint_type: CheckpointType
    tasks: dict[str, TaskCheckpoint]
    external_path: str | None = None
    discarded: bool | None = None
    failure_timestamp: int | None = None
    failure_message: str | None = None


class Restored(msgspec.Struct, frozen=True):
    """The snapshot from which the job was last restored."""

    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str | None


class Latest(msgspec.Struct, frozen=True):
    """The latest checkpoint of each kind."""

    completed: Checkpoint | None
    savepoint: Checkpoint | None
    failed: Checkpoint | None
    restored: Restored | None


class Checkpoints(msgspec.Struct, frozen=True):
    """All checkpoint statistics of a job."""

    counts: Counts
    summary: Summaries
    latest: Latest
    history: list[Checkpoint]


def checkpoints(view: JobView) -> Checkpoints:
    """Return the checkpoint statistics of a job, newest first."""
    known = view.checkpoints
    history = [*reversed(view.in_progress), *known.history]
    completed = known.completed + known.savepoints
    done = [record for record in known.history if record.status is CheckpointStatus.COMPLETED]
    return Checkpoints(
        Counts(known.restores, known.triggered, len(view.in_progress), completed, known.failed + known.given_up),
        _summaries(done),
        Latest(
            _checkpoint(known.last),
            _checkpoint(known.last_savepoint),
            _checkpoint(known.last_failed),
            _restored(known.restored),
        ),
        [checkpoint(record, {}) for record in history],
    )


def find_checkpoint(view: JobView, checkpoint_id: int) -> CheckpointRecord | None:
    """Return the remembered checkpoint with this id, or None."""
    known = view.checkpoints
    latest = (known.last, known.last_savepoint, known.last_failed)
    records = [*view.in_progress, *known.history, *(record for record in latest if record is not None)]
    return next((record for record in records if record.checkpoint_id == checkpoint_id), None)


def checkpoint_details(view: JobView, record: CheckpointRecord) -> Checkpoint:
    """Return a checkpoint with its parts by vertex."""
    return checkpoint(
        record,
        {vertex.vertex_id: task_checkpoint(record, vertex, select_parts(record, vertex)) for vertex in view.vertices},
    )


def select_parts(record: CheckpointRecord, vertex: VertexView) -> list[SubtaskCheckpoint]:
    """Return the parts of a checkpoint that the subtasks of a vertex have stored."""
    return [part for part in record.parts if part.vertex == vertex.index]


def task_checkpoint(record: CheckpointRecord, vertex: VertexView, parts: Iterable[SubtaskCheckpoint]) -> TaskCheckpoint:
    """Return a vertex's part of a checkpoint."""
    subtasks = list(parts)
    return TaskCheckpoint(
        record.checkpoint_id,
        record.status.value,
        max((part.acknowledged_ms for part in subtasks), default=-1),
        sum(part.stored_bytes for part in subtasks),
        sum(part.state_bytes for part in subtasks),
        max((part.duration_ms for part in subtasks), default=0),
        0,
        sum(part.processed_bytes for part in subtasks),
        sum(part.persisted_bytes for part in subtasks),
        vertex.parallelism,
        len(subtasks),
    )


def checkpoint(record: CheckpointRecord, tasks: dict[str, TaskCheckpoint]) -> Checkpoint:
    """Convert a record; fields that apply to another status are left out."""
    status = record.status
    is_completed, has_failed = status is CheckpointStatus.COMPLETED, status is CheckpointStatus.FAILED
    return Checkpoint(
        class_name="completed" if is_completed else "failed" if has_failed else "in_progress",
        id=record.checkpoint_id,
        status=status.value,
        is_savepoint=record.is_savepoint,
        savepoint_format="CANONICAL" if record.is_savepoint else None,
        trigger_timestamp=record.triggered_ms,
        latest_ack_timestamp=_acknowledged_ms(record),
        checkpointed_size=record.stored_bytes,
        state_size=record.state_bytes,
        end_to_end_duration=record.duration_ms,
        alignment_buffered=0,
        processed_data=record.processed_bytes,
        persisted_data=record.persisted_bytes,
        num_subtasks=record.subtasks,
        num_acknowledged_subtasks=record.acknowledged,
        checkpoint_type=_type(record),
        tasks=tasks,
        external_path=(record.path or NOWHERE) if is_completed else None,
        discarded=False if is_completed else None,
        failure_timestamp=record.triggered_ms + record.duration_ms if has_failed else None,
        failure_message=record.failure if has_failed else None,
    )


def _checkpoint(record: CheckpointRecord | None) -> Checkpoint | None:
    return None if record is None else checkpoint(record, {})


def _restored(record: RestoredRecord | None) -> Restored | None:
    return None if record is None else Restored(record.checkpoint_id, record.at_ms, record.is_savepoint, record.path)


def _acknowledged_ms(record: CheckpointRecord) -> int:
    last = max((part.acknowledged_ms for part in record.parts), default=-1)
    if last < 0 and record.acknowledged:
        return record.triggered_ms + record.duration_ms
    return last


def _type(record: CheckpointRecord) -> CheckpointType:
    if record.is_savepoint:
        return "SYNC_SAVEPOINT" if record.stops else "SAVEPOINT"
    return "UNALIGNED_CHECKPOINT" if record.is_unaligned else "CHECKPOINT"


def _summaries(done: list[CheckpointRecord]) -> Summaries:
    nothing = summary([0] * len(done))
    return Summaries(
        summary([record.stored_bytes for record in done]),
        summary([record.state_bytes for record in done]),
        summary([record.duration_ms for record in done]),
        nothing,
        summary([record.processed_bytes for record in done]),
        summary([record.persisted_bytes for record in done]),
    )


class Durations(msgspec.Struct, frozen=True, rename={"async_": "async"}):
    """How long tasks paused for the checkpoint, and how long they then wrote in the background (ms)."""

    sync: Summary
    async_: Summary


class Alignments(msgspec.Struct, frozen=True):
    """How long tasks aligned, and the data that they buffered, processed and persisted."""

    buffered: Summary
    processed: Summary
    persisted: Summary
    duration: Summary


class TaskSummary(msgspec.Struct, frozen=True):
    """Distributions over the subtasks that have stored their part."""

    checkpointed_size: Summary
    state_size: Summary
    end_to_end_duration: Summary
    checkpoint_duration: Durations
    alignment: Alignments
    start_delay: Summary


class SyncAsync(msgspec.Struct, frozen=True, rename={"async_": "async"}):
    """The sync and async durations of one subtask."""

    sync: int
    async_: int


class Alignment(msgspec.Struct, frozen=True):
    """The alignment of one subtask."""

    buffered: int
    processed: int
    persisted: int
    duration: int


class CompletedSubtask(msgspec.Struct, frozen=True, tag_field="className", tag="completed"):
    """A subtask that has stored its part."""

    index: int
    ack_timestamp: int
    end_to_end_duration: int
    checkpointed_size: int
    state_size: int
    checkpoint: SyncAsync
    alignment: Alignment
    start_delay: int
    unaligned_checkpoint: bool
    status: Literal["completed"] = "completed"
    aborted: bool = False


class PendingSubtask(msgspec.Struct, frozen=True, tag_field="className", tag="pending_or_failed"):
    """A subtask that has not stored its part, or whose state is unknown."""

    index: int
    status: Literal["pending_or_failed"] = "pending_or_failed"


class TaskCheckpointDetails(TaskCheckpoint, frozen=True, kw_only=True):
    """A vertex's part of a checkpoint, with its subtasks."""

    summary: TaskSummary
    subtasks: list[CompletedSubtask | PendingSubtask]


def task_checkpoint_details(record: CheckpointRecord, vertex: VertexView) -> TaskCheckpointDetails:
    """Return one vertex's part of a checkpoint, with its subtasks."""
    parts = select_parts(record, vertex)
    by_subtask = {part.subtask: part for part in parts}
    subtasks = [
        _completed(record, part) if (part := by_subtask.get(index)) is not None else PendingSubtask(index)
        for index in range(max(vertex.parallelism, 1 + max(by_subtask, default=-1)))
    ]
    together = task_checkpoint(record, vertex, parts)
    return TaskCheckpointDetails(**msgspec.structs.asdict(together), summary=_summary(parts), subtasks=subtasks)


def _completed(record: CheckpointRecord, part: SubtaskCheckpoint) -> CompletedSubtask:
    return CompletedSubtask(
        part.subtask,
        part.acknowledged_ms,
        part.duration_ms,
        part.stored_bytes,
        part.state_bytes,
        SyncAsync(part.sync_ms, part.async_ms),
        Alignment(0, part.processed_bytes, part.persisted_bytes, part.alignment_ms),
        part.start_delay_ms,
        record.is_unaligned,
    )


def _summary(parts: list[SubtaskCheckpoint]) -> TaskSummary:
    return TaskSummary(
        summary([part.stored_bytes for part in parts]),
        summary([part.state_bytes for part in parts]),
        summary([part.duration_ms for part in parts]),
        Durations(summary([part.sync_ms for part in parts]), summary([part.async_ms for part in parts])),
        Alignments(
            summary([0] * len(parts)),
            summary([part.processed_bytes for part in parts]),
            summary([part.persisted_bytes for part in parts]),
            summary([part.alignment_ms for part in parts]),
        ),
        summary([part.start_delay_ms for part in parts]),
    )
