"""How a task comes to its end: whether its data ended for good, and which checkpoint it waits for (F3, H1, H2).

The end of the data is a true one when all input has drained: the operators have finished, and no record will ever come.
Otherwise the job is only suspended by a savepoint, and the operators keep what they hold.

After the end of its data a task waits for its *last checkpoint*, which commits what it emitted last: the first one that
it takes after that end, or the savepoint that ends the job. A later one does as well. With checkpoints off there is
nothing to wait for, unless a savepoint ends the job.

A part of a later one may be on its way to the store by then. The task waits for that, too, and acknowledges it: a
checkpoint does without a part of a finished task, but a savepoint names all files in its directory. It takes no more
parts meanwhile, or slow storage and frequent checkpoints could keep it for ever.

The barrier of a savepoint that ends the job belongs behind the end of the data. If it comes while the task drains, it
is held here until then.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from penstock.core.records import CheckpointBarrier


class EndOfTask(enum.Enum):
    """How the data of a task has ended."""

    #: For good: the operators have finished.
    FINISHED = "FINISHED"
    #: By a savepoint: another job goes on from there.
    SUSPENDED = "SUSPENDED"


class HeldBarrier(NamedTuple):
    """A barrier that waits for the end of the data, and what its alignment took."""

    barrier: CheckpointBarrier
    alignment_ms: int
    held_back_bytes: int


class Ending:
    """See the module's text."""

    def __init__(self, has_checkpoints: bool) -> None:
        #: How the data has ended; None while it has not.
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
        """Whether the task, after the end of its data, need not wait for a checkpoint any more."""
        return self.is_committed or not (self._has_checkpoints or self.last_checkpoint_id is not None)

    def on_stop(self, savepoint_id: int) -> None:
        """A source is asked to end for a savepoint: wait for its completion, with checkpoints off too."""
        assert self.how is None, "a source is stopped before its data has ended"
        self.last_checkpoint_id = savepoint_id

    def hold(self, held: HeldBarrier) -> None:
        """The barrier of the savepoint that ends the job came before the end of the data."""
        assert held.barrier.ends_job, f"barrier {held.barrier.checkpoint_id} ends no job, and waits for nothing"
        assert self.how is None, "a barrier behind the end of the data is not held"
        self.held = held

    def on_end_of_data(self, how: EndOfTask) -> HeldBarrier | None:
        """The data has ended; returns the barrier that has waited for that."""
        assert self.how is None, "the data of a task ends once"
        self.how = how
        held, self.held = self.held, None
        return held

    def on_part_taken(self, barrier: CheckpointBarrier) -> None:
        """The task has taken its part of a checkpoint: it may be the last one."""
        if self.how is None:
            return
        # Without checkpoints, tasks hear of a savepoint's completion only if the savepoint ends the job.
        is_first = self._has_checkpoints and self.last_checkpoint_id is None
        if is_first or barrier.ends_job:
            self.last_checkpoint_id = barrier.checkpoint_id

    def is_last(self, checkpoint_id: int) -> bool:
        """Whether the completion of this checkpoint is what the end waits for."""
        return self.last_checkpoint_id is not None and checkpoint_id >= self.last_checkpoint_id

    def on_complete(self, checkpoint_id: int) -> None:
        """A checkpoint is complete."""
        self.is_committed = self.is_committed or self.is_last(checkpoint_id)

    def on_aborted(self, checkpoint_id: int) -> None:
        """A checkpoint was given up: its barrier is held no longer."""
        if self.held is not None and self.held.barrier.checkpoint_id == checkpoint_id:
            self.held = None

    def validate(self) -> None:
        """Assert what holds between any two steps. The simulator calls this; a running job never does."""
        assert not self.is_committed or self.last_checkpoint_id is not None, (
            "an end is committed by the last checkpoint, which there must be"
        )
        assert self.held is None or self.how is None, "no barrier is held behind the end of the data"
