"""Attacks on a port: each opens so many connections, and returns when it has done its worst."""

import contextlib
import os
import pickle
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import zmq
from tests.security.live_job import LiveJob, wait_until
from tests.security.relay import Relay, connection_to

from penstock.drivers.spark.sockets import JobKeys
from penstock.runtime.protocol import ChannelId, Heartbeat
from penstock.wire.buffers import VERSION, MessageCodec
from penstock.wire.streams import StreamSender

#: What begins every message.
VERSION_BYTE = VERSION.to_bytes(1, "big")
GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
SOCKETS_AT_ONCE = 50
#: What the client that is recorded delivers, as its receiver sees it.
GENUINE = {
    "control": ("recorded", Heartbeat("recorded")),
    "data": (ChannelId(9, 9, 9, 9), 5),
    "local": (ChannelId(9, 9, 9, 9), 5),
}


class CanaryPickle:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def forged_messages(canary: Path) -> list[list[bytes]]:
    """What an intruder would say if it were heard: worker b's heartbeat, and pickles that write the canary's file."""
    forged = pickle.dumps(CanaryPickle(canary))
    heartbeat = MessageCodec[Heartbeat](Heartbeat, 4096).encode(Heartbeat("b"), 0)
    hello = VERSION_BYTE + msgspec.msgpack.encode((0, 7, "a", "b"))
    outline = msgspec.Raw(msgspec.msgpack.encode([1]))
    buffer = VERSION_BYTE + msgspec.msgpack.encode((1, 7, 0, (0, 0, 0, 0), False, outline))
    return [[heartbeat], [forged], [b"", forged], [hello], [buffer, forged]]


def raw_connection(job: LiveJob, port: str) -> socket.socket:
    connection = connection_to(job.address(port))
    connection.settimeout(20)
    return connection


def read_to_end(connection: socket.socket) -> bytes:
    """Say no more; all that the server says until it closes the connection, as it must."""
    data = b""
    with contextlib.suppress(OSError):  # closed already
        connection.shutdown(socket.SHUT_WR)
    with contextlib.suppress(ConnectionError):
        while chunk := connection.recv(1 << 16):
            data += chunk
    return data


def send_bytes(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        connection.sendall(data)


@contextlib.contextmanager
def client_socket(job: LiveJob, port: str, setup: Callable[[zmq.Socket], None]) -> Iterator[zmq.Socket]:
    """A ZeroMQ client of a port, with the credentials that `setup` gives it; open until the block ends."""
    context = zmq.Context()
    try:
        client = connect_client(context, job, port, setup)  # a context holds on to its sockets only weakly
        yield client
    finally:
        context.destroy(linger=0)


def connect_client(
    context: zmq.Context, job: LiveJob, port: str, setup: Callable[[zmq.Socket], None], address: str | None = None
) -> zmq.Socket:
    client: zmq.Socket = context.socket(zmq.DEALER if port == "control" else zmq.PUSH)
    client.setsockopt(zmq.LINGER, 0)
    client.setsockopt(zmq.RECONNECT_IVL, -1)
    if port == "control":
        client.setsockopt(zmq.ROUTING_ID, b"Cb")
    setup(client)
    target = job.address(port)
    client.connect(address or (f"ipc://{target}" if isinstance(target, str) else "tcp://{}:{}".format(*target)))
    return client


def with_keys(client: bytes, secret: bytes, server: bytes) -> Callable[[zmq.Socket], None]:
    def setup(of: zmq.Socket) -> None:
        of.curve_publickey, of.curve_secretkey, of.curve_serverkey = client, secret, server

    return setup


def genuine(keys: JobKeys, port: str, identity: bytes = b"") -> Callable[[zmq.Socket], None]:
    """The credentials of a worker of the job."""
    server = keys.master_public if port == "control" else keys.worker_public

    def setup(of: zmq.Socket) -> None:
        with_keys(keys.worker_public, keys.worker_secret, server)(of)
        if identity and port == "control":
            of.setsockopt(zmq.ROUTING_ID, identity)

    return setup


def intrude(job: LiveJob, port: str, count: int, canary: Path, setup: Callable[[zmq.Socket], None]) -> None:
    """Connect by ZeroMQ as worker b, with some credentials, and send forged messages."""
    for start in range(0, count, SOCKETS_AT_ONCE):
        refused = job.refused[port]
        at_once = min(SOCKETS_AT_ONCE, count - start)
        context = zmq.Context()
        try:
            clients = [connect_client(context, job, port, setup) for _ in range(at_once)]
            for client in clients:
                for frames in forged_messages(canary):
                    with contextlib.suppress(zmq.Again):  # refused already
                        client.send_multipart(frames, zmq.NOBLOCK)
            job.wait_refused(port, refused + at_once)
        finally:
            context.destroy(linger=0)


def no_mechanism(job: LiveJob, port: str, count: int, canary: Path) -> None:
    intrude(job, port, count, canary, lambda client: None)


def plain_mechanism(job: LiveJob, port: str, count: int, canary: Path) -> None:
    def setup(client: zmq.Socket) -> None:
        client.plain_username, client.plain_password = b"admin", b"admin"

    intrude(job, port, count, canary, setup)


def wrong_client_key(job: LiveJob, port: str, count: int, canary: Path) -> None:
    server = job.keys.master_public if port == "control" else job.keys.worker_public
    intrude(job, port, count, canary, with_keys(*zmq.curve_keypair(), server))


def wrong_server_key(job: LiveJob, port: str, count: int, canary: Path) -> None:
    stranger, _ = zmq.curve_keypair()
    intrude(job, port, count, canary, with_keys(job.keys.worker_public, job.keys.worker_secret, stranger))


def garbage(job: LiveJob, port: str, count: int, canary: Path) -> None:
    """Bytes that are no handshake: random ones, pickles, HTTP, a greeting and then nonsense."""
    chance = random.Random(1)
    forged = pickle.dumps(CanaryPickle(canary))
    http = b"GET / HTTP/1.1\r\n\r\n"
    openings = [b"", b"\n", forged, http, GREETING + forged, GREETING + b"\x04\x05READY", GREETING[:11]]
    for number in range(count):
        with raw_connection(job, port) as connection:
            send_bytes(connection, openings[number % len(openings)] + chance.randbytes(chance.randrange(200)))
            read_to_end(connection)


def recorded_handshake(job: LiveJob, port: str) -> list[bytes]:
    """What a genuine client sends, piece by piece, to shake hands and then deliver one message."""
    relay = Relay(job.address(port))
    context = zmq.Context()
    strays = len(job.strays)
    try:
        client = connect_client(context, job, port, genuine(job.keys, port, b"Hrecorded"), relay.address)
        if port == "control":
            client.send(MessageCodec[Heartbeat](Heartbeat, 4096).encode(Heartbeat("recorded"), 0))
        else:
            stream = StreamSender(random.getrandbits(60), "recorded", "b")
            client.send(stream.hello())
            stream.grant((9, 9, 9, 9), 5)
            client.send(stream.credit() or b"")
        wait_until(lambda: len(job.strays) > strays, "the genuine message")
    finally:
        context.destroy(linger=0)
        relay.close()
    return relay.recorded


def truncated_handshake(job: LiveJob, port: str, count: int, canary: Path) -> None:
    """A genuine handshake that ends too soon, anywhere."""
    handshake = b"".join(recorded_handshake(job, port))
    for number in range(count):
        with raw_connection(job, port) as connection:
            send_bytes(connection, handshake[: len(handshake) * number // count])
            read_to_end(connection)


def replayed_handshake(job: LiveJob, port: str, count: int, canary: Path) -> None:
    """A genuine handshake and message, again: all at once, or waiting for the server's answers."""
    pieces = recorded_handshake(job, port)
    for number in range(count):
        with raw_connection(job, port) as connection:
            for piece in pieces:
                send_bytes(connection, piece)
                if number % 2:
                    connection.settimeout(0.02)
                    with contextlib.suppress(TimeoutError, ConnectionError):
                        connection.recv(1 << 16)
            connection.settimeout(20)
            read_to_end(connection)


def resident_bytes() -> int:
    """The memory of this process that is in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
