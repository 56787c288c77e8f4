"""Where a task's time goes: busy, back-pressured or idle, as Flink divides it.

A task is busy while it makes a step and back-pressured while it waits for its consumers. It is idle while it waits for
input, or for its worker's thread while other tasks have it: beside a slow function a cheap one is not busy, and it is
not what more subtasks would help. The busy times of all tasks of a worker that can do no more sum up to all its time.
"""

from __future__ import annotations


class TaskTimes:
    """Totals in ms, as of the last step. A step itself is always busy."""

    __slots__ = ("_since_ms", "back_pressured_ms", "busy_ms", "idle_ms", "is_back_pressured")

    def __init__(self, now_ms: int) -> None:
        self.busy_ms = 0
        self.back_pressured_ms = 0
        self.idle_ms = 0
        self._since_ms: int = now_ms
        #: whether it waits for its consumers now
        self.is_back_pressured = False

    def stepped(self, begun_ms: int, ended_ms: int, is_back_pressured: bool) -> None:
        """The task has made a step, and waits now, perhaps for its consumers; steady times."""
        waited = begun_ms - self._since_ms
        if self.is_back_pressured:
            self.back_pressured_ms += waited
        else:
            self.idle_ms += waited
        self.busy_ms += ended_ms - begun_ms
        self._since_ms, self.is_back_pressured = ended_ms, is_back_pressured
