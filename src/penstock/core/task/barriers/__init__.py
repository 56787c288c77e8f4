"""Barrier handling: when a task takes its part of a checkpoint, one class a mode behind one interface (G1 to G5).

Theory. A barrier splits each channel's records into those before and those behind it, so the barriers of one
checkpoint cut the whole dataflow in two. A checkpoint is right when its state is that of one such cut:

- *aligned*: a task takes its snapshot when on every channel exactly the records before the barrier have been
  processed; a channel that has delivered the barrier is held back until all have.
- *at least once*: the same without holding back; records behind the barrier may be in the state too, and are
  processed again after a recovery.
- *unaligned*: a task takes its snapshot as soon as it hears of the barrier. The records that are still before the
  barrier (in the queues of its channels, and in its own output queues, which the barrier overtakes) become part of
  the checkpoint, and are put back into those queues by a recovery.

Rules, the same for all modes (G3). At most one alignment is in progress. A newer barrier ends an older alignment,
whose checkpoint is then declined; a barrier of an older or of an ended checkpoint is ignored. A cancel marker ends
the alignment that it names, or lets a later barrier of it be ignored. A channel that has ended counts as aligned.
Whatever ends an alignment releases all channels.
"""

from penstock.core.protocol import TaskSettings
from penstock.core.task.barriers.aligned import AlignedBarrierHandler
from penstock.core.task.barriers.at_least_once import AtLeastOnceBarrierHandler
from penstock.core.task.barriers.handler import BarrierHandler, CheckpointTarget, InFlight
from penstock.core.task.barriers.unaligned import UnalignedBarrierHandler
from penstock.core.task.channels.input_gate import InputGate

__all__ = [
    "AlignedBarrierHandler",
    "AtLeastOnceBarrierHandler",
    "BarrierHandler",
    "CheckpointTarget",
    "InFlight",
    "UnalignedBarrierHandler",
    "barrier_handler_for",
]


def barrier_handler_for(settings: TaskSettings, gate: InputGate, target: CheckpointTarget) -> BarrierHandler:
    """The handler of the mode that a task's settings name."""
    if not settings.exactly_once:
        return AtLeastOnceBarrierHandler(gate, target)
    if settings.unaligned:
        return UnalignedBarrierHandler(gate, target, settings.held_back_bytes_max)
    return AlignedBarrierHandler(gate, target, settings.held_back_bytes_max)
