"""Finds where a new job master continues, from the store of a job that another one ran (G8, G11)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.base.configuration import Configuration
from penstock.base.errors import CheckpointError
from penstock.base.options import RECOVERY_PAST_DAMAGED, RECOVERY_PATH
from penstock.core.checkpoint.garbage import CHECKPOINT_FILE
from penstock.core.graph.job_graph import JobGraph
from penstock.core.ports import CheckpointStore
from penstock.storage.job_marks import BEGUN, JobMark, LeftByJobs
from penstock.storage.metadata import METADATA_NAME, CheckpointMetadata, RevokedError

#: Attempts that one job master may use; the next one starts above them.
ATTEMPTS_PER_MASTER: Final = 1 << 17


@dataclass(frozen=True)
class Recovery:
    """Where to continue: `completed` oldest first, ids above `last_id`, attempts from `first_attempt` on."""

    completed: tuple[CheckpointMetadata, ...]
    last_id: int
    #: Everything left by jobs of the name.
    left: LeftByJobs
    #: Checkpoints that look complete but cannot be read, each with the reason.
    damaged: tuple[str, ...]
    #: The damaged checkpoints that are newer than all others.
    passed_over: tuple[str, ...] = ()
    #: The ids of these checkpoints.
    skipped_ids: tuple[int, ...] = ()
    #: How the job has ended, if it has; `last` is the savepoint that it was stopped with, if that still exists.
    end: JobMark | None = None
    last: CheckpointMetadata | None = None

    @property
    def first_attempt(self) -> int:
        """The first attempt number above all attempts of former job masters."""
        return self.left.number * ATTEMPTS_PER_MASTER


def complete_ids(listing: Iterable[str]) -> tuple[list[int], int]:
    """Return the ids of checkpoints that have metadata, newest first, and the highest id of any that left a file."""
    complete, highest = [], 0
    for path in listing:
        match = CHECKPOINT_FILE.search(path)
        if match is not None:
            highest = max(highest, int(match[1]))
            if match[2] == METADATA_NAME:
                complete.append(int(match[1]))
    return sorted(complete, reverse=True), highest


def read_recovery(store: CheckpointStore, job_id: str, job_name: str, retained: int) -> Recovery:
    """Take over the job and read its store; does IO. Damaged checkpoints are skipped and reported.

    So is a damaged mark: if checkpoints are left, the last one suffices, because that of an ended job ends it again.
    """
    left = store.take_over(job_name)
    own = [mark for mark in left.marks if mark.job_id == job_id and mark.status != BEGUN]
    end = max(own, key=lambda mark: mark.job_master, default=None)
    if end is not None:
        return Recovery((), 0, left, (), (), (), end, _load_savepoint(store, end))
    listed, highest = complete_ids(store.listing())  # the listing may be out of date
    counting = {checkpoint.checkpoint_id for checkpoint in left.checkpoints if checkpoint.job_id == job_id}
    ids, highest = sorted(counting.union(listed), reverse=True), max(highest, *counting, 0)
    completed: list[CheckpointMetadata] = []
    damaged, skipped_ids = [], []
    for checkpoint_id in filter(counting.__contains__, ids):
        if len(completed) == retained:
            break
        try:
            completed.append(store.load_checkpoint(checkpoint_id))
        except RevokedError:
            continue
        except CheckpointError as error:
            damaged.append(f"checkpoint {checkpoint_id} cannot be restored: {error}")
            if not completed:
                skipped_ids.append(checkpoint_id)
    newer = tuple(damaged[: len(skipped_ids)])
    return Recovery(tuple(reversed(completed)), highest, left, (*damaged, *left.damaged), newer, tuple(skipped_ids))


def _load_savepoint(store: CheckpointStore, end: JobMark) -> CheckpointMetadata | None:
    try:
        return None if end.savepoint is None else store.load(end.savepoint)
    except CheckpointError:
        return None  # it belongs to the user, who may have moved it


def read_through(store: CheckpointStore, metadata: CheckpointMetadata) -> None:
    """Read every file of a checkpoint; damage counts only if a second read confirms it. Does IO."""
    try:
        store.verify(metadata)
    except CheckpointError:
        store.verify(metadata)


def must_not_fall_back(job_graph: JobGraph, configuration: Configuration) -> bool:
    """Return whether falling back past a damaged checkpoint would commit again, and the options do not allow that."""
    return job_graph.commits and configuration.read(RECOVERY_PAST_DAMAGED) == "refuse"


def nothing_left(damage: Exception) -> str:
    """Return why a job fails whose only checkpoint is damaged, and how to avoid this in future."""
    return (
        f"no checkpoint is left to recover from: {damage}. Starting over would lose what was committed; to keep more "
        "than one, set execution.checkpointing.num-retained"
    )


def fallen_back(skipped: Sequence[str], restored: str) -> str:
    """Return the log line for falling back to an older checkpoint. Lines before it report the damage of newer ones."""
    return f"falls back: skips {', '.join(skipped)} as damaged, and takes {restored}"


def refusal_to_fall_back(damage: str, before: str) -> str:
    """Return why a job with committing sinks does not fall back past a damaged checkpoint, and the remedies."""
    return (
        f"{damage}. {before} is intact, but falling back to it would commit again what sinks have committed since. "
        f"Restore the file from a copy and start from that checkpoint with {RECOVERY_PATH.key()}, or set "
        f"{RECOVERY_PAST_DAMAGED.key()}: fall-back to fall back anyway"
    )
