"""Connections from one worker to its peers, over which all channels between the two run."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping, Sequence

import zmq

from penstock.drivers.spark.data_address import endpoint_of, is_socket
from penstock.drivers.spark.keys import WorkerKeys
from penstock.drivers.spark.sockets import Context, LinkMonitor, connect_client
from penstock.wire.payload import Frame
from penstock.wire.streams import StreamSender

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 60.0
_NOBLOCK = int(zmq.NOBLOCK)  # plain ints: an enum's operators take longer than sending
_NOBLOCK_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)


class DataLink:
    """One connection to one peer, until it breaks; after that, everything sent is lost."""

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
        endpoint = endpoint_of(peer, address, host, is_socket)
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
        """Hand frames to ZeroMQ's own thread; never blocks."""
        if not self._closed:
            # Again: the connection is gone, as the monitor will tell.
            with contextlib.suppress(zmq.Again):
                for frame in frames[:-1]:
                    self._socket.send(frame, _NOBLOCK_MORE)
                self._socket.send(frames[-1], _NOBLOCK)

    def check(self) -> str | None:
        """Why the link has broken, told once; it is closed then."""
        if self._closed or (reason := self._monitor.broken()) is None:
            return None
        self.close()
        return reason

    def close(self) -> None:
        """Drop what was not sent yet."""
        if not self._closed:
            self._closed = True
            self._monitor.close()
            self._socket.close(linger=0)


class DataLinks:
    """A worker's links by the id of the peer. `host` is the identity of the worker's host, if it has one."""

    def __init__(
        self, context: Context, keys: WorkerKeys, max_frame_bytes: int, worker_id: str, host: str | None
    ) -> None:
        self._context = context
        self._keys = keys
        self._max_frame_bytes = max_frame_bytes
        self._worker_id = worker_id
        self._host = host
        self._links: dict[str, DataLink] = {}

    def connect(self, peers: Mapping[str, str]) -> None:
        """Have a link to each of these peers (id to address), and to no other.

        Raises:
            ProtocolError: if an address is malformed.
        """
        for peer, link in list(self._links.items()):
            if peers.get(peer) != link.address:
                del self._links[peer]
                link.close()
        for peer, address in peers.items():
            if peer not in self._links:
                self._links[peer] = DataLink(
                    self._context, self._keys, self._max_frame_bytes, self._worker_id, peer, address, self._host
                )

    def to(self, worker_id: str) -> DataLink | None:
        """The link to a peer; None, and a line in the log, when the peer was never named or is no longer named."""
        link = self._links.get(worker_id)
        if link is None:
            logger.info("data for worker %r is dropped: it is not among the peers", worker_id)
        return link

    def check(self) -> list[tuple[str, str]]:
        """Links that broke since the last look: peer and reason."""
        return [(link.peer, reason) for link in self._links.values() if (reason := link.check()) is not None]

    def close(self) -> None:
        """Close all links."""
        self.connect({})
