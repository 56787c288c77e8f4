"""Leadership of a job: masters take numbers atomically, and record their findings when they take over (E7, G8).

A job is identified by its name within one checkpoint directory, because its id changes when the driver is restarted. A
job master that continues from retained checkpoints of the name first takes a number above all others, and then reads
the directory. A master that starts fresh takes the highest existing number and deposes no other.

A master first makes an act visible (metadata, a mark), then checks whether it still leads, and only then does anything
irreversible: it lets sinks commit, or deletes files. So of two masters, at least one sees the other. Either the earlier
one sees that it was deposed and stops, or the later one sees the earlier one's act and starts from it.

Acts that a deposed master makes visible after its successor has looked have no effect, and must not mislead a third
master. So each master that takes over first records its findings and which of them count. Anything else that masters of
lower numbers make visible does not count. The newest record is sufficient, because it omits everything that did not
count before.

The file of a number names the job of its master, and the record names the jobs of former masters. The leading master
owns their directories and deletes them as soon as it no longer needs them, whether they hold a checkpoint or not.
"""

from __future__ import annotations

import posixpath
import re
from contextlib import suppress
from typing import Any, Final

import msgspec

from penstock.base.errors import CheckpointError, JobExecutionError
from penstock.storage.files import create, write_named

#: The files of one job name: numbers that were taken, and the records of their masters.
MASTER_PREFIX: Final = "master-"
FOUND_PREFIX: Final = "found-by-master-"
_NUMBERED: Final = re.compile(r"(master-|found-by-master-)(\d+)$")


class DeposedError(JobExecutionError):
    """Another master has the job, or may have it: this one must not complete, commit or delete anything (E7)."""

    def __str__(self) -> str:
        return f"job {self.job_name!r} was suspended: {self.cause_text}"


class Found(msgspec.Struct, frozen=True):
    """The state that counted when the job master `number` took over.

    `checkpoints`: jobs and checkpoint ids; `marks`: jobs and their statuses; `former`: numbers and jobs of former
    masters; `mark_numbers`: the numbers of the masters that set the marks.
    """

    number: int
    checkpoints: tuple[tuple[str, int], ...] = ()
    marks: tuple[tuple[str, str], ...] = ()
    former: tuple[tuple[int, str], ...] = ()
    mark_numbers: tuple[int, ...] = ()


def checkpoint_counts(record: Found | None, job_id: str, checkpoint_id: int, master: int) -> bool:
    """Return whether a checkpoint counts; `master` is the number of the job master that completed it."""
    return record is None or master >= record.number or (job_id, checkpoint_id) in record.checkpoints


def mark_counts(record: Found | None, job_id: str, status: str, master: int) -> bool:
    """Return whether the status that a job has set counts; `master` is the number of the job master that set it."""
    return record is None or master >= record.number or (job_id, status) in record.marks


def encode_found(record: Found) -> bytes:
    """Encode a record as JSON, which people can read as well."""
    return msgspec.json.encode(record)


def decode_found(data: bytes, where: str) -> Found:
    """Decode a record; raises `CheckpointError` if it is invalid."""
    try:
        return msgspec.json.decode(data, type=Found)
    except msgspec.MsgspecError as error:
        raise CheckpointError(f"{where} does not say what a job master found: {error}") from error


def deposed_error(job_name: str, number: int, leads: int) -> DeposedError:
    """Return the error that stops the master `number`: a master with a higher number leads."""
    return DeposedError(
        job_name,
        f"another driver, number {leads} of this name, has taken the job over. This one, number {number}, leaves its "
        "checkpoints and output to it",
    )


def number_of_file(name: str) -> int | None:
    """Return the number in the name of a master's file; None for any other file."""
    match = _NUMBERED.match(name)
    return None if match is None else int(match[2])


class Leaders:
    """The numbers of the job masters of one job name: files in their own directory, whose listings are exact."""

    def __init__(self, fs: Any, directory: str, job_name: str) -> None:
        self._fs = fs
        self._directory = directory
        self._job_name = job_name

    def highest(self) -> int:
        """Return the number of the leading master; 0 if no number was taken."""
        return max((number for _, number in self._files()), default=0)

    def take(self, job_id: str) -> int:
        """Take a number above all others for a job, atomically; this deposes the previous leader.

        Raises:
            DeposedError: if another master takes a higher number at the same moment.
        """
        number = self.highest() + 1
        while not create(self._fs, self._directory, f"{MASTER_PREFIX}{number}", job_id.encode()):
            number += 1  # another job master has taken this number since the listing
        # The number may even have been taken and deleted since then; the master that deletes it has a higher one.
        self.check(number)
        return number

    def former(self, number: int) -> tuple[tuple[int, str], ...]:
        """Return the numbers and jobs of the recorded masters before `number`."""
        before = self.found()
        former = dict(() if before is None else before.former)
        for prefix, other in self._files():
            if prefix == MASTER_PREFIX and other < number:
                with suppress(FileNotFoundError):
                    former[other] = self._fs.cat_file(self._path(prefix, other)).decode()
        return tuple(sorted(former.items()))

    def check(self, number: int) -> None:
        """Raise `DeposedError` if a master has taken a higher number."""
        leads = self.highest()
        if leads > number:
            raise deposed_error(self._job_name, number, leads)

    def found(self) -> Found | None:
        """Return the newest record of a master's findings."""
        number = max((number for prefix, number in self._files() if prefix == FOUND_PREFIX), default=None)
        if number is None:
            return None
        path = self._path(FOUND_PREFIX, number)
        try:
            return decode_found(self._fs.cat_file(path), path)
        except FileNotFoundError:
            return self.found()  # another master has just taken over

    def note(self, record: Found) -> None:
        """Record a master's findings durably, then delete the numbers and records of former masters."""
        write_named(self._fs, self._directory, f"{FOUND_PREFIX}{record.number}", encode_found(record))
        for prefix, number in self._files():
            if number < record.number:
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
