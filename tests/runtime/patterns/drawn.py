"""Random patterns of the engine, more of them than the API allows, and events for them, from a seed."""

from __future__ import annotations

import random
from dataclasses import replace

from penstock.runtime.patterns.matcher import Skip, SkipStrategy
from penstock.runtime.patterns.pattern import NEGATIONS, Contiguity, Group, Part, Pattern, Stage, Times, may_be_empty

LETTERS = "abcd"
#: conditions of the partial match as well: it has taken an even number of events; the number of its last one is odd
EVEN, ODD = 4, 5
LINKS = (Contiguity.STRICT, Contiguity.RELAXED, Contiguity.NON_DETERMINISTIC)


class Drawing:
    """Draws what belongs to a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"engine {seed}")
        self._names = iter("pqrstuvwxyzABCDEFGHIJKLMN")

    def pattern(self) -> Pattern:
        """A pattern that is not empty."""
        chance = self._chance
        while True:
            self._names = iter("pqrstuvwxyzABCDEFGHIJKLMN")
            parts = self._parts(chance.choice((1, 2, 2, 3, 3, 4)), 0)
            if not may_be_empty(parts) and parts[0].contiguity not in NEGATIONS:
                return Pattern(parts, chance.choice((None, None, 3, 6, 9, 15)))

    def strategy(self, pattern: Pattern) -> SkipStrategy:
        """What a match skips."""
        skip = self._chance.choice((Skip.NO_SKIP, *Skip))
        return SkipStrategy(skip, self._chance.choice(pattern.names()) if skip in (Skip.TO_FIRST, Skip.TO_LAST) else "")

    def events(self) -> list[tuple[int, str]]:
        """Times and letters: the simple conditions that hold."""
        chance, time, events = self._chance, 0, []
        letters = chance.choice(
            (["a", "b", "c", "d", ""], ["a", "b", "c", "", "", ""], ["a", "ab", "bc", "cd", "abcd"])
        )
        for _ in range(chance.randint(4, 14)):
            time += chance.choice((0, 1, 1, 1, 2, 5))
            events.append((time, chance.choice(letters)))
        return events

    def _parts(self, count: int, depth: int) -> tuple[Part, ...]:
        parts: list[Part] = []
        for _ in range(count):
            parts.append(self._part(depth, bool(parts)))
        return tuple(parts)

    def _part(self, depth: int, is_behind: bool) -> Part:
        chance = self._chance
        contiguity = chance.choice(LINKS)
        if depth < 2 and chance.random() < 0.15:
            inner = self._parts(chance.choice((1, 2, 2)), depth + 1)
            if inner[0].contiguity not in NEGATIONS and not may_be_empty(inner):
                return Group(inner, contiguity, replace(self._times(), is_greedy=False, window_ms=None))
        condition = chance.choice((0, 0, 1, 1, 2, 3, EVEN, ODD) if is_behind else (0, 0, 1, 2))
        since_last = chance.choice((None, None, None, 2, 4)) if is_behind else None
        if is_behind and chance.random() < 0.15:
            return Stage(next(self._names), chance.randint(0, 3), chance.choice(NEGATIONS), since_last_ms=since_last)
        return Stage(next(self._names), condition, contiguity, self._times(), since_last)

    def _times(self) -> Times:
        chance = self._chance
        least, most = chance.choice(((1, 1), (1, 1), (1, 1), (2, 2), (1, 3), (2, 3), (1, None), (2, None)))
        repeats = most != 1
        return Times(
            least,
            most,
            is_optional=chance.random() < 0.2,
            is_greedy=repeats and chance.random() < 0.3,
            inner=chance.choice(LINKS),
            until=chance.randint(0, 3) if most is None and chance.random() < 0.3 else None,
            window_ms=chance.choice((None, None, None, 3)) if repeats else None,
        )
