"""What has become of jobs, and what they have left, by their names; read when a job is started again (G8).

A job that ends and deletes its checkpoints says so first, in a small file below `<directory>/jobs`. Without this file,
a job that died in between would look as if it had never begun. A job that begins, but not where a job of its name left
off, says so too, because what was left before is not its own. There is one such mark for each name, that of the last
job to set it. A mark of a job master that was deposed does not count (`leadership`).
"""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from penstock.base.errors import CheckpointError
from penstock.storage.files import sync_found, write_named
from penstock.storage.leadership import Found, mark_counts
from penstock.storage.metadata import METADATA_NAME, CheckpointMetadata, checksum

MARKS_DIRECTORY: Final = "jobs"
#: The status of a job that has begun; the others are those in which jobs end.
BEGUN: Final = "BEGUN"
#: How much of a job's name goes into the name of its file.
NAME_CHARACTERS_MAX: Final = 80
_PARTIAL: Final = ".part"
#: The job and the number of a checkpoint, by its metadata's path.
CHECKPOINT: Final = re.compile(rf"(?:^|/)([^/]+)/chk-(\d+)/{METADATA_NAME}$")


class JobMark(msgspec.Struct, frozen=True):
    """A job has begun, or ended.

    `savepoint`: the one that it began from, or was stopped with. `drained`: whether nothing is left to be done then.

    `discards`: whether the job deletes its checkpoints next. `job_master`: the number of the one that says it.
    """

    job_id: str
    job_name: str
    status: str
    timestamp_ms: int
    savepoint: str | None = None
    drained: bool = False
    discards: bool = False
    job_master: int = 0


class Left(msgspec.Struct, frozen=True):
    """A checkpoint that a job has left: its `metadata`, or why that cannot be read."""

    directory: str
    job_id: str
    checkpoint_id: int
    metadata: CheckpointMetadata | None
    damage: str = ""


class LeftByJobs(msgspec.Struct, frozen=True):
    """What the jobs of one name have left, as far as it counts; `checkpoints` includes those whose name is damaged.

    `number`: that of the job master which has asked. `damaged`: why marks cannot be read. `former`: the masters before,
    by number, whose jobs may have left something.
    """

    checkpoints: tuple[Left, ...]
    marks: tuple[JobMark, ...]
    number: int = 0
    damaged: tuple[str, ...] = ()
    former: tuple[tuple[int, str], ...] = ()

    def of_master(self, number: int, before: Iterable[tuple[int, str]], has_left: Callable[[str], bool]) -> LeftByJobs:
        """The same, asked by the master of a number; `has_left` tells which jobs have a directory.

        A former master whose job has none counts until a later one has completed a checkpoint, or ended: it may have
        died in the first checkpoint of its job, when sinks had prepared output that somebody has to remove.
        """
        completed = [one.metadata.job_master for one in self.checkpoints if one.metadata is not None]
        since = max([*completed, *(mark.job_master for mark in self.marks)], default=0)
        former = tuple((other, job_id) for other, job_id in before if other > since or has_left(job_id))
        return replace(self, number=number, former=former)

    def ids_of(self, job_id: str) -> set[int]:
        """The ids of a job's checkpoints, of damaged ones too."""
        return {one.checkpoint_id for one in self.checkpoints if one.job_id == job_id}

    def found(self) -> Found:
        """The record of what its job master found."""
        return Found(
            self.number,
            tuple((left.job_id, left.checkpoint_id) for left in self.checkpoints),
            tuple((mark.job_id, mark.status) for mark in self.marks),
            self.former,
            tuple(mark.job_master for mark in self.marks),
        )


def mark_file(mark: JobMark) -> str:
    """The name of a mark's file. Those of different job masters have different ones, so none replaces another's."""
    number = f"{mark.job_master}-" if mark.job_master else ""
    return f"{file_of_name(mark.job_name)}-{number}{mark.job_id}"


def file_of_name(job_name: str) -> str:
    """A job's name as part of a path."""
    return f"{quote(job_name, safe='')[:NAME_CHARACTERS_MAX]}-{checksum(job_name.encode()):016x}"


def id_of_metadata(path: str, job_id: str) -> int:
    """The id of the checkpoint whose metadata a path is; 0 if it is another file, or of another job."""
    match = CHECKPOINT.search(path)
    return int(match[2]) if match is not None and match[1] == job_id else 0


def encode_mark(mark: JobMark) -> bytes:
    """The bytes of such a file: JSON, for people too."""
    return msgspec.json.encode(mark)


def decode_mark(data: bytes, where: str) -> JobMark:
    """Read them; raises `CheckpointError`."""
    try:
        return msgspec.json.decode(data, type=JobMark)
    except msgspec.MsgspecError as error:
        raise CheckpointError(f"{where} does not record the outcome of a job: {error}") from error


def of_name(job_name: str, found: list[Left]) -> tuple[Left, ...]:
    """The checkpoints of jobs of that name, and damaged ones of jobs whose name nothing tells."""
    names = {left.job_id: left.metadata.job_name for left in found if left.metadata is not None}
    return tuple(left for left in found if names.get(left.job_id, job_name) == job_name)


class JobMarks:
    """The files of one directory of checkpoints."""

    def __init__(self, fs: Any, root: str) -> None:
        self._fs = fs
        self._root = root
        #: where the marks are, and a directory for each name with what its job masters have left of themselves
        self.directory = posixpath.join(root, MARKS_DIRECTORY)

    def set(self, mark: JobMark, found: Found | None) -> None:
        """Set a job's mark durably, in place of those of its name; what they had begun to delete is deleted.

        Those of later job masters stay. `found` says which ones count.
        """
        name = mark_file(mark)
        write_named(self._fs, self.directory, name, encode_mark(mark))
        self._remove((other for other in self._of_name(mark.job_name) if other != name), mark.job_master, found)

    def of_name(self, job_name: str) -> tuple[list[JobMark], list[str]]:
        """The marks of a name: one, or several for a moment; and why others cannot be read."""
        marks, damaged = [], []
        for name in self._of_name(job_name):
            try:
                mark = self._read(name)
            except CheckpointError as error:
                damaged.append(str(error))
                continue
            if mark is not None:
                marks.append(mark)
        return marks, damaged

    def all(self) -> list[JobMark]:
        """The marks of all names that can be read."""
        marks = []
        for name in self._names():
            with contextlib.suppress(CheckpointError, IsADirectoryError):
                mark = self._read(name)
                if mark is not None:
                    marks.append(mark)
        return marks

    def sync(self) -> None:
        """Let the marks that were read survive."""
        sync_found(self._fs, self.directory)

    def checkpoints(self) -> list[tuple[str, int]]:
        """The jobs and numbers of all checkpoints that have metadata."""
        self._fs.invalidate_cache(self._root)
        files = map(CHECKPOINT.search, self._fs.glob(f"{self._root}/*/chk-*/{METADATA_NAME}"))
        return sorted((match[1], int(match[2])) for match in files if match is not None)

    def _names(self) -> list[str]:
        self._fs.invalidate_cache(self.directory)
        try:
            return sorted(posixpath.basename(path.rstrip("/")) for path in self._fs.ls(self.directory, detail=False))
        except FileNotFoundError:
            return []

    def _of_name(self, job_name: str) -> list[str]:
        prefix = f"{file_of_name(job_name)}-"
        return [name for name in self._names() if name.startswith(prefix)]

    def _read(self, name: str) -> JobMark | None:
        path = posixpath.join(self.directory, name)
        try:
            return None if name.endswith(_PARTIAL) else decode_mark(self._fs.cat_file(path), path)
        except FileNotFoundError:
            return None  # another job of the name has set its own just now

    def _remove(self, names: Iterable[str], number: int, found: Found | None) -> None:
        for name in names:
            mark = self._read(name)
            if mark is not None and mark.job_master > number:
                continue
            if mark is not None:
                self.delete_what_ended(mark, found)
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(posixpath.join(self.directory, name))

    def delete_what_ended(self, mark: JobMark, found: Found | None) -> None:
        """Delete the checkpoints of a job that has said that it deletes them, as far as that counts."""
        if mark.discards and mark_counts(found, mark.job_id, mark.status, mark.job_master):
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm(posixpath.join(self._root, mark.job_id), recursive=True)
