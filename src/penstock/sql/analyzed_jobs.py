"""The text of EXPLAIN ANALYZE: the operators of a job as a tree, consumers above producers, with their figures.

Records are counted by operator. Time and state are measured by task, because the operators of a task share its thread;
the first operator of the task in the tree has these figures. Sizes of state are from the last completed checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from penstock.drivers.running_job import RunningJob
from penstock.runtime.job.view import JobView, VertexView

_HEADER: Final = ("operator", "parallelism", "records in", "records out", "busy", "back-pressured", "idle", "state")
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


class _Line(NamedTuple):
    """An operator and its figures as texts. Only the first operator of a task has the figures of the task."""

    operator: str
    parallelism: str
    records_in: str
    records_out: str
    busy: str = ""
    back_pressured: str = ""
    idle: str = ""
    state: str = ""


def analyzed_job(job: RunningJob) -> str:
    """Return the operators of a job that runs or has ended, with their figures."""
    view = job.last_view()
    return analyzed_text(job.get_view().result() if view is None else view)


def analyzed_text(view: JobView) -> str:
    """Return the operators of a job with their figures so far."""
    lines = list(_Tree(view).lines())
    columns = list(zip(_HEADER, *lines, strict=True))
    widths = [max(map(len, column)) for column in columns]
    texts = []
    for cells in (_HEADER, *lines):
        first, *others = (
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        texts.append("  ".join((first, *others)).rstrip())
    status = f"Job {view.job_id} ({view.name}) is {view.status.name}"
    return "\n".join([f"== Analyzed Job ==\n{status}{_describe_checkpoints(view)}\n", *texts]) + "\n"


def _describe_checkpoints(view: JobView) -> str:
    restarts = f", restarted {view.restarts} times" if view.restarts else ""
    completed = view.checkpoints.completed
    return f"{restarts}, with {completed} completed checkpoints" if completed else restarts


class _Tree:
    """Walks over the vertices from the last ones to the sources."""

    def __init__(self, view: JobView) -> None:
        self._vertices = {vertex.index: vertex for vertex in view.vertices}
        self._edges = view.edges
        self._seen: set[int] = set()
        last = view.checkpoints.last
        self._state: dict[int, int] = {}
        for part in last.parts if last is not None else ():
            self._state[part.vertex] = self._state.get(part.vertex, 0) + part.state_bytes

    def lines(self) -> Iterator[_Line]:
        """Yield a line for each operator, and one for each further use of a vertex."""
        producers = {edge.source for edge in self._edges}
        for index in sorted(self._vertices, reverse=True):
            if index not in producers:
                yield from self._below(index, 0)

    def _below(self, index: int, depth: int) -> Iterator[_Line]:
        vertex = self._vertices[index]
        if index in self._seen:
            yield _Line(f"{'  ' * depth}{vertex.operators[-1]} (see above)", "", "", "")
            return
        self._seen.add(index)
        yield from self._of_vertex(vertex, depth)
        depth += len(vertex.operators)
        for edge in sorted(self._edges, key=lambda edge: edge.input_index):
            if edge.target == index:
                yield from self._below(edge.source, depth)

    def _of_vertex(self, vertex: VertexView, depth: int) -> Iterator[_Line]:
        reports = [subtask.metrics for subtask in vertex.subtasks if subtask.metrics is not None]
        tasks = [report.figures for report in reports if report.figures is not None]
        times = [sum(getattr(task, name) for task in tasks) for name in ("busy_ms", "back_pressured_ms", "idle_ms")]
        of_task = (*(_share(time, sum(times)) for time in times), _size(self._state.get(vertex.index, 0)))
        by_operator: dict[str, tuple[int, int]] = {}
        for figures in (figures for task in tasks for figures in task.operators):
            before = by_operator.get(figures.operator_id, (0, 0))
            by_operator[figures.operator_id] = before[0] + figures.records_in, before[1] + figures.records_out
        infos = {info.name: info.operator_id for info in vertex.infos}
        for indent, name in enumerate(reversed(vertex.operators)):
            records = by_operator.get(infos.get(name, ""))
            counts = ("", "") if records is None else (f"{records[0]:,}", f"{records[1]:,}")
            more: Sequence[str] = of_task if indent == 0 else ()
            yield _Line(f"{'  ' * (depth + indent)}{name}", str(vertex.parallelism), *counts, *more)


def _share(time_ms: int, whole_ms: int) -> str:
    return f"{time_ms / 1000:,.1f} s ({100 * time_ms / whole_ms:.0f} %)" if whole_ms else ""


def _size(count: int) -> str:
    if not count:
        return ""
    size, unit = float(count), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:,.1f} {_UNITS[unit]}" if unit else f"{count} B"
