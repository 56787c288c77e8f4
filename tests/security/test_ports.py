"""Hostile peers at the ports of a job that is at work: none is heard, and the work goes on."""

import logging
import pickle
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import pytest
import zmq
from tests.security import attacks
from tests.security.live_job import FRAME_BYTES, HOST, PORTS, LiveJob, live_job, wait_until
from tests.security.relay import Relay

from penstock.drivers.spark import sockets
from penstock.drivers.spark.sockets import JobKeys
from penstock.runtime.protocol import EndOfDataReached, ExecutionId, Heartbeat, RegisterWorker, WorkerLost
from penstock.wire.buffers import MessageCodec

GROWTH_BYTES_MAX = 16 << 20
HUGE = struct.pack(">Q", 4 << 30)
CODEC: MessageCodec = MessageCodec(Heartbeat, FRAME_BYTES)

all_ports = pytest.mark.parametrize("port", PORTS)


@pytest.fixture(scope="module")
def job() -> Iterator[LiveJob]:
    with live_job() as job:
        yield job


@all_ports
@pytest.mark.parametrize(
    ("attack", "count"),
    [  # 1,000 connections to each port
        (attacks.garbage, 300),
        (attacks.no_mechanism, 100),
        (attacks.plain_mechanism, 100),
        (attacks.wrong_client_key, 100),
        (attacks.wrong_server_key, 100),
        (attacks.truncated_handshake, 200),
        (attacks.replayed_handshake, 100),
    ],
)
def test_intruders_are_not_heard(
    job: LiveJob, port: str, attack: Callable[[LiveJob, str, int, Path], None], count: int, tmp_path: Path
) -> None:
    """Every connection is refused and counted, no message of it is delivered or unpickled, and the job works on."""
    canary = tmp_path / "canary"
    refused, rejected = job.refused[port], dict(job.rejected)
    job.strays.clear()
    attack(job, port, count, canary)
    job.wait_refused(port, refused + count)
    job.check_progress()
    # The recorded handshake was genuine and delivered one message; played again, it delivers none.
    assert job.strays in ([], [attacks.GENUINE[port]])
    assert job.rejected == rejected
    assert not canary.exists()


def test_canary_is_worth_its_name(tmp_path: Path) -> None:
    """The forged pickle does write its file when it is unpickled, so its absence elsewhere proves something."""
    canary = tmp_path / "canary"
    pickle.loads(pickle.dumps(attacks.CanaryPickle(canary)))
    assert canary.exists()


@all_ports
@pytest.mark.parametrize("flags", [b"\x06", b"\x02", b"\x03"], ids=["command", "message", "more"])
def test_huge_frame_before_the_handshake(job: LiveJob, port: str, flags: bytes) -> None:
    """Strangers whose frames claim 4 GiB are cut off, and no memory is taken for them."""
    before, refused = attacks.resident_bytes(), job.refused[port]
    for _ in range(10):
        with attacks.raw_connection(job, port) as connection:
            attacks.send_bytes(connection, attacks.GREETING + flags + HUGE)
            attacks.send_bytes(connection, bytes(1 << 20))
            attacks.read_to_end(connection)
    job.wait_refused(port, refused + 10)
    assert attacks.resident_bytes() - before < GROWTH_BYTES_MAX
    job.check_progress()


@all_ports
def test_huge_frame_from_a_worker(job: LiveJob, port: str) -> None:
    """A worker of the job whose frame claims 4 GiB is cut off too, before memory is taken."""
    relay = Relay(job.address(port))
    context = zmq.Context()
    try:
        monitored = attacks.genuine(job.keys, port, b"Hhuge")
        client = attacks.connect_client(context, job, port, monitored, relay.address)
        job.strays.clear()
        if port == "control":
            client.send(CODEC.encode(Heartbeat("huge"), 0))
        else:
            stream = 55 + PORTS.index(port)  # two of the ports are doors to the same worker
            client.send(attacks.VERSION_BYTE + msgspec.msgpack.encode((0, stream, "huge", "b")))
            client.send(attacks.VERSION_BYTE + msgspec.msgpack.encode((2, stream, 0, (((9, 9, 9, 9), 5),))))
        wait_until(lambda: bool(job.strays), "the worker's genuine message")
        before = attacks.resident_bytes()
        relay.inject(b"\x02" + HUGE + bytes(1 << 16))
        relay.wait_cut()
        assert attacks.resident_bytes() - before < GROWTH_BYTES_MAX
        job.check_progress()
    finally:
        context.destroy(linger=0)
        relay.close()


@all_ports
def test_large_frame_from_a_worker(job: LiveJob, port: str) -> None:
    """A whole frame of twice the allowed size from a worker of the job is not delivered: its connection is cut."""
    relay = Relay(job.address(port))
    context = zmq.Context()
    try:
        setup = attacks.genuine(job.keys, port, b"Hlarge")
        client = attacks.connect_client(context, job, port, setup, relay.address)
        job.strays.clear()
        client.send(bytes(2 * FRAME_BYTES))
        relay.wait_cut()
        job.check_progress()
        assert not job.strays
    finally:
        context.destroy(linger=0)
        relay.close()


FORGED = attacks.forged_messages(Path("/nonexistent/canary"))
STATE = EndOfDataReached(ExecutionId(0, 0, 0))


@pytest.mark.parametrize(
    ("identity", "frames"),
    [
        (b"Cx", [b""]),
        (b"Cx", [b"garbage"]),
        (b"Cx", [attacks.VERSION_BYTE + bytes(9) + b"\xdd\xff\xff\xff\xff"]),
        (b"Cx", [CODEC.encode(STATE, 0), b"more"]),
        (b"Cx", [CODEC.encode(Heartbeat("b"), 0)]),
        (b"Cx", [CODEC.encode(RegisterWorker("b", "tcp://10.0.0.1:1", "evil", 1), 0)]),
        (b"Cx", [CODEC.encode(WorkerLost("b", "I say so"), 0)]),
        (b"Cy", [CODEC.encode(STATE, 3)]),
        (b"Hx", [CODEC.encode(STATE, 0)]),
        (b"Hx", [CODEC.encode(Heartbeat("b"), 0)]),
        (b"Hx", [CODEC.encode(Heartbeat("x"), 1 << 32)]),  # an answer that nobody asked for
        (b"x", [CODEC.encode(Heartbeat("x"), 0)]),
        (b"C", [CODEC.encode(Heartbeat(""), 0)]),
        (b"C\xff\xfe", [CODEC.encode(STATE, 0)]),
    ],
)
def test_worker_that_breaks_the_control_protocol(
    job: LiveJob, identity: bytes, frames: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that talks nonsense, or for another one, or for the driver, is not believed: counted and logged."""
    rejected = job.rejected["control"]
    job.strays.clear()
    with attacks.client_socket(job, "control", attacks.genuine(job.keys, "control", identity)) as client:
        for _ in range(2):
            client.send_multipart(frames)
        wait_until(lambda: job.rejected["control"] == rejected + 2, "two rejected messages")
    job.check_progress()
    assert not job.strays


def test_rejected_peer_is_logged_once(job: LiveJob, caplog: pytest.LogCaptureFixture) -> None:
    """However often a peer breaks the protocol, it fills one line of the log, shortened."""
    rejected = job.rejected["control"]
    with attacks.client_socket(job, "control", attacks.genuine(job.keys, "control", b"Cnoisy" * 30)) as client:
        for _ in range(50):
            client.send(b"x" * 10_000)
        wait_until(lambda: job.rejected["control"] == rejected + 50, "the rejected messages")
    lines = [record.getMessage() for record in caplog.records if "noisy" in record.getMessage()]
    assert len(lines) == 1
    assert len(lines[0]) < 500


@pytest.mark.parametrize("frames", [*FORGED[:2], [b""] * 300, [attacks.VERSION_BYTE + b"\x90"]])
def test_worker_that_breaks_the_data_protocol(job: LiveJob, frames: list[bytes]) -> None:
    """What belongs to no stream is dropped and counted, and the job's own streams are not touched."""
    rejected = job.rejected["data"]
    job.strays.clear()
    with attacks.client_socket(job, "data", attacks.genuine(job.keys, "data")) as client:
        client.send_multipart(frames)
        wait_until(lambda: job.rejected["data"] == rejected + 1, "a rejected message")
    job.check_progress()
    assert not job.strays


def test_identity_of_a_connected_worker_is_not_taken_over(job: LiveJob) -> None:
    """A second connection with the identity of a worker that is connected is not heard, and takes nothing from it."""
    job.strays.clear()
    rejected = dict(job.rejected)
    with attacks.client_socket(job, "control", attacks.genuine(job.keys, "control", b"Cb")) as client:
        client.send(CODEC.encode(STATE, 0))
        job.check_progress(200)
        assert not client.poll(0)
    assert not job.strays
    assert job.rejected == rejected


def test_slow_strangers_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that stay silent, or stop amid the handshake, are closed by a deadline."""
    monkeypatch.setattr(sockets, "HANDSHAKE_TIMEOUT_MS", 300)
    with live_job() as job:
        for port in PORTS:
            refused = job.refused[port]
            connections = [attacks.raw_connection(job, port) for _ in range(50)]
            for number, connection in enumerate(connections):
                attacks.send_bytes(connection, attacks.GREETING[: number * 2])
            for connection in connections:
                with connection:
                    attacks.read_to_end(connection)
            job.wait_refused(port, refused + 50)
        job.check_progress()


def test_nobody_is_admitted_without_the_gatekeeper() -> None:
    """When the thread that checks keys has died, even a worker of the job is refused: the port fails closed."""
    with live_job() as job:
        job.master._authenticator.close()
        with ExitStack() as clients:
            # libzmq takes its socket away a moment later; a client that asks meanwhile gets no answer, nor in.
            for _ in range(5):
                genuine = attacks.genuine(job.keys, "control", b"Cx")
                client = clients.enter_context(attacks.client_socket(job, "control", genuine))
                client.send(CODEC.encode(STATE, 0))
                with suppress(AssertionError):
                    job.wait_refused("control", 1, within_s=2.0)
                    break
            job.wait_refused("control", 1)
            job.check_progress()
        assert not job.strays


def test_ports_listen_where_they_are_told(job: LiveJob) -> None:
    """A port bound to loopback is not reachable by the machine's other addresses."""
    for port in ("control", "data"):
        address = job.address(port)
        assert not isinstance(address, str)
        host, number = address
        assert host == HOST
        with socket.socket() as probe, pytest.raises(OSError, match="refused"):
            probe.connect(("127.0.0.2", number))


def test_secrets_are_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    """No secret key is in the text of the keys, nor in any log line of a job under attack, down to DEBUG."""
    caplog.set_level(logging.DEBUG)
    with live_job() as job:
        for port in PORTS:
            attacks.wrong_client_key(job, port, 5, Path("/nonexistent/canary"))
            attacks.garbage(job, port, 10, Path("/nonexistent/canary"))
        keys = job.keys
    secrets = [keys.master_secret, keys.worker_secret]
    shown = [repr(keys), str(keys), f"{keys.for_worker()}", caplog.text]
    assert keys.worker_public.decode() in shown[0]
    assert not [secret for secret in secrets for text in shown if secret.decode() in text]


def test_masters_secret_stays_in_the_driver() -> None:
    """What travels to workers holds no secret of the master, and the driver's keys refuse to travel."""
    keys = JobKeys.generate()
    travelling = pickle.dumps(keys.for_worker())
    assert pickle.loads(travelling) == keys.for_worker()
    assert keys.master_secret not in travelling
    with pytest.raises(TypeError, match="for_worker"):
        pickle.dumps(keys)


def test_each_job_has_keys_of_its_own() -> None:
    """No key of one job is a key of another, nor twice within one."""
    values = [
        key
        for keys in (JobKeys.generate(), JobKeys.generate())
        for key in (keys.master_public, keys.master_secret, keys.worker_public, keys.worker_secret)
    ]
    assert len(set(values)) == 8
