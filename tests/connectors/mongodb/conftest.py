"""One server for a module; each test begins with an empty database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.servers.mongodb import MongoServer, mongo_server


@pytest.fixture(scope="module", name="running")
def fixture_running() -> Iterator[MongoServer]:
    with mongo_server() as started:
        yield started


@pytest.fixture
def server(running: MongoServer) -> MongoServer:
    return running


@pytest.fixture
def database(server: MongoServer) -> Iterator[Any]:
    client = server.connect()
    client.drop_database("shop")
    yield client["shop"]
    client.close()
