"""Tasks that work in lockstep on Spark: a barrier stage, whose tasks exchange messages over sockets, round after round.

Spark runs all tasks of a barrier stage at the same time, or none. They meet once, at the driver (`lockstep_meeting`). A
task's message to itself stays in memory.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from penstock.core.batch.rows import Rows
from penstock.core.batch.task import BatchTask
from penstock.core.operators.lockstep import Answer, Round
from penstock.drivers.spark.handle import LOOPBACK
from penstock.drivers.spark.keys import WorkerKeys
from penstock.drivers.spark.lockstep_meeting import Here
from penstock.drivers.spark.lockstep_peers import LockstepPeers


@dataclass(frozen=True)
class Meeting:
    """The data that tasks need to meet. `address`: of the driver; `is_local`: whether all tasks are on its machine."""

    address: str
    keys: WorkerKeys
    is_local: bool


def kept_in_step(
    task: BatchTask, output: Iterator[Rows], vertex: int, subtask: int, meeting: Meeting
) -> Iterator[Rows]:
    """Pass on the task's output, and exchange its rounds with the other tasks."""
    exchange: _Exchange | None = None
    try:
        for produced in output:
            if task.round is not None:
                exchange = exchange or _Exchange(vertex, subtask, meeting, len(task.round.payloads))
                task.answer(exchange.run(task.round))
            yield produced
    finally:
        if exchange is not None:
            exchange.close()


class _Exchange:
    def __init__(self, vertex: int, subtask: int, meeting: Meeting, parallelism: int) -> None:
        from pyspark import BarrierTaskContext

        self._subtask = subtask
        self._others = [other for other in range(parallelism) if other != subtask]
        self._number = 0
        #: the messages received, by round and subtask
        self._come: dict[tuple[int, int], tuple[Any, Any]] = {}
        context = BarrierTaskContext.get()
        host = LOOPBACK
        if not meeting.is_local:
            # Spark's own processes reach each other at these addresses: an executor's host with its port.
            host = context.getTaskInfos()[context.partitionId()].address.rpartition(":")[0].strip("[]")
            with suppress(OSError):
                host = socket.gethostbyname(host)
        self._peers = LockstepPeers(subtask, meeting.keys, meeting.address, host)
        if self._others:
            try:
                here = Here(vertex, parallelism, subtask, context.taskAttemptId(), self._peers.address)
                self._peers.meet(here)
            except BaseException:
                self._peers.close()
                raise

    def run(self, round_: Round) -> Answer:
        """Exchange the messages of one round."""
        self._number += 1
        payloads, reports = list(round_.payloads), [round_.report] * len(round_.payloads)
        for other in self._others:
            self._peers.send(other, self._number, (round_.payloads[other], round_.report))
        for other in self._others:
            payloads[other], reports[other] = self._receive_round(other)
        if round_.progress and self._subtask == 0:
            self._peers.tell(round_.progress)
        return Answer(payloads, reports)

    def _receive_round(self, other: int) -> tuple[Any, Any]:
        """Return another subtask's message for this round; that subtask may be a round ahead."""
        key = self._number, other
        while key not in self._come:
            sender, number, value = self._peers.receive(other)
            self._come[number, sender] = value
        return self._come.pop(key)

    def close(self) -> None:
        self._peers.close()
