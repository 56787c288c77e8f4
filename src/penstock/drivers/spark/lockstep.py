"""Tasks that work in lockstep on Spark: a barrier stage, whose tasks exchange messages over sockets, round after round.

Spark runs all tasks of a barrier stage at the same time, or none. They meet once, at the driver.

`MeetingPoint` is the driver's side: tasks report their addresses and their progress to it. Spark has
`BarrierTaskContext.allGather` for this, but that takes a second or more, because it polls no more often. Here each task
reports its address, and when all tasks of a stage have, each gets all addresses. A stage that Spark reruns has new
tasks with consecutive numbers, since Spark starts the tasks of a barrier stage together. So tasks never get the address
of a dead one.

`LockstepPeers` are the sockets of a task: one to receive from all other tasks, and one to send to each of them. Only
the job's tasks hold its keys, and only holders of the keys can send messages, see `sockets`. So a task may unpickle the
messages. A message is the pickled value and the contents of its arrays as they lie in memory, in pieces. A task's
message to itself stays in memory.
"""

from __future__ import annotations

import logging
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec
import zmq

from penstock.base.errors import PenstockError, SlotsUnavailableError
from penstock.codecs.pickling import dumps_in_parts
from penstock.drivers.spark import sockets
from penstock.drivers.spark.handle import LOOPBACK, SparkHandle
from penstock.runtime.batch.exchange import Rows, keeps_step
from penstock.runtime.batch.task import BatchTask
from penstock.runtime.graph import JobGraph
from penstock.runtime.operators.base import Answer, Round

_log = logging.getLogger("penstock.spark")

#: The limit (bytes) for addresses and progress lines.
MESSAGE_BYTES_MAX: Final = 1 << 20
#: How long (s) to wait for the last progress line when the job is over.
_LAST_WORDS_SECONDS: Final = 0.02


class Here(msgspec.Struct, frozen=True, tag="here"):
    """A task's announcement that it listens.

    `vertex`: its own, with `parallelism` tasks; `number`: the task's number in Spark.
    """

    vertex: int
    parallelism: int
    subtask: int
    number: int
    address: str


class Line(msgspec.Struct, frozen=True, tag="line"):
    """A progress line."""

    text: str


Told: TypeAlias = Here | Line


class Gathering:
    """Collects the tasks of one vertex until all of one attempt have arrived."""

    def __init__(self) -> None:
        self._come: dict[int, tuple[bytes, Here]] = {}

    def add(self, sender: bytes, here: Here) -> list[tuple[bytes, Here]]:
        """Add a task; if it completes its attempt, return all tasks of the attempt by subtask, else an empty list."""
        before = self._come.get(here.subtask)
        if before is None or before[1].number < here.number:
            self._come[here.subtask] = sender, here
        numbers = [peer.number for _, peer in self._come.values()]
        if len(numbers) < here.parallelism or max(numbers) - min(numbers) >= here.parallelism:
            return []
        come, self._come = [self._come[subtask] for subtask in sorted(self._come)], {}
        return come


class MeetingPoint:
    """Listens in a thread of its own until it is closed.

    Args:
        keys: the job's keys: only its tasks hold them.
        bind_host: the interface to listen on.
        advertise_host: the host at which tasks reach it.
        tell: called with each progress line.
    """

    def __init__(self, keys: sockets.JobKeys, bind_host: str, advertise_host: str, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._gatherings: dict[int, Gathering] = {}
        self._over = threading.Event()
        self._waker = sockets.Waker()
        self._context: zmq.Context[sockets.Socket] = zmq.Context()
        self._authenticator = sockets.KeyAuthenticator(self._context, keys.worker_public)
        self._router: sockets.Socket = self._context.socket(zmq.ROUTER)
        try:
            #: the address for tasks to connect to
            self.address = sockets.bind_server(
                self._router, keys.master_public, keys.master_secret, bind_host, advertise_host, MESSAGE_BYTES_MAX
            )
        except BaseException:
            self._end()
            raise
        self._thread = threading.Thread(target=self._serve, name="penstock-lockstep", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Receive the last progress lines, and stop."""
        self._over.set()
        self._waker.wake()
        self._thread.join()

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        poller.register(self._waker.fileno(), zmq.POLLIN)
        try:
            while not self._over.is_set():
                poller.poll()
                self._take_all()
            while self._router.poll(int(_LAST_WORDS_SECONDS * 1_000)):
                self._take_all()
        except Exception:  # noqa: BLE001 - the tasks fail, since nobody answers them
            _log.exception("tasks that work in step can no longer meet")
        finally:
            self._end()

    def _take_all(self) -> None:
        while self._router.poll(0):
            sender, data = self._router.recv_multipart()
            message = msgspec.msgpack.decode(data, type=Told)
            if isinstance(message, Line):
                self._tell(message.text)
                continue
            come = self._gatherings.setdefault(message.vertex, Gathering()).add(sender, message)
            addresses = msgspec.msgpack.encode([here.address for _, here in come])
            for recipient, _ in come:
                self._router.send_multipart([recipient, addresses])

    def _end(self) -> None:
        self._router.close(linger=0)
        self._authenticator.close()
        self._context.term()
        self._waker.close()


#: Longer arrays are split into several frames (bytes).
_FRAME_BYTES_MAX: Final = 1 << 24
#: How often to check the connections while nothing arrives (ms).
_LOOK_MS: Final = 500
_CONNECT_SECONDS: Final = 60.0
#: How long to wait for the last value of a task whose connection has broken (ms).
_LAST_MS: Final = 5_000
#: How long the end of a task waits for its last messages to be sent (ms); its peers wait for them.
_LINGER_MS: Final = 60_000


class PeerLostError(PenstockError, ConnectionError):
    """Another task of the stage has died. Spark has noticed as well and ends this one."""


class LockstepPeers:
    """A listening task. Call `meet`, then `send` and `receive`, all in one thread.

    Args:
        subtask: this task's subtask index.
        keys: the job's keys.
        driver: the address of its `MeetingPoint`.
        host: the host at which the others reach this machine.
    """

    def __init__(self, subtask: int, keys: sockets.WorkerKeys, driver: str, host: str) -> None:
        self._subtask = subtask
        self._keys = keys
        self._context: zmq.Context[sockets.Socket] = zmq.Context()
        #: the context of outgoing connections, so that all data has been sent before others see the end
        self._outgoing: zmq.Context[sockets.Socket] = zmq.Context()
        self._authenticator = sockets.KeyAuthenticator(self._context, keys.worker_public)
        self._links: dict[int, tuple[sockets.Socket, sockets.LinkMonitor]] = {}
        self._inbox: sockets.Socket = self._context.socket(zmq.PULL)
        self._inbox.setsockopt(zmq.RCVHWM, 0)
        self._driver: sockets.Socket = self._outgoing.socket(zmq.DEALER)
        self._driver_monitor = sockets.LinkMonitor(self._outgoing, self._driver, _CONNECT_SECONDS)
        try:
            sockets.connect_client(self._driver, keys, keys.master_public, driver, MESSAGE_BYTES_MAX)
            #: the address for the others to connect to
            self.address = sockets.bind_server(
                self._inbox, keys.worker_public, keys.worker_secret, host, host, _FRAME_BYTES_MAX
            )
        except BaseException:
            self.close()
            raise

    def meet(self, here: Here) -> None:
        """Report this task's address to the driver, wait until all tasks have done so, and connect to the others.

        Raises:
            PeerLostError: if the driver cannot be reached.
        """
        self._driver.send(msgspec.msgpack.encode(here))
        while not self._driver.poll(_LOOK_MS):
            if (reason := self._driver_monitor.broken()) is not None:
                raise PeerLostError(f"the driver is gone: {reason}")
        for subtask, address in enumerate(msgspec.msgpack.decode(self._driver.recv(), type=list[str])):
            if subtask == self._subtask:
                continue
            link: sockets.Socket = self._outgoing.socket(zmq.PUSH)
            self._links[subtask] = link, sockets.LinkMonitor(self._outgoing, link, _CONNECT_SECONDS)
            sockets.connect_client(link, self._keys, self._keys.worker_public, address, _FRAME_BYTES_MAX)

    def tell(self, line: str) -> None:
        """Send a progress line to the driver."""
        self._driver.send(msgspec.msgpack.encode(Line(line)))

    def send(self, to: int, number: int, value: Any) -> None:
        """Send a value for a round to another task without waiting. The value must not change afterwards."""
        data, arrays = dumps_in_parts(value)
        pieces = [_pieces(part) for part in (memoryview(data), *arrays)]
        header = pickle.dumps((self._subtask, number, list(map(len, pieces))), 5)
        frames: list[Any] = [header, *(piece for part in pieces for piece in part)]
        self._links[to][0].send_multipart(frames, copy=False)

    def receive(self, awaited: int) -> tuple[int, int, Any]:
        """Wait for the next value; return its subtask, its round, and the value, whose arrays are read-only.

        Args:
            awaited: the subtask that must still send a value; other subtasks may have ended well.

        Raises:
            PeerLostError: if the connection to that subtask has broken and no more of its data arrives.
        """
        monitor, reason = self._links[awaited][1], None
        while not self._inbox.poll(_LOOK_MS if reason is None else _LAST_MS):
            if reason is not None:
                raise PeerLostError(f"subtask {awaited + 1} of the stage is gone: {reason}")
            reason = monitor.broken()  # data that it sent before may still arrive
        header, *frames = self._inbox.recv_multipart(copy=False)
        sender, number, counts = pickle.loads(header.buffer)
        parts, offset = [], 0
        for count in counts:
            pieces = [frame.buffer for frame in frames[offset : offset + count]]
            parts.append(pieces[0] if count == 1 else b"".join(pieces))
            offset += count
        return sender, number, pickle.loads(parts[0], buffers=parts[1:])

    def close(self) -> None:
        """Send the remaining messages, and close."""
        for link, monitor in self._links.values():
            monitor.close()
            link.close(linger=_LINGER_MS)
        self._driver_monitor.close()
        self._driver.close(linger=_LINGER_MS)
        self._outgoing.term()
        self._inbox.close()
        self._authenticator.close()
        self._context.term()


def _pieces(part: memoryview) -> list[memoryview]:
    """Split a part into frames, at least one."""
    return [part[begin : begin + _FRAME_BYTES_MAX] for begin in range(0, max(1, len(part)), _FRAME_BYTES_MAX)]


@dataclass(frozen=True)
class Meeting:
    """The data that tasks need to meet. `address`: of the driver; `is_local`: whether all tasks are on its machine."""

    address: str
    keys: sockets.WorkerKeys
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


#: How often to run such a job if Spark loses one of its tasks.
TRIES_MAX: Final = 3


def count_slots(job_graph: JobGraph) -> int:
    """Return how many tasks of a batch job Spark must run at the same time: 1, unless some work in lockstep."""
    return max([1, *(vertex.parallelism for vertex in job_graph.vertices if keeps_step(vertex))])


def check_slots(job_graph: JobGraph, spark: SparkHandle) -> None:
    """Raise `SlotsUnavailableError` if Spark can never run enough tasks at the same time."""
    wanted, got = count_slots(job_graph), spark.fixed_slots()
    if got is not None and wanted > got:
        reason = (
            f"its tasks exchange messages and run at a time, and Spark runs on {spark.master}, which never has more: "
            f"lower the parallelism to {got} or less"
        )
        raise SlotsUnavailableError(job_graph.name, wanted, got, reason)


@contextmanager
def open_meeting(job_graph: JobGraph, spark: SparkHandle, tell: Callable[[str], None]) -> Iterator[Meeting | None]:
    """Provide a meeting point while the job runs, or None if no tasks work in lockstep. `tell` gets progress lines."""
    if not any(map(keeps_step, job_graph.vertices)):
        yield None
        return
    keys = sockets.JobKeys.generate()
    point = MeetingPoint(keys, *spark.master_hosts(), tell)
    try:
        yield Meeting(point.address, keys.for_worker(), spark.is_local)
    finally:
        point.close()
