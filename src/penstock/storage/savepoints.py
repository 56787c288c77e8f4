"""Savepoint directories at user-chosen paths: claimed by one job, emptied, released (H1), and deleted (G6).

`delete_snapshot` deletes one savepoint or checkpoint: the files that its metadata names and that nothing else
references. A directory may hold files of other programs, and other programs also write files called `_metadata`. So the
metadata is decoded first, and no directory is deleted recursively. A path may be a symbolic link; its target directory
counts.

A checkpoint is not deleted as long as its job may be running, in this driver or in another one that shares the
directory. A job that ends and leaves checkpoints creates a file `_ended` beside them. Without this file, only a later
job of the same name that took over proves that the job has ended.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from penstock.base.durable_files import has_directories, is_local
from penstock.base.errors import CheckpointError
from penstock.codecs.file_systems import url_to_fs
from penstock.storage.files import ObjectFiles, create, delete_metadata, lists_exactly, load_metadata, shown
from penstock.storage.leadership import BEGUN, CHECKPOINT, JobMark, JobMarks, KeyedLeaders, Leaders, file_of_name
from penstock.storage.metadata import METADATA_NAME, CheckpointMetadata, MissingMetadataError, RevokedError, StateFile

#: The file that names the job that writes a savepoint at a user-chosen path.
CLAIM_NAME: Final = ".claim"
#: The file that names the job that starts from a savepoint or checkpoint and will delete it.
CLAIMED_NAME: Final = "_claimed"
JOB_ID_CHARACTERS: Final = 32


def is_taken(savepoint_path: str) -> bool:
    """Return whether anything exists at the path."""
    fs, directory = url_to_fs(savepoint_path)
    fs.invalidate_cache(directory)
    exists: bool = fs.exists(directory)
    return exists


def claim_savepoint(savepoint_path: str, owner: str) -> None:
    """Claim a path for one job before writing there, so that no other job can take it.

    Raises:
        CheckpointError: if something exists at the path, or another job has claimed it.
    """
    fs, directory = url_to_fs(savepoint_path)
    # Of two jobs that find the path empty, only one can create the file.
    if is_taken(savepoint_path) or not create(fs, directory, CLAIM_NAME, owner.encode()):
        raise CheckpointError(f"{savepoint_path} already exists; name a directory that does not exist")


def release_savepoint(savepoint_path: str, owner: str) -> None:
    """Release a claim; everything else stays."""
    fs, directory = url_to_fs(savepoint_path)
    claim = posixpath.join(directory, CLAIM_NAME)
    with contextlib.suppress(FileNotFoundError):
        if fs.cat_file(claim) == owner.encode():
            fs.rm_file(claim)
    fs.invalidate_cache(directory)
    if fs.exists(directory) and not fs.find(directory):
        fs.rm(directory, recursive=True)


def empty_savepoint(savepoint_path: str, owner: str, kept: Iterable[StateFile] | None = None) -> None:
    """Delete a job's files at a path that it has claimed, except the claim, and `kept` with its metadata.

    Raises:
        CheckpointError: if the path holds the savepoint of another job; nothing is deleted then.
    """
    check_savepoint_is_own(savepoint_path, owner)
    fs, directory = url_to_fs(savepoint_path)
    needed = {CLAIM_NAME}
    if kept is not None:
        needed |= {METADATA_NAME, *(posixpath.basename(file.path) for file in kept if file.path is not None)}
    if METADATA_NAME not in needed:
        delete_metadata(fs, directory)  # first, so that a half-deleted savepoint never looks complete
    for path in sorted(fs.find(directory)):
        if posixpath.basename(path) not in needed:
            with contextlib.suppress(FileNotFoundError):
                fs.rm_file(path)


def check_savepoint_is_own(savepoint_path: str, owner: str) -> None:
    """Raise `CheckpointError` if the path holds the savepoint of another job."""
    fs, directory = url_to_fs(savepoint_path)
    fs.invalidate_cache(directory)
    if fs.exists(posixpath.join(directory, METADATA_NAME)):
        metadata = load_metadata(fs, directory)
        if metadata.job_id != owner:
            raise CheckpointError(
                f"job {metadata.job_name!r} ({metadata.job_id}) has meanwhile written a savepoint to {savepoint_path}, "
                "which is left unchanged"
            )


def check_or_claim_snapshot(snapshot_path: str, job_name: str, job_id: str, claims: bool) -> None:
    """Let a job start from a savepoint or checkpoint; a job that `claims` it deletes it later.

    A restarted job has another id but the same name, and may start from it again.

    Raises:
        CheckpointError: if a job of another name has claimed it.
    """
    fs, directory = url_to_fs(snapshot_path)
    path = posixpath.join(directory, CLAIMED_NAME)
    own = f"job {job_name!r} ({job_id})"
    if claims and create(fs, directory, CLAIMED_NAME, own.encode()):
        return
    fs.invalidate_cache(directory)
    try:
        owner = fs.cat_file(path).decode()
    except FileNotFoundError:
        return
    if owner.rpartition(" ")[0] != own.rpartition(" ")[0]:
        raise CheckpointError(
            f"{snapshot_path} is claimed by {owner or 'another job'}, which deletes it: begin from another one, or "
            f"delete {path} if that job is gone"
        )


def discard_savepoint(savepoint_path: str) -> None:
    """Delete the files of an incomplete savepoint; a complete one stays."""
    fs, directory = url_to_fs(savepoint_path)
    fs.invalidate_cache(directory)
    if fs.exists(directory) and not fs.exists(posixpath.join(directory, METADATA_NAME)):
        fs.rm(directory, recursive=True)


def belongs_to_job(savepoint_path: str, job_id: str) -> bool:
    """Return whether a savepoint's directory has a name that only this job generates."""
    name = posixpath.basename(savepoint_path.rstrip("/"))
    return len(job_id) == JOB_ID_CHARACTERS and name.startswith(f"savepoint-{job_id[:6]}-{job_id[6:12]}")


def delete_directory(savepoint_path: str) -> None:
    """Delete a directory that a job created for its savepoint, with all its contents, metadata first."""
    fs, directory = url_to_fs(savepoint_path)
    delete_metadata(fs, directory)
    if fs.exists(directory):
        fs.rm(directory, recursive=True)


#: The file in a job's checkpoint directory that records the job's end.
ENDED_NAME: Final = "_ended"
_CHECKPOINT_DIRECTORY: Final = re.compile(r"chk-(\d+)")
#: The text of a claim, with the id of the claiming job.
_CLAIM: Final = re.compile(r"job .* \((\w+)\)", re.DOTALL)


class Snapshot(NamedTuple):
    """A savepoint or checkpoint with decoded metadata; `directory` contains no symbolic links."""

    fs: Any
    directory: str
    metadata: CheckpointMetadata

    @property
    def url(self) -> str:
        """The directory as shown in errors."""
        return shown(self.fs, self.directory)

    @property
    def job_directory(self) -> str | None:
        """The checkpoint directory of its job, if it is a checkpoint in its regular place there."""
        match = _CHECKPOINT_DIRECTORY.fullmatch(posixpath.basename(self.directory))
        above = posixpath.dirname(self.directory)
        is_in_place = (
            match is not None
            and int(match[1]) == self.metadata.checkpoint_id
            and posixpath.basename(above) == self.metadata.job_id
        )
        return above if is_in_place else None

    def own_path(self, file: StateFile) -> str | None:
        """Return the path of a file that belongs to the snapshot; None for inline state and for files elsewhere.

        Elsewhere is outside the snapshot's directory and, for a checkpoint, outside its job's checkpoint directories.
        """
        if file.path is None:
            return None
        path = _plain(self.fs, file.path, self.directory)
        above = posixpath.dirname(path)
        if above == self.directory:
            return path
        is_beside = posixpath.dirname(above) == self.job_directory
        return path if is_beside and _CHECKPOINT_DIRECTORY.fullmatch(posixpath.basename(above)) else None


def real_directory(path: str) -> tuple[Any, str]:
    """Return the file system of a savepoint or checkpoint, and its directory with symbolic links resolved.

    Args:
        path: the directory, or the metadata file in it.
    """
    fs, directory = url_to_fs(path.rstrip("/").removesuffix(f"/{METADATA_NAME}"))
    return fs, _real(fs, directory.rstrip("/"))


def open_snapshot(path: str) -> Snapshot:
    """Decode the metadata of a savepoint or checkpoint.

    Raises:
        MissingMetadataError: if the metadata is missing.
        CheckpointError: if the metadata is not Penstock's, or is damaged.
    """
    fs, directory = real_directory(path)
    fs.invalidate_cache(directory)
    return Snapshot(fs, directory, load_metadata(fs, directory))


def note_end(directory: str, job_id: str) -> None:
    """Record durably that a job has ended, if it left files below `directory`; otherwise remove empty directories."""
    fs, root = url_to_fs(directory)
    of_job = posixpath.join(root, job_id)
    fs.invalidate_cache(of_job)
    if fs.find(of_job):
        create(fs, of_job, ENDED_NAME)
    elif has_directories(fs) and fs.exists(of_job):
        # Left by checkpoints that failed before they wrote a file, for example on a full disk.
        for emptied in sorted({of_job, *fs.find(of_job, withdirs=True)}, reverse=True):
            _remove_if_empty(fs, emptied)


def forget_end(fs: Any, of_job: str) -> None:
    """Remove the record of a job's end, because a job with the same id begins."""
    path = posixpath.join(of_job, ENDED_NAME)
    if fs.exists(path):
        with contextlib.suppress(FileNotFoundError):
            fs.rm_file(path)


def check_disposable(snapshot: Snapshot, has_ended: Callable[[str], bool], roots: Iterable[str]) -> None:
    """Raise if a job of this or another driver may need a snapshot.

    Args:
        snapshot: the snapshot to delete.
        has_ended: returns whether a job id is known to this driver and the job has ended.
        roots: checkpoint directories with jobs that may need it; its own directory need not be included.

    Raises:
        CheckpointError: if a job may need it; the message names the job and the remedy.
    """
    of_job = snapshot.job_directory
    where = [_Root(fs, root, has_ended) for root, fs in _places(snapshot, roots).items()]
    if of_job is not None:
        where[0].check_has_ended(snapshot)
    for root_of_jobs in where:
        root_of_jobs.check_not_in_use(snapshot)
    _check_claim(snapshot, where, has_ended)


def delete_snapshot(snapshot: Snapshot, roots: Iterable[str] = ()) -> list[str]:
    """Delete the metadata, then the files that it names and no other checkpoint references, then empty directories.

    Args:
        snapshot: the snapshot to delete.
        roots: checkpoint directories whose metadata may reference its files; its own directory need not be included.

    Returns:
        The names that stay in its directory: foreign or shared files.

    Raises:
        CheckpointError: if metadata of the same job is damaged, because it may reference the files. Nothing is deleted
            then.
    """
    fs, directory = snapshot.fs, snapshot.directory
    needed = set(_needed_by_others(snapshot, roots))
    files = {path for file in snapshot.metadata.state_files() if (path := snapshot.own_path(file)) is not None}
    delete_metadata(fs, directory)
    claims = [posixpath.join(directory, name) for name in (CLAIM_NAME, CLAIMED_NAME)]
    for path in [*sorted(files - needed), *claims]:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            fs.rm_file(path)
    fs.invalidate_cache(directory)
    for emptied in sorted({directory, *(posixpath.dirname(path) for path in files)}):
        _remove_if_empty(fs, emptied)
    if snapshot.job_directory is not None:
        _remove_end(fs, snapshot.job_directory)
    return sorted(posixpath.basename(path.rstrip("/")) for path in _listed(fs, directory))


class _Root:
    """A checkpoint directory, and the records in its files about jobs of any driver."""

    def __init__(self, fs: Any, path: str, has_ended: Callable[[str], bool]) -> None:
        self.fs = fs
        self.path = path
        self._has_ended_here = has_ended

    def has_ended(self, job_id: str) -> bool:
        """Return whether a job is known to have ended."""
        return self._has_ended_here(job_id) or bool(self.fs.exists(posixpath.join(self.path, job_id, ENDED_NAME)))

    def check_has_ended(self, snapshot: Snapshot) -> None:
        """Raise `CheckpointError` if a checkpoint's job may be running, or another job continues from it."""
        metadata = snapshot.metadata
        if self.has_ended(metadata.job_id):
            return
        named = f"{metadata.job_name!r} ({metadata.job_id})"
        leader = self._leader(metadata)
        if leader is None or leader == metadata.job_id:
            raise CheckpointError(
                f"{snapshot.url} is in use by job {named}, as far as is known: no end of the job is recorded. If no "
                "driver runs it, create the empty file "
                f"{shown(self.fs, self._build_end_marker_path(metadata.job_id))} and ask again"
            )
        if not self.has_ended(leader) and not self._has_checkpoint(leader):
            raise CheckpointError(
                f"{snapshot.url} is in use: job {leader} continues job {named} and has no checkpoint of its own yet"
            )

    def check_not_in_use(self, snapshot: Snapshot) -> None:
        """Raise `CheckpointError` if a job began from the snapshot and has no checkpoint of its own yet."""
        for mark in self._marks():
            if mark.status != BEGUN or mark.savepoint is None or self.has_ended(mark.job_id):
                continue
            if self._reaches(mark.savepoint, snapshot) and not self._has_checkpoint(mark.job_id):
                raise CheckpointError(
                    f"{snapshot.url} is in use: job {mark.job_name!r} ({mark.job_id}) began from it and has no "
                    f"checkpoint of its own yet. If no driver runs that job, create the empty file "
                    f"{shown(self.fs, self._build_end_marker_path(mark.job_id))} and ask again"
                )

    def metadata_below(self) -> Iterator[tuple[str, str]]:
        """Yield the job and the directory of every checkpoint that has metadata."""
        self.fs.invalidate_cache(self.path)
        for path in sorted(self.fs.glob(f"{self.path}/*/chk-*/{METADATA_NAME}")):
            match = CHECKPOINT.search(path)
            if match is not None:
                yield match[1], posixpath.dirname(path)

    def _marks(self) -> list[JobMark]:
        """Return the job marks of all names."""
        marks = JobMarks(self.fs, self.path)
        job_marks = marks.all()
        if not lists_exactly(self.fs):
            for directory in _listed(self.fs, marks.directory):
                job_marks += KeyedLeaders(ObjectFiles(self.fs), directory.rstrip("/"), "").marks()[0]
        return job_marks

    def _reaches(self, path: str, snapshot: Snapshot) -> bool:
        fs, directory = real_directory(path)
        return directory == snapshot.directory and type(fs) is type(snapshot.fs)

    def _leader(self, metadata: CheckpointMetadata) -> str | None:
        """Return the job of the newest job master of the name, if it took over after the checkpoint was completed."""
        directory = posixpath.join(JobMarks(self.fs, self.path).directory, file_of_name(metadata.job_name))
        leaders: Leaders | KeyedLeaders = (
            Leaders(self.fs, directory, metadata.job_name)
            if lists_exactly(self.fs)
            else KeyedLeaders(ObjectFiles(self.fs), directory, metadata.job_name)
        )
        highest = leaders.highest()
        if highest <= metadata.job_master:
            return None
        return dict(leaders.former(highest + 1)).get(highest)

    def _has_checkpoint(self, job_id: str) -> bool:
        return any(job_id == other for other, _ in self.metadata_below())

    def _build_end_marker_path(self, job_id: str) -> str:
        return posixpath.join(self.path, job_id, ENDED_NAME)


def _check_claim(snapshot: Snapshot, roots: Iterable[_Root], has_ended: Callable[[str], bool]) -> None:
    """Raise if the snapshot is claimed by a job that may be running: that job deletes it itself."""
    path = posixpath.join(snapshot.directory, CLAIMED_NAME)
    try:
        owner = snapshot.fs.cat_file(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return
    match = _CLAIM.fullmatch(owner)
    job_id = "" if match is None else match[1]
    if not has_ended(job_id) and not any(root.has_ended(job_id) for root in roots if job_id):
        raise CheckpointError(
            f"{snapshot.url} is in use: it is claimed by {owner or 'another job'}, which deletes it. If that job is "
            f"gone, delete {shown(snapshot.fs, path)} and ask again"
        )


def _places(snapshot: Snapshot, roots: Iterable[str]) -> dict[str, Any]:
    """Return the checkpoint directories with their file systems, first that of the snapshot if it is a checkpoint."""
    of_job = snapshot.job_directory
    directories = {} if of_job is None else {posixpath.dirname(of_job): snapshot.fs}
    for url in roots:
        fs, root = url_to_fs(url)
        directories.setdefault(_real(fs, root.rstrip("/")), fs)
    return directories


def _needed_by_others(snapshot: Snapshot, roots: Iterable[str]) -> Iterator[str]:
    """Yield the paths of all files that other checkpoints reference."""
    for root, fs in _places(snapshot, roots).items():
        for job_id, directory in _Root(fs, root, lambda _: False).metadata_below():
            real = _real(fs, directory)
            if real == snapshot.directory:
                continue
            try:
                other = load_metadata(fs, directory)
            except (RevokedError, MissingMetadataError):
                continue
            except CheckpointError as damage:
                if job_id != snapshot.metadata.job_id:
                    continue  # a checkpoint references no files of other jobs
                raise CheckpointError(
                    f"{snapshot.url} cannot be deleted, because another checkpoint of its job may need its files: "
                    f"{damage}. Delete that checkpoint's {METADATA_NAME} first"
                ) from damage
            yield from (_plain(fs, file.path, real) for file in other.state_files() if file.path is not None)


def _plain(fs: Any, path: str, directory: str) -> str:
    """Return the path of a state file in its file system; savepoint metadata names files without a directory."""
    if "://" in path:
        path = url_to_fs(path)[1]
    path = path if "/" in path else posixpath.join(directory, path)
    # If the file itself is a link, the link is deleted and its target stays.
    return posixpath.join(_real(fs, posixpath.dirname(path)), posixpath.basename(path))


def _real(fs: Any, path: str) -> str:
    return os.path.realpath(path) if is_local(fs) else path


def _listed(fs: Any, directory: str) -> list[str]:
    fs.invalidate_cache(directory)
    try:
        paths: list[str] = fs.ls(directory, detail=False)
    except FileNotFoundError:
        return []
    return paths


def _remove_if_empty(fs: Any, directory: str) -> None:
    # HDFS would delete the contents of a directory as well, so list it first.
    if has_directories(fs) and not _listed(fs, directory):
        with contextlib.suppress(OSError):
            fs.rmdir(directory)


def _remove_end(fs: Any, of_job: str) -> None:
    """Remove the directory of an ended job that holds only the record of its end."""
    if [posixpath.basename(path.rstrip("/")) for path in _listed(fs, of_job)] == [ENDED_NAME]:
        with contextlib.suppress(FileNotFoundError):
            fs.rm_file(posixpath.join(of_job, ENDED_NAME))
        _remove_if_empty(fs, of_job)
