"""A worker's two links to the outside: control messages to the job master, and buffers and credits to other workers.

Every socket requires its peer to hold the job's keys, so everything that `receive` reads comes from the job itself.
Only for that reason may it unpickle records. Data sent on a connection that broke may be lost. Such a loss is never
ignored: either end reports it by `on_peer_lost` or `on_master_lost`, and a stream with a gap delivers nothing more.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

import zmq

from penstock.base.errors import ProtocolError
from penstock.drivers.spark.data_links import (
    CONNECT_TIMEOUT_S,
    DataLink,
    DataLinks,
    LocalPort,
    data_address,
    host_identity,
)
from penstock.drivers.spark.heartbeats import AnswerQuestion, HeartbeatSender, LoopState, answer_nothing
from penstock.drivers.spark.sockets import (
    CONTROL_ROLE,
    LAST_WORDS_LINGER_MS,
    KeyAuthenticator,
    LinkMonitor,
    RefusalMonitor,
    Waker,
    WorkerKeys,
    bind_server,
    connect_client,
    identity,
)
from penstock.runtime.columns.batch import make_batch
from penstock.runtime.protocol import ChannelId, ToMaster, ToWorker
from penstock.runtime.records import Batch, Buffer, Element, Event
from penstock.wire.buffers import FRAMES_MAX, BufferCodec, Frame
from penstock.wire.messages import RECORD_BYTES_MAX, MessageCodec, MessageReceiver
from penstock.wire.streams import BufferArrived, Channel, CreditArrived, StreamBroken, StreamReceiver

logger = logging.getLogger(__name__)

#: Maximum number of messages of each kind that one `receive` dispatches.
MESSAGES_PER_RECEIVE: Final = 64
REJECTIONS_LOGGED_MAX: Final = 20
#: Minimum time between checks of the connections: a turn of a busy worker takes a few tens of µs, a check ten.
LOSS_CHECK_INTERVAL_S: Final = 0.02
_NOBLOCK: Final = int(zmq.NOBLOCK)  # a plain int: an enum's operators take longer than receiving


class Receiver(Protocol):
    """Handles the messages and events that arrive at a worker's endpoint."""

    def on_message(self, message: ToWorker) -> None:
        """Handle a message from the job master."""
        ...

    def on_buffer(self, channel: ChannelId, buffer: Buffer) -> None:
        """Handle a buffer for a task of this worker."""
        ...

    def on_credit(self, channel: ChannelId, credit: int) -> None:
        """Handle credit for a task of this worker."""
        ...

    def on_peer_lost(self, worker_id: str, reason: str, attempt: int | None = None) -> None:
        """Fail the tasks with channels to this peer: data sent to it or received from it may be incomplete.

        With `attempt`, only the tasks of that attempt fail.
        """
        ...

    def on_master_lost(self, reason: str) -> None:
        """End the worker: messages from or to the master may be lost. Called once."""
        ...


class WorkerEndpoint:
    """Implements the ports `Network` and `MasterGateway` over ZeroMQ.

    All methods except `wake` must be called from one thread, the owner's. Peers `connect` to `data_address`.

    Args:
        worker_id: this worker's id; no other process of the job may ever have used it.
        keys: the worker's part of the job's keys.
        master_address: the master endpoint's address.
        bind_host: the interface to listen on for data, as a host name or number.
        advertise_host: the host under which peers reach it.
        max_frame_bytes: the maximum size of a message; larger buffers are split.
        record_bytes_max: the maximum size of a record or control message, however many messages it takes.
    """

    passes_references = False

    data_address: str

    def __init__(
        self,
        worker_id: str,
        keys: WorkerKeys,
        master_address: str,
        bind_host: str,
        advertise_host: str,
        max_frame_bytes: int,
        record_bytes_max: int = RECORD_BYTES_MAX,
    ) -> None:
        self._to_master: MessageCodec[ToMaster] = MessageCodec(ToMaster, max_frame_bytes, record_bytes_max)
        from_master: MessageCodec[ToWorker] = MessageCodec(ToWorker, max_frame_bytes, record_bytes_max)
        self._from_master = MessageReceiver(from_master)
        self._buffers: BufferCodec[Element] = BufferCodec(Event, Batch, make_batch, max_frame_bytes, record_bytes_max)
        self._streams = StreamReceiver(worker_id, self._buffers)
        self._context = zmq.Context()
        self._authenticator = KeyAuthenticator(self._context, keys.worker_public)
        self._local_port: LocalPort | None = None
        try:
            self._data = self._context.socket(zmq.PULL)
            self._refusals = RefusalMonitor(self._context, self._data)
            tcp = bind_server(
                self._data, keys.worker_public, keys.worker_secret, bind_host, advertise_host, max_frame_bytes
            )
            host = host_identity()
            self._links = DataLinks(self._context, keys, max_frame_bytes, worker_id, host)

            self._master = self._context.socket(zmq.DEALER)
            self._master.setsockopt(zmq.ROUTING_ID, identity(CONTROL_ROLE, worker_id))
            self._master_monitor = LinkMonitor(self._context, self._master, CONNECT_TIMEOUT_S)
            connect_client(self._master, keys, keys.master_public, master_address, max_frame_bytes)
            self._heartbeats = HeartbeatSender(self._context, keys, worker_id, master_address, max_frame_bytes)
            self._waker = Waker()

            path = None
            if host is not None:
                self._local_port = LocalPort(self._data)
                path = self._local_port.path
            self.data_address = data_address(tcp, host, path)
        except BaseException:
            self._authenticator.close()
            self._context.destroy(linger=0)
            self._remove_local_port()
            raise
        #: Links with credit that may not have left with a buffer.
        self._owing: dict[DataLink, None] = {}
        self._poller = zmq.Poller()
        for source in (self._data, self._master, self._waker.fileno()):
            self._poller.register(source, zmq.POLLIN)
        self._loss_check_due = 0.0
        self._sent = 0  # messages sent to the master
        self._master_lost: str | None = None
        self._master_lost_told = False
        self._closed = False
        self.rejected_messages = 0

    @property
    def refused_connections(self) -> int:
        """Number of connections to the data port that have failed to authenticate so far."""
        return self._refusals.refused()

    @property
    def master_silence_ms(self) -> int:
        """Time since the last sign of the master: a message, or an answer to a heartbeat."""
        return self._heartbeats.silence_ms

    def receive(self, timeout_ms: int, receiver: Receiver) -> bool:
        """Dispatch incoming messages, up to a limit; wait at most `timeout_ms` for the first.

        Returns:
            Whether anything was dispatched.

        Raises:
            RecordSerializationError: if a buffer's records cannot be unpickled here. Its stream is then broken.
        """
        if self._owing:
            self._send_owed_credit()
        ready = {source for source, _ in self._poller.poll(timeout_ms)}
        dispatched = False
        if self._waker.fileno() in ready:
            self._waker.clear()
        if self._master in ready:
            dispatched |= self._receive_messages(receiver)
        if self._data in ready:
            dispatched |= self._receive_data(receiver)
        dispatched |= self._report_losses(receiver)
        return dispatched

    def _send_owed_credit(self) -> None:
        for link in self._owing:
            frame = link.stream.credit()
            if frame is not None:
                link.send([frame])
        self._owing.clear()

    def connect(self, attempt: int, peers: Mapping[str, str]) -> None:
        self._links.connect(attempt, peers)

    def keep_attempts(self, attempts: Collection[int]) -> None:
        self._links.keep_attempts(attempts)

    def send_buffer(self, worker_id: str, channel: ChannelId, buffer: Buffer) -> None:
        parts = self._buffers.encode(buffer)
        link = self._links.to(worker_id, channel.attempt)
        if link is not None:
            for part in parts:
                if part.is_large:
                    for frames in link.stream.messages(_plain(channel), part, self._buffers.chunk_bytes):
                        link.send(frames)
                else:
                    link.send(link.stream.buffer(_plain(channel), part))

    def send_credit(self, worker_id: str, channel: ChannelId, credit: int) -> None:
        """Send credit with the next buffer to that worker, or when `receive` is called, whichever comes first."""
        link = self._links.to(worker_id, channel.attempt)
        if link is not None:
            link.stream.grant(_plain(channel), credit)
            self._owing[link] = None

    def send(self, message: ToMaster) -> None:
        frames = self._to_master.frames(message, self._sent)
        self._sent += len(frames)
        if self._master_lost is None:
            with contextlib.suppress(zmq.Again):  # the connection is lost; the monitor reports it
                for frame in frames:
                    self._master.send(frame, zmq.NOBLOCK)

    def start_heartbeats(
        self,
        interval_ms: int,
        state: Callable[[], LoopState] = LoopState,
        answer: AnswerQuestion = answer_nothing,
        stall_ms: int | None = None,
    ) -> None:
        """Start a thread that sends the worker's activity to the master in heartbeats, and answers its questions.

        `stall_ms`: the time without heartbeats after which the master gets the stacks of this process.
        """
        self._heartbeats.start(interval_ms, state, answer, stall_ms)

    def wake(self) -> None:
        """Make `receive` return early. Any thread may call this."""
        self._waker.wake()

    def close(self) -> None:
        """Give the last messages to the master a moment to leave, and free all resources."""
        if self._closed:
            return
        self._closed = True
        try:
            self._heartbeats.close()
            self._links.close()
            self._refusals.close()
            self._master_monitor.close()
            self._data.close(linger=0)
            self._master.close(linger=LAST_WORDS_LINGER_MS if self._master_lost is None else 0)
            self._authenticator.close()
            self._waker.close()
            self._context.term()
        finally:
            self._remove_local_port()

    def _remove_local_port(self) -> None:
        if self._local_port is not None:
            self._local_port.close()

    def _receive_messages(self, receiver: Receiver) -> bool:
        for received in range(MESSAGES_PER_RECEIVE):
            try:
                frames = self._master.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return received > 0
            if self._master_lost is not None:
                return received > 0
            try:
                message = self._decode_from_master(frames)
            except ProtocolError as error:
                self._reject(error)
                self._master_lost = str(error)
                return received > 0
            self._heartbeats.heard()
            if message is not None:
                receiver.on_message(message)
        return True

    def _decode_from_master(self, frames: list[bytes]) -> ToWorker | None:
        if len(frames) != 1:
            raise ProtocolError(f"a control message of {len(frames)} frames instead of one")
        return self._from_master.receive(frames[0])

    def _receive_data(self, receiver: Receiver) -> bool:
        dispatched = False
        for _ in range(MESSAGES_PER_RECEIVE):
            try:
                frames = self._receive_frames()
            except zmq.Again:
                break
            try:
                arrival = self._streams.receive(frames)
            except ProtocolError as error:
                self._reject(error)
                continue
            match arrival:
                case BufferArrived(channel, buffer, credits):
                    _tell_credits(receiver, credits)
                    receiver.on_buffer(ChannelId(*channel), buffer)
                case CreditArrived(credits):
                    _tell_credits(receiver, credits)
                case StreamBroken(sender, reason):
                    self._reject(ProtocolError(f"the stream from worker {sender!r} is broken: {reason}"))
                    receiver.on_peer_lost(sender, reason)
                case None:
                    continue
            dispatched = True
        return dispatched

    def _receive_frames(self) -> list[Frame]:
        """Receive the frames of one message; if it has too many, keep only enough to show that."""
        frame = self._data.recv(_NOBLOCK, copy=False)
        frames: list[Frame] = [frame.bytes]
        while frame.more:
            frame = self._data.recv(_NOBLOCK, copy=False)
            if len(frames) <= FRAMES_MAX:
                frames.append(frame.buffer)
        return frames

    def _report_losses(self, receiver: Receiver) -> bool:
        now = time.monotonic()
        if now < self._loss_check_due:
            return False
        self._loss_check_due = now + LOSS_CHECK_INTERVAL_S
        lost = self._links.check()
        for peer, attempt, reason in lost:
            receiver.on_peer_lost(peer, reason, attempt)
        if self._master_lost is None:
            self._master_lost = self._master_monitor.broken()
        if self._master_lost is None or self._master_lost_told:
            return bool(lost)
        self._master_lost_told = True
        receiver.on_master_lost(self._master_lost)
        return True

    def _reject(self, error: ProtocolError) -> None:
        self.rejected_messages += 1
        if self.rejected_messages <= REJECTIONS_LOGGED_MAX:
            logger.warning("rejected a message (the first %d are logged): %s", REJECTIONS_LOGGED_MAX, error)


def _tell_credits(receiver: Receiver, credits: tuple[tuple[Channel, int], ...]) -> None:
    for channel, credit in credits:
        receiver.on_credit(ChannelId(*channel), credit)


def _plain(channel: ChannelId) -> Channel:
    return channel.edge, channel.producer, channel.consumer, channel.attempt
