"""The session's handle of a job that runs in a program's process."""

from __future__ import annotations

import inspect
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.base import errors
from penstock.base.errors import OperationError, PenstockError
from penstock.base.job import CompletableFuture, JobExecutionResult, JobID, JobStatus
from penstock.drivers.inspection import Answer, AskOutput, Question
from penstock.drivers.logs import end_of_file
from penstock.drivers.running_job import ANSWER_MS_MAX, Moves, completed, mapped
from penstock.runtime.graph import JobGraph, JobVertex
from penstock.runtime.job.slots import Bounds
from penstock.runtime.job.view import FailureRecord, JobView
from penstock.server.session import channel as messages
from penstock.server.session.channel import Answered, JobBegan, JobEnded, Request

#: How long (s) a caller of `status` waits for the process.
STATUS_SECONDS: Final = 1.0

_DECODERS: Final[dict[str, msgspec.msgpack.Decoder[Any]]] = {
    "view": msgspec.msgpack.Decoder(JobView),
    "bounds": msgspec.msgpack.Decoder(dict[int, Bounds]),
    "accumulators": msgspec.msgpack.Decoder(dict[str, tuple[str, str]]),
    "parallelism": msgspec.msgpack.Decoder(dict[str, int]),
    "number": msgspec.msgpack.Decoder(int | None),
    "path": msgspec.msgpack.Decoder(str),
    "page": msgspec.msgpack.Decoder(str | None),
    "nothing": msgspec.msgpack.Decoder(None),
    "answer": msgspec.msgpack.Decoder(Answer),
}


class ProgramJobError(OperationError):
    """The failure of a program's job, with the message from the program's process."""


class Requests:
    """The pending requests to one program's process.

    Args:
        send: sends a request; raises `OperationError` if the process has ended.
    """

    def __init__(self, send: Callable[[Request], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._asked: dict[int, tuple[CompletableFuture[Any], str]] = {}
        self._gone: str | None = None

    def ask(self, job_id: str, wish: messages.Wish, kind: str) -> Future[Any]:
        """Send a request to a job; `kind` names the type of the answer."""
        future: CompletableFuture[Any] = CompletableFuture()
        with self._lock:
            number, reason = next(self._numbers), self._gone
            if reason is None:
                self._asked[number] = (future, kind)
        try:
            if reason is not None:
                raise OperationError(reason)
            self._send(Request(number, job_id, wish))
        except OperationError as error:
            with self._lock:
                self._asked.pop(number, None)
            future.complete_exceptionally(error)
        return future

    def on_answer(self, answered: Answered) -> None:
        """Complete the request that this answer is for."""
        with self._lock:
            future, kind = self._asked.pop(answered.number, (None, ""))
        if future is None:
            return
        if answered.error is not None:
            future.complete_exceptionally(rebuild_error(*answered.error))
        elif answered.is_cancelled:
            future.cancel()
        else:
            try:
                future.complete(_DECODERS[kind].decode(answered.value))
            except msgspec.DecodeError as error:
                future.complete_exceptionally(OperationError(f"the program's process gave no {kind}: {error}"))

    def end(self, reason: str) -> None:
        """Fail all pending and future requests, because the process has ended."""
        with self._lock:
            self._gone = reason
            pending, self._asked = self._asked, {}
        for future, _ in pending.values():
            future.complete_exceptionally(OperationError(reason))


class RemoteJob:
    """See `JobHandle`.

    Args:
        began: the process's report of the job.
        requests: the pending requests to the process.
        output: the file with the program's output.
    """

    moves: Moves | None = None

    def __init__(self, began: JobBegan, requests: Requests, output: Path) -> None:
        self.first_view = began.view
        self._job_id = JobID(began.view.job_id)
        self._engine_page = began.engine_page
        self._requests = requests
        self._output = output
        self._status = began.view.status
        self._last: JobView | None = None
        self._result: CompletableFuture[JobExecutionResult] = CompletableFuture()

    def get_job_id(self) -> JobID:
        """Return the job's id."""
        return self._job_id

    def status(self) -> JobStatus:
        """Return the current status, or the last known one if the process does not answer within `STATUS_SECONDS`."""
        if not self._result.done():
            wait([self.get_view()], STATUS_SECONDS)
        return self._status

    def last_view(self) -> JobView | None:
        """Return the job's last view, once it has ended."""
        return self._last

    def get_view(self) -> Future[JobView]:
        """Return the current view of the job."""
        future = self._ask(messages.GiveView(), "view")
        future.add_done_callback(self._take)
        return future

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        """Return the job's outcome."""
        return self._result

    def get_accumulators(self) -> Future[dict[str, Any]]:
        """Return the accumulators as strings, each of a class named like the original value's class."""
        if self._result.done() and self._result.exception() is None:
            return completed(self._result.result().get_all_accumulator_results())
        return mapped(self._ask(messages.GiveAccumulators(), "accumulators"), restore_accumulators)

    def get_bounds(self) -> Future[dict[int, Bounds]]:
        """Return the bounds of each vertex's parallelism."""
        return self._ask(messages.GiveBounds(), "bounds")

    def before_result(self, action: Callable[[BaseException | None], None]) -> None:
        """Call `action` once the job is over, not before: the session learns of the end when others do."""
        self._result.add_done_callback(lambda done: action(None if done.cancelled() else done.exception()))

    def cancel(self) -> Future[None]:
        """Cancel the job."""
        return self._ask(messages.Cancel(), "nothing")

    def rescale(self, parallelism: Mapping[str, int]) -> Future[Mapping[str, int]]:
        """Change the parallelism of vertices."""
        return self._ask(messages.Rescale(dict(parallelism)), "parallelism")

    def trigger_checkpoint(self, is_full: bool = False) -> Future[int | None]:
        """Take a checkpoint."""
        return self._ask(messages.Checkpoint(is_full), "number")

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Take a savepoint."""
        return self._ask(messages.Savepoint(savepoint_directory, "GO_ON"), "path")

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> Future[str]:
        """End the job with a savepoint."""
        then = messages.Savepoint(savepoint_directory, "DRAIN" if advance_to_end_of_event_time else "SUSPEND")
        return self._ask(then, "path")

    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Take a savepoint, then cancel the job."""
        return self._ask(messages.Savepoint(savepoint_directory, "CANCEL"), "path")

    def ask_worker(self, worker_id: str, question: Question, timeout_ms: int = ANSWER_MS_MAX) -> Future[Answer]:
        """Ask a worker's process."""
        return self._ask(messages.AskProcess(question, worker_id, timeout_ms), "answer")

    def ask_driver(self, question: Question) -> Future[Answer]:
        """Ask the program's process. Its output is read from a file, which remains after the process ends."""
        if isinstance(question, AskOutput):
            return completed(end_of_file(self._output))
        return self._ask(messages.AskProcess(question, None, ANSWER_MS_MAX), "answer")

    def engine_page(self, worker_id: str | None = None) -> str | None:
        """Return the URL of the engine's page for a worker.

        Without a worker, or if the process does not answer within `STATUS_SECONDS`, return the URL of the engine's web
        UI.
        """
        if worker_id is None or self._result.done():
            return self._engine_page
        future = self._ask(messages.GiveEnginePage(worker_id), "page")
        wait([future], STATUS_SECONDS)
        is_answered = future.done() and not future.cancelled() and future.exception() is None
        return future.result() if is_answered else self._engine_page

    def on_ended(self, ended: JobEnded) -> None:
        """Handle the process's report that the job is over."""
        view = ended.view
        status = JobStatus[ended.status] if ended.status in JobStatus.__members__ else JobStatus.FAILED
        if not status.is_terminal_state():
            status = JobStatus.FAILED
        self._end(view or self._ended_view(status, ended.failure), status)
        if ended.failure is None:
            self._result.complete(
                JobExecutionResult(self._job_id, ended.runtime_ms, restore_accumulators(ended.accumulators))
            )
        else:
            self._result.complete_exceptionally(ProgramJobError(ended.failure))

    def on_process_ended(self, reason: str) -> bool:
        """Fail the job if its process ended without reporting an outcome; return whether it failed."""
        if self._result.done():
            return False
        self._end(self._ended_view(JobStatus.FAILED, reason), JobStatus.FAILED)
        self._result.complete_exceptionally(ProgramJobError(reason))
        return True

    def _end(self, view: JobView, status: JobStatus) -> None:
        self._last, self._status = view, status

    def _ended_view(self, status: JobStatus, failure: str | None) -> JobView:
        known, now_ms = self.first_view, int(time.time() * 1000)
        failures = known.failures
        if failure is not None and status is JobStatus.FAILED:
            failures = (FailureRecord(now_ms, known.restarts, failure), *failures)
        return replace(
            known,
            status=status,
            since_ms={**known.since_ms, status: now_ms},
            moves=(*known.moves, (status, now_ms)),
            failures=failures,
            now_ms=now_ms,
        )

    def _take(self, done: Future[JobView]) -> None:
        """Keep the newest view, which shows the job's end if its process dies."""
        if not done.cancelled() and done.exception() is None and not self._result.done():
            self.first_view = done.result()
            self._status = done.result().status

    def _ask(self, wish: messages.Wish, kind: str) -> Future[Any]:
        return self._requests.ask(str(self._job_id), wish, kind)


def build_graph(view: JobView) -> JobGraph:
    """Return a graph with the vertices and edges of a view, but nothing that can run."""
    vertices = tuple(
        JobVertex(vertex.index, vertex.name, vertex.parallelism, vertex.max_parallelism, vertex.infos, b"")
        for vertex in view.vertices
    )
    return JobGraph(view.name, vertices, view.edges, mode=view.mode)


def restore_accumulators(texts: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Return accumulators that print as in the program's process: strings of classes named like the values' classes."""
    return {name: type(kind, (str,), {})(text) for name, (kind, text) in texts.items()}


def rebuild_error(kind: str, text: str) -> Exception:
    """Recreate the other process's error: of its own class if Penstock defines it and it takes just a message."""
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, PenstockError) and not inspect.isfunction(known.__init__):
        return known(text)
    return OperationError(text)
