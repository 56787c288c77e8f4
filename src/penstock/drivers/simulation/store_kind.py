"""The kind of store that simulated jobs use: a file system that loses unsynced data, or an object store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from penstock.drivers.simulation.disk import Disk
from penstock.drivers.simulation.faults import Faults
from penstock.drivers.simulation.object_disk import ObjectDisk
from penstock.drivers.simulation.object_store import ObjectStore
from penstock.drivers.simulation.store import MemoryStore

FILES: Final = "files"
OBJECTS: Final = "objects"
KINDS: Final = (FILES, OBJECTS)
_kind = ContextVar("kind", default=FILES)


@contextmanager
def with_store(kind: str) -> Iterator[None]:
    """Give histories that begin within this context a store of one of KINDS."""
    token = _kind.set(kind)
    try:
        yield
    finally:
        _kind.reset(token)


def make_disk(world: str, faults: Faults) -> Disk:
    """Create the disk of a history."""
    return ObjectDisk(world, faults) if _kind.get() == OBJECTS else Disk()


def make_store(disk: Disk, job_id: str, inline_bytes_max: int, faults: Faults) -> MemoryStore:
    """Create a job's store on a disk."""
    if isinstance(disk, ObjectDisk):
        return ObjectStore(disk, job_id, inline_bytes_max, faults)
    return MemoryStore(disk, job_id, inline_bytes_max, faults)
