"""One server for a module, and a database for a test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.servers.postgres import PostgresServer, postgres_server


@dataclass
class Database:
    """A database that only one test uses."""

    server: PostgresServer
    name: str

    @property
    def url(self) -> str:
        return self.server.url(self.name)

    @property
    def jdbc_url(self) -> str:
        return self.server.jdbc_url(self.name)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.execute(statement, self.name)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        yield started


@pytest.fixture
def database(server: PostgresServer) -> Database:
    return Database(server, server.new_database())
