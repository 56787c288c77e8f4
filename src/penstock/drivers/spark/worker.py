"""The inside of a worker: a loop that runs in a Spark task until the job master releases it.

Everything that touches the executor happens in this one loop: messages, buffers, credits, results of background work
and steps. The loop ends when the executor has shut down, or when the job is lost: the job master has been silent for
longer than the heartbeat timeout, or the parent process has exited. Spark itself ends the worker by killing the
process.

Connects a worker's endpoint to its executor: passes on messages, and turns broken connections into failed tasks.

The executor does not know about connections. When one breaks, the tasks with channels to the peer have lost records or
will miss some. Such a task is cancelled here. Its failure is reported to the job master only after it has ended,
because the master may then start the next attempt, and two attempts never run at once.

Most connections break because the process at the other end has died. Spark reports that to the job master within a
moment, with a better reason, so a broken connection is tolerated for that moment. This is safe, because a channel with
a gap delivers nothing more. It delivers no barrier, so no checkpoint completes.
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import socket
import sys
import threading
import traceback
from collections import deque
from contextlib import closing
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec

from penstock.codecs.cloud import as_main
from penstock.drivers.event_loop import WAIT_MS_MAX, EventLoopThread, SystemClock, ThreadBackground
from penstock.drivers.inspection import Answers
from penstock.drivers.logs import ProcessLogs, kept_logs
from penstock.drivers.process_resources import rare_collections
from penstock.drivers.spark.handle import LOOPBACK, PYTHON_REMEDY
from penstock.drivers.spark.heartbeats import LoopWatch
from penstock.drivers.spark.worker_endpoint import WorkerEndpoint
from penstock.drivers.spark.worker_settings import FAILED, ORPHANED, RELEASED, Executor, WorkerServices, WorkerSettings
from penstock.runtime.ports import Clock, MasterGateway
from penstock.runtime.protocol import (
    CancelTask,
    ChannelId,
    DeployTask,
    ExecutionId,
    Failure,
    RegisterWorker,
    TaskStateChanged,
    ToMaster,
    ToWorker,
)
from penstock.runtime.records import Buffer
from penstock.wire.messages import RecordSerializationError

#: How long a broken connection is tolerated, so that the loss of its worker can be reported first.
PATIENCE_MS: Final = 1_000


class FailingGateway:
    """The executor's gateway to the job master. It reports a task that was cancelled for a failure as failed."""

    def __init__(self, master: MasterGateway) -> None:
        self._master = master
        self._failures: dict[ExecutionId, Failure] = {}

    def send(self, message: ToMaster) -> None:
        if isinstance(message, TaskStateChanged) and message.execution in self._failures:
            failure = self._failures[message.execution]
            if message.state == "CANCELED":
                message = msgspec.structs.replace(message, state="FAILED", failure=failure)
        self._master.send(message)

    def fail(self, execution: ExecutionId, failure: Failure) -> None:
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
        self._peers: dict[ExecutionId, frozenset[str]] = {}
        self.master_lost: str | None = None

    def on_message(self, message: ToWorker) -> None:
        if isinstance(message, DeployTask):
            self._forget_ended()
            self._peers[message.execution] = _collect_peers(message)
        self._executor.on_message(message)

    def on_buffer(self, channel: ChannelId, buffer: Buffer) -> None:
        self._executor.on_buffer(channel, buffer)

    def on_credit(self, channel: ChannelId, credit: int) -> None:
        self._executor.on_credit(channel, credit)

    def on_peer_lost(self, worker_id: str, reason: str, attempt: int | None = None) -> None:
        self._lost_peers.append((self._clock.steady_ms() + PATIENCE_MS, worker_id, reason, attempt))

    def on_time(self) -> None:
        """Fail the tasks whose peers have been lost for long enough. Must be called regularly."""
        while self._lost_peers and self._lost_peers[0][0] <= self._clock.steady_ms():
            _, worker_id, reason, attempt = self._lost_peers.popleft()
            failure = Failure(f"the connection to {worker_id} was lost: {reason}")
            affected = (e for e, peers in self._peers.items() if worker_id in peers)
            self._fail(failure, [e for e in affected if attempt is None or e.attempt == attempt])

    def on_master_lost(self, reason: str) -> None:
        self.master_lost = reason

    def on_unreadable_records(self, failure: Failure) -> None:
        """Fail all tasks because of records that cannot be unpickled here; the task that they were for is unknown."""
        self._fail(failure, list(self._peers))

    def _fail(self, failure: Failure, executions: list[ExecutionId]) -> None:
        self._forget_ended()
        for execution in executions:
            if execution in self._peers:
                self._gateway.fail(execution, failure)
                self._executor.on_message(CancelTask(execution))

    def _forget_ended(self) -> None:
        hosted = {task.execution for task in self._executor.tasks}
        self._peers = {execution: peers for execution, peers in self._peers.items() if execution in hosted}


def _collect_peers(deployment: DeployTask) -> frozenset[str]:
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
            endpoint.send(RegisterWorker(settings.worker_id, endpoint.data_address, host, os.getpid()))
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
        except RecordSerializationError as error:
            self._receiver.on_unreadable_records(
                Failure(str(error), user_code=True, suppresses_restart=error.suppresses_restart)
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
