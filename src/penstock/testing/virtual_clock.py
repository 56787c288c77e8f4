"""Processing time that a test moves by hand."""

from __future__ import annotations

from penstock.base.errors import WrongValueError


class VirtualClock:
    """Implements the `Clock` port; time (ms) stands still until it is told otherwise."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._ahead_ms = 0

    def now_ms(self) -> int:
        """The time in ms."""
        return self._now_ms

    def steady_ms(self) -> int:
        """The time in ms, without what the clock was set forwards."""
        return self._now_ms - self._ahead_ms

    def steady_ns(self) -> int:
        """The same in nanoseconds."""
        return self.steady_ms() * 1_000_000

    def jump(self, by_ms: int) -> None:
        """Set the clock forwards by this many ms, as somebody may do with a host's, or as after its suspension."""
        self.advance(by_ms)
        self._ahead_ms += by_ms

    def advance_to(self, now_ms: int) -> None:
        """Move to a time (ms).

        Raises:
            ValueError: if it lies in the past.
        """
        if now_ms < self._now_ms:
            raise WrongValueError(f"time does not run backwards: it is {self._now_ms} ms, not {now_ms} ms")
        self._now_ms = now_ms

    def advance(self, by_ms: int) -> None:
        """Move on by this many ms."""
        self.advance_to(self._now_ms + by_ms)
