"""The inside of a worker: its links to the outside, their connection to its executor, and the loop in a Spark task.

`WorkerEndpoint` has a worker's two links to the outside: control messages to the job master, and buffers and credits to
other workers. Every socket requires its peer to hold the job's keys, so everything that `receive` reads comes from the
job itself. Only for that reason may it unpickle records. Data sent on a connection that broke may be lost. Such a loss
is never ignored: either end reports it by `on_peer_lost` or `on_master_lost`, and a stream with a gap delivers nothing
more.

`WorkerReceiver` connects the endpoint to the executor: it passes on messages, and turns broken connections into failed
tasks. The executor does not know about connections. When one breaks, the tasks with channels to the peer have lost
records or will miss some. Such a task is cancelled here. Its failure is reported to the job master only after it has
ended, because the master may then start the next attempt, and two attempts never run at once.

Most connections break because the process at the other end has died. Spark reports that to the job master within a
moment, with a better reason, so a broken connection is tolerated for that moment. This is safe, because a channel with
a gap delivers nothing more. It delivers no barrier, so no checkpoint completes.

`WorkerLoop` runs in a Spark task until the job master releases the worker. Everything that touches the executor happens
in this one loop: messages, buffers, credits, results of background work and steps. The loop ends when the executor has
shut down, or when the job is lost: the job master has been silent for longer than the heartbeat timeout, or the parent
process has exited. Spark itself ends the worker by killing the process.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import pickle
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec
import zmq

from penstock.base.errors import ProtocolError
from penstock.codecs.cloud import as_main
from penstock.drivers.event_loop import WAIT_MS_MAX, EventLoopThread, SystemClock, ThreadBackground, rare_collections
from penstock.drivers.inspection import Answers
from penstock.drivers.logs import ProcessLogs, kept_logs
from penstock.drivers.spark import sockets
from penstock.drivers.spark.handle import LOOPBACK, PYTHON_REMEDY
from penstock.drivers.spark.heartbeats import AnswerQuestion, HeartbeatSender, LoopState, LoopWatch, answer_nothing
from penstock.drivers.spark.python_workers import FAILED, ORPHANED, RELEASED, Executor, WorkerServices, WorkerSettings
from penstock.runtime import protocol
from penstock.runtime.columns import make_batch
from penstock.runtime.ports import Clock, MasterGateway
from penstock.runtime.records import Batch, Buffer, Element, Event
from penstock.wire import buffers
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

    def on_message(self, message: protocol.ToWorker) -> None:
        """Handle a message from the job master."""
        ...

    def on_buffer(self, channel: protocol.ChannelId, buffer: Buffer) -> None:
        """Handle a buffer for a task of this worker."""
        ...

    def on_credit(self, channel: protocol.ChannelId, credit: int) -> None:
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
        keys: sockets.WorkerKeys,
        master_address: str,
        bind_host: str,
        advertise_host: str,
        max_frame_bytes: int,
        record_bytes_max: int = buffers.RECORD_BYTES_MAX,
    ) -> None:
        self._to_master: buffers.MessageCodec[protocol.ToMaster] = buffers.MessageCodec(
            protocol.ToMaster, max_frame_bytes, record_bytes_max
        )
        from_master: buffers.MessageCodec[protocol.ToWorker] = buffers.MessageCodec(
            protocol.ToWorker, max_frame_bytes, record_bytes_max
        )
        self._from_master = buffers.MessageReceiver(from_master)
        self._buffers: buffers.BufferCodec[Element] = buffers.BufferCodec(
            Event, Batch, make_batch, max_frame_bytes, record_bytes_max
        )
        self._streams = StreamReceiver(worker_id, self._buffers)
        self._context = zmq.Context()
        self._authenticator = sockets.KeyAuthenticator(self._context, keys.worker_public)
        self._local_port: sockets.LocalPort | None = None
        try:
            self._data = self._context.socket(zmq.PULL)
            self._refusals = sockets.RefusalMonitor(self._context, self._data)
            tcp = sockets.bind_server(
                self._data, keys.worker_public, keys.worker_secret, bind_host, advertise_host, max_frame_bytes
            )
            host = sockets.host_identity()
            self._links = sockets.DataLinks(self._context, keys, max_frame_bytes, worker_id, host)

            self._master = self._context.socket(zmq.DEALER)
            self._master.setsockopt(zmq.ROUTING_ID, sockets.identity(sockets.CONTROL_ROLE, worker_id))
            self._master_monitor = sockets.LinkMonitor(self._context, self._master, sockets.CONNECT_TIMEOUT_S)
            sockets.connect_client(self._master, keys, keys.master_public, master_address, max_frame_bytes)
            self._heartbeats = HeartbeatSender(self._context, keys, worker_id, master_address, max_frame_bytes)
            self._waker = sockets.Waker()

            path = None
            if host is not None:
                self._local_port = sockets.LocalPort(self._data)
                path = self._local_port.path
            self.data_address = sockets.data_address(tcp, host, path)
        except BaseException:
            self._authenticator.close()
            self._context.destroy(linger=0)
            self._remove_local_port()
            raise
        #: Links with credit that may not have left with a buffer.
        self._owing: dict[sockets.DataLink, None] = {}
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

    def send_buffer(self, worker_id: str, channel: protocol.ChannelId, buffer: Buffer) -> None:
        parts = self._buffers.encode(buffer)
        link = self._links.to(worker_id, channel.attempt)
        if link is not None:
            for part in parts:
                if part.is_large:
                    for frames in link.stream.messages(_plain(channel), part, self._buffers.chunk_bytes):
                        link.send(frames)
                else:
                    link.send(link.stream.buffer(_plain(channel), part))

    def send_credit(self, worker_id: str, channel: protocol.ChannelId, credit: int) -> None:
        """Send credit with the next buffer to that worker, or when `receive` is called, whichever comes first."""
        link = self._links.to(worker_id, channel.attempt)
        if link is not None:
            link.stream.grant(_plain(channel), credit)
            self._owing[link] = None

    def send(self, message: protocol.ToMaster) -> None:
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
            self._master.close(linger=sockets.LAST_WORDS_LINGER_MS if self._master_lost is None else 0)
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

    def _decode_from_master(self, frames: list[bytes]) -> protocol.ToWorker | None:
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
                    receiver.on_buffer(protocol.ChannelId(*channel), buffer)
                case CreditArrived(credits):
                    _tell_credits(receiver, credits)
                case StreamBroken(sender, reason):
                    self._reject(ProtocolError(f"the stream from worker {sender!r} is broken: {reason}"))
                    receiver.on_peer_lost(sender, reason)
                case None:
                    continue
            dispatched = True
        return dispatched

    def _receive_frames(self) -> list[buffers.Frame]:
        """Receive the frames of one message; if it has too many, keep only enough to show that."""
        frame = self._data.recv(_NOBLOCK, copy=False)
        frames: list[buffers.Frame] = [frame.bytes]
        while frame.more:
            frame = self._data.recv(_NOBLOCK, copy=False)
            if len(frames) <= buffers.FRAMES_MAX:
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
        receiver.on_credit(protocol.ChannelId(*channel), credit)


def _plain(channel: protocol.ChannelId) -> Channel:
    return channel.edge, channel.producer, channel.consumer, channel.attempt


#: How long a broken connection is tolerated, so that the loss of its worker can be reported first.
PATIENCE_MS: Final = 1_000


class FailingGateway:
    """The executor's gateway to the job master. It reports a task that was cancelled for a failure as failed."""

    def __init__(self, master: MasterGateway) -> None:
        self._master = master
        self._failures: dict[protocol.ExecutionId, protocol.Failure] = {}

    def send(self, message: protocol.ToMaster) -> None:
        if isinstance(message, protocol.TaskStateChanged) and message.execution in self._failures:
            failure = self._failures[message.execution]
            if message.state == "CANCELED":
                message = msgspec.structs.replace(message, state="FAILED", failure=failure)
        self._master.send(message)

    def fail(self, execution: protocol.ExecutionId, failure: protocol.Failure) -> None:
        """Record the failure that the task is being cancelled for; only the first failure counts."""
        self._failures.setdefault(execution, failure)


class WorkerReceiver:
    """Implements the endpoint's `Receiver`.

    Attributes:
        master_lost: why the connection to the job master is unusable; None while it is usable.
    """

    def __init__(self, executor: Executor, gateway: FailingGateway, clock: Clock) -> None:
        self._clock = clock
        #: when to fail the tasks, the peer, the reason, and the attempt; None for all attempts
        self._lost_peers: deque[tuple[int, str, str, int | None]] = deque()
        self._executor = executor
        self._gateway = gateway
        self._peers: dict[protocol.ExecutionId, frozenset[str]] = {}
        self.master_lost: str | None = None

    def on_message(self, message: protocol.ToWorker) -> None:
        if isinstance(message, protocol.DeployTask):
            self._forget_ended()
            self._peers[message.execution] = _collect_peers(message)
        self._executor.on_message(message)

    def on_buffer(self, channel: protocol.ChannelId, buffer: Buffer) -> None:
        self._executor.on_buffer(channel, buffer)

    def on_credit(self, channel: protocol.ChannelId, credit: int) -> None:
        self._executor.on_credit(channel, credit)

    def on_peer_lost(self, worker_id: str, reason: str, attempt: int | None = None) -> None:
        self._lost_peers.append((self._clock.steady_ms() + PATIENCE_MS, worker_id, reason, attempt))

    def on_time(self) -> None:
        """Fail the tasks whose peers have been lost for long enough. Must be called regularly."""
        while self._lost_peers and self._lost_peers[0][0] <= self._clock.steady_ms():
            _, worker_id, reason, attempt = self._lost_peers.popleft()
            failure = protocol.Failure(f"the connection to {worker_id} was lost: {reason}")
            affected = (e for e, peers in self._peers.items() if worker_id in peers)
            self._fail(failure, [e for e in affected if attempt is None or e.attempt == attempt])

    def on_master_lost(self, reason: str) -> None:
        self.master_lost = reason

    def on_unreadable_records(self, failure: protocol.Failure) -> None:
        """Fail all tasks because of records that cannot be unpickled here; the task that they were for is unknown."""
        self._fail(failure, list(self._peers))

    def _fail(self, failure: protocol.Failure, executions: list[protocol.ExecutionId]) -> None:
        self._forget_ended()
        for execution in executions:
            if execution in self._peers:
                self._gateway.fail(execution, failure)
                self._executor.on_message(protocol.CancelTask(execution))

    def _forget_ended(self) -> None:
        hosted = {task.execution for task in self._executor.tasks}
        self._peers = {execution: peers for execution, peers in self._peers.items() if execution in hosted}


def _collect_peers(deployment: protocol.DeployTask) -> frozenset[str]:
    producers = (worker for edge in deployment.inputs for _, worker in edge.producers)
    consumers = (worker for edge in deployment.outputs for _, worker in edge.consumers)
    return frozenset(producers) | frozenset(consumers)


_log = logging.getLogger("penstock.spark")

BACKGROUND_THREADS = 2
CHECK_INTERVAL_MS = 250


def run_worker(payload: bytes) -> tuple[str, str]:
    """Run a worker until it ends. Return how it ended and a short reason.

    Args:
        payload: pickled `WorkerSettings`, which came with Spark's own task.
    """
    try:
        settings: WorkerSettings = pickle.loads(payload)
    except Exception as error:  # noqa: BLE001 - made by this program's cloudpickle, and read by the worker's
        own = f"{sys.executable} ({sys.version.split()[0]})"
        return FAILED, f"{own} cannot load its settings: {type(error).__name__}: {error}; {PYTHON_REMEDY}"
    try:
        with kept_logs(settings.logs, settings.worker_id) as logs, as_main(settings.script), rare_collections():
            return _run(settings, logs)
    except Exception as error:  # noqa: BLE001 - becomes the reason for which the worker is lost
        _log.debug("worker %s failed", settings.worker_id, exc_info=True)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return FAILED, f"{type(error).__name__}: {error} ({os.path.basename(frame.filename)}:{frame.lineno})"


def _run(settings: WorkerSettings, logs: ProcessLogs | None = None) -> tuple[str, str]:
    clock = SystemClock()
    host = LOOPBACK if settings.is_local else host_towards(settings.master_address)
    with (
        closing(
            WorkerEndpoint(
                settings.worker_id,
                settings.keys,
                settings.master_address,
                host,
                host,
                settings.frame_bytes_max,
                settings.record_bytes_max,
            )
        ) as endpoint,
        closing(ThreadBackground("penstock-background", BACKGROUND_THREADS, endpoint.wake)) as background,
        closing(EventLoopThread("penstock-async", endpoint.wake)) as coroutines,
    ):
        gateway = FailingGateway(endpoint)
        services = WorkerServices(settings.worker_id, clock, endpoint, gateway, background, coroutines)
        executor = settings.make_executor(services)
        try:
            endpoint.send(protocol.RegisterWorker(settings.worker_id, endpoint.data_address, host, os.getpid()))
            _spare_garbage_collection()
            watch = LoopWatch(clock)
            answers = Answers(threading.current_thread(), logs)
            timeout_ms = settings.heartbeat_timeout_ms
            # The stacks must reach the master before it considers the worker lost.
            endpoint.start_heartbeats(settings.heartbeat_interval_ms, watch.state, answers.begin, timeout_ms // 2)
            receiver = WorkerReceiver(executor, gateway, clock)
            return WorkerLoop(endpoint, executor, receiver, background, coroutines, clock, timeout_ms, watch).run()
        finally:
            executor.close()
            gc.unfreeze()


def _spare_garbage_collection() -> None:
    """Exclude the loaded modules from future garbage collections: scanning all of them takes tens of ms.

    This runs while the registration is on its way to the master, so it delays nothing. Spark may have run other tasks
    in this process before; their garbage is collected first.
    """
    gc.collect()
    gc.freeze()


def host_towards(address: str) -> str:
    """Return this machine's address on the route to `address`; nothing is sent."""
    parts = urlsplit(address)
    family, kind, _, _, target = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


class Endpoint(Protocol):
    """The worker's endpoint, as its loop sees it."""

    @property
    def master_silence_ms(self) -> int: ...

    def receive(self, timeout_ms: int, receiver: WorkerReceiver) -> bool: ...


class WorkerLoop:
    """The main loop of one worker."""

    def __init__(
        self,
        endpoint: Endpoint,
        executor: Executor,
        receiver: WorkerReceiver,
        background: ThreadBackground,
        coroutines: EventLoopThread,
        clock: Clock,
        heartbeat_timeout_ms: int,
        watch: LoopWatch,
    ) -> None:
        self._endpoint = endpoint
        self._executor = executor
        self._receiver = receiver
        self._background = background
        self._coroutines = coroutines
        self._clock = clock
        self._heartbeat_timeout_ms = heartbeat_timeout_ms
        self._watch = watch
        self._parent = os.getppid()
        self._check_ms = 0

    def run(self) -> tuple[str, str]:
        """Run the loop. Return how the worker ended and why."""
        executor, background, coroutines = self._executor, self._background, self._coroutines
        wait_ms = 0
        while True:
            if wait_ms > 0:
                begun_ms = self._clock.steady_ms()
                self._receive(wait_ms)
                self._watch.waited(self._clock.steady_ms() - begun_ms)
            else:
                self._receive(0)
            delivered = background.deliver()
            delivered = coroutines.deliver() or delivered
            if executor.shut_down:
                return RELEASED, ""
            worked = executor.step()
            if reason := self._receiver.master_lost:
                return ORPHANED, reason
            steady_ms = self._clock.steady_ms()
            self._watch.turned(steady_ms)
            if steady_ms >= self._check_ms:
                self._check_ms = steady_ms + CHECK_INTERVAL_MS
                self._receiver.on_time()
                if reason := self._orphaned():
                    return ORPHANED, reason
            wait_ms = 0 if worked or delivered else self._wait_ms()

    def _receive(self, wait_ms: int) -> None:
        try:
            self._endpoint.receive(wait_ms, self._receiver)
        except buffers.RecordSerializationError as error:
            self._receiver.on_unreadable_records(
                protocol.Failure(str(error), user_code=True, suppresses_restart=error.suppresses_restart)
            )

    def _wait_ms(self) -> int:
        deadline = self._executor.next_deadline()
        if deadline is None:
            return WAIT_MS_MAX
        return max(0, min(WAIT_MS_MAX, deadline - self._clock.now_ms()))

    def _orphaned(self) -> str | None:
        if os.getppid() != self._parent:
            return "the process that started the worker is gone"
        silent_ms = self._endpoint.master_silence_ms
        if silent_ms > self._heartbeat_timeout_ms:
            return f"no message from the job master for {silent_ms} ms"
        return None
