"""A worker's heartbeats to the master, and the watchdog that names the code that blocks a worker's process.

`StallWatch`: a C function that holds Python's global interpreter lock (GIL) and does not release it stops all Python
threads of the process, including the heartbeats. The job master gets only silence. So each worker has a watchdog that
runs without the lock: `faulthandler` writes the stacks of all threads into a local connection if the heartbeat thread
has not restarted it in time. A thread of libzmq, which does not need the lock either, passes them on to the job master.
`find_stall` finds the blocking code in them.

`LoopWatch` records the activity of a worker's loop for the thread that sends heartbeats.

`HeartbeatSender` is a thread with its own connection, so that no work can delay the heartbeats. Each heartbeat reports
the resource usage of the process. To keep this report fresh, heartbeats are sent at least every two seconds, whatever
the interval is: it would cost more to signal whether anyone is looking than a heartbeat costs. On the same connection
the master asks about the state of the process, and gets an answer whatever the loop does.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import re
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

import zmq

from penstock.base.errors import OperationError, ProtocolError, WrongTimeError, WrongValueError, shorten
from penstock.drivers.cancellation import where_is
from penstock.drivers.inspection import ANSWER_BYTES_MAX, Answer, Question, Refused, process_figures
from penstock.drivers.spark import sockets
from penstock.runtime.ports import Clock
from penstock.runtime.protocol import Heartbeat, ProcessFigures
from penstock.wire.buffers import MessageCodec, MessageTooLargeError

_log = logging.getLogger("penstock.spark")


class HeartbeatAnswers:
    """Receives questions and collects the frames of their answers.

    Args:
        begin: answers a question later, by calling its second argument, in any thread.
        wake: called in any thread when frames are ready.
        max_frame_bytes: the maximum size of a frame.
    """

    def __init__(
        self,
        begin: Callable[[Question, Callable[[Answer], None]], None],
        wake: Callable[[], None],
        max_frame_bytes: int,
    ) -> None:
        self._begin = begin
        self._wake = wake
        self._questions: MessageCodec[Question] = MessageCodec(Question, max_frame_bytes)
        self._answers: MessageCodec[Answer] = MessageCodec(Answer, max_frame_bytes, ANSWER_BYTES_MAX)
        self.frames: deque[bytes] = deque()

    def on_frame(self, frame: bytes) -> None:
        """Take a question; log and ignore a frame that cannot be decoded."""
        try:
            number, question = self._questions.decode(frame)
        except ProtocolError as error:
            _log.warning("a question of the job master is not answered: %s", error)
            return

        def done(answer: Answer) -> None:
            try:
                frames = self._answers.frames(answer, number)
            except MessageTooLargeError as error:
                frames = self._answers.frames(Refused(str(error)), number)
            self.frames.extend(frames)
            self._wake()

        self._begin(question, done)


#: The limit (characters) for the stacks of one worker. `faulthandler` itself limits threads and frames.
DUMP_CHARS_MAX: Final = 256 << 10
#: the beginning of the output of `faulthandler`
DUMP_BEGIN: Final = "Timeout ("
#: The limit (frames) for the stack in an error; the innermost ones are kept.
FRAMES_MAX: Final = 30
_CONNECT_TIMEOUT_S: Final = 5.0
_TRIES_MAX: Final = 3
_UNSENT_MAX: Final = 1_000
_FRAME: Final = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)\n')
#: Functions in which an idle thread of a worker waits without the lock.
_WAITS: Final = ("/threading.py", "/selectors.py", "/zmq/", "/queue.py", "/concurrent/futures/", "/heartbeats.py")
#: Penstock's packages that appear in the stack of a task.
_PENSTOCK: Final = re.compile(
    r"/penstock/(?:runtime|drivers|datastream|table|sql|connectors|state|storage|wire|codecs)/"
)
_OF_PYTHON: Final = re.compile(r"<frozen|/(?:pyspark|py4j|zmq)/|/lib/python(?!.*-packages/)")


class StallWatch:
    """The watchdog of this process, which must be restarted regularly by `rearm`.

    Args:
        keys: the worker's part of the job's keys.
        worker_id: the worker's id.
        master_address: the job master's address.
        max_frame_bytes: the limit for a message.
        stall_ms: the time without `rearm` after which the stacks are sent.

    Raises:
        OSError: if this machine does not allow local connections.
    """

    def __init__(
        self, keys: sockets.WorkerKeys, worker_id: str, master_address: str, max_frame_bytes: int, stall_ms: int
    ) -> None:
        self._stall_s = stall_ms / 1_000
        # A separate context: terminating it ends the thread.
        self._context: sockets.Context = zmq.Context()
        try:
            dealer = self._context.socket(zmq.DEALER)
            dealer.setsockopt(zmq.ROUTING_ID, sockets.identity(sockets.STALL_ROLE, worker_id))
            sockets.connect_client(dealer, keys, keys.master_public, master_address, max_frame_bytes, _UNSENT_MAX)
            stream = self._context.socket(zmq.STREAM)
            stream.setsockopt(zmq.LINGER, 0)
            self._pipe = _connect(stream)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._thread = threading.Thread(target=_pass_on, args=(stream, dealer), name="penstock-stalls", daemon=True)
        self._thread.start()

    def rearm(self) -> None:
        """Restart the timer. From now on this process has no other watchdog of `faulthandler`."""
        faulthandler.dump_traceback_later(self._stall_s, file=self._pipe.fileno())

    def close(self) -> None:
        """Stop the watchdog and its thread."""
        faulthandler.cancel_dump_traceback_later()
        self._pipe.close()
        self._context.term()
        self._thread.join()


def _connect(stream: zmq.Socket[bytes]) -> socket.socket:
    """Connect a libzmq socket to a socket of this process; other processes cannot connect."""
    with socket.create_server(("127.0.0.1", 0), backlog=8) as server:
        server.settimeout(_CONNECT_TIMEOUT_S)
        stream.connect(f"tcp://127.0.0.1:{server.getsockname()[1]}")
        for _ in range(_TRIES_MAX):
            pipe, _ = server.accept()
            token = secrets.token_bytes(16)
            pipe.sendall(token)
            if _received(stream, token):
                # The watchdog must not block on a full buffer: the heartbeat thread waits for it when it restarts it.
                pipe.setblocking(False)
                return pipe
            pipe.close()  # another process on this machine was faster
    raise OperationError("other processes of this machine took the local connection that tells of blocked functions")


def _received(stream: zmq.Socket[bytes], token: bytes) -> bool:
    received = b""
    while len(received) < len(token) and stream.poll(int(_CONNECT_TIMEOUT_S * 1_000)):
        _, data = stream.recv_multipart()  # an empty message: the connection was made
        received += data
    return received == token


def _pass_on(stream: zmq.Socket[bytes], dealer: zmq.Socket[bytes]) -> None:
    try:
        zmq.proxy(stream, dealer)
    except zmq.ContextTerminated:
        pass
    finally:
        stream.close(linger=0)
        dealer.close(linger=0)


# --- the job master's side --------------------------------------------------------------------------------------------


class Frame(NamedTuple):
    """A call in a stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.function} ({self.file.rpartition('/')[2]}:{self.line})"


class Stall(NamedTuple):
    """The place where a process is blocked: the user's function, and the stack from there on, innermost call last."""

    at: str
    stack: str


def find_stall(dump: str) -> Stall | None:
    """Find the code that blocks a worker in the output of `faulthandler`; return None if no thread appears to block it.

    The output does not show which thread holds the lock. It must be a thread outside of the functions that wait:
    preferably the one that runs tasks, otherwise another one.
    """
    stacks = [
        stack for stack in map(_frames, re.split(r"^(?:Current thread|Thread) ", dump, flags=re.MULTILINE)) if stack
    ]
    stacks.sort(key=lambda stack: not any("/penstock/runtime/task/" in frame.file for frame in stack))
    for stack in stacks:
        if not any(part in stack[-1].file for part in _WAITS):
            begin = _users_call(stack)
            frames = stack[begin:][-FRAMES_MAX:]
            text = "".join(f'  File "{frame.file}", line {frame.line}, in {frame.function}\n' for frame in frames)
            return Stall(str(stack[begin]), text)
    return None


def _frames(text: str) -> list[Frame]:
    """Return the frames of one thread, outermost first, without an incomplete last line."""
    frames = [Frame(match["file"], int(match["line"]), match["function"]) for match in _FRAME.finditer(text)]
    return frames[::-1]


def _users_call(stack: list[Frame]) -> int:
    """Return the index of the first function of the user's code that Penstock calls, else of the innermost function."""
    is_inside = False
    for index, frame in enumerate(stack):
        if _PENSTOCK.search(frame.file):
            is_inside = True
        elif is_inside and not _OF_PYTHON.search(frame.file):
            return index
    return len(stack) - 1


#: A turn that takes longer (ms) is reported. An idle loop turns once a second.
STILL_MS: Final = 2_000


class LoopState(NamedTuple):
    """The state of a worker's loop, as in `Heartbeat`."""

    whereabouts: str = ""
    still_ms: int = 0
    busy_ms: int | None = None


class LoopWatch:
    """Created by the loop's own thread, which reports each turn (`turned`) and its idle time (`waited`)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._thread = threading.current_thread()
        self._begun_ms = self._turned_ms = clock.steady_ms()
        self._waited_ms = 0

    def turned(self, now_ms: int) -> None:
        """Note that the loop has turned."""
        self._turned_ms = now_ms

    def waited(self, for_ms: int) -> None:
        """Note that the loop was idle for a while."""
        self._waited_ms += for_ms

    def state(self) -> LoopState:
        """Return the loop's state, with the user function that has not returned if the loop is stuck.

        Any thread may call this.
        """
        now_ms = self._clock.steady_ms()
        still_ms, busy_ms = now_ms - self._turned_ms, now_ms - self._begun_ms - self._waited_ms
        if still_ms < STILL_MS:
            return LoopState(busy_ms=busy_ms)
        return LoopState(shorten(where_is(self._thread) or ""), still_ms, busy_ms)


UNSENT_HEARTBEATS_MAX = 4
#: How often (ms) a worker reports its resource usage, at least.
FIGURES_INTERVAL_MS = 2_000
#: Answers a question by calling its second argument, in any thread.
AnswerQuestion: TypeAlias = Callable[[Question, Callable[[Answer], None]], None]


def answer_nothing(question: Question, done: Callable[[Answer], None]) -> None:
    """Refuse to answer."""
    done(Refused("it answers no questions"))


class HeartbeatSender:
    """Sends heartbeats until closed, and remembers the time of the master's last answer."""

    def __init__(
        self,
        context: sockets.Context,
        keys: sockets.WorkerKeys,
        worker_id: str,
        master_address: str,
        max_frame_bytes: int,
    ) -> None:
        self._context = context
        self._keys = keys
        self._worker_id = worker_id
        self._master_address = master_address
        self._max_frame_bytes = max_frame_bytes
        self._waker = sockets.Waker()
        self._stop = False
        self._has_figures = True
        self._thread: threading.Thread | None = None
        self._interval_ms = 0
        self._state: Callable[[], LoopState] = LoopState
        self._heard_at = time.monotonic()

    @property
    def silence_ms(self) -> int:
        """How long ago (ms) the master was last heard."""
        return int((time.monotonic() - self._heard_at) * 1000)

    def heard(self) -> None:
        """Note that the master was heard just now; any thread may call this."""
        self._heard_at = time.monotonic()

    def start(
        self,
        interval_ms: int,
        state: Callable[[], LoopState] = LoopState,
        answer: AnswerQuestion = answer_nothing,
        stall_ms: int | None = None,
    ) -> None:
        """Start, with a heartbeat every `interval_ms` or more often. `state` returns the worker's current activity.

        `answer` begins to answer a question and must return quickly. If no heartbeat can be sent for `stall_ms`, the
        master gets the stacks of this process, see `StallWatch`; with None, never.

        Raises:
            ValueError: if the interval is not positive.
            RuntimeError: if it was started before.
        """
        if interval_ms <= 0:
            raise WrongValueError(f"the heartbeat interval must be positive, not {interval_ms} ms")
        if self._thread is not None:
            raise WrongTimeError("heartbeats were started twice")
        self._interval_ms = min(interval_ms, FIGURES_INTERVAL_MS)
        self._state = state
        # At least two heartbeats must be missing; otherwise a process that works would send its stacks.
        self._stall_ms = None if stall_ms is None else max(stall_ms, 2 * self._interval_ms)
        self._answers = HeartbeatAnswers(answer, self._waker.wake, self._max_frame_bytes)
        self._thread = threading.Thread(target=self._run, name=f"penstock-heartbeats-{self._worker_id}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and wait for the thread to end."""
        self._stop = True
        self._waker.wake()
        if self._thread is not None:
            self._thread.join()
        self._waker.close()

    def _run(self) -> None:
        dealer = self._context.socket(zmq.DEALER)
        stalls = self._watch_stalls()
        try:
            dealer.setsockopt(zmq.ROUTING_ID, sockets.identity(sockets.HEARTBEAT_ROLE, self._worker_id))
            sockets.connect_client(
                dealer,
                self._keys,
                self._keys.master_public,
                self._master_address,
                self._max_frame_bytes,
                UNSENT_HEARTBEATS_MAX,
            )
            self._beat(dealer, stalls)
        finally:
            dealer.close(linger=0)
            if stalls is not None:
                stalls.close()

    def _watch_stalls(self) -> StallWatch | None:
        if self._stall_ms is None:
            return None
        try:
            return StallWatch(self._keys, self._worker_id, self._master_address, self._max_frame_bytes, self._stall_ms)
        except (OSError, zmq.ZMQError) as error:
            _log.warning("worker %s cannot say where it is when its process is blocked: %s", self._worker_id, error)
            return None

    def _beat(self, dealer: zmq.Socket[bytes], stalls: StallWatch | None) -> None:
        codec: MessageCodec[Heartbeat] = MessageCodec(Heartbeat, self._max_frame_bytes)
        poller = zmq.Poller()
        poller.register(dealer, zmq.POLLIN)
        poller.register(self._waker, zmq.POLLIN)
        due = time.monotonic()
        while not self._stop:
            now = time.monotonic()
            if now >= due:
                due = now + self._interval_ms / 1000
                if stalls is not None:
                    stalls.rearm()
                # If the master takes no heartbeats, its silence reveals that.
                with contextlib.suppress(zmq.Again):
                    heartbeat = Heartbeat(self._worker_id, *self._state(), self._figures())
                    dealer.send(codec.encode(heartbeat, 0), zmq.NOBLOCK)
            is_full = self._send_answers(dealer)
            poller.register(dealer, zmq.POLLIN | zmq.POLLOUT if is_full else zmq.POLLIN)
            poller.poll(int(max(0.0, due - now) * 1000) + 1)
            self._waker.clear()
            self._take_answers(dealer)

    def _send_answers(self, dealer: zmq.Socket[bytes]) -> bool:
        """Send the pending answers; return True if some of them must wait."""
        frames = self._answers.frames
        while frames:
            try:
                dealer.send(frames[0], zmq.NOBLOCK)
            except zmq.Again:
                return True
            frames.popleft()
        return False

    def _figures(self) -> ProcessFigures | None:
        """Return the resource usage of the process; None if the system does not report it."""
        if not self._has_figures:
            return None
        try:
            return process_figures()
        except Exception as error:  # noqa: BLE001 - a worker that cannot be measured works all the same
            _log.warning("worker %s cannot tell what its process uses: %r", self._worker_id, error)
            self._has_figures = False
            return None

    def _take_answers(self, dealer: zmq.Socket[bytes]) -> None:
        with contextlib.suppress(zmq.Again):
            while frames := dealer.recv_multipart(zmq.NOBLOCK):
                self.heard()
                if frames != [sockets.PONG]:
                    self._answers.on_frame(frames[0])
