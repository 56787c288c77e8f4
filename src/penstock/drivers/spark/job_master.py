"""The thread of a job's master, the master's endpoint for the workers, and its questions to them.

`WorkerConnections` maps connections to the job master to workers, so that the master knows which worker a broken
connection belongs to. A worker sends no notice when its process dies or its host is cut off, but its connection breaks;
the operating system reports this at once if a process has died. A worker that loses its connection to the master ends
itself. So both ends agree that it is lost.

`WorkerQuestions` are questions to workers, which they answer alongside their work, on their heartbeat connections. A
frame of an answer carries the number of its question in the upper half of its own number, so it cannot be mistaken for
a heartbeat, whose number is 0, or for a late answer to an earlier question. Each worker has one open question at a
time; others wait their turn. Everything here happens in the job's thread.

`MasterEndpoint` is the job master's port: control messages from and to all workers of one job. Only peers with the
job's worker key get this far, and even their messages are not unpickled here. A worker's messages are numbered. If one
is missing, or a worker's connection was taken over, all further messages of the worker are ignored, including its
heartbeats. It then counts as lost and ends itself.

`JobThread` lives from the start of a job to the end of its cleanup. The job master and everything that it uses belong
to this one thread. Other threads have one way to reach it: they queue a call for its next turn and wake it. When the
master is done, or has failed, the thread ends the workers and frees everything before it reports the end. So when the
wait for a job ends, everything of the job is cleaned up.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import zmq

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.errors import OperationError, PenstockError, ProtocolError, shorten
from penstock.drivers.cancellation import where_is
from penstock.drivers.directories import remove_left_behind
from penstock.drivers.event_loop import WAIT_MS_MAX, SystemClock, ThreadBackground
from penstock.drivers.inspection import ANSWER_BYTES_MAX, Answer, Question
from penstock.drivers.logs import LOGS_PREFIX, LogSettings, set_thread_job
from penstock.drivers.spark import sockets
from penstock.drivers.spark.cluster import CUT_OFF_GRACE_IN_PROCESS_MS, CUT_OFF_GRACE_MS, LeavingWorkers, SparkCluster
from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.heartbeats import DUMP_BEGIN, DUMP_CHARS_MAX, find_stall
from penstock.drivers.spark.python_workers import Executor, WorkerServices, WorkerSettings
from penstock.runtime.effects import Effect, carry_out
from penstock.runtime.ports import Clock, JobListener
from penstock.runtime.protocol import FromWorker, Heartbeat, RegisterWorker, ToMaster, ToWorker, WorkerBlocked
from penstock.wire.buffers import RECORD_BYTES_MAX, MessageCodec, MessageReceiver, OutOfTurnError


class WorkerConnections:
    """Tracks connections by their descriptors; the system reuses a descriptor once its connection has ended."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._owners: dict[int, str] = {}

    def take(self, registered: Iterable[tuple[int, str]], changes: Iterable[tuple[int, bool]]) -> list[str]:
        """Process new events. Return the workers whose connections have ended.

        Args:
            registered: workers that have registered since the last call, with the descriptors they registered on.
            changes: connections that were opened (True) or closed since then, polled after the registrations.
        """
        lost = []
        for descriptor, begun in changes:
            (self._open.add if begun else self._open.discard)(descriptor)
            if (owner := self._owners.pop(descriptor, None)) is not None:
                lost.append(owner)
        for descriptor, worker_id in registered:
            former = self._owners.pop(descriptor, worker_id)
            if former != worker_id:
                lost.append(former)
            if descriptor in self._open:
                self._owners[descriptor] = worker_id
            else:
                lost.append(worker_id)
        return lost


_log = logging.getLogger("penstock.spark")

#: Maximum number of questions that wait for one worker.
WAITING_MAX: Final = 16
#: Bit position of the question's number in a frame's number.
NUMBER_SHIFT: Final = 32


def parse_question_number(frame: bytes) -> int:
    """Return the number of the question that a frame on a heartbeat connection answers; 0 for a heartbeat."""
    return int.from_bytes(frame[1:5], "big")


@dataclass
class _Asked:
    question: Question
    future: Future[Answer]
    timeout_ms: int
    number: int = 0
    due_ms: int = 0
    receiver: MessageReceiver[Answer] | None = None


class WorkerQuestions:
    """See the module docstring.

    Args:
        send: takes a worker's id and a frame for its heartbeat connection.
        max_frame_bytes: the maximum size of a frame.
        clock: time, for timeouts.
    """

    def __init__(self, send: Callable[[str, bytes], None], max_frame_bytes: int, clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._questions: MessageCodec[Question] = MessageCodec(Question, max_frame_bytes)
        self._answers: MessageCodec[Answer] = MessageCodec(Answer, max_frame_bytes, ANSWER_BYTES_MAX)
        self._waiting: dict[str, deque[_Asked]] = {}
        self._count = 0

    def ask(self, worker_id: str, question: Question, future: Future[Answer], timeout_ms: int) -> None:
        """Ask soon; the future receives the answer, or an `OperationError`."""
        waiting = self._waiting.setdefault(worker_id, deque())
        if len(waiting) >= WAITING_MAX:
            _fail(future, f"worker {worker_id} has too many questions to answer")
            return
        waiting.append(_Asked(question, future, timeout_ms))
        if len(waiting) == 1:
            self._send_first(worker_id)

    def on_frame(self, worker_id: str, frame: bytes) -> None:
        """Process a frame of an answer.

        Raises:
            ProtocolError: if it answers no open question, or is otherwise invalid.
        """
        waiting = self._waiting.get(worker_id)
        if (
            not waiting
            or (receiver := waiting[0].receiver) is None
            or waiting[0].number != parse_question_number(frame)
        ):
            raise ProtocolError("an answer that is no longer waited for, or to no question at all")
        try:
            answer = receiver.receive(frame)
        except ProtocolError as error:
            self._end_first(worker_id, str(error))
            raise
        if answer is not None:
            self._end_first(worker_id, None, answer)

    def next_deadline(self) -> int | None:
        """Return when (ms) the next open question times out."""
        return min((waiting[0].due_ms for waiting in self._waiting.values() if waiting), default=None)

    def on_time(self) -> None:
        """Fail the questions whose answers are overdue."""
        now_ms = self._clock.steady_ms()
        for worker_id in [name for name, waiting in self._waiting.items() if waiting and waiting[0].due_ms <= now_ms]:
            self._end_first(worker_id, f"it has not answered within {self._waiting[worker_id][0].timeout_ms} ms")

    def close(self) -> None:
        """Fail all questions, because the job is over."""
        for worker_id in list(self._waiting):
            for question in self._waiting.pop(worker_id):
                _fail(question.future, f"worker {worker_id} cannot answer: the job is over")

    def _send_first(self, worker_id: str) -> None:
        self._count += 1
        first = self._waiting[worker_id][0]
        first.number, first.due_ms = self._count, self._clock.steady_ms() + first.timeout_ms
        first.receiver = MessageReceiver(self._answers, first.number << NUMBER_SHIFT)
        self._send(worker_id, self._questions.encode(first.question, first.number << NUMBER_SHIFT))

    def _end_first(self, worker_id: str, error: str | None, answer: Answer | None = None) -> None:
        waiting = self._waiting[worker_id]
        first = waiting.popleft()
        if answer is not None:
            if first.future.set_running_or_notify_cancel():
                first.future.set_result(answer)
        else:
            _fail(first.future, f"worker {worker_id} gave no answer: {error}")
        if waiting:
            self._send_first(worker_id)
        else:
            del self._waiting[worker_id]


def _fail(future: Future[Answer], reason: str) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(OperationError(reason))


logger = logging.getLogger(__name__)

#: A message from a worker, or from the endpoint about a worker.
FromEndpoint: TypeAlias = FromWorker | WorkerBlocked

#: The most messages that one `receive` returns.
MESSAGES_PER_RECEIVE: Final = 1_000
#: The most peers whose rejection is remembered, so that each is logged only once.
PEERS_LOGGED_MAX: Final = 1_000
#: The most workers whose stacks are kept; the oldest stacks are dropped.
DUMPS_MAX: Final = 100
#: The most workers that one job may have over its lifetime.
WORKERS_MAX: Final = 1_000_000
_FRAMES: Final = 2  # the peer's identity, which ZeroMQ adds, and the message
_STALL_FRAMES: Final = 3  # as above, with the id of a local connection of the worker in between


class MasterEndpoint:
    """A ROUTER socket that admits the workers of one job.

    `receive`, `send` and `close` belong to one thread, the owner's; any thread may call `wake`.

    Args:
        keys: the job's keys.
        bind_host: the interface to listen on, as a host name or number.
        advertise_host: the host at which workers reach it.
        max_frame_bytes: the maximum size of a frame.
        message_bytes_max: the maximum size of a message, which may span several frames.
    """

    address: str

    def __init__(
        self,
        keys: sockets.JobKeys,
        bind_host: str,
        advertise_host: str,
        max_frame_bytes: int,
        message_bytes_max: int = RECORD_BYTES_MAX,
    ) -> None:
        self._from_worker: MessageCodec[FromWorker] = MessageCodec(FromWorker, max_frame_bytes, message_bytes_max)
        self._to_worker: MessageCodec[ToWorker] = MessageCodec(ToWorker, max_frame_bytes, message_bytes_max)
        self._context = zmq.Context()
        self._authenticator = sockets.KeyAuthenticator(self._context, keys.worker_public)
        self._router = self._context.socket(zmq.ROUTER)
        self._monitor = sockets.ConnectionMonitor(self._context, self._router)
        try:
            self.address = sockets.bind_server(
                self._router, keys.master_public, keys.master_secret, bind_host, advertise_host, max_frame_bytes
            )
        except OSError:
            self._authenticator.close()
            self._context.destroy(linger=0)
            raise
        self._waker = sockets.Waker()
        self._poller = zmq.Poller()
        self._poller.register(self._router, zmq.POLLIN)
        self._poller.register(self._waker.fileno(), zmq.POLLIN)
        self._poller.register(self._monitor.socket, zmq.POLLIN)
        self._connections = WorkerConnections()
        self._registered: list[tuple[int, str]] = []  # by the descriptors of their connections
        self._cut_off: list[str] = []
        self._received: dict[str, MessageReceiver[FromWorker]] = {}  # of workers that were heard
        self._sent: dict[str, int] = {}
        self._unheard: set[str] = set()
        #: the stacks of blocked workers received so far
        self._dumps: dict[str, str] = {}
        self._logged: set[bytes] = set()
        self._closed = False
        self._on_answer: Callable[[str, bytes], None] = _refuse_answer
        self.rejected_messages = 0

    @property
    def refused_connections(self) -> int:
        """The number of connections that failed to authenticate so far. Owner thread only."""
        return self._monitor.refused()

    def receive(self, timeout_ms: int) -> list[tuple[str, FromEndpoint]]:
        """Return the messages received, with their workers' ids; wait at most `timeout_ms` for the first one."""
        is_ready = self._wait(timeout_ms)
        self._waker.clear()
        received: list[tuple[str, FromEndpoint]] = []
        for _ in range(MESSAGES_PER_RECEIVE if is_ready else 0):
            try:
                frames = self._router.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            try:
                self._accept(frames, received)
            except ProtocolError as error:
                self._reject(frames[0].bytes, error)
        self._take_changes()  # after the registrations are read, because a descriptor may be reused at once
        return received

    def _wait(self, timeout_ms: int) -> bool:
        """Wait for a message, a wake-up or the end of a worker's connection; return False on timeout."""
        end = time.monotonic() + timeout_ms / 1_000
        while ready := self._poller.poll(timeout_ms):
            if any(source != self._monitor.socket for source, _ in ready):
                return True
            self._take_changes()
            if self._cut_off:
                return True
            timeout_ms = max(0, int((end - time.monotonic()) * 1_000))
        return False

    def _take_changes(self) -> None:
        self._cut_off += self._connections.take(self._registered, self._monitor.changes())
        self._registered.clear()

    def take_cut_off(self) -> list[str]:
        """Return the workers whose connection has ended since the last call; they are dead or will end themselves."""
        workers, self._cut_off = self._cut_off, []
        return workers

    def send(self, worker_id: str, message: ToWorker) -> None:
        """Send to a worker, first-in first-out; do nothing if the worker is not connected."""
        if self._closed or worker_id not in self._received:
            return
        sequence = self._sent.get(worker_id, 0)
        frames = self._to_worker.frames(message, sequence)
        self._sent[worker_id] = sequence + len(frames)
        for frame in frames:
            self._send(sockets.identity(sockets.CONTROL_ROLE, worker_id), frame)

    def send_question(self, worker_id: str, frame: bytes) -> None:
        """Send a frame on a worker's heartbeat connection; do nothing if the worker is not connected."""
        if not self._closed:
            self._send(sockets.identity(sockets.HEARTBEAT_ROLE, worker_id), frame)

    def hear_answers(self, on_answer: Callable[[str, bytes], None]) -> None:
        """Set the callback for frames of answers, which `receive` calls with their workers' ids."""
        self._on_answer = on_answer

    def wake(self) -> None:
        """Make `receive` return early; any thread may call this."""
        self._waker.wake()

    def close(self) -> None:
        """Give the last messages a moment to be sent, and free everything."""
        if self._closed:
            return
        self._closed = True
        self._monitor.close()
        self._router.close(linger=sockets.LAST_WORDS_LINGER_MS)
        self._authenticator.close()
        self._waker.close()
        self._context.term()

    def _accept(self, frames: list[zmq.Frame], received: list[tuple[str, FromEndpoint]]) -> None:
        role, worker_id = _parse_identity(frames[0].bytes)
        if worker_id in self._unheard:
            raise ProtocolError("an earlier message of it was lost")
        if role == sockets.STALL_ROLE:
            self._accept_dump(worker_id, frames, received)
            return
        if len(frames) != _FRAMES:
            raise ProtocolError(f"a control message of {len(frames) - 1} frames instead of one")
        peer, frame = (part.bytes for part in frames)
        message: FromWorker | None
        if role == sockets.HEARTBEAT_ROLE and parse_question_number(frame):
            self._on_answer(worker_id, frame)
            return
        if role == sockets.HEARTBEAT_ROLE:
            message = self._from_worker.decode(frame)[1]
            if not isinstance(message, Heartbeat):
                raise ProtocolError(f"a {type(message).__name__} came on a connection for heartbeats")
        else:
            message = self._receive_message(worker_id, frame)
        if isinstance(message, Heartbeat | RegisterWorker) and message.worker_id != worker_id:
            if role == sockets.CONTROL_ROLE:
                self._received[worker_id].refuse()
            raise ProtocolError(f"it claims to be worker {shorten(message.worker_id)!r}")
        if isinstance(message, RegisterWorker):
            self._registered.append((int(frames[-1].get(zmq.SRCFD)), worker_id))
        if role == sockets.HEARTBEAT_ROLE:
            self._dumps.pop(worker_id, None)
            self._send(peer, sockets.PONG)
        if message is not None:
            received.append((worker_id, message))

    def _accept_dump(self, worker_id: str, frames: list[zmq.Frame], received: list[tuple[str, FromEndpoint]]) -> None:
        """Accept a part of the stacks of a blocked process."""
        if len(frames) != _STALL_FRAMES:
            raise ProtocolError(f"a part of a stack of {len(frames) - 1} frames instead of two")
        if worker_id not in self._received:
            raise ProtocolError("a worker sent its stacks before it registered")
        dump = self._dumps.pop(worker_id, "") + frames[-1].bytes.decode("ascii", "replace")
        dump = self._dumps[worker_id] = dump[max(0, dump.rfind(DUMP_BEGIN)) :][:DUMP_CHARS_MAX]
        if len(self._dumps) > DUMPS_MAX:
            del self._dumps[next(iter(self._dumps))]
        stall = find_stall(dump)
        if stall is not None:
            received.append((worker_id, WorkerBlocked(worker_id, stall.at, stall.stack)))

    def _receive_message(self, worker_id: str, frame: bytes) -> FromWorker | None:
        """Check that a worker's messages are numbered from zero without gaps; return None if the message continues."""
        receiver = self._received.get(worker_id)
        if receiver is None and len(self._received) >= WORKERS_MAX:
            raise ProtocolError(f"more than {WORKERS_MAX} workers")
        receiver = receiver or MessageReceiver(self._from_worker)
        try:
            message = receiver.receive(frame)
        except OutOfTurnError as error:
            self._unheard.add(worker_id)
            raise ProtocolError(f"{error}; its messages are ignored from now on") from error
        self._received[worker_id] = receiver
        return message

    def _send(self, peer: bytes, frame: bytes) -> None:
        try:
            self._router.send_multipart([peer, frame], zmq.NOBLOCK)
        except zmq.Again:
            logger.warning("a message to worker %r was dropped: it accepts none", peer[1:].decode(errors="replace"))

    def _reject(self, peer: bytes, error: ProtocolError) -> None:
        self.rejected_messages += 1
        if peer not in self._logged and len(self._logged) < PEERS_LOGGED_MAX:
            self._logged.add(peer)
            logger.warning("rejected a message of peer %s (logged once per peer): %s", shorten(repr(peer)), error)


def _refuse_answer(worker_id: str, frame: bytes) -> None:
    raise ProtocolError("an answer to no question")


def _parse_identity(peer: bytes) -> tuple[bytes, str]:
    role, name = peer[:1], peer[1:]
    try:
        worker_id = name.decode()
    except UnicodeDecodeError:
        worker_id = ""
    if role not in (sockets.CONTROL_ROLE, sockets.HEARTBEAT_ROLE, sockets.STALL_ROLE) or not worker_id:
        raise ProtocolError("its identity is not that of a worker")
    return role, worker_id


BACKGROUND_THREADS: Final = 2
#: How long the workers of a finished job may take to end: their grace period, an interrupt, and the 2 s after which
#: Spark itself kills a Python process.
CLEAN_UP_MS_MAX: Final = 10_000


class Master(Protocol):
    """The part of `runtime.job.job_master.JobMaster` that the thread drives."""

    @property
    def is_done(self) -> bool: ...

    def start(self) -> None: ...

    def on_message(self, message: ToMaster) -> None: ...

    def on_time(self) -> None: ...

    def next_deadline(self) -> int | None: ...

    def cancel(self) -> None: ...

    def sweep(self) -> None: ...

    def take_effects(self) -> list[Effect]: ...


T = TypeVar("T")
MasterT = TypeVar("MasterT", bound=Master)


class JobThread(Generic[MasterT]):
    """Runs one job on a Spark session.

    Args:
        spark: the session.
        job_id: the job's id.
        job_name: the job's name on Spark's own pages.
        configuration: the job's settings.
        make_master: builds the job master, with its clock; called in the thread.
        make_executor: builds a worker's executor; pickled, called in the worker.
        on_end: called in the thread at its very end, with the error that broke the job master, if any.
        listener: is notified of events; called in the thread.
        script: the definitions of the user's script, see `codecs.cloud`.
    """

    def __init__(
        self,
        spark: SparkHandle,
        job_id: str,
        job_name: str,
        configuration: Configuration,
        make_master: Callable[[Clock], MasterT],
        make_executor: Callable[[WorkerServices], Executor],
        on_end: Callable[[PenstockError | None], None],
        listener: JobListener,
        script: bytes = b"",
    ) -> None:
        self._make_master = make_master
        self._on_end = on_end
        self._listener = listener
        self._clock = SystemClock()
        self._questions: deque[tuple[Future[Any], Callable[[MasterT], Any]]] = deque()
        self.job_name = job_name
        self._over = False
        self._turns = self._turns_seen = 0
        self._abandoned = False
        frame_bytes_max = configuration.read(options.NETWORK_FRAME_BYTES_MAX)
        record_bytes_max = configuration.read(options.NETWORK_RECORD_BYTES_MAX)
        heartbeat_interval_ms = configuration.read(options.HEARTBEAT_INTERVAL_MS)
        heartbeat_timeout_ms = configuration.read(options.HEARTBEAT_TIMEOUT_MS)
        keys = sockets.JobKeys.generate()
        bind_host, advertise_host = spark.master_hosts()
        endpoint = self._endpoint = MasterEndpoint(keys, bind_host, advertise_host, frame_bytes_max, record_bytes_max)

        self._worker_questions = WorkerQuestions(endpoint.send_question, frame_bytes_max, self._clock)
        endpoint.hear_answers(self._worker_questions.on_frame)
        logs = LogSettings.of(configuration, job_id)
        self._job_id = job_id

        def worker_settings(worker_id: str) -> WorkerSettings:
            return WorkerSettings(
                worker_id=worker_id,
                keys=keys.for_worker(),
                master_address=endpoint.address,
                is_local=spark.is_local,
                heartbeat_interval_ms=heartbeat_interval_ms,
                heartbeat_timeout_ms=heartbeat_timeout_ms,
                frame_bytes_max=frame_bytes_max,
                record_bytes_max=record_bytes_max,
                make_executor=make_executor,
                script=script,
                logs=logs,
            )

        self._leaving = LeavingWorkers(spark.executors(), endpoint.wake)
        self._cluster = SparkCluster(
            spark,
            job_id,
            lambda worker_id: spark.pages.describe(job_name, job_id, worker_id),
            worker_settings,
            endpoint.send,
            endpoint.wake,
            self._clock,
            configuration.read(options.REDUNDANT_WORKERS),
            CUT_OFF_GRACE_IN_PROCESS_MS if spark.is_one_process else CUT_OFF_GRACE_MS,
            self._leaving,
        )
        self._thread = threading.Thread(target=self._run, name=f"penstock-job-{job_name}", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def ask(self, question: Callable[[MasterT], T]) -> Future[T]:
        """Call a function with the job master in its next turn; the future is cancelled if the job is over by then.

        Any thread may call this.
        """
        future: Future[T] = Future()
        self._questions.append((future, question))
        self._endpoint.wake()
        if self._over:
            self._refuse_questions()
        return future

    def ask_worker(self, worker_id: str, question: Question, timeout_ms: int) -> Future[Answer]:
        """Ask a worker's process; the future fails with an `OperationError` if no answer comes.

        Any thread may call this.
        """
        future: Future[Answer] = Future()

        def ask(_: MasterT) -> None:
            if self._cluster.serves(worker_id):
                self._worker_questions.ask(worker_id, question, future, timeout_ms)
            else:
                future.set_exception(OperationError(f"the job has no worker {shorten(worker_id)!r}"))

        def refused(request: Future[None]) -> None:
            if request.cancelled():
                future.set_exception(OperationError(f"worker {shorten(worker_id)} cannot answer: the job is over"))

        self.ask(ask).add_done_callback(refused)
        return future

    def abandon(self) -> None:
        """End the workers without waiting for the job master. Any thread may call this."""
        self._abandoned = True
        self._endpoint.wake()

    def where(self) -> str | None:
        """Return the user code that the thread runs, such as an enumerator; None if it progressed since last time."""
        is_still, self._turns_seen = self._turns == self._turns_seen, self._turns
        return where_is(self._thread) if is_still else None

    def join(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the end; return True if it has come."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        set_thread_job(self._job_id)
        failure: PenstockError | None = None
        master: MasterT | None = None
        background = ThreadBackground("penstock-job-background", BACKGROUND_THREADS, self._endpoint.wake)
        try:
            master = self._make_master(self._clock)
            master.start()
            self._carry_out(master, background)
            while not master.is_done and not self._abandoned:
                self._turn(master, background)
        except BaseException as error:  # noqa: BLE001 - whatever it is ends the job, and its workers with it
            _log.debug("the job master broke", exc_info=True)
            failure = error if isinstance(error, PenstockError) else OperationError(f"the job master failed: {error!r}")
        try:
            self._clean_up(background)
            if master is not None and master.is_done:
                master.sweep()
                self._carry_out(master, background)
        except BaseException as error:  # noqa: BLE001 - the waiting caller must hear of the job's end all the same
            _log.warning("the job could not release everything: %r", error, exc_info=True)
        self._over = True
        self._refuse_questions()
        self._worker_questions.close()
        self._on_end(failure)

    def _refuse_questions(self) -> None:
        while self._questions:
            future, _ = self._questions.popleft()
            future.cancel()

    def _carry_out(self, master: MasterT, background: ThreadBackground) -> None:
        """Carry out the effects of the master's turns."""
        carry_out(master.take_effects(), self._cluster, background, self._listener)

    def _answer_questions(self, master: MasterT) -> None:
        while self._questions:
            future, question = self._questions.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(question(master))
                except Exception as error:  # noqa: BLE001 - goes to the caller that asked
                    future.set_exception(error)

    def _turn(self, master: MasterT, background: ThreadBackground) -> None:
        self._turns += 1
        for worker_id, message in self._endpoint.receive(self._wait_ms(master)):
            if isinstance(message, RegisterWorker) and not self._cluster.on_registered(message):
                continue
            if self._cluster.serves(worker_id):
                master.on_message(message)
                self._carry_out(master, background)
        for worker_id in self._endpoint.take_cut_off():
            self._cluster.on_cut_off(worker_id)
        for ended in self._cluster.collect():
            master.on_message(ended)
        background.deliver()
        self._answer_questions(master)
        self._carry_out(master, background)
        self._cluster.on_time()
        self._worker_questions.on_time()
        deadline = master.next_deadline()
        if deadline is not None and deadline <= self._clock.steady_ms():
            master.on_time()
            self._carry_out(master, background)

    def _wait_ms(self, master: MasterT) -> int:
        parts = master, self._cluster, self._worker_questions
        deadlines = [deadline for part in parts if (deadline := part.next_deadline()) is not None]
        if not deadlines:
            return WAIT_MS_MAX
        return max(0, min(WAIT_MS_MAX, min(deadlines) - self._clock.steady_ms()))

    def _clean_up(self, background: ThreadBackground) -> None:
        cluster, endpoint, clock = self._cluster, self._endpoint, self._clock
        self._leaving.close()
        cluster.release_all()
        end_ms = clock.steady_ms() + CLEAN_UP_MS_MAX
        while cluster.worker_count and clock.steady_ms() < end_ms:
            for _, message in endpoint.receive(100):
                if isinstance(message, RegisterWorker):
                    cluster.on_registered(message)
            cluster.collect()
            cluster.on_time()
        if cluster.worker_count:
            _log.warning("%d workers did not end within %d s", cluster.worker_count, CLEAN_UP_MS_MAX // 1000)
        remove_left_behind(Path(tempfile.gettempdir()), f"{LOGS_PREFIX}{self._job_id}-")  # by workers that were killed
        background.close(finish=True)  # such as the removal of unneeded checkpoints
        endpoint.close()
