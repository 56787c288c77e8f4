"""Workers as Flink's task managers: one slot each, and the memory of a Python process.

A job in steps has no workers of its own: its tasks are Spark's. Where none has workers, the list holds the driver, in
which such a job is steered and, run locally, does all its work.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from penstock.base.configuration import Configuration
from penstock.base.options import MANAGED_MEMORY_BYTES
from penstock.core.job.view import JobView, WorkerView
from penstock.core.protocol import ProcessFigures
from penstock.operations.metrics.channels import NO_CHANNELS, ChannelMemory
from penstock.operations.metrics.listing import DRIVER_ID

_MEGABYTE: Final = 1 << 20
#: Ids that only their job tells apart: workers of a local job.
_COUNTED: Final = re.compile(r"worker-\d+")


class Resource(msgspec.Struct, frozen=True, rename="camel"):
    """What a slot has: cores, and memory in megabytes."""

    cpu_cores: float
    task_heap_memory: int
    task_off_heap_memory: int = 0
    managed_memory: int = 0
    network_memory: int = 0
    extended_resources: dict[str, float] = {}


class Hardware(msgspec.Struct, frozen=True, rename="camel"):
    """What the machine has, in bytes."""

    cpu_cores: int
    physical_memory: int
    free_memory: int
    managed_memory: int


class MemoryConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    """How Flink would divide the memory of the process, in bytes; 0 for parts that Python does not have."""

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
    """Collections and the time (ms) that they took."""

    name: str
    count: int
    time: int


class ProcessMetrics(msgspec.Struct, frozen=True, rename="camel"):
    """What the process uses, under the names of a JVM: the heap is the resident memory; 0 for what Python lacks."""

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
    """The slot of a worker that a job has."""

    job_id: str
    resource: Resource
    assigned_tasks: int


class TaskManager(msgspec.Struct, frozen=True, rename="camel"):
    """A worker in the list.

    Flink lacks `job-id` and `job-name`, which name its job, and `spark-ui`, where Spark's own pages are, if it has any.
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
    """A worker on its page; its `spark-ui` is the page of the worker's Spark job."""

    allocated_slots: list[AllocatedSlot]
    metrics: ProcessMetrics


class TaskManagers(msgspec.Struct, frozen=True):
    """All workers."""

    taskmanagers: list[TaskManager]


@dataclass(frozen=True)
class KnownWorker:
    """A worker, the job that it works for, and how many of its subtasks are there."""

    id: str
    worker: WorkerView
    view: JobView
    tasks: int


def taskmanager_id(job_id: str, worker_id: str) -> str:
    """A worker's id among those of all jobs of this process."""
    return f"{worker_id}-{job_id[:8]}" if _COUNTED.fullmatch(worker_id) else worker_id


def known_workers(views: Iterable[JobView]) -> list[KnownWorker]:
    """The workers of all jobs that have not ended."""
    found = []
    for view in views:
        if view.status.is_terminal_state():
            continue
        tasks: dict[str, int] = {}
        for vertex in view.vertices:
            for subtask in vertex.subtasks:
                if subtask.worker_id is not None and subtask.state is not None and not subtask.state.is_terminal:
                    tasks[subtask.worker_id] = tasks.get(subtask.worker_id, 0) + 1
        found += [
            KnownWorker(taskmanager_id(view.job_id, worker.worker_id), worker, view, tasks.get(worker.worker_id, 0))
            for worker in view.workers
        ]
    return found


def task_manager(
    known: KnownWorker, spark_ui: str | None = None, channels: ChannelMemory = NO_CHANNELS
) -> TaskManagerDetails:
    """A worker with all that is known of it, where Spark shows it, and its buffers."""
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
    """This process, in the place of workers."""
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
    """A worker without what only its page shows."""
    names = (field.name for field in msgspec.structs.fields(TaskManager))
    return TaskManager(**{name: getattr(details, name) for name in names})
