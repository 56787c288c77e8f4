"""Time for drivers that live in real time."""

from __future__ import annotations

import time
from threading import Lock
from typing import Final

#: How long (ms) a driver's loop waits at most: the host's clock may be set meanwhile, and timers become due.
WAIT_MS_MAX: Final = 1_000


class SystemClock:
    """The host's clock, as processing time, and a steady one.

    Processing time follows the host's clock forwards at once: after a suspension, or when somebody sets it. When that
    clock is set back, processing time goes on at half speed until the two agree, so no timer stands still.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._steady_ns = time.monotonic_ns()
        self._now_ns = time.time_ns()

    def now_ms(self) -> int:
        """Processing time."""
        with self._lock:
            steady_ns, host_ns = time.monotonic_ns(), time.time_ns()
            passed_ns = steady_ns - self._steady_ns
            if host_ns < self._now_ns + passed_ns:
                host_ns = max(host_ns, self._now_ns + passed_ns // 2)
            self._steady_ns, self._now_ns = steady_ns, host_ns
            return host_ns // 1_000_000

    def steady_ms(self) -> int:
        """For time-outs."""
        return time.monotonic_ns() // 1_000_000

    def steady_ns(self) -> int:
        """For what takes less than a millisecond."""
        return time.monotonic_ns()
