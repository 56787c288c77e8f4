"""One server for a module; each test begins with an empty database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.servers.redis import RedisServer, redis_server


@pytest.fixture(scope="module", name="running")
def fixture_running() -> Iterator[RedisServer]:
    with redis_server() as started:
        yield started


@pytest.fixture
def server(running: RedisServer) -> RedisServer:
    running.call(("FLUSHALL",))
    return running
