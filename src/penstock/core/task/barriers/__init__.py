"""Barrier handling: when a task takes its part of a checkpoint; one class per mode, one interface (G1 to G5).

Theory. A barrier splits each channel's records into the records before and after it, so the barriers of one checkpoint
cut the whole dataflow in two. A checkpoint is consistent if its state matches one such cut:

- *aligned*: a task takes its snapshot when it has processed, on every channel, exactly the records before the barrier.
  It holds back a channel that has delivered the barrier until all have.
- *at least once*: the same without holding back. The state may also include records after the barrier; they are
  processed again after a recovery.
- *unaligned*: a task takes its snapshot as soon as the first barrier arrives. The records still before the barrier
  become part of the checkpoint: records in the queues of the task's channels, and in its own output queues, which the
  barrier overtakes. A recovery puts them back into those queues.
- *forced aligned*: in unaligned modes, a task with a broadcast or pointwise input still aligns, on all its inputs, and
  no barrier overtakes records on their way to it.

Rules, the same for all modes (G3). At most one alignment is in progress. A newer barrier ends an older alignment, whose
checkpoint the task then declines. The task ignores a barrier of an older or an ended checkpoint. A cancel marker ends
the alignment that it names, or makes the task ignore a later barrier of that checkpoint. A channel that has ended
counts as aligned. The end of an alignment, whatever its cause, releases all channels.
"""

from penstock.core.protocol import TaskSettings
from penstock.core.task.barriers.aligned import AlignedBarrierHandler
from penstock.core.task.barriers.at_least_once import AtLeastOnceBarrierHandler
from penstock.core.task.barriers.forced_aligned import ForcedAlignedBarrierHandler
from penstock.core.task.barriers.handler import BarrierHandler, CheckpointTarget, InFlight
from penstock.core.task.barriers.unaligned import UnalignedBarrierHandler
from penstock.core.task.channels.input_gate import InputGate

__all__ = [
    "AlignedBarrierHandler",
    "AtLeastOnceBarrierHandler",
    "BarrierHandler",
    "CheckpointTarget",
    "ForcedAlignedBarrierHandler",
    "InFlight",
    "UnalignedBarrierHandler",
    "build_barrier_handler",
]


def build_barrier_handler(
    settings: TaskSettings, gate: InputGate, target: CheckpointTarget, supports_unaligned: bool
) -> BarrierHandler:
    """Return the handler for a task's settings; `supports_unaligned`: whether all of its inputs support it."""
    if not settings.exactly_once:
        return AtLeastOnceBarrierHandler(gate, target)
    if not settings.unaligned:
        return AlignedBarrierHandler(gate, target, settings.held_back_bytes_max)
    if not supports_unaligned:
        return ForcedAlignedBarrierHandler(gate, target, settings.held_back_bytes_max)
    return UnalignedBarrierHandler(gate, target, settings.held_back_bytes_max)
