"""Records the activity of a worker's loop for the thread that sends heartbeats."""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from penstock.base.errors import shorten
from penstock.core.ports import Clock
from penstock.drivers.cancellation import where_is

#: A turn that takes longer (ms) is reported. An idle loop turns once a second.
STILL_MS: Final = 2_000


class LoopState(NamedTuple):
    """The state of a worker's loop, as in `Heartbeat`."""

    whereabouts: str = ""
    still_ms: int = 0
    busy_ms: int | None = None


class LoopWatch:
    """Created by the loop's own thread, which reports each turn (`turned`) and its idle time (`waited`)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._thread = threading.current_thread()
        self._begun_ms = self._turned_ms = clock.steady_ms()
        self._waited_ms = 0

    def turned(self, now_ms: int) -> None:
        """Note that the loop has turned."""
        self._turned_ms = now_ms

    def waited(self, for_ms: int) -> None:
        """Note that the loop was idle for a while."""
        self._waited_ms += for_ms

    def state(self) -> LoopState:
        """Return the loop's state, with the user function that has not returned if the loop is stuck.

        Any thread may call this.
        """
        now_ms = self._clock.steady_ms()
        still_ms, busy_ms = now_ms - self._turned_ms, now_ms - self._begun_ms - self._waited_ms
        if still_ms < STILL_MS:
            return LoopState(busy_ms=busy_ms)
        return LoopState(shorten(where_is(self._thread) or ""), still_ms, busy_ms)
