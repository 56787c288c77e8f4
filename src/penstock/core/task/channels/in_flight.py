"""Records in flight as a part of a checkpoint: to bytes and back (unaligned checkpoints, G5).

They are kept as an operator state of mode `channel`, one for each channel that had any. Records before the barrier in
an input channel belong to the head of the chain. Records that a barrier overtook in an output belong to the operator
that feeds the output.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.codecs.pickling import dumps
from penstock.core.checkpoint.channel_states import CHANNEL_MODE, channel_of, name_of
from penstock.core.columns.batch import make_batch
from penstock.core.records import MAX_WATERMARK, Batch, Buffer, Element, Watermark
from penstock.core.task.channels.input_gate import InputGate
from penstock.core.task.channels.result_partition import ResultPartition
from penstock.state.snapshot import OperatorCapture


def is_state(element: Element) -> bool:
    """Whether an element in flight belongs in a checkpoint; the sender sends all others again."""
    return isinstance(element, Batch) or (type(element) is Watermark and element.timestamp != MAX_WATERMARK)


def capture_channel(direction: str, edge: int, peer: int, elements: Iterable[Element]) -> OperatorCapture | None:
    """What is in flight in one channel; `direction` is in or out, `peer` the subtask at the other end."""
    items = [
        dumps(e.content() if isinstance(e, Batch) else e.timestamp)  # type: ignore[union-attr]
        for e in elements
        if is_state(e)
    ]
    return OperatorCapture(name_of(direction, edge, peer), CHANNEL_MODE, items) if items else None


def recover_channel(name: str, items: list[object], gate: InputGate, partitions: dict[int, ResultPartition]) -> None:
    """Put what was in flight back into the channel that the state's name says."""
    direction, edge, peer = channel_of(name)
    elements: Buffer = [make_batch(*item) if isinstance(item, tuple) else Watermark(item) for item in items]  # type: ignore[arg-type]
    if direction == "in":
        gate.recover(edge, peer, elements)
    else:
        partitions[edge].recover(peer, elements)


def partition_anew(items: list[object], partition: ResultPartition) -> None:
    """Send on the records that were in flight in a channel that no longer exists."""
    for item in items:
        if isinstance(item, tuple):
            partition.collect(make_batch(*item))
