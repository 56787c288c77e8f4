"""Broken connections between workers, the reaction of both ends, and descriptions of messages for the log.

**Broken connections.** Data in transit on a broken connection is lost, and so is everything that the attempts using it
send on it later. Both ends notice after a while and fail their tasks that have channels to the peer. Such a task is
cancelled, and reported to the job master as failed once it has ended. The next attempt gets a new connection.

**Descriptions** of messages and buffers take one line, without anything that differs between replays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from penstock.drivers.simulation.scheduler import Channel, Engine
from penstock.runtime import protocol, records
from penstock.runtime.graph import ExecutionState
from penstock.runtime.task.executor import TaskExecutor
from penstock.runtime.task.stream_task import StreamTask

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
        data: Mapping[tuple[str, str, str, protocol.ChannelId], Channel],
    ) -> None:
        self._engine = engine
        self._workers = workers
        self._data = data
        self._used: dict[tuple[str, str], int] = {}
        self._broken: dict[tuple[str, str], int] = {}

    def carries(self, sender: str, receiver: str, channel: protocol.ChannelId) -> bool:
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
        self._failures: dict[protocol.ExecutionId, protocol.Failure] = {}

    def fail_tasks(self, executor: TaskExecutor, peer: str, attempt: int) -> None:
        """Cancel the tasks with channels to a peer, for attempts up to the given one."""
        for task in executor.tasks:
            if task.execution.attempt <= attempt and peer in _collect_peers(task):
                self._failures.setdefault(
                    task.execution, protocol.Failure(f"planned: the connection to {peer} was lost")
                )
                executor.on_message(protocol.CancelTask(task.execution))

    def as_told(self, message: protocol.ToMaster) -> protocol.ToMaster:
        """Return the message to send to the job master: a failure instead of the cancellation of such a task."""
        if isinstance(message, protocol.TaskStateChanged) and message.state == ExecutionState.CANCELED.value:
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


def describe_message(message: Any) -> str:
    """Describe a message between the job master and a worker."""
    words = [type(message).__name__]
    execution = getattr(message, "execution", None)
    if execution is not None:
        words.append(str(execution))
    checkpoint_id = getattr(message, "checkpoint_id", None)
    if checkpoint_id is not None:
        words.append(f"checkpoint {checkpoint_id}")
    if isinstance(message, protocol.TaskStateChanged):
        words.append(message.state)
        if message.failure is not None:
            words.append(message.failure.reason)
    elif isinstance(message, protocol.AcknowledgeCheckpoint):
        words.append("finished" if message.finished else "")
    elif isinstance(message, protocol.DeclineCheckpoint):
        words.append(message.reason)
    elif isinstance(message, protocol.AssignSplits):
        words.append(f"{len(message.splits)} splits{', no more' if message.no_more else ''}")
    elif isinstance(message, protocol.RegisterWorker):
        words.append(message.worker_id)
    return " ".join(word for word in words if word)


def describe_buffer(buffer: list[Any]) -> str:
    """Describe a buffer: the number of records, and its control elements."""
    return "[" + " ".join(_element(e) for e in buffer) + "]"


def _element(element: Any) -> str:
    if isinstance(element, records.Batch):
        return f"{len(element)}r"
    if isinstance(element, records.Watermark):
        return "w=max" if element.timestamp == records.MAX_WATERMARK else f"w={element.timestamp}"
    if isinstance(element, records.CheckpointBarrier):
        return f"barrier-{element.checkpoint_id}"
    if isinstance(element, records.CancelCheckpointMarker):
        return f"cancel-{element.checkpoint_id}"
    if isinstance(element, records.WatermarkStatus):
        return "idle" if element.idle else "active"
    if isinstance(element, records.LatencyMarker):
        return f"marker-{element.marked_ms}"
    if isinstance(element, records.EndOfOutputChannelState):
        return "end-of-channel-state"
    if isinstance(element, records.EndOfData):
        return "end-of-data"
    return "end-of-partition"
