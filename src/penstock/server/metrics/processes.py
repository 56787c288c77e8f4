"""The resource use of a process, under Flink's names for a JVM.

Python has one heap, which is the process. So the heap is its resident memory, and the pools that only a JVM has
(non-heap, metaspace, direct and mapped buffers) are empty.

The driver's own process in the metrics.

The buffers of each worker's channels, under Flink's names for its pool of memory segments.

Penstock allocates a buffer when it needs one. Each channel has credit for a few buffers, and a producer keeps a few
full ones, so a worker's buffers are bounded. That bound replaces the pool: its size in bytes is the bound times the
average size of the buffers so far.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.drivers.process_resources import process_figures
from penstock.runtime.job.view import JobView
from penstock.runtime.protocol import ProcessFigures, TaskFigures
from penstock.server.metrics.scopes import Value


@dataclass(frozen=True)
class ChannelMemory:
    """The buffers of one worker.

    Attributes:
        used: the number of full buffers that wait.
        total: the number of buffers that may wait.
        used_bytes: the approximate size of the waiting buffers.
        total_bytes: the approximate size of as many buffers as may wait.
    """

    used: int = 0
    total: int = 0
    used_bytes: int = 0
    total_bytes: int = 0

    @property
    def available(self) -> int:
        """The number of further buffers that may wait."""
        return max(0, self.total - self.used)

    @property
    def available_bytes(self) -> int:
        """The approximate size (bytes) of these."""
        return max(0, self.total_bytes - self.used_bytes)

    @property
    def usage_percent(self) -> int:
        """The percentage of the bound in use."""
        return 100 * self.used // self.total if self.total else 0

    def metrics(self) -> dict[str, Value]:
        """Return Flink's metrics of a worker's shuffle memory."""
        return {
            "Status.Shuffle.Netty.UsedMemory": self.used_bytes,
            "Status.Shuffle.Netty.TotalMemory": self.total_bytes,
            "Status.Shuffle.Netty.AvailableMemory": self.available_bytes,
            "Status.Shuffle.Netty.UsedMemorySegments": self.used,
            "Status.Shuffle.Netty.TotalMemorySegments": self.total,
            "Status.Shuffle.Netty.AvailableMemorySegments": self.available,
            "Status.Shuffle.Netty.RequestedMemoryUsage": self.usage_percent,
        }


NO_CHANNELS = ChannelMemory()


def channel_memory(view: JobView) -> Mapping[str, ChannelMemory]:
    """Return the buffers of each worker of a job, by worker id."""
    tasks: dict[str, list[TaskFigures]] = {}
    for vertex in view.vertices:
        for subtask in vertex.subtasks:
            figures = None if subtask.metrics is None else subtask.metrics.figures
            if subtask.worker_id is not None and figures is not None:
                tasks.setdefault(subtask.worker_id, []).append(figures)
    return {worker_id: _of_tasks(figures) for worker_id, figures in tasks.items()}


def _of_tasks(tasks: list[TaskFigures]) -> ChannelMemory:
    used = sum(task.buffers_queued_in + task.buffers_queued_out for task in tasks)
    total = max(used, sum(task.buffers_in_max + task.buffers_out_max for task in tasks))
    buffers = sum(task.buffers_in + task.buffers_out for task in tasks)
    average = sum(task.bytes_in + task.bytes_out for task in tasks) / buffers if buffers else 0.0
    return ChannelMemory(used, total, int(used * average), int(total * average))


#: Flink's value for the size of an unlimited pool.
UNDEFINED = -1


def process_metrics(figures: ProcessFigures, collecting_ms_per_second: float) -> dict[str, Value]:
    """Return the metrics of a process, including its garbage collection time (ms) per second."""
    resident = figures.resident_bytes
    limit = figures.memory_limit_bytes or figures.physical_bytes or UNDEFINED
    return {
        "Status.JVM.CPU.Load": figures.cpu_load,
        "Status.JVM.CPU.Time": figures.cpu_time_ns,
        "Status.JVM.Memory.Heap.Used": resident,
        "Status.JVM.Memory.Heap.Committed": resident,
        "Status.JVM.Memory.Heap.Max": limit,
        "Status.JVM.Memory.NonHeap.Used": 0,
        "Status.JVM.Memory.NonHeap.Committed": 0,
        "Status.JVM.Memory.NonHeap.Max": UNDEFINED,
        "Status.JVM.Memory.Metaspace.Used": 0,
        "Status.JVM.Memory.Metaspace.Committed": 0,
        "Status.JVM.Memory.Metaspace.Max": UNDEFINED,
        "Status.JVM.Memory.Direct.Count": 0,
        "Status.JVM.Memory.Direct.MemoryUsed": 0,
        "Status.JVM.Memory.Direct.TotalCapacity": 0,
        "Status.JVM.Memory.Mapped.Count": 0,
        "Status.JVM.Memory.Mapped.MemoryUsed": 0,
        "Status.JVM.Memory.Mapped.TotalCapacity": 0,
        "Status.JVM.Threads.Count": figures.threads,
        "Status.JVM.GarbageCollector.All.Count": figures.collections,
        "Status.JVM.GarbageCollector.All.Time": figures.collections_ms,
        "Status.JVM.GarbageCollector.All.TimeMsPerSecond": collecting_ms_per_second,
        "Status.JVM.ClassLoader.ClassesLoaded": figures.modules,
        "Status.JVM.ClassLoader.ClassesUnloaded": 0,
        "Status.Penstock.OpenFiles": figures.open_files,
    }


def memory_metrics(managed_used: int, managed: int, channels: ChannelMemory) -> dict[str, Value]:
    """Return the parts of a worker's memory that Flink names: managed memory (bytes) and channel buffers."""
    return {
        "Status.Flink.Memory.Managed.Used": managed_used,
        "Status.Flink.Memory.Managed.Total": managed,
        **channels.metrics(),
    }


class ThisProcess:
    """The resource use of this process, and its garbage collection time per second.

    Args:
        measure: measures the process; at most once a second, however often it is called.
        now: a monotonic clock (s).
    """

    def __init__(self, measure: Callable[[], ProcessFigures], now: Callable[[], float]) -> None:
        self.host = socket.gethostname()
        self._measure = measure
        self._now = now
        self._lock = threading.Lock()
        self._figures = measure()
        self._at = now()
        self._collecting_ms_per_second = 0.0

    @classmethod
    def of_driver(cls, now: Callable[[], float]) -> ThisProcess:
        """Create the figures of the calling process."""
        return cls(process_figures, now)

    def figures(self) -> tuple[ProcessFigures, float]:
        """Return the resource use of the process, and its recent garbage collection time (ms) per second."""
        with self._lock:
            measured, now = self._measure(), self._now()
            if measured is not self._figures and now > self._at:
                grown = measured.collections_ms - self._figures.collections_ms
                self._collecting_ms_per_second = max(0.0, grown / (now - self._at))
                self._figures, self._at = measured, now
            return self._figures, self._collecting_ms_per_second
