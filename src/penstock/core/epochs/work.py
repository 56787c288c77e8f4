"""What a task is told of an epoch, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.core.batch.edges import Consumer
from penstock.storage.metadata import OperatorSubtaskState

#: Vertex and subtask.
Task = tuple[int, int]


class Dealt(NamedTuple):
    """For one source: the new splits of each subtask, pickled, and whether each will get no more."""

    splits: tuple[tuple[bytes, ...], ...]
    no_more: tuple[bool, ...]


@dataclass(frozen=True)
class EpochVertex:
    """A vertex as its tasks need it in every epoch; travels to them.

    `inputs`: the input index of each edge; `consumers`: who reads each edge. A run that `sorts` is the only one of its
    job and reads all there is. In it, `is_keyed` vertices get a row for each record, in order of key and time.
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
    """What one subtask does in one epoch.

    `watermarks`: how far each operator of the chain had come, by its place there, and the chain's input under -1.
    `splits`: new ones for a source, which reads at most `records_max` records. With `ends` the job comes to its end:
    everything is drained and finished. A `savepoint_path` makes the checkpoint a savepoint.

    `restored_ms`: when the checkpoint was taken that the epoch continues from (ms since the epoch, processing time).

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
    """A subtask's part of the epoch's checkpoint. `has_ended`: its source has nothing more to read, ever.

    A task that runs twice may read more the second time. So each run has a `token`, its rows carry it, and an answer
    names the tokens of the runs whose rows it `used`. `is_idle`: the subtask had nothing to read, while others of its
    vertex may have had, so event time does not wait for it.
    """

    operators: dict[str, OperatorSubtaskState]
    watermarks: dict[int, int]
    has_ended: bool
    records_read: int
    token: bytes = b""
    used: frozenset[bytes] = frozenset()
    is_idle: bool = False
