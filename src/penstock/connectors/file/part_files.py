"""Part files of a file sink: their names, their leftovers, and their way from creation until they become visible (G9).

A part file is written to the *staging* directory of its job and operator, below the base path, and committed by
renaming it:

    {base path}/.penstock/{owner}/.{prefix}-{subtask}-{counter}-{run}{suffix}.{stage}.{subtask}-{attempt}-{since}
    {base path}/{bucket}/{prefix}-{subtask}-{counter}-{run}{suffix}

`owner` identifies the job and the operator, `run` these and the run of the task. No two writers ever use the same name
(G9). The counter distinguishes names within a run of a subtask. `run` distinguishes them between runs (attempts,
epochs, duplicate tasks that Spark runs concurrently), jobs and operators.

**Who owns a hidden file.** `since` is the last snapshot in which the writer had taken part when it began the file, or
the one from which it was restored. Part files end at every snapshot, so only snapshots after `since` name a file. For
an attempt that is restored from checkpoint n, these are:

- checkpoints up to n: they contain the file if `since` < n; it was committed, or will be before n is released;
- checkpoints after n: they never completed, or were skipped because they are damaged, so no job can start from them;
- savepoints after n: a job may start from them at any time. Before the writer acknowledges a savepoint, it records the
  files that the savepoint names in a *pins* file beside the part files.

An attempt may therefore remove exactly the unpinned files of earlier attempts with `since` >= n. It lists only the
staging directory, which contains only uncommitted files, however large the output is. In micro-batches every checkpoint
up to n is committed before the attempt begins. A file that is still hidden then belongs to a task that Spark ran twice
and whose other run counts. There an attempt removes all unpinned files of earlier attempts.

The same applies to the files of jobs that this one continues. Their drivers were deposed, so their checkpoints after n
do not count. The files that their checkpoints up to n name may still have to be committed. In micro-batches the files
are therefore removed in two steps: files with `since` >= n when the job begins, and all others when it has a checkpoint
of its own (`Committer.end_job`).

**Other jobs.** The retained checkpoints of another job may name its files. Only a file that was never closed is in no
checkpoint. Its stage is `open`, and its process holds a lock on it for as long as it lives (`create_held`).
Once the lock is released, any job may remove the file. A closed file is renamed to the stage `closed`. This applies to
local file systems. Object stores create no file before it is closed; in S3 the hidden file then names an upload, see
below. In other file systems nothing shows which process has died, so leftover files must be removed manually.

**How a part file becomes visible.** Where files can be renamed, a hidden file is the part file itself under another
name. In S3, renaming copies the object. There a part is sent as a multipart upload to its final key, which stays
invisible until the upload is completed, and the hidden file is a small object that names the upload and its parts. It
is written after the last part. Completing an upload makes the object visible atomically, without a copy, and any
process can do it.

If a writer dies before it writes the hidden file, its upload is orphaned. S3 keeps the parts until a lifecycle rule of
the bucket removes them (`AbortIncompleteMultipartUpload`). The rule must keep uploads for longer than a job may be
stopped, because uploads that a checkpoint names are still to be committed.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, cast

import msgspec

from penstock.base.durable_files import errors_name, get_protocols
from penstock.base.errors import FormatError, MissingPathError
from penstock.codecs.file_systems import url_to_fs
from penstock.connectors.file.filesystem import (
    create_held,
    is_local,
    join,
    list_all,
    make_durable,
    read_bytes,
    remove,
    remove_empty_directories,
    remove_empty_directory,
    remove_unless_held,
    rename,
    size_or_none,
    write_whole,
)
from penstock.runtime.connector import SinkWriterContext

STAGING = ".penstock"
OPEN, CLOSED = "open", "closed"
_HIDDEN = re.compile(rf"\..*\.({OPEN}|{CLOSED})\.(?P<subtask>\d+)-(?P<attempt>\d+)-(?P<since>\d+)$")
_PINS = re.compile(r"\.pins-(?P<subtask>\d+)-\d+-\d+$")


#: staging directories of sinks that commit in one place, whose files are merged before they become visible
MERGED: Final = "merged"
_IS_MERGED = re.compile(rf"/{re.escape(STAGING)}/[0-9a-f]+-[0-9a-f]+-{MERGED}(/|$)")


def staging_directory(base_path: str, job_id: str, operator_id: str, stage: str = "") -> str:
    """Return the directory that holds the part files of a job's operator until they are committed.

    With `stage` its name begins with that of the job (`find_stagings`), for the writers of a sink that commits in one
    place: the committer is another operator, and does not know which operators prepare files for it.
    """
    name = f"{_digest(job_id)}-{_digest(operator_id)}-{stage}" if stage else _digest(job_id, operator_id)
    return join(join(base_path, STAGING), name)


def find_stagings(staging: str) -> list[str]:
    """Return a staging directory; if its name has a stage, all such directories of its job that have files."""
    directory, _, name = staging.rpartition("/")
    job, dash, _ = name.partition("-")
    if not dash:
        return [staging]
    names = {path[len(directory) + 1 :].partition("/")[0] for path in list_all(directory)}
    return [join(directory, name) for name in sorted(names) if name.startswith(f"{job}-")]


def is_open_part(name: str) -> bool:
    """Return whether a file of a staging directory has the name of an unclosed part file."""
    match = _HIDDEN.match(name)
    return match is not None and match[1] == OPEN


def is_part(name: str) -> bool:
    """Return whether a file of a staging directory is a part file."""
    return _HIDDEN.match(name) is not None


def is_pins(name: str) -> bool:
    """Return whether a file of a staging directory is a pins file, which names the files of a savepoint."""
    return _PINS.match(name) is not None


@dataclass(frozen=True, slots=True)
class PartNames:
    """The names of one writer's part files."""

    prefix: str
    suffix: str
    staging: str
    subtask_index: int
    parallelism: int
    attempt: int
    run: str
    #: Whether open files have different names from closed ones.
    has_stages: bool

    @staticmethod
    def of(context: SinkWriterContext, base_path: str, prefix: str, suffix: str, stage: str = "") -> PartNames:
        """Return the names for a writer with this context; `stage` as for `staging_directory`."""
        return PartNames(
            prefix,
            suffix,
            staging_directory(base_path, context.job_id, context.operator_id, stage),
            context.subtask_index,
            context.parallelism,
            context.attempt,
            _digest(context.job_id, context.operator_id, context.run),
            is_local(base_path),
        )

    def final(self, counter: int) -> str:
        """Return the name under which a part becomes visible."""
        return f"{self.prefix}-{self.subtask_index}-{counter}-{self.run}{self.suffix}"

    def open(self, counter: int, since: int) -> str:
        """Return the path to which a part is written."""
        return self._staged(counter, OPEN if self.has_stages else CLOSED, since)

    def closed(self, counter: int, since: int) -> str:
        """Return the path at which a closed part waits for its commit."""
        return self._staged(counter, CLOSED, since)

    def pins(self, checkpoint_id: int) -> str:
        """Return the path of the pins file of a savepoint."""
        return join(self.staging, f".pins-{self.subtask_index}-{self.attempt}-{checkpoint_id}")

    def _staged(self, counter: int, stage: str, since: int) -> str:
        name = f".{self.final(counter)}.{stage}.{self.subtask_index}-{self.attempt}-{since}"
        return join(self.staging, name)

    def is_stale(self, name: str, since: int, pinned: set[str], of_forerunner: bool = False) -> bool:
        """Return whether an earlier attempt or job left this staging file and no snapshot can name it.

        `since` is the lowest `since` of such files; 0 if everything that snapshots name is committed. Each subtask
        beyond the current parallelism is handled by one of the current subtasks.
        """
        match = _HIDDEN.match(name)
        if match is None or name in pinned:
            return False
        if not of_forerunner and int(match["attempt"]) >= self.attempt:
            return False
        return int(match["since"]) >= since and self._looks_after(match)

    def stale_pins(self, pins: dict[str, set[str]], listed: Sequence[str]) -> list[str]:
        """Return the pins files whose part files have all been committed, so that none is left."""
        existing = set(listed)
        return [
            name
            for name, pinned in pins.items()
            if (match := _PINS.match(name)) and self._looks_after(match) and not pinned & existing
        ]

    def _looks_after(self, match: re.Match[str]) -> bool:
        return int(match["subtask"]) % self.parallelism == self.subtask_index


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


#: How much of a part file to buffer before sending it; S3 allows objects of 10,000 times this size.
UPLOADED_BYTES: Final = 8 << 20
_S3: Final = frozenset({"s3", "s3a"})


class PendingUpload(msgspec.Struct, frozen=True, tag="multipart-upload", tag_field="kind"):
    """A multipart upload whose parts are all present: completing it makes the object visible."""

    bucket: str
    key: str
    upload_id: str
    parts: list[dict[str, Any]]
    size_bytes: int


class UploadGoneError(MissingPathError):
    """Raised when the parts of an upload no longer exist."""


def has_uploads(hidden_path: str) -> bool:
    """Return whether a hidden file names an upload. Files to be merged are objects, since nobody can read an upload."""
    return _IS_MERGED.search(hidden_path) is None and not _S3.isdisjoint(get_protocols(url_to_fs(hidden_path)[0]))


def create_part(open_path: str, final_path: str) -> BinaryIO:
    """Start a part file; `close_part` or `discard_part` ends it."""
    if not has_uploads(open_path):
        return create_held(open_path)
    fs, root = url_to_fs(final_path)
    file = fs.open(root, "wb", autocommit=False, block_size=UPLOADED_BYTES)
    fs.transaction.files.remove(file)  # otherwise fsspec would keep it for a transaction commit that never happens
    return cast(BinaryIO, file)


def close_part(stream: BinaryIO, open_path: str, closed_path: str) -> None:
    """Close a part file durably under its hidden name.

    Raises:
        FileNotFoundError: if the file was removed.
    """
    upload: Any = stream
    if has_uploads(closed_path):
        size_bytes = upload.tell()
        upload.close()
        pending = PendingUpload(upload.bucket, upload.key, upload.mpu["UploadId"], upload.parts, size_bytes)
        fs, root = url_to_fs(closed_path)
        fs.pipe_file(root, msgspec.json.encode(pending))
        return
    with errors_name(open_path):
        make_durable(stream)
    if closed_path != open_path:
        rename(open_path, closed_path)  # while the lock is held, so that the file does not look abandoned
    stream.close()


def discard_part(stream: BinaryIO, open_path: str) -> None:
    """Discard a part file that is not needed."""
    upload: Any = stream
    if has_uploads(open_path):
        upload.discard()
        upload.closed = True
    else:
        with contextlib.suppress(OSError):  # on a full disk the buffered bytes cannot be written
            stream.close()
        remove([open_path])


def hidden_size(path: str) -> int | None:
    """Return the size in bytes of the part file with this hidden path, or None if it does not exist."""
    if not has_uploads(path):
        return size_or_none(path)
    pending = _pending(path)
    return None if pending is None else pending.size_bytes


def show(hidden_path: str, final_path: str) -> None:
    """Make a part file visible, replacing any file with its final name.

    Raises:
        UploadGoneError: if the parts of the upload no longer exist.
    """
    if not has_uploads(hidden_path):
        rename(hidden_path, final_path)
        return
    pending = _pending(hidden_path)
    if pending is None:
        raise UploadGoneError(f"{hidden_path} is gone")
    fs, root = url_to_fs(final_path)
    try:
        fs.call_s3(
            "complete_multipart_upload",
            Bucket=pending.bucket,
            Key=pending.key,
            UploadId=pending.upload_id,
            MultipartUpload={"Parts": pending.parts},
        )
    except OSError as error:
        # An earlier attempt may have succeeded and its response been lost.
        if size_or_none(final_path) != pending.size_bytes:
            if not _is_there(fs, pending):
                raise UploadGoneError(f"S3 has no upload {pending.upload_id} of {final_path}") from error
            raise
    fs.invalidate_cache(fs._parent(root))
    remove([hidden_path])


def discard(hidden_paths: Iterable[str]) -> None:
    """Remove hidden files and the uploads that they name; missing ones are ignored."""
    for path in hidden_paths:
        pending = _pending(path) if has_uploads(path) else None
        if pending is not None:
            fs, _ = url_to_fs(path)
            with contextlib.suppress(FileNotFoundError):  # already completed, or aborted by a bucket rule
                fs.abort_mpu(pending.bucket, pending.key, pending.upload_id)
        remove([path])


def _is_there(fs: Any, pending: PendingUpload) -> bool:
    try:
        fs.call_s3("list_parts", Bucket=pending.bucket, Key=pending.key, UploadId=pending.upload_id, MaxParts=1)
    except FileNotFoundError:
        return False
    return True


def _pending(path: str) -> PendingUpload | None:
    try:
        return msgspec.json.decode(read_bytes(path), type=PendingUpload)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise FormatError(f"{path} does not name an upload: {error}") from error


class Staging:
    """The staging directory of one operator of one job."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    @property
    def base_path(self) -> str:
        """The base path of the sink."""
        return self._directory.rpartition("/")[0].rpartition("/")[0]

    def remove_stale(self, names: PartNames, since: int, of_forerunner: bool = False) -> None:
        """Remove the files that earlier attempts began since a snapshot; 0 for all of them.

        With `of_forerunner`, every attempt in the directory counts as earlier.
        """
        listed = self._listed()
        pins = self._pins(listed)
        pinned = {name for of_one in pins.values() for name in of_one}
        stale = [name for name in listed if names.is_stale(name, since, pinned, of_forerunner)]
        self._remove(stale + names.stale_pins(pins, listed))

    def pin(self, path: str, hidden_paths: list[str]) -> None:
        """Protect the parts among these files until they are committed, whatever happens to the job."""
        own = [name for hidden in hidden_paths if (name := _name(hidden)) and is_part(name)]
        write_whole(path, "\n".join(own).encode())

    def remove_unpinned(self) -> None:
        """Remove all parts that no savepoint names: the job is over and has nothing left to commit."""
        listed = self._listed()
        pins = self._pins(listed)
        pinned = {name for of_one in pins.values() for name in of_one}
        self._remove([name for name in listed if is_part(name) and name not in pinned])
        self.remove_needless_pins()

    def remove_needless_pins(self) -> None:
        """Remove the pins files of savepoints that name no part here any more, and the directory if it is empty."""
        listed = self._listed()
        existing = set(listed)
        self._remove([name for name, pinned in self._pins(listed).items() if not pinned & existing])
        self.remove_if_empty()

    def remove_if_empty(self) -> None:
        """Remove the directory and its parent if they are empty."""
        remove_empty_directory(self._directory)
        remove_empty_directory(self._directory.rpartition("/")[0])

    def _listed(self) -> list[str]:
        return [_name(path) for path in list_all(self._directory)]

    def _pins(self, listed: list[str]) -> dict[str, set[str]]:
        """Return the part names in each file of pins."""
        pins = {}
        for name in filter(is_pins, listed):
            try:
                pins[name] = set(read_bytes(join(self._directory, name)).decode().split("\n"))
            except FileNotFoundError:
                continue  # another subtask has just removed it as no longer needed
        return pins

    def _remove(self, names: list[str]) -> None:
        hidden = [name for name in names if is_part(name)]
        discard(join(self._directory, name) for name in hidden)
        remove(join(self._directory, name) for name in names if name not in hidden)


def remove_what_died(base_path: str) -> None:
    """Remove part files, of any job, whose processes ended before closing them; see the module docstring."""
    if is_local(base_path):
        directory = join(base_path, STAGING)
        for path in list_all(directory):
            if is_open_part(_name(path)):
                remove_unless_held(path)
        remove_empty_directories(directory)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
