"""What a program's process says of its jobs: as Flink's client prints it, or as lines of JSON for who started it."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Final

from penstock.base.configuration import Configuration
from penstock.base.job_execution_result import JobExecutionResult
from penstock.base.job_status import JobStatus
from penstock.base.options import RECOVERY_FROM_LATEST, RECOVERY_PATH
from penstock.base.secrets import hide, hide_json
from penstock.base.whole_lines import print_lines
from penstock.core.graph.job_graph import JobGraph
from penstock.core.graph.states import ExecutionState
from penstock.drivers.running_job import RunningJob

#: The variable of the environment with the number of the file that reports go to, one JSON object a line.
REPORT_VARIABLE: Final = "PENSTOCK_REPORT_FD"

#: How long (s) a program's end waits for those who have begun an operation and not asked for its outcome yet.
LINGER_SECONDS: Final = 5.0
#: How long (s) a job that begins from a savepoint may take before it counts as submitted: it may wait for workers.
RESTORE_SECONDS: Final = 60.0
RESTORE_PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS: Final = 0.1

Event = dict[str, Any]


class Reports:
    """Hears of each job that begins and ends, and tells it once."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._running: dict[RunningJob, Future[JobExecutionResult]] = {}
        self._watches: dict[RunningJob, threading.Thread] = {}
        self._address: str | None = None

    def on_job(self, job: RunningJob, graph: JobGraph, configuration: Configuration) -> None:
        """A job has begun."""
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
        """Report a job that begins from a savepoint when all its tasks have accepted their state, or its failure."""
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
        """The program has ended: tell of jobs that have, too, though their callbacks may still be on their way.

        Returns when all is told: a thread that still prints while the interpreter ends would make it abort.
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
            # otherwise the program raises it

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
    """Whether all tasks of a job have begun from its checkpoint: until then an operator may refuse its state."""
    asked = job.get_view()
    wait([asked], RESTORE_PAUSE_SECONDS)
    view = job.last_view()
    if view is None:
        if not asked.done() or asked.cancelled() or asked.exception() is not None:
            return False
        view = asked.result()
    tasks = [subtask for vertex in view.vertices for subtask in vertex.subtasks]
    begun = (ExecutionState.RUNNING, ExecutionState.FINISHED)
    if any(task.state is None for task in tasks) or not tasks:  # an epoch or a batch has tasks of the engine
        return view.status is JobStatus.RUNNING
    return all(any(state in begun for state, _ in task.since_ms) for task in tasks)


def rest_address() -> str | None:
    """Where this process serves the REST API; None where it does not."""
    server = sys.modules.get("penstock.operations.rest.server")
    servers = [] if server is None else server.servers
    return str(servers[-1].url) if servers else None


def answer_to_the_end(patience_seconds: float = LINGER_SECONDS) -> None:
    """Let the server answer whoever has begun an operation, such as to stop the job, and asks for its outcome.

    A program that has one job ends with it, and so would its server before anyone hears of the savepoint. Flink's
    cluster waits as well. It does not wait for long, since whoever began the operation may have gone.
    """
    server = sys.modules.get("penstock.operations.rest.server")
    servers = [] if server is None else server.servers
    until = time.monotonic() + patience_seconds
    while any(not one.context.operations.all_told() for one in servers) and time.monotonic() < until:
        time.sleep(PAUSE_SECONDS)
    if servers:
        time.sleep(PAUSE_SECONDS)  # the last answer is on its way


def teller() -> Callable[[Event], None]:
    """Where this process tells of its jobs: to who started it, else on stdout."""
    number = os.environ.pop(REPORT_VARIABLE, None)
    if number is None:
        return tell_stdout
    file = os.fdopen(int(number), "w")

    def tell(event: Event) -> None:
        with suppress(BrokenPipeError):  # who started it has heard enough
            print(hide_json(json.dumps(event)), file=file, flush=True)

    return tell


def tell_stdout(event: Event) -> None:
    """Tell it as Flink's client does."""
    lines = lines_of(event)
    if lines:
        print_lines("\n".join(lines) + "\n")


def lines_of(event: Event) -> list[str]:
    """An event in the words of Flink's client."""
    if event["event"] == "rest":
        return [f"REST API at {event['address']}"]
    if event["event"] == "submitted":
        return [f"Job has been submitted with JobID {event['job']}"]
    if event["event"] == "refused":
        return []  # the program raises it
    lines = ["Program execution finished", f"Job with JobID {event['job']} has finished."]
    lines.append(f"Job Runtime: {event['runtime']} ms")
    if event["accumulators"]:
        lines.append("Accumulator Results: ")
        lines += [f"- {name} ({kind}): {value}" for name, (kind, value) in event["accumulators"].items()]
    return lines
