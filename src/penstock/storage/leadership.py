"""Who leads a job: numbers of job masters, taken atomically, and what each found when it took over (E7, G8).

A job is known by its name, in one directory of checkpoints: a driver that is started again gives it another id. A job
master that continues from what jobs of the name have left takes a number above all others first, and looks at what
there is after that. One that begins anew takes the highest number that there is, and deposes nobody.

A master makes an act visible first (metadata, a mark), and looks whether it still leads after that; only then it does
what cannot be taken back: it lets sinks commit, or deletes. So of two masters one sees the other. Either the former
sees that it was deposed, and does nothing more, or the later one sees what the former did, and begins from it.

What a deposed master makes visible after its successor has looked stays without effect, and must not mislead a third
one. So each master that takes over records what it found and what counts, before it begins. Whatever else masters of
lower numbers make visible does not count. The newest record is enough: what did not count before is not in it.

A number's file names the job of its master, and the record names those of former masters. Their directories belong to
the master that leads, which deletes them as soon as it needs them no more, whether they hold a checkpoint or not.
"""

from __future__ import annotations

import posixpath
import re
from contextlib import suppress
from typing import Any, Final

import msgspec

from penstock.base.errors import CheckpointError, JobExecutionError
from penstock.storage.files import create, write_named

#: The files of one name: numbers that were taken, and what their masters have found.
MASTER_PREFIX: Final = "master-"
FOUND_PREFIX: Final = "found-by-master-"
_NUMBERED: Final = re.compile(r"(master-|found-by-master-)(\d+)$")


class DeposedError(JobExecutionError):
    """Another job master has the job, or may have it: this one must not complete, commit or delete anything (E7)."""

    def __str__(self) -> str:
        return f"job {self.job_name!r} was suspended: {self.cause_text}"


class Found(msgspec.Struct, frozen=True):
    """What counted when the job master of a number took over.

    `checkpoints`: jobs and ids; `marks`: jobs and what they had said; `former`: masters and their jobs; `mark_numbers`:
    those of the masters whose marks these are.
    """

    number: int
    checkpoints: tuple[tuple[str, int], ...] = ()
    marks: tuple[tuple[str, str], ...] = ()
    former: tuple[tuple[int, str], ...] = ()
    mark_numbers: tuple[int, ...] = ()


def checkpoint_counts(found: Found | None, job_id: str, checkpoint_id: int, master: int) -> bool:
    """Whether a checkpoint is one of the job; `master` is the number of the one that completed it."""
    return found is None or master >= found.number or (job_id, checkpoint_id) in found.checkpoints


def mark_counts(found: Found | None, job_id: str, status: str, master: int) -> bool:
    """Whether what a job has said is so; `master` is the number of the one that said it."""
    return found is None or master >= found.number or (job_id, status) in found.marks


def encode_found(found: Found) -> bytes:
    """JSON, for people too."""
    return msgspec.json.encode(found)


def decode_found(data: bytes, where: str) -> Found:
    """Read it; raises `CheckpointError`."""
    try:
        return msgspec.json.decode(data, type=Found)
    except msgspec.MsgspecError as error:
        raise CheckpointError(f"{where} does not say what a job master found: {error}") from error


def deposed_error(job_name: str, number: int, leads: int) -> DeposedError:
    """Why the master of a number must do nothing more: one of a higher number leads."""
    return DeposedError(
        job_name,
        f"another driver, number {leads} of this name, has taken the job over. This one, number {number}, leaves its "
        "checkpoints and output to it",
    )


def number_of_file(name: str) -> int | None:
    """The number in the name of a file that a master has left of itself; None for any other."""
    match = _NUMBERED.match(name)
    return None if match is None else int(match[2])


class Leaders:
    """The numbers of the job masters of one name: files in a directory of their own, whose listings are exact."""

    def __init__(self, fs: Any, directory: str, job_name: str) -> None:
        self._fs = fs
        self._directory = directory
        self._job_name = job_name

    def highest(self) -> int:
        """The number of the master that leads; 0 if none has taken one."""
        return max((number for _, number in self._files()), default=0)

    def take(self, job_id: str) -> int:
        """Take a number above all others for a job, atomically; whoever led is deposed from now on.

        Raises:
            DeposedError: if another master has taken a higher one in the same moment.
        """
        number = self.highest() + 1
        while not create(self._fs, self._directory, f"{MASTER_PREFIX}{number}", job_id.encode()):
            number += 1  # another job master has taken that one since the listing
        # It may even have been taken and deleted since then; whoever deletes it has a higher one.
        self.check(number)
        return number

    def former(self, number: int) -> tuple[tuple[int, str], ...]:
        """The masters before the one of a number, as far as anything tells of them, and their jobs."""
        before = self.found()
        former = dict(() if before is None else before.former)
        for prefix, other in self._files():
            if prefix == MASTER_PREFIX and other < number:
                with suppress(FileNotFoundError):
                    former[other] = self._fs.cat_file(self._path(prefix, other)).decode()
        return tuple(sorted(former.items()))

    def check(self, number: int) -> None:
        """Raise `DeposedError` if a master has taken a number above that one."""
        leads = self.highest()
        if leads > number:
            raise deposed_error(self._job_name, number, leads)

    def found(self) -> Found | None:
        """The newest record of what a master found."""
        number = max((number for prefix, number in self._files() if prefix == FOUND_PREFIX), default=None)
        if number is None:
            return None
        path = self._path(FOUND_PREFIX, number)
        try:
            return decode_found(self._fs.cat_file(path), path)
        except FileNotFoundError:
            return self.found()  # another one has taken over just now

    def note(self, found: Found) -> None:
        """Record what a master found, for good; what former ones did and found is needed no more."""
        write_named(self._fs, self._directory, f"{FOUND_PREFIX}{found.number}", encode_found(found))
        for prefix, number in self._files():
            if number < found.number:
                with suppress(FileNotFoundError):
                    self._fs.rm_file(self._path(prefix, number))

    def _files(self) -> list[tuple[str, int]]:
        self._fs.invalidate_cache(self._directory)
        try:
            names = [posixpath.basename(path) for path in self._fs.ls(self._directory, detail=False)]
        except FileNotFoundError:
            return []
        return [(match[1], int(match[2])) for name in names if (match := _NUMBERED.match(name))]

    def _path(self, prefix: str, number: int) -> str:
        return posixpath.join(self._directory, f"{prefix}{number}")
