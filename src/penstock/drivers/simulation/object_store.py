"""Checkpoint storage in an object store: each file is one object, and correctness does not depend on listings.

`ObjectDisk` holds the objects of a simulation: a store without directories or renames, with stale listings and
occasional throttling. An object is complete and durable as soon as it is put, and power cuts do not affect it. Listings
may be stale: for each object put or deleted recently, a listing may show the previous state, and the next listing
decides again at random. At times the store refuses all requests for a while, as S3 does when there are too many (503,
Slow Down).

`ObjectStore` stores the files of a job. The product's own code (`storage.leadership`) finds the leader and the jobs'
remaining files, over simulated objects.

`with_store` selects the kind of store that simulated jobs use: a file system that loses unsynced data, or an object
store.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from penstock.base.errors import CheckpointError
from penstock.drivers.simulation.checkpoint_store import MemoryStore
from penstock.drivers.simulation.disk import LEADERS, METADATA, ROOT, Disk, Node, get_directory
from penstock.drivers.simulation.faults import Faults
from penstock.storage.leadership import (
    DeposedError,
    JobMark,
    KeyedLeaders,
    LeftByJobs,
    Newest,
    ids_to_note,
    mark_counts,
    metadata_to_delete,
    of_name,
    read_left,
)
from penstock.storage.metadata import (
    METADATA_NAME,
    REVOKED,
    CheckpointMetadata,
    StateFile,
    decode_metadata,
    encode_metadata,
)

#: The number of recent puts and deletions that a listing may miss.
LATE_MAX: Final = 24
#: How likely the store begins to refuse requests; at most how many it then refuses, and how often.
THROTTLING: Final = 0.0015
REFUSED_MAX: Final = 6
THROTTLINGS_MAX: Final = 6


class ObjectDisk(Disk):
    """Objects by path, in addition to all other files of the simulation."""

    def __init__(self, world: str, faults: Faults) -> None:
        super().__init__()
        self._faults = faults
        self._chance = random.Random(f"objects of {world}")
        #: the paths last put or deleted, and whether they existed before
        self._recent: deque[tuple[str, bool]] = deque(maxlen=LATE_MAX)
        self._refusals_left = 0

    def put(self, path: str, data: bytes) -> None:
        """Put an object in one step."""
        if not self._begin():
            return
        self._recent.append((path, path in self.files))
        directory = get_directory(path)
        while directory != ROOT and not self.is_directory(directory):
            self._nodes[directory] = self._device[directory] = Node(is_directory=True)
            directory = get_directory(directory)
        self._nodes[path] = self._device[path] = Node(data=data, synced=data)
        self.files[path] = data

    def unlink(self, path: str) -> None:
        was_there = path in self.files
        super().unlink(path)
        if was_there and path not in self.files:
            self._recent.append((path, True))
            self._device.pop(path, None)

    def put_savepoint(self, directory: str, data: bytes) -> None:
        """Put the metadata of a new savepoint: from now on it exists and never changes."""
        if directory in self.savepoints:
            self.violations.append(f"savepoint {directory} was written over")
        self.put(f"{directory}/{METADATA_NAME}", data)
        if not self.is_off:
            self.savepoints[directory] = data

    def listed(self) -> list[str]:
        """List all objects, possibly stale."""
        listing = dict.fromkeys(self.files)
        if not self._faults.are_over:
            for path, was_there in self._recent:
                if self._chance.random() < 1 / 2:
                    if was_there:
                        listing[path] = None
                    else:
                        listing.pop(path, None)
        return list(listing)

    def listed_below(self, directory: str) -> list[str]:
        """List the objects in a directory and below it, possibly stale."""
        return [path for path in self.listed() if path.startswith(f"{directory}/")]

    def ask(self) -> None:
        """Raise `OSError` while the store refuses requests; called before each request."""
        if self._faults.are_over:
            return
        may_begin = self._refusals_left == 0 and self._faults.seen["throttling"] < THROTTLINGS_MAX
        if may_begin and self._chance.random() < THROTTLING:
            self._faults.seen["throttling"] += 1
            self._refusals_left = self._chance.randint(1, REFUSED_MAX)
        if self._refusals_left:
            self._refusals_left -= 1
            raise OSError("planned: 503, Slow Down")


NAME = "simulated"


class DiskObjects:
    """The objects of a disk: small ones with known names. Implements `KeyedFiles`."""

    def __init__(self, disk: ObjectDisk) -> None:
        self._disk = disk

    def read(self, path: str) -> bytes | None:
        self._disk.ask()
        return self._disk.files.get(path)

    def create(self, path: str, data: bytes) -> bool:
        self._disk.ask()
        if path in self._disk.files:
            return False
        self._disk.put(path, data)
        return True

    def put(self, path: str, data: bytes) -> None:
        self._disk.ask()
        self._disk.put(path, data)

    def delete(self, path: str) -> None:
        self._disk.ask()
        self._disk.unlink(path)

    def names(self, directory: str) -> list[str]:
        self._disk.ask()
        return [path.removeprefix(f"{directory}/") for path in self._disk.listed_below(directory)]


class ObjectStore(MemoryStore):
    """Stores each file of a job as one object."""

    def __init__(self, disk: ObjectDisk, job_id: str, inline_bytes_max: int, faults: Faults) -> None:
        super().__init__(disk, job_id, inline_bytes_max, faults)
        self._objects = disk
        self._leaders = KeyedLeaders(DiskObjects(disk), LEADERS, NAME)

    # --- files -------------------------------------------------------------------------------------------------------

    def state_path(self, checkpoint_id: int, name: str, digest: int) -> str:
        return f"{super().state_path(checkpoint_id, name, digest)}-{digest:016x}"

    def may_write_again(self, existing: bytes, data: bytes) -> bool:
        return existing == data  # two masters of one job may use the same checkpoint number

    def _put_state_file(self, path: str, data: bytes) -> None:
        self._objects.ask()
        self._objects.put(path, data)

    def read(self, file: StateFile) -> bytes:
        if file.path is not None:
            self._objects.ask()
        return super().read(file)

    def _put_metadata(self, directory: str, metadata: CheckpointMetadata, publish: Callable[[], None]) -> None:
        data = encode_metadata(metadata)
        self._objects.ask()
        fault = self._faults.storage_fault(("complete-refused", "complete-done-but-error"))
        if fault == "complete-refused":
            raise OSError("planned: the write was refused")
        self.put_new(directory, data)
        if fault is not None:
            raise OSError("planned: the connection broke")
        self._disk.promise(directory)

    def put_new(self, directory: str, data: bytes) -> None:
        """Put metadata that does not exist yet: from now on the checkpoint or savepoint exists."""
        existing = self._disk.files.get(f"{directory}/{METADATA}")
        if existing is not None:
            is_known = (
                existing == REVOKED or decode_metadata(existing, "").job_master != decode_metadata(data, "").job_master
            )
            if not is_known:
                self._disk.violations.append(f"checkpoint {directory} was written twice")
            raise CheckpointError(f"{directory}/{METADATA} exists")
        if not directory.startswith(self._root):
            self._objects.put_savepoint(directory, data)
            return
        self._objects.put(f"{directory}/{METADATA}", data)
        self._note_visible(int(directory.removeprefix(f"{self._root}chk-")))

    def put_revocation(self, directory: str) -> None:
        self._objects.ask()
        self._disk.promised.pop(directory, None)
        self._objects.put(f"{directory}/{METADATA}", REVOKED)

    def discard_savepoint(self, savepoint_path: str) -> None:
        self._objects.ask()
        super().discard_savepoint(savepoint_path)

    def found_below(self, directory: str) -> list[str]:
        return self._objects.listed_below(directory)

    def delete_jobs(self, job_ids: Iterable[str], left: LeftByJobs | None = None) -> None:
        def find() -> list[str]:
            paths: dict[str, None] = {}
            for job_id in job_ids:
                listed = self.found_below(job_id)
                known_ids = set[int]() if left is None else left.list_checkpoint_ids(job_id)
                paths |= dict.fromkeys([*metadata_to_delete(job_id, listed, known_ids), *listed])
            return sorted(paths, key=lambda path: not path.endswith(f"/{METADATA}"))

        self._delete_all(find)

    def own_files(self) -> list[str]:
        return self._objects.below(self._root.rstrip("/"))

    def listing(self, known_ids: Iterable[int] = ()) -> list[str]:
        self._objects.ask()
        super().listing()
        known = (f"{self.get_directory(checkpoint_id)}/{METADATA}" for checkpoint_id in known_ids)
        return sorted({*self._objects.listed_below(self._root.rstrip("/")), *known})

    def remove_directories(self, paths: list[str]) -> None:
        """Do nothing: an object store has no directories."""

    # --- who leads ---------------------------------------------------------------------------------------------------

    def known_leader(self) -> int:
        return self._leaders.highest()

    def is_deposed(self, number: int) -> bool:
        try:
            self._leaders.check(number)
        except DeposedError:
            return True
        return False

    def take_number(self) -> int:
        if self._faults.storage_fault(("claim-refused",)):
            raise OSError("planned: the write was refused")
        return self._leaders.take(self.job_id)

    def former(self, number: int) -> list[tuple[int, str]]:
        return list(self._leaders.former(number))

    def has_left(self, job_id: str) -> bool:
        return bool(self._objects.listed_below(job_id))

    def put_found(self, left: LeftByJobs) -> None:
        self._leaders.note(left.found())

    def note_newest(self, number: int, known_ids: Iterable[int], checkpoint_id: int) -> None:
        self._leaders.note_newest(number, Newest(self.job_id, ids_to_note(known_ids, checkpoint_id)))

    # --- what has become of jobs -------------------------------------------------------------------------------------

    def put_mark(self, mark: JobMark) -> None:
        for _ in self._leaders.put_mark(mark):
            pass

    def load(self, path: str) -> CheckpointMetadata:
        self._objects.ask()
        return super().load(path)

    def read_retained(self, job_name: str) -> LeftByJobs:
        if self._faults.storage_fault(("load-refused",)):
            raise OSError("planned: the read failed")
        before = self._leaders.found()
        candidates = {*self._listed_checkpoints(), *self._leaders.known_checkpoints(before)}
        checkpoints = read_left(candidates, before, lambda job_id, number: f"{job_id}/chk-{number}", self._load_found)
        marks, damaged = self._leaders.marks()
        counting = [mark for mark in marks if mark_counts(before, mark.job_id, mark.status, mark.job_master)]
        for left in checkpoints:
            self.sync_found(left.directory)
        return LeftByJobs(of_name(job_name, checkpoints), tuple(counting), damaged=tuple(damaged))

    def _listed_checkpoints(self) -> Iterator[tuple[str, int]]:
        self._objects.ask()
        for path in self._objects.listed():
            job_id, _, rest = path.partition("/chk-")
            if rest.endswith(f"/{METADATA}"):
                yield job_id, int(rest.partition("/")[0])

    def _load_found(self, directory: str) -> CheckpointMetadata:
        self._objects.ask()
        return self._disk.load_savepoint(directory)

    def sync_found(self, directory: str) -> None:
        if f"{directory}/{METADATA}" in self._disk.files and directory not in self._disk.given_up:
            self._disk.promise(directory)
        if directory.startswith(self._root):
            self._note_visible(int(directory.removeprefix(f"{self._root}chk-")))


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
