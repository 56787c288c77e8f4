"""Reads the checkpoints that jobs have left, as far as they count (G8)."""

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
    places: Iterable[tuple[str, int]],
    before: Found | None,
    directory_of: Callable[[str, int], str],
    load: Callable[[str], CheckpointMetadata],
) -> list[Left]:
    """The checkpoints at `places`, which are jobs and ids; those that are damaged with the reason.

    What is not there was deleted since it was listed, or never became a checkpoint. `before`: what counted when the
    last job master took over. `load` reads the metadata in a directory.
    """
    found = []
    for job_id, number in sorted(places):
        directory = directory_of(job_id, number)
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
            found.append(Left(directory, job_id, number, metadata, damage))
    return found


def metadata_to_delete(directory: str, listed: Iterable[str], known_ids: Iterable[int]) -> list[str]:
    """The metadata that goes before the other files of a job's directory, whether the listing shows it or not.

    It may be late. If it shows the files of a checkpoint and not its metadata, what is left would look whole.
    """
    found = {posixpath.dirname(path) for path in listed if CHECKPOINT_DIRECTORY.search(posixpath.dirname(path))}
    found |= {posixpath.join(directory, f"chk-{checkpoint_id}") for checkpoint_id in known_ids}
    return sorted(posixpath.join(one, METADATA_NAME) for one in found)
