"""What the driver's own process uses, measured when somebody asks, and at most twice a second."""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
import time
from typing import Any, Final

import psutil

from penstock.core.protocol import ProcessFigures

#: How old (s) the figures may be.
FIGURES_SECONDS: Final = 0.5


class ThisProcess:
    """The figures of this process, and how long it collects garbage in a second."""

    def __init__(self) -> None:
        self.host = socket.gethostname()
        self._process = psutil.Process()
        self._collections, self._collecting_s, self._began = 0, 0.0, 0.0
        self._lock = threading.Lock()
        self._measured_at = time.monotonic() - 1
        self._collecting_ms_per_second = 0.0
        self._figures = ProcessFigures()
        gc.callbacks.append(self._on_collection)
        self.figures()

    def close(self) -> None:
        """Measure no more."""
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self._collections += 1
            self._collecting_s += time.perf_counter() - self._began

    def figures(self) -> ProcessFigures:
        """What the process uses."""
        with self._lock:
            now = time.monotonic()
            if now >= self._measured_at + FIGURES_SECONDS:
                before, elapsed_s = self._figures, now - self._measured_at
                self._figures = self._measured(before, elapsed_s)
                self._collecting_ms_per_second = (self._figures.collections_ms - before.collections_ms) / elapsed_s
                self._measured_at = now
            return self._figures

    @property
    def collecting_ms_per_second(self) -> float:
        """How long (ms) garbage collections took in each second between the last two times that somebody asked."""
        return self._collecting_ms_per_second

    @property
    def modules(self) -> int:
        """How many modules Python has loaded."""
        return len(sys.modules)

    def _measured(self, before: ProcessFigures, elapsed_s: float) -> ProcessFigures:
        with self._process.oneshot():
            times, memory = self._process.cpu_times(), self._process.memory_info()
            threads, files = self._process.num_threads(), self._process.num_fds()
        cores = os.cpu_count() or 1
        cpu_time_ns = int((times.user + times.system) * 1e9)
        load = (cpu_time_ns - before.cpu_time_ns) / (elapsed_s * 1e9 * cores) if before.cpu_time_ns else 0.0
        return ProcessFigures(
            cpu_load=min(1.0, load),
            cpu_time_ns=cpu_time_ns,
            cores=cores,
            resident_bytes=memory.rss,
            physical_bytes=psutil.virtual_memory().total,
            threads=threads,
            collections=self._collections,
            collections_ms=int(self._collecting_s * 1000),
            open_files=files,
        )
