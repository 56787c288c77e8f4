"""The resource use of a process, under Flink's names for a JVM.

Python has one heap, which is the process. So the heap is its resident memory, and the pools that only a JVM has
(non-heap, metaspace, direct and mapped buffers) are empty.
"""

from __future__ import annotations

from penstock.core.protocol import ProcessFigures
from penstock.operations.metrics.channels import ChannelMemory
from penstock.operations.metrics.scopes import Value

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
