"""Alignment in unaligned modes, of a task with a broadcast or a pointwise input (G5).

Each consumer of a broadcast gets all of its records. If an unaligned checkpoint held those in flight, every consumer
would lack other ones, and its state would differ from that of the others by them: also its keyed state, in ways that
only the user's function knows. Such a checkpoint could not be restored at another parallelism.

A pointwise edge (forward, rescale) connects a subtask with its neighbours, so its records are still parted by the last
key further up. At another parallelism the new records of a key go to another neighbour, and those in flight could not
follow: of a row that changes, the older change might overtake the newer one.

So a task with such an input always aligns, on all its inputs, however long that takes: on each it has processed just
the records before the barrier when it takes its snapshot. Nothing is in flight ahead of it, because its producers let
no barrier overtake there.

Alignment does not come to a deadlock for that. Barriers in band need the credit of their channels only, which a channel
that is not held back gets. An overtaking barrier, which a producer has from further up, needs none.

Behind the task a barrier is again what it was: an overtaking one, or one with a time-out, which may have passed while
the task aligned.
"""

from __future__ import annotations

from penstock.core.records import CheckpointBarrier
from penstock.core.task.barriers.aligned import AlignedBarrierHandler


class ForcedAlignedBarrierHandler(AlignedBarrierHandler):
    """See the module's text."""

    def _take_part(
        self, barrier: CheckpointBarrier, alignment_ms: int, held_back: int, processed_bytes: int = 0
    ) -> None:
        timeout_ms = barrier.alignment_timeout_ms
        # Clocks of hosts differ: a time-out of 0 has passed, whatever this one says.
        if timeout_ms == 0 or (timeout_ms is not None and self.target.now_ms() >= barrier.timestamp_ms + timeout_ms):
            barrier = barrier.overtaking()
        super()._take_part(barrier, alignment_ms, held_back, processed_bytes)
