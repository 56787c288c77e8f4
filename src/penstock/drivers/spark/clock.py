"""Processing time for the threads of this driver."""

from __future__ import annotations

import time


class SystemClock:
    """Milliseconds since the epoch, as of this process's start, and from there by a clock that only goes forwards."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        return (self._offset_ns + time.monotonic_ns()) // 1_000_000
