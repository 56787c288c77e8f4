"""The driver's own process in the metrics."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from penstock.core.protocol import ProcessFigures
from penstock.drivers.process_figures import process_figures


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
