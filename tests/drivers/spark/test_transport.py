"""The endpoints of master and workers, over real sockets: on loopback, and between workers Unix sockets as well."""

import ctypes
import logging
import os
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq
from tests.security.live_job import DEADLINE_S, FRAME_BYTES, HOST, Inbox, wait_until
from tests.security.relay import Relay

from penstock.base.errors import ProtocolError
from penstock.drivers.spark import heartbeats
from penstock.drivers.spark import job_master as master_endpoint
from penstock.drivers.spark import sockets as data_links
from penstock.drivers.spark.heartbeats import Stall
from penstock.drivers.spark.job_master import FromEndpoint, MasterEndpoint
from penstock.drivers.spark.sockets import JobKeys, host_identity
from penstock.drivers.spark.worker import WorkerEndpoint
from penstock.runtime.protocol import (
    CancelTask,
    ChannelId,
    ClientOutput,
    EndOfDataReached,
    ExecutionId,
    FromWorker,
    Heartbeat,
    ProcessFigures,
    RegisterWorker,
    ShutDownWorker,
    WorkerBlocked,
)
from penstock.runtime.records import Batch, Buffer, EndOfPartition, Watermark
from penstock.wire.buffers import RecordSerializationError, RecordTooLargeError

CHANNEL = ChannelId(1, 2, 3, 4)
EXECUTION = ExecutionId(0, 0, 0)


#: Nobody listens there.
NOWHERE = f"tcp://{HOST}:1"

#: Once with workers that know of each other's tcp ports alone, once with no way between them but Unix sockets.
over_both = pytest.mark.parametrize("cluster", ["tcp", "ipc"], indirect=True)


class Cluster:
    """A master and workers with their inboxes, all run by the test's own thread; workers talk by `transport`."""

    def __init__(self, transport: str = "ipc") -> None:
        self.transport = transport
        self.keys = JobKeys.generate()
        self.master = MasterEndpoint(self.keys, HOST, HOST, FRAME_BYTES)
        self.from_workers: list[tuple[str, FromEndpoint]] = []
        self.workers: dict[str, WorkerEndpoint] = {}
        self.inboxes: dict[str, Inbox] = {}
        self.relays: list[Relay] = []

    def worker(self, worker_id: str, master_address: str | None = None) -> WorkerEndpoint:
        keys = self.keys.for_worker()
        worker = WorkerEndpoint(worker_id, keys, master_address or self.master.address, HOST, HOST, FRAME_BYTES)
        self.workers[worker_id], self.inboxes[worker_id] = worker, Inbox()
        return worker

    def pair(self) -> tuple[WorkerEndpoint, WorkerEndpoint]:
        a, b = self.worker("a"), self.worker("b")
        a.connect(CHANNEL.attempt, {"b": self.address(b)})
        b.connect(CHANNEL.attempt, {"a": self.address(a)})
        return a, b

    def address(self, worker: WorkerEndpoint) -> str:
        tcp, _ = parts(worker)
        return tcp if self.transport == "tcp" else worker.data_address.replace(tcp, NOWHERE)

    def relay(self, address: str) -> Relay:
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        self.relays.append(Relay((host, int(port))))
        return self.relays[-1]

    def relay_to(self, worker: WorkerEndpoint, folder: Path) -> tuple[Relay, str]:
        """A relay to a worker's data port, and the address by which its peers go through it."""
        tcp, path = parts(worker)
        if self.transport == "tcp":
            relay = self.relay(tcp)
            return relay, relay.address
        via = str(folder / "relay")
        self.relays.append(Relay(path, via))
        return self.relays[-1], self.address(worker).replace(path, via)

    def run_until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"in vain waited for: {what}"
            self.from_workers += self.master.receive(1)
            for worker_id, worker in self.workers.items():
                worker.receive(1, self.inboxes[worker_id])

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()
        self.master.close()
        for relay in self.relays:
            relay.close()


def parts(worker: WorkerEndpoint) -> tuple[str, str]:
    """A worker's tcp address and the path of its Unix socket."""
    tcp, _, local = worker.data_address.partition(" ")
    return tcp, local.split(":", 2)[2]


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    cluster = Cluster(getattr(request, "param", "ipc"))
    yield cluster
    cluster.close()


def test_messages_both_ways_in_order(cluster: Cluster) -> None:
    """A worker's messages reach the master under its id, and the master's reach it; both first-in first-out."""
    worker = cluster.worker("w")
    register = RegisterWorker("w", worker.data_address, HOST, 1)
    says: list[FromWorker] = [register, *(EndOfDataReached(ExecutionId(0, 0, i)) for i in range(200))]
    for message in says:
        worker.send(message)
    cluster.run_until(lambda: len(cluster.from_workers) == len(says), "the worker's messages")
    assert cluster.from_workers == [("w", message) for message in says]
    hears = [CancelTask(ExecutionId(0, 0, i)) for i in range(200)]
    for order in hears:
        cluster.master.send("w", order)
    cluster.run_until(lambda: len(cluster.inboxes["w"].messages) == len(hears), "the master's messages")
    assert cluster.inboxes["w"].messages == hears


@over_both
def test_buffers_and_credits_between_workers(cluster: Cluster) -> None:
    """Buffers of batches and events, larger than a frame too, and credits arrive as sent and in order."""
    a, b = cluster.pair()
    large: Buffer = [Batch([("record", i, "x" * 100) for i in range(30_000)], list(range(30_000)))]
    buffers: list[Buffer] = [[Batch([1, 2]), Watermark(3)], large, [EndOfPartition()]]
    for buffer in buffers:
        a.send_buffer("b", CHANNEL, buffer)
    b.send_credit("a", CHANNEL, 2)
    inbox = cluster.inboxes["b"]
    cluster.run_until(lambda: len(inbox.buffers) == 3 and cluster.inboxes["a"].credits, "buffers and credit")
    assert inbox.buffers == [(CHANNEL, buffer) for buffer in buffers]
    assert cluster.inboxes["a"].credits == [(CHANNEL, 2)]


@over_both
def test_worker_sends_to_itself(cluster: Cluster) -> None:
    """A worker that is among its own peers reaches itself as any other."""
    a = cluster.worker("a")
    a.connect(CHANNEL.attempt, {"a": cluster.address(a)})
    a.send_buffer("a", CHANNEL, [Watermark(1)])
    cluster.run_until(lambda: cluster.inboxes["a"].buffers, "its own buffer")
    assert cluster.inboxes["a"].buffers == [(CHANNEL, [Watermark(1)])]


def test_records_that_cannot_travel(cluster: Cluster) -> None:
    """A record that cannot be pickled or is too large raises where it is sent, and the link serves on."""
    a, _ = cluster.pair()
    with pytest.raises(RecordSerializationError, match=r"_thread\.lock"):
        a.send_buffer("b", CHANNEL, [Batch([threading.Lock()])])
    a._buffers.record_bytes_max = FRAME_BYTES
    with pytest.raises(RecordTooLargeError, match=r"penstock\.network\.record-bytes-max allows 1048576"):
        a.send_buffer("b", CHANNEL, [Batch(["x" * FRAME_BYTES])])
    a.send_buffer("b", CHANNEL, [Watermark(1)])
    cluster.run_until(lambda: cluster.inboxes["b"].buffers, "the next buffer")
    assert cluster.inboxes["b"].buffers == [(CHANNEL, [Watermark(1)])]


@over_both
def test_records_larger_than_a_message(cluster: Cluster) -> None:
    """B3: they arrive, in order with what is before and after them on the channel."""
    a, _ = cluster.pair()
    sent: Buffer = [Batch(["before", "x" * 5 * FRAME_BYTES, "after"]), Watermark(1)]
    a.send_buffer("b", CHANNEL, sent)
    a.send_buffer("b", CHANNEL, [Watermark(2)])
    cluster.run_until(lambda: len(cluster.inboxes["b"].buffers) == 2, "both buffers")
    assert cluster.inboxes["b"].buffers == [(CHANNEL, sent), (CHANNEL, [Watermark(2)])]


def test_control_messages_larger_than_a_frame(cluster: Cluster) -> None:
    """They arrive in both directions, in order with others."""
    worker = cluster.worker("w")
    large = ClientOutput(EXECUTION, "collect", b"x" * 3 * FRAME_BYTES)
    for message in (EndOfDataReached(EXECUTION), large, EndOfDataReached(EXECUTION)):
        worker.send(message)
    cluster.run_until(lambda: len(cluster.from_workers) == 3, "all messages")
    assert cluster.from_workers[1] == ("w", large)
    for answer in (ShutDownWorker("x" * 3 * FRAME_BYTES), CancelTask(EXECUTION)):
        cluster.master.send("w", answer)
    cluster.run_until(lambda: len(cluster.inboxes["w"].messages) == 2, "both answers")
    assert cluster.inboxes["w"].messages == [ShutDownWorker("x" * 3 * FRAME_BYTES), CancelTask(EXECUTION)]


def test_unknown_addressees(cluster: Cluster) -> None:
    """What is meant for a worker that is not there is dropped, without an error and without waiting."""
    cluster.master.send("nobody", ShutDownWorker("x"))
    a = cluster.worker("a")
    a.send_buffer("nobody", CHANNEL, [Watermark(1)])
    a.send_credit("nobody", CHANNEL, 1)


@over_both
def test_peers_come_and_go(cluster: Cluster) -> None:
    """E6: the next attempt has peers of its own; those of one that is over are not reached any more."""
    a, _ = cluster.pair()
    other = cluster.worker("c")
    a.send_buffer("b", CHANNEL, [Watermark(1)])
    cluster.run_until(lambda: cluster.inboxes["b"].buffers, "the buffer at the first address")
    later = ChannelId(1, 2, 3, CHANNEL.attempt + 1)
    a.keep_attempts({later.attempt})
    a.connect(later.attempt, {"c": cluster.address(other)})
    a.send_buffer("b", CHANNEL, [Watermark(2)])
    a.send_buffer("b", later, [Watermark(2)])
    a.send_buffer("c", later, [Watermark(3)])
    cluster.run_until(lambda: cluster.inboxes["c"].buffers, "the buffer at c")
    assert cluster.inboxes["c"].buffers == [(later, [Watermark(3)])]
    assert cluster.inboxes["b"].buffers == [(CHANNEL, [Watermark(1)])]
    assert not cluster.inboxes["a"].peers_lost


@over_both
def test_stream_for_another_worker_is_not_delivered(cluster: Cluster) -> None:
    """When an address has passed to another worker, that one takes nothing that was not meant for it."""
    a, b = cluster.worker("a"), cluster.worker("b")
    a.connect(CHANNEL.attempt, {"gone": cluster.address(b)})
    a.send_buffer("gone", CHANNEL, [Watermark(1)])
    cluster.run_until(lambda: b.rejected_messages == 2, "rejected messages")
    assert not cluster.inboxes["b"].buffers


def test_address_that_is_no_network_address(cluster: Cluster) -> None:
    """A peer cannot make a worker connect to anything but a tcp address."""
    with pytest.raises(ProtocolError, match="not a tcp address: 'ipc:///tmp/x'"):
        cluster.worker("a").connect(CHANNEL.attempt, {"b": "ipc:///tmp/x"})


@over_both
def test_broken_data_connection_is_told(cluster: Cluster, tmp_path: Path) -> None:
    """When the connection to a peer breaks, the sender is told once, and does not silently go on over a new one."""
    a, b = cluster.worker("a"), cluster.worker("b")
    relay, address = cluster.relay_to(b, tmp_path)
    a.connect(CHANNEL.attempt, {"b": address})
    a.send_buffer("b", CHANNEL, [Watermark(1)])
    cluster.run_until(lambda: cluster.inboxes["b"].buffers, "the first buffer")
    relay.close()
    cluster.run_until(lambda: cluster.inboxes["a"].peers_lost, "the loss")
    a.send_buffer("b", CHANNEL, [Watermark(2)])
    cluster.run_until(lambda: not a.receive(10, cluster.inboxes["a"]), "silence")
    assert cluster.inboxes["a"].peers_lost == [("b", "the connection broke")]
    later = ChannelId(1, 2, 3, CHANNEL.attempt + 1)
    a.connect(later.attempt, {"b": cluster.address(b)})  # each attempt has a link of its own
    a.send_buffer("b", CHANNEL, [Watermark(3)])
    a.send_buffer("b", later, [Watermark(4)])
    cluster.run_until(lambda: len(cluster.inboxes["b"].buffers) == 2, "the buffer on the new link")
    assert cluster.inboxes["b"].buffers[1] == (later, [Watermark(4)])


@over_both
def test_the_loss_of_a_link_concerns_one_attempt(cluster: Cluster, tmp_path: Path) -> None:
    """E6: regions restart alone, and those that go on have their own links, until their attempt is over."""
    a, b = cluster.worker("a"), cluster.worker("b")
    relay, address = cluster.relay_to(b, tmp_path)
    a.connect(CHANNEL.attempt, {"b": cluster.address(b)})
    later = ChannelId(1, 2, 3, CHANNEL.attempt + 1)
    a.connect(later.attempt, {"b": address})
    a.send_buffer("b", later, [Watermark(1)])
    cluster.run_until(lambda: cluster.inboxes["b"].buffers, "a buffer on the later link")
    relay.close()
    cluster.run_until(lambda: cluster.inboxes["a"].peers_lost, "the loss")
    assert cluster.inboxes["a"].attempts_lost == [later.attempt]
    a.send_buffer("b", CHANNEL, [Watermark(2)])
    cluster.run_until(lambda: len(cluster.inboxes["b"].buffers) == 2, "a buffer on the link that is left")
    a.keep_attempts({later.attempt})
    a.send_buffer("b", CHANNEL, [Watermark(3)])
    cluster.run_until(lambda: not b.receive(10, cluster.inboxes["b"]), "silence")
    assert len(cluster.inboxes["b"].buffers) == 2


@over_both
def test_death_of_a_peer_is_told(cluster: Cluster) -> None:
    """A peer that ends is reported to each worker that has a link to it, once."""
    a, b = cluster.pair()
    a.send_buffer("b", CHANNEL, [Watermark(1)])
    cluster.run_until(lambda: cluster.inboxes["b"].buffers, "the first buffer")
    del cluster.workers["b"]
    b.close()
    cluster.run_until(lambda: cluster.inboxes["a"].peers_lost, "the loss")
    cluster.run_until(lambda: not a.receive(10, cluster.inboxes["a"]), "silence")
    assert cluster.inboxes["a"].peers_lost == [("b", "the connection broke")]


@over_both
def test_worker_of_another_job_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who lacks the job's keys is refused and counted, delivers nothing, and is told that it has no connection."""
    monkeypatch.setattr(data_links, "CONNECT_TIMEOUT_S", 0.05)
    b = cluster.worker("b")
    own_keys, cluster.keys = cluster.keys, JobKeys.generate()
    stranger = cluster.worker("stranger")
    cluster.keys = own_keys
    stranger.connect(CHANNEL.attempt, {"b": cluster.address(b)})
    stranger.send_buffer("b", CHANNEL, [Watermark(1)])
    cluster.run_until(lambda: cluster.inboxes["stranger"].peers_lost and b.refused_connections, "the refusal")
    assert cluster.inboxes["stranger"].peers_lost == [("b", "no connection could be made")]
    assert not cluster.inboxes["b"].buffers
    assert not b.rejected_messages


@over_both
def test_peer_that_cannot_be_reached_is_told(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A peer to which no connection comes about is reported after a deadline."""
    monkeypatch.setattr(data_links, "CONNECT_TIMEOUT_S", 0.05)
    path = str(tmp_path / "deaf")
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(path)  # and never listens
    a = cluster.worker("a")
    a.connect(
        CHANNEL.attempt, {"b": NOWHERE if cluster.transport == "tcp" else f"{NOWHERE} ipc:{host_identity()}:{path}"}
    )
    cluster.run_until(lambda: cluster.inboxes["a"].peers_lost, "the loss")
    assert cluster.inboxes["a"].peers_lost == [("b", "no connection could be made")]


@pytest.mark.parametrize("why", ["no such path", "another host"])
def test_peer_elsewhere_is_reached_by_tcp(cluster: Cluster, why: str) -> None:
    """Where the peer's Unix socket is not to be found, or its path means another host's, tcp leads to it."""
    a, b = cluster.worker("a"), cluster.worker("b")
    tcp, path = parts(b)
    local = f"{host_identity()}:{path}.gone" if why == "no such path" else f"another-host:{path}"
    a.connect(CHANNEL.attempt, {"b": f"{tcp} ipc:{local}"})
    a.send_buffer("b", CHANNEL, [Watermark(1)])
    cluster.run_until(lambda: cluster.inboxes["b"].buffers, "the buffer")
    assert cluster.inboxes["b"].buffers == [(CHANNEL, [Watermark(1)])]


def test_unix_socket_is_its_users_alone(cluster: Cluster) -> None:
    """A worker's Unix socket lies in a directory of its own that only its user may enter, and goes with the worker."""
    a, b = cluster.worker("a"), cluster.worker("b")
    (_, path), (_, other) = parts(a), parts(b)
    folder = Path(path).parent
    assert folder != Path(other).parent
    assert [file.name for file in folder.iterdir()] == [Path(path).name]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    a.close()
    assert not folder.exists()
    assert Path(other).exists()


def test_unix_socket_lies_with_sparks_files(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark removes its folder at its end, even if the worker was killed; where that has no room, /tmp or the like."""
    for name, fits in (("spark", True), ("spark" * 20, False)):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{folder},/nonexistent")
        _, path = parts(cluster.worker(name))
        assert Path(path).parents[1] == (folder if fits else Path(tempfile.gettempdir()))
        assert len(list(folder.iterdir())) == fits


def test_no_unix_socket_where_none_can_be(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where its path would be too long, or nothing can be written, a worker has its tcp port alone, and logs why."""
    long = tmp_path / ("x" * 100)
    long.mkdir()
    for number, (folder, reason) in enumerate([(long, "longer than 107 bytes"), (tmp_path / "gone", "No such file")]):
        caplog.clear()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
        with caplog.at_level(logging.INFO, "penstock.drivers.spark"):
            worker = cluster.worker(f"w{number}")
        assert worker.data_address.startswith("tcp://")
        assert " " not in worker.data_address
        (line,) = (record.getMessage() for record in caplog.records if "Unix socket" in record.getMessage())
        assert reason in line
    assert not list(long.iterdir())


def test_no_unix_socket_without_a_hosts_identity(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a system that does not tell who it is, a worker has its tcp port alone."""
    monkeypatch.setattr(data_links, "host_identity", lambda: None)
    assert " " not in cluster.worker("w").data_address


@pytest.mark.parametrize("failing", ["Waker", "data_address"])
def test_endpoint_that_cannot_be_made_leaves_nothing(
    cluster: Cluster, failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever its construction fails, no directory and no thread is left behind."""

    def fail(*of: object) -> None:
        raise OSError("too many open files")

    threads = set(threading.enumerate())
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(data_links, failing, fail)
    with pytest.raises(OSError, match="too many open files"):
        cluster.worker("w")
    assert not list(tmp_path.iterdir())
    assert not set(threading.enumerate()) - threads


def test_broken_connection_to_the_master_is_told(cluster: Cluster) -> None:
    """When the connection to the master breaks, the worker is told, once; what it sends then goes nowhere."""
    relay = cluster.relay(cluster.master.address)
    worker = cluster.worker("w", relay.address)
    worker.send(EndOfDataReached(EXECUTION))
    cluster.run_until(lambda: cluster.from_workers, "the message")
    relay.close()
    cluster.run_until(lambda: cluster.inboxes["w"].master_lost, "the loss")
    worker.send(EndOfDataReached(EXECUTION))
    worker.receive(10, cluster.inboxes["w"])
    assert cluster.inboxes["w"].master_lost == ["the connection broke"]
    assert len(cluster.from_workers) == 1


def test_worker_that_dies_is_cut_off(cluster: Cluster) -> None:
    """E2, G8: the master is told which of its workers has ended, once, though it said nothing."""
    for worker_id in ("a", "b"):
        worker = cluster.worker(worker_id)
        worker.send(RegisterWorker(worker_id, worker.data_address, HOST, 1))
    cluster.run_until(lambda: len(cluster.from_workers) == 2, "the registrations")
    assert cluster.master.take_cut_off() == []
    cluster.workers.pop("a").close()
    cut_off: list[str] = []

    def is_told() -> bool:
        cut_off.extend(cluster.master.take_cut_off())
        return bool(cut_off)

    cluster.run_until(is_told, "the loss")
    assert cut_off == ["a"]
    worker = cluster.worker("c")  # its connection may get the descriptor that was a's
    worker.send(RegisterWorker("c", worker.data_address, HOST, 1))
    cluster.run_until(lambda: len(cluster.from_workers) == 3, "one more")
    assert cluster.master.take_cut_off() == []


def test_worker_with_a_gap_is_not_heard_any_more(cluster: Cluster) -> None:
    """When a message of a worker is missing, the master hears nothing more of it, and answers no heartbeat of it."""
    worker = cluster.worker("w")
    worker.send(EndOfDataReached(EXECUTION))
    cluster.run_until(lambda: cluster.from_workers, "the first message")
    worker._sent += 1
    worker.send(EndOfDataReached(EXECUTION))
    cluster.run_until(lambda: cluster.master.rejected_messages == 1, "the gap")
    worker.start_heartbeats(5)
    cluster.run_until(lambda: cluster.master.rejected_messages == 10, "rejected heartbeats")
    assert len(cluster.from_workers) == 1
    assert worker.master_silence_ms > 20


def test_gap_in_the_masters_messages(cluster: Cluster) -> None:
    """When a message of the master is missing, the worker is told that the master is lost, and gets no later one."""
    worker = cluster.worker("w")
    worker.send(EndOfDataReached(EXECUTION))
    cluster.run_until(lambda: cluster.from_workers, "the first message")
    cluster.master._sent["w"] = 1
    for _ in range(3):
        cluster.master.send("w", CancelTask(EXECUTION))
    cluster.run_until(lambda: cluster.inboxes["w"].master_lost, "the loss")
    worker.receive(10, cluster.inboxes["w"])
    assert cluster.inboxes["w"].master_lost == ["message 1 arrived where 0 was expected"]
    assert not cluster.inboxes["w"].messages


def test_heartbeats_are_sent_and_answered(cluster: Cluster) -> None:
    """Heartbeats come while the worker's own thread does nothing, and the master's answers end its silence."""
    worker = cluster.worker("w")
    worker.start_heartbeats(5)
    heard: list[tuple[str, FromEndpoint]] = []
    while len(heard) < 10:
        heard += cluster.master.receive(1_000)
    assert {(worker_id, type(message)) for worker_id, message in heard} == {("w", Heartbeat)}
    cluster.run_until(lambda: worker.master_silence_ms < 50, "an answer")


def test_heartbeats_say_what_the_process_uses(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However long their interval; a process that cannot be measured goes on without, and says so once."""
    figures = ProcessFigures(resident_bytes=7)
    monkeypatch.setattr(heartbeats, "FIGURES_INTERVAL_MS", 5)
    monkeypatch.setattr(heartbeats, "process_figures", lambda: figures)
    cluster.worker("w").start_heartbeats(1_000_000)
    heard: list[tuple[str, FromEndpoint]] = []
    while len(heard) < 3:
        heard += cluster.master.receive(1_000)
    assert set(heard) == {("w", Heartbeat("w", busy_ms=None, process=figures))}
    monkeypatch.setattr(heartbeats, "process_figures", lambda: 1 // 0)
    while ("w", Heartbeat("w")) not in heard[-2:]:
        heard = cluster.master.receive(1_000)
    assert caplog.text.count("cannot tell what its process uses") == 1


def test_master_gets_the_stacks_of_a_process_whose_lock_is_held(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat thread cannot run meanwhile. Its next heartbeat says that the process works again."""
    dumps: list[str] = []

    def found(dump: str) -> Stall:
        dumps.append(dump)
        return Stall("f", dump)

    monkeypatch.setattr(master_endpoint, "find_stall", found)
    worker = cluster.worker("w")
    worker.send(RegisterWorker("w", worker.data_address, HOST, 1))
    cluster.run_until(lambda: cluster.from_workers, "the registration")
    worker.start_heartbeats(20, stall_ms=100)

    def is_blocked() -> bool:
        ctypes.PyDLL(None).usleep(200_000)
        return any("in is_blocked" in dump for dump in dumps)

    cluster.run_until(is_blocked, "the stacks")
    assert any(isinstance(message, WorkerBlocked) for _, message in cluster.from_workers)
    cluster.run_until(lambda: not cluster.master._dumps, "a heartbeat")


def test_stacks_of_a_worker_that_did_not_register_are_refused(cluster: Cluster) -> None:
    """The job master does not know such a worker."""
    cluster.worker("w").start_heartbeats(20, stall_ms=40)

    def is_refused() -> bool:
        ctypes.PyDLL(None).usleep(200_000)
        return cluster.master.rejected_messages > 0

    cluster.run_until(is_refused, "the refusal")
    assert not any(isinstance(message, WorkerBlocked) for _, message in cluster.from_workers)


def test_silence_of_a_dead_master(cluster: Cluster) -> None:
    """Without answers to its heartbeats, a worker sees the master's silence grow."""
    worker = cluster.worker("w")
    worker.start_heartbeats(5)
    wait_until(lambda: worker.master_silence_ms > 100, "silence")


def test_wrong_heartbeat_interval(cluster: Cluster) -> None:
    """An interval that is not positive, and a second start, are refused."""
    worker = cluster.worker("w")
    with pytest.raises(ValueError, match="must be positive, not 0 ms"):
        worker.start_heartbeats(0)
    worker.start_heartbeats(1_000)
    with pytest.raises(RuntimeError, match="twice"):
        worker.start_heartbeats(1_000)


@pytest.mark.parametrize("worker_id", ["", "w" * 300])
def test_wrong_worker_id(cluster: Cluster, worker_id: str) -> None:
    """A worker id that does not fit into an identity is refused at once."""
    with pytest.raises(ValueError, match="1 to 200 bytes"):
        cluster.worker(worker_id)


def test_wake(cluster: Cluster) -> None:
    """`wake` ends a wait that is under way, and the next one when none is; it counts as nothing received."""
    worker, inbox = cluster.worker("w"), Inbox()
    long_s = 10 * DEADLINE_S
    long_ms = int(long_s * 1_000)
    started = time.monotonic()
    for wake, wait in (
        (worker.wake, lambda: worker.receive(long_ms, inbox)),
        (cluster.master.wake, lambda: cluster.master.receive(long_ms)),
    ):
        wake()
        wake()
        assert not wait()
        thread = threading.Timer(0.02, wake)
        thread.start()
        assert not wait()
        thread.join()
    assert time.monotonic() - started < long_s


def test_last_words_arrive(cluster: Cluster) -> None:
    """What was sent just before closing still arrives, in both directions."""
    worker = cluster.worker("w")
    worker.send(EndOfDataReached(EXECUTION))
    cluster.run_until(lambda: cluster.from_workers, "the first message")
    cluster.master.send("w", ShutDownWorker("the end"))
    cluster.run_until(lambda: cluster.inboxes["w"].messages, "the order")
    for _ in range(100):
        worker.send(EndOfDataReached(EXECUTION))
    del cluster.workers["w"]
    worker.close()
    cluster.run_until(lambda: len(cluster.from_workers) == 101, "the last words")


def test_close_frees_everything() -> None:
    """Closing, also twice, leaves no thread and no descriptor behind; waking afterwards does nothing."""
    Cluster().close()  # what libraries keep for good is there from now on
    threads, descriptors = set(threading.enumerate()), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        cluster = Cluster()
        a, _ = cluster.pair()
        a.start_heartbeats(10)
        a.send_buffer("b", CHANNEL, [Watermark(1)])
        cluster.run_until(lambda: cluster.inboxes["b"].buffers and cluster.from_workers, "traffic")  # noqa: B023
        cluster.close()
        cluster.close()
        a.wake()
        cluster.master.wake()
    assert not set(threading.enumerate()) - threads
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors, "descriptors to close")


def test_closing_does_not_wait_for_an_absent_master() -> None:
    """A worker whose master never answered closes within the moment granted to last words."""
    worker = WorkerEndpoint("w", JobKeys.generate().for_worker(), f"tcp://{HOST}:1", HOST, HOST, FRAME_BYTES)
    worker.send(EndOfDataReached(EXECUTION))
    started = time.monotonic()
    worker.close()
    assert time.monotonic() - started < 5


def test_interface_that_is_not_there(cluster: Cluster) -> None:
    """An endpoint that cannot listen says where, and leaves no thread behind."""
    threads = set(threading.enumerate())
    with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1: "):
        MasterEndpoint(cluster.keys, "192.0.2.1", HOST, FRAME_BYTES)
    with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1: "):
        WorkerEndpoint("w", cluster.keys.for_worker(), cluster.master.address, "192.0.2.1", HOST, FRAME_BYTES)
    assert not set(threading.enumerate()) - threads


def test_loopback_of_the_sixth_version() -> None:
    """Endpoints also work over IPv6."""
    keys = JobKeys.generate()
    try:
        master = MasterEndpoint(keys, "::1", "::1", FRAME_BYTES)
    except (zmq.ZMQError, OSError):
        pytest.skip("this machine has no IPv6")
    worker = WorkerEndpoint("w", keys.for_worker(), master.address, "::1", "::1", FRAME_BYTES)
    worker.send(EndOfDataReached(EXECUTION))
    assert master.receive(int(DEADLINE_S * 1_000)) == [("w", EndOfDataReached(EXECUTION))]
    worker.close()
    master.close()


def test_message_too_long_to_send(cluster: Cluster) -> None:
    """A control message longer than any may be raises where it is sent, and the numbering stays whole."""
    worker = cluster.worker("w")
    worker._to_master.message_bytes_max = FRAME_BYTES
    with pytest.raises(ProtocolError, match="RegisterWorker"):
        worker.send(RegisterWorker("w", "x" * FRAME_BYTES, HOST, 1))
    worker.send(EndOfDataReached(EXECUTION))
    cluster.run_until(lambda: cluster.from_workers, "the next message")
    assert cluster.from_workers == [("w", EndOfDataReached(EXECUTION))]
