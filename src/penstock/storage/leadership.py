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

`JobMarks` record whether jobs began or ended, and `LeftByJobs` the checkpoints that they left, by name; read when a job
is restarted (G8). A job that ends and deletes its checkpoints records this first, in a small file below
`<directory>/jobs`. Without this file, a job that died in between would look as if it had never begun. A job that begins
without continuing a previous job of its name also records this, because the existing checkpoints are not its own. Each
name has one such mark, that of the last job to set it. The mark of a deposed job master does not count.

`read_left` reads the retained checkpoints of jobs, as far as they count (G8).

`KeyedLeaders` is the same protocol for object stores, without listings: who leads a job, and its records (E7, G8). All
records of job masters are in one directory per job name, under keys that the next master can derive:

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
the job. In file systems with exact listings, `Leaders` deletes these files.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from penstock.base.errors import CheckpointError, JobExecutionError
from penstock.storage.files import KeyedFiles, create, sync_found, write_named
from penstock.storage.metadata import METADATA_NAME, CheckpointMetadata, MissingMetadataError, RevokedError, checksum

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


MARKS_DIRECTORY: Final = "jobs"
#: The status of a job that has begun; all other statuses are final.
BEGUN: Final = "BEGUN"
#: The maximum number of characters of a job's name in its file name.
NAME_CHARACTERS_MAX: Final = 80
_PARTIAL: Final = ".part"
#: Extracts the job and the number of a checkpoint from its metadata's path.
CHECKPOINT: Final = re.compile(rf"(?:^|/)([^/]+)/chk-(\d+)/{METADATA_NAME}$")


class JobMark(msgspec.Struct, frozen=True):
    """Records that a job has begun or ended.

    `savepoint`: the savepoint that it began from, or was stopped with. `drained`: whether nothing remains to be done
    then.

    `discards`: whether the job deletes its checkpoints next. `job_master`: the number of the job master that sets the
    mark.
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
    """A checkpoint that a job has left: its `metadata`, or the reason why that cannot be read."""

    directory: str
    job_id: str
    checkpoint_id: int
    metadata: CheckpointMetadata | None
    damage: str = ""


class LeftByJobs(msgspec.Struct, frozen=True):
    """The checkpoints and marks that the jobs of one name have left, as far as they count.

    `checkpoints` includes damaged ones whose job name is unknown. `number`: the number of the job master that asks.
    `damaged`: why marks cannot be read. `former`: the previous masters, by number, whose jobs may have left something.
    """

    checkpoints: tuple[Left, ...]
    marks: tuple[JobMark, ...]
    number: int = 0
    damaged: tuple[str, ...] = ()
    former: tuple[tuple[int, str], ...] = ()

    def of_master(self, number: int, before: Iterable[tuple[int, str]], has_left: Callable[[str], bool]) -> LeftByJobs:
        """Return a copy for the job master with a number; `has_left` returns whether a job has a directory.

        A former master whose job has no directory counts until a later master completes a checkpoint or ends. It may
        have died during the first checkpoint of its job, when sinks had prepared output that must be removed.
        """
        completed = [
            checkpoint.metadata.job_master for checkpoint in self.checkpoints if checkpoint.metadata is not None
        ]
        since = max([*completed, *(mark.job_master for mark in self.marks)], default=0)
        former = tuple((other, job_id) for other, job_id in before if other > since or has_left(job_id))
        return replace(self, number=number, former=former)

    def list_checkpoint_ids(self, job_id: str) -> set[int]:
        """Return the ids of a job's checkpoints, including damaged ones."""
        return {checkpoint.checkpoint_id for checkpoint in self.checkpoints if checkpoint.job_id == job_id}

    def found(self) -> Found:
        """Return the record of the job master's findings."""
        return Found(
            self.number,
            tuple((left.job_id, left.checkpoint_id) for left in self.checkpoints),
            tuple((mark.job_id, mark.status) for mark in self.marks),
            self.former,
            tuple(mark.job_master for mark in self.marks),
        )


def mark_file(mark: JobMark) -> str:
    """Return the name of a mark's file. It differs between job masters, so none replaces another's mark."""
    number = f"{mark.job_master}-" if mark.job_master else ""
    return f"{file_of_name(mark.job_name)}-{number}{mark.job_id}"


def file_of_name(job_name: str) -> str:
    """Return a job's name in a form that suits paths."""
    return f"{quote(job_name, safe='')[:NAME_CHARACTERS_MAX]}-{checksum(job_name.encode()):016x}"


def id_of_metadata(path: str, job_id: str) -> int:
    """Return the id of the checkpoint whose metadata has this path; 0 for another file or another job."""
    match = CHECKPOINT.search(path)
    return int(match[2]) if match is not None and match[1] == job_id else 0


def encode_mark(mark: JobMark) -> bytes:
    """Encode a mark as JSON, which people can read as well."""
    return msgspec.json.encode(mark)


def decode_mark(data: bytes, where: str) -> JobMark:
    """Decode a mark; raise `CheckpointError` if it is damaged."""
    try:
        return msgspec.json.decode(data, type=JobMark)
    except msgspec.MsgspecError as error:
        raise CheckpointError(f"{where} does not record the outcome of a job: {error}") from error


def of_name(job_name: str, checkpoints: list[Left]) -> tuple[Left, ...]:
    """Return the checkpoints of jobs of that name, and damaged ones of jobs whose name is unknown."""
    names = {left.job_id: left.metadata.job_name for left in checkpoints if left.metadata is not None}
    return tuple(left for left in checkpoints if names.get(left.job_id, job_name) == job_name)


class JobMarks:
    """The mark files of one checkpoint directory."""

    def __init__(self, fs: Any, root: str) -> None:
        self._fs = fs
        self._root = root
        #: the directory of the marks, with a subdirectory for the job masters of each name
        self.directory = posixpath.join(root, MARKS_DIRECTORY)

    def set(self, mark: JobMark, record: Found | None) -> None:
        """Set a job's mark durably, replacing those of its name and finishing the deletions that they announce.

        Marks of later job masters stay. `record` determines which marks count.
        """
        name = mark_file(mark)
        write_named(self._fs, self.directory, name, encode_mark(mark))
        self._remove((other for other in self._of_name(mark.job_name) if other != name), mark.job_master, record)

    def of_name(self, job_name: str) -> tuple[list[JobMark], list[str]]:
        """Return the marks of a name (one, or briefly several), and why others cannot be read."""
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
        """Return the readable marks of all names."""
        marks = []
        for name in self._names():
            with contextlib.suppress(CheckpointError, IsADirectoryError):
                mark = self._read(name)
                if mark is not None:
                    marks.append(mark)
        return marks

    def sync(self) -> None:
        """Make the marks that were read durable."""
        sync_found(self._fs, self.directory)

    def checkpoints(self) -> list[tuple[str, int]]:
        """Return the jobs and numbers of all checkpoints that have metadata."""
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
            return None  # another job of that name has just set its own mark

    def _remove(self, names: Iterable[str], number: int, record: Found | None) -> None:
        for name in names:
            mark = self._read(name)
            if mark is not None and mark.job_master > number:
                continue
            if mark is not None:
                self.delete_what_ended(mark, record)
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(posixpath.join(self.directory, name))

    def delete_what_ended(self, mark: JobMark, record: Found | None) -> None:
        """Delete the checkpoints of a job whose mark announces it, if the mark counts."""
        if mark.discards and mark_counts(record, mark.job_id, mark.status, mark.job_master):
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm(posixpath.join(self._root, mark.job_id), recursive=True)


CHECKPOINT_DIRECTORY: Final = re.compile(r"(?:^|/)chk-\d+$")


def read_left(
    checkpoint_keys: Iterable[tuple[str, int]],
    before: Found | None,
    get_directory: Callable[[str, int], str],
    load: Callable[[str], CheckpointMetadata],
) -> list[Left]:
    """Return the checkpoints at `checkpoint_keys`, pairs of job and checkpoint id; damaged ones carry the reason.

    A checkpoint without metadata is skipped: it was deleted after the listing, or never completed. `before`: the record
    of the last job master that took over. `load` reads the metadata in a directory.
    """
    checkpoints = []
    for job_id, number in sorted(checkpoint_keys):
        directory = get_directory(job_id, number)
        metadata, damage = None, ""
        try:
            metadata = load(directory)
        except (RevokedError, MissingMetadataError):
            continue
        except CheckpointError as error:
            damage = str(error)
        if metadata is not None and (metadata.job_id, metadata.checkpoint_id) != (job_id, number):
            damage = f"it holds metadata of checkpoint {metadata.checkpoint_id}, not its own"
            metadata = None
        if metadata is None or checkpoint_counts(before, job_id, number, metadata.job_master):
            checkpoints.append(Left(directory, job_id, number, metadata, damage))
    return checkpoints


def metadata_to_delete(directory: str, listed: Iterable[str], known_ids: Iterable[int]) -> list[str]:
    """Return the metadata files to delete before the other files of a job's directory, whether listed or not.

    A listing may be stale. If it shows the files of a checkpoint but not its metadata, deleting only the listed files
    would leave a checkpoint that looks complete.
    """
    directories = {posixpath.dirname(path) for path in listed if CHECKPOINT_DIRECTORY.search(posixpath.dirname(path))}
    directories |= {posixpath.join(directory, f"chk-{checkpoint_id}") for checkpoint_id in known_ids}
    return sorted(posixpath.join(path, METADATA_NAME) for path in directories)


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
