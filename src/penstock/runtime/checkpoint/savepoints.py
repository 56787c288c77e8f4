"""Savepoints on request (H1, H2), and where a job continues (G8, G11).

`read_recovery` finds where a new job master continues, from the store of a job that another one ran.

**Savepoints** are checkpoints that the user requests, each in its own directory. A savepoint is taken while no
checkpoint is in progress, and none begins meanwhile, so neither disturbs the other. A savepoint that leaves the job
running is not a recovery point and commits nothing. A savepoint that ends the job is its last recovery point: its
output is committed, and after a failure in between only that commit remains to be done.

A task that is about to end declines a savepoint. The savepoint is then retried a little later, as long as the request
has time; meanwhile checkpoints may begin, because the task may be waiting for one.

`choose_latest` finds where a job that continues from the newest checkpoint of its name starts. Pure: the findings in, a
choice out. Checkpoints count, and so does the savepoint that the last job was stopped with. The newest one is chosen:
that of the highest job master, and among those the newest by time. A job that has ended and recorded so has left
nothing else, and one that came to its end has nothing more to do. A checkpoint does not count if it is older than the
start of a job that did not continue from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.base.configuration import Configuration
from penstock.base.errors import CheckpointError
from penstock.base.options import RECOVERY_FROM_LATEST, RECOVERY_PAST_DAMAGED, RECOVERY_PATH
from penstock.runtime.graph import JobGraph
from penstock.runtime.ports import CheckpointStore
from penstock.runtime.protocol import StopMode
from penstock.storage.leadership import BEGUN, JobMark, Left, LeftByJobs
from penstock.storage.metadata import CHECKPOINT_FILE, METADATA_NAME, CheckpointMetadata, RevokedError

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


#: The shortest and the longest wait before retrying a savepoint that a task was not ready for.
FIRST_PAUSE_MS: Final = 50
LONGEST_PAUSE_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class TakeSavepoint:
    """A command to a job master, in any execution mode.

    Attributes:
        directory: the parent of the savepoint's own directory.
        stop: how the job ends with the savepoint; None if it continues.
        cancels: whether the job is cancelled once the savepoint is complete.
    """

    directory: str
    stop: StopMode | None = None
    cancels: bool = False


@dataclass
class SavepointRequest:
    """A queued command; `waiter(path, error)` is called once, with one of the two."""

    command: TakeSavepoint
    waiter: Callable[[str | None, str | None], None]
    #: When (ms) the request is abandoned if it could not begin.
    deadline_ms: int
    #: When (ms) it is retried after a task was not ready; None if it may begin at once.
    again_ms: int | None = None
    #: Why tasks have declined it so far.
    declined: str | None = None
    _pause_ms: int = FIRST_PAUSE_MS

    def put_off(self, now_ms: int, reason: str) -> None:
        """Wait because a task was not ready, each time twice as long."""
        self.declined = reason
        self.again_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)


def savepoint_path(directory: str, job_id: str, checkpoint_id: int, attempt: int = 0) -> str:
    """Return the directory of a savepoint, unique among all jobs: Flink's `savepoint-<job>-<number>`.

    A job master that takes over a job does not know its savepoints, so it may reuse their ids. Its attempt numbers
    distinguish its savepoints from earlier ones.
    """
    master = attempt // ATTEMPTS_PER_MASTER
    number = f"{checkpoint_id:06x}{f'-{master}' if master else ''}"
    return f"{directory.rstrip('/')}/savepoint-{job_id[:6]}-{job_id[6:12]}{number}"


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
