"""The sockets of the Spark driver: keys, setup, authentication, monitoring, and the connections between workers.

All sockets are authenticated and bounded, and have deadlines.

`JobKeys` are the keys of one job: a process that holds them belongs to the job. The driver makes two CURVE key pairs
for each job, one for the job master and one that all its workers share. Spark carries the workers' part to the workers
inside their closure. So only a process that can read the data that Spark ships can join the job. Spark's own
authentication and encryption protect the keys in transit.

`KeyAuthenticator`: a peer must prove, in the CURVE handshake, that it holds the job's secret worker key.

**Endpoints.** Master and workers share conventions apart from messages: identities, and the master's pong.

`data_address` returns the data address of a worker: its tcp address, and for peers on the same host a Unix socket as
well. The two travel as one string: `tcp://10.0.0.1:4000`, or `tcp://10.0.0.1:4000 ipc:<host>:<path>`, where `<host>` is
the identity of the host on which the path is valid.

`DataLinks` are the connections from one worker to its peers; each carries all channels between the two.

`LocalPort` is a second address of a server socket, for processes of the same user and host: a Unix socket in the file
system.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import logging
import os
import shutil
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import recv_monitor_message

from penstock.base.errors import ProtocolError, ResourceError, WrongValueError
from penstock.wire.buffers import VERSION, Frame
from penstock.wire.streams import StreamSender


@dataclass(frozen=True)
class WorkerKeys:
    """The keys of a worker: the key pair shared by the workers, and the master's public key. Picklable."""

    master_public: bytes
    worker_public: bytes
    worker_secret: bytes = field(repr=False)


@dataclass(frozen=True)
class JobKeys:
    """The keys of the driver: both key pairs. They never leave the driver; the repr shows no secrets."""

    master_public: bytes
    master_secret: bytes = field(repr=False)
    worker_public: bytes
    worker_secret: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> JobKeys:
        """Generate new keys, for one job only."""
        master_public, master_secret = zmq.curve_keypair()
        worker_public, worker_secret = zmq.curve_keypair()
        return cls(master_public, master_secret, worker_public, worker_secret)

    def for_worker(self) -> WorkerKeys:
        """Return the keys that a worker needs, without the master's secret."""
        return WorkerKeys(self.master_public, self.worker_public, self.worker_secret)

    def __reduce__(self) -> tuple[type, tuple[bytes, ...]]:
        raise TypeError("JobKeys stay in the driver; workers get for_worker()")


ZAP_DOMAIN = "penstock"


class KeyAuthenticator:
    """Authenticates the clients of all server sockets of a context; admits one public key. `close` ends its thread."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], admitted_key: bytes) -> None:
        self._admitted_key = admitted_key
        self._lock = threading.Lock()
        self._denied = 0
        self._authenticator = ThreadAuthenticator(context)
        self._authenticator.configure_curve_callback(ZAP_DOMAIN, credentials_provider=self)
        self._authenticator.start()

    @property
    def denied(self) -> int:
        """The number of clients so far that knew the server's public key but held another client key."""
        with self._lock:
            return self._denied

    def callback(self, domain: str, key: bytes) -> bool:
        """Return whether the client that has proved to hold this key may connect.

        Runs in the authenticator's thread.
        """
        admitted = domain == ZAP_DOMAIN and hmac.compare_digest(key, self._admitted_key)
        if not admitted:
            with self._lock:
                self._denied += 1
        return admitted

    def close(self) -> None:
        """Stop the thread. Close the sockets that rely on it first."""
        self._authenticator.stop()


Context: TypeAlias = zmq.Context[zmq.Socket[bytes]]
Socket: TypeAlias = zmq.Socket[bytes]

HANDSHAKE_TIMEOUT_MS: Final = 10_000
HEARTBEAT_INTERVAL_MS: Final = 5_000
HEARTBEAT_TIMEOUT_MS: Final = 15_000
RECONNECT_INTERVAL_MS: Final = 100
RECONNECT_INTERVAL_MAX_MS: Final = 2_000
#: How long a closed socket still tries to deliver its last control messages.
LAST_WORDS_LINGER_MS: Final = 1_000
#: The most bytes of a frame in addition to the largest message: the transport's own framing and encryption.
FRAME_SLACK_BYTES: Final = 1024
BACKLOG: Final = 1024
NO_LIMIT: Final = 0
_READABLE: Final = int(zmq.POLLIN)  # a plain int: an enum's operators are slow


def bind_server(
    server: Socket, public: bytes, secret: bytes, bind_host: str, advertise_host: str, max_frame_bytes: int
) -> str:
    """Make a socket the server of an authenticated port at a free port number; return the address for its clients.

    Raises:
        OSError: if `bind_host` is not an interface of this machine.
    """
    _limit(server, max_frame_bytes)
    server.curve_server = True
    server.curve_publickey = public
    server.curve_secretkey = secret
    server.setsockopt_string(zmq.ZAP_DOMAIN, ZAP_DOMAIN)
    server.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    server.setsockopt(zmq.BACKLOG, BACKLOG)
    family, *_, numeric = socket.getaddrinfo(bind_host, 0, type=socket.SOCK_STREAM)[0]
    server.setsockopt(zmq.IPV6, family == socket.AF_INET6)
    try:
        server.bind(f"tcp://{_in_address(str(numeric[0]))}:*")
    except zmq.ZMQError as error:
        raise ResourceError(error.errno, f"cannot listen on {bind_host}: {error.strerror}") from error
    port = server.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2]
    return f"tcp://{_in_address(advertise_host)}:{port}"


def connect_client(
    client: Socket,
    keys: WorkerKeys,
    server_public: bytes,
    address: str,
    max_frame_bytes: int,
    unsent_max: int = NO_LIMIT,
) -> None:
    """Connect a socket as an authenticated client to a server that must hold the secret of `server_public`."""
    _limit(client, max_frame_bytes)
    client.setsockopt(zmq.SNDHWM, unsent_max)
    client.curve_publickey = keys.worker_public
    client.curve_secretkey = keys.worker_secret
    client.curve_serverkey = server_public
    client.setsockopt(zmq.RECONNECT_IVL, RECONNECT_INTERVAL_MS)
    client.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_INTERVAL_MAX_MS)
    client.setsockopt(zmq.IPV6, "[" in address)
    client.connect(address)


def _limit(of: Socket, max_frame_bytes: int) -> None:
    of.setsockopt(zmq.MAXMSGSIZE, max_frame_bytes + FRAME_SLACK_BYTES)
    of.setsockopt(zmq.LINGER, 0)
    of.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_TIMEOUT_MS)
    of.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_INTERVAL_MS)
    of.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
    of.setsockopt(zmq.HEARTBEAT_TTL, HEARTBEAT_TIMEOUT_MS)
    of.setsockopt(zmq.TCP_KEEPALIVE, 1)
    of.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 30)
    of.setsockopt(zmq.TCP_KEEPALIVE_INTVL, 10)
    of.setsockopt(zmq.TCP_KEEPALIVE_CNT, 3)
    # Sending never blocks and never drops for lack of room: credit limits data, and control messages are few.
    of.setsockopt(zmq.SNDHWM, NO_LIMIT)


def _in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _Monitor:
    """Reads a socket's events. Its queue is unlimited: a full one would block libzmq's own thread."""

    def __init__(self, context: Context, monitored: Socket, events: int) -> None:
        address = f"inproc://monitor-{id(self)}-{os.urandom(8).hex()}"
        self._monitored = monitored
        monitored.monitor(address, events)
        self._events = context.socket(zmq.PAIR)
        self._events.setsockopt(zmq.LINGER, 0)
        self._events.setsockopt(zmq.RCVHWM, NO_LIMIT)
        self._events.connect(address)

    def take(self) -> tuple[int, int] | None:
        """Return the next event, if any, and its value: the descriptor of the connection."""
        # Checked on every turn, because an exception takes far longer.
        if not int(self._events.getsockopt(zmq.EVENTS)) & _READABLE:
            return None
        try:
            message = recv_monitor_message(self._events, zmq.NOBLOCK)
        except zmq.Again:
            return None
        return int(message["event"]), int(message["value"])

    @property
    def socket(self) -> Socket:
        """The socket that is readable when there is an event."""
        return self._events

    def close(self) -> None:
        self._monitored.disable_monitor()
        self._events.close()


class RefusalMonitor:
    """Counts the connections to a server socket that ended before a successful handshake."""

    def __init__(self, context: Context, server: Socket) -> None:
        self._monitor = _Monitor(
            context, server, zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        )
        self._shaking_hands: set[int] = set()
        self._refused = 0

    def refused(self) -> int:
        """Return the number of refused connections so far."""
        while (message := self._monitor.take()) is not None:
            self._note(*message)
        return self._refused

    def close(self) -> None:
        """Stop counting."""
        self._monitor.close()

    def _note(self, event: int, descriptor: int) -> None:
        if event == zmq.EVENT_ACCEPTED:
            self._shaking_hands.add(descriptor)
        else:
            self._refused += event == zmq.EVENT_DISCONNECTED and descriptor in self._shaking_hands
            self._shaking_hands.discard(descriptor)


class ConnectionMonitor(RefusalMonitor):
    """Also reports which connections to a server socket begin and end, by descriptor. Create it before the port."""

    def __init__(self, context: Context, server: Socket) -> None:
        super().__init__(context, server)
        self._changes: list[tuple[int, bool]] = []

    @property
    def socket(self) -> Socket:
        """The socket that is readable when there is a change."""
        return self._monitor.socket

    def changes(self) -> list[tuple[int, bool]]:
        """Return the changes since the last call, in order: a descriptor, and whether its connection began or ended."""
        self.refused()
        changes, self._changes = self._changes, []
        return changes

    def _note(self, event: int, descriptor: int) -> None:
        super()._note(event, descriptor)
        if event != zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._changes.append((descriptor, event == zmq.EVENT_ACCEPTED))


class LinkMonitor:
    """Watches a client socket's only connection: whether it was made in time, and whether it has broken since.

    ZeroMQ reconnects by itself and silently loses data in flight. So the first break is the end of a link.
    """

    def __init__(self, context: Context, client: Socket, connect_timeout_s: float) -> None:
        self._monitor = _Monitor(context, client, zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        self._established = False
        self._deadline = time.monotonic() + connect_timeout_s
        self._broken: str | None = None

    def broken(self) -> str | None:
        """Return why the link is unusable; None while it is usable."""
        while self._broken is None and (message := self._monitor.take()) is not None:
            event, _ = message
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._established = True
            elif self._established:
                self._broken = "the connection broke"
        if self._broken is None and not self._established and time.monotonic() > self._deadline:
            self._broken = "no connection could be made"
        return self._broken

    def close(self) -> None:
        """Stop watching."""
        self._monitor.close()


class Waker:
    """Lets any thread interrupt a poll: register `fileno()` with the poller."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reader, self._writer = os.pipe()
        self._set = False
        self._closed = False

    def fileno(self) -> int:
        """Return the descriptor that is readable while woken."""
        return self._reader

    def wake(self) -> None:
        """Interrupt the current poll, or else the next one; after `close`, do nothing."""
        with self._lock:
            if not self._set and not self._closed:
                os.write(self._writer, b"w")
                self._set = True

    def clear(self) -> None:
        """Clear the wake-up, so that polls wait again."""
        with self._lock:
            if self._set and not self._closed:
                os.read(self._reader, 1)
                self._set = False

    def close(self) -> None:
        """Free the descriptors."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._reader)
                os.close(self._writer)


#: A worker has three connections to the master; the identity of each is one of these bytes and the worker's id.
CONTROL_ROLE: Final = b"C"
HEARTBEAT_ROLE: Final = b"H"
#: for the stacks of a blocked process, see `stalls`
STALL_ROLE: Final = b"S"
#: The master's answer to a heartbeat.
PONG: Final = VERSION.to_bytes(1, "big") + b"pong"
WORKER_ID_BYTES_MAX: Final = 200


def identity(role: bytes, worker_id: str) -> bytes:
    """Return the routing id of a worker's connection.

    Raises:
        ValueError: if the worker's id is empty or too long.
    """
    encoded = worker_id.encode()
    if not 0 < len(encoded) <= WORKER_ID_BYTES_MAX:
        raise WrongValueError(f"a worker's id must have 1 to {WORKER_ID_BYTES_MAX} bytes: {worker_id!r}")
    return role + encoded


#: The operating system's limit for a path (`sun_path`, without the terminating zero).
LOCAL_PATH_BYTES_MAX: Final = 107
_TCP: Final = "tcp://"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def host_identity(source: Path = _BOOT_ID) -> str | None:
    """Return an identity unique to this host since its start; None if the system does not provide one.

    Containers on one host share the identity.
    """
    try:
        return source.read_text().strip() or None
    except OSError:
        return None


def data_address(tcp: str, host: str | None, path: str | None) -> str:
    """Return the address to send to the peers: tcp only, unless both a host identity and a path are given."""
    return tcp if host is None or path is None else f"{tcp} ipc:{host}:{path}"


def select_endpoint(peer: str, address: str, host: str | None, is_reachable: Callable[[str], bool]) -> str:
    """Return the endpoint for ZeroMQ: the Unix socket if it is on this host and reachable, else tcp."""
    tcp, has_local, local = address.partition(" ")
    if not tcp.startswith(_TCP):
        raise ProtocolError(f"the data address of worker {peer!r} is not a tcp address: {address!r}")
    if not has_local:
        return tcp
    kind, _, rest = local.partition(":")
    its_host, _, path = rest.partition(":")
    if kind != "ipc" or not its_host or not _is_local_path(path):
        raise ProtocolError(f"the data address of worker {peer!r} names no Unix socket after the space: {address!r}")
    return f"ipc://{path}" if its_host == host and is_reachable(path) else tcp


def is_socket(path: str) -> bool:
    """Return whether this path is a Unix socket that this process may connect to."""
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode) and os.access(path, os.W_OK)
    except OSError:
        return False


def _is_local_path(path: str) -> bool:
    return path.startswith("/") and "\0" not in path and len(os.fsencode(path)) <= LOCAL_PATH_BYTES_MAX


logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 60.0
_NOBLOCK = int(zmq.NOBLOCK)  # plain ints: an enum's operators take longer than sending
_NOBLOCK_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)


class DataLink:
    """One connection to one peer. Once it breaks, it drops everything sent."""

    def __init__(
        self,
        context: Context,
        keys: WorkerKeys,
        max_frame_bytes: int,
        worker_id: str,
        peer: str,
        address: str,
        host: str | None,
    ) -> None:
        endpoint = select_endpoint(peer, address, host, is_socket)
        self.peer = peer
        self.address = address
        self.stream = StreamSender(int.from_bytes(os.urandom(8), "big") >> 1, worker_id, peer)
        self._socket = context.socket(zmq.PUSH)
        self._monitor = LinkMonitor(context, self._socket, CONNECT_TIMEOUT_S)
        self._closed = False
        connect_client(self._socket, keys, keys.worker_public, endpoint, max_frame_bytes)
        logger.debug("worker %r reaches worker %r at %s", worker_id, peer, endpoint)
        self.send([self.stream.hello()])

    def send(self, frames: Sequence[Frame]) -> None:
        """Pass frames to ZeroMQ's own thread; never blocks."""
        if not self._closed:
            # On `Again`, the connection has broken; the monitor will report it.
            with contextlib.suppress(zmq.Again):
                for frame in frames[:-1]:
                    self._socket.send(frame, _NOBLOCK_MORE)
                self._socket.send(frames[-1], _NOBLOCK)

    def check(self) -> str | None:
        """Return why the link has broken, once, and close it; None otherwise."""
        if self._closed or (reason := self._monitor.broken()) is None:
            return None
        self.close()
        return reason

    def close(self) -> None:
        """Close the link and drop unsent data."""
        if not self._closed:
            self._closed = True
            self._monitor.close()
            self._socket.close(linger=0)


class DataLinks:
    """A worker's links, by attempt and peer id. `host` is the identity of the worker's host, if known.

    Regions of a job restart separately, so tasks of several attempts may run at once. After one attempt has lost data
    on a broken connection, data of another attempt must not follow on it.
    """

    def __init__(
        self, context: Context, keys: WorkerKeys, max_frame_bytes: int, worker_id: str, host: str | None
    ) -> None:
        self._context = context
        self._keys = keys
        self._max_frame_bytes = max_frame_bytes
        self._worker_id = worker_id
        self._host = host
        self._links: dict[tuple[int, str], DataLink] = {}

    def connect(self, attempt: int, peers: Mapping[str, str]) -> None:
        """Connect to each of these peers (id to address) for an attempt, unless there is a link already.

        Raises:
            ProtocolError: if an address is malformed.
        """
        for peer, address in peers.items():
            if (attempt, peer) not in self._links:
                self._links[attempt, peer] = DataLink(
                    self._context, self._keys, self._max_frame_bytes, self._worker_id, peer, address, self._host
                )

    def keep_attempts(self, attempts: Collection[int]) -> None:
        """Close the links of all other attempts."""
        for (attempt, peer), link in list(self._links.items()):
            if attempt not in attempts:
                del self._links[attempt, peer]
                link.close()

    def to(self, worker_id: str, attempt: int) -> DataLink | None:
        """Return the link to a peer; log a line and return None if the attempt has no such link or is over."""
        link = self._links.get((attempt, worker_id))
        if link is None:
            logger.info("data for worker %r is dropped: attempt %d has no link to it", worker_id, attempt)
        return link

    def check(self) -> list[tuple[str, int, str]]:
        """Return the links that broke since the last call: peer, attempt and reason."""
        return [
            (peer, attempt, reason)
            for (attempt, peer), link in self._links.items()
            if (reason := link.check()) is not None
        ]

    def close(self) -> None:
        """Close all links."""
        self.keep_attempts(())


# Short, because the length of a path is limited.
_PREFIX = "pstk-"
_NAME = "data"


class LocalPort:
    """A Unix socket in a new directory that only this user may enter. If that fails, there is a log line instead.

    Args:
        server: a socket set up by `bind_server`, whose authentication covers the Unix socket as well.
    """

    path: str | None

    def __init__(self, server: Socket) -> None:
        assert server.curve_server, "a local port would admit anyone"
        self.path = None
        self._directory: str | None = None
        reasons = []
        for folder in _folders():
            try:
                self._directory = os.path.abspath(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))  # mode 0700
                self.path = _listen(server, os.path.join(self._directory, _NAME))
                return
            except (OSError, zmq.ZMQError, UnicodeError) as error:
                reasons.append(str(error))
                self.close()
        logger.info(
            "workers on this host reach this one over tcp, because it has no Unix socket: %s", "; ".join(reasons)
        )

    def close(self) -> None:
        """Remove the directory. First close the server and wait for it. A second call does nothing."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


def _folders() -> list[str | None]:
    """Return the candidate directories, best first.

    Spark removes its own directory at its end even if a worker was killed.
    """
    of_spark = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return [of_spark, None] if of_spark else [None]


def _listen(server: Socket, path: str) -> str:
    if len(os.fsencode(path)) > LOCAL_PATH_BYTES_MAX:
        raise OSError(errno.ENAMETOOLONG, f"longer than {LOCAL_PATH_BYTES_MAX} bytes", path)
    server.bind(f"ipc://{path}")
    os.chmod(path, 0o600)  # the directory keeps other users out; the file need not allow more
    return path
