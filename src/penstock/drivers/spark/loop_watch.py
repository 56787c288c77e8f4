"""What a worker's loop has been at for a while; the thread that sends heartbeats asks for it."""

from __future__ import annotations

import threading
from typing import Final

from penstock.base.errors import shorten
from penstock.core.ports import Clock
from penstock.drivers.cancellation import where_is

#: A turn that takes longer is worth a message. An idle loop turns once a second.
STILL_MS: Final = 2_000


class LoopWatch:
    """Made by the loop's own thread, which says when it has `turned`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._thread = threading.current_thread()
        self._turned_ms = clock.steady_ms()

    def turned(self, now_ms: int) -> None:
        """Note that the loop goes on."""
        self._turned_ms = now_ms

    def whereabouts(self) -> str:
        """The user function that does not return; empty while the loop turns. Any thread may ask."""
        if self._clock.steady_ms() - self._turned_ms < STILL_MS:
            return ""
        return shorten(where_is(self._thread) or "")
