"""The watermark of a task, the inputs that hold it back (C2), and latency markers.

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

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple

from penstock.base.metrics import SlidingHistogram
from penstock.runtime.operators.function_context import OperatorContext
from penstock.runtime.operators.source import SourceWatermarks
from penstock.runtime.protocol import InputWatermark, LatencySettings, WatermarkHold
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP, LatencyMarker
from penstock.runtime.task.channels.input_gate import InputChannel
from penstock.runtime.task.channels.result_partition import ResultPartition


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
