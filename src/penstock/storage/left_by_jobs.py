"""Reads the retained checkpoints of jobs, as far as they count (G8)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable
from typing import Final

from penstock.base.errors import CheckpointError
from penstock.storage.job_marks import Left
from penstock.storage.leadership import Found, checkpoint_counts
from penstock.storage.metadata import METADATA_NAME, CheckpointMetadata, MissingMetadataError, RevokedError

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
