"""Where jobs of tests keep their files: what the store of checkpoints holds, and what RocksDB has on its disk."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Places(NamedTuple):
    """`store`: checkpoints and savepoints. `local`: what needs a disk of this machine."""

    store: Path
    local: Path
