"""The watermark of a source subtask: of its single stream of records, or the lowest of its active splits (C2).

A reader that reads one split after the other has a single stream of records, and needs none of this. A reader of
several splits at a time opens and closes them by name, and names the split of each batch. Each split then has its own
generator and its own idleness: a slow split holds the watermark back, an idle or closed one does not. When all open
splits are idle, so is the source, and its watermark is that of the split furthest ahead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.core.operators.watermarks import WatermarkGenerator
from penstock.core.records import MIN_TIMESTAMP


class SourceWatermarks:
    """See the module docstring."""

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self._strategy = strategy
        #: for records that belong to no open split
        self._main = WatermarkGenerator(strategy)
        self._splits: dict[str, WatermarkGenerator] = {}
        self._emitted = MIN_TIMESTAMP
        self.idle = False

    @property
    def makes_any(self) -> bool:
        """Whether the strategy emits any watermarks."""
        return self._strategy.kind != "none"

    @property
    def is_periodic(self) -> bool:
        """Whether to call the generators periodically."""
        return self._main.is_periodic

    @property
    def tracks_idleness(self) -> bool:
        """Whether the strategy detects idleness."""
        return self._main.tracks_idleness

    @property
    def leaves_out(self) -> bool:
        """Whether the strategy may leave out records without an event time."""
        return self._main.side_tag is not None

    @property
    def generators(self) -> Collection[WatermarkGenerator]:
        """The generators that currently count."""
        return self._splits.values() if self._splits else (self._main,)

    def open_split(self, split_id: str, now_ms: int) -> None:
        """Start tracking a split; a second call changes nothing."""
        if split_id not in self._splits:
            generator = self._splits[split_id] = WatermarkGenerator(self._strategy)
            if generator.tracks_idleness:
                generator.saw_records(now_ms)

    def close_split(self, split_id: str) -> None:
        """Stop tracking a split that has been read to its end."""
        self._splits.pop(split_id, None)

    def of_split(self, split_id: str | None) -> WatermarkGenerator:
        """Return the generator for a batch; raises KeyError for a split that is not open."""
        return self._main if split_id is None else self._splits[split_id]

    def find_splits_ahead(self, watermark: int) -> set[str]:
        """Return the splits that are past a watermark (ms)."""
        return {name for name, g in self._splits.items() if g.watermark > watermark and not g.idle}

    @property
    def emitted(self) -> int:
        """The source's own watermark (ms)."""
        return self._emitted

    @property
    def split_ids(self) -> set[str]:
        """The open splits."""
        return set(self._splits)

    def marks(self) -> Iterator[tuple[str, int, bool]]:
        """Yield each open split with its watermark (ms) and whether it is idle."""
        for split_id, generator in self._splits.items():
            yield split_id, generator.watermark, generator.idle

    def idle_deadline_ms(self) -> int | None:
        """Return when (ms) the next split becomes idle if no records arrive."""
        deadlines = (generator.idle_deadline_ms() for generator in self.generators)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def check_idle(self, now_ms: int) -> None:
        """Mark splits as idle that have been silent for long enough."""
        for generator in self.generators:
            generator.check_idle(now_ms)

    def on_periodic(self, now_ms: int) -> None:
        """Call all generators."""
        for generator in self.generators:
            generator.on_periodic(now_ms)

    def resume(self, now_ms: int) -> None:
        """Restart the idle timeouts: the source was held back until now, which does not count as silence."""
        for generator in self.generators:
            generator.resume(now_ms)

    def restore_watermark(self, watermark: int) -> None:
        """Continue from the watermark (ms) that the source had emitted before it was restored."""
        self._emitted = watermark

    def settle(self) -> tuple[int | None, bool | None]:
        """Return the source's watermark (ms) and whether it is idle, each None if unchanged since the last call."""
        generators = self.generators
        active = [g.watermark for g in generators if not g.idle]
        watermark = min(active) if active else max(g.watermark for g in generators)
        advanced = None
        if watermark > self._emitted:
            self._emitted = advanced = watermark
        is_idle = not active
        changed = None if is_idle == self.idle else is_idle
        self.idle = is_idle
        return advanced, changed
