"""Rates per second, computed from totals in two views of a job.

The other view is some seconds old, so a rate is the average over these seconds. For a task that has begun since, or a
job that is observed for the first time, it is the average over its life so far.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from penstock.core.graph.states import ExecutionState
from penstock.core.job.view import JobView, SubtaskView
from penstock.core.protocol import OperatorFigures, TaskFigures, TaskMetrics
from penstock.core.records import MIN_TIMESTAMP

#: Minimum period (ms) of a rate, once the job has been observed for that long.
RATE_SPAN_MS: Final = 10_000
#: How much (ms) the interval between two reports may differ from the interval between their views, at most.
SLACK_MS: Final = 1_500
#: Minimum interval (ms) between the views that are kept for this.
SPACING_MS: Final = 1_000

_NO_FIGURES: Final = TaskFigures()


class History:
    """The latest views of a job: at most one per second, over little more than the period of a rate."""

    def __init__(self, span_ms: int = RATE_SPAN_MS, spacing_ms: int = SPACING_MS) -> None:
        self._span_ms = span_ms
        self._spacing_ms = spacing_ms
        self._views: deque[JobView] = deque()

    def __len__(self) -> int:
        return len(self._views)

    def add(self, view: JobView) -> JobView | None:
        """Add a newer view. Returns the view to compare it with, None for the first."""
        views = self._views
        while len(views) > 1 and views[1].now_ms <= view.now_ms - self._span_ms:
            views.popleft()
        base = views[0] if views else None
        if not views or view.now_ms >= views[-1].now_ms + self._spacing_ms:
            views.append(view)
        return base


@dataclass(frozen=True)
class SubtaskRates:
    """The rates of one subtask.

    Attributes:
        elapsed_ms: the time between the two reports; 0 if the subtask has ended.
        earlier: its report in the earlier view; zeros if it had not begun.
        waited_ms: the part of that time that it has not accounted for, because it has made no step since.
    """

    elapsed_ms: float
    earlier: TaskMetrics
    waited_ms: float = 0

    def per_second(self, total: float, earlier: float) -> float:
        """Return the growth of a total per second."""
        return max(0.0, 1000 * (total - earlier) / self.elapsed_ms) if self.elapsed_ms > 0 else 0.0

    @property
    def figures(self) -> TaskFigures:
        """The earlier figures."""
        return self.earlier.figures or _NO_FIGURES

    def operator(self, operator_id: str) -> OperatorFigures:
        """Return the earlier figures of one of its operators."""
        known = (operator for operator in self.figures.operators if operator.operator_id == operator_id)
        return next(known, OperatorFigures(operator_id))


class Rates:
    """The rates of a job's subtasks and workers, between two views."""

    def __init__(self, view: JobView, base: JobView | None = None) -> None:
        self.view = view
        self.base = base

    def of_subtask(self, vertex: int, subtask: SubtaskView) -> SubtaskRates:
        """Return the rates of a subtask that has reported."""
        metrics = subtask.metrics
        assert metrics is not None, "a subtask without a report has no rates"
        earlier = self._earlier(vertex, metrics)
        before = earlier or TaskMetrics(metrics.execution, 0, 0, MIN_TIMESTAMP)
        measured = _measured_ms(metrics)
        elapsed_ms = self._elapsed_ms(subtask, is_first=earlier is None)
        if measured is None:
            return SubtaskRates(elapsed_ms, before)
        accounted_ms = measured - (_measured_ms(before) or 0)
        waited_ms = elapsed_ms - accounted_ms
        if waited_ms <= SLACK_MS:
            return SubtaskRates(accounted_ms, before)
        return SubtaskRates(elapsed_ms, before, waited_ms)

    def _elapsed_ms(self, subtask: SubtaskView, *, is_first: bool) -> int:
        """Return the time since the earlier view or the subtask's start, by the views' clock; 0 if it has ended."""
        if subtask.state is None or subtask.state.is_terminal:
            return 0
        if self.base is not None and not is_first:
            return self.view.now_ms - self.base.now_ms
        return self.view.now_ms - dict(subtask.since_ms).get(ExecutionState.RUNNING, self.view.now_ms)

    def _earlier(self, vertex: int, metrics: TaskMetrics) -> TaskMetrics | None:
        if self.base is None or vertex >= len(self.base.vertices):
            return None
        subtasks, index = self.base.vertices[vertex].subtasks, metrics.execution.subtask
        known = subtasks[index].metrics if index < len(subtasks) else None
        return known if known is not None and known.execution == metrics.execution else None

    def of_process(self, total: float, earlier: float | None) -> float:
        """Return the growth of a total of a worker's process per second; 0 while there is only one report."""
        if self.base is None or earlier is None or self.view.now_ms <= self.base.now_ms:
            return 0.0
        return max(0.0, 1000 * (total - earlier) / (self.view.now_ms - self.base.now_ms))


def _measured_ms(metrics: TaskMetrics) -> int | None:
    """Return how long the attempt had run at the report, by its own clock; None if it was not measured."""
    figures = metrics.figures
    return None if figures is None else figures.busy_ms + figures.back_pressured_ms + figures.idle_ms
