"""Where a task's time goes: busy, back-pressured or idle, as Flink divides it.

A task is idle while it waits for input and back-pressured while it waits for its consumers. All else counts as busy,
also what it waits for its worker's thread while other tasks have it: a worker that can do no more shows by tasks that
are busy all the time, however many share it.
"""

from __future__ import annotations

import enum


class Waiting(enum.Enum):
    """What a task does between two steps."""

    FOR_THREAD = "FOR_THREAD"
    FOR_INPUT = "FOR_INPUT"
    FOR_OUTPUT = "FOR_OUTPUT"


class TaskTimes:
    """Totals in ms, as of the last step. A step itself is always busy."""

    __slots__ = ("_since_ms", "_waiting", "back_pressured_ms", "busy_ms", "idle_ms")

    def __init__(self, now_ms: int) -> None:
        self.busy_ms = 0
        self.back_pressured_ms = 0
        self.idle_ms = 0
        self._since_ms: int = now_ms
        self._waiting = Waiting.FOR_THREAD

    def stepped(self, begun_ms: int, ended_ms: int, waiting: Waiting) -> None:
        """The task has made a step, and waits now; steady times."""
        waited = begun_ms - self._since_ms
        if self._waiting is Waiting.FOR_INPUT:
            self.idle_ms += waited
        elif self._waiting is Waiting.FOR_OUTPUT:
            self.back_pressured_ms += waited
        else:
            self.busy_ms += waited
        self.busy_ms += ended_ms - begun_ms
        self._since_ms, self._waiting = ended_ms, waiting

    @property
    def is_back_pressured(self) -> bool:
        """Whether it waits for its consumers now."""
        return self._waiting is Waiting.FOR_OUTPUT
