"""Workers: the list, details, logs, output and stacks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.base.errors import OperationError
from penstock.operations.dispatcher import DispatchedJob
from penstock.operations.insight import WorkerInsight
from penstock.operations.metrics.channels import NO_CHANNELS, channel_memory
from penstock.operations.metrics.listing import DRIVER_ID
from penstock.operations.rest.calls.answers import Text
from penstock.operations.rest.calls.errors import not_found
from penstock.operations.rest.calls.own_process import LOG_NAME
from penstock.operations.rest.calls.routing import Call, Route
from penstock.operations.rest.handlers.process import LogFiles, ThreadDump, build_thread_dump, log_files
from penstock.operations.rest.shapes.workers import (
    KnownWorker,
    TaskManagerDetails,
    TaskManagers,
    driver,
    in_list,
    known_workers,
    task_manager,
)

T = TypeVar("T")


def workers(call: Call) -> list[KnownWorker]:
    """Return the workers of all running jobs."""
    return known_workers(view for _, view in call.context.views())


def worker(call: Call) -> KnownWorker | None:
    """Return the worker that the path names; None for the driver, 404 if it is unknown."""
    worker_id = call.path["taskmanagerid"]
    if worker_id == DRIVER_ID:
        return None
    for known in workers(call):
        if known.id == worker_id:
            return known
    raise not_found(f"No TaskManager with id {worker_id[:100]!r} was found")


def taskmanagers(call: Call) -> TaskManagers:
    """List all workers, or just the driver without workers."""
    entries = [in_list(task_manager(known, _engine_page(call, known, None))) for known in workers(call)]
    return TaskManagers(entries or [in_list(driver(int(time.time() * 1000)))])


def details(call: Call) -> TaskManagerDetails:
    """Return the details of a worker."""
    known_worker = worker(call)
    if known_worker is None:
        return driver(int(time.time() * 1000))
    page = _engine_page(call, known_worker, known_worker.worker.worker_id) or _engine_page(call, known_worker, None)
    return task_manager(
        known_worker, page, channel_memory(known_worker.view).get(known_worker.worker.worker_id, NO_CHANNELS)
    )


def _engine_page(call: Call, known: KnownWorker, worker_id: str | None) -> str | None:
    """Return the URL of Spark's page for a worker, or of Spark's own; the list asks only for the latter."""
    job = call.context.dispatcher.job(known.view.job_id)
    return None if job is None else job.handle.engine_page(worker_id)


def logs(call: Call) -> LogFiles:
    """List a worker's log files."""
    return log_files(_asked(call, lambda insight, *of: insight.logs(*of), lambda: call.context.own.logs()))


def log(call: Call) -> Text:
    """Return a worker's main log, or the one that the path names."""
    name = call.path.get("filename", "")

    def own() -> bytes:
        if name not in ("", LOG_NAME):
            raise not_found(f"This file does not exist in the log dir: {name[:100]}")
        return call.context.own.log().encode()

    return Text(_text(_asked(call, lambda insight, *of: insight.log(*of, name), own)))


def stdout(call: Call) -> Text:
    """Return a worker's output."""
    own = call.context.own.stdout().encode()
    return Text(_text(_asked(call, lambda insight, *of: insight.stdout(*of), lambda: own)))


def thread_dump(call: Call) -> ThreadDump:
    """Return the stacks of a worker's threads."""
    own = call.context.own
    return build_thread_dump(_asked(call, lambda insight, *of: insight.thread_dump(*of), own.thread_dump))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace") or "there is nothing in it yet\n"


def _asked(call: Call, ask: Callable[[WorkerInsight, DispatchedJob, str], T], of_driver: Callable[[], T]) -> T:
    """Query a worker. If a worker in this process does not answer, use the process's own data."""
    known_worker = worker(call)
    if known_worker is None:
        return of_driver()
    job = call.context.dispatcher.job(known_worker.view.job_id)
    if job is None:
        raise not_found(f"Job {known_worker.view.job_id} not found")
    try:
        return ask(call.context.insight, job, known_worker.worker.worker_id)
    except OperationError as error:
        if known_worker.worker.process_id == os.getpid():
            return of_driver()
        raise not_found(str(error)) from error


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
