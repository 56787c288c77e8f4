"""Fixtures for tests of operators."""

from __future__ import annotations

import pytest
from tests.state.rocks import CanonicalRocks

from penstock.testing import operator_harness


@pytest.fixture(params=["hashmap", "rocksdb"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Harnesses keep their state in each of the backends."""
    if request.param == "rocksdb":
        monkeypatch.setattr(operator_harness, "HeapKeyedStateBackend", CanonicalRocks)
    return str(request.param)
