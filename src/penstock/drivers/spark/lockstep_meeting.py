"""The driver's side of tasks that work in lockstep: they report their addresses and their progress to it.

Spark has `BarrierTaskContext.allGather` for this, but that takes a second or more, because it polls no more often. Here
each task reports its address, and when all tasks of a stage have, each gets all addresses. A stage that Spark reruns
has new tasks with consecutive numbers, since Spark starts the tasks of a barrier stage together. So tasks never get the
address of a dead one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec
import zmq

from penstock.drivers.spark.authentication import KeyAuthenticator
from penstock.drivers.spark.keys import JobKeys
from penstock.drivers.spark.sockets import Socket, Waker, bind_server

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

    def __init__(self, keys: JobKeys, bind_host: str, advertise_host: str, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._gatherings: dict[int, Gathering] = {}
        self._over = threading.Event()
        self._waker = Waker()
        self._context: zmq.Context[Socket] = zmq.Context()
        self._authenticator = KeyAuthenticator(self._context, keys.worker_public)
        self._router: Socket = self._context.socket(zmq.ROUTER)
        try:
            #: the address for tasks to connect to
            self.address = bind_server(
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
