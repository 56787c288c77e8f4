"""The server of the REST API (uvicorn in its own thread, until the process ends), and the bounds of its connections.

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
import atexit
import contextlib
import logging
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.base.configuration import Configuration
from penstock.base.errors import OperationError
from penstock.base.options import SHUTDOWN_ON_APPLICATION_FINISH
from penstock.drivers.logs import log_to_stderr_by_default
from penstock.server.dispatcher import Dispatcher
from penstock.server.metrics.metric_store import MetricStore
from penstock.server.rest.application import application
from penstock.server.rest.calls.context import RestContext, RestSettings
from penstock.server.session.channel import Programs

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


_log = logging.getLogger("penstock.rest")

#: How long (s) the server may take to start.
_START_SECONDS: Final = 30.0
#: How long (s) jobs may take to cancel when the cluster shuts down.
_END_SECONDS: Final = 60.0
#: The length of the socket's queue of connections that wait to be accepted.
_BACKLOG: Final = 128


class RestServer:
    """A running server.

    Args:
        context: what its handlers share.
        settings: where it listens, and who may access it.
        build: returns the application.
        title: what the log calls it.
    """

    def __init__(
        self,
        context: RestContext,
        settings: RestSettings,
        build: Callable[[RestContext, RestSettings], Starlette] = application,
        title: str = "REST API",
    ) -> None:
        self.context = context
        self._title = title
        self.settings = settings
        self._socket = _bound(settings)
        context.port = self._socket.getsockname()[1]
        context.shut_down = self._shut_down
        config = uvicorn.Config(
            build(context, settings),
            log_config=None,
            lifespan="off",
            access_log=False,
            server_header=False,
            ws="none",
            loop="asyncio",
            http=build_protocol(self._socket),
            backlog=_BACKLOG,
            timeout_keep_alive=5,
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.key,
            ssl_keyfile_password=settings.key_password,
        )
        uvicorn_log = logging.getLogger("uvicorn")
        if uvicorn_log.level == logging.NOTSET:  # it would log a warning for each request that is not HTTP
            uvicorn_log.setLevel(logging.ERROR)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="penstock-rest", daemon=True)
        self._failure: BaseException | None = None

    @property
    def url(self) -> str:
        """The server's URL."""
        scheme = "http" if self.settings.certificate is None else "https"
        host = self.settings.address or self.settings.bind_address
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.context.port}"

    def start(self) -> None:
        """Start the server, and return when it answers.

        Raises:
            OperationError: if it cannot start.
        """
        self._thread.start()
        pause = threading.Event()
        for _ in range(int(_START_SECONDS * 100)):
            if self._server.started or not self._thread.is_alive():
                break
            pause.wait(0.01)
        if not self._server.started:
            raise OperationError(f"the {self._title} at {self.url} does not start: {self._failure}")
        _log.info("%s at %s", self._title, self.url)

    def stop(self) -> None:
        """Stop the server, and wait until it has ended."""
        self._server.should_exit = True
        self._thread.join(10.0)
        self._socket.close()

    def stop_at_exit(self) -> None:
        """Free the port when the interpreter exits, before all handlers registered so far, such as Spark's shutdown."""
        atexit.unregister(self.stop)
        atexit.register(self.stop)

    def stay(self) -> None:
        """Keep serving after the program has ended, until the server is stopped.

        A non-daemon thread waits for the server, and the interpreter waits for that thread.
        """
        threading.Thread(target=self._stay, name="penstock-rest-stays").start()

    def _stay(self) -> None:
        threading.main_thread().join()
        if self._thread.is_alive():
            _log.info(
                "the program has ended, and the REST API goes on at %s (%s is false): Ctrl-C, SIGTERM or "
                "DELETE /cluster ends it",
                self.url,
                SHUTDOWN_ON_APPLICATION_FINISH.key(),
            )
        self._thread.join()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except BaseException as error:  # noqa: BLE001 - the thread that starts it tells
            self._failure = error

    def _shut_down(self) -> None:
        threading.Thread(target=self._end_all, name="penstock-rest-end", daemon=True).start()

    def _end_all(self) -> None:
        results = []
        for job in self.context.dispatcher.jobs():
            if not job.has_ended:
                job.handle.cancel()
                results.append(job.handle.get_job_execution_result())
        wait(results, _END_SECONDS)
        self._server.should_exit = True


def _bound(settings: RestSettings) -> BoundedSocket:
    """Bind a socket to the first free port."""
    refused: OSError | None = None
    family = socket.AF_INET6 if ":" in settings.bind_address else socket.AF_INET
    for port in _ports(settings.ports):
        sock = BoundedSocket(family, socket.SOCK_STREAM, connections_max())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((settings.bind_address, port))
        except OSError as error:
            refused = error
            sock.close()
            continue
        return sock
    raise OperationError(f"none of the ports {settings.ports} at {settings.bind_address} is free: {refused}")


def _ports(text: str) -> Iterator[int]:
    for part in text.split(","):
        low, _, high = part.partition("-")
        yield from range(int(low), int(high or low) + 1)


#: The servers of this process: one, except in tests.
servers: Final[list[RestServer]] = []


def serve(dispatcher: Dispatcher, configuration: Configuration, programs: Programs | None = None) -> RestServer:
    """Start a server for the jobs of a dispatcher; with `programs`, it also takes programs.

    Raises:
        ConfigurationError: if the settings contradict each other, or are not safe.
        OperationError: if no port is free.
    """
    settings = RestSettings.of(configuration)
    context = RestContext(dispatcher, configuration, MetricStore.of(dispatcher), programs=programs)
    server = RestServer(context, settings)
    context.own.listen()
    log_to_stderr_by_default()  # the user needs to see the address, and no job may have started yet
    server.start()
    servers.append(server)
    return server
