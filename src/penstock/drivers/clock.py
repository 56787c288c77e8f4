"""Clocks for drivers that run in real time."""

from __future__ import annotations

import time
from threading import Lock
from typing import Final

#: The maximum time (ms) that a driver's loop waits: timers become due if the host's clock is set meanwhile.
WAIT_MS_MAX: Final = 1_000


class SystemClock:
    """The host's clock as processing time, and a monotonic clock.

    Processing time follows the host's clock forward at once, for example after a suspension. If that clock is set back,
    processing time advances at half speed until the two agree, so timers do not stall.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._steady_ns = time.monotonic_ns()
        self._now_ns = time.time_ns()

    def now_ms(self) -> int:
        """Return the processing time."""
        with self._lock:
            steady_ns, host_ns = time.monotonic_ns(), time.time_ns()
            passed_ns = steady_ns - self._steady_ns
            if host_ns < self._now_ns + passed_ns:
                host_ns = max(host_ns, self._now_ns + passed_ns // 2)
            self._steady_ns, self._now_ns = steady_ns, host_ns
            return host_ns // 1_000_000

    def steady_ms(self) -> int:
        """Return the monotonic time, for timeouts."""
        return time.monotonic_ns() // 1_000_000

    def steady_ns(self) -> int:
        """Return the monotonic time, for durations below a millisecond."""
        return time.monotonic_ns()
