"""What a stepwise master asks of its driver, as values.

A master is a generator. It yields a step; the driver carries it out, and sends the result back or throws what was
raised. So a master does no IO, holds no thread and is never re-entered. Its driver may end it between any two steps, as
the simulator does. Each class says what its result is.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from penstock.base.job_status import JobStatus
from penstock.core.checkpoint.savepoints import TakeSavepoint
from penstock.core.epochs.work import EpochAnswer, EpochWork, Task
from penstock.storage.job_marks import JobMark
from penstock.storage.metadata import CheckpointMetadata, StateFile

T = TypeVar("T")


class Last(NamedTuple):
    """What is left of a task for the client: committables, or bytes that a sink has emitted to it."""

    vertex: int
    operator: int
    kind: int
    sequence: int
    payload: bytes


class Left(NamedTuple):
    """What the tasks of an epoch leave: their answers, and all else in the order of their rows."""

    answers: dict[Task, EpochAnswer]
    last: list[Last]


class Cancelled(Exception):
    """The job was cancelled meanwhile. A driver throws it into the master instead of a step's result."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a savepoint, or for a checkpoint (None). `number` tells requests apart."""

    number: int
    savepoint: TakeSavepoint | None


class Step:
    """One thing to do."""

    __slots__ = ()


#: A part of a master's work, which comes to a `T`.
Steps = Generator[Step, Any, T]


@dataclass(frozen=True, slots=True)
class Report(Step):
    """Tell listeners where the job is in its life."""

    status: JobStatus
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Log(Step):
    """Put a line into the job's log."""

    line: str


@dataclass(frozen=True, slots=True)
class Wait(Step):
    """Let a time (ms) pass; with `until_request`, a request ends the wait early. Raises `Cancelled`."""

    for_ms: int
    until_request: bool = False


@dataclass(frozen=True, slots=True)
class NextRequest(Step):
    """The request that has waited the longest; None when no request waits."""


@dataclass(frozen=True, slots=True)
class Answer(Step):
    """Tell who made a request: the path of the savepoint, the id of the checkpoint, or why there is none."""

    request: Request
    result: str | int | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class PrepareSources(Step):
    """Let sources do what they do before they are read."""


# --- checkpoints -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MarkJob(Step):
    """`CheckpointStore.mark_job`."""

    mark: JobMark


@dataclass(frozen=True, slots=True)
class Join(Step):
    """`CheckpointStore.join`: the job begins beside others of its name."""

    job_name: str


@dataclass(frozen=True, slots=True)
class CheckLeads(Step):
    """Raise `DeposedError` if another driver has taken the job over."""


@dataclass(frozen=True, slots=True)
class TakeOver(Step):
    """`CheckpointStore.take_over`: depose the drivers of a name, and find what its jobs have left."""

    job_name: str


@dataclass(frozen=True, slots=True)
class Load(Step):
    """`CheckpointStore.load`: the metadata at a path, for a job of a name to begin from."""

    path: str
    job_name: str
    claims: bool = False


@dataclass(frozen=True, slots=True)
class ReadThrough(Step):
    """Read every file of a checkpoint. Raises `CheckpointError` for damage."""

    metadata: CheckpointMetadata


@dataclass(frozen=True, slots=True)
class Complete(Step):
    """`CheckpointStore.complete`: from now on the checkpoint, or the savepoint at a path, exists."""

    metadata: CheckpointMetadata
    savepoint_path: str | None = None


@dataclass(frozen=True, slots=True)
class Revoke(Step):
    """`CheckpointStore.revoke`: a checkpoint that failed as it was written is none for ever."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class DeleteGarbage(Step):
    """Delete what no kept checkpoint needs, of checkpoints below an id; not what says that one was revoked."""

    kept: tuple[CheckpointMetadata, ...]
    oldest_live_id: int
    revoked: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteJobs(Step):
    """`CheckpointStore.delete_jobs`: delete what jobs have left that this one continues."""

    job_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteSavepoint(Step):
    """`CheckpointStore.delete_savepoint`: delete what was written for a savepoint that was never announced."""

    path: str


@dataclass(frozen=True, slots=True)
class ClaimSavepoint(Step):
    """Take a path for a savepoint, before anything is written there."""

    path: str


@dataclass(frozen=True, slots=True)
class CheckClaim(Step):
    """Raise `CheckpointError` if another job has put a savepoint there meanwhile."""

    path: str


@dataclass(frozen=True, slots=True)
class EmptySavepoint(Step):
    """Delete what the job has left at a path, except what `kept` consists of."""

    path: str
    kept: CheckpointMetadata | None


@dataclass(frozen=True, slots=True)
class ReleaseSavepoint(Step):
    """Release a claim."""

    path: str


# --- an epoch --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenSources(Step):
    """Let split enumerators continue from what was kept of them, by operator id; those that were open are closed."""

    restored: Mapping[str, StateFile | None]


@dataclass(frozen=True, slots=True)
class DealSplits(Step):
    """New splits of each source: `dict[str, Dealt]`, by operator id."""


@dataclass(frozen=True, slots=True)
class SnapshotSources(Step):
    """What is to be kept of each split enumerator: `dict[str, StateFile]`, by operator id."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class RunEpoch(Step):
    """Run all tasks of an epoch, and give what they `Left`. Raises `Cancelled`."""

    works: Mapping[Task, EpochWork]


@dataclass(frozen=True, slots=True)
class Deliver(Step):
    """Hand the client what sinks have for it, and commit what they have prepared. Doing so again changes nothing."""

    last: tuple[Last, ...]


@dataclass(frozen=True, slots=True)
class EndForerunners(Step):
    """The jobs that this one continues owe nothing: let sinks remove the leftovers of their task runs."""

    job_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndSinks(Step):
    """The job is over and owes nothing: let sinks remove the leftovers of task runs that did not count."""


# --- a batch ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BeginCommits(Step):
    """Take back what runs of the job that died have begun to commit."""


@dataclass(frozen=True, slots=True)
class RunTasks(Step):
    """Run all tasks of a batch, and give what they leave: a list of `Last`. Raises `Cancelled`."""
