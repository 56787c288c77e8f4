"""The tables of symbols beside the decision trees that they are made from, over random patterns and events.

One matcher is told the answers of simple conditions as symbols, several events at a time. The other knows no answer and
asks for each, event by event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.effort import tries
from tests.runtime.patterns.drawn import EVEN, LETTERS, Drawing

from penstock.runtime.patterns.matcher import Listener, Matcher, SkipStrategy
from penstock.runtime.patterns.memory import NEXT, PARTIALS, WAITING, Memory
from penstock.runtime.patterns.moves import IDLE, UNKNOWN, Holds, Idleness
from penstock.runtime.patterns.pattern import Pattern

PARTIALS_MAX = 60


@dataclass
class Recorder:
    """Runs a matcher, and records what it finds. Events are (number, letters)."""

    pattern: Pattern
    strategy: SkipStrategy
    has_symbols: bool
    partials_max: int | None = PARTIALS_MAX
    data: list[Any] = field(default_factory=Memory.empty)
    events: dict[int, Any] | None = None
    found: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        simple = range(len(LETTERS)) if self.has_symbols else ()
        self.matcher = Matcher(self.pattern, self.strategy, simple=simple, partials_max=self.partials_max)
        self.listener = Listener(self._expire, self._match, self._limit, self._ask)

    def run(self, events: list[tuple[int, tuple[int, str]]]) -> None:
        """Give it events; if it has symbols, only the first of several idle ones in a row, where that is enough."""
        memory = Memory(self.data, self.events)
        rows = [(time, event, self._symbol(event[1])) for time, event in events]
        if self.has_symbols and self.matcher.idleness() is Idleness.ONCE:
            rows = [
                (*row[:2], row[2] or IDLE) for before, row in pairwise([(0, (0, ""), -1), *rows]) if row[2] or before[2]
            ]
        self.matcher.run([(memory, rows)], self.listener)
        memory.validate()

    def advance(self, time_ms: int) -> None:
        """Let time go on."""
        memory = Memory(self.data, self.events)
        self._expire(memory, time_ms)
        memory.validate()

    def shown(self) -> list[Any]:
        """What it has found, and what it keeps; links have numbers that mean nothing."""
        memory = Memory(self.data, self.events)
        counts = {number: entry[2] if self.events is None else entry for number, entry in memory.counts.items()}
        values = {number: memory.event(number) for number in memory.counts}
        links = sorted((memory.path(link), entry[3]) for link, entry in memory.links.items())
        matches = [
            [(match[0], memory.path(match[1]), *match[2:]) for match in self.data[part]] for part in (PARTIALS, WAITING)
        ]
        return [self.found, self.data[NEXT], *matches, links, counts, values]

    def _symbol(self, letters: str) -> int:
        return sum((letter in letters) << bit for bit, letter in enumerate(LETTERS)) if self.has_symbols else UNKNOWN

    def _expire(self, memory: Memory, time_ms: int) -> None:
        result = self.matcher.advance(memory, time_ms)
        self.found += [("match", match) for match in result.matches]
        self.found += [("timed out", *timed_out) for timed_out in result.timed_out]

    def _match(self, matches: list[dict[str, list[Any]]], time_ms: int) -> None:
        self.found += [("match", match, time_ms) for match in matches]

    def _limit(self, memory: Memory, event: Any, time_ms: int) -> None:
        dropped, result = self.matcher.drop_oldest(memory, PARTIALS_MAX)
        self.found += [("dropped", dropped), *(("match", match) for match in result.matches)]

    def _ask(self, memory: Memory, event: tuple[int, str], time_ms: int, known: dict[int, bool]) -> Holds:
        def holds(number: int, link: int) -> bool:
            assert number not in known, "asked although the symbol says it"
            if number < len(LETTERS):
                assert not self.has_symbols, "asked although the symbol says it"
                known[number] = LETTERS[number] in event[1]
                return known[number]
            path = memory.path(link)
            return len(path) % 2 == 0 if number == EVEN else bool(path) and memory.event(path[-1][1])[0] % 2 == 1

        return holds


def check_seed(seed: int) -> list[Any]:
    """What both give, where it differs; nothing where it does not."""
    drawing = Drawing(seed)
    pattern = drawing.pattern()
    strategy = drawing.strategy(pattern)
    events = [(time, (number, letters)) for number, (time, letters) in enumerate(drawing.events())]
    partials_max = PARTIALS_MAX if seed % 3 == 0 else None
    fast = Recorder(pattern, strategy, True, partials_max, events={})
    slow = Recorder(pattern, strategy, False, partials_max)
    for begin in range(0, len(events), 1 + seed % 4):
        batch = events[begin : begin + 1 + seed % 4]
        fast.run(batch)
        for event in batch:
            slow.advance(event[0])
            slow.run([event])
        slow.advance(batch[-1][0])
        fast.advance(batch[-1][0])
        if fast.shown() != slow.shown():
            return [fast.shown(), slow.shown()]
    for recorder in (fast, slow):
        recorder.advance(10**6)
    return [] if fast.found == slow.found else [fast.found, slow.found]


def test_symbols_lead_where_the_trees_do() -> None:
    failed = {seed: found for seed in range(tries(1500)) if (found := check_seed(seed))}
    assert failed == {}


def test_the_cases_find_enough() -> None:
    matches, timed_out, general = 0, 0, 0
    for seed in range(200):
        drawing = Drawing(seed)
        pattern = drawing.pattern()
        recorder = Recorder(pattern, drawing.strategy(pattern), True)
        recorder.run([(time, (number, letters)) for number, (time, letters) in enumerate(drawing.events())])
        matches += any(entry[0] == "match" for entry in recorder.found)
        timed_out += any(entry[0] == "timed out" for entry in recorder.found)
        general += any(
            not isinstance(move, (tuple, type(None))) for row in recorder.matcher.moves.values() for move in row[0]
        )
    assert matches > 50
    assert timed_out > 10
    assert general > 100
