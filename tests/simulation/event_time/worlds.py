"""Jobs in which it shows when event time stands still, or begins again.

Bounded sources end, and with the end of time every window fires: a job whose event time stands still gives the right
output all the same. So the live source of these jobs keeps its last records back until results of windows are
committed. If event time stands still, no window fires, and the job stalls.

**Idle and ended inputs.** The silent source has nothing to read by then. Its records are later than all others, so that
none of them is late when it goes on, unless the live source has ended meanwhile: an idle input does not hold up the end
of time. A history in which that happens says so, and its output is not compared.

    ended ───┐
    silent ──┴─ pass, or rules ──┐
    live ────────────────────────┴─ windows ── sink

**Late records.** Once the first windows are committed, the live source has more records for them. These are late
before a restart and after it: no window may fire twice.

    live ── windows ── sink
"""

from __future__ import annotations

import random
from collections import Counter
from copy import copy
from typing import Any, Final

from penstock.drivers.simulation.connectors import SimulatedSource, Split, generate_record
from penstock.drivers.simulation.functions import WINDOW_OFFSET_MS
from penstock.drivers.simulation.oracle import Consumed, compute_windows
from penstock.drivers.simulation.outside_world import outside
from penstock.drivers.simulation.topology import Stage, Topology
from penstock.runtime.connector import SourceReader, SourceReaderContext
from penstock.runtime.records import Batch

SINK: Final = "sink-results"
#: Records that the live source has before windows have to fire, and those that it keeps back.
EARLY, LAST = 30, 60
#: How many of those a reader has after a restart, so that event time goes on wherever the restart has left it.
AFTER_RESTART: Final = 2
#: Records after those, every other one late, where some are.
LATE: Final = 20
LATE_TIME_MS: Final = 10
WINDOW_MS: Final = 60
FIRST_END_MS: Final = WINDOW_OFFSET_MS + WINDOW_MS
#: The index of the first silent split: its times are later than those of all live ones, of which three have
#: EARLY + LAST records each, while a silent one may have a single record.
SILENT_INDEX: Final = 3 * (EARLY + LAST) + 10
IDLENESS_MS: Final = 20
#: What `SilentSource` remarks when it reads after the end of the live source.
MAY_BE_LATE: Final = "silent records may be late"


class LiveSource(SimulatedSource):
    """Has its last records once results are visible."""

    #: up to where this reader may read its splits before that
    limits: dict[int, int]

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, Split]:
        """See `SimulatedSource`; each reader has limits of its own."""
        source = copy(self)
        source.limits = {}
        return SimulatedSource.create_reader(source, context)

    def readable(self, split: Split, now_ms: int) -> int:
        """See `SimulatedSource`."""
        if self.are_results_visible(split):
            return split.stop
        begun = max(EARLY, split.position + AFTER_RESTART)
        return self.limits.setdefault(split.index, min(begun, EARLY + LAST - 1))

    def batch(self, split: Split, stop: int) -> Batch:
        """See `SimulatedSource`; remark the end of a split."""
        if stop == split.stop:
            outside(self.world).remarks.add(describe_end(split))
        return super().batch(split, stop)

    def are_results_visible(self, split: Split) -> bool:
        """Whether windows have fired, and that is committed."""
        return bool(outside(self.world).committed.get(SINK))


class LateSource(LiveSource):
    """After its other records it has late ones, for windows that have fired."""

    def __init__(self, world: str, keys: int) -> None:
        super().__init__(world, 0, 1, EARLY + LAST + LATE, keys, is_lazy=False)

    def batch(self, split: Split, stop: int) -> Batch:
        """See `SimulatedSource`."""
        timed = [self.record(split, position) for position in range(split.position, stop)]
        return Batch([record for record, _ in timed], [time for _, time in timed])

    def record(self, split: Split, position: int) -> tuple[Any, int]:
        """A record and its timestamp (ms)."""
        if not is_late(position):
            return generate_record(split, position, self.keys)
        (_, origin, number), _ = generate_record(split, position, self.keys)
        keys = self.first_keys(split)
        return (keys[position // 2 % len(keys)], origin, number), LATE_TIME_MS

    def first_keys(self, split: Split) -> list[Any]:
        """The keys of the first window."""
        timed = (generate_record(split, position, self.keys) for position in range(EARLY))
        return sorted({record[0] for record, time in timed if WINDOW_OFFSET_MS <= time < FIRST_END_MS})

    def are_results_visible(self, split: Split) -> bool:
        """Whether the first window of each of its keys has fired, and that is committed."""
        committed = outside(self.world).committed.get(SINK, [])
        fired = {key for key, (_, start, end, _), _ in committed if (start, end) == (WINDOW_OFFSET_MS, FIRST_END_MS)}
        return fired.issuperset(self.first_keys(split))


def is_late(position: int) -> bool:
    """Whether a record of a `LateSource` is late."""
    return position >= EARLY + LAST and position % 2 == 1


class SilentSource(SimulatedSource):
    """Has nothing before results are visible."""

    def __init__(self, live: LiveSource, source: int, splits: int, split_records: int) -> None:
        super().__init__(live.world, source, splits, split_records, live.keys, is_lazy=False)
        self.splits = [Split(source, SILENT_INDEX + i, 0, split_records) for i in range(splits)]
        self.live_ends = {describe_end(split) for split in live.splits}

    def batch(self, split: Split, stop: int) -> Batch:
        """See `SimulatedSource`; remark whether the live source has ended."""
        remarks = outside(self.world).remarks
        if self.live_ends <= remarks:
            remarks.add(MAY_BE_LATE)
        return super().batch(split, stop)

    def readable(self, split: Split, now_ms: int) -> int:
        """See `SimulatedSource`."""
        return split.stop if outside(self.world).committed.get(SINK) else split.position


def describe_end(split: Split) -> str:
    """The remark that a split was read to its end."""
    return f"split {split.index} of source {split.source} has ended"


def draw_idle_topology(world: str) -> Topology:
    """The job of a world with idle and ended inputs."""
    chance = random.Random(f"idle inputs of {world}")
    keys = chance.choice((2, 4))
    parallelism = [chance.choice((1, 1, 2, 3)) for _ in range(6)]
    ended = SimulatedSource(world, 0, chance.randint(1, 2), chance.randint(1, 3), keys, chance.random() < 0.5)
    silent_splits, silent_records = chance.randint(1, 2), chance.randint(1, 3)
    live = LiveSource(world, 2, chance.randint(1, 3), EARLY + LAST, keys, chance.random() < 0.5)
    silent = SilentSource(live, 1, silent_splits, silent_records)
    has_rules = chance.random() < 0.4
    both: tuple[tuple[int, str], ...] = ((1, "hash"), (0, "broadcast" if has_rules else "hash"))
    stages = [
        Stage("source", parallelism[0], (), source=ended),
        Stage("source", parallelism[1], (), source=silent, idleness_ms=IDLENESS_MS),
        Stage("source", parallelism[2], (), source=live),
        Stage("rules" if has_rules else "pass", parallelism[3], both),
        Stage(chance.choice(("tumbling", "sliding", "buckets")), parallelism[4], ((3, "hash"), (2, "hash"))),
        Stage("sink", parallelism[5], ((4, "rebalance"),), uid=SINK, rank=5.0),
    ]
    stages[4].size_ms = WINDOW_MS
    return Topology(world, keys, stages)


class LateTopology(Topology):
    """A job with late records."""

    def windows(self, read: Consumed) -> Counter[Any]:
        """What the sink must have, when so much was read."""
        source = self.stages[0].source
        assert isinstance(source, LateSource)
        (split,) = source.splits
        on_time = [
            source.record(split, position)
            for position in range(read.get((split.source, split.index), split.stop))
            if not is_late(position)
        ]
        return Counter(compute_windows(self.stages[1], on_time))


def draw_late_topology(world: str) -> LateTopology:
    """The job of a world with late records."""
    chance = random.Random(f"late records of {world}")
    keys = chance.choice((2, 4))
    parallelism = [chance.choice((1, 1, 2, 3)) for _ in range(3)]
    stages = [
        Stage("source", parallelism[0], (), source=LateSource(world, keys)),
        Stage(chance.choice(("tumbling", "sliding")), parallelism[1], ((0, "hash"),)),
        Stage("sink", parallelism[2], ((1, "rebalance"),), uid=SINK, rank=2.0),
    ]
    stages[1].size_ms = WINDOW_MS
    stages[1].keeps_records = chance.random() < 0.5
    return LateTopology(world, keys, stages)


def choose_kind(seed: int) -> str:
    """Whether a seed's world is about inputs that are idle and ended, or about late records."""
    return "late" if seed % 2 else "idle"
