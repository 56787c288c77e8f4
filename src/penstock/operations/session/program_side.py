"""The program's end of the channel: reports the program's jobs to the session, and serves the session's requests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from typing import Any, Final

import msgspec

from penstock.base.configuration import Configuration
from penstock.base.errors import OperationError
from penstock.base.job_execution_result import JobExecutionResult
from penstock.base.job_status import JobStatus
from penstock.core.graph.job_graph import JobGraph
from penstock.drivers.running_job import RunningJob, completed, mapped
from penstock.operations.dispatcher import DispatchedJob
from penstock.operations.rest.calls.unseen import unseen_view
from penstock.operations.session import messages
from penstock.operations.session.channel import Channel
from penstock.operations.session.messages import Answered, JobBegan, JobEnded, Request

#: The maximum number of characters of an accumulator's value or a failure that is sent.
TEXT_CHARS_MAX: Final = 1 << 20


class ProgramSide:
    """Create one per process; add `on_job` to the announcement's observers, and call `finish` when the program is over.

    Args:
        connected: the socket whose other end the session holds.
        on_lost: called when the connection to the session is lost.
    """

    def __init__(self, connected: socket.socket, on_lost: Callable[[], None]) -> None:
        self._jobs: dict[str, RunningJob] = {}
        self._over = False
        self._on_lost = on_lost
        self._ends = threading.Condition()
        self._untold = 0
        self._channel: Channel[Request] = Channel(connected, Request, "penstock-session")
        self._channel.listen(self._on_request, self._on_close)

    def on_job(self, job: RunningJob, graph: JobGraph, configuration: Configuration) -> None:
        """Report a job that has begun."""
        dispatched = DispatchedJob(job, graph, configuration)
        self._jobs[dispatched.job_id] = job
        with self._ends:
            self._untold += 1
        view, options = unseen_view(dispatched), configuration.to_dict()
        self._tell(JobBegan(view, options, dispatched.began_ms, job.engine_page()))
        result = job.get_job_execution_result()
        result.add_done_callback(lambda done: self._on_end(job, done))

    def finish(self, patience_seconds: float = 5.0) -> None:
        """Wait until the ends of all finished jobs are reported, because the program is over."""
        with self._ends:
            running = sum(not job.get_job_execution_result().done() for job in self._jobs.values())
            self._ends.wait_for(lambda: self._untold <= running, patience_seconds)
        self._over = True

    def _on_end(self, job: RunningJob, done: Future[JobExecutionResult]) -> None:
        failure = CancelledError() if done.cancelled() else done.exception()
        known = {} if failure is not None else done.result().get_all_accumulator_results()
        runtime_ms = 0 if failure is not None else done.result().get_net_runtime()
        status = JobStatus.FINISHED if failure is None else job.status()
        text = None if failure is None else str(failure)[:TEXT_CHARS_MAX]
        ended = JobEnded(str(job.get_job_id()), status.name, job.last_view(), text, runtime_ms, texts(known))
        self._tell(ended)
        with self._ends:
            self._untold -= 1
            self._ends.notify_all()

    def _tell(self, message: object) -> None:
        try:
            self._channel.send(message)
        except OperationError:
            self._on_close(None)

    def _on_close(self, problem: str | None) -> None:
        if not self._over:
            self._on_lost()

    def _on_request(self, request: Request) -> None:
        job = self._jobs.get(request.job_id)
        try:
            if job is None:
                raise OperationError(f"the program has no job {request.job_id}")
            future = answer(job, request.wish)
        except Exception as error:  # noqa: BLE001 - whoever asks hears of it
            self._tell(Answered(request.number, error=(type(error).__qualname__, str(error))))
            return
        future.add_done_callback(lambda done: self._tell(_answered(request.number, done)))


def answer(job: RunningJob, wish: messages.Wish) -> Future[Any]:
    """Execute a request on a job."""
    match wish:
        case messages.GiveView():
            return job.get_view()
        case messages.GiveAccumulators():
            return mapped(job.get_accumulators(), texts)
        case messages.GiveBounds():
            return job.get_bounds()
        case messages.Cancel():
            return job.cancel()
        case messages.Checkpoint(is_full):
            return job.trigger_checkpoint(is_full)
        case messages.Savepoint(directory, "GO_ON"):
            return job.trigger_savepoint(directory)
        case messages.Savepoint(directory, "CANCEL"):
            return job.cancel_with_savepoint(directory)
        case messages.Savepoint(directory, then):
            return job.stop_with_savepoint(then == "DRAIN", directory)
        case messages.Rescale(parallelism):
            return job.rescale(parallelism)
        case messages.AskProcess(question, None, _):
            return job.ask_driver(question)
        case messages.AskProcess(question, worker_id, timeout_ms):
            return job.ask_worker(worker_id or "", question, timeout_ms)
        case messages.GiveEnginePage(worker_id):
            return completed(job.engine_page(worker_id))


def texts(values: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the types and texts of user values, even if their `__str__` fails."""
    result = {}
    for name, value in values.items():
        try:
            text = str(value)
        except Exception as error:  # noqa: BLE001 - user code
            text = f"{type(value).__name__}, which cannot be shown: {type(error).__name__}: {error}"
        result[name] = (type(value).__name__, text[:TEXT_CHARS_MAX])
    return result


def _answered(number: int, done: Future[Any]) -> Answered:
    if done.cancelled():
        return Answered(number, is_cancelled=True)
    if (error := done.exception()) is not None:
        return Answered(number, error=(type(error).__qualname__, str(error)[:TEXT_CHARS_MAX]))
    return Answered(number, msgspec.Raw(msgspec.msgpack.encode(done.result())))
