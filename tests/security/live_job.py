"""A job's transport at work: a master and two workers that exchange numbered traffic, all in one thread."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.drivers.spark.job_master import FromEndpoint, MasterEndpoint
from penstock.drivers.spark.sockets import JobKeys
from penstock.drivers.spark.worker import WorkerEndpoint
from penstock.runtime.protocol import (
    CancelTask,
    ChannelId,
    EndOfDataReached,
    ExecutionId,
    RegisterWorker,
    ToWorker,
)
from penstock.runtime.records import Batch, Buffer

HOST = "127.0.0.1"
FRAME_BYTES = 1 << 20
CHANNEL = ChannelId(0, 0, 0, 0)
DEADLINE_S = 10.0
PORTS = ("control", "data", "local")


def wait_until(condition: Callable[[], bool], what: str, within_s: float = DEADLINE_S) -> None:
    """Wait for a condition that another thread brings about; fail when it does not."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"in vain waited for: {what}"
        time.sleep(0.002)


class Inbox:
    """Keeps what a worker's endpoint dispatches."""

    def __init__(self) -> None:
        self.messages: list[ToWorker] = []
        self.buffers: list[tuple[ChannelId, Buffer]] = []
        self.credits: list[tuple[ChannelId, int]] = []
        self.peers_lost: list[tuple[str, str]] = []
        self.attempts_lost: list[int | None] = []
        self.master_lost: list[str] = []

    def on_message(self, message: ToWorker) -> None:
        self.messages.append(message)

    def on_buffer(self, channel: ChannelId, buffer: Buffer) -> None:
        self.buffers.append((channel, buffer))

    def on_credit(self, channel: ChannelId, credit: int) -> None:
        self.credits.append((channel, credit))

    def on_peer_lost(self, worker_id: str, reason: str, attempt: int | None = None) -> None:
        self.peers_lost.append((worker_id, reason))
        self.attempts_lost.append(attempt)

    def on_master_lost(self, reason: str) -> None:
        self.master_lost.append(reason)


class LiveJob:
    """Traffic in all directions, in rounds: the next begins when all of the last has arrived, as it was sent.

    A round: worker a sends a buffer to b, b a credit to a, the master a message to b, b one to the master. What arrives
    without belonging to the round under way is kept in `strays`.
    """

    def __init__(self) -> None:
        self.keys = JobKeys.generate()
        self.rounds = 0
        self.strays: list[object] = []
        self.refused = dict.fromkeys(PORTS, 0)
        self.rejected = dict.fromkeys(PORTS, 0)
        self.error: BaseException | None = None
        self._ready = threading.Event()
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="live-job")

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(DEADLINE_S)
        self.check_progress()

    def stop(self) -> None:
        self._stop = True
        self._thread.join()

    def address(self, port: str) -> tuple[str, int] | str:
        """Of the master's port ("control"), or of worker b's by tcp ("data") or by its Unix socket ("local")."""
        tcp, _, local = self.b.data_address.partition(" ")
        if port == "local":
            return local.split(":", 2)[2]
        host, _, number = (self.master.address if port == "control" else tcp).removeprefix("tcp://").rpartition(":")
        return host, int(number)

    def check_progress(self, rounds: int = 20) -> None:
        """The traffic goes on."""
        target = self.rounds + rounds
        wait_until(lambda: self.rounds >= target or self.error is not None, "traffic")
        if self.error is not None:
            raise self.error

    def wait_refused(self, port: str, count: int, within_s: float = DEADLINE_S) -> None:
        """So many connections have been refused."""
        what = f"{count} refused connections, have {self.refused[port]}"
        wait_until(lambda: self.refused[port] >= count, what, within_s)

    def _run(self) -> None:
        self.master = MasterEndpoint(self.keys, HOST, HOST, FRAME_BYTES)
        self.a = WorkerEndpoint("a", self.keys.for_worker(), self.master.address, HOST, HOST, FRAME_BYTES)
        self.b = WorkerEndpoint("b", self.keys.for_worker(), self.master.address, HOST, HOST, FRAME_BYTES)
        try:
            self._exchange()
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            self.error = error
        finally:
            for endpoint in (self.a, self.b, self.master):
                endpoint.close()

    def _exchange(self) -> None:
        self.a.connect(CHANNEL.attempt, {"b": self.b.data_address})
        self.b.connect(CHANNEL.attempt, {"a": self.a.data_address})
        inbox_a, inbox_b = Inbox(), Inbox()
        arrived: list[tuple[str, FromEndpoint]] = []
        register = RegisterWorker("b", self.b.data_address, HOST, 1)
        self.b.send(register)
        while not arrived:
            arrived += self.master.receive(100)
        assert arrived.pop() == ("b", register)
        self._ready.set()
        while not self._stop:
            execution = ExecutionId(0, 0, self.rounds)
            buffer: Buffer = [Batch([self.rounds, "x" * 1000], [self.rounds, 0])]
            self.a.send_buffer("b", CHANNEL, buffer)
            self.b.send_credit("a", CHANNEL, self.rounds + 1)
            self.b.send(EndOfDataReached(execution))
            self.master.send("b", CancelTask(execution))
            deadline = time.monotonic() + DEADLINE_S
            due: list[tuple[list[Any], object]] = [
                (inbox_b.buffers, (CHANNEL, buffer)),
                (inbox_a.credits, (CHANNEL, self.rounds + 1)),
                (inbox_b.messages, CancelTask(execution)),
                (arrived, ("b", EndOfDataReached(execution))),
            ]
            while not all(expected in came for came, expected in due):
                assert time.monotonic() < deadline, f"round {self.rounds} came to a halt: {due}"
                arrived += self.master.receive(1)
                self.a.receive(1, inbox_a)
                self.b.receive(1, inbox_b)
                self._count()
            for came, expected in due:
                self.strays += [item for item in came if item != expected]
                came.clear()
            for others in (inbox_a.messages, inbox_a.buffers, inbox_b.credits):
                self.strays += others
                others.clear()
            for losses in (inbox_a.peers_lost, inbox_a.master_lost, inbox_b.peers_lost, inbox_b.master_lost):
                assert not losses
            self.rounds += 1

    def _count(self) -> None:
        refused, rejected = self.b.refused_connections, self.b.rejected_messages
        self.refused = {"control": self.master.refused_connections, "data": refused, "local": refused}
        self.rejected = {"control": self.master.rejected_messages, "data": rejected, "local": rejected}


@contextmanager
def live_job() -> Iterator[LiveJob]:
    """A job that runs while the block does."""
    job = LiveJob()
    job.start()
    try:
        yield job
    finally:
        job.stop()
