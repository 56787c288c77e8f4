"""A task's work in an epoch, and its answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.core.batch.edges import Consumer
from penstock.storage.metadata import OperatorSubtaskState

#: The indices of a vertex and a subtask.
Task = tuple[int, int]


class Dealt(NamedTuple):
    """One source's new splits for each subtask, pickled, and whether each subtask gets no more."""

    splits: tuple[tuple[bytes, ...], ...]
    no_more: tuple[bool, ...]


@dataclass(frozen=True)
class EpochVertex:
    """A vertex as its tasks need it in every epoch; it is sent to them.

    `inputs`: the input index of each edge; `consumers`: the consumer of each edge. A run that `sorts` is the only one
    of its job and reads the whole input. In it, `is_keyed` vertices get a row for each record, ordered by key and time.
    """

    index: int
    job_id: str
    name: str
    parallelism: int
    max_parallelism: int
    program: bytes
    inputs: dict[int, int]
    consumers: dict[int, Consumer]
    is_keyed: bool = False
    sorts: bool = False


@dataclass(frozen=True)
class EpochWork:
    """One subtask's work in one epoch.

    `watermarks`: the watermark of each operator, by its place in the chain, and of the chain's input under -1.
    `splits`: new splits for a source, which reads at most `records_max` records. With `ends` the job comes to its end:
    everything is drained and finished. A `savepoint_path` makes the checkpoint a savepoint.

    `restored_ms`: when the checkpoint that the epoch continues from was taken (ms since the epoch, processing time).

    `forerunners`: the jobs that this one continues, until it has a checkpoint of its own.
    """

    epoch: int
    restored_id: int | None
    restored: dict[str, OperatorSubtaskState]
    builds_on_restored: bool
    watermarks: dict[int, int] = field(default_factory=dict)
    splits: tuple[bytes, ...] = ()
    no_more_splits: bool = False
    records_max: int | None = None
    ends: bool = False
    savepoint_path: str | None = None
    forerunners: tuple[str, ...] = ()
    restored_ms: int | None = None


@dataclass(frozen=True)
class EpochAnswer:
    """A subtask's part of the epoch's checkpoint. `has_ended`: its source has reached its end.

    A task that runs twice may read more the second time. So each run has a `token`, its rows carry the token, and an
    answer names the tokens of the runs whose rows it `used`. `is_idle`: the subtask had nothing to read, while others
    of its vertex may have had, so event time does not wait for it.
    """

    operators: dict[str, OperatorSubtaskState]
    watermarks: dict[int, int]
    has_ended: bool
    records_read: int
    token: bytes = b""
    used: frozenset[bytes] = frozenset()
    is_idle: bool = False
