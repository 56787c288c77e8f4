"""Messages from the checkpoint coordinator to the job master: values, handled once the handler has returned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.core.checkpoint.savepoints import SavepointRequest
from penstock.core.protocol import Failure
from penstock.storage.leadership import DeposedError


@dataclass(frozen=True, slots=True)
class CheckpointsFailed:
    """The job must restart: too many checkpoints failed, or a source ended for a savepoint that failed."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class CheckpointsSettled:
    """The outcome of every checkpoint is known."""


@dataclass(frozen=True, slots=True)
class CheckpointCompleted:
    """A checkpoint that the job can restart from is complete."""


@dataclass(frozen=True, slots=True)
class SavepointSettled:
    """A requested savepoint is complete, at `path`, or has failed, for the reason `error`."""

    request: SavepointRequest
    path: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class JobDeposed:
    """Another job master has taken over the job."""

    error: DeposedError


CheckpointNews: TypeAlias = CheckpointCompleted | CheckpointsFailed | CheckpointsSettled | SavepointSettled | JobDeposed
