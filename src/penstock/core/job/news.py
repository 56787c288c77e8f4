"""What the parts of a job master have for it: values, which it takes in when the handler has returned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.base.errors import PenstockError
from penstock.base.job_status import JobStatus
from penstock.core.checkpoint.news import CheckpointNews
from penstock.core.protocol import Failure
from penstock.storage.metadata import CheckpointMetadata


@dataclass(frozen=True, slots=True)
class BeginKnown:
    """Where the job begins is known: its workers are needed."""


@dataclass(frozen=True, slots=True)
class AttemptReady:
    """The attempt begins from that checkpoint, which is whole, or from nothing."""

    restored: CheckpointMetadata | None


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """The attempt fails, or cannot begin now; another one may do better."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class JobGivenUp:
    """No attempt can help."""

    error: PenstockError


@dataclass(frozen=True, slots=True)
class JobHadEnded:
    """A former job master, or a former job of the name, has brought the job to its end."""

    status: JobStatus


@dataclass(frozen=True, slots=True)
class RescaleDue:
    """All tasks are to begin again from the last checkpoint, at another parallelism."""


JobNews: TypeAlias = CheckpointNews | BeginKnown | AttemptReady | AttemptFailed | JobGivenUp | JobHadEnded | RescaleDue
