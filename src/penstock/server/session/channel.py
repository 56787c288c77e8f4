"""The connection between a session and a program's process: its messages, its two ends, and the REST API's view of it.

`Channel` carries messages between two processes over connected sockets: a four-byte length, then msgpack, decoded by
type. Both ends may send from any thread. A peer that sends an invalid message is disconnected.

`ProgramSide` is the program's end of the channel: it reports the program's jobs to the session, and serves the
session's requests.

`Programs` is the interface between the REST API and a session that takes programs (Flink's jars, and their runs).
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from penstock.base.configuration import Configuration
from penstock.base.errors import OperationError
from penstock.base.job import JobExecutionResult, JobStatus
from penstock.drivers.inspection import Question
from penstock.drivers.running_job import RunningJob, completed, mapped
from penstock.runtime.graph import JobGraph
from penstock.runtime.job.view import JobView
from penstock.server.dispatcher import DispatchedJob, unseen_view

#: The maximum size (bytes) of a message, such as a view with thousands of subtasks and checkpoints, or a log.
MESSAGE_BYTES_MAX: Final = 256 << 20


class JobBegan(msgspec.Struct, frozen=True, tag=True):
    """A job of the program has begun: its view before anything runs, and its options, which may be secret.

    `engine_page`: the URL of the engine's web UI.
    """

    view: JobView
    configuration: dict[str, str]
    began_ms: int
    engine_page: str | None = None


class JobEnded(msgspec.Struct, frozen=True, tag=True):
    """A job has ended.

    Attributes:
        job_id: the job's id.
        status: the name of its last status.
        view: its last view; None if it ended before it had a master.
        failure: why it failed; None if it finished.
        runtime_ms: how long it ran.
        accumulators: types and texts of its accumulators, by name.
    """

    job_id: str
    status: str
    view: JobView | None
    failure: str | None
    runtime_ms: int
    accumulators: dict[str, tuple[str, str]]


class Answered(msgspec.Struct, frozen=True, tag=True):
    """The outcome of a request: a value, or an error with its class, or neither if the job is over."""

    number: int
    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    error: tuple[str, str] | None = None
    is_cancelled: bool = False


FromProgram: TypeAlias = JobBegan | JobEnded | Answered


class GiveView(msgspec.Struct, frozen=True, tag=True):
    """Requests the job's view."""


class GiveAccumulators(msgspec.Struct, frozen=True, tag=True):
    """Requests the job's accumulators: types and texts, by name."""


class GiveBounds(msgspec.Struct, frozen=True, tag=True):
    """Requests the bounds of each vertex's parallelism."""


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Cancels the job."""


class Checkpoint(msgspec.Struct, frozen=True, tag=True):
    """Takes a checkpoint; a full one rewrites all state."""

    is_full: bool = False


class Savepoint(msgspec.Struct, frozen=True, tag=True):
    """Takes a savepoint, then lets the job go on, cancels it, or ends it at the savepoint."""

    directory: str | None
    then: Literal["GO_ON", "CANCEL", "SUSPEND", "DRAIN"]


class Rescale(msgspec.Struct, frozen=True, tag=True):
    """Changes the parallelism of vertices."""

    parallelism: dict[str, int]


class AskProcess(msgspec.Struct, frozen=True, tag=True):
    """Asks a question of a worker's process, or of the program's process if no worker is named."""

    question: Question
    worker_id: str | None
    timeout_ms: int


class GiveEnginePage(msgspec.Struct, frozen=True, tag=True):
    """Requests the URL of the engine's page for a worker."""

    worker_id: str


Wish: TypeAlias = (
    GiveView | GiveAccumulators | GiveBounds | Cancel | Checkpoint | Savepoint | Rescale | AskProcess | GiveEnginePage
)


class Request(msgspec.Struct, frozen=True):
    """A numbered request to a job."""

    number: int
    job_id: str
    wish: Wish


T = TypeVar("T")

_LENGTH: Final = struct.Struct(">I")


class Channel(Generic[T]):
    """One end of the connection.

    Args:
        connected: the socket; the channel closes it.
        kind: the type of incoming messages.
        name: the name of the reader thread.
    """

    def __init__(self, connected: socket.socket, kind: Any, name: str) -> None:
        self._socket = connected
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)
        self._encoder = msgspec.msgpack.Encoder()
        self._sends = threading.Lock()
        self._name = name

    def listen(self, on_message: Callable[[T], None], on_close: Callable[[str | None], None]) -> threading.Thread:
        """Pass on incoming messages, in a separate thread, until the other end closes.

        Args:
            on_message: called with each message.
            on_close: called once at the end, with the error of an invalid message; None if all were valid.
        """
        thread = threading.Thread(target=self._listen, args=(on_message, on_close), name=self._name, daemon=True)
        thread.start()
        return thread

    def send(self, message: object) -> None:
        """Send a message.

        Raises:
            OperationError: if the other end has closed, or the message is too large.
        """
        data = self._encoder.encode(message)
        if len(data) > MESSAGE_BYTES_MAX:
            raise OperationError(f"a message of {len(data)} bytes is larger than {MESSAGE_BYTES_MAX}")
        try:
            with self._sends:
                self._socket.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise OperationError(f"the process at the other end is gone: {error}") from error

    def close(self) -> None:
        """Close the connection; the other end notices."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _listen(self, on_message: Callable[[T], None], on_close: Callable[[str | None], None]) -> None:
        problem = None
        try:
            while (head := self._exactly(_LENGTH.size)) is not None:
                (length,) = _LENGTH.unpack(head)
                if length > MESSAGE_BYTES_MAX:
                    raise msgspec.DecodeError(f"a message of {length} bytes")
                data = self._exactly(length)
                if data is None:
                    break
                on_message(self._decoder.decode(data))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:  # DecodeError includes validation errors
            problem = f"it sent no message: {error}"
        finally:
            self.close()
            on_close(problem)

    def _exactly(self, count: int) -> bytes | None:
        """Read exactly `count` bytes; None at the end."""
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self._socket.recv(min(count - len(parts), 1 << 20))
            except OSError:
                return None
            if not part:
                return None
            parts += part
        return bytes(parts)


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


def answer(job: RunningJob, wish: Wish) -> Future[Any]:
    """Execute a request on a job."""
    match wish:
        case GiveView():
            return job.get_view()
        case GiveAccumulators():
            return mapped(job.get_accumulators(), texts)
        case GiveBounds():
            return job.get_bounds()
        case Cancel():
            return job.cancel()
        case Checkpoint(is_full):
            return job.trigger_checkpoint(is_full)
        case Savepoint(directory, "GO_ON"):
            return job.trigger_savepoint(directory)
        case Savepoint(directory, "CANCEL"):
            return job.cancel_with_savepoint(directory)
        case Savepoint(directory, then):
            return job.stop_with_savepoint(then == "DRAIN", directory)
        case Rescale(parallelism):
            return job.rescale(parallelism)
        case AskProcess(question, None, _):
            return job.ask_driver(question)
        case AskProcess(question, worker_id, timeout_ms):
            return job.ask_worker(worker_id or "", question, timeout_ms)
        case GiveEnginePage(worker_id):
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


@dataclass(frozen=True)
class Uploaded:
    """An uploaded program.

    Attributes:
        upload_id: its id, such as `<uuid>_job.py`.
        name: the file's name.
        at_ms: the time of the upload (ms since the epoch).
        entries: the modules that can be run; a script has one, `__main__`.
    """

    upload_id: str
    name: str
    at_ms: int
    entries: tuple[str, ...]


@dataclass(frozen=True)
class Submission:
    """How to run a program.

    Attributes:
        arguments: the values of `sys.argv` after the program's name.
        entry: the module to run; None for the script, or for `__main__` of an archive.
        options: configuration that overrides the session's.
        program_id: 32 hexadecimal digits; None to generate them.
    """

    arguments: tuple[str, ...] = ()
    entry: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    program_id: str | None = None


class ProgramStatus(Enum):
    """The status of a program's process: running, or how it ended."""

    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"


@dataclass(frozen=True)
class ProgramView:
    """A program that runs or has ended.

    Attributes:
        program_id: 32 hexadecimal digits.
        name: the name of its file or module.
        status: whether it runs, or how it ended.
        process_id: the id of its process.
        began_ms: when it began (ms since the epoch).
        ended_ms: when it ended; None while it runs.
        exit_code: its process's exit code; None while it runs. Negative for the signal that ended it.
        jobs: the ids of its jobs, in order.
        failure: the last output of a program that failed, or why it could not start.
    """

    program_id: str
    name: str
    status: ProgramStatus
    process_id: int
    began_ms: int
    ended_ms: int | None
    exit_code: int | None
    jobs: tuple[str, ...]
    failure: str | None


class Programs(Protocol):
    """Takes and runs programs. Unknown ids raise `MissingPathError`, and invalid input `WrongValueError`."""

    def upload(self, name: str, data: bytes) -> Uploaded:
        """Store a program; it is checked but not run."""

    def uploads(self) -> list[Uploaded]:
        """Return the stored programs, newest first."""

    def remove(self, upload_id: str) -> None:
        """Delete a stored program; running instances go on."""

    def plan(self, upload_id: str, submission: Submission) -> dict[str, Any]:
        """Return the plan of a program's first job without running it; raise `OperationError` if it has none."""

    def run(self, upload_id: str, submission: Submission) -> ProgramView:
        """Start a program in its own process."""

    def wait_for_job(self, program_id: str, patience_seconds: float) -> ProgramView:
        """Return a program once it has begun its first job, has ended, or the time is up."""

    def programs(self) -> list[ProgramView]:
        """Return the programs that run, and the remembered ones that have ended, in the order of their start."""

    def program(self, program_id: str) -> ProgramView:
        """Return one program."""

    def output(self, program_id: str, begin: int) -> tuple[str, int]:
        """Return a program's output from a byte offset on, and the next offset."""

    def end(self, program_id: str) -> None:
        """Cancel a program's jobs, and end its process if it does not exit then."""
