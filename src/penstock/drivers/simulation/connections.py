"""Broken connections between workers, and the reaction of both ends.

Data in transit on a broken connection is lost, and so is everything that the attempts using it send on it later. Both
ends notice after a while and fail their tasks that have channels to the peer. Such a task is cancelled, and reported to
the job master as failed once it has ended. The next attempt gets a new connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from penstock.core.graph.states import ExecutionState
from penstock.core.protocol import CancelTask, ChannelId, ExecutionId, Failure, TaskStateChanged, ToMaster
from penstock.core.task.executor import TaskExecutor
from penstock.core.task.stream_task import StreamTask
from penstock.drivers.simulation.engine import Engine
from penstock.drivers.simulation.ready import Channel

#: The longest time an end takes to notice that a connection has broken.
NOTICE_MS_MAX = 300


class Peer(Protocol):
    """A worker as seen by its connections."""

    def on_peer_lost(self, peer: str, attempt: int) -> None: ...


class Connections:
    """The attempts that have used the connection of two workers, and up to which attempt it is broken.

    Args:
        engine: the history's engine.
        workers: the current workers, by id.
        data: the channels of records and credit between them; the key's second and third items are the sender and the
            receiver.
    """

    def __init__(
        self,
        engine: Engine,
        workers: Mapping[str, Peer],
        data: Mapping[tuple[str, str, str, ChannelId], Channel],
    ) -> None:
        self._engine = engine
        self._workers = workers
        self._data = data
        self._used: dict[tuple[str, str], int] = {}
        self._broken: dict[tuple[str, str], int] = {}

    def carries(self, sender: str, receiver: str, channel: ChannelId) -> bool:
        """Return whether data sent now can arrive."""
        pair = _pair(sender, receiver)
        if channel.attempt > self._used.get(pair, -1):
            self._used[pair] = channel.attempt
        return channel.attempt > self._broken.get(pair, -1)

    def drop(self) -> bool:
        """Break one of the connections in use, if any; return whether one broke."""
        engine, workers = self._engine, self._workers
        in_use = [
            (pair, attempt)
            for pair, attempt in self._used.items()
            if attempt > self._broken.get(pair, -1) and all(w in workers for w in pair)
        ]
        if not in_use:
            return False
        pair, attempt = in_use[int(engine.chance.random() * len(in_use))]
        self._broken[pair] = attempt
        engine.log.write(f"the connection of {pair[0]} and {pair[1]} breaks")
        for channel in self._data.values():
            if _pair(channel.sender, channel.receiver) == pair:
                channel.cut(engine.between(0, len(channel.items)))
        for worker_id, other in (pair, pair[::-1]):
            worker = workers[worker_id]
            engine.call_later(
                engine.between(0, NOTICE_MS_MAX),
                lambda worker=worker, peer=other: worker.on_peer_lost(peer, attempt),  # type: ignore[misc]
            )
        return True


class PeerFailures:
    """A worker's tasks that were cancelled for the loss of a peer and are to be reported as failed."""

    def __init__(self) -> None:
        self._failures: dict[ExecutionId, Failure] = {}

    def fail_tasks(self, executor: TaskExecutor, peer: str, attempt: int) -> None:
        """Cancel the tasks with channels to a peer, for attempts up to the given one."""
        for task in executor.tasks:
            if task.execution.attempt <= attempt and peer in _collect_peers(task):
                self._failures.setdefault(task.execution, Failure(f"planned: the connection to {peer} was lost"))
                executor.on_message(CancelTask(task.execution))

    def as_told(self, message: ToMaster) -> ToMaster:
        """Return the message to send to the job master: a failure instead of the cancellation of such a task."""
        if isinstance(message, TaskStateChanged) and message.state == ExecutionState.CANCELED.value:
            failure = self._failures.get(message.execution)
            if failure is not None:
                return msgspec.structs.replace(message, state=ExecutionState.FAILED.value, failure=failure)
        return message


def _pair(worker_id: str, other: str) -> tuple[str, str]:
    return (worker_id, other) if worker_id < other else (other, worker_id)


def _collect_peers(task: StreamTask) -> set[str]:
    deployment = task.deployment
    peers = {worker for edge in deployment.inputs for _, worker in edge.producers}
    return peers | {worker for edge in deployment.outputs for _, worker in edge.consumers}
