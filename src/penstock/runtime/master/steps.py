"""The steps that a stepwise master asks its driver to carry out, as values.

A master is a generator. It yields a step; the driver carries it out, and sends the result back or throws the error. So
a master does no IO, holds no thread and is never re-entered. Its driver may end it between any two steps, as the
simulator does. Each class documents its result.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from penstock.base.job import JobStatus
from penstock.runtime.checkpoint.savepoints import TakeSavepoint
from penstock.runtime.epochs.coordinator import EpochAnswer, EpochWork, Task
from penstock.storage.leadership import JobMark
from penstock.storage.metadata import CheckpointMetadata, StateFile

T = TypeVar("T")


class Last(NamedTuple):
    """A task's output for the client: committables, or bytes that a sink has emitted to the client."""

    vertex: int
    operator: int
    kind: int
    sequence: int
    payload: bytes


class Left(NamedTuple):
    """The results of an epoch's tasks: their answers, and all other output in the order of its rows."""

    answers: dict[Task, EpochAnswer]
    last: list[Last]


class Cancelled(Exception):
    """The job was cancelled. A driver throws this into the master instead of sending a step's result."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a savepoint, or for a checkpoint (None). `number` identifies the request."""

    number: int
    savepoint: TakeSavepoint | None


class Step:
    """One action for the driver to carry out."""

    __slots__ = ()


#: A part of a master's work, with a `T` as its result.
Steps = Generator[Step, Any, T]


@dataclass(frozen=True, slots=True)
class Report(Step):
    """Notify listeners of the job's status."""

    status: JobStatus
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Log(Step):
    """Write a line to the job's log."""

    line: str


@dataclass(frozen=True, slots=True)
class Wait(Step):
    """Wait for a time (ms); with `until_request`, a request ends the wait early. Raises `Cancelled`."""

    for_ms: int
    until_request: bool = False


@dataclass(frozen=True, slots=True)
class NextRequest(Step):
    """Take the request that has waited the longest; None if no request waits."""


@dataclass(frozen=True, slots=True)
class Answer(Step):
    """Answer a request with the path of the savepoint, the id of the checkpoint, or the reason for its failure."""

    request: Request
    result: str | int | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class PrepareSources(Step):
    """Let sources do their preparations before they are read."""


# --- checkpoints -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MarkJob(Step):
    """`CheckpointStore.mark_job`."""

    mark: JobMark


@dataclass(frozen=True, slots=True)
class Join(Step):
    """`CheckpointStore.join`: begin the job beside others of its name."""

    job_name: str


@dataclass(frozen=True, slots=True)
class CheckLeads(Step):
    """Raise `DeposedError` if another driver has taken the job over."""


@dataclass(frozen=True, slots=True)
class TakeOver(Step):
    """`CheckpointStore.take_over`: depose the drivers of a name, and find the state that its jobs have left."""

    job_name: str


@dataclass(frozen=True, slots=True)
class Load(Step):
    """`CheckpointStore.load`: read the metadata at a path, for a job of this name to begin from."""

    path: str
    job_name: str
    claims: bool = False


@dataclass(frozen=True, slots=True)
class ReadThrough(Step):
    """Read every file of a checkpoint. Raises `CheckpointError` if it is damaged."""

    metadata: CheckpointMetadata


@dataclass(frozen=True, slots=True)
class Complete(Step):
    """`CheckpointStore.complete`: make a checkpoint, or the savepoint at a path, exist from now on."""

    metadata: CheckpointMetadata
    savepoint_path: str | None = None


@dataclass(frozen=True, slots=True)
class Revoke(Step):
    """`CheckpointStore.revoke`: permanently invalidate a checkpoint that failed to complete."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class DeleteGarbage(Step):
    """Delete files of checkpoints below an id that no kept checkpoint needs, but not the marks of revoked ones."""

    kept: tuple[CheckpointMetadata, ...]
    oldest_live_id: int
    revoked: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteJobs(Step):
    """`CheckpointStore.delete_jobs`: delete the files of the jobs that this one continues."""

    job_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteSavepoint(Step):
    """`CheckpointStore.delete_savepoint`: delete an unannounced savepoint, or the claimed initial snapshot."""

    path: str


@dataclass(frozen=True, slots=True)
class ClaimSavepoint(Step):
    """Claim a path for a savepoint, before anything is written there."""

    path: str


@dataclass(frozen=True, slots=True)
class CheckClaim(Step):
    """Raise `CheckpointError` if another job has meanwhile put a savepoint there."""

    path: str


@dataclass(frozen=True, slots=True)
class EmptySavepoint(Step):
    """Delete the job's files at a path, except the files of `kept`."""

    path: str
    kept: CheckpointMetadata | None


@dataclass(frozen=True, slots=True)
class ReleaseSavepoint(Step):
    """Release a claim."""

    path: str


# --- an epoch --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenSources(Step):
    """Open split enumerators from their snapshots, by operator id, after closing the ones that are open."""

    restored: Mapping[str, StateFile | None]


@dataclass(frozen=True, slots=True)
class DealSplits(Step):
    """Deal out the new splits of each source: `dict[str, Dealt]`, by operator id."""


@dataclass(frozen=True, slots=True)
class SnapshotSources(Step):
    """Snapshot each split enumerator: `dict[str, StateFile]`, by operator id."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class RunEpoch(Step):
    """Run all tasks of an epoch and return their results (`Left`). Raises `Cancelled`."""

    works: Mapping[Task, EpochWork]


@dataclass(frozen=True, slots=True)
class Deliver(Step):
    """Hand the client the output of sinks, and commit their prepared output. Repeating this changes nothing."""

    last: tuple[Last, ...]


@dataclass(frozen=True, slots=True)
class EndForerunners(Step):
    """Let sinks remove task-run leftovers of the jobs that this one continues; these have nothing left to deliver."""

    job_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndSinks(Step):
    """Let sinks remove the leftovers of discarded task runs: the job is over and has nothing left to deliver."""


# --- a batch ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BeginCommits(Step):
    """Undo commits that earlier runs of the job began before they died."""


@dataclass(frozen=True, slots=True)
class RunTasks(Step):
    """Run all tasks of a batch and return their output: a list of `Last`. Raises `Cancelled`."""
