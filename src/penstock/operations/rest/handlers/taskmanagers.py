"""Workers: the list, one of them, its logs, output and stacks."""

from __future__ import annotations

import os
import time

from penstock.operations.rest.calls.answers import Text
from penstock.operations.rest.calls.errors import not_found
from penstock.operations.rest.calls.routing import Call, Route
from penstock.operations.rest.handlers.process import LogFiles, ThreadDump, log_files, thread_dump_of
from penstock.operations.rest.shapes.workers import (
    DRIVER_ID,
    KnownWorker,
    TaskManagerDetails,
    TaskManagers,
    driver,
    in_list,
    known_workers,
    task_manager,
)


def workers(call: Call) -> list[KnownWorker]:
    """The workers of all running jobs."""
    return known_workers(view for _, view in call.context.views())


def worker_id(call: Call) -> str | None:
    """The worker that the path names, as its own job calls it; None for this process, 404 for none."""
    asked = call.path["taskmanagerid"]
    found = workers(call)
    if asked == DRIVER_ID:
        return None
    for known in found:
        if known.id == asked:
            return None if known.worker.process_id == os.getpid() else known.worker.worker_id
    raise not_found(f"No TaskManager with id {asked[:100]!r} was found")


def taskmanagers(call: Call) -> TaskManagers:
    """All workers; the driver where there are none."""
    found = [in_list(task_manager(known)) for known in workers(call)]
    return TaskManagers(found or [in_list(driver(int(time.time() * 1000)))])


def details(call: Call) -> TaskManagerDetails:
    """One worker."""
    worker_id(call)
    asked = call.path["taskmanagerid"]
    found = next((known for known in workers(call) if known.id == asked), None)
    return driver(int(time.time() * 1000)) if found is None else task_manager(found)


def logs(call: Call) -> LogFiles:
    """Its files of logs."""
    return log_files(call.context.insight.logs(worker_id(call)))


def log(call: Call) -> Text:
    """Its main log, or the one that the path names."""
    return Text(call.context.insight.log(worker_id(call), call.path.get("filename")))


def stdout(call: Call) -> Text:
    """What it has printed."""
    return Text(call.context.insight.stdout(worker_id(call)))


def thread_dump(call: Call) -> ThreadDump:
    """Where its threads are."""
    return thread_dump_of(call.context.insight.thread_dump(worker_id(call)))


_ONE = "/taskmanagers/:taskmanagerid"
ROUTES = [
    Route("GET", "/taskmanagers", taskmanagers, "All workers.", TaskManagers),
    Route("GET", _ONE, details, "A worker.", TaskManagerDetails),
    Route("GET", f"{_ONE}/logs", logs, "Its files of logs.", LogFiles, access="reveals"),
    Route("GET", f"{_ONE}/logs/:filename", log, "One of its logs.", Text, access="reveals"),
    Route("GET", f"{_ONE}/log", log, "Its main log.", Text, access="reveals"),
    Route("GET", f"{_ONE}/stdout", stdout, "What it has printed.", Text, access="reveals"),
    Route("GET", f"{_ONE}/thread-dump", thread_dump, "Where its threads are.", ThreadDump, access="reveals"),
]
