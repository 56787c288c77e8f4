"""Jobs for lists and pages: an entry in the overview, and all details of one job."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

from penstock.base.configuration import Configuration
from penstock.base.options import MAX_PARALLELISM
from penstock.core.graph.job_graph import BACK_FILL
from penstock.core.job.resource_requirements import is_adaptive
from penstock.core.job.view import JobView, VertexView
from penstock.operations.rest.shapes.figures import IOMetrics, io_metrics
from penstock.operations.rest.shapes.plan import Plan, describe_plan
from penstock.operations.rest.shapes.times import (
    derive_state,
    duration,
    job_end,
    job_start,
    job_timestamps,
    state_of_all,
    subtask_end,
    subtask_start,
    task_counts,
)

SchedulerType = Literal["Default", "Adaptive", "AdaptiveBatch"]


class JobIdAndStatus(msgspec.Struct, frozen=True):
    """A job's id and status."""

    id: str
    status: str


class JobIds(msgspec.Struct, frozen=True):
    """The ids and statuses of all jobs."""

    jobs: list[JobIdAndStatus]


class JobOverview(msgspec.Struct, frozen=True):
    """A job in the overview. Flink has neither `restarts` nor `last-failure` (ms since the epoch; -1 without one)."""

    jid: str
    name: str
    start_time: int = msgspec.field(name="start-time")
    end_time: int = msgspec.field(name="end-time")
    duration: int
    state: str
    last_modification: int = msgspec.field(name="last-modification")
    tasks: dict[str, int]
    job_type: str = msgspec.field(name="jobType")
    scheduler_type: SchedulerType = msgspec.field(name="schedulerType")
    pending_operators: int = msgspec.field(name="pending-operators", default=0)
    restarts: int = 0
    last_failure: int = msgspec.field(name="last-failure", default=-1)


class JobsOverview(msgspec.Struct, frozen=True):
    """All jobs, with their tasks."""

    jobs: list[JobOverview]


class JobVertexDetails(msgspec.Struct, frozen=True):
    """A vertex in the details of its job."""

    id: str
    slot_sharing_group_id: str = msgspec.field(name="slotSharingGroupId")
    name: str
    max_parallelism: int = msgspec.field(name="maxParallelism")
    parallelism: int
    status: str
    start_time: int = msgspec.field(name="start-time")
    end_time: int = msgspec.field(name="end-time")
    duration: int
    tasks: dict[str, int]
    metrics: IOMetrics


class JobDetails(msgspec.Struct, frozen=True):
    """All details of a job. `restarts` and `last-failure` are as in the overview."""

    jid: str
    application_id: str = msgspec.field(name="application-id")
    name: str
    is_stoppable: bool = msgspec.field(name="isStoppable")
    state: str
    job_type: str = msgspec.field(name="job-type")
    scheduler_type: SchedulerType = msgspec.field(name="schedulerType")
    start_time: int = msgspec.field(name="start-time")
    end_time: int = msgspec.field(name="end-time")
    duration: int
    max_parallelism: int = msgspec.field(name="maxParallelism")
    now: int
    timestamps: dict[str, int]
    vertices: list[JobVertexDetails]
    status_counts: dict[str, int] = msgspec.field(name="status-counts")
    plan: Plan
    pending_operators: int = msgspec.field(name="pending-operators", default=0)
    restarts: int = 0
    last_failure: int = msgspec.field(name="last-failure", default=-1)


def job_type(view: JobView) -> str:
    """Return one of Flink's two job types; a micro-batch job counts as streaming."""
    return "BATCH" if view.mode in ("BATCH", BACK_FILL) else "STREAMING"


def scheduler_type(view: JobView) -> SchedulerType:
    """Return how the job gets its slots."""
    adaptive = view.mode == "STREAMING" and is_adaptive(Configuration.from_dict(dict(view.configuration)))
    return "Adaptive" if adaptive else "Default"


def group_id(name: str) -> str:
    """Return the id of a slot sharing group, derived from its name."""
    return hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()


def job_overview(view: JobView) -> JobOverview:
    """Return a job's entry in the overview."""
    start, end = job_start(view), job_end(view)
    counts = task_counts(derive_state(view, subtask) for vertex in view.vertices for subtask in vertex.subtasks)
    return JobOverview(
        jid=view.job_id,
        name=view.name,
        start_time=start,
        end_time=end,
        duration=duration(start, end, view.now_ms),
        state=view.status.name,
        last_modification=max(view.since_ms.values(), default=view.now_ms),
        tasks={"total": sum(counts.values())} | {name.lower(): count for name, count in counts.items()},
        job_type=job_type(view),
        scheduler_type=scheduler_type(view),
        restarts=view.restarts,
        last_failure=last_failure(view),
    )


def vertex_details(view: JobView, vertex: VertexView) -> JobVertexDetails:
    """Return a vertex of a job."""
    states = [derive_state(view, subtask) for subtask in vertex.subtasks]
    starts = [start for subtask in vertex.subtasks if (start := subtask_start(view, subtask)) >= 0]
    ends = [subtask_end(view, subtask) for subtask in vertex.subtasks]
    start, end = min(starts, default=-1), max(ends) if min(ends) >= 0 else -1
    return JobVertexDetails(
        id=vertex.vertex_id,
        slot_sharing_group_id=group_id(vertex.slot_sharing_group),
        name=vertex.name,
        max_parallelism=vertex.max_parallelism,
        parallelism=vertex.parallelism,
        status=state_of_all(states).name,
        start_time=start,
        end_time=end,
        duration=duration(start, end, view.now_ms),
        tasks=task_counts(states),
        metrics=io_metrics(vertex.subtasks),
    )


def job_details(view: JobView) -> JobDetails:
    """Return all details of a job."""
    start, end = job_start(view), job_end(view)
    vertices = [vertex_details(view, vertex) for vertex in view.vertices]
    counts: dict[str, int] = dict.fromkeys(task_counts(()), 0)
    for vertex in vertices:
        counts[vertex.status] += 1
    return JobDetails(
        jid=view.job_id,
        application_id=view.job_id,
        name=view.name,
        is_stoppable=False,
        state=view.status.name,
        job_type=job_type(view),
        scheduler_type=scheduler_type(view),
        start_time=start,
        end_time=end,
        duration=duration(start, end, view.now_ms),
        max_parallelism=max_parallelism(view),
        now=view.now_ms,
        timestamps=job_timestamps(view),
        vertices=vertices,
        status_counts=counts,
        plan=describe_plan(view),
        restarts=view.restarts,
        last_failure=last_failure(view),
    )


def last_failure(view: JobView) -> int:
    """Return when the job last failed (ms); -1 if it never did."""
    return view.failures[0].at_ms if view.failures else -1


def max_parallelism(view: JobView) -> int:
    """Return the configured maximum parallelism, or its default."""
    value: Any = view.configuration.get(MAX_PARALLELISM.key())
    return MAX_PARALLELISM.default_value() if value is None else MAX_PARALLELISM.convert(value)
