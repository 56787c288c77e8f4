"""What flows between operators: batches of records, and the control elements that travel in band with them.

The unit of work is a `Batch`, the unit of meaning is a record: a batch is a list of values with a parallel list of
event-time timestamps. Nothing changes a batch or its lists once it is emitted. User code may change the records, so
each of several consumers gets a batch of its own (`Batch.separated`).
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from penstock.base.copies import separated

MIN_TIMESTAMP: Final = -(2**63)
MAX_TIMESTAMP: Final = 2**63 - 1
MAX_WATERMARK: Final = MAX_TIMESTAMP


class Batch:
    """Records of one stream: `values`, and `timestamps` in ms (or None when no record carries one).

    Both lists are of the same length and are read-only once the batch is emitted. For a batch with columns instead of
    lists see `core.columns.batch`.

    `kinds` says what each record does to the table that the stream describes, a byte each, the value of its `RowKind`.
    It is None when all are inserts, and when the values are rows, which know their kinds themselves.
    """

    __slots__ = ("kinds", "timestamps", "values")

    def __init__(self, values: list[Any], timestamps: list[int] | None = None, kinds: bytes | None = None) -> None:
        self.values = values
        self.timestamps = timestamps
        self.kinds = kinds

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Batch)
            and self.values == other.values
            and self.timestamps == other.timestamps
            and self.kinds == other.kinds
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        kinds = "" if self.kinds is None else f", {self.kinds!r}"
        return f"Batch({self.values!r}, {self.timestamps!r}{kinds})"

    def slice(self, start: int, stop: int) -> Batch:
        """The records from `start` up to `stop`, which is excluded, as a new batch."""
        timestamps, kinds = self.timestamps, self.kinds
        return Batch(
            self.values[start:stop],
            None if timestamps is None else timestamps[start:stop],
            None if kinds is None else kinds[start:stop],
        )

    def separated(self) -> Batch:
        """The batch for one more consumer: it shares no object with this one that a consumer could change."""
        values = separated(self.values)
        return self if values is self.values else Batch(values, self.timestamps, self.kinds)

    def content(self) -> tuple[Any, ...]:
        """Values, timestamps, and kinds if there are any, in the form in which they are kept, wired and stored."""
        return (self.values, self.timestamps) if self.kinds is None else (self.values, self.timestamps, self.kinds)

    def max_timestamp(self) -> int | None:
        """The highest timestamp (ms); None when there is none."""
        return max(self.timestamps) if self.timestamps else None


class Watermark(msgspec.Struct, frozen=True, tag="watermark", array_like=True):
    """No record with a timestamp (ms) at or below this one will follow on this channel, except late ones (C2)."""

    timestamp: int


class WatermarkStatus(msgspec.Struct, frozen=True, tag="status", array_like=True):
    """Whether a channel is idle: an idle channel does not hold back the watermark of those who read it (C2)."""

    idle: bool


class LatencyMarker(msgspec.Struct, frozen=True, tag="latency-marker", array_like=True):
    """Says when (ms since the epoch) a subtask of a source had emitted what is ahead of it; no part of checkpoints."""

    marked_ms: int
    source_id: str
    subtask: int


class CheckpointBarrier(msgspec.Struct, frozen=True, tag="barrier", array_like=True):
    """Separates the records of one checkpoint from those of the next (G1).

    An unaligned barrier overtakes records. An aligned barrier with a time-out becomes unaligned at the first task that
    is still aligning on it `alignment_timeout_ms` after `timestamp_ms`, the moment of the trigger. With a time-out of 0
    it is an unaligned one on an edge on which none may overtake (`forced_aligned`). `completed_id` is
    the last checkpoint completed by then: incremental state builds on it, and its files are kept meanwhile. The barrier
    of a savepoint names the directory to write to. A barrier that `ends_job` comes after EndOfData. For one that
    `is_full` tasks write all of their state anew.
    """

    checkpoint_id: int
    timestamp_ms: int
    savepoint_path: str | None = None
    is_unaligned: bool = False
    alignment_timeout_ms: int | None = None
    completed_id: int = 0
    ends_job: bool = False
    is_full: bool = False

    def overtaking(self) -> CheckpointBarrier:
        """The same barrier, overtaking."""
        return msgspec.structs.replace(self, is_unaligned=True, alignment_timeout_ms=None)

    def forced_aligned(self) -> CheckpointBarrier:
        """The same barrier, keeping its place among the records; behind the next task it may overtake again."""
        if not self.is_unaligned:
            return self
        return msgspec.structs.replace(self, is_unaligned=False, alignment_timeout_ms=0)


class CancelCheckpointMarker(msgspec.Struct, frozen=True, tag="cancel-checkpoint", array_like=True):
    """The checkpoint will not complete: a task that is aligning on it stops doing so (G3)."""

    checkpoint_id: int


class EndOfOutputChannelState(msgspec.Struct, frozen=True, tag="end-of-channel-state", array_like=True):
    """What was in flight in the restored checkpoint has gone ahead; all that follows on this channel is new (G5)."""


class EndOfData(msgspec.Struct, frozen=True, tag="end-of-data", array_like=True):
    """No record will follow on this channel; `drain` tells whether the job ends for good (F3)."""

    drain: bool


class EndOfPartition(msgspec.Struct, frozen=True, tag="end-of-partition", array_like=True):
    """Nothing at all will follow on this channel: its sender has closed (F3)."""


Event: TypeAlias = (
    Watermark
    | WatermarkStatus
    | LatencyMarker
    | CheckpointBarrier
    | CancelCheckpointMarker
    | EndOfOutputChannelState
    | EndOfData
    | EndOfPartition
)
Element: TypeAlias = Batch | Event
Buffer: TypeAlias = list[Element]
