"""Barrier handling: when a task takes its part of a checkpoint.

Theory. A barrier splits each channel's records into those before and those behind it. Aligned handling takes the
snapshot at the moment when, on every channel, exactly the records before the barrier have been processed: a channel
that has delivered the barrier is held back until all have (G2). So the state is that of one consistent cut.

Rules (G3). At most one alignment is in progress. A newer barrier ends an older alignment, which is then declined; a
barrier of an older or of an ended checkpoint is ignored. A cancel marker ends the alignment it names, or lets a later
barrier of it be ignored. A channel that has ended counts as aligned. Whatever ends an alignment releases all channels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from penstock.core.records import CancelCheckpointMarker, CheckpointBarrier
from penstock.core.task.input_gate import InputChannel, InputGate


class CheckpointTarget(Protocol):
    """The task, as barrier handling sees it."""

    def trigger_checkpoint(self, barrier: CheckpointBarrier, alignment_ms: int) -> None: ...

    def abort_checkpoint(self, checkpoint_id: int, reason: str) -> None: ...

    def now_ms(self) -> int: ...


class BarrierHandler(ABC):
    """Decides when the barriers that were seen make a checkpoint."""

    def __init__(self, gate: InputGate, target: CheckpointTarget) -> None:
        self.gate = gate
        self.target = target

    @abstractmethod
    def on_barrier(self, channel: InputChannel, barrier: CheckpointBarrier) -> None:
        """A barrier was polled from a channel."""

    @abstractmethod
    def on_cancel_marker(self, channel: InputChannel, marker: CancelCheckpointMarker) -> None:
        """A cancel marker was polled from a channel."""

    @abstractmethod
    def on_channel_ended(self, channel: InputChannel) -> None:
        """A channel has ended: it will deliver no barrier any more."""


class AlignedBarrierHandler(BarrierHandler):
    """Exactly-once by alignment."""

    def __init__(self, gate: InputGate, target: CheckpointTarget) -> None:
        super().__init__(gate, target)
        #: The highest checkpoint that was begun or cancelled here; nothing at or below it begins again.
        self._latest_id = 0
        self._aligning: CheckpointBarrier | None = None
        self._arrived: set[int] = set()
        self._begun_ms = 0

    def on_barrier(self, channel: InputChannel, barrier: CheckpointBarrier) -> None:
        """Begin or go on with an alignment; take the snapshot when it is complete."""
        checkpoint_id = barrier.checkpoint_id
        current = self._aligning
        if current is not None and checkpoint_id == current.checkpoint_id:
            self._arrived.add(channel.index)
            self.gate.block(channel)
        elif checkpoint_id <= self._latest_id:
            return
        else:
            if current is not None:
                self._end_alignment()
                self.target.abort_checkpoint(
                    current.checkpoint_id,
                    f"subsumed: the barrier of checkpoint {checkpoint_id} came before it was aligned",
                )
            self._latest_id = checkpoint_id
            if len(self.gate.channels) == 1:
                self.target.trigger_checkpoint(barrier, 0)
                return
            self._aligning = barrier
            self._begun_ms = self.target.now_ms()
            self._arrived.add(channel.index)
            self.gate.block(channel)
        self._complete_if_aligned()

    def on_cancel_marker(self, channel: InputChannel, marker: CancelCheckpointMarker) -> None:
        """End the alignment that the marker names, and never begin it again."""
        if self._aligning is not None and marker.checkpoint_id >= self._aligning.checkpoint_id:
            aborted = self._aligning.checkpoint_id
            self._end_alignment()
            self._latest_id = max(self._latest_id, marker.checkpoint_id)
            self.target.abort_checkpoint(aborted, "cancelled by an upstream task")
        elif marker.checkpoint_id > self._latest_id:
            self._latest_id = marker.checkpoint_id
            self.target.abort_checkpoint(marker.checkpoint_id, "cancelled by an upstream task")

    def on_channel_ended(self, channel: InputChannel) -> None:
        """Count the channel as aligned."""
        self._complete_if_aligned()

    def _complete_if_aligned(self) -> None:
        barrier = self._aligning
        if barrier is None:
            return
        if all(c.ended or c.index in self._arrived for c in self.gate.channels):
            alignment_ms = self.target.now_ms() - self._begun_ms
            self._end_alignment()
            self.target.trigger_checkpoint(barrier, alignment_ms)

    def _end_alignment(self) -> None:
        self._aligning = None
        self._arrived.clear()
        self.gate.unblock_all()
