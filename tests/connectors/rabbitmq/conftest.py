"""One server for a module; each test has queues of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from tests.servers.queues import RabbitServer, rabbit_server

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[RabbitServer]:
    with rabbit_server() as started:
        yield started


@pytest.fixture
def queue() -> str:
    """The name of a queue that does not exist."""
    return f"cups-{next(_NUMBERS)}"
