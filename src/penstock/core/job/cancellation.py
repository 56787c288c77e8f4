"""How long cancelled tasks may take to end, and when to report unfinished ones. Pure: times (ms) in, decisions out."""

from __future__ import annotations

from typing import Final

#: How long cancelled tasks may take before the log reports them and, at least, before their workers are killed.
PATIENCE_MS: Final = 5_000


class TaskCancellation:
    """Watches the tasks of one attempt, from `begin` to `end`.

    Args:
        interval_ms: how often to report unfinished tasks, after the first report.
        timeout_ms: after how long to kill their workers; 0 for never.
    """

    def __init__(self, interval_ms: int, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._interval_ms = interval_ms
        self._begun_ms = 0
        self._word_ms: int | None = None
        self._deadline_ms: int | None = None

    def begin(self, now_ms: int) -> None:
        """Begin to watch tasks that were cancelled."""
        self._begun_ms = now_ms
        self._word_ms = now_ms + PATIENCE_MS
        self._deadline_ms = now_ms + self.timeout_ms if self.timeout_ms else None

    def hurry(self, now_ms: int) -> None:
        """Handle a repeated request to cancel: give tasks the minimum time for an orderly end, and no more."""
        if self._word_ms is not None:
            deadline_ms = max(now_ms, self._begun_ms + PATIENCE_MS)
            self._deadline_ms = deadline_ms if self._deadline_ms is None else min(self._deadline_ms, deadline_ms)

    def end(self) -> None:
        """Stop watching, because all tasks have ended."""
        self._word_ms = self._deadline_ms = None

    def waited_ms(self, now_ms: int) -> int:
        """Return how long (ms) the tasks have taken so far."""
        return now_ms - self._begun_ms

    def next_deadline(self) -> int | None:
        """Return when the next report or kill is due."""
        return min((t for t in (self._word_ms, self._deadline_ms) if t is not None), default=None)

    def is_over(self, now_ms: int) -> bool:
        """Return whether to kill workers."""
        return self._deadline_ms is not None and now_ms >= self._deadline_ms

    def takes_word(self, now_ms: int) -> bool:
        """Return whether a report is due, and schedule the next one."""
        if self._word_ms is None or now_ms < self._word_ms:
            return False
        self._word_ms = now_ms + self._interval_ms
        return True
