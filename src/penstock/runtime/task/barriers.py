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

`CheckpointTarget` is the task that a handler works for.

`AlignedBarrierHandler` holds back channels that have delivered the barrier until all have (G2, G3, G4): exactly once.

`AtLeastOnceBarrierHandler` counts barriers, and holds no channel back (G5).

`UnalignedBarrierHandler` takes unaligned checkpoints, and aligned ones that give up aligning after a timeout (G5). A
barrier that `is_unaligned` overtakes the records of its channel. The task takes its snapshot when the first such
barrier arrives. Everything then before the barrier in its channels is *in flight* and becomes part of the checkpoint:

- in a channel that has delivered the barrier: the records that arrived before it and are not processed yet;
- in any other channel: the records that wait there, and the records that arrive until its barrier does. The task
  copies these records as they arrive, and processes them as usual.

The task's part is complete when every channel has delivered its barrier or has ended. An in-band barrier is one that an
upstream task sent before it gave up aligning. It ends its channel's part when it *arrives*, because everything after it
was sent after the cut.

The task handles aligned barriers as `AlignedBarrierHandler` does, until the barrier's own timeout. Then it continues as
if an overtaking barrier had arrived. Channels held back by then have nothing in flight, because everything before their
barrier has been processed.

`ForcedAlignedBarrierHandler` aligns in unaligned modes, for a task with a broadcast or a pointwise input (G5). Each
consumer of a broadcast gets all of its records. If an unaligned checkpoint contained broadcast records in flight, each
consumer would lack different ones, and its state would differ from the others' accordingly: keyed state as well, in
ways that only the user's function knows. Such a checkpoint could not be restored at another parallelism.

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

from abc import ABC, abstractmethod
from typing import Protocol, TypeAlias

from penstock.runtime.protocol import TaskSettings
from penstock.runtime.records import Buffer, CancelCheckpointMarker, CheckpointBarrier, EndOfPartition
from penstock.runtime.task.channels.in_flight import is_state
from penstock.runtime.task.channels.input_gate import InputChannel, InputGate

#: The elements before the barrier in a task's channels: (edge, producing subtask) to elements, in order.
InFlight: TypeAlias = dict[tuple[int, int], Buffer]


class CheckpointTarget(Protocol):
    """The task, as seen by barrier handlers."""

    def trigger_checkpoint(
        self,
        barrier: CheckpointBarrier,
        alignment_ms: int,
        held_back_bytes: int,
        is_complete: bool = True,
        processed_bytes: int = 0,
    ) -> None:
        """Forward the barrier and capture all state; unless `is_complete`, `complete_checkpoint` follows.

        The figures describe the alignment: how long it took, and the bytes held back and processed meanwhile.
        """
        ...

    def complete_checkpoint(self, checkpoint_id: int, in_flight: InFlight) -> None:
        """Complete the task's part, because everything in flight in the channels has been captured."""
        ...

    def abort_checkpoint(self, checkpoint_id: int, reason: str) -> None:
        """Take no part in the checkpoint, and notify the job master and the tasks downstream."""
        ...

    def now_ms(self) -> int: ...


class BarrierHandler(ABC):
    """Decides from the barriers received when to take part in a checkpoint."""

    def __init__(self, gate: InputGate, target: CheckpointTarget) -> None:
        self.gate = gate
        self.target = target

    @abstractmethod
    def on_barrier(self, channel: InputChannel, barrier: CheckpointBarrier) -> None:
        """Handle a barrier polled from a channel."""

    @abstractmethod
    def on_cancel_marker(self, channel: InputChannel, marker: CancelCheckpointMarker) -> None:
        """Handle a cancel marker polled from a channel."""

    @abstractmethod
    def on_channel_ended(self, channel: InputChannel) -> None:
        """Handle the end of a channel, which delivers no more barriers."""

    def on_aborted(self, checkpoint_id: int) -> None:  # noqa: B027 - most modes have nothing to do
        """Handle a checkpoint that the coordinator has aborted."""

    def on_overtaking_barrier(self, channel: InputChannel, barrier: CheckpointBarrier) -> None:
        """Handle a barrier that has overtaken the records of its channel."""
        raise AssertionError(
            f"barrier {barrier.checkpoint_id} overtook records; {type(self).__name__} does not support that"
        )

    def on_arrival(self, channel: InputChannel, buffer: Buffer) -> None:  # noqa: B027 - only unaligned modes look
        """Handle a buffer that has arrived on a channel, at the end of its queue."""

    def on_barrier_arrival(self, channel: InputChannel, barrier: CheckpointBarrier) -> None:  # noqa: B027 - as above
        """Handle the arrival of an overtaking barrier; `on_overtaking_barrier` follows in the task's turn."""

    def next_deadline(self) -> int | None:
        """Return when (ms) `on_time` has something to do."""
        return None

    def on_time(self, now_ms: int) -> None:  # noqa: B027 - most modes have nothing to do
        """Do the work that is due."""

    @property
    def capturing_id(self) -> int | None:
        """The checkpoint whose part has been taken but is not complete yet."""
        return None

    @abstractmethod
    def validate(self) -> None:
        """Assert the invariants that hold between any two steps. Only the simulator calls this, never a running job."""


class AlignedBarrierHandler(BarrierHandler):
    """See the module docstring. `held_back_bytes_max` limits what an alignment may hold back; None for no limit."""

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
