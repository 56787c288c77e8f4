"""The inside of a worker: a loop that runs in a Spark task until the job master releases it.

Everything that touches the executor happens in this one loop: messages, buffers, credits, results of background work
and steps. The loop ends when the executor has shut down, or when the job is lost: the job master has been silent for
longer than the heartbeat timeout, or the parent process has exited. Spark itself ends the worker by killing the
process.
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
from contextlib import closing
from typing import Protocol
from urllib.parse import urlsplit

from penstock.codecs.script import as_main
from penstock.core.ports import Clock
from penstock.core.protocol import Failure, RegisterWorker
from penstock.drivers.answers import Answers
from penstock.drivers.clock import WAIT_MS_MAX, SystemClock
from penstock.drivers.event_loop import EventLoopThread
from penstock.drivers.log_files import ProcessLogs
from penstock.drivers.spark.background import ThreadBackground
from penstock.drivers.spark.garbage import rare_collections
from penstock.drivers.spark.handle import LOOPBACK, PYTHON_REMEDY
from penstock.drivers.spark.loop_watch import LoopWatch
from penstock.drivers.spark.receiver import FailingGateway, WorkerReceiver
from penstock.drivers.spark.worker_endpoint import WorkerEndpoint
from penstock.drivers.spark.worker_settings import (
    FAILED,
    ORPHANED,
    RELEASED,
    Executor,
    WorkerServices,
    WorkerSettings,
)
from penstock.drivers.worker_log import kept_logs
from penstock.wire.errors import RecordSerializationError

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
