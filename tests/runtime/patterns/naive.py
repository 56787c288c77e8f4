"""Matches by trying everything: all ways to give events to the stages of a pattern, without an automaton."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from penstock.runtime.patterns.matcher import Matcher, SkipStrategy
from penstock.runtime.patterns.memory import Memory
from penstock.runtime.patterns.moves import Holds
from penstock.runtime.patterns.pattern import Contiguity, Pattern, Stage

NO_SKIP = SkipStrategy()
#: stages and the places of their events, in order
Path = tuple[tuple[str, int], ...]


def holding(event: str) -> Holds:
    """Which conditions hold for an event: those of its letters."""
    return lambda number, link: "abcd"[number] in event


def matches_of(pattern: Pattern, events: Sequence[str], strategy: SkipStrategy = NO_SKIP) -> list[Path]:
    """What the matcher finds: an event is the letters of the conditions that hold for it, at a ms of its own.

    What it remembers is checked after each event.
    """
    matcher, held, found = Matcher(pattern, strategy), Memory.empty(), []
    for place, event in enumerate(events):
        memory = Memory(held)
        matches = matcher.advance(memory, place).matches
        matches += matcher.process(memory, place, place, holding(event)).matches
        memory.validate()
        found += [tuple((name, one) for name, places in match.items() for one in places) for match in matches]
    return found


def naive_matches(pattern: Pattern, events: Sequence[str]) -> list[Path]:
    """All matches if nothing is skipped."""
    stages = [part for part in pattern.parts if isinstance(part, Stage)]
    assert len(stages) == len(pattern.parts)
    found = []
    for counts in product(*(_counts(stage, len(events)) for stage in stages)):
        takes = [(number, place) for number, count in enumerate(counts) for place in range(count)]
        if 0 < len(takes) <= len(events):
            found += list(_paths(stages, takes, events, ()))
    if pattern.within_ms is not None:
        found = [path for path in found if path[-1][1] - path[0][1] < pattern.within_ms]
    return found


def _counts(stage: Stage, most: int) -> list[int]:
    times = stage.times
    top = most if times.most is None else times.most
    return [0] * times.is_optional + list(range(times.least, top + 1))


def _paths(
    stages: Sequence[Stage], takes: Sequence[tuple[int, int]], events: Sequence[str], path: Path
) -> Iterator[Path]:
    if len(path) == len(takes):
        yield path
        return
    number, repeat = takes[len(path)]
    stage = stages[number]
    begin = path[-1][1] + 1 if path else 0
    contiguity = stage.times.inner if repeat else stage.contiguity
    before = takes[len(path) - 1][0] if path else 0
    greedy = [one for one in stages[before:number] if one.times.is_greedy] if not repeat else []
    for place in range(begin, len(events)):
        gap = events[begin:place] if path else ()
        if contiguity is Contiguity.STRICT and gap:
            return
        if contiguity is Contiguity.RELAXED and any(_holds(stage, event) for event in gap):
            return
        if any(_holds(one, event) for one in greedy for event in gap):
            return
        if _holds(stage, events[place]) and not any(_holds(one, events[place]) for one in greedy):
            yield from _paths(stages, takes, events, (*path, (stage.name, place)))


def _holds(stage: Stage, event: str) -> bool:
    return "abcd"[stage.condition] in event
