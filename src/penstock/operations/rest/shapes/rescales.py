"""Changes of a job's parallelism, as Flink's adaptive scheduler tells them.

A record is made when the tasks of the new parallelism are deployed, so all of them are complete, and take no time.
"""

from __future__ import annotations

import hashlib
from typing import Literal

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
from penstock.core.job.history import RESCALES_MAX, RescaleRecord
from penstock.core.job.view import JobView
from penstock.operations.rest.shapes.jobs import group_id
from penstock.operations.rest.shapes.numbers import Summary, summary
from penstock.operations.rest.shapes.workers import Resource


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
    """A change of the parallelism."""

    rescale_uuid: str
    resource_requirements_uuid: str
    rescale_attempt_id: int
    vertices: dict[str, RescaledVertex]
    slots: dict[str, RescaledSlots]
    scheduler_states: list[SchedulerState]
    start_timestamp_in_millis: int
    end_timestamp_in_millis: int | None
    terminal_state: Literal["COMPLETED", "FAILED", "IGNORED"]
    trigger_cause: str
    terminated_reason: str


class RescalesCounts(msgspec.Struct, frozen=True, rename="camel"):
    """How many there were, of those that are remembered."""

    ignored: int
    in_progress: int
    completed: int
    failed: int


class LatestRescales(msgspec.Struct, frozen=True):
    """The last of each kind."""

    completed: Rescale | None
    failed: Rescale | None = None
    ignored: Rescale | None = None


class RescalesOverview(msgspec.Struct, frozen=True, rename="camel"):
    """Counts, and the latest."""

    rescales_counts: RescalesCounts
    latest: LatestRescales


class RescalesSummary(msgspec.Struct, frozen=True, rename="camel"):
    """Counts, and how long they took."""

    rescales_counts: RescalesCounts
    rescales_duration_stats_in_millis: Summary
    completed_rescales_duration_stats_in_millis: Summary
    ignored_rescales_duration_stats_in_millis: Summary
    failed_rescales_duration_stats_in_millis: Summary


class RescalesConfig(msgspec.Struct, frozen=True, rename="camel"):
    """When a job is rescaled; times in ms."""

    rescale_history_max: int
    scheduler_execution_mode: str | None
    submission_resource_wait_timeout_in_millis: int
    submission_resource_stabilization_timeout_in_millis: int
    slot_idle_timeout_in_millis: int
    executing_cooldown_timeout_in_millis: int
    executing_resource_stabilization_timeout_in_millis: int
    maximum_delay_for_triggering_rescale_in_millis: int
    rescale_on_failed_checkpoint_count: int


def rescale(view: JobView, record: RescaleRecord) -> Rescale:
    """One record, with the vertices that have changed."""
    by_name = {vertex.name: vertex for vertex in view.vertices}
    vertices, slots = {}, dict[str, tuple[int, int]]()
    for name, (before, after) in record.changed.items():
        vertex = by_name.get(name)
        if vertex is None:
            continue
        group = vertex.slot_sharing_group
        vertices[vertex.vertex_id] = RescaledVertex(
            vertex.vertex_id, name, group_id(group), group, after, 1, before, after
        )
        old, new = slots.get(group, (0, 0))
        slots[group] = (max(old, before), max(new, after))
    return Rescale(
        rescale_uuid=rescale_id(view, record),
        resource_requirements_uuid=hashlib.md5(
            f"{view.job_id} {sorted(record.changed.items())}".encode(), usedforsecurity=False
        ).hexdigest(),
        rescale_attempt_id=record.attempt,
        vertices=vertices,
        slots={group_id(name): _slots(name, before, after) for name, (before, after) in slots.items()},
        scheduler_states=[],
        start_timestamp_in_millis=record.at_ms,
        end_timestamp_in_millis=record.at_ms,
        terminal_state="COMPLETED",
        trigger_cause=record.cause.value,
        terminated_reason="SUCCEEDED",
    )


def rescale_id(view: JobView, record: RescaleRecord) -> str:
    """The id of a record: made of the job and the attempt."""
    return hashlib.md5(f"{view.job_id} {record.attempt} {record.at_ms}".encode(), usedforsecurity=False).hexdigest()


def _slots(name: str, before: int, after: int) -> RescaledSlots:
    nothing_said = Resource(0.0, 0)
    return RescaledSlots(group_id(name), name, nothing_said, after, 1, before, after, nothing_said)


def counts(view: JobView) -> RescalesCounts:
    """All that are remembered are complete."""
    return RescalesCounts(0, 0, len(view.rescales), 0)


def overview(view: JobView) -> RescalesOverview:
    """Counts, and the latest."""
    latest = rescale(view, view.rescales[0]) if view.rescales else None
    return RescalesOverview(counts(view), LatestRescales(latest))


def summaries(view: JobView) -> RescalesSummary:
    """Counts; durations are not measured."""
    nothing = summary([])
    return RescalesSummary(counts(view), nothing, nothing, nothing, nothing)


def config(settings: Configuration) -> RescalesConfig:
    """What a configuration says, with Flink's defaults where it says nothing."""
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
