"""Tasks that work in step on Spark: a barrier stage, whose tasks exchange messages over sockets, round after round.

Spark runs all tasks of a barrier stage at a time, or none. They tell each other their addresses by
`BarrierTaskContext.allGather`, once: each call of it takes a second or more, since Spark looks for the end of one no
more often. What a task sends to itself stays in its memory. A line of progress is a file, in a directory that the
driver reaches.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.connectors.file.filesystem import create, join, rename
from penstock.core.batch.rows import Rows
from penstock.core.batch.task import BatchTask
from penstock.core.operators.lockstep import Answer, Round
from penstock.drivers.spark.handle import LOOPBACK
from penstock.drivers.spark.keys import WorkerKeys
from penstock.drivers.spark.lockstep_peers import LockstepPeers


@dataclass(frozen=True)
class Meeting:
    """What the tasks need to meet. `is_local`: whether all are on the driver's machine."""

    directory: str
    keys: WorkerKeys
    is_local: bool


def kept_in_step(task: BatchTask, output: Iterator[Rows], subtask: int, meeting: Meeting) -> Iterator[Rows]:
    """The task's output; exchanges what it wants exchanged."""
    exchange: _Exchange | None = None
    try:
        for produced in output:
            if task.round is not None:
                exchange = exchange or _Exchange(subtask, meeting, len(task.round.payloads))
                task.answer(exchange.run(task.round))
            yield produced
    finally:
        if exchange is not None:
            exchange.close()


class _Exchange:
    def __init__(self, subtask: int, meeting: Meeting, parallelism: int) -> None:
        self._subtask = subtask
        self._directory = meeting.directory
        self._others = [other for other in range(parallelism) if other != subtask]
        self._number = 0
        self._progress = 0
        #: by round and subtask, what has come
        self._come: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._peers: LockstepPeers | None = None
        if self._others:
            self._peers = _met(subtask, meeting, parallelism)

    def run(self, round_: Round) -> Answer:
        """One round."""
        self._number += 1
        payloads, reports = list(round_.payloads), [round_.report] * len(round_.payloads)
        if self._peers is not None:
            for other in self._others:
                self._peers.send(other, self._number, (round_.payloads[other], round_.report))
            for other in self._others:
                payloads[other], reports[other] = self._from(self._peers, other)
        if round_.progress and self._subtask == 0:
            self._tell(round_.progress)
        return Answer(payloads, reports)

    def _from(self, peers: LockstepPeers, other: int) -> tuple[Any, Any]:
        """What another one brings to this round; it may be a round ahead."""
        wanted = self._number, other
        while wanted not in self._come:
            sender, number, value = peers.receive()
            self._come[number, sender] = value
        return self._come.pop(wanted)

    def _tell(self, line: str) -> None:
        self._progress += 1
        name = join(self._directory, f"progress-{self._progress}")
        with create(f"{name}.part") as file:
            file.write(line.encode())
        rename(f"{name}.part", name)

    def close(self) -> None:
        if self._peers is not None:
            self._peers.close()


def _met(subtask: int, meeting: Meeting, parallelism: int) -> LockstepPeers:
    """Connected to all others."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    host = LOOPBACK
    if not meeting.is_local:
        # As Spark's own processes reach each other; of these addresses each is of one executor, with its port.
        host = context.getTaskInfos()[context.partitionId()].address.rpartition(":")[0].strip("[]")
        with suppress(OSError):
            host = socket.gethostbyname(host)
    peers = LockstepPeers(subtask, meeting.keys, host)
    try:
        told = context.allGather(msgspec.json.encode((subtask, peers.address)).decode())
        addresses = dict(msgspec.json.decode(one, type=tuple[int, str]) for one in told)
        assert set(addresses) == set(range(parallelism)), addresses
        del addresses[subtask]
        peers.connect(addresses)
    except BaseException:
        peers.close()
        raise
    return peers
