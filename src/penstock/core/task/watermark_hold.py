"""The inputs that hold back a task's watermark: those at the lowest watermark, while others are ahead (C2).

A task's inputs are its channels; a source's inputs are the splits that its reader has open. They are compared only with
each other. An idle or ended input holds nothing back.

The inputs of a task are rarely at the same watermark. The relevant case is a lowest watermark that does not advance, so
the tracker records how long it has been unchanged, and when the highest one last advanced. It checks when the task
reports, which costs a pass over the inputs, and collects names only once a watermark has stalled for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from penstock.core.operators.source.source_watermarks import SourceWatermarks
from penstock.core.protocol import InputWatermark, WatermarkHold
from penstock.core.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.core.task.channels.input_gate import InputChannel
from penstock.core.task.watermark_valve import WatermarkValve

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
