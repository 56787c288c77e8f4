"""Connections between workers that break, and what the two ends make of it.

What was under way on a broken connection is lost, and so is whatever is sent on it later by the attempts that used it.
Both ends notice after a while, and fail their tasks that have channels to the peer: such a task is cancelled, and when
it has ended, the job master hears that it failed. The next attempt has a new connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.core.protocol import CancelTask, ChannelId, ExecutionId, Failure, TaskStateChanged, ToMaster
from penstock.core.task.stream_task import StreamTask

if TYPE_CHECKING:
    from penstock.drivers.simulation.cluster import SimulatedCluster
    from penstock.drivers.simulation.worker import Worker

#: How long an end takes, at most, to notice that a connection has broken.
NOTICE_MS_MAX = 300


class Connections:
    """Which attempts have used the connection of two workers, and up to which of them it is broken."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._used: dict[tuple[str, str], int] = {}
        self._broken: dict[tuple[str, str], int] = {}

    def carries(self, sender: str, receiver: str, channel: ChannelId) -> bool:
        """Whether something sent now goes anywhere."""
        pair = _pair(sender, receiver)
        if channel.attempt > self._used.get(pair, -1):
            self._used[pair] = channel.attempt
        return channel.attempt > self._broken.get(pair, -1)

    def drop(self) -> bool:
        """Break one of the connections in use, when there is any."""
        cluster, engine = self._cluster, self._cluster.engine
        in_use = [
            (pair, attempt)
            for pair, attempt in self._used.items()
            if attempt > self._broken.get(pair, -1) and all(w in cluster.workers for w in pair)
        ]
        if not in_use:
            return False
        pair, attempt = in_use[int(engine.chance.random() * len(in_use))]
        self._broken[pair] = attempt
        engine.log.write(f"the connection of {pair[0]} and {pair[1]} breaks")
        for channel in cluster.data.values():
            if _pair(channel.sender, channel.receiver) == pair:
                channel.cut(engine.between(0, len(channel.items)))
        for one, other in (pair, pair[::-1]):
            worker = cluster.workers[one]
            engine.call_later(
                engine.between(0, NOTICE_MS_MAX),
                lambda worker=worker, peer=other: worker.on_peer_lost(peer, attempt),  # type: ignore[misc]
            )
        return True


class PeerFailures:
    """A worker's tasks that were cancelled for the loss of a peer: they are reported as failed."""

    def __init__(self) -> None:
        self._failures: dict[ExecutionId, Failure] = {}

    def fail_tasks(self, worker: Worker, peer: str, attempt: int) -> None:
        """Cancel the tasks, of attempts up to this one, with channels to a peer."""
        for task in worker.executor.tasks:
            if task.execution.attempt <= attempt and peer in _peers_of(task):
                self._failures.setdefault(task.execution, Failure(f"planned: the connection to {peer} was lost"))
                worker.executor.on_message(CancelTask(task.execution))

    def as_told(self, message: ToMaster) -> ToMaster:
        """What the job master is told instead of a message."""
        if isinstance(message, TaskStateChanged) and message.state == "CANCELED":
            failure = self._failures.get(message.execution)
            if failure is not None:
                return msgspec.structs.replace(message, state="FAILED", failure=failure)
        return message


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)


def _peers_of(task: StreamTask) -> set[str]:
    deployment = task.deployment
    peers = {worker for edge in deployment.inputs for _, worker in edge.producers}
    return peers | {worker for edge in deployment.outputs for _, worker in edge.consumers}
