"""The elements that flow between operators: batches of records, and in-band control elements.

The unit of work is a `Batch`, the unit of meaning is a record: a batch is a list of values with a parallel list of
event-time timestamps. A batch and its lists never change once it is emitted. User code may change the records, so each
of several consumers gets a batch of its own (`Batch.separated`).
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from penstock.base.copies import separated

MIN_TIMESTAMP: Final = -(2**63)
MAX_TIMESTAMP: Final = 2**63 - 1
MAX_WATERMARK: Final = MAX_TIMESTAMP


class Batch:
    """Records of one stream: `values`, and `timestamps` in ms (or None if no record carries one).

    Both lists have the same length and are read-only once the batch is emitted. For a batch with columns instead of
    lists see `runtime.columns.batch`.

    `kinds` holds a byte for each record, the value of its `RowKind`: how the record changes the table that the stream
    describes. It is None if all are inserts, or if the values are rows, which carry their own kinds.
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
        """Return the records from `start` up to but excluding `stop`, as a new batch."""
        timestamps, kinds = self.timestamps, self.kinds
        return Batch(
            self.values[start:stop],
            None if timestamps is None else timestamps[start:stop],
            None if kinds is None else kinds[start:stop],
        )

    def separated(self) -> Batch:
        """Return the batch for one more consumer: it shares no object with this one that a consumer could change."""
        values = separated(self.values)
        return self if values is self.values else Batch(values, self.timestamps, self.kinds)

    def content(self) -> tuple[Any, ...]:
        """Return values, timestamps, and kinds if there are any, in the form used for state and messages."""
        return (self.values, self.timestamps) if self.kinds is None else (self.values, self.timestamps, self.kinds)

    def max_timestamp(self) -> int | None:
        """Return the highest timestamp (ms), or None if the records carry none."""
        return max(self.timestamps) if self.timestamps else None

    def last_timestamp(self) -> int | None:
        """Return the timestamp (ms) of the last record, or None if the records carry none."""
        return self.timestamps[-1] if self.timestamps else None


class Watermark(msgspec.Struct, frozen=True, tag="watermark", array_like=True):
    """No record with a timestamp (ms) at or below this one will follow on this channel, except late ones (C2)."""

    timestamp: int


class WatermarkStatus(msgspec.Struct, frozen=True, tag="status", array_like=True):
    """Whether a channel is idle: an idle channel does not hold back the watermark of its readers (C2)."""

    idle: bool


class LatencyMarker(msgspec.Struct, frozen=True, tag="latency-marker", array_like=True):
    """The time (ms since the epoch) when a source subtask had emitted everything before it; not in checkpoints."""

    marked_ms: int
    source_id: str
    subtask: int


class CheckpointBarrier(msgspec.Struct, frozen=True, tag="barrier", array_like=True):
    """Separates the records of one checkpoint from the records of the next (G1).

    An unaligned barrier overtakes records. An aligned barrier with a timeout becomes unaligned at the first task that
    is still aligning on it `alignment_timeout_ms` after `timestamp_ms`, the time of the trigger. A timeout of 0 marks
    an unaligned barrier on an edge that does not allow overtaking (`forced_aligned`). `completed_id` is the last
    checkpoint completed by then: incremental state builds on it, and its files are kept meanwhile. The barrier of a
    savepoint names the directory to write to. A barrier that `ends_job` comes after EndOfData. For a barrier that
    `is_full`, tasks write all of their state again.
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
        """Return the same barrier as an overtaking one."""
        return msgspec.structs.replace(self, is_unaligned=True, alignment_timeout_ms=None)

    def forced_aligned(self) -> CheckpointBarrier:
        """Return the same barrier, in its place among the records; after the next task it may overtake again."""
        if not self.is_unaligned:
            return self
        return msgspec.structs.replace(self, is_unaligned=False, alignment_timeout_ms=0)


class CancelCheckpointMarker(msgspec.Struct, frozen=True, tag="cancel-checkpoint", array_like=True):
    """The checkpoint will not complete: a task that is aligning on it stops doing so (G3)."""

    checkpoint_id: int


class EndOfOutputChannelState(msgspec.Struct, frozen=True, tag="end-of-channel-state", array_like=True):
    """The end of the restored checkpoint's in-flight records; everything after it on this channel is new (G5)."""


class EndOfData(msgspec.Struct, frozen=True, tag="end-of-data", array_like=True):
    """No record will follow on this channel; `drain`: whether the job ends for good (F3)."""

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
