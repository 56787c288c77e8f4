"""Finds unneeded files in a job's checkpoint directory (G6, G11). Pure: a listing in, paths out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from penstock.storage.metadata import METADATA_NAME, CheckpointMetadata

#: The checkpoint id and the name of a file in a job's directory.
CHECKPOINT_FILE = re.compile(r"(?:^|/)chk-(\d+)/([^/]+)$")


def garbage(
    listing: Iterable[str],
    retained: Iterable[CheckpointMetadata],
    oldest_live_id: int,
    revoked: Collection[int] = (),
) -> list[str]:
    """Return the files to delete, metadata first, so that a half-deleted checkpoint never looks complete.

    The record that a checkpoint was revoked stays, because its metadata may still be written.

    Needed are: all files of checkpoints from `oldest_live_id` on, which may still be pending; the metadata of kept
    checkpoints; and every state file that a kept checkpoint refers to, whichever checkpoint wrote it.
    """
    retained = list(retained)
    needed = {file.path for metadata in retained for file in metadata.state_files() if file.path is not None}
    ids = {metadata.checkpoint_id for metadata in retained}
    metadata_files, state_files = [], []
    for path in listing:
        match = CHECKPOINT_FILE.search(path)
        if match is None or int(match[1]) >= oldest_live_id or path in needed:
            continue
        if match[2] == METADATA_NAME:
            if int(match[1]) not in ids and int(match[1]) not in revoked:
                metadata_files.append(path)
        else:
            state_files.append(path)
    return sorted(metadata_files) + sorted(state_files)
