"""A real PostgreSQL server on a port of loopback, which tests may kill, suspend and start again.

It has a directory of its own below the system's temporary one: initdb refuses root, so root runs it as the user
`postgres`, who may not enter the directories that pytest makes.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

ROOT = Path(__file__).parents[2]
USER = "postgres"
#: What a kill -9 of the server must not lose has been written to the operating system, so fsync can be off.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "32MB",
    "wal_level": "logical",
    "max_connections": "100",
    "max_wal_senders": "20",
    "max_replication_slots": "50",
    "max_prepared_transactions": "20",
    "min_wal_size": "32MB",
    "jit": "off",
}


class PostgresServer:
    """Call `start`; what was committed is there when it starts again after `kill`."""

    def __init__(self, programs: Path, directory: Path) -> None:
        self._programs = programs
        self._data = directory / "data"
        self._log = directory / "log"
        self._numbers = itertools.count()
        self._settings = dict(SETTINGS)
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            account = pwd.getpwnam(USER)
            os.chown(directory, account.pw_uid, account.pw_gid)
            self._user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self._suspended: list[int] = []
        command = [programs / "initdb", "-D", self._data, "-U", USER, "--auth=trust", "--no-sync", "--encoding=UTF8"]
        done = subprocess.run(
            [*map(str, command), "--locale=C"], capture_output=True, text=True, check=False, cwd="/", **self._user
        )
        assert done.returncode == 0, done.stderr

    def url(self, database: str = USER) -> str:
        """As psycopg takes it."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def jdbc_url(self, database: str = USER) -> str:
        """As JDBC takes it."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = USER) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection that commits each statement."""
        return psycopg.connect(self.url(database), autocommit=True)

    def execute(self, statement: str, database: str = USER) -> list[tuple[Any, ...]]:
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
        self._settings |= settings
        deadline = time.monotonic() + 60
        while not self._starts():
            assert time.monotonic() < deadline, self._log.read_text()[-4000:]
            time.sleep(0.05)  # what is left of a killed server still holds its memory

    def _starts(self) -> bool:
        options = [part for key, value in self._settings.items() for part in ("-c", f"{key}={value}")]
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port), *options]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **self._user)
        while self._process.poll() is None:
            try:
                self.connect().close()
                return True
            except psycopg.OperationalError:
                time.sleep(0.02)
        return False

    def _family(self) -> list[int]:
        """The server's processes, its first one first."""
        assert self._process is not None, "PostgreSQL does not run"
        parent = str(self._process.pid)
        found = [self._process.pid]
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
        if self._process is not None:
            for pid in self._family():
                _signal(pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

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
def postgres_server(**settings: str) -> Iterator[PostgresServer]:
    """One that answers. Skips the test where there is no PostgreSQL; `scripts/postgres` says how to get it."""
    found = subprocess.run([ROOT / "scripts" / "postgres"], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(found.stderr)
    directory = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
    try:
        server = PostgresServer(Path(found.stdout.strip()), directory)
        try:
            server.start(**settings)
            yield server
        finally:
            server.resume()
            server.kill()
    finally:
        shutil.rmtree(directory)
