"""One savepoint of a local job for all tests that only read."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.state_processor.programs import take_savepoint
from tests.stores import at

from penstock.state_processor import SavepointReader


@pytest.fixture(scope="session", params=[1, 3], ids=["parallelism 1", "parallelism 3"])
def savepoint(request: pytest.FixtureRequest, new_store_directory: Callable[[], Path]) -> Path:
    """With files of its own at parallelism 1, inside the metadata at 3."""
    inline = {1: 0, 3: 20_000}[request.param]
    option = {"execution.checkpointing.data-inline-threshold": inline}
    return at(take_savepoint(new_store_directory(), request.param, **option))


@pytest.fixture
def reader(savepoint: Path) -> SavepointReader:
    return SavepointReader.read(str(savepoint))
