"""Bounds of HTTP servers in this process: how many connections they have, and how long each may keep them waiting.

`BoundedSocket` limits the number of connections, and `build_protocol` how long each may keep the server waiting. A
connection costs the process a file descriptor, and its jobs need descriptors for checkpoints and workers. So
connections take at most a quarter of the limit (`ulimit -n`), and never more than 256 descriptors. At the limit, a new
connection replaces the oldest idle one, or is closed if all are busy. Up to 8 replaced connections may not be closed
yet.

A client has 10 s to send the head of a request. After that, a body must not pause for as long, and the client must read
the answer. Uvicorn itself ends only connections that are idle after an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import threading
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

#: The maximum number of connections, and their share of the descriptor limit.
CONNECTIONS_MAX: Final = 256
CONNECTIONS_MIN: Final = 8
SHARE_OF_DESCRIPTORS: Final = 4
#: The maximum number of ended connections whose descriptors are still open.
ENDING_MAX: Final = 8
#: How long (s) a client may take for the head of a request, and how long a body may pause.
HEAD_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 10.0
#: How long (s) a whole body may take, and how long a client may read nothing of an answer.
BODY_SECONDS: Final = 600.0
READ_SECONDS: Final = 30.0
#: How often (s) a connection is checked.
LOOK_SECONDS: Final = 1.0
#: The length of a socket's queue of connections that wait to be accepted.
BACKLOG: Final = 128


def connections_max() -> int:
    """Return the number of connections that this process can afford."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return max(CONNECTIONS_MIN, min(CONNECTIONS_MAX, limit // SHARE_OF_DESCRIPTORS))


class BoundedSocket(socket.socket):
    """A listening socket with a bound on its open connections."""

    def __init__(self, family: int, kind: int, count_max: int) -> None:
        super().__init__(family, kind)
        self._count_max = count_max
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        #: ended connections, until their transports have closed them
        self._ending: list[socket.socket] = []
        #: descriptors of connections with a request in progress
        self._busy: set[int] = set()

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection.

        Raises:
            ConnectionAbortedError: if all connections are busy; the event loop continues.
            BlockingIOError: if the event loop must close others first. It accepts about a hundred connections per turn,
                and closes none in between.
        """
        with self._lock:
            self._ending = [connection for connection in self._ending if connection.fileno() != -1]
            if len(self._ending) >= ENDING_MAX:
                raise BlockingIOError("ended connections are still open")
        connection, address = super().accept()
        with self._lock:
            self._open = [connection for connection in self._open if connection.fileno() != -1]
            if len(self._open) >= self._count_max and not self._close_idle():
                connection.close()
                raise ConnectionAbortedError("too many connections")
            self._busy.discard(connection.fileno())
            self._open.append(connection)
        return connection, address

    def set_busy(self, descriptor: int, is_busy: bool) -> None:
        """Record whether a connection has a request in progress."""
        with self._lock:
            (self._busy.add if is_busy else self._busy.discard)(descriptor)

    def _close_idle(self) -> bool:
        """End the oldest connection without a request in progress; return whether there was one."""
        for index, connection in enumerate(self._open):
            if connection.fileno() not in self._busy:
                self._ending.append(self._open.pop(index))
                with contextlib.suppress(OSError):  # the client was faster
                    connection.shutdown(socket.SHUT_RDWR)  # its transport sees the end and closes it
                return True
        return False


def build_config(
    application: Any,
    listener: BoundedSocket,
    keep_alive_s: int,
    certificate: str | None = None,
    key: str | None = None,
    key_password: str | None = None,
    **more: Any,
) -> uvicorn.Config:
    """Return how uvicorn serves an application on this listener. It logs errors only, unless its logger has a level.

    Args:
        application: the application, ASGI.
        listener: the socket.
        keep_alive_s: how long a connection may be idle.
        certificate: the file with the server's certificate; None for no TLS.
        key: the file with its key.
        key_password: the password of the key.
        **more: further settings of `uvicorn.Config`.
    """
    log = logging.getLogger("uvicorn")
    if log.level == logging.NOTSET:  # it would log a warning for each request that is not HTTP
        log.setLevel(logging.ERROR)
    return uvicorn.Config(
        application,
        log_config=None,
        lifespan="off",
        access_log=False,
        server_header=False,
        ws="none",
        loop="asyncio",
        http=build_protocol(listener),
        backlog=BACKLOG,
        timeout_keep_alive=keep_alive_s,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        ssl_keyfile_password=key_password,
        **more,
    )


def build_protocol(listener: BoundedSocket) -> type[H11Protocol]:
    """Return the HTTP protocol for connections of this listener, with deadlines."""

    class DeadlineProtocol(H11Protocol):
        """See the module's docstring."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """Start to check the connection."""
            super().connection_made(transport)
            self._descriptor: int = transport.get_extra_info("socket").fileno()
            self._seen: object = None
            self._waits_since = self._data_at = self._request_at = self._read_at = self.loop.time()
            self._unread = 0
            self._watch = self.loop.call_later(LOOK_SECONDS, self._look)

        def connection_lost(self, exc: Exception | None) -> None:
            """Stop checking."""
            self._watch.cancel()
            listener.set_busy(self._descriptor, False)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            """Handle received bytes."""
            self._data_at = self.loop.time()
            super().data_received(data)
            if self.cycle is not self._seen:
                self._seen, self._request_at = self.cycle, self._data_at
            listener.set_busy(self._descriptor, self._is_at_work)

        def on_response_complete(self) -> None:
            """Wait for the next request."""
            self._waits_since = self.loop.time()
            listener.set_busy(self._descriptor, False)
            super().on_response_complete()

        @property
        def _is_at_work(self) -> bool:
            cycle: Any = self.cycle  # None before the first request
            return cycle is not None and not cycle.response_complete

        def _look(self) -> None:
            if self.transport.is_closing() and not self.transport.get_write_buffer_size():
                return
            if self._is_late(self.loop.time()):
                self.transport.abort()
            else:
                self._watch = self.loop.call_later(LOOK_SECONDS, self._look)

        def _is_late(self, now: float) -> bool:
            unread = self.transport.get_write_buffer_size()
            if unread == 0 or unread < self._unread:
                self._read_at = now
            self._unread = unread
            if now - self._read_at >= READ_SECONDS:
                return True
            if not self._is_at_work:
                return unread == 0 and now - self._waits_since >= HEAD_SECONDS
            is_sending = self.cycle.more_body and not self.flow.read_paused
            return is_sending and (now - self._data_at >= PAUSE_SECONDS or now - self._request_at >= BODY_SECONDS)

    return DeadlineProtocol
