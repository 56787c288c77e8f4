"""A fake service for a test, and one real server for a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.connectors.opensearch.service import FakeService, fake_service
from tests.servers.opensearch import Opensearch, opensearch_server

from penstock.base.errors import PenstockError
from penstock.cli.trial.opensearch import installation


@pytest.fixture
def service() -> Iterator[FakeService]:
    with fake_service() as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opensearch]:
    try:
        installation()
    except PenstockError as error:
        pytest.skip(f"OpenSearch cannot be installed: {error}")
    with opensearch_server(Path(tmp_path_factory.mktemp("opensearch"))) as running:
        yield running
