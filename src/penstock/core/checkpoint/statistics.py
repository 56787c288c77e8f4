"""Figures of a job's checkpoints, and the history of the last of them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

#: How many settled checkpoints the history holds (Flink's `web.checkpoints.history`).
HISTORY_MAX: Final = 10
#: How many outcomes of settled checkpoints are kept, for requests that asked for a checkpoint.
OUTCOMES_MAX: Final = 500


class CheckpointStatus(enum.Enum):
    """What has become of a checkpoint."""

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
        state_bytes: what the files hold that it refers to.
        stored_bytes: what was written for this checkpoint.
        start_delay_ms: from the trigger until the first barrier came.
        alignment_ms: how long it aligned.
        held_back_bytes: what it held back meanwhile.
        sync_ms: how long it stood still.
        async_ms: how long it wrote after that.
        processed_bytes: what it processed while it aligned.
        persisted_bytes: the size of the records in flight that were stored.
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
    """The checkpoint or savepoint from which the job began last.

    Attributes:
        checkpoint_id: its id.
        at_ms: when (ms since the epoch).
        is_savepoint: whether a user had asked for it.
        path: where it is; None when the job master holds it.
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
        status: what has become of it.
        triggered_ms: when it began (ms since the epoch).
        is_savepoint: whether a user asked for it.
        duration_ms: from its beginning to its end, or to now.
        state_bytes: what its files hold.
        alignment_ms: how long the slowest task aligned.
        held_back_bytes: what all tasks held back meanwhile.
        sync_ms: how long the slowest task stood still for it.
        async_ms: how long the slowest task wrote after that.
        subtasks: how many subtasks take part.
        acknowledged: how many of them have stored their part.
        path: where it is, of a savepoint from the start.
        failure: why it failed.
        is_unaligned: whether barriers may overtake records for it.
        stops: whether the job ends with it.
        stored_bytes: what was written for it, without what it shares with earlier ones.
        parts: what subtasks have stored.
        metadata_bytes: how long its metadata is, once it is complete.
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
        """What all subtasks together processed while they aligned."""
        return sum(part.processed_bytes for part in self.parts)

    @property
    def persisted_bytes(self) -> int:
        """The bytes of all stored records in flight."""
        return sum(part.persisted_bytes for part in self.parts)


@dataclass(frozen=True)
class CheckpointStatistics:
    """Counts since the job began; each change makes a new value, so any thread may read one.

    Attributes:
        triggered: checkpoints and savepoints that were begun.
        completed: checkpoints that are complete.
        failed: checkpoints that failed, without those that were given up because of something else.
        given_up: those: they ended with an attempt, say, or were savepoints that failed.
        savepoints: savepoints that are complete.
        last: the last checkpoint that completed.
        history: the last that completed or failed, savepoints too, newest first.
        last_savepoint: the last savepoint that completed.
        last_failed: the last checkpoint that failed.
        restored: from where the job began last; None when it began anew.
        restores: how often it began from a checkpoint.
        outcomes: the ids of the last that completed or failed, with the reason of a failure, newest first.
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
        """One more was begun."""
        return replace(self, triggered=self.triggered + 1)

    def with_completed(self, record: CheckpointRecord) -> CheckpointStatistics:
        """One has completed."""
        counted = (
            replace(self, savepoints=self.savepoints + 1, last_savepoint=record)
            if record.is_savepoint
            else replace(self, completed=self.completed + 1, last=record)
        )
        return counted._remembering(record)

    def with_failed(self, record: CheckpointRecord, *, counts: bool = True) -> CheckpointStatistics:
        """One was given up; it does not count as failed when something else was at fault."""
        failed, given_up = self.failed + counts, self.given_up + (not counts)
        return replace(self, failed=failed, given_up=given_up, last_failed=record)._remembering(record)

    def with_restored(self, restored: RestoredRecord) -> CheckpointStatistics:
        """The job has begun from a checkpoint."""
        return replace(self, restored=restored, restores=self.restores + 1)

    def _remembering(self, record: CheckpointRecord) -> CheckpointStatistics:
        failure = (record.failure or "it was given up") if record.status is CheckpointStatus.FAILED else None
        outcome = record.checkpoint_id, failure
        return replace(
            self,
            history=(record, *self.history)[:HISTORY_MAX],
            outcomes=(outcome, *self.outcomes)[:OUTCOMES_MAX],
        )
