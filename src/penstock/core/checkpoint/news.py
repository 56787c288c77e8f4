"""What the checkpoint coordinator has for the job master: values, taken in once the handler has returned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.core.checkpoint.savepoints import SavepointRequest
from penstock.core.protocol import Failure
from penstock.storage.leadership import DeposedError


@dataclass(frozen=True, slots=True)
class CheckpointsFailed:
    """The job must restart: too many checkpoints failed, or a source ended for a savepoint that did."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class CheckpointsSettled:
    """Every checkpoint is known to be complete or not."""


@dataclass(frozen=True, slots=True)
class CheckpointCompleted:
    """A checkpoint is complete that the job can begin again from."""


@dataclass(frozen=True, slots=True)
class SavepointSettled:
    """A savepoint that was asked for is complete, at `path`, or will not be, for the reason `error`."""

    request: SavepointRequest
    path: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class JobDeposed:
    """Another job master has taken the job over."""

    error: DeposedError


CheckpointNews: TypeAlias = CheckpointCompleted | CheckpointsFailed | CheckpointsSettled | SavepointSettled | JobDeposed
