"""Checkpoints and rescales of a job in the form of Flink's API.

`Checkpoints` are the checkpoints of a job: counts, summaries, the latest ones and the history.

`TaskCheckpointDetails` is a checkpoint by the subtasks of one vertex.

`Rescale` is a change of a job's parallelism, in the form of Flink's adaptive scheduler. A record is made when the tasks
with the new parallelism are deployed, so it is complete and has no duration. A request that the job rejects, fails to
apply or has not applied yet is IGNORED, FAILED, or without an end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.runtime.checkpoint.statistics import CheckpointRecord, CheckpointStatus, RestoredRecord, SubtaskCheckpoint
from penstock.runtime.job.view import (
    RESCALES_MAX,
    JobView,
    RescaleCause,
    RescaleEnd,
    RescaleRecord,
    RescaleRequest,
    VertexView,
)
from penstock.server.rest.calls.routing import Summary, summary
from penstock.server.rest.messages.jobs import group_id
from penstock.server.rest.messages.vertices import Resource

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


#: Flink's terminal states of a rescale.
TerminalState: TypeAlias = Literal["COMPLETED", "FAILED", "IGNORED"]


class RescaledVertex(msgspec.Struct, frozen=True, rename="camel"):
    """The parallelism of a vertex before and after."""

    job_vertex_id: str
    job_vertex_name: str
    slot_sharing_group_id: str
    slot_sharing_group_name: str
    desired_parallelism: int
    sufficient_parallelism: int
    pre_rescale_parallelism: int | None
    post_rescale_parallelism: int | None


class RescaledSlots(msgspec.Struct, frozen=True, rename="camel"):
    """The slots of a group before and after."""

    slot_sharing_group_id: str
    slot_sharing_group_name: str
    request_resource_profile: Resource
    desired_slots: int
    minimal_required_slots: int
    pre_rescale_slots: int
    post_rescale_slots: int
    acquired_resource_profile: Resource


class SchedulerState(msgspec.Struct, frozen=True, rename="camel"):
    """A state that the scheduler went through."""

    state: str
    enter_timestamp_in_millis: int | None
    leave_timestamp_in_millis: int | None
    duration_in_millis: int | None
    stringified_exception: str | None


class Rescale(msgspec.Struct, frozen=True, rename="camel"):
    """A change of the parallelism, or a request for one."""

    rescale_uuid: str
    resource_requirements_uuid: str
    rescale_attempt_id: int
    vertices: dict[str, RescaledVertex]
    slots: dict[str, RescaledSlots]
    scheduler_states: list[SchedulerState]
    start_timestamp_in_millis: int
    end_timestamp_in_millis: int | None
    terminal_state: TerminalState | None
    trigger_cause: str
    terminated_reason: str | None


class RescalesCounts(msgspec.Struct, frozen=True, rename="camel"):
    """The numbers of remembered rescales by state."""

    ignored: int
    in_progress: int
    completed: int
    failed: int


class LatestRescales(msgspec.Struct, frozen=True):
    """The latest rescale of each kind."""

    completed: Rescale | None
    failed: Rescale | None = None
    ignored: Rescale | None = None


class RescalesOverview(msgspec.Struct, frozen=True, rename="camel"):
    """The counts and the latest rescales."""

    rescales_counts: RescalesCounts
    latest: LatestRescales


class RescalesSummary(msgspec.Struct, frozen=True, rename="camel"):
    """The counts and the durations of rescales."""

    rescales_counts: RescalesCounts
    rescales_duration_stats_in_millis: Summary
    completed_rescales_duration_stats_in_millis: Summary
    ignored_rescales_duration_stats_in_millis: Summary
    failed_rescales_duration_stats_in_millis: Summary


class RescalesConfig(msgspec.Struct, frozen=True, rename="camel"):
    """The settings that decide when a job is rescaled; times in ms."""

    rescale_history_max: int
    scheduler_execution_mode: str | None
    submission_resource_wait_timeout_in_millis: int
    submission_resource_stabilization_timeout_in_millis: int
    slot_idle_timeout_in_millis: int
    executing_cooldown_timeout_in_millis: int
    executing_resource_stabilization_timeout_in_millis: int
    maximum_delay_for_triggering_rescale_in_millis: int
    rescale_on_failed_checkpoint_count: int


def rescales(view: JobView) -> list[Rescale]:
    """Return the remembered rescales, newest first."""
    known = [rescale(view, record) for record in view.rescales]
    known += [rescale(view, request) for request in view.rescale_requests]
    return sorted(known, key=lambda entry: -entry.start_timestamp_in_millis)[:RESCALES_MAX]


def rescale(view: JobView, record: RescaleRecord | RescaleRequest) -> Rescale:
    """Convert a change or a request, with the vertices that it changed or was to change."""
    if isinstance(record, RescaleRecord):
        return _rescale(view, record, record.changed, record.at_ms, "COMPLETED", record.cause, "SUCCEEDED")
    end, ended_ms = record.end, record.ended_ms
    state: TerminalState | None = None
    if end is not None:
        state = "FAILED" if end is RescaleEnd.EXCEPTION_OCCURRED else "IGNORED"
    reason = None if end is None else end.value
    result = _rescale(view, record, record.wanted, ended_ms, state, RescaleCause.UPDATE_REQUIREMENT, reason)
    lasted = None if ended_ms is None else ended_ms - record.at_ms
    step = SchedulerState("Executing", record.at_ms, ended_ms, lasted, record.reason or None)
    return msgspec.structs.replace(result, scheduler_states=[step])


def _rescale(
    view: JobView,
    record: RescaleRecord | RescaleRequest,
    changes: Mapping[str, tuple[int, int]],
    ended_ms: int | None,
    state: TerminalState | None,
    cause: RescaleCause,
    reason: str | None,
) -> Rescale:
    by_name = {vertex.name: vertex for vertex in view.vertices}
    vertices, slots = {}, dict[str, tuple[int, int]]()
    for name, (before, after) in changes.items():
        vertex = by_name.get(name)
        if vertex is None:
            continue
        group = vertex.slot_sharing_group
        now = after if state == "COMPLETED" else None
        vertices[vertex.vertex_id] = RescaledVertex(
            vertex.vertex_id, name, group_id(group), group, after, 1, before, now
        )
        old, new = slots.get(group, (0, 0))
        slots[group] = (max(old, before), max(new, after))
    requirements = f"{view.job_id} {sorted(changes.items())}"
    return Rescale(
        rescale_uuid=rescale_id(view, record),
        resource_requirements_uuid=hashlib.md5(requirements.encode(), usedforsecurity=False).hexdigest(),
        rescale_attempt_id=record.attempt,
        vertices=vertices,
        slots={group_id(name): _slots(name, *both, state) for name, both in slots.items()},
        scheduler_states=[],
        start_timestamp_in_millis=record.at_ms,
        end_timestamp_in_millis=ended_ms,
        terminal_state=state,
        trigger_cause=cause.value,
        terminated_reason=reason,
    )


def rescale_id(view: JobView, record: RescaleRecord | RescaleRequest) -> str:
    """Return the id of a record, derived from the job, the attempt and the time."""
    kind = "" if isinstance(record, RescaleRecord) else " asked"
    text = f"{view.job_id} {record.attempt} {record.at_ms}{kind}"
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _slots(name: str, before: int, after: int, state: TerminalState | None) -> RescaledSlots:
    nothing_said, now = Resource(0.0, 0), after if state == "COMPLETED" else before
    return RescaledSlots(group_id(name), name, nothing_said, after, 1, before, now, nothing_said)


def counts(view: JobView) -> RescalesCounts:
    """Count the remembered rescales by state."""
    states = [entry.terminal_state for entry in rescales(view)]
    return RescalesCounts(*(states.count(state) for state in ("IGNORED", None, "COMPLETED", "FAILED")))


def overview(view: JobView) -> RescalesOverview:
    """Return the counts and the latest rescale of each kind."""
    latest = {entry.terminal_state: entry for entry in reversed(rescales(view))}
    return RescalesOverview(
        counts(view), LatestRescales(latest.get("COMPLETED"), latest.get("FAILED"), latest.get("IGNORED"))
    )


def summaries(view: JobView) -> RescalesSummary:
    """Return the counts; durations are not measured."""
    nothing = summary([])
    return RescalesSummary(counts(view), nothing, nothing, nothing, nothing)


def config(settings: Configuration) -> RescalesConfig:
    """Return the configured settings, with Flink's defaults for those that are not set."""
    reactive = settings.read(options.SCHEDULER_MODE) is not None

    def unless_set(value: int | None, default: int) -> int:
        return value if value is not None else 0 if reactive else default

    wait_ms = settings.read(options.SUBMISSION_WAIT_MS)
    return RescalesConfig(
        rescale_history_max=RESCALES_MAX,
        scheduler_execution_mode="REACTIVE" if reactive else None,
        submission_resource_wait_timeout_in_millis=wait_ms if wait_ms is not None else -1 if reactive else 300_000,
        submission_resource_stabilization_timeout_in_millis=unless_set(
            settings.read(options.SUBMISSION_STABILIZATION_MS), 10_000
        ),
        slot_idle_timeout_in_millis=0,
        executing_cooldown_timeout_in_millis=settings.read(options.EXECUTING_COOLDOWN_MS),
        executing_resource_stabilization_timeout_in_millis=unless_set(
            settings.read(options.EXECUTING_STABILIZATION_MS), 60_000
        ),
        maximum_delay_for_triggering_rescale_in_millis=settings.read(options.RESCALE_MAX_DELAY_MS) or 0,
        rescale_on_failed_checkpoint_count=settings.read(options.RESCALE_MAX_CHECKPOINT_FAILURES),
    )
