"""Logs the input that holds an operator's watermark back, with the source that the input comes from.

A task reports its hold: its inputs that stand still while others are ahead (`runtime.task.watermarks`). Most holds are
short. The log names a hold once the inputs ahead have moved for 60 s while the watermark stood still. So a job whose
inputs all pause, at night for example, logs nothing, and neither does a job that waits for a source without watermarks.

A hold spreads downstream: the consumers of a held operator wait as well. So only the operator where the hold begins
gets a log line, and an operator with several inputs names the source that its slow input comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.runtime.effects import Effects
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.graph.job_graph import JobEdge, JobGraph
from penstock.runtime.ports import Clock
from penstock.runtime.protocol import InputWatermark, TaskFigures, TaskMetrics, WatermarkHold
from penstock.runtime.records import MIN_TIMESTAMP

#: How long (ms) a watermark must stand still while other inputs move before the log names it.
NAMED_MS: Final = 60_000
#: The log names a vertex again after this time (ms) at the earliest.
AGAIN_MS: Final = 600_000
REMEDY: Final = (
    "if it may be silent, let it become idle: with_idleness(...) of its watermark strategy, or "
    "table.exec.source.idle-timeout in SQL"
)

#: Returns the latest figures of a subtask, by vertex and subtask index.
FiguresOf = Callable[[int, int], TaskFigures | None]


@dataclass(frozen=True)
class Origin:
    """The origin of a watermark that stands still.

    Attributes:
        vertex: the index of the vertex.
        subtasks: its subtasks that stand still, as far as known.
        splits: the splits of a source that stand still; empty unless the source has several.
        has_watermarks: whether there will ever be watermarks; False for a source without a strategy.
    """

    vertex: int
    subtasks: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    has_watermarks: bool = True


def holding(hold: WatermarkHold) -> InputWatermark:
    """Return the first input that holds a watermark back."""
    return next(watermark for watermark in hold.inputs if watermark.holds)


def find_producer(edges: Sequence[JobEdge], slow: InputWatermark) -> int | None:
    """Return the index of the vertex that an input comes from; None for the splits of a source."""
    return next((edge.source for edge in edges if edge.index == slow.edge), None)


def trace_origin(edges: Sequence[JobEdge], get_figures: FiguresOf, vertex: int, subtask: int) -> Origin | None:
    """Follow a hold upstream from a subtask to the place where watermarks are made, such as a source.

    The search ends earlier at an operator with several inputs that are all equally far.

    Args:
        edges: the edges of the job.
        get_figures: returns the latest report of a subtask.
        vertex: the index of the vertex.
        subtask: the index of the subtask.
    """
    origin: Origin | None = None
    for _ in range(len(edges) + 1):  # bounded, because a job with loops has back edges
        figures = get_figures(vertex, subtask)
        hold = None if figures is None else figures.hold
        if hold is not None and (blocker := holding(hold)).edge is None:
            return Origin(vertex, (str(subtask),), blocker.parts)
        if origin is not None and figures is not None and figures.makes_watermarks is not None:
            return replace(origin, has_watermarks=figures.makes_watermarks)
        if hold is not None:
            producer = find_producer(edges, blocker)
            assert producer is not None, "a split is the origin"
            vertex, subtasks = producer, blocker.parts
        else:
            inputs = [edge for edge in edges if edge.target == vertex]
            if origin is None or len(inputs) != 1:
                return origin
            vertex, subtasks = inputs[0].source, ()
        origin = Origin(vertex, subtasks)
        subtask = int(subtasks[0]) if subtasks else 0
    return origin


class WatermarkHolds:
    """Writes the log lines; see the module docstring."""

    def __init__(self, graph: ExecutionGraph, clock: Clock, effects: Effects, get_figures: FiguresOf) -> None:
        self._graph = graph
        self._clock = clock
        self._effects = effects
        self._get_figures = get_figures
        #: when (steady ms) the log last named each vertex
        self._said_ms: dict[int, int] = {}
        #: by vertex, the subtask that the log named, while its watermark stands still
        self._open: dict[int, int] = {}

    def on_metrics(self, message: TaskMetrics) -> None:
        """Handle a task's report."""
        vertex, subtask = message.execution.vertex, message.execution.subtask
        hold = None if message.figures is None else message.figures.hold
        if hold is None:
            if self._open and self._open.get(vertex) == subtask:
                del self._open[vertex]
                self._effects.log(f"the watermark of {self._name(vertex)} goes on")
            return
        if hold.moved_ms - hold.since_ms < NAMED_MS or self._is_held_upstream(hold):
            return
        origin = trace_origin(self._job_graph.edges, self._get_figures, vertex, subtask)
        if origin is not None and not origin.has_watermarks:
            return
        now_ms = self._clock.steady_ms()
        said_ms = self._said_ms.get(vertex)
        if said_ms is not None and now_ms < said_ms + AGAIN_MS:
            return
        self._said_ms[vertex], self._open[vertex] = now_ms, subtask
        self._effects.log(self._in_words(vertex, subtask, hold, origin))

    @property
    def _job_graph(self) -> JobGraph:
        return self._graph.job_graph

    def _name(self, vertex: int) -> str:
        return f"'{self._job_graph.vertices[vertex].operators[0].name}'"

    def _is_held_upstream(self, hold: WatermarkHold) -> bool:
        """Return whether the producer of the slow input is held back itself; it then has its own log line."""
        blocker = holding(hold)
        producer = find_producer(self._job_graph.edges, blocker)
        if producer is None:
            return False
        reported = [self._get_figures(producer, int(part)) for part in blocker.parts]
        return any(figures is not None and figures.hold is not None for figures in reported)

    def _in_words(self, vertex: int, subtask: int, hold: WatermarkHold, origin: Origin | None) -> str:
        blocker = holding(hold)
        for_s = (self._clock.now_ms() - hold.since_ms) // 1000
        ahead_ms = max(watermark.highest_ms for watermark in hold.inputs)
        where = self._input_in_words(blocker, origin)
        if blocker.lowest_ms == MIN_TIMESTAMP:
            how = "has no watermark yet"
        else:
            how = f"is {(ahead_ms - blocker.lowest_ms) / 1000:,.0f} s behind the one that is furthest ahead"
        producers = [find_producer(self._job_graph.edges, watermark) for watermark in hold.inputs if watermark.is_idle]
        idle = [f"input {self._name(producer)}" for producer in producers if producer is not None]
        idle_note = f"; {', '.join(idle)} {'is' if len(idle) == 1 else 'are'} idle" if idle else ""
        who = f"{self._name(vertex)} (subtask {subtask + 1}/{self._job_graph.vertices[vertex].parallelism})"
        return (
            f"the watermark of {who} has stood still for {for_s} s "
            f"while other inputs go on: it waits for {where}, which is not idle and {how}{idle_note}; {REMEDY}"
        )

    def _input_in_words(self, blocker: InputWatermark, origin: Origin | None) -> str:
        more = blocker.count - len(blocker.parts)
        rest = f" and {more} more" if more else ""
        producer = find_producer(self._job_graph.edges, blocker)
        if producer is None:
            return f"{'split' if blocker.count == 1 else 'splits'} {', '.join(blocker.parts)}{rest}"
        numbers = ", ".join(str(int(part) + 1) for part in blocker.parts)
        where = f"input {self._name(producer)} ({'subtask' if blocker.count == 1 else 'subtasks'} {numbers}{rest})"
        return where if origin is None or origin.vertex == producer else f"{where}, from {self._name(origin.vertex)}"
