"""The driver's own process, as metrics have it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from penstock.core.protocol import ProcessFigures
from penstock.drivers.process_figures import process_figures


class ThisProcess:
    """What this process uses, and how long it collects garbage in a second.

    Args:
        measure: measures the process; at most once a second, however often it is called.
        now: a clock (s) that never goes back.
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
        """The process in which this is called."""
        return cls(process_figures, now)

    def figures(self) -> tuple[ProcessFigures, float]:
        """What the process uses, and for how long (ms) in each second it collected garbage lately."""
        with self._lock:
            measured, now = self._measure(), self._now()
            if measured is not self._figures and now > self._at:
                grown = measured.collections_ms - self._figures.collections_ms
                self._collecting_ms_per_second = max(0.0, grown / (now - self._at))
                self._figures, self._at = measured, now
            return self._figures, self._collecting_ms_per_second
