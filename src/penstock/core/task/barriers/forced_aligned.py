"""Alignment in unaligned modes, for a task with a broadcast or a pointwise input (G5).

Each consumer of a broadcast gets all of its records. If an unaligned checkpoint contained broadcast records in flight,
each consumer would lack different ones, and its state would differ from the others' accordingly: keyed state as well,
in ways that only the user's function knows. Such a checkpoint could not be restored at another parallelism.

A pointwise edge (forward, rescale) connects a subtask with its neighbours, so its records are still partitioned by the
last key further upstream. At another parallelism, new records of a key go to another neighbour, and records in flight
could not follow: a newer change of a row might overtake an older one.

So a task with such an input always aligns on all its inputs, however long that takes: when it takes its snapshot, it
has processed exactly the records before the barrier on each of them. Nothing is in flight ahead of it, because its
producers let no barrier overtake there.

This cannot cause a deadlock. In-band barriers need only the credit of their channels, and a channel that is not held
back gets credit. An overtaking barrier, which a producer receives from further upstream, needs none.

After the task, a barrier is again what it was: an overtaking one, or one with a timeout, which may have expired while
the task aligned.
"""

from __future__ import annotations

from penstock.core.records import CheckpointBarrier
from penstock.core.task.barriers.aligned import AlignedBarrierHandler


class ForcedAlignedBarrierHandler(AlignedBarrierHandler):
    """See the module docstring."""

    def _take_part(
        self, barrier: CheckpointBarrier, alignment_ms: int, held_back: int, processed_bytes: int = 0
    ) -> None:
        timeout_ms = barrier.alignment_timeout_ms
        # Clocks of hosts differ: a timeout of 0 has expired, whatever this clock says.
        if timeout_ms == 0 or (timeout_ms is not None and self.target.now_ms() >= barrier.timestamp_ms + timeout_ms):
            barrier = barrier.overtaking()
        super()._take_part(barrier, alignment_ms, held_back, processed_bytes)
