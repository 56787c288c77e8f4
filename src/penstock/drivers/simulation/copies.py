"""Local copies of state files in a simulated worker, on a disk that loses or damages some and is sometimes full."""

from __future__ import annotations

import random
from collections import Counter

from penstock.core.ports import StateStorage
from penstock.drivers.simulation.store import MemoryStore
from penstock.storage.local_copies import LocalCopies


def build_storage(worker_id: str, store: MemoryStore, seen: Counter[str]) -> StateStorage:
    """Return a worker's state storage; every other job has copies. Its own random numbers keep other draws stable."""
    if random.Random(f"copies of {store.job_id}").random() < 0.5:
        return store
    disk = LossyDisk(random.Random(f"copies of {store.job_id} in {worker_id}"), seen)
    return LocalCopies(store, disk, warn=lambda line: None)


class LossyDisk(dict[str, bytes]):
    """Bytes by path. Its faults must never have a visible effect."""

    def __init__(self, chance: random.Random, seen: Counter[str]) -> None:
        super().__init__()
        self._chance = chance
        self._seen = seen

    def __setitem__(self, path: str, data: bytes) -> None:
        fate = self._chance.random()
        if fate < 0.05:
            self._seen["copy-refused"] += 1
            raise OSError("planned: the disk is full")
        super().__setitem__(path, data[: len(data) // 2] if fate < 0.1 else data)

    def __getitem__(self, path: str) -> bytes:
        data, fate = super().__getitem__(path), self._chance.random()
        if fate < 0.05:
            self._seen["copy-unreadable"] += 1
            raise OSError("planned: the disk cannot be read")
        if fate < 0.15:
            self._seen["copy-damaged"] += 1
            return data[:-1] + bytes([data[-1] ^ 1])
        self._seen["copy-used"] += 1
        return data
