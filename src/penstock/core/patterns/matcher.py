"""Leads the events of a key through an automaton, and gives the matches.

An event is offered to every partial match, in the order in which they began, and then to the start, which is always
there. A partial match goes each way that its guards allow, so it may become several, or none. A way that ends in the
final state is a match. One that could end there without another event is a match, and goes on, too.

Partial matches older than `within_ms` are thrown out by `advance`, which comes before each event, and whenever time
goes on without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.core.patterns.automaton import FINAL, Action, Automaton, Step, automaton_of
from penstock.core.patterns.memory import NO_LINK, Memory, Partial
from penstock.core.patterns.pattern import Pattern
from penstock.core.patterns.skipping import Skip, SkipStrategy


@dataclass(frozen=True, slots=True)
class Found:
    """What came out: matches, and partial matches that took too long, as events by stages."""

    matches: list[dict[str, list[Any]]] = field(default_factory=list)
    timed_out: list[dict[str, list[Any]]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A partial match to which an event is offered. `link`: its last one, `NO_LINK` at the start."""

    link: int
    conditions: frozenset[int]


#: answers whether a condition holds for the event at hand: its number, and the link up to which events were taken
Holds = Callable[[int, int], bool]


class Matcher:
    """Finds a pattern. It keeps nothing itself: the memory of a key is given with each call.

    Args:
        pattern: what is looked for.
        strategy: what happens after a match.
    """

    def __init__(self, pattern: Pattern, strategy: SkipStrategy) -> None:
        self.pattern = pattern
        self.strategy = strategy
        self.automaton: Automaton = automaton_of(pattern)
        self._conditions = self.automaton.conditions()

    def candidates(self, memory: Memory) -> list[Candidate]:
        """The partial matches that the next event is offered to, the start last, and what it may be asked for."""
        found = [Candidate(one.link, self._conditions[one.state]) for one in memory.partials]
        return [*found, Candidate(NO_LINK, self._conditions[self.automaton.start])]

    def deadline_ms(self, memory: Memory) -> int | None:
        """When the oldest partial match will have taken too long; None if none ever will."""
        oldest, within = memory.oldest_ms, self.pattern.within_ms
        return None if within is None or oldest is None else oldest + within

    def advance(self, memory: Memory, time_ms: int) -> Found:
        """Time has come to this point: what has taken too long goes, and what waited for it comes."""
        within, found = self.pattern.within_ms, Found()
        if within is None:
            return found
        kept = []
        for one in memory.partials:
            if time_ms - one.first_ms >= within:
                found.timed_out.append(memory.events(one.link))
                memory.release(one.link)
            else:
                kept.append(one)
        if found.timed_out:
            memory.keep_partials(kept)
            self._send(memory, found)
        return found

    def process(self, memory: Memory, event: Any, time_ms: int, holds: Holds) -> Found:
        """Take an event in, behind all that came before. Raises `SkipError` where a match cannot skip as it should."""
        found, number = Found(), memory.next_number()
        living: list[Partial] = []
        complete: list[Partial] = []
        start = Partial(self.automaton.start, NO_LINK, number, time_ms)
        for one in (*memory.partials, start):
            for state, link in self._ways(memory, one, number, event, time_ms, holds):
                memory.refer(link)
                (complete if state == FINAL else living).append(Partial(state, link, one.first, one.first_ms))
            if one.link != NO_LINK:
                memory.release(one.link)
        memory.keep_partials(living)
        if self.strategy.skip is Skip.NO_SKIP:
            for one in complete:
                found.matches.append(memory.events(one.link))
                memory.release(one.link)
        elif complete:
            memory.keep_waiting(sorted([*memory.waiting, *complete], key=lambda one: one.first))
            self._send(memory, found)
        elif memory.waiting:
            self._send(memory, found)
        return found

    def _ways(
        self, memory: Memory, one: Partial, number: int, event: Any, time_ms: int, holds: Holds
    ) -> Iterator[tuple[int, int]]:
        """The states and last links that a partial match goes to."""
        names = self.automaton.names
        for source, step in self._allowed(one, holds):
            if step.action is Action.IGNORE:
                if one.link != NO_LINK:
                    yield step.target, one.link
                continue
            link = memory.add(one.link, names[source], number, event, time_ms)
            yield step.target, link
            if step.target != FINAL and self._may_end(step.target, one.link, holds):
                yield FINAL, link

    def _allowed(self, one: Partial, holds: Holds) -> list[tuple[int, Step]]:
        """The steps that an event may go from where a partial match is, and the states that they begin in."""
        steps, waiting, found = self.automaton.steps, [one.state], []
        while waiting:
            state = waiting.pop()
            for step in steps[state]:
                if not _passes(step, one.link, holds):
                    continue
                if step.action is Action.PROCEED:
                    waiting.append(step.target)
                else:
                    found.append((state, step))
        return found

    def _may_end(self, state: int, link: int, holds: Holds) -> bool:
        """Whether the final state is reached from a state without another event."""
        waiting, seen = [state], {state}
        while waiting:
            for step in self.automaton.steps[waiting.pop()]:
                if step.action is Action.PROCEED and step.target not in seen and _passes(step, link, holds):
                    if step.target == FINAL:
                        return True
                    seen.add(step.target)
                    waiting.append(step.target)
        return False

    def _send(self, memory: Memory, found: Found) -> None:
        """Give the complete matches that none is before any more, and skip what they skip."""
        waiting, partials, has_sent = memory.waiting, memory.partials, False
        while waiting and (not partials or waiting[0].first <= partials[0].first):
            match, has_sent = waiting[0], True
            path = memory.path(match.link)
            found.matches.append(memory.events(match.link))
            waiting = self.strategy.kept(waiting[1:], path, memory)
            partials = self.strategy.kept(partials, path, memory)
            memory.release(match.link)
        if has_sent:
            memory.keep_waiting(waiting)
            memory.keep_partials(partials)


def _passes(step: Step, link: int, holds: Holds) -> bool:
    return all(holds(number, link) is wanted for number, wanted in step.guard)
