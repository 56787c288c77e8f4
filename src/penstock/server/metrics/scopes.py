"""Scopes of metrics (owner, name and variables), kinds of metrics, and the metrics of a process under Flink's names.

`Scoped` are metrics with their `Scope`: the owner, and the variables that identify it.

`classify_metric` returns the kind of a metric by its name, for filters and for reporters that distinguish kinds.

`channel_memory` describes the buffers of each worker's channels, under Flink's names for its pool of memory segments.
Penstock allocates a buffer when it needs one. Each channel has credit for a few buffers, and a producer keeps a few
full ones, so a worker's buffers are bounded. That bound replaces the pool: its size in bytes is the bound times the
average size of the buffers so far.

`process_metrics` is the resource use of a process, under Flink's names for a JVM. Python has one heap, which is the
process. So the heap is its resident memory, and the pools that only a JVM has (non-heap, metaspace, direct and mapped
buffers) are empty.

`ThisProcess` is the driver's own process in the metrics.
"""

from __future__ import annotations

import enum
import re
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from penstock.base.configuration import Configuration
from penstock.base.metrics import SCOPE_FORMATS, HistogramFigures
from penstock.drivers.inspection import process_figures
from penstock.runtime.job.view import JobView
from penstock.runtime.protocol import ProcessFigures, TaskFigures


@dataclass(frozen=True)
class Summary:
    """The numbers that a histogram or a distribution has received, in summary.

    Attributes:
        count: the number of them.
        total: their sum.
        least: the minimum.
        greatest: the maximum.
    """

    count: int
    total: float
    least: float
    greatest: float

    @property
    def mean(self) -> float:
        """The average; 0 without numbers."""
        return self.total / self.count if self.count else 0.0

    def flattened(self, name: str) -> dict[str, int | float]:
        """Return one metric for each figure, under Flink's names for the figures of histograms."""
        figures = (self.count, self.total, self.least, self.greatest, self.mean)
        return {f"{name}_{suffix}": figure for suffix, figure in zip(_FIGURES, figures, strict=True)}


@dataclass(frozen=True)
class Histogram(Summary):
    """The summary of a histogram of the runtime. All figures except the count cover only the latest numbers.

    Attributes:
        deviation: the standard deviation.
        bounds: the quantiles listed in `penstock.base.metrics`.
    """

    deviation: float
    bounds: tuple[float, ...]

    @classmethod
    def of(cls, figures: HistogramFigures) -> Histogram:
        """Create the summary from a task's report."""
        count, least, greatest, mean, deviation, bounds = figures
        return cls(count, mean * count, least, greatest, deviation, bounds)

    def flattened(self, name: str) -> dict[str, int | float]:
        """Return the figures under Flink's names."""
        figures = {"count": self.count, "min": self.least, "max": self.greatest, "mean": self.mean}
        bounds = dict(zip(_BOUNDS, self.bounds, strict=True))
        return {
            f"{name}_{suffix}": figure for suffix, figure in {**figures, "stddev": self.deviation, **bounds}.items()
        }


#: Variables that are part of a metric's name.
_OF_GROUPS: Final = {"state_name", "source_id", "source_subtask_index", "operator_id", "operator_subtask_index"}
_BOUNDS: Final = ("median", "p75", "p90", "p95", "p98", "p99", "p999")
_FIGURES: Final = ("count", "sum", "min", "max", "mean")

Value: TypeAlias = int | float | str | bool | Summary


class Scope(enum.Enum):
    """The owner of a metric; the value is Flink's logical scope."""

    JOB_MANAGER = "jobmanager"
    JOB = "jobmanager.job"
    JOB_MANAGER_OPERATOR = "jobmanager.job.operator"
    TASK_MANAGER = "taskmanager"
    JOB_ON_TASK_MANAGER = "taskmanager.job"
    TASK = "taskmanager.job.task"
    OPERATOR = "taskmanager.job.task.operator"


@dataclass(frozen=True)
class Scoped:
    """The metrics of one process, job, task or operator.

    Attributes:
        scope: the kind of owner.
        variables: the variables that identify it, by names such as `job_name`.
        values: by name, including dots.
        counters: the names of the counters of user-defined functions.
    """

    scope: Scope
    variables: Mapping[str, str]
    values: Mapping[str, Value]
    counters: frozenset[str] = field(default_factory=frozenset)


def of_operator(operator_name: str, name: str) -> str:
    """Return the name of an operator's metric among the metrics of its task, as in Flink's REST API."""
    return f"{''.join(c if c.isalnum() else '_' for c in operator_name)}.{name}"


def spelled(scoped: Scoped, name: str) -> str:
    """Return a metric's name including the values of its variables, for consumers without labels."""
    values = scoped.variables
    if name.partition(".")[0] not in ("latency", "state_name"):
        return name
    return ".".join(
        f"{part}.{values[part]}" if part in values and part in _OF_GROUPS else part for part in name.split(".")
    )


def flat(values: Mapping[str, Value]) -> dict[str, str | int | float]:
    """Return the metrics as single numbers and strings. Booleans are strings, as in Java."""
    single: dict[str, str | int | float] = {}
    for name, value in values.items():
        if isinstance(value, Summary):
            single.update(value.flattened(name))
        else:
            single[name] = str(value).lower() if isinstance(value, bool) else value
    return single


class ScopeFormats:
    """The prefixes of metric names from the options `metrics.scope.*`, for reporters that send names without labels."""

    def __init__(self, configuration: Configuration, delimiter: str = ".") -> None:
        self._formats = {scope: configuration.read(SCOPE_FORMATS[scope.value]) for scope in Scope}
        self._delimiter = delimiter

    def format_metric_name(self, scoped: Scoped, name: str) -> str:
        """Return the full name of a metric."""
        variables = scoped.variables
        parts = self._formats[scoped.scope].split(".")
        filled = [re.sub(r"<(\w+)>", lambda match: variables.get(match[1], match[0]), part) for part in parts]
        return self._delimiter.join([*filled, *spelled(scoped, name).split(".")])


COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"
METER: Final = "meter"

_COUNTERS: Final = {
    *("numRecordsIn", "numRecordsOut", "numBytesIn", "numBytesOut", "numBuffersOut"),
    *("numLateRecordsDropped", "numRecordsSend", "numRecordsSendErrors", "numRecordsInErrors"),
    *("numFiredTimers", "numBytesSend", "numRecordsOutErrors"),
    *("numBytesInLocal", "numBytesInRemote", "numBuffersInLocal", "numBuffersInRemote"),
}
_METERS: Final = {
    *("numRecordsInPerSecond", "numRecordsOutPerSecond", "numBytesInPerSecond", "numBytesOutPerSecond"),
    *("numBuffersOutPerSecond", "mailboxMailsPerSecond", "idleTimeMsPerSecond", "numFiredTimersPerSecond"),
    *("numBytesInLocalPerSecond", "numBytesInRemotePerSecond"),
    *("numBuffersInLocalPerSecond", "numBuffersInRemotePerSecond"),
}
#: The prefix of a second listing of some of these in Flink.
_INPUT: Final = "Shuffle.Netty.Input."


def grows_only(name: str) -> bool:
    """Return whether it is one of Penstock's own counters, which never decrease within an attempt."""
    return name.removeprefix(_INPUT) in _COUNTERS


def classify_metric(scoped: Scoped, name: str, value: Value) -> str:
    """Return one of the four kinds, as in Flink; a distribution is a histogram."""
    if isinstance(value, Summary):
        return HISTOGRAM
    name = name.removeprefix(_INPUT)
    if name in _COUNTERS or name in scoped.counters:
        return COUNTER
    return METER if name in _METERS else GAUGE


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
