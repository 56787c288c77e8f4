"""Fixtures of operators of tables."""

from __future__ import annotations

import pytest
from tests.state.rocks import CanonicalRocks

from penstock.state.backend import HeapKeyedStateBackend
from penstock.testing import operator_harness


@pytest.fixture(params=[HeapKeyedStateBackend, CanonicalRocks])
def each_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """State of harnesses is on the heap, or in RocksDB."""
    monkeypatch.setattr(operator_harness, "HeapKeyedStateBackend", request.param)
