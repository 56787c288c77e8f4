"""Statistics of a job's checkpoints, and the history of the most recent ones.

Records in flight in a channel, as a state in a checkpoint: the channel, and its stored form (G5).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

#: The number of completed or failed checkpoints in the history (Flink's `web.checkpoints.history`).
HISTORY_MAX: Final = 10
#: The number of checkpoint outcomes kept to answer requests that triggered a checkpoint.
OUTCOMES_MAX: Final = 500


class CheckpointStatus(enum.Enum):
    """The status of a checkpoint."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(frozen=True)
class SubtaskCheckpoint:
    """A subtask's part of a checkpoint: durations in ms, sizes in bytes.

    Attributes:
        vertex: the index of its vertex.
        subtask: its index, from 0.
        acknowledged_ms: when its part was stored (ms since the epoch).
        duration_ms: from the trigger of the checkpoint until then.
        state_bytes: the size of the state that it refers to.
        stored_bytes: the bytes written for this checkpoint.
        start_delay_ms: from the trigger until the first barrier arrived.
        alignment_ms: the duration of its alignment.
        held_back_bytes: the bytes held back during alignment.
        sync_ms: how long it stood still to take the snapshot.
        async_ms: how long it wrote the snapshot afterwards.
        processed_bytes: the bytes processed during alignment.
        persisted_bytes: the size of the stored in-flight records.
    """

    vertex: int
    subtask: int
    acknowledged_ms: int
    duration_ms: int = 0
    state_bytes: int = 0
    stored_bytes: int = 0
    start_delay_ms: int = 0
    alignment_ms: int = 0
    held_back_bytes: int = 0
    sync_ms: int = 0
    async_ms: int = 0
    processed_bytes: int = 0
    persisted_bytes: int = 0


@dataclass(frozen=True)
class RestoredRecord:
    """The checkpoint or savepoint that the job was last restored from.

    Attributes:
        checkpoint_id: its id.
        at_ms: when the job was restored (ms since the epoch).
        is_savepoint: whether a user requested it.
        path: its path; None if the job master holds it.
    """

    checkpoint_id: int
    at_ms: int
    is_savepoint: bool = False
    path: str | None = None


@dataclass(frozen=True)
class CheckpointRecord:
    """One checkpoint or savepoint: durations in ms, sizes in bytes.

    Attributes:
        checkpoint_id: its id.
        status: its status.
        triggered_ms: when it began (ms since the epoch).
        is_savepoint: whether a user requested it.
        duration_ms: from its beginning to its end, or to now.
        state_bytes: the size of its files.
        alignment_ms: how long the slowest task aligned.
        held_back_bytes: the bytes that all tasks held back during alignment.
        sync_ms: how long the slowest task stood still for it.
        async_ms: how long the slowest task wrote afterwards.
        subtasks: how many subtasks take part.
        acknowledged: how many of them have stored their part.
        path: its path, which a savepoint has from the start.
        failure: why it failed.
        is_unaligned: whether barriers may overtake records for it.
        stops: whether the job ends with it.
        stored_bytes: the bytes written for it, without those shared with earlier checkpoints.
        parts: the parts stored by subtasks.
        metadata_bytes: the size of its metadata, once it is complete.
    """

    checkpoint_id: int
    status: CheckpointStatus
    triggered_ms: int
    is_savepoint: bool = False
    duration_ms: int = 0
    state_bytes: int = 0
    alignment_ms: int = 0
    held_back_bytes: int = 0
    sync_ms: int = 0
    async_ms: int = 0
    subtasks: int = 0
    acknowledged: int = 0
    path: str | None = None
    failure: str | None = None
    is_unaligned: bool = False
    stops: bool = False
    stored_bytes: int = 0
    parts: tuple[SubtaskCheckpoint, ...] = ()
    metadata_bytes: int = 0

    @property
    def processed_bytes(self) -> int:
        """The bytes that all subtasks together processed during alignment."""
        return sum(part.processed_bytes for part in self.parts)

    @property
    def persisted_bytes(self) -> int:
        """The size of all stored in-flight records."""
        return sum(part.persisted_bytes for part in self.parts)


@dataclass(frozen=True)
class CheckpointStatistics:
    """Counts since the job began. Immutable: each change creates a new value, so any thread may read one.

    Attributes:
        triggered: the number of checkpoints and savepoints begun.
        completed: the number of completed checkpoints.
        failed: the number of failed checkpoints, without those in `given_up`.
        given_up: checkpoints aborted for another reason, such as the end of an attempt, and failed savepoints.
        savepoints: the number of completed savepoints.
        last: the last completed checkpoint.
        history: the last completed or failed checkpoints and savepoints, newest first.
        last_savepoint: the last completed savepoint.
        last_failed: the last failed or given-up checkpoint or savepoint.
        restored: where the job was last restored from; None if it started from the beginning.
        restores: how often it was restored from a checkpoint.
        outcomes: the ids of the last completed or failed checkpoints, each with the reason of a failure, newest first.
    """

    triggered: int = 0
    completed: int = 0
    failed: int = 0
    savepoints: int = 0
    last: CheckpointRecord | None = None
    history: tuple[CheckpointRecord, ...] = ()
    last_savepoint: CheckpointRecord | None = None
    last_failed: CheckpointRecord | None = None
    restored: RestoredRecord | None = None
    restores: int = 0
    outcomes: tuple[tuple[int, str | None], ...] = ()
    given_up: int = 0

    def with_triggered(self) -> CheckpointStatistics:
        """Return the statistics with one more triggered checkpoint."""
        return replace(self, triggered=self.triggered + 1)

    def with_completed(self, record: CheckpointRecord) -> CheckpointStatistics:
        """Return the statistics with one more completed checkpoint."""
        counted = (
            replace(self, savepoints=self.savepoints + 1, last_savepoint=record)
            if record.is_savepoint
            else replace(self, completed=self.completed + 1, last=record)
        )
        return counted._remembering(record)

    def with_failed(self, record: CheckpointRecord, *, counts: bool = True) -> CheckpointStatistics:
        """Return the statistics with one more failed checkpoint, or a given-up one if something else was at fault."""
        failed, given_up = self.failed + counts, self.given_up + (not counts)
        return replace(self, failed=failed, given_up=given_up, last_failed=record)._remembering(record)

    def with_restored(self, restored: RestoredRecord) -> CheckpointStatistics:
        """Return the statistics with one more restore from a checkpoint."""
        return replace(self, restored=restored, restores=self.restores + 1)

    def _remembering(self, record: CheckpointRecord) -> CheckpointStatistics:
        failure = (record.failure or "it was given up") if record.status is CheckpointStatus.FAILED else None
        outcome = record.checkpoint_id, failure
        return replace(
            self,
            history=(record, *self.history)[:HISTORY_MAX],
            outcomes=(outcome, *self.outcomes)[:OUTCOMES_MAX],
        )


#: The mode of an operator state with records in flight.
CHANNEL_MODE: Final = "channel"
_PREFIX: Final = "_penstock_in_flight"


class Direction(enum.Enum):
    """The end of a channel where its records were captured; the values are used in the stored form."""

    IN = "in"
    OUT = "out"


class ChannelState(NamedTuple):
    """The records in flight in one channel of a subtask; `peer` is the subtask at the other end."""

    direction: Direction
    edge: int
    peer: int

    @property
    def stored_name(self) -> str:
        """The name of the state in a checkpoint; `parse_channel` parses it."""
        return f"{_PREFIX}.{self.direction.value}.{self.edge}.{self.peer}"


def parse_channel(stored_name: str) -> ChannelState:
    """Return the channel of a state in a checkpoint, given the state's name."""
    prefix, direction, edge, peer = stored_name.split(".")
    assert prefix == _PREFIX, f"{stored_name!r} names no records in flight"
    return ChannelState(Direction(direction), int(edge), int(peer))
