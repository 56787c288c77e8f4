"""The job master's port: control messages from and to all workers of one job.

Only peers with the job's worker key get this far, and even their messages are not unpickled here. A worker's messages
are numbered. If one is missing, or a worker's connection was taken over, all further messages of the worker are
ignored, including its heartbeats. It then counts as lost and ends itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeAlias

import zmq

from penstock.base.errors import ProtocolError, shorten
from penstock.core.protocol import FromWorker, Heartbeat, RegisterWorker, ToWorker, WorkerBlocked
from penstock.drivers.spark.authentication import KeyAuthenticator
from penstock.drivers.spark.control_frames import CONTROL_ROLE, HEARTBEAT_ROLE, PONG, STALL_ROLE, identity
from penstock.drivers.spark.keys import JobKeys
from penstock.drivers.spark.sockets import LAST_WORDS_LINGER_MS, ConnectionMonitor, Waker, bind_server
from penstock.drivers.spark.stalls import DUMP_BEGIN, DUMP_CHARS_MAX, find_stall
from penstock.drivers.spark.worker_connections import WorkerConnections
from penstock.drivers.spark.worker_questions import parse_question_number
from penstock.wire.messages import RECORD_BYTES_MAX, MessageCodec, MessageReceiver, OutOfTurnError

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
        keys: JobKeys,
        bind_host: str,
        advertise_host: str,
        max_frame_bytes: int,
        message_bytes_max: int = RECORD_BYTES_MAX,
    ) -> None:
        self._from_worker: MessageCodec[FromWorker] = MessageCodec(FromWorker, max_frame_bytes, message_bytes_max)
        self._to_worker: MessageCodec[ToWorker] = MessageCodec(ToWorker, max_frame_bytes, message_bytes_max)
        self._context = zmq.Context()
        self._authenticator = KeyAuthenticator(self._context, keys.worker_public)
        self._router = self._context.socket(zmq.ROUTER)
        self._monitor = ConnectionMonitor(self._context, self._router)
        try:
            self.address = bind_server(
                self._router, keys.master_public, keys.master_secret, bind_host, advertise_host, max_frame_bytes
            )
        except OSError:
            self._authenticator.close()
            self._context.destroy(linger=0)
            raise
        self._waker = Waker()
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
            self._send(identity(CONTROL_ROLE, worker_id), frame)

    def send_question(self, worker_id: str, frame: bytes) -> None:
        """Send a frame on a worker's heartbeat connection; do nothing if the worker is not connected."""
        if not self._closed:
            self._send(identity(HEARTBEAT_ROLE, worker_id), frame)

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
        self._router.close(linger=LAST_WORDS_LINGER_MS)
        self._authenticator.close()
        self._waker.close()
        self._context.term()

    def _accept(self, frames: list[zmq.Frame], received: list[tuple[str, FromEndpoint]]) -> None:
        role, worker_id = _parse_identity(frames[0].bytes)
        if worker_id in self._unheard:
            raise ProtocolError("an earlier message of it was lost")
        if role == STALL_ROLE:
            self._accept_dump(worker_id, frames, received)
            return
        if len(frames) != _FRAMES:
            raise ProtocolError(f"a control message of {len(frames) - 1} frames instead of one")
        peer, frame = (part.bytes for part in frames)
        message: FromWorker | None
        if role == HEARTBEAT_ROLE and parse_question_number(frame):
            self._on_answer(worker_id, frame)
            return
        if role == HEARTBEAT_ROLE:
            message = self._from_worker.decode(frame)[1]
            if not isinstance(message, Heartbeat):
                raise ProtocolError(f"a {type(message).__name__} came on a connection for heartbeats")
        else:
            message = self._receive_message(worker_id, frame)
        if isinstance(message, Heartbeat | RegisterWorker) and message.worker_id != worker_id:
            if role == CONTROL_ROLE:
                self._received[worker_id].refuse()
            raise ProtocolError(f"it claims to be worker {shorten(message.worker_id)!r}")
        if isinstance(message, RegisterWorker):
            self._registered.append((int(frames[-1].get(zmq.SRCFD)), worker_id))
        if role == HEARTBEAT_ROLE:
            self._dumps.pop(worker_id, None)
            self._send(peer, PONG)
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
    if role not in (CONTROL_ROLE, HEARTBEAT_ROLE, STALL_ROLE) or not worker_id:
        raise ProtocolError("its identity is not that of a worker")
    return role, worker_id
