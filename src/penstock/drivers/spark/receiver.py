"""Connects a worker's endpoint to its executor: passes on messages, and turns broken connections into failed tasks.

The executor does not know about connections. When one breaks, the tasks with channels to the peer have lost records or
will miss some. Such a task is cancelled here. Its failure is reported to the job master only after it has ended,
because the master may then start the next attempt, and two attempts never run at once.

Most connections break because the process at the other end has died. Spark reports that to the job master within a
moment, with a better reason, so a broken connection is tolerated for that moment. This is safe, because a channel with
a gap delivers nothing more. It delivers no barrier, so no checkpoint completes.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from penstock.core.ports import Clock, MasterGateway
from penstock.core.protocol import (
    CancelTask,
    ChannelId,
    DeployTask,
    ExecutionId,
    Failure,
    TaskStateChanged,
    ToMaster,
    ToWorker,
)
from penstock.core.records import Buffer
from penstock.drivers.spark.worker_settings import Executor

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
