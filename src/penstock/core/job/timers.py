"""Delayed calls of a job master, by its steady clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from penstock.core.ports import Clock


class Timers:
    """Delayed calls in the order of their due times; calls due at the same time keep the order of their requests."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Schedule a call after a delay (ms)."""
        self._count += 1
        heapq.heappush(self._due, (self._clock.steady_ms() + delay_ms, self._count, call))

    def next_deadline(self) -> int | None:
        """Return when (ms) the next call is due; None if no call is scheduled."""
        return self._due[0][0] if self._due else None

    def pop(self, now_ms: int) -> Callable[[], None] | None:
        """Return the next call that is due, for the caller to make; None if nothing is due."""
        return heapq.heappop(self._due)[2] if self._due and self._due[0][0] <= now_ms else None
