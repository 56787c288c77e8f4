"""Figures of a job's checkpoints, and the history of the last of them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

#: How many settled checkpoints the history holds (Flink's `web.checkpoints.history`).
HISTORY_MAX: Final = 10


class CheckpointStatus(enum.Enum):
    """What has become of a checkpoint."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


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
        path: where a savepoint is.
        failure: why it failed.
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


@dataclass(frozen=True)
class CheckpointStatistics:
    """Counts since the job began; each change makes a new value, so any thread may read one.

    Attributes:
        triggered: checkpoints and savepoints that were begun.
        completed: checkpoints that are complete.
        failed: checkpoints that failed, without those that were given up because of something else.
        savepoints: savepoints that are complete.
        last: the last checkpoint that completed.
        history: the last that completed or failed, savepoints too, newest first.
    """

    triggered: int = 0
    completed: int = 0
    failed: int = 0
    savepoints: int = 0
    last: CheckpointRecord | None = None
    history: tuple[CheckpointRecord, ...] = ()

    def with_triggered(self) -> CheckpointStatistics:
        """One more was begun."""
        return replace(self, triggered=self.triggered + 1)

    def with_completed(self, record: CheckpointRecord) -> CheckpointStatistics:
        """One has completed."""
        counted = (
            replace(self, savepoints=self.savepoints + 1)
            if record.is_savepoint
            else replace(self, completed=self.completed + 1, last=record)
        )
        return counted._remembering(record)

    def with_failed(self, record: CheckpointRecord, *, counts: bool = True) -> CheckpointStatistics:
        """One was given up; it does not count as failed when something else was at fault."""
        return replace(self, failed=self.failed + counts)._remembering(record)

    def _remembering(self, record: CheckpointRecord) -> CheckpointStatistics:
        return replace(self, history=(record, *self.history)[:HISTORY_MAX])
