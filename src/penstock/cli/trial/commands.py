"""`penstock try kafka`, `postgres`, `mysql`, `redis` and `opensearch`: run a server in the foreground.

`serve` starts the server, prints its address, and stops it when the command ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Final, Protocol

from rich.console import Console

from penstock.base.errors import OperationError, ResourceError
from penstock.cli.demo.run import busy
from penstock.cli.trial import mysql, opensearch
from penstock.cli.trial import servers as kafka
from penstock.cli.trial import servers as postgres
from penstock.cli.trial import servers as redis

START_TIMEOUT_S: Final = 120
_LOOK_EVERY_S: Final = 0.1
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Server(Protocol):
    """The server to run."""

    log: Path
    process: Popen[bytes] | None

    def launch(self) -> None:
        """Start the process without waiting."""

    def is_ready(self) -> bool:
        """Return whether the server is ready."""

    def stop(self) -> None:
        """Stop the server."""


def serve(name: str, address: str, port: int, make: Callable[[Path], Server], console: Console) -> None:
    """Run a server until SIGINT, SIGTERM or SIGHUP arrives, then delete its data.

    Args:
        name: the server's name.
        address: the address to show to users.
        port: the port to listen on.
        make: creates the server, not yet running, with a directory for its data.
        console: where messages are printed.

    Raises:
        PenstockError: if it cannot be started, or exits by itself.
    """
    for number in _ENDING:
        signal.signal(number, signal.default_int_handler)
    check_port(port)
    folder = Path(tempfile.mkdtemp(prefix="penstock-try-"))
    try:
        with _started(name, make, folder, console) as server:
            console.print(f"{name} serves at {address}", highlight=False, soft_wrap=True)
            console.print("Ctrl-C ends it and removes what it holds", highlight=False, soft_wrap=True)
            assert server.process is not None
            server.process.wait()
            raise OperationError(f"{name} has ended:\n{_read_tail(server.log)}")
    except KeyboardInterrupt:
        console.print(f"{name} has ended")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _started(name: str, make: Callable[[Path], Server], folder: Path, console: Console) -> Iterator[Server]:
    console.print(f"starting {name}", highlight=False)
    server = make(folder)
    try:
        server.launch()
        await_ready(name, server)
        yield server
    finally:
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C would leave the server running
        server.stop()


def await_ready(name: str, server: Server) -> None:
    """Wait until the server is ready.

    Raises:
        OperationError: if it exits, or is not ready in time; the message includes the end of its log.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while not server.is_ready():
        assert server.process is not None
        if server.process.poll() is not None or time.monotonic() > deadline:
            raise OperationError(f"{name} does not start:\n{_read_tail(server.log)}")
        time.sleep(_LOOK_EVERY_S)


def check_port(port: int) -> None:
    """Raise `ResourceError` unless the loopback port is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ResourceError(
                f"port {port} of 127.0.0.1 cannot be had ({error.strerror}): name another with --port"
            ) from None


def free_port() -> int:
    """Return a loopback port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _read_tail(log: Path) -> str:
    try:
        return log.read_text(errors="replace")[-4000:]
    except FileNotFoundError:
        return ""


_KAFKA_HEAP_MB: Final = 512


def try_kafka(port: int, console: Console) -> None:
    """Run Kafka until a signal ends it. Raises `PenstockError` if it cannot be run."""
    from penstock.connectors.kafka.client import require_library

    require_library()
    check_port(port)
    if not kafka.is_installed():
        with busy(console, f"fetching Kafka {kafka.VERSION} from Maven Central, once"):
            kafka.installation()

    def make(folder: Path) -> kafka.KafkaBroker:
        return kafka.KafkaBroker(1, {1: (port, free_port())}, folder, kafka.FOR_USERS, _KAFKA_HEAP_MB)

    serve(f"Kafka {kafka.VERSION}", f"localhost:{port}", port, make, console)


def try_postgres(port: int, console: Console) -> None:
    """Run PostgreSQL until a signal ends it. Raises `PenstockError` if it cannot be run."""
    programs = postgres.find_programs(os.environ)

    def make(folder: Path) -> postgres.PostgresServer:
        return postgres.PostgresServer(programs, folder, port)

    address = f"postgresql://{postgres.USER}@127.0.0.1:{port}/{postgres.USER}"
    serve(f"PostgreSQL {postgres.read_server_version(programs)}", address, port, make, console)


def try_mysql(port: int, console: Console) -> None:
    """Run MariaDB or MySQL until a signal ends it. Raises `PenstockError` if it cannot be run."""
    from penstock.connectors.mysql.client import load_library

    load_library()
    programs = mysql.find_programs(os.environ)
    address = f"jdbc:{programs.dialect}://127.0.0.1:{port}/{mysql.DATABASE}?user={mysql.USER}"
    serve(programs.shown, address, port, lambda folder: mysql.MySqlServer(programs, folder, port), console)


def try_redis(port: int, console: Console) -> None:
    """Run Valkey or Redis until a signal ends it. Raises `PenstockError` if it cannot be run."""
    from penstock.connectors.redis.client import load_library

    load_library("penstock try redis")
    program = redis.find_redis(os.environ)
    name = "Redis" if program.name.startswith("redis") else "Valkey"
    serve(name, f"redis://127.0.0.1:{port}/0", port, lambda folder: redis.RedisServer(program, folder, port), console)


def try_opensearch(port: int, console: Console) -> None:
    """Run OpenSearch until a signal ends it. Raises `PenstockError` if it cannot be run."""
    check_port(port)
    if not opensearch.is_installed():
        with busy(console, f"fetching OpenSearch {opensearch.VERSION} from Maven Central, once"):
            opensearch.installation()

    def make(folder: Path) -> opensearch.OpensearchServer:
        return opensearch.OpensearchServer(folder, port, free_port())

    serve(f"OpenSearch {opensearch.VERSION}", f"http://127.0.0.1:{port}", port, make, console)
