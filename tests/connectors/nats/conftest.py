"""One server for a module; each test has a stream of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from tests.servers.queues import NatsServer, nats_server

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with nats_server() as started:
        yield started


@pytest.fixture
def stream() -> str:
    """The name of a stream that does not exist."""
    return f"CUPS_{next(_NUMBERS)}"
