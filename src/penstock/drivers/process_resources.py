"""The resource usage of this process: CPU, memory, threads, garbage collections. Thread-safe.

A sample takes a tenth of a millisecond, and at most one is taken per second, so callers may ask as often as they like.
Limits come from the process's control groups, because they determine the resources of a container.

The limits that a container sets for this process: Linux control groups, versions 1 and 2, read from files.

Runs Python's cycle collector once for each restart.

Penstock's tasks release their parts when they end, so they leave no cycles. User-defined functions may, for example
with `self.handlers = {"a": self.on_a}`. Python's collector runs after many allocations, so a few large objects, such as
a model that every attempt loads, may stay for hours. A collection takes about 0.1 s for 1,000,000 objects.

How often Python looks for reference cycles in the processes that run tasks.
"""

from __future__ import annotations

import gc
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.runtime.protocol import ProcessFigures

if TYPE_CHECKING:
    import psutil


#: Version 1 represents "no limit" by a number of about this size.
_NO_LIMIT: Final = 1 << 60
_MOUNT: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")


def memory_bytes_max(mount: Path = _MOUNT, membership: Path = _MEMBERSHIP) -> int:
    """Return the memory limit (bytes) of the process's groups; 0 without a limit."""
    limits = [
        limit
        for directory in _directories("memory", mount, membership)
        for name in ("memory.max", "memory.limit_in_bytes")
        if (limit := _number(_read(directory / name))) is not None and 0 < limit < _NO_LIMIT
    ]
    return min(limits, default=0)


def cpu_cores_max(mount: Path = _MOUNT, membership: Path = _MEMBERSHIP) -> int | None:
    """Return the CPU limit of the process's groups in cores, rounded up; None without a limit."""
    limits = []
    for directory in _directories("cpu", mount, membership):
        quota, _, period = _read(directory / "cpu.max").partition(" ")
        if not quota:
            quota, period = _read(directory / "cpu.cfs_quota_us"), _read(directory / "cpu.cfs_period_us")
        quota_us, period_us = _number(quota), _number(period)
        if quota_us is not None and period_us and quota_us > 0:
            limits.append(math.ceil(quota_us / period_us))
    return min(limits, default=None)


def _directories(controller: str, mount: Path, membership: Path) -> Iterator[Path]:
    """Yield the directories of the process's group and of its ancestors for one controller.

    A container often sees its own group as the root, so the root is included.
    """
    for line in _read(membership).splitlines():
        _, _, rest = line.partition(":")
        names, _, group = rest.partition(":")
        if not names:  # version 2, perhaps alongside version 1
            roots = [mount, mount / "unified"]
        elif controller in names.split(","):
            roots = [mount / controller, mount / names]
        else:
            continue
        for root in dict.fromkeys(roots):
            directory = root / group.lstrip("/")
            yield directory
            while directory != root and root in directory.parents:
                directory = directory.parent
                yield directory


def _read(path: Path) -> str:
    """Return a file's text; empty if the file does not exist, as on systems other than Linux."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    """Parse a number such as 4096; return None for `max` and for empty text."""
    try:
        return int(text)
    except ValueError:
        return None


#: The maximum age (s) of figures.
AGE_SECONDS: Final = 1.0


class CollectionWatch:
    """Counts Python's garbage collections and their time, from construction to `close`."""

    def __init__(self) -> None:
        self.count = 0
        self.time_ns = 0
        self._begun_ns = 0
        gc.callbacks.append(self._on_collection)

    def close(self) -> None:
        """Stop counting."""
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, _: dict[str, Any]) -> None:
        if phase == "start":
            self._begun_ns = time.perf_counter_ns()
        elif self._begun_ns:
            self.count += 1
            self.time_ns += time.perf_counter_ns() - self._begun_ns


class ProcessWatch:
    """Samples the process that creates it; used by one thread at a time."""

    def __init__(self) -> None:
        import psutil  # workers import it after their start, in the heartbeat thread

        self._process: psutil.Process = psutil.Process()
        self._collections = CollectionWatch()
        self._cores = _cores()
        self._physical_bytes = int(psutil.virtual_memory().total)
        self._limit_bytes = memory_bytes_max()
        #: the stubs do not cover machines without a network, nor Windows
        self._network: Any = psutil.net_io_counters
        self._open_files: Any = getattr(self._process, "num_fds", None) or getattr(self._process, "num_handles", int)
        self._sampled_ns = time.monotonic_ns()
        self._cpu_ns = time.process_time_ns()

    def sample(self) -> ProcessFigures:
        """Return the current figures; the load is that since the last sample."""
        process = self._process
        now_ns, cpu_ns = time.monotonic_ns(), time.process_time_ns()
        elapsed_ns = max(1, now_ns - self._sampled_ns)
        load = (cpu_ns - self._cpu_ns) / elapsed_ns / self._cores
        self._sampled_ns, self._cpu_ns = now_ns, cpu_ns
        network = self._network()
        with process.oneshot():
            return ProcessFigures(
                cpu_load=min(1.0, max(0.0, load)),
                cpu_time_ns=cpu_ns,
                cores=self._cores,
                resident_bytes=int(process.memory_info().rss),
                memory_limit_bytes=self._limit_bytes,
                physical_bytes=self._physical_bytes,
                threads=process.num_threads(),
                collections=self._collections.count,
                collections_ms=self._collections.time_ns // 1_000_000,
                open_files=self._open_files(),
                network_in_bytes=0 if network is None else network.bytes_recv,
                network_out_bytes=0 if network is None else network.bytes_sent,
                modules=len(sys.modules),
            )

    def close(self) -> None:
        """Stop watching."""
        self._collections.close()


class _Shared:
    """The only watch of a process. A forked process creates its own."""

    def __init__(self) -> None:
        self._begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._restart)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._watch: ProcessWatch | None = None
        self._figures: ProcessFigures | None = None
        self._at = 0.0

    def _restart(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._begin()

    def figures(self) -> ProcessFigures:
        with self._lock:
            now = time.monotonic()
            if self._figures is None or now >= self._at + AGE_SECONDS:
                self._figures, self._at = self._sampled(self._figures), now
            return self._figures

    def _sampled(self, before: ProcessFigures | None) -> ProcessFigures:
        """Return the current figures, or the last ones if the system fails, as without free file descriptors."""
        import psutil

        try:
            self._watch = self._watch or ProcessWatch()
            return self._watch.sample()
        except (OSError, psutil.Error):
            return before or ProcessFigures()


def _cores() -> int:
    """Return the number of cores that the process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = cpu_cores_max()
    return allowed if limit is None else max(1, min(allowed, limit))


_shared: Final = _Shared()


def process_figures() -> ProcessFigures:
    """Return the resource usage of this process, at most a second old.

    `collections` and `collections_ms` count from the first call on.
    """
    return _shared.figures()


class EndedTasks:
    """Implements the port `CycleCollector`. The executors of a local cluster share one, so it runs once per restart.

    Args:
        collect: frees reference cycles.
    """

    def __init__(self, collect: Callable[[], object] = gc.collect) -> None:
        self._collect = collect
        self._has_ended_tasks = False

    def note(self) -> None:
        """Note that tasks have ended, which may have left cycles."""
        self._has_ended_tasks = True

    def collect(self) -> None:
        """Free cycles if tasks have ended since the last call."""
        if self._has_ended_tasks:
            self._has_ended_tasks = False
            self._collect()


#: The number of new objects after which Python looks for cycles.
GC_THRESHOLD = 200_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Make Python look for cycles less often: batches consist of many short-lived objects without cycles."""
    before = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
