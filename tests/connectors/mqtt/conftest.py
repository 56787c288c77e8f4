"""One server for a module; each test has a topic of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from tests.servers.queues import MosquittoServer, mosquitto_server

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[MosquittoServer]:
    with mosquitto_server() as started:
        yield started


@pytest.fixture
def topic() -> str:
    """The name of a topic that does not exist."""
    return f"cups/{next(_NUMBERS)}"
