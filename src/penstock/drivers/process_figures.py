"""The resource usage of this process: CPU, memory, threads, garbage collections. Thread-safe.

A sample takes a tenth of a millisecond, and at most one is taken per second, so callers may ask as often as they like.
Limits come from the process's control groups, because they determine the resources of a container.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from penstock.core.protocol import ProcessFigures
from penstock.drivers.control_groups import cpu_cores_max, memory_bytes_max

if TYPE_CHECKING:
    import psutil

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
