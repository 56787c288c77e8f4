"""Which kind of store simulated jobs have: a file system that loses what was not synced, or objects."""

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
    """Let the histories that begin meanwhile have a store of one of KINDS."""
    token = _kind.set(kind)
    try:
        yield
    finally:
        _kind.reset(token)


def make_disk(world: str, faults: Faults) -> Disk:
    """The disk of a history."""
    return ObjectDisk(world, faults) if _kind.get() == OBJECTS else Disk()


def make_store(disk: Disk, job_id: str, inline_bytes_max: int, faults: Faults) -> MemoryStore:
    """A job's store on it."""
    if isinstance(disk, ObjectDisk):
        return ObjectStore(disk, job_id, inline_bytes_max, faults)
    return MemoryStore(disk, job_id, inline_bytes_max, faults)
