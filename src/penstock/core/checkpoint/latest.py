"""Finds where a job that continues from the newest checkpoint of its name starts. Pure: the findings in, a choice out.

Checkpoints count, and so does the savepoint that the last job was stopped with. The newest one is chosen: that of the
highest job master, and among those the newest by time. A job that has ended and recorded so has left nothing else, and
one that came to its end has nothing more to do. A checkpoint does not count if it is older than the start of a job that
did not continue from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.base.options import RECOVERY_FROM_LATEST, RECOVERY_PAST_DAMAGED
from penstock.core.checkpoint.recovery import refusal_to_fall_back
from penstock.storage.job_marks import BEGUN, JobMark, Left, LeftByJobs
from penstock.storage.metadata import CheckpointMetadata


@dataclass(frozen=True)
class Choice:
    """One of: checkpoints, newest first; the savepoint at `path`; the `end` of a finished job; nothing."""

    checkpoints: tuple[CheckpointMetadata, ...] = ()
    path: str | None = None
    end: JobMark | None = None
    #: why checkpoints that may be newer than all others cannot be read
    damaged: tuple[str, ...] = ()
    #: the directories of these checkpoints
    skipped: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the job starts as if no job of its name had ever existed."""
        return not self.checkpoints and self.path is None and self.end is None


def choose_latest(left: LeftByJobs) -> Choice:
    """Return where to continue."""
    mark = _newest_mark(left)
    ended = {mark.job_id for mark in left.marks if mark.status != BEGUN}
    since = (0, -1) if mark is None else (mark.job_master, mark.timestamp_ms)
    counting = [checkpoint for checkpoint in left.checkpoints if checkpoint.job_id not in ended]
    restorable = [
        checkpoint for checkpoint in counting if checkpoint.metadata is not None and _age(checkpoint)[:2] >= since
    ]
    restorable.sort(key=_age, reverse=True)
    if mark is not None and not restorable and mark.status == "FINISHED":
        is_stopped = mark.savepoint is not None and not mark.drained
        return Choice(path=mark.savepoint) if is_stopped else Choice(end=mark)
    names = {checkpoint.job_id for checkpoint in left.checkpoints if checkpoint.metadata is not None}
    damaged = [
        checkpoint
        for checkpoint in counting
        if checkpoint.metadata is None and _may_be_newer(checkpoint, restorable, names)
    ]
    return Choice(
        tuple(checkpoint.metadata for checkpoint in restorable if checkpoint.metadata is not None),
        # A job that did not get to a checkpoint continues where it started.
        path=None if mark is None or restorable or mark.status != BEGUN else mark.savepoint,
        damaged=tuple(f"{checkpoint.directory} cannot be restored: {checkpoint.damage}" for checkpoint in damaged),
        skipped=tuple(checkpoint.directory for checkpoint in damaged),
    )


class Forerunners(NamedTuple):
    """The jobs that another one continues. Once it has a checkpoint of its own, the files of some are deleted."""

    job_ids: tuple[str, ...] = ()
    to_delete: tuple[str, ...] = ()


def forerunners(left: LeftByJobs, choice: Choice, retains: bool, job_id: str) -> Forerunners:
    """Return the jobs that `job_id` continues: all since one of the name ended or started over. Users own older files.

    They also own checkpoints if the option says that jobs retain them (`retains`).
    """
    mark = _newest_mark(left)
    since = -1 if mark is None else mark.job_master
    jobs = {former for number, former in left.former if number > since}
    jobs |= {metadata.job_id for metadata in choice.checkpoints}
    if mark is not None and mark.status == BEGUN:
        jobs.add(mark.job_id)
    jobs.discard(job_id)
    retained = {checkpoint.job_id for checkpoint in left.checkpoints} if retains else set()
    return Forerunners(tuple(sorted(jobs)), tuple(sorted(jobs - retained)))


def refusal_of_latest(choice: Choice) -> str:
    """Return why a job with committing sinks does not continue past damaged checkpoints of its name."""
    if choice.checkpoints:
        return refusal_to_fall_back(choice.damaged[0], str(choice.checkpoints[0].external_path))
    return (
        f"{choice.damaged[0]}. There is no other checkpoint of this name, and starting over would commit again what "
        f"sinks have committed: restore the file from a copy, or set {RECOVERY_PAST_DAMAGED.key()}: fall-back to start "
        "over anyway"
    )


def finished_before(end: JobMark) -> str:
    """Return the message for a user who restarts a job that has nothing more to do."""
    return (
        f"job {end.job_id} of this name has finished, so there is nothing left to do; without "
        f"{RECOVERY_FROM_LATEST.key()} it starts from the beginning"
    )


def _newest_mark(left: LeftByJobs) -> JobMark | None:
    return max(left.marks, key=lambda mark: (mark.job_master, mark.timestamp_ms), default=None)


def _age(checkpoint: Left) -> tuple[int, int, int]:
    metadata = checkpoint.metadata
    assert metadata is not None
    return metadata.job_master, metadata.timestamp_ms, checkpoint.checkpoint_id


def _may_be_newer(damaged: Left, restorable: list[Left], known: set[str]) -> bool:
    """Return whether a damaged checkpoint may be newer.

    Within the job of the newest one, ids decide; a job without any readable checkpoint may be newer.
    """
    if damaged.job_id not in known:
        return True
    return (
        bool(restorable)
        and restorable[0].job_id == damaged.job_id
        and damaged.checkpoint_id > restorable[0].checkpoint_id
    )
