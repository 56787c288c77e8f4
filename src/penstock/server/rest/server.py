"""The server of the REST API: uvicorn in a thread, until the process ends. `http_server` bounds its connections."""

from __future__ import annotations

import atexit
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from typing import Final

import uvicorn
from starlette.applications import Starlette

from penstock.base.configuration import Configuration
from penstock.base.errors import OperationError
from penstock.base.options import SHUTDOWN_ON_APPLICATION_FINISH
from penstock.connectors.http_server import BoundedSocket, build_config, connections_max
from penstock.drivers.logs import log_to_stderr_by_default
from penstock.server.dispatcher import Dispatcher
from penstock.server.metrics.metric_store import MetricStore
from penstock.server.rest.application import application
from penstock.server.rest.calls.context import RestContext, RestSettings
from penstock.server.session.channel import Programs

_log = logging.getLogger("penstock.rest")

#: How long (s) the server may take to start.
_START_SECONDS: Final = 30.0
#: How long (s) jobs may take to cancel when the cluster shuts down.
_END_SECONDS: Final = 60.0
#: How long (s) a connection may be idle.
_KEEP_ALIVE_SECONDS: Final = 5


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
        config = build_config(
            build(context, settings),
            self._socket,
            _KEEP_ALIVE_SECONDS,
            settings.certificate,
            settings.key,
            settings.key_password,
        )
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
