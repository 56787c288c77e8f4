"""The end of a task: whether its data ended for good, and which checkpoint it waits for (F3, H1, H2).

The end of the data is final when all input has drained: the operators have finished, and no more records will follow.
Otherwise a savepoint only suspends the job, and the operators keep their state.

After the end of its data, a task waits for its *last checkpoint*, which commits its last output: the first checkpoint
that it takes after that end, or the savepoint that ends the job. A later one also qualifies. With checkpoints off there
is nothing to wait for, unless a savepoint ends the job.

By then, the task's part of a later checkpoint may still be on its way to the store. The task waits for that part and
acknowledges it: a checkpoint can do without the part of a finished task, but a savepoint lists all files in its
directory. The task takes no more parts meanwhile, or slow storage and frequent checkpoints could keep it alive
indefinitely.

The barrier of a savepoint that ends the job belongs after the end of the data. If it arrives while the task drains, it
is held here until then.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from penstock.core.records import CheckpointBarrier


class EndOfTask(enum.Enum):
    """The end of a task's data: final, or a suspension."""

    #: For good: the operators have finished.
    FINISHED = "FINISHED"
    #: By a savepoint: another job continues from there.
    SUSPENDED = "SUSPENDED"


class HeldBarrier(NamedTuple):
    """A barrier that waits for the end of the data, and the cost of its alignment."""

    barrier: CheckpointBarrier
    alignment_ms: int
    held_back_bytes: int


class Ending:
    """See the module docstring."""

    def __init__(self, has_checkpoints: bool) -> None:
        #: How the data ended; None before that.
        self.how: EndOfTask | None = None
        self.last_checkpoint_id: int | None = None
        #: Whether the last checkpoint is complete.
        self.is_committed = False
        self.held: HeldBarrier | None = None
        self._has_checkpoints = has_checkpoints

    @property
    def has_finished(self) -> bool:
        """Whether the data has ended for good."""
        return self.how is EndOfTask.FINISHED

    @property
    def may_close(self) -> bool:
        """Whether the task, after the end of its data, no longer needs to wait for a checkpoint."""
        return self.is_committed or not (self._has_checkpoints or self.last_checkpoint_id is not None)

    def on_stop(self, savepoint_id: int) -> None:
        """Wait for the completion of the savepoint that ends a source, even with checkpoints off."""
        assert self.how is None, "a source is stopped before its data has ended"
        self.last_checkpoint_id = savepoint_id

    def hold(self, held_barrier: HeldBarrier) -> None:
        """Hold the barrier of the savepoint that ends the job, because it arrived before the end of the data."""
        assert held_barrier.barrier.ends_job, (
            f"barrier {held_barrier.barrier.checkpoint_id} ends no job, and waits for nothing"
        )
        assert self.how is None, "a barrier behind the end of the data is not held"
        self.held = held_barrier

    def on_end_of_data(self, how: EndOfTask) -> HeldBarrier | None:
        """Record how the data ended, and return the barrier that waited for it."""
        assert self.how is None, "the data of a task ends once"
        self.how = how
        held_barrier, self.held = self.held, None
        return held_barrier

    def on_part_taken(self, barrier: CheckpointBarrier) -> None:
        """Note that the task has taken its part of a checkpoint, which may be the last one."""
        if self.how is None:
            return
        # Without checkpoints, tasks learn of a savepoint's completion only if the savepoint ends the job.
        is_first = self._has_checkpoints and self.last_checkpoint_id is None
        if is_first or barrier.ends_job:
            self.last_checkpoint_id = barrier.checkpoint_id

    def is_last(self, checkpoint_id: int) -> bool:
        """Return whether this checkpoint, once complete, commits the end of the task."""
        return self.last_checkpoint_id is not None and checkpoint_id >= self.last_checkpoint_id

    def on_complete(self, checkpoint_id: int) -> None:
        """Handle the completion of a checkpoint."""
        self.is_committed = self.is_committed or self.is_last(checkpoint_id)

    def on_aborted(self, checkpoint_id: int) -> None:
        """Stop holding the barrier of an aborted checkpoint."""
        if self.held is not None and self.held.barrier.checkpoint_id == checkpoint_id:
            self.held = None

    def validate(self) -> None:
        """Assert the invariants that hold between steps. The simulator calls this; a running job never does."""
        assert not self.is_committed or self.last_checkpoint_id is not None, (
            "an end is committed by the last checkpoint, which there must be"
        )
        assert self.held is None or self.how is None, "no barrier is held behind the end of the data"
