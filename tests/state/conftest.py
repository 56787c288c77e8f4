"""What tests of state share."""

import pytest
from tests.state.rocks import FolderRocks

from penstock.testing import operator_harness


@pytest.fixture(params=["heap", "rocksdb"])
def each_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The harness keeps its state on the heap, and then in RocksDB, whose own files its snapshots hold."""
    name: str = request.param
    if name == "rocksdb":
        monkeypatch.setattr(operator_harness, "HeapKeyedStateBackend", FolderRocks)
    return name
