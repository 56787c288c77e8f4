"""The receiving end of all edges into a task: its channels, and their event time (C2).

`InputGate`: each channel has its own queue, bounded by the credit given to its producer. The gate does not poll a
channel that is held back for alignment. Its records wait in its own queue and come next when it is released, so
held-back data is always consumed before newer data of the same channel (G2).

After a change of parallelism, in-flight records of a key may come from a different producer than new ones. So the gate
holds each channel back at the end of its channel state, until the channel state of the whole edge has been processed.

`WatermarkValve` derives the watermark of a task from its channels.

`HoldTracker` finds the inputs that hold back a task's watermark: those at the lowest watermark, while others are ahead.
A task's inputs are its channels; a source's inputs are the splits that its reader has open. They are compared only with
each other. An idle or ended input holds nothing back.

The inputs of a task are rarely at the same watermark. The relevant case is a lowest watermark that does not advance, so
the tracker records how long it has been unchanged, and when the highest one last advanced. It checks when the task
reports, which costs a pass over the inputs, and collects names only once a watermark has stalled for a while.

`LatencyMarkers` are a task's part in latency markers (Flink's `metrics.latency.interval`). Sources send a marker
periodically. It follows the path of the records, after those emitted before it, and a task forwards it to one channel
of each edge in turn. Operators do not see it, and it does not wait for asynchronous calls: its age when a task receives
it shows how long records wait between tasks, for the network, and for upstream operators. Checkpoints do not include
markers, so some are lost after a failure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from penstock.base.metrics import SlidingHistogram
from penstock.runtime.operators.connector import SourceWatermarks
from penstock.runtime.operators.function_context import OperatorContext
from penstock.runtime.protocol import ChannelId, InputWatermark, LatencySettings, WatermarkHold
from penstock.runtime.records import (
    MAX_WATERMARK,
    MIN_TIMESTAMP,
    Batch,
    Buffer,
    CheckpointBarrier,
    Element,
    EndOfData,
    EndOfPartition,
    LatencyMarker,
)
from penstock.runtime.task.channels.result_partition import ByteCount, ResultPartition, estimated_bytes

#: The number of overtaking barriers of a channel that may arrive before the task handles them.
_CUTS_MAX = 8


class RecoveredBuffer(list[Element]):
    """A buffer from a checkpoint: it came without credit, so none is returned for it."""


class ArrivalListener(Protocol):
    """Handles buffers when they arrive, rather than when they are polled."""

    def on_arrival(self, channel: InputChannel, buffer: Buffer) -> None: ...

    def on_barrier_arrival(self, channel: InputChannel, barrier: CheckpointBarrier) -> None: ...


class InputChannel:
    """One input channel of a task."""

    __slots__ = (
        "_arrived",
        "_cuts",
        "_position",
        "awaits_others",
        "channel",
        "end_of_data",
        "ended",
        "index",
        "input_index",
        "is_blocked",
        "is_queued",
        "is_remote",
        "queue",
        "worker_id",
    )

    def __init__(
        self, index: int, input_index: int, channel: ChannelId, worker_id: str, is_remote: bool = False
    ) -> None:
        self.index = index
        self.input_index = input_index
        self.channel = channel
        self.worker_id = worker_id
        #: whether its producer is on another worker
        self.is_remote = is_remote
        self.queue: deque[Buffer] = deque()
        self.is_blocked = False
        #: whether its channel state has been processed, but not yet that of another channel of its edge
        self.awaits_others = False
        self.is_queued = False
        self.end_of_data: EndOfData | None = None
        self.ended = False
        self._position = 0
        self._arrived = 0
        #: checkpoint id -> how many buffers had arrived before its overtaking barrier
        self._cuts: dict[int, int] = {}

    @property
    def buffers_arrived(self) -> int:
        """The number of buffers that have arrived."""
        return self._arrived

    @property
    def has_drained(self) -> bool:
        """Whether no record will ever follow on this channel; false if its sender was only suspended."""
        return self.end_of_data is not None and self.end_of_data.drain

    def append(self, buffer: Buffer) -> None:
        """Queue a buffer that has arrived."""
        self.queue.append(buffer)
        self._arrived += 1

    def prepend(self, buffer: RecoveredBuffer) -> None:
        """Put recovered elements before everything that has arrived."""
        self.queue.appendleft(buffer)

    def cut(self, checkpoint_id: int) -> None:
        """Note that the checkpoint's overtaking barrier has arrived: later buffers come after it."""
        first = self._arrived - len(self.queue)
        self._cuts = {i: n for i, n in self._cuts.items() if n >= first and i > checkpoint_id - _CUTS_MAX}
        self._cuts[checkpoint_id] = self._arrived

    def waiting(self) -> Iterator[Element]:
        """Yield the elements that have arrived and were not polled yet."""
        for offset, buffer in enumerate(self.queue):
            yield from buffer[self._position :] if offset == 0 else buffer

    def before_barrier(self, checkpoint_id: int) -> tuple[Buffer, bool]:
        """Return the waiting elements before a checkpoint's barrier, and whether that barrier has arrived yet."""
        limit = self._cuts.get(checkpoint_id)
        first = self._arrived - len(self.queue)
        elements: Buffer = []
        for offset, buffer in enumerate(self.queue):
            if limit is not None and first + offset >= limit:
                break
            for element in buffer[self._position :] if offset == 0 else buffer:
                if type(element) is CheckpointBarrier and element.checkpoint_id == checkpoint_id:
                    return elements, True
                if type(element) is EndOfPartition:
                    return elements, True
                elements.append(element)
        return elements, limit is not None

    def pop(self) -> tuple[Element, bool]:
        """Remove and return the next element, and whether it was the last of its buffer."""
        buffer = self.queue[0]
        element = buffer[self._position]
        self._position += 1
        if self._position < len(buffer):
            return element, False
        self.queue.popleft()
        self._position = 0
        return element, True

    def validate(self, credit_max: int) -> None:
        """Assert the invariants that hold between any two steps. Only the simulator calls this, never a running job."""
        queue = self.queue
        waiting = len(queue[0]) if queue else 1
        assert self._position < waiting, f"{self.channel}: what was polled last is not all of a buffer that waits"
        assert not self.ended or self.end_of_data is not None, f"{self.channel}: a partition ends behind its data"
        assert not self.ended or not queue, f"{self.channel}: nothing waits behind the end of a partition"
        if len(queue) > credit_max:
            sent = sum(type(buffer) is not RecoveredBuffer for buffer in queue)
            assert sent <= credit_max, f"{self.channel}: {sent} buffers wait, for which there never was credit"
        if self._cuts:
            assert max(self._cuts.values()) <= self._arrived, f"{self.channel}: a barrier cuts what has arrived"

    def has_passed(self, checkpoint_id: int) -> bool:
        """Return whether an element was polled that arrived after a checkpoint's overtaking barrier."""
        limit = self._cuts.get(checkpoint_id)
        return limit is not None and self._arrived - len(self.queue) + (self._position > 0) > limit


class InputGate:
    """All input channels of a task, polled in turn, one buffer at a time."""

    def __init__(
        self,
        channels: list[InputChannel],
        return_credit: Callable[[InputChannel], None],
        awaited_edges: Collection[int] = (),
    ) -> None:
        self.channels = channels
        #: by edge, the channels whose channel state is still to come or being processed
        self._recovering: dict[int, set[int]] = {}
        for channel in channels:
            if channel.channel.edge in awaited_edges:
                self._recovering.setdefault(channel.channel.edge, set()).add(channel.index)
        #: overtaking barriers that have arrived, to be handled before anything is polled
        self.overtaking: deque[tuple[InputChannel, CheckpointBarrier]] = deque()
        self.listener: ArrivalListener | None = None
        #: the bytes that the task has taken from all channels
        self.bytes_in = ByteCount()
        self.remote_bytes = 0
        self._by_id = {c.channel: c for c in channels}
        self._ready: deque[InputChannel] = deque()
        self._return_credit = return_credit

    def release(self) -> None:
        """Drop the listener after the task has ended: it refers to the gate, so there is a reference cycle."""
        self.listener = None

    def on_buffer(self, channel: ChannelId, buffer: Buffer) -> None:
        """Queue a buffer that has arrived, or note its overtaking barrier."""
        target = self._by_id[channel]
        if not buffer:
            self._return_credit(target)
            return
        first = buffer[0]
        if type(first) is CheckpointBarrier and first.is_unaligned:
            target.cut(first.checkpoint_id)
            self.overtaking.append((target, first))
            if self.listener is not None:
                self.listener.on_barrier_arrival(target, first)
            return
        target.append(buffer)
        if self.listener is not None:
            self.listener.on_arrival(target, buffer)
        self._enqueue(target)

    def recover(self, edge: int, producer: int, elements: Buffer) -> None:
        """Put elements from a checkpoint back into a channel, before everything that has arrived."""
        for channel in self.channels:
            if (channel.channel.edge, channel.channel.producer) == (edge, producer):
                channel.prepend(RecoveredBuffer(elements))
                self._enqueue(channel)
                return
        raise AssertionError(f"no channel of edge {edge} from subtask {producer} to recover into")

    def _enqueue(self, channel: InputChannel) -> None:
        if not channel.is_queued and not self._is_held(channel) and channel.queue:
            channel.is_queued = True
            self._ready.append(channel)

    @staticmethod
    def _is_held(channel: InputChannel) -> bool:
        return channel.is_blocked or channel.awaits_others

    def end_channel_state(self, channel: InputChannel) -> bool:
        """Note that a channel's channel state has been processed; return whether all channel state has been."""
        edge = channel.channel.edge
        waiting = self._recovering[edge]
        waiting.remove(channel.index)
        channel.awaits_others = True
        if waiting:
            return False
        del self._recovering[edge]
        for sibling in self.channels:
            if sibling.channel.edge == edge:
                sibling.awaits_others = False
                self._enqueue(sibling)
        return not self._recovering

    @property
    def is_recovering(self) -> bool:
        """Whether channel state of the restored checkpoint is still to be processed."""
        return bool(self._recovering)

    def poll(self) -> tuple[InputChannel, Element] | None:
        """Return the next element of any channel that is not held back."""
        ready = self._ready
        while ready:
            channel = ready[0]
            if channel.is_blocked or channel.awaits_others or not channel.queue:
                ready.popleft()
                channel.is_queued = False
                continue
            had_credit = type(channel.queue[0]) is not RecoveredBuffer
            element, buffer_done = channel.pop()
            if buffer_done:
                ready.popleft()
                channel.is_queued = False
                self._enqueue(channel)
                if had_credit:
                    self._return_credit(channel)
            return channel, element
        return None

    def count(self, channel: InputChannel, batch: Batch) -> None:
        """Count a batch that the task has taken from a channel."""
        size = self.bytes_in.add(batch)
        if channel.is_remote:
            self.remote_bytes += size

    def block(self, channel: InputChannel) -> None:
        """Hold a channel back."""
        channel.is_blocked = True

    def unblock_all(self) -> None:
        """Release every channel; the records waiting in them come next."""
        for channel in self.channels:
            if channel.is_blocked:
                channel.is_blocked = False
                self._enqueue(channel)

    def held_back_bytes(self) -> int:
        """Return about how many bytes of records wait in channels held back for alignment."""
        return sum(
            estimated_bytes(element)
            for channel in self.channels
            if channel.is_blocked
            for element in channel.waiting()
            if isinstance(element, Batch)
        )

    @property
    def is_finished(self) -> bool:
        """Whether every channel has ended."""
        return all(c.ended for c in self.channels)

    @property
    def has_data(self) -> bool:
        return bool(self._ready)

    def validate(self, credit_max: int) -> None:
        """Assert the invariants that hold between any two steps. Only the simulator calls this, never a running job."""
        for channel in self.channels:
            channel.validate(credit_max)
            assert channel.is_queued or self._is_held(channel) or not channel.queue, (
                f"{channel.channel}: what waits in a channel that is not held back comes to its turn"
            )
            edge, index = channel.channel.edge, channel.index
            is_through = edge in self._recovering and index not in self._recovering[edge]
            assert channel.awaits_others is is_through, (
                f"{channel.channel}: waits exactly until the channel state of its edge is through"
            )
        for channel, barrier in self.overtaking:
            assert not channel.has_passed(barrier.checkpoint_id), (
                f"{channel.channel}: nothing behind barrier {barrier.checkpoint_id} is polled ahead of it"
            )
        assert all(channel.is_queued for channel in self._ready), "a channel that comes to its turn knows it"
        assert len(self._ready) == sum(channel.is_queued for channel in self.channels), "a channel waits for one turn"

    @property
    def held_back(self) -> set[int]:
        """The indices of the channels that are held back."""
        return {channel.index for channel in self.channels if channel.is_blocked}


class TimeChange(NamedTuple):
    """A task's new watermark (ms) and its new idleness; None if unchanged.

    A task becomes active before its watermark advances, and idle after that.
    """

    watermark: int | None = None
    idle: bool | None = None


NO_CHANGE = TimeChange()


class WatermarkValve:
    """The watermark of a task: the lowest of its active channels. It never decreases.

    A channel is active, idle or ended. It has ended once its watermark is MAX_WATERMARK, whether it was active or idle
    before. Only active channels hold the watermark back.

    While some channels are idle and all others have ended, the task is idle. Its watermark is then the highest of the
    idle channels. Event time ends only when all channels have ended, because an idle one may become active again.
    """

    def __init__(self, channels: int, restored: int = MIN_TIMESTAMP) -> None:
        self._watermarks = [MIN_TIMESTAMP] * channels
        self._is_idle = [False] * channels
        self._output = restored
        self._idle = False

    def on_watermark(self, channel: int, timestamp: int) -> TimeChange:
        """Handle a channel's watermark; ignore that of an idle channel until it ends or becomes active."""
        has_ended = timestamp == MAX_WATERMARK
        if timestamp <= self._watermarks[channel] or (self._is_idle[channel] and not has_ended):
            return NO_CHANGE
        self._watermarks[channel] = timestamp
        if has_ended:
            self._is_idle[channel] = False
            return self._settle()
        return TimeChange(self._reach(min(self.active())))

    def on_status(self, channel: int, idle: bool) -> TimeChange:
        """Handle a channel that became idle or active; an ended channel stays ended."""
        if self._watermarks[channel] == MAX_WATERMARK or self._is_idle[channel] is idle:
            return NO_CHANGE
        self._is_idle[channel] = idle
        return self._settle()

    @property
    def watermark(self) -> int:
        """The task's watermark (ms)."""
        return self._output

    def mark(self, channel: int) -> tuple[int, bool]:
        """Return the watermark (ms) of a channel, and whether it is idle."""
        return self._watermarks[channel], self._is_idle[channel]

    def validate(self) -> None:
        """Assert the invariants that hold between steps. The simulator calls this; a running job never does."""
        if not self._watermarks:
            return
        active, idle = self.active(), self._idle_ones()
        assert self._idle is (bool(idle) and not active), (
            "a task is idle exactly while some of its channels are idle, and all others have ended"
        )
        lowest = min(active or (max(idle, default=MAX_WATERMARK),))
        assert self._output >= lowest, f"event time stands at {self._output}, and may go on to {lowest}"
        assert self._output < MAX_WATERMARK or not (active or idle), "event time ends when all channels have ended"

    def active(self) -> list[int]:
        """Return the watermarks (ms) of the channels that hold others back."""
        both = zip(self._watermarks, self._is_idle, strict=True)
        return [mark for mark, is_idle in both if not is_idle and mark != MAX_WATERMARK]

    def _idle_ones(self) -> list[int]:
        both = zip(self._watermarks, self._is_idle, strict=True)
        return [mark for mark, is_idle in both if is_idle]

    def _settle(self) -> TimeChange:
        """Compute the task's watermark and idleness after a channel has changed its state."""
        active, idle = self.active(), self._idle_ones()
        watermark = self._reach(min(active) if active else max(idle, default=MAX_WATERMARK))
        is_idle = bool(idle) and not active
        if is_idle is self._idle:
            return TimeChange(watermark)
        self._idle = is_idle
        return TimeChange(watermark, is_idle)

    def _reach(self, watermark: int) -> int | None:
        if watermark <= self._output:
            return None
        self._output = watermark
        return watermark


#: How long (ms) a watermark must stall before it is reported as held back.
SHOWN_MS: Final = 1_000
#: Maximum number of channels or splits of an input that are named.
PARTS_MAX: Final = 8


class Mark(NamedTuple):
    """The watermark (ms) of one channel or split.

    Attributes:
        edge: the edge of a channel; None for a split.
        part: the producer's subtask, or the split.
        watermark_ms: the minimum timestamp before the first watermark.
        is_idle: whether it holds nothing back.
    """

    edge: int | None
    part: str
    watermark_ms: int
    is_idle: bool


def find_watermark_range(watermarks: Iterable[int]) -> tuple[int, int] | None:
    """Return the lowest and highest active watermark (ms); None if no input waits for another."""
    active = list(watermarks)
    if len(active) < 2:
        return None
    lowest, highest = min(active), max(active)
    return (lowest, highest) if lowest < highest else None


def hold_of_splits(tracker: HoldTracker, watermarks: SourceWatermarks, now_ms: int) -> WatermarkHold | None:
    """Return which splits of a source hold its watermark back."""

    def marks() -> Iterator[Mark]:
        for split in watermarks.marks():
            yield Mark(None, *split)

    return tracker.look(
        watermarks.emitted,
        find_watermark_range(mark.watermark_ms for mark in marks() if not mark.is_idle),
        marks,
        now_ms,
    )


def hold_of_channels(
    tracker: HoldTracker, valve: WatermarkValve, channels: Iterable[InputChannel], now_ms: int
) -> WatermarkHold | None:
    """Return which channels of a task hold its watermark back."""

    def marks() -> Iterator[Mark]:
        for channel in channels:
            yield Mark(channel.channel.edge, str(channel.channel.producer), *valve.mark(channel.index))

    return tracker.look(valve.watermark, find_watermark_range(valve.active()), marks, now_ms)


class HoldTracker:
    """See the module docstring."""

    def __init__(self) -> None:
        self._lowest: int | None = None
        self._highest = MIN_TIMESTAMP
        self._since_ms = self._moved_ms = 0

    def look(
        self, watermark_ms: int, spread: tuple[int, int] | None, marks: Callable[[], Iterable[Mark]], now_ms: int
    ) -> WatermarkHold | None:
        """Return the inputs that hold the watermark back now; None if none do."""
        if spread is None:
            self._lowest = None
            return None
        lowest, highest = spread
        if lowest != self._lowest:
            self._lowest, self._highest = lowest, highest
            self._since_ms = self._moved_ms = now_ms
        elif highest > self._highest:
            self._highest, self._moved_ms = highest, now_ms
        if now_ms - self._since_ms < SHOWN_MS:
            return None
        return WatermarkHold(watermark_ms, self._since_ms, self._moved_ms, tuple(_inputs(marks(), lowest)))


def _inputs(marks: Iterable[Mark], lowest: int) -> Iterable[InputWatermark]:
    """Return each input, with its channels that are at the lowest watermark."""
    by_edge: dict[int | None, list[Mark]] = {}
    for mark in marks:
        by_edge.setdefault(mark.edge, []).append(mark)
    for edge, of_edge in by_edge.items():
        open_ones = [mark for mark in of_edge if mark.watermark_ms != MAX_WATERMARK]
        active = [mark.watermark_ms for mark in open_ones if not mark.is_idle]
        holding = [mark.part for mark in open_ones if not mark.is_idle and mark.watermark_ms == lowest]
        yield InputWatermark(
            edge,
            min(active, default=MIN_TIMESTAMP),
            max(active, default=MIN_TIMESTAMP),
            bool(open_ones) and not active,
            bool(holding),
            tuple(holding[:PARTS_MAX]),
            len(holding),
            not open_ones,
        )


class LatencyMarkers:
    """Emits and forwards the markers of one task.

    Args:
        settings: how often sources send a marker, and the granularity of the measurements.
        subtask: the task's index.
        contexts: the contexts of its operators.
        partitions: the partitions to which it sends.
        is_source: whether the first operator is a source, which has no latency.
    """

    def __init__(
        self,
        settings: LatencySettings,
        subtask: int,
        contexts: Collection[OperatorContext],
        partitions: Iterable[ResultPartition],
        is_source: bool,
    ) -> None:
        self._settings = settings
        self._subtask = subtask
        self._contexts = list(contexts)
        self._partitions = list(partitions)
        self._is_source = is_source
        self._sent = subtask
        self._due_ms: int | None = None

    def next_deadline(self) -> int | None:
        """Return when (ms) a source must send the next marker; None before it has started, and for other tasks."""
        return self._due_ms

    def emit_if_due(self, now_ms: int) -> None:
        """Send a marker if this is a source and one is due. The first is due one interval after the first call."""
        if self._due_ms is not None and now_ms >= self._due_ms:
            self.on_marker(LatencyMarker(now_ms, self._contexts[0].operator_id, self._subtask), now_ms)
        elif self._due_ms is not None or not self._is_source:
            return
        self._due_ms = now_ms + self._settings.interval_ms

    def on_marker(self, marker: LatencyMarker, now_ms: int) -> None:
        """Record the marker's age and forward it. Host clocks differ, so a negative age counts as 0."""
        name, age_ms = self._build_source_label(marker), max(0, now_ms - marker.marked_ms)
        for context in self._contexts[1 if self._is_source else 0 :]:
            histogram = context.latency.get(name)
            if histogram is None:
                histogram = context.latency[name] = SlidingHistogram(self._settings.history_size)
            histogram.update(age_ms)
        self._sent += 1
        for partition in self._partitions:
            subpartitions = partition.subpartitions
            subpartitions[self._sent % len(subpartitions)].add_event(marker)

    def _build_source_label(self, marker: LatencyMarker) -> str:
        if self._settings.granularity == "single":
            return ""
        return marker.source_id if self._settings.granularity == "operator" else f"{marker.source_id}.{marker.subtask}"
