"""One server of each kind for a module; tests use streams, tables and queues of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.servers.aws import AwsServer, kinesis_server, moto_server, queue_server


@pytest.fixture(scope="module")
def kinesis() -> Iterator[AwsServer]:
    with kinesis_server() as server:
        yield server


@pytest.fixture(scope="module")
def moto() -> Iterator[AwsServer]:
    with moto_server() as server:
        yield server


@pytest.fixture(scope="module")
def queues() -> Iterator[AwsServer]:
    with queue_server() as server:
        yield server
