"""The matcher of a pattern: its memory of one key, skip strategies, the order of matches, and the run of the automaton.

`Memory` is a view of a matcher's memory of one key. The memory is plain lists and dictionaries, so that it can be
stored as state:

`[number of the next event, partial matches, complete matches that wait, links, events]`. Partial matches are (state,
link, number of the first event, its time, time of the last event), in the order of their first events. Links are
[previous link or -1, stage, event, references]. An event that no partial match takes has no number, and changes
nothing.

Events are [event, its time, references]. If they are kept elsewhere (`Elsewhere`), the memory has only their reference
counts, and an event is written once and deleted once, whatever happens to the partial matches that include it.

`SkipStrategy` says which partial matches a match discards, and the order of output. With a skip strategy, a match waits
while an earlier partial match exists, because that one would come first and might skip it. Among complete matches, the
one that began first is output first; with the same beginning, the one that completed first.

**The queue of complete matches** orders them by their first event, and with the same first event as in Flink's queue.
Among matches with the same first event, the first may skip the others, so their order decides which ones exist. Flink
keeps them in Java's `PriorityQueue`, a binary heap in a list, which orders equal items in its own way. To produce the
same matches, this queue moves its items in the same way.

`Matcher` runs the events of a key through an automaton and returns the matches. An event is offered to every partial
match, in the order in which they began, and then to the start, which always exists. A partial match follows each step
that its guards allow, so it may become several, or end. A step to the final state is a match. A partial match that
could reach the final state without another event is a match and also continues. If a step leads to a stop, the partial
match is discarded, except for matches that this event completes.

`advance` comes before each event, and whenever time advances without one. It removes partial matches that are older
than `within_ms` or have waited too long for their next event; pending ones become matches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from penstock.base.errors import OperationError
from penstock.runtime.patterns.automaton import FINAL, Automaton, Question, Trees, Way, Ways, build_automaton
from penstock.runtime.patterns.pattern import Pattern

NO_LINK: Final = -1
_NEXT, _PARTIALS, _WAITING, _LINKS, _EVENTS = range(5)
_BEFORE, _STAGE, _EVENT, _LINK_REFERENCES = range(4)
_VALUE, _TIME, _EVENT_REFERENCES = range(3)


class Partial(NamedTuple):
    """A partial match. `link`: the link of the last event; `first`: the number of the first event.

    `last_ms`: the time of the last event; None if it was stored before this field existed.
    """

    state: int
    link: int
    first: int
    first_ms: int
    last_ms: int | None = None


class Elsewhere(Protocol):
    """External storage of events by number, such as map state."""

    def __getitem__(self, number: int, /) -> Any: ...

    def __setitem__(self, number: int, event: Any, /) -> None: ...

    def __delitem__(self, number: int, /) -> None: ...


class Memory:
    """A view of the stored memory of one key, see the module docstring.

    Args:
        data: the stored memory.
        elsewhere: the storage of the events; None if they are in `data`.
        is_lazy: whether only `put_down` writes partial matches to `data`, which is faster for many events in a row.
    """

    __slots__ = ("_counts", "_elsewhere", "_held", "_is_lazy", "_links", "_partials", "_waiting")

    def __init__(self, data: list[Any], elsewhere: Elsewhere | None = None, is_lazy: bool = False) -> None:
        self._held = data
        self._is_lazy = is_lazy
        self._links: dict[int, list[Any]] = data[_LINKS]
        self._counts: dict[int, Any] = data[_EVENTS]
        self._elsewhere = elsewhere
        self._partials: list[Partial] | None = None
        self._waiting: list[Partial] | None = None

    @staticmethod
    def empty() -> list[Any]:
        """Return the memory before the first event."""
        return [0, [], [], {}, {}]

    @property
    def is_empty(self) -> bool:
        """Whether no match is in progress, so that the key may be forgotten."""
        partials = self._held[_PARTIALS] if self._partials is None else self._partials
        return not partials and not self._held[_WAITING]

    @property
    def partials(self) -> list[Partial]:
        """Partial matches in the order of their first events."""
        if self._partials is None:
            self._partials = [Partial(*fields) for fields in self._held[_PARTIALS]]
        return self._partials

    def keep_partials(self, partials: list[Partial]) -> None:
        """Replace the partial matches."""
        self._partials = partials
        if not self._is_lazy:
            self.put_down()

    def put_down(self) -> None:
        """Write the current partial matches to the stored memory."""
        if self._partials is not None:
            self._held[_PARTIALS] = [tuple(partial) for partial in self._partials]

    @property
    def waiting(self) -> list[Partial]:
        """Complete matches that an earlier match may still precede."""
        if self._waiting is None:
            self._waiting = [Partial(*fields) for fields in self._held[_WAITING]]
        return self._waiting

    def keep_waiting(self, matches: list[Partial]) -> None:
        """Replace the waiting matches."""
        self._waiting = matches
        self._held[_WAITING] = [tuple(match) for match in matches]

    @property
    def number(self) -> int:
        """The number of the next event to be taken."""
        number: int = self._held[_NEXT]
        return number

    def use_number(self) -> None:
        """Advance the number after an event has been taken."""
        self._held[_NEXT] += 1

    def add(self, before: int, stage: str, number: int, event: Any, time_ms: int) -> int:
        """Add a link to an event, without references yet, and return it."""
        counts = self._counts
        if self._elsewhere is None:
            known = counts.get(number)
            if known is None:
                known = counts[number] = [event, time_ms, 0]
            known[_EVENT_REFERENCES] += 1
        elif number in counts:
            counts[number] += 1
        else:
            counts[number] = 1
            self._elsewhere[number] = event
        if before != NO_LINK:
            self.refer(before)
        # Numbers only grow from the first link in the dictionary to the last one, so this one is new.
        link = next(reversed(self._links), NO_LINK) + 1
        self._links[link] = [before, stage, number, 0]
        return link

    def refer(self, link: int) -> None:
        """Add a reference to a link."""
        self._links[link][_LINK_REFERENCES] += 1

    def release(self, link: int) -> None:
        """Remove a reference to a link, and delete links and events without references."""
        while link != NO_LINK:
            entry = self._links[link]
            entry[_LINK_REFERENCES] -= 1
            if entry[_LINK_REFERENCES] > 0:
                return
            del self._links[link]
            self._drop(entry[_EVENT])
            link = entry[_BEFORE]

    def _drop(self, number: int) -> None:
        """Remove a reference to an event."""
        counts = self._counts
        if self._elsewhere is None:
            counts[number][_EVENT_REFERENCES] -= 1
            if not counts[number][_EVENT_REFERENCES]:
                del counts[number]
        elif counts[number] > 1:
            counts[number] -= 1
        else:
            del counts[number]
            del self._elsewhere[number]

    def event(self, number: int) -> Any:
        """Return an event by its number."""
        return self._counts[number][_VALUE] if self._elsewhere is None else self._elsewhere[number]

    def path(self, link: int) -> list[tuple[str, int]]:
        """Return the stages and numbers of events up to a link, in order."""
        path = []
        while link != NO_LINK:
            before, stage, number, _ = self._links[link]
            path.append((stage, number))
            link = before
        path.reverse()
        return path

    def events(self, link: int) -> dict[str, list[Any]]:
        """Return the events up to a link by stage, each stage's in order of arrival."""
        events: dict[str, list[Any]] = {}
        for stage, number in self.path(link):
            events.setdefault(stage, []).append(self.event(number))
        return events

    def collect_events(self, link: int, stage: str) -> list[Any]:
        """Return the events of one stage up to a link, in order of arrival."""
        numbers = []
        while link != NO_LINK:
            before, name, number, _ = self._links[link]
            if name == stage:
                numbers.append(number)
            link = before
        return [self.event(number) for number in reversed(numbers)]

    def validate(self) -> None:
        """Raise `AssertionError` if references are counted wrongly."""
        references = [partial.link for partial in (*self.partials, *self.waiting)]
        befores = [link_entry[_BEFORE] for link_entry in self._links.values() if link_entry[_BEFORE] != NO_LINK]
        for link, entry in self._links.items():
            assert entry[_LINK_REFERENCES] == (references + befores).count(link) > 0, (link, entry)
        for number, entry in self._counts.items():
            count = entry if self._elsewhere is not None else entry[_EVENT_REFERENCES]
            assert count == sum(link_entry[_EVENT] == number for link_entry in self._links.values()), number
        firsts = [partial.first for partial in self.partials]
        assert firsts == sorted(firsts), firsts


class SkipError(OperationError):
    """A match has no event to skip to, or would be found again endlessly. The job fails: a retry would hit it again."""

    suppresses_restart = True


class Skip(Enum):
    """Where the search continues after a match."""

    NO_SKIP = "no skip"
    TO_NEXT = "to next"
    PAST_LAST = "past last event"
    TO_FIRST = "to first"
    TO_LAST = "to last"


@dataclass(frozen=True, slots=True)
class SkipStrategy:
    """`stage`: the stage whose first or last event to skip to. `fails_on_miss`: whether a match without one fails."""

    skip: Skip = Skip.NO_SKIP
    stage: str = ""
    fails_on_miss: bool = False

    def kept(self, partials: Sequence[Partial], path: Sequence[tuple[str, int]], memory: Memory) -> list[Partial]:
        """Return the partial matches that survive a match with this path; the others are released."""
        first_kept = self._first_kept(path)
        if first_kept is None:
            return list(partials)
        remaining = []
        for partial in partials:
            if partial.first >= first_kept:
                remaining.append(partial)
            else:
                memory.release(partial.link)
        return remaining

    def _first_kept(self, path: Sequence[tuple[str, int]]) -> int | None:
        """Return the lowest number of a first event that survives; None if all partial matches do."""
        if self.skip is Skip.NO_SKIP:
            return None
        if self.skip is Skip.TO_NEXT:
            return path[0][1] + 1
        if self.skip is Skip.PAST_LAST:
            return path[-1][1] + 1
        numbers = [number for stage, number in path if stage == self.stage]
        if not numbers:
            if self.fails_on_miss:
                raise SkipError(f"Could not skip to {self.stage}: the match has no event of this stage.")
            return None
        target = numbers[0 if self.skip is Skip.TO_FIRST else -1]
        if self.fails_on_miss and target == path[0][1]:
            raise SkipError("Could not skip to first element of a match.")
        return target


def joined(queue: list[Partial], matches: list[Partial]) -> list[Partial]:
    """Return a queue with added matches that completed together, in the order of their own queue as in Flink."""
    together: list[Partial] = []
    for match in matches:
        _push(together, match)
    merged = list(queue)
    for match in together:
        _push(merged, match)
    return merged


def ordered(matches: list[Partial]) -> list[Partial]:
    """Return matches that completed together, in output order."""
    queue = joined([], matches)
    return [pop(queue) for _ in matches]


def _push(queue: list[Partial], match: Partial) -> None:
    """Add a match, moving it up until its parent began no later."""
    queue.append(match)
    index = len(queue) - 1
    while index and queue[(index - 1) // 2].first > match.first:
        queue[index] = queue[(index - 1) // 2]
        index = (index - 1) // 2
    queue[index] = match


def pop(queue: list[Partial]) -> Partial:
    """Remove and return the first match; the last item takes its place and sinks."""
    first, last = queue[0], queue.pop()
    if queue:
        _sink(queue, 0, last)
    return first


def restore(queue: list[Partial]) -> None:
    """Restore the heap after items were removed from the middle."""
    for index in reversed(range(len(queue) // 2)):
        _sink(queue, index, queue[index])


def _sink(queue: list[Partial], index: int, match: Partial) -> None:
    while (child := 2 * index + 1) < len(queue):
        if child + 1 < len(queue) and queue[child].first > queue[child + 1].first:
            child += 1
        if match.first <= queue[child].first:
            break
        queue[index] = queue[child]
        index = child
    queue[index] = match


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
                memory.keep_waiting(joined(memory.waiting, complete))
                self._send(memory, result)
            return
        # Up to two are already in order.
        for match in complete if len(complete) < 3 else ordered(complete):
            result.matches.append(memory.events(match.link))
            memory.release(match.link)

    def _send(self, memory: Memory, result: Found) -> None:
        """Output the complete matches that no partial match can precede any more, and skip accordingly."""
        waiting, partials, has_sent = list(memory.waiting), memory.partials, False
        while waiting and (not partials or waiting[0].first <= partials[0].first):
            match, has_sent = pop(waiting), True
            path = memory.path(match.link)
            result.matches.append(memory.events(match.link))
            remaining = self.strategy.kept(waiting, path, memory)
            if len(remaining) < len(waiting):
                waiting = remaining
                restore(waiting)
            partials = self.strategy.kept(partials, path, memory)
            memory.release(match.link)
        if has_sent:
            memory.keep_waiting(waiting)
            memory.keep_partials(partials)
