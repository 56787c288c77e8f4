"""The `leadership` protocol for object stores, without listings: who leads a job, and its records (E7, G8).

All records of job masters are in one directory per job name, under keys that the next master can derive:

- `master-N`: the job of master N. Numbers have no gaps and are never deleted. So a master above N exists if and only if
  N + 1 exists, which takes one read to check. A master that takes a number tries those above the highest known one in
  turn, and each put succeeds only if the key does not exist.
- `found-by-master-N`: the findings of master N when it took over. The newest record counts; a search starts from the
  highest number and goes down. Older records are deleted after the new one is put, so a search without result starts
  over.
- `mark-of-master-N`: the mark of the last job with that number: it has begun or ended.
- `newest-of-master-N`: the newest checkpoint of the last job with that number, and earlier ones not deleted yet, from
  which the job continues if the newest turns out to be invalid. It is put after the checkpoint's metadata, and before
  the master checks that it still leads. So a successor finds everything that sinks may have committed.

Files are deleted as listed, but metadata first, and a master remembers its own metadata, listed or not. So a
half-deleted checkpoint never looks complete, even if the listing missed its metadata.

A successor reads the keys from the newest record on; the record covers everything before it. It also reads listed
files: jobs of earlier versions, and checkpoints left by a user. A late listing loses nothing, because nothing committed
depends on it.

The cost is one more put per checkpoint, one read in place of a listing, and a few bytes each time a driver takes over
the job. In file systems with exact listings, `leadership.Leaders` deletes these files.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from penstock.base.errors import CheckpointError
from penstock.storage.files import KeyedFiles
from penstock.storage.leadership import (
    FOUND_PREFIX,
    MASTER_PREFIX,
    Found,
    JobMark,
    decode_found,
    decode_mark,
    deposed_error,
    encode_found,
    encode_mark,
    number_of_file,
)

MARK_PREFIX: Final = "mark-of-master-"
NEWEST_PREFIX: Final = "newest-of-master-"


class Newest(msgspec.Struct, frozen=True):
    """The completed checkpoints of a job that are not deleted, newest first."""

    job_id: str
    checkpoint_ids: tuple[int, ...]


class KeyedLeaders:
    """The numbers of the job masters of one name, and their records."""

    def __init__(self, files: KeyedFiles, directory: str, job_name: str) -> None:
        self._files = files
        self._directory = directory
        self._job_name = job_name

    # --- numbers -----------------------------------------------------------------------------------------------------

    def highest(self) -> int:
        """Return the number of the leading master; 0 if no master has taken one."""
        listed = (number_of_file(name) for name in self._files.names(self._directory))
        number = max((listed_number for listed_number in listed if listed_number is not None), default=0)
        while self._is_taken(number + 1):
            number += 1
        return number

    def take(self, job_id: str) -> int:
        """Take a number above all others for a job, which deposes the current leader.

        Raises:
            DeposedError: if another master takes a higher number at the same moment.
        """
        number = self.highest() + 1
        while not self._files.create(self._path(MASTER_PREFIX, number), job_id.encode()):
            number += 1
        self.check(number)
        return number

    def check(self, number: int) -> None:
        """Raise `DeposedError` if a master has taken a higher number."""
        if self._is_taken(number + 1):
            raise deposed_error(self._job_name, number, number + 1)

    def former(self, number: int) -> tuple[tuple[int, str], ...]:
        """Return the known masters below a number, and their jobs."""
        before = self.found()
        former = dict(() if before is None else before.former)
        for other in range(max(1, _since(before)), number):
            job_id = self._files.read(self._path(MASTER_PREFIX, other))
            if job_id is not None:
                former[other] = job_id.decode()
        return tuple(sorted(former.items()))

    def _is_taken(self, number: int) -> bool:
        return self._files.read(self._path(MASTER_PREFIX, number)) is not None

    # --- what was found ----------------------------------------------------------------------------------------------

    def found(self) -> Found | None:
        """Return the newest record of a master's findings."""
        fruitless = 0
        while fruitless < 2:  # during a search, a newer record may replace older ones
            for number in range(self.highest(), 0, -1):
                path = self._path(FOUND_PREFIX, number)
                data = self._files.read(path)
                if data is not None:
                    return decode_found(data, path)
            fruitless += 1
        return None

    def note(self, record: Found) -> None:
        """Record a master's findings durably, and delete records of former masters that are no longer needed."""
        before = self.found()
        self._files.put(self._path(FOUND_PREFIX, record.number), encode_found(record))
        for number in range(_since(before), record.number):
            self._files.delete(self._path(FOUND_PREFIX, number))
            self._files.delete(self._path(NEWEST_PREFIX, number))

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def note_newest(self, number: int, newest: Newest) -> None:
        """Record a job's newest checkpoint, after its metadata and before checking who leads."""
        self._files.put(self._path(NEWEST_PREFIX, number), msgspec.json.encode(newest))

    def known_checkpoints(self, before: Found | None) -> set[tuple[str, int]]:
        """Return the jobs and ids of checkpoints that may be the newest: the last master's, or completed since."""
        known = set[tuple[str, int]]() if before is None else set(before.checkpoints)
        for number in self._numbers_since(before):
            path = self._path(NEWEST_PREFIX, number)
            data = self._files.read(path)
            if data is not None:
                newest = decode_newest(data, path)
                known.update((newest.job_id, checkpoint_id) for checkpoint_id in newest.checkpoint_ids)
        return known

    # --- marks -------------------------------------------------------------------------------------------------------

    def put_mark(self, mark: JobMark) -> Iterator[JobMark]:
        """Record a mark in place of all with lower numbers, and yield the replaced marks. Consume the iterator to its
        end.
        """
        replaced = [(number, data) for number, data in self._marks() if number <= mark.job_master]
        own = self._path(MARK_PREFIX, mark.job_master)
        self._files.put(own, encode_mark(mark))
        for number, data in replaced:
            path = self._path(MARK_PREFIX, number)
            try:
                other = decode_mark(data, path)
            except CheckpointError:
                pass
            else:
                if other.job_id != mark.job_id:
                    yield other
            if path != own:
                self._files.delete(path)

    def marks(self) -> tuple[list[JobMark], list[str]]:
        """Return the marks of the name's jobs (one, or briefly several), and why others cannot be read."""
        marks, damaged = [], []
        for number, data in self._marks():
            try:
                marks.append(decode_mark(data, self._path(MARK_PREFIX, number)))
            except CheckpointError as error:
                damaged.append(str(error))
        return marks, damaged

    def _marks(self) -> list[tuple[int, bytes]]:
        before = self.found()
        numbers = {*self._numbers_since(before), *(() if before is None else before.mark_numbers)}
        read = [(number, self._files.read(self._path(MARK_PREFIX, number))) for number in sorted(numbers)]
        return [(number, data) for number, data in read if data is not None]

    def _numbers_since(self, before: Found | None) -> range:
        """Return the numbers whose masters may have left something since the last one took over."""
        return range(_since(before), self.highest() + 1)

    def _path(self, prefix: str, number: int) -> str:
        return posixpath.join(self._directory, f"{prefix}{number}")


def decode_newest(data: bytes, where: str) -> Newest:
    """Decode a record of `note_newest`; raise `CheckpointError` if it is damaged."""
    try:
        return msgspec.json.decode(data, type=Newest)
    except msgspec.MsgspecError as error:
        raise CheckpointError(f"{where} does not say which checkpoint is the newest: {error}") from error


def ids_to_note(known: Iterable[int], checkpoint_id: int) -> tuple[int, ...]:
    """Return the ids to record when a checkpoint is visible: if it turns out to be invalid, the earlier ones count."""
    return (checkpoint_id, *sorted(set(known) - {checkpoint_id}, reverse=True))


def _since(before: Found | None) -> int:
    """Return the first number that the newest record does not cover; 0 for jobs that began before any takeover."""
    return 0 if before is None else before.number
