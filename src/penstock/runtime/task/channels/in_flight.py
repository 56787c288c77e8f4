"""In-flight records as part of a checkpoint: to bytes and back (unaligned checkpoints, G5).

They are stored as operator state of mode `channel`, one state for each channel that had any. Records before the barrier
in an input channel belong to the head of the chain. Records that a barrier overtook in an output belong to the operator
that feeds the output.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.codecs.pickling import dumps
from penstock.runtime.columns import make_batch
from penstock.runtime.records import MAX_WATERMARK, Batch, Buffer, Element, Watermark
from penstock.runtime.task.channels.input_gate import InputGate
from penstock.runtime.task.channels.result_partition import ResultPartition
from penstock.state.snapshot import CaptureWriter, operator_bytes
from penstock.storage.metadata import CHANNEL_MODE, ChannelState, Direction


def is_state(element: Element) -> bool:
    """Return whether an in-flight element belongs in a checkpoint; senders repeat all others except markers."""
    return isinstance(element, Batch) or (type(element) is Watermark and element.timestamp != MAX_WATERMARK)


@dataclass(frozen=True)
class ChannelCapture:
    """The in-flight elements of one channel, an item for each batch and each watermark. Implements `StateCapture`."""

    channel: ChannelState
    items: list[bytes]

    def write_capture(self, writer: CaptureWriter) -> None:
        """Write the items under the stored name of the channel."""
        writer.write_list(self.channel.stored_name, CHANNEL_MODE, len(self.items), operator_bytes(self.items))

    def discard(self) -> None:
        """Do nothing: the items are only in memory."""


def capture_channel(channel: ChannelState, elements: Iterable[Element]) -> ChannelCapture | None:
    """Return the in-flight elements of one channel; None if there are no such elements."""
    items = [
        dumps(e.content() if isinstance(e, Batch) else e.timestamp)  # type: ignore[union-attr]
        for e in elements
        if is_state(e)
    ]
    return ChannelCapture(channel, items) if items else None


def recover_channel(
    channel: ChannelState, items: list[object], gate: InputGate, partitions: dict[int, ResultPartition]
) -> None:
    """Put in-flight elements back into their channel."""
    elements: Buffer = [make_batch(*item) if isinstance(item, tuple) else Watermark(item) for item in items]  # type: ignore[arg-type]
    if channel.direction is Direction.IN:
        gate.recover(channel.edge, channel.peer, elements)
    else:
        partitions[channel.edge].recover(channel.peer, elements)


def partition_anew(items: list[object], partition: ResultPartition) -> None:
    """Repartition the records that were in flight in a channel that no longer exists."""
    for item in items:
        if isinstance(item, tuple):
            partition.collect(make_batch(*item))
