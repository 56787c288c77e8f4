"""Calls that a job master has put off, by its steady clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from penstock.core.ports import Clock


class Timers:
    """Calls in the order in which they are due; of those due at once, the first one asked for comes first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call it after a delay (ms)."""
        self._count += 1
        heapq.heappush(self._due, (self._clock.steady_ms() + delay_ms, self._count, call))

    def next_deadline(self) -> int | None:
        """When (ms) the next call is due."""
        return self._due[0][0] if self._due else None

    def pop(self, now_ms: int) -> Callable[[], None] | None:
        """The next call that is due, which is the caller's to make; None when there is none."""
        return heapq.heappop(self._due)[2] if self._due and self._due[0][0] <= now_ms else None
