"""News from the parts of a job master: values that it handles when the current handler has returned."""

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
    """The starting point of the job is known, so its workers are needed."""


@dataclass(frozen=True, slots=True)
class AttemptReady:
    """The attempt begins from that checkpoint, which is intact, or from the beginning."""

    restored: CheckpointMetadata | None


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """The attempt fails, or cannot begin now; another one may succeed."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class JobGivenUp:
    """The job fails, because no further attempt can succeed."""

    error: PenstockError


@dataclass(frozen=True, slots=True)
class JobHadEnded:
    """An earlier job master, or an earlier job of the same name, has already ended the job."""

    status: JobStatus


@dataclass(frozen=True, slots=True)
class RescaleDue:
    """All tasks must restart from the last checkpoint, at another parallelism or on other workers."""


JobNews: TypeAlias = CheckpointNews | BeginKnown | AttemptReady | AttemptFailed | JobGivenUp | JobHadEnded | RescaleDue
