"""What a new job master finds in the store of a job that another one ran: where to go on (G8, G11)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock.common.errors import CheckpointError
from penstock.core.checkpoint.garbage import CHECKPOINT_FILE
from penstock.core.ports import CheckpointStore
from penstock.storage.metadata import METADATA_NAME, CheckpointMetadata

#: Attempts that one job master may use; the next one begins above them.
ATTEMPTS_PER_MASTER: Final = 1 << 17


@dataclass(frozen=True)
class Recovery:
    """Where to go on: `completed` oldest first, ids above `last_id`, attempts from `first_attempt` on."""

    completed: tuple[CheckpointMetadata, ...]
    last_id: int
    first_attempt: int
    #: Checkpoints that look complete and cannot be read, each with the reason.
    damaged: tuple[str, ...]


def complete_ids(listing: Iterable[str]) -> tuple[list[int], int]:
    """The ids of checkpoints that have metadata, newest first, and the highest id of any that left a file."""
    complete, highest = [], 0
    for path in listing:
        match = CHECKPOINT_FILE.search(path)
        if match is not None:
            highest = max(highest, int(match[1]))
            if match[2] == METADATA_NAME:
                complete.append(int(match[1]))
    return sorted(complete, reverse=True), highest


def read_recovery(store: CheckpointStore, retained: int) -> Recovery:
    """Look into the store; does IO. Checkpoints whose metadata is damaged are passed over and reported."""
    epoch = store.claim_epoch()
    ids, highest = complete_ids(store.listing())
    completed: list[CheckpointMetadata] = []
    damaged = []
    for checkpoint_id in ids:
        if len(completed) == retained:
            break
        try:
            completed.append(store.load_checkpoint(checkpoint_id))
        except CheckpointError as error:
            damaged.append(f"checkpoint {checkpoint_id} cannot be restored: {error}")
    return Recovery(tuple(reversed(completed)), highest, epoch * ATTEMPTS_PER_MASTER, tuple(damaged))
