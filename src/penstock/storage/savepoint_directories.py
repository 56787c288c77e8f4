"""Savepoint directories at user-chosen paths: claimed by one job, emptied, released (H1)."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterable
from typing import Final

import fsspec

from penstock.base.errors import CheckpointError
from penstock.storage.files import create, delete_metadata, load_metadata
from penstock.storage.metadata import METADATA_NAME, StateFile

#: The file that names the job that writes a savepoint at a user-chosen path.
CLAIM_NAME: Final = ".claim"
#: The file that names the job that starts from a savepoint or checkpoint and will delete it.
CLAIMED_NAME: Final = "_claimed"
JOB_ID_CHARACTERS: Final = 32


def is_taken(savepoint_path: str) -> bool:
    """Return whether anything exists at the path."""
    fs, directory = fsspec.core.url_to_fs(savepoint_path)
    fs.invalidate_cache(directory)
    exists: bool = fs.exists(directory)
    return exists


def claim_savepoint(savepoint_path: str, owner: str) -> None:
    """Claim a path for one job before writing there, so that no other job can take it.

    Raises:
        CheckpointError: if something exists at the path, or another job has claimed it.
    """
    fs, directory = fsspec.core.url_to_fs(savepoint_path)
    # Of two jobs that find the path empty, only one can create the file.
    if is_taken(savepoint_path) or not create(fs, directory, CLAIM_NAME, owner.encode()):
        raise CheckpointError(f"{savepoint_path} already exists; name a directory that does not exist")


def release_savepoint(savepoint_path: str, owner: str) -> None:
    """Release a claim; everything else stays."""
    fs, directory = fsspec.core.url_to_fs(savepoint_path)
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
    fs, directory = fsspec.core.url_to_fs(savepoint_path)
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
    fs, directory = fsspec.core.url_to_fs(savepoint_path)
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
    fs, directory = fsspec.core.url_to_fs(snapshot_path)
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
    fs, directory = fsspec.core.url_to_fs(savepoint_path)
    fs.invalidate_cache(directory)
    if fs.exists(directory) and not fs.exists(posixpath.join(directory, METADATA_NAME)):
        fs.rm(directory, recursive=True)


def belongs_to_job(savepoint_path: str, job_id: str) -> bool:
    """Return whether a savepoint's directory has a name that only this job generates."""
    name = posixpath.basename(savepoint_path.rstrip("/"))
    return len(job_id) == JOB_ID_CHARACTERS and name.startswith(f"savepoint-{job_id[:6]}-{job_id[6:12]}")


def delete_directory(savepoint_path: str) -> None:
    """Delete a directory that a job created for its savepoint, with all its contents, metadata first."""
    fs, directory = fsspec.core.url_to_fs(savepoint_path)
    delete_metadata(fs, directory)
    if fs.exists(directory):
        fs.rm(directory, recursive=True)
