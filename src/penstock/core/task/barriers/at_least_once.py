"""At least once: barriers are counted, and no channel is held back (G5)."""

from __future__ import annotations

from penstock.core.records import CancelCheckpointMarker, CheckpointBarrier
from penstock.core.task.barriers.handler import BarrierHandler, CheckpointTarget
from penstock.core.task.channels.input_gate import InputChannel, InputGate

#: The maximum number of checkpoints counted at once; beyond it, the oldest is aborted.
COUNTED_MAX = 50


class AtLeastOnceBarrierHandler(BarrierHandler):
    """Takes the snapshot when the last barrier has arrived; several checkpoints may be counted at once."""

    def __init__(self, gate: InputGate, target: CheckpointTarget) -> None:
        super().__init__(gate, target)
        self._latest_id = 0
        #: checkpoint id -> its barrier, the channels that delivered it, when the first one did (ms), the bytes read by
        #: then
        self._counting: dict[int, tuple[CheckpointBarrier, set[int], int, int]] = {}

    def on_barrier(self, channel: InputChannel, barrier: CheckpointBarrier) -> None:
        """Count the barrier."""
        counted = self._counting.get(barrier.checkpoint_id)
        if counted is None:
            if barrier.checkpoint_id <= self._latest_id:
                return
            self._latest_id = barrier.checkpoint_id
            counted = (barrier, set(), self.target.now_ms(), self.gate.bytes_in.bytes)
            self._counting[barrier.checkpoint_id] = counted
            if len(self._counting) > COUNTED_MAX:
                oldest = min(self._counting)
                del self._counting[oldest]
                self.target.abort_checkpoint(oldest, f"subsumed: {COUNTED_MAX} newer checkpoints are in progress")
        counted[1].add(channel.index)
        self._complete()

    def on_cancel_marker(self, channel: InputChannel, marker: CancelCheckpointMarker) -> None:
        """Stop counting the checkpoint, and never begin again."""
        known = self._counting.pop(marker.checkpoint_id, None)
        if known is not None or marker.checkpoint_id > self._latest_id:
            self._latest_id = max(self._latest_id, marker.checkpoint_id)
            self.target.abort_checkpoint(marker.checkpoint_id, "cancelled by an upstream task")

    def on_channel_ended(self, channel: InputChannel) -> None:
        """Count the channel for all checkpoints."""
        self._complete()

    def on_aborted(self, checkpoint_id: int) -> None:
        """Stop counting the checkpoint."""
        self._counting.pop(checkpoint_id, None)

    def validate(self) -> None:
        """Assert the invariants that hold between any two steps. Only the simulator calls this, never a running job."""
        assert not self.gate.held_back, "at least once holds no channel back"
        assert len(self._counting) <= COUNTED_MAX, f"{len(self._counting)} checkpoints are counted at once"
        ended = {c.index for c in self.gate.channels if c.ended} if self._counting else set()
        for checkpoint_id, (_, arrived, *_) in self._counting.items():
            assert checkpoint_id <= self._latest_id, f"checkpoint {checkpoint_id} is counted, and did not begin"
            assert len(arrived | ended) < len(self.gate.channels), f"checkpoint {checkpoint_id} waits for no channel"

    def _complete(self) -> None:
        ended = {c.index for c in self.gate.channels if c.ended}
        for checkpoint_id, (barrier, arrived, begun_ms, begun_bytes) in list(self._counting.items()):
            if len(arrived | ended) < len(self.gate.channels):
                continue
            for older in [i for i in self._counting if i < checkpoint_id]:
                del self._counting[older]
                self.target.abort_checkpoint(older, f"subsumed by checkpoint {checkpoint_id}")
            self._counting.pop(checkpoint_id, None)
            processed = self.gate.bytes_in.bytes - begun_bytes
            self.target.trigger_checkpoint(barrier, self.target.now_ms() - begun_ms, 0, processed_bytes=processed)
