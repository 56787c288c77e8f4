"""Unaligned checkpoints, and aligned ones that give up aligning after a timeout (G5).

A barrier that `is_unaligned` overtakes the records of its channel. The task takes its snapshot when the first such
barrier arrives. Everything then before the barrier in its channels is *in flight* and becomes part of the checkpoint:

- in a channel that has delivered the barrier: the records that arrived before it and are not processed yet;
- in any other channel: the records that wait there, and the records that arrive until its barrier does. The task
  copies these records as they arrive, and processes them as usual.

The task's part is complete when every channel has delivered its barrier or has ended. An in-band barrier is one that an
upstream task sent before it gave up aligning. It ends its channel's part when it *arrives*, because everything after it
was sent after the cut.

The task handles aligned barriers as in `aligned`, until the barrier's own timeout. Then it continues as if an
overtaking barrier had arrived. Channels held back by then have nothing in flight, because everything before their
barrier has been processed.
"""

from __future__ import annotations

from penstock.core.records import Buffer, CancelCheckpointMarker, CheckpointBarrier, EndOfPartition
from penstock.core.task.barriers.aligned import AlignedBarrierHandler
from penstock.core.task.barriers.handler import CheckpointTarget, InFlight
from penstock.core.task.channels.in_flight import is_state
from penstock.core.task.channels.input_gate import InputChannel, InputGate


class UnalignedBarrierHandler(AlignedBarrierHandler):
    """See the module docstring."""

    def __init__(self, gate: InputGate, target: CheckpointTarget, held_back_bytes_max: int | None = None) -> None:
        super().__init__(gate, target, held_back_bytes_max)
        self._capturing_id: int | None = None
        self._in_flight: InFlight = {}
        self._open: set[int] = set()
        #: Channels that had delivered the barrier when the task gave up aligning.
        self._delivered: set[int] = set()
        #: The newest barrier with a timeout that has arrived; it may wait after records, not yet seen by alignment.
        self._announced: CheckpointBarrier | None = None

    @property
    def capturing_id(self) -> int | None:
        """The checkpoint whose in-flight records are still being captured."""
        return self._capturing_id

    def validate(self) -> None:
        """Assert the invariants that hold between any two steps. Only the simulator calls this, never a running job."""
        super().validate()
        captured = self._capturing_id
        if captured is None:
            assert not self._open, "no channel is listened to without a capture"
            assert not self._in_flight, "nothing is kept without a capture"
            return
        assert self._aligning is None, f"checkpoint {captured} is captured, while another one is aligned on"
        assert captured <= self._latest_id, f"checkpoint {captured} is captured, and did not begin"
        assert not self._open & self._delivered, (
            f"checkpoint {captured} has the barriers of channels that it listens to"
        )
        assert self._open, f"the capture for checkpoint {captured} waits for no channel"
        assert not any(self.gate.channels[index].ended for index in self._open), (
            f"the capture for checkpoint {captured} waits for a channel that has ended"
        )

    # --- barriers ----------------------------------------------------------------------------------------------------

    def on_overtaking_barrier(self, channel: InputChannel, barrier: CheckpointBarrier) -> None:
        """Begin the checkpoint, unless it has begun. The channel's own part was cut when the barrier arrived."""
        current = self._aligning
        if current is not None and barrier.checkpoint_id == current.checkpoint_id:
            self._give_up_aligning(barrier)
        elif barrier.checkpoint_id > self._latest_id and barrier.checkpoint_id not in self._aborted:
            self._subsume(barrier)
            self._latest_id = barrier.checkpoint_id
            self._capture(barrier, 0, 0)

    def on_barrier(self, channel: InputChannel, barrier: CheckpointBarrier) -> None:
        """Handle the barrier as usual; a newer checkpoint ends one whose in-flight records are still being captured."""
        if barrier.checkpoint_id > self._latest_id:
            self._stop_capturing(
                f"subsumed: the barrier of checkpoint {barrier.checkpoint_id} arrived before it was complete"
            )
        super().on_barrier(channel, barrier)

    def on_cancel_marker(self, channel: InputChannel, marker: CancelCheckpointMarker) -> None:
        """End the alignment or capture that the marker names."""
        if self._capturing_id is not None and marker.checkpoint_id >= self._capturing_id:
            self._stop_capturing("cancelled by an upstream task")
        super().on_cancel_marker(channel, marker)

    def on_channel_ended(self, channel: InputChannel) -> None:
        """Complete the channel's part."""
        self._close(channel)
        super().on_channel_ended(channel)

    def on_aborted(self, checkpoint_id: int) -> None:
        """Stop working for the checkpoint."""
        super().on_aborted(checkpoint_id)
        if self._capturing_id == checkpoint_id:
            self._forget_capture()

    def next_deadline(self) -> int | None:
        """Return when a barrier has waited long enough, either in alignment or queued after records."""
        barrier = self._timed()
        if barrier is None or barrier.alignment_timeout_ms is None:
            return None
        return barrier.timestamp_ms + barrier.alignment_timeout_ms

    def on_time(self, now_ms: int) -> None:
        """Give up aligning, or waiting for a queued barrier, if it took too long."""
        deadline, barrier = self.next_deadline(), self._timed()
        if deadline is None or now_ms < deadline:
            return
        assert barrier is not None
        if barrier is self._aligning:
            self._give_up_aligning(barrier)
        else:
            self._subsume(barrier)
            self._latest_id = barrier.checkpoint_id
            self._capture(barrier, 0, 0)

    def _timed(self) -> CheckpointBarrier | None:
        announced = self._announced
        if announced is not None and announced.checkpoint_id > self._latest_id:
            return None if announced.checkpoint_id in self._aborted else announced
        return self._aligning

    # --- capturing ---------------------------------------------------------------------------------------------------

    def _subsume(self, newer: CheckpointBarrier) -> None:
        self._stop_capturing(
            f"subsumed: the barrier of checkpoint {newer.checkpoint_id} arrived before it was complete"
        )
        super()._subsume(newer)

    def _give_up_aligning(self, barrier: CheckpointBarrier) -> None:
        arrived = set(self._arrived)
        alignment_ms = self.target.now_ms() - self._begun_ms
        held_back, processed = self.gate.held_back_bytes(), self.gate.bytes_in.bytes - self._begun_bytes
        self._end_alignment()
        self._delivered = arrived
        self._capture(barrier, alignment_ms, held_back, arrived, processed)

    def _capture(
        self,
        barrier: CheckpointBarrier,
        alignment_ms: int,
        held_back: int,
        aligned: set[int] | None = None,
        processed_bytes: int = 0,
    ) -> None:
        checkpoint_id = self._capturing_id = barrier.checkpoint_id
        self._in_flight, self._open = {}, set()
        for channel in self.gate.channels:
            if channel.ended or (aligned is not None and channel.index in aligned):
                continue
            elements, is_cut = channel.before_barrier(checkpoint_id)
            self._keep(channel, elements)
            if not is_cut:
                self._open.add(channel.index)
        overtaking = barrier.overtaking()
        self.target.trigger_checkpoint(overtaking, alignment_ms, held_back, False, processed_bytes)
        self._complete_if_whole()

    def on_arrival(self, channel: InputChannel, buffer: Buffer) -> None:
        """Copy elements that arrive before a channel's barrier; note a barrier that will have to wait."""
        super().on_arrival(channel, buffer)
        last = buffer[-1]  # a barrier is the last element of its buffer
        if type(last) is CheckpointBarrier and last.alignment_timeout_ms is not None:
            self._announced = last
        if channel.index not in self._open:
            return
        for position, element in enumerate(buffer):
            kind = type(element)
            is_barrier = kind is CheckpointBarrier and element.checkpoint_id == self._capturing_id  # type: ignore[union-attr]
            if is_barrier or kind is EndOfPartition:
                self._keep(channel, buffer[:position])
                self._close(channel)
                return
        self._keep(channel, buffer)

    def on_barrier_arrival(self, channel: InputChannel, barrier: CheckpointBarrier) -> None:
        """Complete the channel's part: nothing after an overtaking barrier belongs to its checkpoint."""
        if barrier.checkpoint_id == self._capturing_id:
            self._close(channel)

    def _keep(self, channel: InputChannel, elements: Buffer) -> None:
        in_flight = [element for element in elements if is_state(element)]
        if in_flight:
            key = (channel.channel.edge, channel.channel.producer)
            self._in_flight.setdefault(key, []).extend(in_flight)

    def _close(self, channel: InputChannel) -> None:
        if channel.index in self._open:
            self._open.remove(channel.index)
            self._complete_if_whole()

    def _complete_if_whole(self) -> None:
        if self._capturing_id is not None and not self._open:
            checkpoint_id, in_flight = self._capturing_id, self._in_flight
            self._forget_capture()
            self.target.complete_checkpoint(checkpoint_id, in_flight)

    def _stop_capturing(self, reason: str) -> None:
        checkpoint_id = self._capturing_id
        if checkpoint_id is not None:
            self._forget_capture()
            self.target.abort_checkpoint(checkpoint_id, reason)

    def _forget_capture(self) -> None:
        self._capturing_id = None
        self._in_flight, self._open, self._delivered = {}, set(), set()
