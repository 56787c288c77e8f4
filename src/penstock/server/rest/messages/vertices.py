"""Vertices, subtasks and workers in the form of Flink's API.

`TaskManager` shows a worker as one of Flink's task managers: one slot, and the memory of a Python process. A job that
runs in steps has no workers of its own, because its tasks are Spark's. If no job has workers, the list contains the
driver, which controls such a job and, in local mode, does all its work.

`VertexDetails` is a vertex with its subtasks, individually; `VertexTaskManagers` has them by worker.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from penstock.base.configuration import Configuration
from penstock.base.options import MANAGED_MEMORY_BYTES
from penstock.runtime.job.view import JobView, SubtaskView, VertexView, WorkerView
from penstock.runtime.protocol import ProcessFigures
from penstock.server.metrics.metric_store import DRIVER_ID
from penstock.server.metrics.scopes import NO_CHANNELS, ChannelMemory
from penstock.server.rest.messages import jobs

_MEGABYTE: Final = 1 << 20
#: Ids of local workers, which are unique only within their job.
_COUNTED: Final = re.compile(r"worker-\d+")


class Resource(msgspec.Struct, frozen=True, rename="camel"):
    """The resources of a slot: cores, and memory in megabytes."""

    cpu_cores: float
    task_heap_memory: int
    task_off_heap_memory: int = 0
    managed_memory: int = 0
    network_memory: int = 0
    extended_resources: dict[str, float] = {}


class Hardware(msgspec.Struct, frozen=True, rename="camel"):
    """The resources of the machine; memory in bytes."""

    cpu_cores: int
    physical_memory: int
    free_memory: int
    managed_memory: int


class MemoryConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    """How Flink would divide the process's memory, in bytes; 0 for parts that Python does not have."""

    task_heap: int
    managed_memory: int
    total_flink_memory: int
    total_process_memory: int
    framework_heap: int = 0
    framework_off_heap: int = 0
    task_off_heap: int = 0
    network_memory: int = 0
    jvm_metaspace: int = 0
    jvm_overhead: int = 0


class GarbageCollector(msgspec.Struct, frozen=True):
    """The number of collections, and the time (ms) that they took."""

    name: str
    count: int
    time: int


class ProcessMetrics(msgspec.Struct, frozen=True, rename="camel"):
    """The process's memory under JVM names: the heap is the resident memory; 0 for parts that Python lacks."""

    heap_used: int
    heap_committed: int
    heap_max: int
    garbage_collectors: list[GarbageCollector]
    non_heap_used: int = 0
    non_heap_committed: int = 0
    non_heap_max: int = 0
    direct_count: int = 0
    direct_used: int = 0
    direct_max: int = 0
    mapped_count: int = 0
    mapped_used: int = 0
    mapped_max: int = 0
    netty_shuffle_memory_segments_available: int = 0
    netty_shuffle_memory_segments_used: int = 0
    netty_shuffle_memory_segments_total: int = 0
    netty_shuffle_memory_available: int = 0
    netty_shuffle_memory_used: int = 0
    netty_shuffle_memory_total: int = 0


class AllocatedSlot(msgspec.Struct, frozen=True, rename="camel"):
    """A worker's slot that a job occupies."""

    job_id: str
    resource: Resource
    assigned_tasks: int


class TaskManager(msgspec.Struct, frozen=True, rename="camel"):
    """A worker in the list.

    Flink lacks `job-id` and `job-name`, which identify the worker's job, and `spark-ui`, the URL of Spark's web UI, if
    there is one.
    """

    id: str
    path: str
    data_port: int
    jmx_port: int
    time_since_last_heartbeat: int
    slots_number: int
    free_slots: int
    assigned_tasks: int
    total_resource: Resource
    free_resource: Resource
    hardware: Hardware
    memory_configuration: MemoryConfiguration
    blocked: bool = False
    job_id: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="job-id")
    job_name: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="job-name")
    spark_ui: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="spark-ui")


class TaskManagerDetails(TaskManager, frozen=True, rename="camel", kw_only=True):
    """The details of a worker; `spark-ui` is the page of the worker's Spark job."""

    allocated_slots: list[AllocatedSlot]
    metrics: ProcessMetrics


class TaskManagers(msgspec.Struct, frozen=True):
    """All workers."""

    taskmanagers: list[TaskManager]


@dataclass(frozen=True)
class KnownWorker:
    """A worker, its job, and the number of subtasks that it runs."""

    id: str
    worker: WorkerView
    view: JobView
    tasks: int


def taskmanager_id(job_id: str, worker_id: str) -> str:
    """Return an id of a worker that is unique among all jobs of this process."""
    return f"{worker_id}-{job_id[:8]}" if _COUNTED.fullmatch(worker_id) else worker_id


def known_workers(views: Iterable[JobView]) -> list[KnownWorker]:
    """Return the workers of all jobs that have not ended."""
    workers = []
    for view in views:
        if view.status.is_terminal_state():
            continue
        tasks: dict[str, int] = {}
        for vertex in view.vertices:
            for subtask in vertex.subtasks:
                if subtask.worker_id is not None and subtask.state is not None and not subtask.state.is_terminal:
                    tasks[subtask.worker_id] = tasks.get(subtask.worker_id, 0) + 1
        workers += [
            KnownWorker(taskmanager_id(view.job_id, worker.worker_id), worker, view, tasks.get(worker.worker_id, 0))
            for worker in view.workers
        ]
    return workers


def task_manager(
    known: KnownWorker, spark_ui: str | None = None, channels: ChannelMemory = NO_CHANNELS
) -> TaskManagerDetails:
    """Return the details of a worker, with Spark's URL for it and its channel buffers."""
    worker, view = known.worker, known.view
    process = worker.process or ProcessFigures()
    configuration = Configuration.from_dict(dict(view.configuration))
    managed = configuration.read(MANAGED_MEMORY_BYTES) or 0
    limit = process.memory_limit_bytes or process.physical_bytes
    slot = Resource(
        float(process.cores), limit // _MEGABYTE - managed // _MEGABYTE, managed_memory=managed // _MEGABYTE
    )
    nothing = Resource(0.0, 0)
    port = worker.data_address.rpartition(":")[2]
    return TaskManagerDetails(
        id=known.id,
        path=worker.data_address or f"{worker.host}:{worker.process_id}",
        data_port=int(port) if port.isdecimal() else 0,
        jmx_port=-1,
        time_since_last_heartbeat=worker.heard_ms or view.now_ms,
        slots_number=1,
        free_slots=int(not known.tasks),
        assigned_tasks=known.tasks,
        total_resource=slot,
        free_resource=nothing if known.tasks else slot,
        hardware=Hardware(process.cores, process.physical_bytes, max(0, limit - process.resident_bytes), managed),
        memory_configuration=MemoryConfiguration(max(0, limit - managed), managed, limit, limit),
        allocated_slots=[AllocatedSlot(view.job_id, slot, known.tasks)] if known.tasks else [],
        metrics=_process_metrics(process, limit, channels),
        job_id=view.job_id,
        job_name=view.name,
        spark_ui=msgspec.UNSET if spark_ui is None else spark_ui,
    )


def _process_metrics(process: ProcessFigures, limit: int, channels: ChannelMemory = NO_CHANNELS) -> ProcessMetrics:
    return ProcessMetrics(
        heap_used=process.resident_bytes,
        heap_committed=process.resident_bytes,
        heap_max=limit,
        garbage_collectors=[GarbageCollector("Python", process.collections, process.collections_ms)],
        netty_shuffle_memory_segments_available=channels.available,
        netty_shuffle_memory_segments_used=channels.used,
        netty_shuffle_memory_segments_total=channels.total,
        netty_shuffle_memory_available=channels.available_bytes,
        netty_shuffle_memory_used=channels.used_bytes,
        netty_shuffle_memory_total=channels.total_bytes,
    )


def driver(now_ms: int) -> TaskManagerDetails:
    """Describe this process in place of workers."""
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    process = ProcessFigures(cores=os.cpu_count() or 0, physical_bytes=pages * page_bytes)
    limit = process.physical_bytes
    slot = Resource(float(process.cores), limit // _MEGABYTE)
    return TaskManagerDetails(
        id=DRIVER_ID,
        path=f"{socket.gethostname()}:{os.getpid()}",
        data_port=0,
        jmx_port=-1,
        time_since_last_heartbeat=now_ms,
        slots_number=0,
        free_slots=0,
        assigned_tasks=0,
        total_resource=slot,
        free_resource=slot,
        hardware=Hardware(process.cores, limit, os.sysconf("SC_AVPHYS_PAGES") * page_bytes, 0),
        memory_configuration=MemoryConfiguration(limit, 0, limit, limit),
        allocated_slots=[],
        metrics=_process_metrics(process, limit),
    )


def in_list(details: TaskManagerDetails) -> TaskManager:
    """Return a worker as the list shows it, without its details."""
    names = (field.name for field in msgspec.structs.fields(TaskManager))
    return TaskManager(**{name: getattr(details, name) for name in names})


#: Flink's text for the location of a subtask without a worker of Penstock's.
UNASSIGNED = "(unassigned)"


class SubtaskDetails(msgspec.Struct, frozen=True):
    """An attempt of a subtask."""

    subtask: int
    status: str
    attempt: int
    host: str
    endpoint: str
    start_time: int = msgspec.field(name="start-time")
    end_time: int = msgspec.field(name="end-time")
    duration: int
    metrics: jobs.IOMetrics
    taskmanager_id: str = msgspec.field(name="taskmanager-id")
    status_duration: dict[str, int] = msgspec.field(name="status-duration")
    start_time_too: int = msgspec.field(name="start_time")


class VertexDetails(msgspec.Struct, frozen=True):
    """A vertex with its subtasks."""

    id: str
    name: str
    parallelism: int
    max_parallelism: int = msgspec.field(name="maxParallelism")
    now: int
    subtasks: list[SubtaskDetails]
    aggregated: jobs.Aggregated


class SubtaskTimes(msgspec.Struct, frozen=True):
    """A subtask on the timeline."""

    subtask: int
    host: str
    endpoint: str
    duration: int
    timestamps: dict[str, int]


class VertexTimes(msgspec.Struct, frozen=True):
    """The subtasks of a vertex on the timeline."""

    id: str
    name: str
    now: int
    subtasks: list[SubtaskTimes]


class VertexOnWorker(msgspec.Struct, frozen=True):
    """The subtasks of a vertex on one worker."""

    host: str
    endpoint: str
    status: str
    start_time: int = msgspec.field(name="start-time")
    end_time: int = msgspec.field(name="end-time")
    duration: int
    metrics: jobs.IOMetrics
    status_counts: dict[str, int] = msgspec.field(name="status-counts")
    taskmanager_id: str = msgspec.field(name="taskmanager-id")
    aggregated: jobs.Aggregated


class VertexTaskManagers(msgspec.Struct, frozen=True):
    """The subtasks of a vertex by worker."""

    id: str
    name: str
    now: int
    taskmanagers: list[VertexOnWorker]


def index_workers(view: JobView) -> dict[str, WorkerView]:
    """Return the workers of a job by id."""
    return {worker.worker_id: worker for worker in view.workers}


def format_endpoint(workers: dict[str, WorkerView], subtask: SubtaskView) -> str:
    """Return where a subtask runs: the host and the worker's process."""
    worker = workers.get(subtask.worker_id or "")
    return UNASSIGNED if worker is None else f"{worker.host}:{worker.process_id}"


def get_host(workers: dict[str, WorkerView], subtask: SubtaskView) -> str:
    """Return just the host, which dashboards of Flink before 1.20 read."""
    worker = workers.get(subtask.worker_id or "")
    return UNASSIGNED if worker is None else worker.host


def subtask_details(view: JobView, workers: dict[str, WorkerView], subtask: SubtaskView) -> SubtaskDetails:
    """Return the current attempt of a subtask."""
    start, end = jobs.subtask_start(view, subtask), jobs.subtask_end(view, subtask)
    return SubtaskDetails(
        subtask=subtask.subtask,
        status=jobs.derive_state(view, subtask).name,
        attempt=subtask.attempt,
        host=get_host(workers, subtask),
        endpoint=format_endpoint(workers, subtask),
        start_time=start,
        end_time=end,
        duration=jobs.duration(start, end, view.now_ms),
        metrics=jobs.io_metrics([subtask]),
        taskmanager_id=taskmanager_id(view.job_id, subtask.worker_id) if subtask.worker_id else UNASSIGNED,
        status_duration=jobs.status_durations(view, subtask),
        start_time_too=start,
    )


def vertex_details(view: JobView, vertex: VertexView) -> VertexDetails:
    """Return a vertex with all its subtasks."""
    workers = index_workers(view)
    return VertexDetails(
        vertex.vertex_id,
        vertex.name,
        vertex.parallelism,
        vertex.max_parallelism,
        view.now_ms,
        [subtask_details(view, workers, subtask) for subtask in vertex.subtasks],
        jobs.aggregated(view, vertex.subtasks),
    )


def vertex_times(view: JobView, vertex: VertexView) -> VertexTimes:
    """Return when the subtasks of a vertex entered each state."""
    workers, subtasks = index_workers(view), []
    for subtask in vertex.subtasks:
        since = {state.name: at_ms for state, at_ms in jobs.derive_state_times(view, subtask).items()}
        start, end = jobs.subtask_start(view, subtask), jobs.subtask_end(view, subtask)
        stamps = {name: since.get(name, 0) for name in jobs.TASK_STATES}
        took = jobs.duration(start, end, view.now_ms)
        host, endpoint = get_host(workers, subtask), format_endpoint(workers, subtask)
        subtasks.append(SubtaskTimes(subtask.subtask, host, endpoint, took, stamps))
    return VertexTimes(vertex.vertex_id, vertex.name, view.now_ms, subtasks)


def vertex_taskmanagers(view: JobView, vertex: VertexView) -> VertexTaskManagers:
    """Return the subtasks of a vertex by worker."""
    workers, by_worker = index_workers(view), dict[str, list[SubtaskView]]()
    for subtask in vertex.subtasks:
        by_worker.setdefault(subtask.worker_id or "", []).append(subtask)
    return VertexTaskManagers(
        vertex.vertex_id,
        vertex.name,
        view.now_ms,
        [_on_worker(view, workers, worker_id, subtasks) for worker_id, subtasks in by_worker.items()],
    )


def _on_worker(
    view: JobView, workers: dict[str, WorkerView], worker_id: str, subtasks: Sequence[SubtaskView]
) -> VertexOnWorker:
    states = [jobs.derive_state(view, subtask) for subtask in subtasks]
    starts = [start for subtask in subtasks if (start := jobs.subtask_start(view, subtask)) >= 0]
    ends = [jobs.subtask_end(view, subtask) for subtask in subtasks]
    start, end = min(starts, default=-1), max(ends) if min(ends) >= 0 else -1
    return VertexOnWorker(
        host=get_host(workers, subtasks[0]),
        endpoint=format_endpoint(workers, subtasks[0]),
        status=jobs.state_of_all(states).name,
        start_time=start,
        end_time=end,
        duration=jobs.duration(start, end, view.now_ms),
        metrics=jobs.io_metrics(subtasks),
        status_counts=jobs.task_counts(states),
        taskmanager_id=taskmanager_id(view.job_id, worker_id) if worker_id else UNASSIGNED,
        aggregated=jobs.aggregated(view, subtasks),
    )
