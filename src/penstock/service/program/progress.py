"""The progress of bounded jobs, as a bar on stderr: how many of their tasks have ended, and how much they have read.

The total amount to read is not known in advance, so the bar counts tasks. It polls the job twice a second in its own
thread, and appears only at a terminal.
"""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Final

from penstock.base.configuration import Configuration
from penstock.base.errors import PenstockError
from penstock.core.connector import Boundedness
from penstock.core.graph.job_graph import JobGraph
from penstock.core.job.view import JobView
from penstock.drivers.running_job import RunningJob

INTERVAL_SECONDS: Final = 0.5


def is_bounded(graph: JobGraph) -> bool:
    """Return whether all sources of a job are bounded."""
    sources = [source for vertex in graph.vertices for source in vertex.sources.values()]
    return all(source.boundedness is Boundedness.BOUNDED for source in sources)


def tasks_and_records(view: JobView) -> tuple[int, int, int]:
    """Return how many tasks of a job have ended, how many there are, and how many records its sources have read."""
    subtasks = [subtask for vertex in view.vertices for subtask in vertex.subtasks]
    ended = sum(subtask.state is not None and subtask.state.name == "FINISHED" for subtask in subtasks)
    read = sum(
        subtask.metrics.records_in
        for vertex in view.vertices
        if vertex.is_source
        for subtask in vertex.subtasks
        if subtask.metrics is not None
    )
    return ended, len(subtasks), read


class ProgressLines:
    """A bar for each bounded job."""

    def on_job(self, job: RunningJob, graph: JobGraph, configuration: Configuration) -> None:
        """Show a bar for a job that has started, if it is bounded."""
        if is_bounded(graph):
            threading.Thread(target=self._show, args=(job, graph.name), name="penstock-progress", daemon=True).start()

    def _show(self, job: RunningJob, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("tasks"))
        records = TextColumn("{task.fields[read]:,} records")
        with Progress(*columns, records, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
            line = bar.add_task(name, total=None, read=0)
            result = job.get_job_execution_result()
            while not result.done():
                view = _view(job)
                if view is not None:
                    ended, total, read = tasks_and_records(view)
                    bar.update(line, completed=ended, total=total, read=read)
                _wait(result)


def _view(job: RunningJob) -> JobView | None:
    try:
        return job.get_view().result(INTERVAL_SECONDS)
    except (CancelledError, TimeoutError, PenstockError):
        return None


def _wait(result: Future[Any]) -> None:
    with suppress(CancelledError, TimeoutError):
        result.exception(INTERVAL_SECONDS)
