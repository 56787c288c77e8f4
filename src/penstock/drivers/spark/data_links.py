"""Connections from one worker to its peers; each carries all channels between the two."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Collection, Mapping, Sequence

import zmq

from penstock.drivers.spark.data_address import is_socket, select_endpoint
from penstock.drivers.spark.keys import WorkerKeys
from penstock.drivers.spark.sockets import Context, LinkMonitor, connect_client
from penstock.wire.payload import Frame
from penstock.wire.streams import StreamSender

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
