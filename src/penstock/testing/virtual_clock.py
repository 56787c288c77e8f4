"""A clock for processing time that a test advances explicitly."""

from __future__ import annotations

from penstock.base.errors import WrongValueError


class VirtualClock:
    """Implements the `Clock` port; time (ms) does not advance by itself."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._ahead_ms = 0

    def now_ms(self) -> int:
        """Return the time in ms."""
        return self._now_ms

    def steady_ms(self) -> int:
        """Return the time in ms, excluding the jumps."""
        return self._now_ms - self._ahead_ms

    def steady_ns(self) -> int:
        """Return the same in nanoseconds."""
        return self.steady_ms() * 1_000_000

    def jump(self, by_ms: int) -> None:
        """Set the clock forward by this many ms, as when a host's clock is adjusted or the host resumes from
        suspension.
        """
        self.advance(by_ms)
        self._ahead_ms += by_ms

    def advance_to(self, now_ms: int) -> None:
        """Advance to a time (ms).

        Raises:
            ValueError: if it lies in the past.
        """
        if now_ms < self._now_ms:
            raise WrongValueError(f"time does not run backwards: it is {self._now_ms} ms, not {now_ms} ms")
        self._now_ms = now_ms

    def advance(self, by_ms: int) -> None:
        """Advance by this many ms."""
        self.advance_to(self._now_ms + by_ms)
