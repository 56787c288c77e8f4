"""Runs the events of a key through an automaton and returns the matches.

An event is offered to every partial match, in the order in which they began, and then to the start, which always
exists. A partial match follows each step that its guards allow, so it may become several, or end. A step to the final
state is a match. A partial match that could reach the final state without another event is a match and also continues.
If a step leads to a stop, the partial match is discarded, except for matches that this event completes.

`advance` comes before each event, and whenever time advances without one. It removes partial matches that are older
than `within_ms` or have waited too long for their next event; pending ones become matches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.core.patterns import queueing
from penstock.core.patterns.automaton import FINAL, Automaton
from penstock.core.patterns.making import build_automaton
from penstock.core.patterns.memory import NO_LINK, Memory, Partial
from penstock.core.patterns.pattern import Pattern
from penstock.core.patterns.skipping import Skip, SkipStrategy
from penstock.core.patterns.ways import Question, Trees, Way, Ways


class TimedOut(NamedTuple):
    """A partial match that timed out, and when (ms)."""

    events: dict[str, list[Any]]
    time_ms: int


@dataclass(frozen=True, slots=True)
class Found:
    """The output: matches as events by stage, and partial matches that timed out."""

    matches: list[dict[str, list[Any]]] = field(default_factory=list)
    timed_out: list[TimedOut] = field(default_factory=list)


#: The output for an event that no partial match took; never added to.
NOTHING: Final = Found()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A partial match that receives an event. `link`: its last link, `NO_LINK` at the start."""

    link: int
    conditions: frozenset[int]


#: returns whether a condition, by number, holds for the current event, given the link of the last event taken
Holds = Callable[[int, int], bool]
_UNASKED: Final[dict[int, bool]] = {}


class Matcher:
    """Finds a pattern. It has no state of its own: each call receives the memory of a key.

    Args:
        pattern: the pattern to find.
        strategy: the skip strategy after a match.
    """

    def __init__(self, pattern: Pattern, strategy: SkipStrategy) -> None:
        self.pattern = pattern
        self.strategy = strategy
        self.automaton: Automaton = build_automaton(pattern)
        self._conditions = self.automaton.conditions()
        self._trees = Trees(self.automaton)
        self._windows = self.automaton.windows
        self._has_windows = any(window is not None for window in self._windows)

    def candidates(self, memory: Memory) -> list[Candidate]:
        """Return the partial matches that receive the next event, the start last, with the conditions to test."""
        candidates = [Candidate(partial.link, self._conditions[partial.state]) for partial in memory.partials]
        return [*candidates, Candidate(NO_LINK, self._conditions[self.automaton.start])]

    # --- time --------------------------------------------------------------------------------------------------------

    def deadline_ms(self, memory: Memory) -> int | None:
        """Return when the first partial match will time out; None if none ever will."""
        within, partials = self.pattern.within_ms, memory.partials
        if not partials:
            return None
        if not self._has_windows:
            return None if within is None else partials[0].first_ms + within
        return min((due for partial in partials if (due := self._due_ms(partial)) is not None), default=None)

    def _due_ms(self, partial: Partial) -> int | None:
        """Return when a partial match will time out."""
        within, window = self.pattern.within_ms, self._windows[partial.state]
        since_first = None if within is None else partial.first_ms + within
        if window is None:
            return since_first
        since_last = (partial.first_ms if partial.last_ms is None else partial.last_ms) + window
        return since_last if since_first is None else min(since_first, since_last)

    def advance(self, memory: Memory, time_ms: int) -> Found:
        """Advance time to this point: remove timed-out partial matches, and return the matches that waited for it.

        Deadlines are handled in order, so the result does not depend on the times of these calls.
        """
        result = Found()
        deadline = self.deadline_ms(memory)
        if memory.waiting and (deadline is None or deadline > time_ms):
            self._send(memory, result)
        while deadline is not None and deadline <= time_ms:
            self._end_those_due(memory, deadline, result)
            deadline = self.deadline_ms(memory)
        return result

    def _end_those_due(self, memory: Memory, time_ms: int, result: Found) -> None:
        living: list[Partial] = []
        complete: list[Partial] = []
        for partial in memory.partials:
            due = self._due_ms(partial)
            if due is None or due > time_ms:
                living.append(partial)
            elif partial.state in self.automaton.pending:
                complete.append(partial)
            else:
                result.timed_out.append(TimedOut(memory.events(partial.link), self._late_ms(partial, time_ms)))
                memory.release(partial.link)
        memory.keep_partials(living)
        self._complete(memory, complete, result)

    def _late_ms(self, partial: Partial, time_ms: int) -> int:
        """Return when a partial match timed out: by its last event, or by its first one."""
        window = self._windows[partial.state]
        if window is not None:
            last_ms = partial.first_ms if partial.last_ms is None else partial.last_ms
            if time_ms - last_ms >= window:
                return last_ms + window
        assert self.pattern.within_ms is not None
        return partial.first_ms + self.pattern.within_ms

    # --- events ------------------------------------------------------------------------------------------------------

    def process(
        self, memory: Memory, event: Any, time_ms: int, holds: Holds, known: dict[int, bool] = _UNASKED
    ) -> Found:
        """Process an event that follows all earlier ones. Raises `SkipError` if a match cannot skip as configured.

        Args:
            memory: the memory of the key.
            event: the event.
            time_ms: its time.
            holds: evaluates conditions.
            known: answers that are the same for all partial matches; `holds` may add more of them.
        """
        roots, answered = self._trees.roots, self._trees.answered
        ways: list[Ways] = []
        is_passed_over = True
        # The same as `_ways` for each, without the calls: all partial matches ignore most events.
        for state, link, _, _, _ in memory.partials:
            node: Any = roots[state]
            while node.__class__ is Question:
                number = node.number
                answer = known[number] if number in known else holds(number, link)
                following = node.yes if answer else node.no
                node = answered(state, node, answer) if following is None else following
            ways.append(node)
            if not node.stays:
                is_passed_over = False
        node = roots[self.automaton.start]
        while node.__class__ is Question:
            number = node.number
            answer = known[number] if number in known else holds(number, NO_LINK)
            following = node.yes if answer else node.no
            node = answered(self.automaton.start, node, answer) if following is None else following
        if is_passed_over and not node.takes:
            return NOTHING
        return self._taken(memory, event, time_ms, ways, node)

    def patient_states(self, simple: Collection[int]) -> frozenset[int]:
        """Return the states that ignore an event if none of these conditions holds.

        Empty if such an event could begin a match.
        """
        falling = dict.fromkeys(simple, False)
        states = [
            state
            for state in range(len(self.automaton.steps))
            if (ways := self._ways_if(state, falling)) and ways.stays
        ]
        start = self._ways_if(self.automaton.start, falling)
        return frozenset(states if start is not None and not start.takes else ())

    def _ways_if(self, state: int, known: dict[int, bool]) -> Ways | None:
        """Return where an event leads, given only these answers; None if they are not enough."""
        node = self._trees.roots[state]
        while isinstance(node, Question):
            if node.number not in known:
                return None
            following = node.yes if known[node.number] else node.no
            node = self._trees.answered(state, node, known[node.number]) if following is None else following
        return node

    def find_transitions(self, memory: Memory, holds: Holds, known: dict[int, bool]) -> list[tuple[Partial, Ways]]:
        """Return where the current event would lead each partial match; for tracing a pattern."""
        return [(partial, self._ways(partial.state, partial.link, holds, known)) for partial in memory.partials]

    def _ways(self, state: int, link: int, holds: Holds, known: dict[int, bool]) -> Ways:
        """Return where an event leads a partial match in a state."""
        node = self._trees.roots[state]
        while isinstance(node, Question):
            answer = known[node.number] if node.number in known else holds(node.number, link)
            following = node.yes if answer else node.no
            node = self._trees.answered(state, node, answer) if following is None else following
        return node

    def _taken(self, memory: Memory, event: Any, time_ms: int, ways: list[Ways], start: Ways) -> Found:
        """Apply the transitions to the partial matches and the start."""
        result, number = Found(), memory.number
        living: list[Partial] = []
        complete: list[Partial] = []
        for partial, its in zip(memory.partials, ways, strict=True):
            if its.stays:
                living.append(partial)
                continue
            for way in its.ways:
                self._go(memory, partial, way, number, event, time_ms, living, complete)
            memory.release(partial.link)
        for way in start.ways:
            if way.stage is not None:
                first = Partial(self.automaton.start, NO_LINK, number, time_ms)
                self._go(memory, first, way, number, event, time_ms, living, complete)
        memory.keep_partials(living)
        self._complete(memory, complete, result)
        return result

    def _go(
        self,
        memory: Memory,
        partial: Partial,
        way: Way,
        number: int,
        event: Any,
        time_ms: int,
        living: list[Partial],
        complete: list[Partial],
    ) -> None:
        """Apply a transition to a partial match."""
        _, link, first, first_ms, last_ms = partial
        if way.stage is None:
            if way.target == FINAL or link != NO_LINK:
                memory.refer(link)
                passed = Partial(way.target, link, first, first_ms, last_ms)
                (complete if way.target == FINAL else living).append(passed)
            return
        if memory.number == number:
            memory.use_number()
        link = memory.add(link, way.stage, number, event, time_ms)
        memory.refer(link)
        (complete if way.target == FINAL else living).append(Partial(way.target, link, first, first_ms, time_ms))
        if way.ends:
            memory.refer(link)
            complete.append(Partial(FINAL, link, first, first_ms, time_ms))

    def drop_oldest(self, memory: Memory, most: int) -> tuple[int, Found]:
        """Limit a key's partial matches to this number by dropping the oldest ones.

        Returns how many were dropped, and the matches that waited only for them.
        """
        result, dropped = Found(), 0
        while memory.partials and len(memory.partials) + len(memory.waiting) > most:
            oldest, *remaining = memory.partials
            memory.keep_partials(remaining)
            memory.release(oldest.link)
            dropped += 1
            self._send(memory, result)
        return dropped, result

    # --- matches -----------------------------------------------------------------------------------------------------

    def _complete(self, memory: Memory, complete: list[Partial], result: Found) -> None:
        """Output complete matches, or let them wait for partial matches that began earlier."""
        if self.strategy.skip is not Skip.NO_SKIP:
            if complete or memory.waiting:
                memory.keep_waiting(queueing.joined(memory.waiting, complete))
                self._send(memory, result)
            return
        # Up to two are already in order.
        for match in complete if len(complete) < 3 else queueing.ordered(complete):
            result.matches.append(memory.events(match.link))
            memory.release(match.link)

    def _send(self, memory: Memory, result: Found) -> None:
        """Output the complete matches that no partial match can precede any more, and skip accordingly."""
        waiting, partials, has_sent = list(memory.waiting), memory.partials, False
        while waiting and (not partials or waiting[0].first <= partials[0].first):
            match, has_sent = queueing.pop(waiting), True
            path = memory.path(match.link)
            result.matches.append(memory.events(match.link))
            remaining = self.strategy.kept(waiting, path, memory)
            if len(remaining) < len(waiting):
                waiting = remaining
                queueing.restore(waiting)
            partials = self.strategy.kept(partials, path, memory)
            memory.release(match.link)
        if has_sent:
            memory.keep_waiting(waiting)
            memory.keep_partials(partials)
