"""Who leads a job, and what it has left, in a store of objects: the protocol of `leadership` without listings (E7, G8).

All that masters say of themselves is in one directory of their name, under keys that the next one can work out:

- `master-N`: the job of master N. Numbers have no gaps, and are never deleted. So there is a master above N if and only
  if there is N + 1, which one read tells. Whoever takes a number tries those above the highest that it knows of, one
  after the other, and each is put only where there is none.
- `found-by-master-N`: what master N found when it took over. The newest one counts; it is looked for from the highest
  number down. Older ones are deleted after it was put, so a search that finds none begins again.
- `mark-of-master-N`: what the last job with that number has said, that it has begun or ended.
- `newest-of-master-N`: the newest checkpoint of the last job with that number, and those before that are not deleted
  yet, from which the job goes on when the newest turns out not to be one. It is put after the checkpoint's metadata,
  and before the master looks whether it still leads. So what sinks may have committed is in it, when a successor looks.

Files are deleted as they are listed, but metadata comes first, and a master remembers its own, listed or
not. So what is half deleted never looks whole, even if the listing did not show its metadata.

A successor reads the keys from the newest record on; what came before is in the record. It reads what is listed, too:
jobs of former versions, and checkpoints that a user has left. If the listing is late, nothing is lost by it, because
nothing committed depends on it.

What this costs: a put more for each checkpoint, one read where there was a listing, and a few bytes for each time that
a driver took the job over. In file systems whose listings are exact, `leadership.Leaders` deletes those.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from penstock.base.errors import CheckpointError
from penstock.storage.job_marks import JobMark, decode_mark, encode_mark
from penstock.storage.keyed_files import KeyedFiles
from penstock.storage.leadership import (
    FOUND_PREFIX,
    MASTER_PREFIX,
    Found,
    decode_found,
    deposed_error,
    encode_found,
    number_of_file,
)

MARK_PREFIX: Final = "mark-of-master-"
NEWEST_PREFIX: Final = "newest-of-master-"


class Newest(msgspec.Struct, frozen=True):
    """The checkpoints that a job has completed and not deleted, newest first."""

    job_id: str
    checkpoint_ids: tuple[int, ...]


class KeyedLeaders:
    """The numbers of the job masters of one name, and what they have left."""

    def __init__(self, files: KeyedFiles, directory: str, job_name: str) -> None:
        self._files = files
        self._directory = directory
        self._job_name = job_name

    # --- numbers -----------------------------------------------------------------------------------------------------

    def highest(self) -> int:
        """The number of the master that leads; 0 if none has taken one."""
        listed = (number_of_file(name) for name in self._files.names(self._directory))
        number = max((found for found in listed if found is not None), default=0)
        while self._is_taken(number + 1):
            number += 1
        return number

    def take(self, job_id: str) -> int:
        """Take a number above all others for a job; whoever led is deposed from now on.

        Raises:
            DeposedError: if another master has taken a higher one in the same moment.
        """
        number = self.highest() + 1
        while not self._files.create(self._path(MASTER_PREFIX, number), job_id.encode()):
            number += 1
        self.check(number)
        return number

    def check(self, number: int) -> None:
        """Raise `DeposedError` if a master has taken a number above that one."""
        if self._is_taken(number + 1):
            raise deposed_error(self._job_name, number, number + 1)

    def former(self, number: int) -> tuple[tuple[int, str], ...]:
        """The masters before the one of a number, as far as anything tells of them, and their jobs."""
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
        """The newest record of what a master found."""
        fruitless = 0
        while fruitless < 2:  # a newer record may have come, and older ones gone, during one search
            for number in range(self.highest(), 0, -1):
                path = self._path(FOUND_PREFIX, number)
                data = self._files.read(path)
                if data is not None:
                    return decode_found(data, path)
            fruitless += 1
        return None

    def note(self, found: Found) -> None:
        """Record what a master found, for good; what former ones found is needed no more."""
        before = self.found()
        self._files.put(self._path(FOUND_PREFIX, found.number), encode_found(found))
        for number in range(_since(before), found.number):
            self._files.delete(self._path(FOUND_PREFIX, number))
            self._files.delete(self._path(NEWEST_PREFIX, number))

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def note_newest(self, number: int, newest: Newest) -> None:
        """Record what a job's newest checkpoint is; comes after its metadata, and before the look who leads."""
        self._files.put(self._path(NEWEST_PREFIX, number), msgspec.json.encode(newest))

    def known_checkpoints(self, before: Found | None) -> set[tuple[str, int]]:
        """Jobs and ids of the checkpoints that may be the newest: found by the last master, or completed since."""
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
        """Record a mark in place of all of lower numbers; gives those that it replaced. Read it to its end."""
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
        """What jobs of the name have said: one, or several for a moment; and why others cannot be read."""
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
        """The numbers whose masters may have left something since the last one took over."""
        return range(_since(before), self.highest() + 1)

    def _path(self, prefix: str, number: int) -> str:
        return posixpath.join(self._directory, f"{prefix}{number}")


def decode_newest(data: bytes, where: str) -> Newest:
    """Read what `note_newest` has recorded; raises `CheckpointError`."""
    try:
        return msgspec.json.decode(data, type=Newest)
    except msgspec.MsgspecError as error:
        raise CheckpointError(f"{where} does not say which checkpoint is the newest: {error}") from error


def ids_to_note(known: Iterable[int], checkpoint_id: int) -> tuple[int, ...]:
    """What to record when a checkpoint is visible: it may yet turn out to be none, and those before count then."""
    return (checkpoint_id, *sorted(set(known) - {checkpoint_id}, reverse=True))


def _since(before: Found | None) -> int:
    """The first number of which the newest record does not tell; jobs that begin anew have 0."""
    return 0 if before is None else before.number
