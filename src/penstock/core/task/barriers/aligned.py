"""Exactly-once by alignment: channels that have delivered the barrier are held back until all have (G2, G3, G4)."""

from __future__ import annotations

from penstock.core.records import Buffer, CancelCheckpointMarker, CheckpointBarrier
from penstock.core.task.barriers.handler import BarrierHandler, CheckpointTarget
from penstock.core.task.channels.input_gate import InputChannel, InputGate


class AlignedBarrierHandler(BarrierHandler):
    """See the package docstring. `held_back_bytes_max` limits what an alignment may hold back; None for no limit."""

    def __init__(self, gate: InputGate, target: CheckpointTarget, held_back_bytes_max: int | None = None) -> None:
        super().__init__(gate, target)
        #: The highest checkpoint that has begun or was cancelled here; none up to it begins again.
        self._latest_id = 0
        #: Checkpoints aborted before any of their barriers arrived; later barriers of theirs are ignored.
        self._aborted: set[int] = set()
        self._aligning: CheckpointBarrier | None = None
        self._arrived: set[int] = set()
        self._begun_ms = 0
        self._begun_bytes = 0
        self._held_back_bytes_max = held_back_bytes_max

    def on_barrier(self, channel: InputChannel, barrier: CheckpointBarrier) -> None:
        """Begin or continue an alignment; take the snapshot when it is complete."""
        current = self._aligning
        if current is not None and barrier.checkpoint_id == current.checkpoint_id:
            self._hold_back(channel)
        elif barrier.checkpoint_id <= self._latest_id or barrier.checkpoint_id in self._aborted:
            return
        else:
            self._subsume(barrier)
            self._latest_id = barrier.checkpoint_id
            if len(self.gate.channels) == 1:
                self._take_part(barrier, 0, 0)
                return
            self._begin(barrier)
            self._hold_back(channel)
        self._complete_if_aligned()

    def _subsume(self, newer: CheckpointBarrier) -> None:
        current = self._aligning
        if current is not None:
            self._end_alignment()
            self.target.abort_checkpoint(
                current.checkpoint_id,
                f"subsumed: the barrier of checkpoint {newer.checkpoint_id} arrived before it was aligned",
            )

    def _begin(self, barrier: CheckpointBarrier) -> None:
        self._aligning = barrier
        self._begun_ms, self._begun_bytes = self.target.now_ms(), self.gate.bytes_in.bytes

    def _hold_back(self, channel: InputChannel) -> None:
        self._arrived.add(channel.index)
        self.gate.block(channel)

    def on_cancel_marker(self, channel: InputChannel, marker: CancelCheckpointMarker) -> None:
        """End the alignment that the marker names, and never begin it again."""
        current = self._aligning
        if current is not None and marker.checkpoint_id >= current.checkpoint_id:
            self._end_alignment()
            self._latest_id = max(self._latest_id, marker.checkpoint_id)
            self.target.abort_checkpoint(current.checkpoint_id, "cancelled by an upstream task")
        elif marker.checkpoint_id > self._latest_id:
            self._latest_id = marker.checkpoint_id
            self.target.abort_checkpoint(marker.checkpoint_id, "cancelled by an upstream task")

    def on_channel_ended(self, channel: InputChannel) -> None:
        """Count the channel as aligned."""
        self._complete_if_aligned()

    def on_aborted(self, checkpoint_id: int) -> None:
        """Stop aligning on the checkpoint, because some of its barriers may never arrive."""
        if self._aligning is not None and self._aligning.checkpoint_id == checkpoint_id:
            self._end_alignment()
        elif checkpoint_id > self._latest_id:
            self._aborted = {i for i in self._aborted if i > self._latest_id} | {checkpoint_id}

    def on_arrival(self, channel: InputChannel, buffer: Buffer) -> None:
        """Abort the checkpoint if its alignment holds back too many bytes."""
        if self._aligning is None or self._held_back_bytes_max is None or not channel.is_blocked:
            return
        held_back = self.gate.held_back_bytes()
        if held_back > self._held_back_bytes_max:
            checkpoint_id = self._aligning.checkpoint_id
            self._end_alignment()
            self.target.abort_checkpoint(
                checkpoint_id,
                f"its alignment held back {held_back} bytes; the limit is {self._held_back_bytes_max}",
            )

    def _complete_if_aligned(self) -> None:
        barrier = self._aligning
        if barrier is None:
            return
        if all(c.ended or c.index in self._arrived for c in self.gate.channels):
            alignment_ms = self.target.now_ms() - self._begun_ms
            held_back = self.gate.held_back_bytes()
            self._end_alignment()
            self._take_part(barrier, alignment_ms, held_back, self.gate.bytes_in.bytes - self._begun_bytes)

    def _take_part(
        self, barrier: CheckpointBarrier, alignment_ms: int, held_back: int, processed_bytes: int = 0
    ) -> None:
        self.target.trigger_checkpoint(barrier, alignment_ms, held_back, processed_bytes=processed_bytes)

    def validate(self) -> None:
        """Assert the invariants that hold between any two steps. Only the simulator calls this, never a running job."""
        held_back, current = self.gate.held_back, self._aligning
        assert held_back == self._arrived, (
            f"channels {sorted(held_back)} are held back, and {sorted(self._arrived)} have delivered the barrier"
        )
        if current is None:
            assert not held_back, "a channel is held back for an alignment"
            return
        checkpoint_id = current.checkpoint_id
        assert checkpoint_id <= self._latest_id, f"checkpoint {checkpoint_id} is aligned on, and did not begin"
        assert checkpoint_id not in self._aborted, f"checkpoint {checkpoint_id} is aligned on, and was given up"
        assert not all(c.ended or c.index in self._arrived for c in self.gate.channels), (
            f"the alignment of checkpoint {checkpoint_id} waits for no channel"
        )

    def _end_alignment(self) -> None:
        self._aligning = None
        self._arrived.clear()
        self.gate.unblock_all()
