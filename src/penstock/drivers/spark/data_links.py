"""Connections from one worker to its peers; each carries all channels between the two.

The data address of a worker: its tcp address, and for peers on the same host a Unix socket as well.

The two travel as one string: `tcp://10.0.0.1:4000`, or `tcp://10.0.0.1:4000 ipc:<host>:<path>`, where `<host>` is the
identity of the host on which the path is valid.

A second address of a server socket, for processes of the same user and host: a Unix socket in the file system.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import zmq

from penstock.base.errors import ProtocolError
from penstock.drivers.spark.sockets import Context, LinkMonitor, Socket, WorkerKeys, connect_client
from penstock.wire.buffers import Frame
from penstock.wire.streams import StreamSender

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
