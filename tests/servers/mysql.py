"""A real MariaDB or MySQL server on a port of loopback, which tests may kill, suspend and start again.

`make mysql` says how to get MariaDB. Tests of MySQL are skipped where there is none: SERVER_CACHE, or else
`~/.cache/test-servers`, may have one unpacked in `mysql`, see `penstock.cli.trial.mysql`.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.servers.ports import free_port

from penstock.base.errors import PenstockError
from penstock.cli.trial import mysql
from penstock.cli.trial.mysql import DATABASE, MARIADB, MYSQL, SETTINGS, USER, Programs
from penstock.connectors.mysql import client

_WAIT_S = 90.0


def find_server(dialect: str | None = None) -> Programs:
    """The program of a server. Raises `MissingPathError` without one."""
    unpacked = Path(os.environ.get("SERVER_CACHE") or Path.home() / ".cache" / "test-servers")
    return mysql.find_programs(os.environ, dialect, sorted(unpacked.glob("m[ay]*")))


class MySqlServer(mysql.MySqlServer):
    """Call `start`; what was committed is there when it starts again after `kill`."""

    def __init__(self, programs: Programs, directory: Path, settings: Mapping[str, str] = SETTINGS) -> None:
        super().__init__(programs, directory, free_port(), settings)
        self._numbers = itertools.count()

    @property
    def dialect(self) -> str:
        """`mariadb` or `mysql`."""
        return self.programs.dialect

    def address(self, database: str | None = DATABASE) -> client.MySqlAddress:
        return client.MySqlAddress("127.0.0.1", self.port, USER, database=database, dialect=self.dialect)

    def connect(self, database: str | None = DATABASE, **more: Any) -> Any:
        """A connection that commits each statement, with the settings of the connectors."""
        return client.connect(self.address(database), **more)

    def execute(self, statement: str, database: str | None = DATABASE) -> list[tuple[Any, ...]]:
        """Run a statement; its rows, if it has any."""
        connection = self.connect(database)
        try:
            return client.query(connection, statement)
        finally:
            connection.close()

    def new_database(self) -> str:
        """The name of an empty database that nobody else uses."""
        name = f"db{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4", None)
        return name

    def start(self, **settings: str) -> None:
        """Return when it answers. Settings stay for later starts; `_` stands for `-` in their names."""
        self.settings |= {key.replace("_", "-"): value for key, value in settings.items()}
        self.launch()
        assert self.process is not None
        deadline = time.monotonic() + _WAIT_S
        while not self.is_ready():
            assert self.process.poll() is None, self.log.read_text(errors="replace")[-4000:]
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.05)

    def kill(self) -> None:
        """As by kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def suspend(self) -> None:
        """It keeps its connections, and does nothing, until `resume`."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def restart(self, **settings: str) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start(**settings)


@contextmanager
def mysql_server(dialect: str | None = None, **settings: str) -> Iterator[MySqlServer]:
    """One that answers; by default MariaDB, or else MySQL. Skips the test where there is no server or no client."""
    pytest.importorskip("pymysql", reason="the package PyMySQL is not installed: pip install 'penstock-streams[mysql]'")
    try:
        programs = find_server(dialect)
    except PenstockError as error:
        pytest.skip(str(error))
    directory = Path(tempfile.mkdtemp(prefix="penstock-mysql-"))
    try:
        server = MySqlServer(programs, directory)
        try:
            server.start(**settings)
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(directory)


__all__ = ["MARIADB", "MYSQL", "USER", "MySqlServer", "find_server", "mysql_server"]
