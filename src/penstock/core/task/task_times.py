"""Where a task's time goes: busy, back-pressured or idle, as Flink divides it.

A task is busy while it makes a step and back-pressured while it waits for its consumers. It is idle while it waits for
input, or for its worker's thread while other tasks have it: beside a slow function a cheap one is not busy, and it is
not what more subtasks would help. The busy times of all tasks of a worker that can do no more sum up to all its time.
"""

from __future__ import annotations

from penstock.base.histograms import HistogramFigures


class TaskTimes:
    """Totals in ms, as of the last step. A step itself is always busy."""

    __slots__ = (
        "_longest_ms",
        "_since_ms",
        "_wait_ms",
        "back_pressured_ms",
        "busy_ms",
        "idle_ms",
        "is_back_pressured",
        "mailbox_latency",
    )

    def __init__(self, now_ms: int) -> None:
        self.busy_ms = 0
        self.back_pressured_ms = 0
        self.idle_ms = 0
        self._since_ms: int = now_ms
        #: whether it waits for its consumers now
        self.is_back_pressured = False
        #: how late its worker looks at mail; None before the second report
        self.mailbox_latency: HistogramFigures | None = None
        self._wait_ms = 0
        self._longest_ms = 0

    def stepped(self, begun_ms: int, ended_ms: int, is_back_pressured: bool) -> None:
        """The task has made a step, and waits now, perhaps for its consumers; steady times."""
        waited = begun_ms - self._since_ms
        if self.is_back_pressured:
            self.back_pressured_ms += waited
            self._wait_ms += waited
            self._longest_ms = max(self._longest_ms, self._wait_ms)
        else:
            self.idle_ms += waited
        self.busy_ms += ended_ms - begun_ms
        if not is_back_pressured:
            self._wait_ms = 0
        self._since_ms, self.is_back_pressured = ended_ms, is_back_pressured

    def take_longest_back_pressure(self) -> int:
        """The longest wait for its consumers since the last call (ms), as of the last step."""
        longest_ms, self._longest_ms = self._longest_ms, 0
        return longest_ms
