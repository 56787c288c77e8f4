"""A job of a program that a session runs, as the session's process has it."""

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
from penstock.base.completable_future import CompletableFuture
from penstock.base.errors import OperationError, PenstockError
from penstock.base.job_execution_result import JobExecutionResult
from penstock.base.job_id import JobID
from penstock.base.job_status import JobStatus
from penstock.core.graph.job_graph import JobGraph, JobVertex
from penstock.core.job.history import FailureRecord
from penstock.core.job.resource_requirements import Bounds
from penstock.core.job.view import JobView
from penstock.drivers.moves import Moves
from penstock.drivers.program_output import end_of_file
from penstock.drivers.questions import Answer, AskOutput, Question
from penstock.drivers.running_job import ANSWER_MS_MAX, completed, mapped
from penstock.operations.session import messages
from penstock.operations.session.messages import Answered, JobBegan, JobEnded, Request

#: How long (s) one who asks for the status waits for the process.
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
    """A job of a program failed, in the words of the program's process."""


class Requests:
    """What is asked of one program's process and not answered yet.

    Args:
        send: sends a request; raises `OperationError` when the process is gone.
    """

    def __init__(self, send: Callable[[Request], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._asked: dict[int, tuple[CompletableFuture[Any], str]] = {}
        self._gone: str | None = None

    def ask(self, job_id: str, wish: messages.Wish, kind: str) -> Future[Any]:
        """Ask something of a job; `kind` names what the answer is."""
        future: CompletableFuture[Any] = CompletableFuture()
        with self._lock:
            number, gone = next(self._numbers), self._gone
            if gone is None:
                self._asked[number] = (future, kind)
        try:
            if gone is not None:
                raise OperationError(gone)
            self._send(Request(number, job_id, wish))
        except OperationError as error:
            with self._lock:
                self._asked.pop(number, None)
            future.complete_exceptionally(error)
        return future

    def on_answer(self, answered: Answered) -> None:
        """An answer has come."""
        with self._lock:
            future, kind = self._asked.pop(answered.number, (None, ""))
        if future is None:
            return
        if answered.error is not None:
            future.complete_exceptionally(error_of(*answered.error))
        elif answered.is_cancelled:
            future.cancel()
        else:
            try:
                future.complete(_DECODERS[kind].decode(answered.value))
            except msgspec.DecodeError as error:
                future.complete_exceptionally(OperationError(f"the program's process gave no {kind}: {error}"))

    def end(self, reason: str) -> None:
        """The process is gone: nothing is answered any more."""
        with self._lock:
            self._gone = reason
            asked, self._asked = self._asked, {}
        for future, _ in asked.values():
            future.complete_exceptionally(OperationError(reason))


class RemoteJob:
    """See `JobHandle`.

    Args:
        began: what the process said of it.
        requests: asks the process.
        output: the file with what the program prints.
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
        """The job's id."""
        return self._job_id

    def status(self) -> JobStatus:
        """As of now, or, if the process does not answer at once, as it was last told."""
        if not self._result.done():
            wait([self.get_view()], STATUS_SECONDS)
        return self._status

    def last_view(self) -> JobView | None:
        """The job as it ended."""
        return self._last

    def get_view(self) -> Future[JobView]:
        """The job as it is now."""
        future = self._ask(messages.GiveView(), "view")
        future.add_done_callback(self._take)
        return future

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        """The outcome."""
        return self._result

    def get_accumulators(self) -> Future[dict[str, Any]]:
        """As texts; each is of a class that has the name of the value's own."""
        if self._result.done() and self._result.exception() is None:
            return completed(self._result.result().get_all_accumulator_results())
        return mapped(self._ask(messages.GiveAccumulators(), "accumulators"), values_of)

    def get_bounds(self) -> Future[dict[int, Bounds]]:
        """Between which bounds the parallelism of each vertex is."""
        return self._ask(messages.GiveBounds(), "bounds")

    def before_result(self, action: Callable[[BaseException | None], None]) -> None:
        """Call when it is over; the session hears of the end when others have."""
        self._result.add_done_callback(lambda done: action(None if done.cancelled() else done.exception()))

    def cancel(self) -> Future[None]:
        """Cancel it."""
        return self._ask(messages.Cancel(), "nothing")

    def rescale(self, parallelism: Mapping[str, int]) -> Future[Mapping[str, int]]:
        """Go on at other parallelisms."""
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
        """End it with a savepoint."""
        then = messages.Savepoint(savepoint_directory, "DRAIN" if advance_to_end_of_event_time else "SUSPEND")
        return self._ask(then, "path")

    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Take a savepoint, then cancel it."""
        return self._ask(messages.Savepoint(savepoint_directory, "CANCEL"), "path")

    def ask_worker(self, worker_id: str, question: Question, timeout_ms: int = ANSWER_MS_MAX) -> Future[Answer]:
        """Ask the process of a worker."""
        return self._ask(messages.AskProcess(question, worker_id, timeout_ms), "answer")

    def ask_driver(self, question: Question) -> Future[Answer]:
        """Ask the program's process; what it has printed is in a file, and known when it is gone, too."""
        if isinstance(question, AskOutput):
            return completed(end_of_file(self._output))
        return self._ask(messages.AskProcess(question, None, ANSWER_MS_MAX), "answer")

    def engine_page(self, worker_id: str | None = None) -> str | None:
        """Where the engine under the job shows a worker, or itself; None if the process does not answer at once."""
        if worker_id is None or self._result.done():
            return self._engine_page
        asked = self._ask(messages.GiveEnginePage(worker_id), "page")
        wait([asked], STATUS_SECONDS)
        is_answered = asked.done() and not asked.cancelled() and asked.exception() is None
        return asked.result() if is_answered else self._engine_page

    def on_ended(self, ended: JobEnded) -> None:
        """The process says that it is over."""
        view = ended.view
        status = JobStatus[ended.status] if ended.status in JobStatus.__members__ else JobStatus.FAILED
        if not status.is_terminal_state():
            status = JobStatus.FAILED
        self._end(view or self._ended_view(status, ended.failure), status)
        if ended.failure is None:
            self._result.complete(JobExecutionResult(self._job_id, ended.runtime_ms, values_of(ended.accumulators)))
        else:
            self._result.complete_exceptionally(ProgramJobError(ended.failure))

    def on_process_ended(self, reason: str) -> bool:
        """The process is gone; if it has not said what came of the job, this has failed. Returns whether it has so."""
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
        """The newest view is how the job ended, should its process die."""
        if not done.cancelled() and done.exception() is None and not self._result.done():
            self.first_view = done.result()
            self._status = done.result().status

    def _ask(self, wish: messages.Wish, kind: str) -> Future[Any]:
        return self._requests.ask(str(self._job_id), wish, kind)


def graph_of(view: JobView) -> JobGraph:
    """A graph with the vertices and edges of a view, and nothing that could run."""
    vertices = tuple(
        JobVertex(vertex.index, vertex.name, vertex.parallelism, vertex.max_parallelism, vertex.infos, b"")
        for vertex in view.vertices
    )
    return JobGraph(view.name, vertices, view.edges, mode=view.mode)


def values_of(texts: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Accumulators that show as they do in the program's process: texts of classes with the names of the values'."""
    return {name: type(kind, (str,), {})(text) for name, (kind, text) in texts.items()}


def error_of(kind: str, text: str) -> Exception:
    """The error of the other process; of the same class where Penstock has it and it is made of a text."""
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, PenstockError) and not inspect.isfunction(known.__init__):
        return known(text)
    return OperationError(text)
