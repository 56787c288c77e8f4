"""Changes of a job's parallelism, in the form of Flink's adaptive scheduler.

A record is made when the tasks with the new parallelism are deployed, so it is complete and has no duration. A request
that the job rejects, fails to apply or has not applied yet is IGNORED, FAILED, or without an end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from penstock.base.configuration import Configuration
from penstock.base.options import (
    EXECUTING_COOLDOWN_MS,
    EXECUTING_STABILIZATION_MS,
    RESCALE_MAX_CHECKPOINT_FAILURES,
    RESCALE_MAX_DELAY_MS,
    SCHEDULER_MODE,
    SUBMISSION_STABILIZATION_MS,
    SUBMISSION_WAIT_MS,
)
from penstock.runtime.job.view import RESCALES_MAX, JobView, RescaleCause, RescaleEnd, RescaleRecord, RescaleRequest
from penstock.server.rest.calls.answers import Summary, summary
from penstock.server.rest.messages.jobs import group_id
from penstock.server.rest.messages.taskmanagers import Resource

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
    reactive = settings.read(SCHEDULER_MODE) is not None

    def unless_set(value: int | None, default: int) -> int:
        return value if value is not None else 0 if reactive else default

    wait_ms = settings.read(SUBMISSION_WAIT_MS)
    return RescalesConfig(
        rescale_history_max=RESCALES_MAX,
        scheduler_execution_mode="REACTIVE" if reactive else None,
        submission_resource_wait_timeout_in_millis=wait_ms if wait_ms is not None else -1 if reactive else 300_000,
        submission_resource_stabilization_timeout_in_millis=unless_set(
            settings.read(SUBMISSION_STABILIZATION_MS), 10_000
        ),
        slot_idle_timeout_in_millis=0,
        executing_cooldown_timeout_in_millis=settings.read(EXECUTING_COOLDOWN_MS),
        executing_resource_stabilization_timeout_in_millis=unless_set(
            settings.read(EXECUTING_STABILIZATION_MS), 60_000
        ),
        maximum_delay_for_triggering_rescale_in_millis=settings.read(RESCALE_MAX_DELAY_MS) or 0,
        rescale_on_failed_checkpoint_count=settings.read(RESCALE_MAX_CHECKPOINT_FAILURES),
    )
