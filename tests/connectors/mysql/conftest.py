"""One server for a module, and a database for a test. Tests run on MariaDB, and on MySQL where it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.servers.mysql import MARIADB, MYSQL, USER, MySqlServer, mysql_server

from penstock.connectors.mysql import client


@dataclass
class Database:
    """A database that only one test uses."""

    server: MySqlServer
    name: str

    @property
    def url(self) -> str:
        return f"jdbc:{self.server.dialect}://127.0.0.1:{self.server.port}/{self.name}?user={USER}"

    @property
    def address(self) -> client.MySqlAddress:
        return self.server.address(self.name)

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements; the rows of the last, if it has any."""
        connection = self.server.connect(self.name)
        try:
            return [client.query(connection, statement) for statement in statements][-1]
        finally:
            connection.close()


@pytest.fixture(scope="module", params=[MARIADB, MYSQL])
def server(request: pytest.FixtureRequest) -> Iterator[MySqlServer]:
    with mysql_server(request.param) as started:
        yield started


@pytest.fixture
def database(server: MySqlServer) -> Database:
    return Database(server, server.new_database())
