"""ClickHouse's engine, chDB, behind an HTTP interface on a port of loopback, which tests may kill and start again.

chDB takes 900 MiB, so it is not among what the tests install: PENSTOCK_CHDB names the Python of an environment with the
package chdb.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from tests.servers.ports import free_port

VARIABLE: Final = "PENSTOCK_CHDB"
_WAIT_S: Final = 60.0


class ClickHouse:
    """Call `start`. It has what it confirmed when it starts again after `kill`."""

    def __init__(self, python: str, directory: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._python, self._directory = python, directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return when it answers."""
        program = Path(__file__).with_name("chdb_server.py")
        command = [self._python, "-I", str(program), str(self.port), str(self._directory / "data")]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._directory)
        deadline = time.monotonic() + _WAIT_S
        while not self._answers():
            assert self._process.poll() is None, (self._directory / "log").read_text()[-4000:]
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            self.call("SELECT 1")
        except OSError:
            return False
        return True

    def call(self, query: str) -> list[dict[str, Any]]:
        """The rows of a query; none for another statement."""
        is_select = query.lstrip().upper().startswith("SELECT")
        text = f"{query} FORMAT JSONEachRow" if is_select else query
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url, text.encode()), timeout=60) as response:
                body = response.read()
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode()) from error
        return [json.loads(line) for line in body.splitlines()] if is_select else []

    def kill(self) -> None:
        """As by kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def clickhouse_server() -> Iterator[ClickHouse]:
    """One that answers. Skips the test where there is no chDB."""
    python = os.environ.get(VARIABLE)
    if not python:
        pytest.skip(f"{VARIABLE} does not name the Python of an environment with the package chdb (900 MiB)")
    with tempfile.TemporaryDirectory(prefix="penstock-clickhouse-") as directory:
        server = ClickHouse(python, Path(directory))
        try:
            server.start()
            yield server
        finally:
            server.kill()
