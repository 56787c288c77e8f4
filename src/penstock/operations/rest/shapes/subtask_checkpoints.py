"""A checkpoint by the subtasks of one vertex."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.core.checkpoint.statistics import CheckpointRecord, SubtaskCheckpoint
from penstock.core.job.view import VertexView
from penstock.operations.rest.shapes.checkpoints import TaskCheckpoint, select_parts, task_checkpoint
from penstock.operations.rest.shapes.numbers import Summary, summary


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
