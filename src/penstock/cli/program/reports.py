"""A process's reports on its jobs, and the progress bar of bounded jobs.

`Reports` has two forms: lines as Flink's client prints them, or JSON lines for the parent process.

`ProgressLines` is a bar on stderr: how many tasks of a job have ended, and how much they have read. The total amount to
read is not known in advance, so the bar counts tasks. It polls the job twice a second in its own thread, and appears
only at a terminal.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from typing import Any, Final

from penstock.base.configuration import Configuration
from penstock.base.durable_files import print_lines
from penstock.base.errors import PenstockError
from penstock.base.job import JobExecutionResult, JobStatus
from penstock.base.options import RECOVERY_FROM_LATEST, RECOVERY_PATH
from penstock.base.secrets import hide, hide_json
from penstock.drivers.running_job import RunningJob
from penstock.runtime.connector import Boundedness
from penstock.runtime.graph import ExecutionState, JobGraph
from penstock.runtime.job.view import JobView

#: The environment variable with the file descriptor for reports, one JSON object per line.
REPORT_VARIABLE: Final = "PENSTOCK_REPORT_FD"

#: How long (s) a program that ends waits for clients that have started an operation and not yet fetched its outcome.
LINGER_SECONDS: Final = 5.0
#: How long (s) a job may take to start from a savepoint before it counts as submitted: it may wait for workers.
RESTORE_SECONDS: Final = 60.0
RESTORE_PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS: Final = 0.1

Event = dict[str, Any]


class Reports:
    """Observes each job that starts and ends, and reports it once."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._running: dict[RunningJob, Future[JobExecutionResult]] = {}
        self._watches: dict[RunningJob, threading.Thread] = {}
        self._address: str | None = None

    def on_job(self, job: RunningJob, graph: JobGraph, configuration: Configuration) -> None:
        """Report a job that has started."""
        address = rest_address()
        if address is not None and address != self._address:
            self._address = address
            self._tell({"event": "rest", "address": address})
        submitted = {"event": "submitted", "job": str(job.get_job_id()), "name": graph.name}
        result = job.get_job_execution_result()
        if configuration.read(RECOVERY_PATH) is None and not configuration.read(RECOVERY_FROM_LATEST):
            self._tell(submitted)
        else:
            watch = threading.Thread(
                target=lambda: self._tell_restored(job, submitted), name="penstock-report", daemon=True
            )
            with self._lock:
                self._watches[job] = watch
            watch.start()
        with self._lock:
            self._running[job] = result
        result.add_done_callback(lambda _: self._on_end(job))

    def _tell_restored(self, job: RunningJob, submitted: Event) -> None:
        """Report a job that starts from a savepoint once all its tasks have accepted their state, or its failure."""
        result = job.get_job_execution_result()
        until = time.monotonic() + RESTORE_SECONDS
        while not result.done() and time.monotonic() < until and not has_restored(job):
            wait([result], RESTORE_PAUSE_SECONDS)
        failure = None if not result.done() or result.cancelled() else result.exception()
        if failure is None or has_restored(job):
            self._tell(submitted)
        else:
            self._tell({"event": "refused", "job": submitted["job"], "reason": hide(str(failure))})

    def finish(self) -> None:
        """Report the jobs that have ended by the end of the program, even if their callbacks are still pending.

        Returns when all is reported: a thread that still prints while the interpreter exits would make it abort.
        """
        with self._lock:
            ended = [job for job, result in self._running.items() if result.done()]
            watches = list(self._watches.values())
        for watch in watches:
            watch.join(RESTORE_SECONDS)
        for job in ended:
            self._on_end(job)

    def _on_end(self, job: RunningJob) -> None:
        with self._lock:
            watch = self._watches.get(job)
        if watch is not None:
            watch.join(RESTORE_SECONDS)
        with self._lock:
            result = self._running.pop(job, None)
            if result is not None and not result.cancelled() and result.exception() is None:
                self._tell_end(job, result.result())
            # otherwise the program raises the error

    def _tell_end(self, job: RunningJob, outcome: JobExecutionResult) -> None:
        accumulators = outcome.get_all_accumulator_results()
        self._tell(
            {
                "event": "finished",
                "job": str(job.get_job_id()),
                "runtime": outcome.get_net_runtime(),
                "accumulators": {name: [type(value).__name__, str(value)] for name, value in accumulators.items()},
            }
        )


def has_restored(job: RunningJob) -> bool:
    """Return whether all tasks have started from the job's checkpoint; until then an operator may reject its state."""
    future = job.get_view()
    wait([future], RESTORE_PAUSE_SECONDS)
    view = job.last_view()
    if view is None:
        if not future.done() or future.cancelled() or future.exception() is not None:
            return False
        view = future.result()
    tasks = [subtask for vertex in view.vertices for subtask in vertex.subtasks]
    begun = (ExecutionState.RUNNING, ExecutionState.FINISHED)
    if any(task.state is None for task in tasks) or not tasks:  # in epochs and batches, the engine's tasks do the work
        return view.status is JobStatus.RUNNING
    return all(any(state in begun for state, _ in task.since_ms) for task in tasks)


def rest_address() -> str | None:
    """Return the address of this process's REST API, or None if it serves none."""
    server = sys.modules.get("penstock.server.rest.server")
    servers = [] if server is None else server.servers
    return str(servers[-1].url) if servers else None


def answer_to_the_end(patience_seconds: float = LINGER_SECONDS) -> None:
    """Keep serving clients that have started an operation, such as stopping the job, until they fetch its outcome.

    A program with a single job ends with that job, and its server would end before a client could learn of the
    savepoint. Flink's cluster waits as well. The wait is short, because the client may have disconnected.
    """
    server = sys.modules.get("penstock.server.rest.server")
    servers = [] if server is None else server.servers
    until = time.monotonic() + patience_seconds
    while any(not rest_server.context.operations.all_told() for rest_server in servers) and time.monotonic() < until:
        time.sleep(PAUSE_SECONDS)
    if servers:
        time.sleep(PAUSE_SECONDS)  # the last answer is still being sent


def teller() -> Callable[[Event], None]:
    """Return the function that reports events: to the parent process if it asked for reports, else on stdout."""
    number = os.environ.pop(REPORT_VARIABLE, None)
    if number is None:
        return tell_stdout
    file = os.fdopen(int(number), "w")

    def tell(event: Event) -> None:
        with suppress(BrokenPipeError):  # the parent process has stopped reading
            print(hide_json(json.dumps(event)), file=file, flush=True)

    return tell


def tell_stdout(event: Event) -> None:
    """Print an event as Flink's client does."""
    lines = format_event(event)
    if lines:
        print_lines("\n".join(lines) + "\n")


def format_event(event: Event) -> list[str]:
    """Return an event as lines, in the words of Flink's client."""
    if event["event"] == "rest":
        return [f"REST API at {event['address']}"]
    if event["event"] == "submitted":
        return [f"Job has been submitted with JobID {event['job']}"]
    if event["event"] == "refused":
        return []  # the program raises the error
    lines = ["Program execution finished", f"Job with JobID {event['job']} has finished."]
    lines.append(f"Job Runtime: {event['runtime']} ms")
    if event["accumulators"]:
        lines.append("Accumulator Results: ")
        lines += [f"- {name} ({kind}): {value}" for name, (kind, value) in event["accumulators"].items()]
    return lines


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
