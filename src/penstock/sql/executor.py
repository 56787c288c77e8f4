"""Executors of plans: the interface between the Table API and the runtimes, and what jobs have done.

`analyzed_text` is the text of EXPLAIN ANALYZE: the operators of a job as a tree, consumers above producers, with their
figures. Records are counted by operator. Time and state are measured by task, because the operators of a task share its
thread; the first operator of the task in the tree has these figures. Sizes of state are from the last completed
checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from penstock.drivers.running_job import JobClient, RunningJob
from penstock.plan.stream_graph import Plan
from penstock.runtime.job.view import JobView, VertexView
from penstock.sql.functions.definition import Session
from penstock.sql.logical.nodes import Node, Write
from penstock.sql.typed import Typed

#: a changelog row: its kind (`+I`, `-U`, `+U`, `-D`) and its external values
ChangelogRow = tuple[str, tuple[Any, ...]]


class Job(Protocol):
    """A started job."""

    def wait(self, timeout_ms: int | None = None) -> None:
        """Wait for the job's end. Raises its error, or `CallTimeoutError` if it still runs after `timeout_ms`."""

    def client(self) -> JobClient:
        """Return the job's client, as `StreamExecutionEnvironment.execute_async` does."""

    def analyzed(self) -> str:
        """Return what the job has done, for EXPLAIN ANALYZE."""


class CollectingJob(Job, Protocol):
    """A job that sends its rows to the client. `wait` blocks until the first row is available, and keeps all rows."""

    def rows(self) -> Iterator[ChangelogRow]:
        """Yield rows as they arrive, until the job ends."""

    def held_rows(self) -> Iterator[ChangelogRow]:
        """Like `rows`, with internal values (`penstock.sql.data.arrow`), which keep nanoseconds."""

    def cancel(self) -> None:
        """Cancel the job when its rows are not needed any longer."""


class RowChanging(Protocol):
    """Changes rows of tables; see `TableConnector`. `options`: those of the table."""

    def pin_version(self, path: tuple[str, str, str], options: Mapping[str, str]) -> dict[str, str]:
        """Return options for reading and changing a table's rows. Raises `UnsupportedError` if this is impossible."""

    def remove_rows(
        self, path: tuple[str, str, str], options: Mapping[str, str], condition: Typed | None, names: Sequence[str]
    ) -> int | None:
        """Remove rows of a table without a job and return their number, -1 if unknown; None if that is impossible."""


class Executor(Protocol):
    """Runs plans as jobs. `options`: the session's options as strings; `session`: the state visible to functions."""

    @property
    def connectors(self) -> RowChanging:
        """The connectors, which change rows of tables."""

    def write(
        self, plans: Sequence[Write], options: Mapping[str, str], session: Session, name: str | None = None
    ) -> Job:
        """Start one job that writes to all these tables."""

    def check_overwrites(self, plan: Write) -> None:
        """Raise `UnsupportedError` unless a batch job may replace the contents of the table."""

    def options_up_to_now(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the options with which a table is read up to its present end, if its connector can do so."""

    def collect(self, plan: Node, options: Mapping[str, str], session: Session) -> CollectingJob:
        """Start a job that sends the rows of a plan to the client."""

    def frame(self, plan: Node, options: Mapping[str, str], session: Session) -> Any:
        """Return the rows of a plan as a Spark data frame. Raises `ConfigurationError` except in BATCH mode."""

    def explain(
        self, plans: Sequence[Node], options: Mapping[str, str], session: Session, details: Sequence[str]
    ) -> str:
        """Return the part of EXPLAIN below the logical plans: how they would run."""

    def plan(self, plans: Sequence[Node], options: Mapping[str, str], session: Session) -> Plan:
        """Return the job plan without running it. Raises `UnsupportedError` if it does not exist before the run."""


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
        for place, name in enumerate(reversed(vertex.operators)):
            records = by_operator.get(infos.get(name, ""))
            counts = ("", "") if records is None else (f"{records[0]:,}", f"{records[1]:,}")
            more: Sequence[str] = of_task if place == 0 else ()
            yield _Line(f"{'  ' * (depth + place)}{name}", str(vertex.parallelism), *counts, *more)


def _share(time_ms: int, whole_ms: int) -> str:
    return f"{time_ms / 1000:,.1f} s ({100 * time_ms / whole_ms:.0f} %)" if whole_ms else ""


def _size(count: int) -> str:
    if not count:
        return ""
    size, unit = float(count), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:,.1f} {_UNITS[unit]}" if unit else f"{count} B"
