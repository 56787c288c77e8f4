"""A job that looks for a pattern, as a topology of the simulator: source, pattern, sink."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.cep.drawn import draw_specification
from tests.cep.operators import TIMED_OUT, operator_factory, shown
from tests.cep.oracle.answers import Shown, answer
from tests.cep.oracle.specifications import Contiguity, Event, Specification
from tests.cep.oracle.specifications import Stage as PatternStage

from penstock.base.configuration import Configuration
from penstock.cep import PatternProcessFunction, TimedOutPartialMatchHandler
from penstock.drivers.simulation.connectors import STEP_MS, SimulatedSource, Split, generate_record
from penstock.drivers.simulation.oracle import SHOWN_MAX, Consumed
from penstock.drivers.simulation.topology import Stage, Topology
from penstock.plan.job_graph import build_job_graph
from penstock.plan.transformation import Transformation, Upstream
from penstock.runtime.graph import JobGraph
from penstock.runtime.records import Batch

SINK: Final = "sink-0"
MATCH, TIME_OUT = "match", "time-out"
#: (key, what it is, stages with their events)
Told = tuple[Any, str, Shown]


class EventSource(SimulatedSource):
    """Yields events: those of a split come a little out of order, and some at the same time."""

    def batch(self, split: Split, stop: int) -> Batch:
        """See `SimulatedSource`."""
        pairs = [event_at(split, position, self.keys) for position in range(split.position, stop)]
        return Batch([event for _, event in pairs], [time for time, _ in pairs])


def event_at(split: Split, position: int, keys: int) -> tuple[int, Event]:
    """One event of a split, with its time (ms)."""
    (key, _, mixed), time = generate_record(split, position, keys)
    number = split.source * 10_000 + split.index * 1_000 + position
    # Half of the events have the time of their neighbour.
    return time // (2 * STEP_MS) * 2 * STEP_MS, Event(str(key), "abcaabbd"[mixed % 8], mixed % 5, number)


class Tell(PatternProcessFunction, TimedOutPartialMatchHandler):
    """Tells matches and time-outs."""

    def process_match(self, match: dict[str, list[Event]], ctx: Any) -> Iterable[Any]:
        yield next(iter(match.values()))[0].key, MATCH, shown(match)

    def process_timed_out_match(self, match: dict[str, list[Event]], ctx: Any) -> Iterable[Any]:
        yield TIMED_OUT, (next(iter(match.values()))[0].key, TIME_OUT, shown(match))


def by_number(first: Event, second: Event) -> int:
    """Events of one time come through different channels: their order is one of their own."""
    return first.number - second.number


@dataclass
class PatternTopology(Topology):
    """See the module's text. `specification` is never None."""

    specification: Specification | None = None

    def __str__(self) -> str:
        return f"{self.specification}; {super().__str__()}"

    def job_graph(self, configuration: Configuration) -> JobGraph:
        """As the job master takes it."""
        made: list[Transformation] = []
        for stage in self.stages:
            upstreams = [Upstream(made[i], _partitioner(name)) for i, name in stage.inputs]
            if stage.kind == "sink":  # time-outs come beside the matches
                upstreams += [replace(one, side_tag=TIMED_OUT.tag_id) for one in upstreams]
            made.append(self._transformation(stage, tuple(upstreams)))
        return build_job_graph(made, configuration, self.world)

    def _factory(self, stage: Stage) -> Any:
        assert stage.kind == "pattern"
        assert self.specification is not None
        return operator_factory(self.specification.pattern(), Tell(), comparator=by_number)

    def flaws(self, told: Iterable[Told], read: Consumed) -> list[str]:
        """What is wrong with what the sink was told."""
        assert self.specification is not None
        given: Counter[Told] = Counter()
        given_time_outs: set[Told] = set()
        for one in told:
            if one[1] == MATCH:
                given[one] += 1
            else:
                given_time_outs.add(one)
        matches: Counter[Told] = Counter()
        time_outs: set[Told] = set()
        for key, events in self._events(read).items():
            found = answer(self.specification, events, [shown for of, _, shown in given if of == key])
            matches.update((key, MATCH, match.shown) for match in found.matches)
            time_outs.update((key, TIME_OUT, one.shown) for one in found.time_outs)
        lost = list((matches - given).elements()) + list(time_outs - given_time_outs)
        more = list((given - matches).elements()) + list(given_time_outs - time_outs)
        if not lost and not more:
            return []
        return [f"output: lacks {len(lost)}: {lost[:SHOWN_MAX]}; has {len(more)} too many: {more[:SHOWN_MAX]}"]

    def _events(self, read: Consumed) -> dict[str, list[tuple[int, Event]]]:
        found: dict[str, list[tuple[int, Event]]] = {}
        for split, keys in self._splits():
            for position in range(read.get((split.source, split.index), split.stop)):
                time, event = event_at(split, position, keys)
                found.setdefault(event.key, []).append((time, event))
        return {key: sorted(events, key=lambda one: (one[0], one[1].number)) for key, events in found.items()}

    def _splits(self) -> Iterator[tuple[Split, int]]:
        for stage in self.stages:
            if stage.source is not None:
                yield from ((split, stage.source.keys) for split in stage.source.splits)


def _partitioner(name: str) -> Any:
    from penstock.drivers.simulation import topology

    return topology._partitioner(name)


def draw_topology(world: str) -> PatternTopology:
    """The job of a world."""
    chance = random.Random(f"pattern of {world}")
    specification = _specification(chance)
    keys = chance.choice((2, 3, 4))
    splits = chance.randint(1, 3)
    records = chance.randint(4, 9 * keys // splits)
    source = EventSource(world, 0, splits, records, keys, chance.random() < 0.6)
    parallelism = [chance.choice((1, 1, 2, 2, 3, 4)) for _ in range(3)]
    stages = [
        Stage("source", parallelism[0], (), source=source),
        Stage("pattern", parallelism[1], ((0, "hash"),)),
        Stage("sink", parallelism[2], ((1, chance.choice(("hash", "rebalance"))),), uid=SINK, rank=2.0),
    ]
    return PatternTopology(world, keys, stages, specification=specification)


def _specification(chance: random.Random) -> Specification:
    """A pattern of which the events of a history do not give thousands of matches."""
    while True:
        drawn = draw_specification(chance)
        stages = [part for part in drawn.parts if isinstance(part, PatternStage)]
        loose = [s for s in drawn.stages() if s.inner is Contiguity.ANY or s.link is Contiguity.ANY or s.most is None]
        if len(loose) <= 1 and not any(stage.parts and stage.is_loop for stage in stages):
            return _in_steps(drawn)


def _in_steps(specification: Specification) -> Specification:
    """With windows as long as it takes for so many events to come; odd, as no event's time is."""

    def longer(window_ms: int | None) -> int | None:
        return None if window_ms is None else 4 * STEP_MS * window_ms + 1

    parts = tuple(
        replace(part, window_ms=longer(part.window_ms)) if isinstance(part, PatternStage) else part
        for part in specification.parts
    )
    return replace(
        specification,
        parts=parts,
        window_ms=longer(specification.window_ms),
        not_window_ms=longer(specification.not_window_ms),
    )
