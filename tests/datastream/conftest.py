"""Places for whole jobs in virtual time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.datastream.places import Places
from tests.servers.s3 import S3Server
from tests.state.rocks import MEMORY


@pytest.fixture
def places(store: S3Server | None, store_directory: Path) -> Iterator[Places]:
    """In memory where there is such a place, but for what lies in S3: RocksDB waits for its disk."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        yield Places(Path(name) if store is None else store_directory, Path(name))
