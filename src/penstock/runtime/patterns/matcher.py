"""The matcher of a pattern: skip strategies, the order of matches, and the run of the automaton.

`SkipStrategy` says which partial matches a match discards, and the order of output. With a skip strategy, a match waits
while an earlier partial match exists, because that one would come first and might skip it. Among complete matches, the
one that began first is output first; with the same beginning, the one that completed first.

**The queue of complete matches** orders them by their first event, and with the same first event as in Flink's queue.
Among matches with the same first event, the first may skip the others, so their order decides which ones exist. Flink
keeps them in Java's `PriorityQueue`, a binary heap in a list, which orders equal items in its own way. To produce the
same matches, this queue moves its items in the same way.

`Matcher` runs the events of a key through an automaton and tells a `Listener` the matches. An event is offered to every
partial match, in the order in which they began, and then to the start, which always exists. A partial match follows
each step that its guards allow, so it may become several, or end. A step to the final state is a match. A partial match
that could reach the final state without another event is a match and also continues. If a step leads to a stop, the
partial match is discarded, except for matches that this event completes.

`run` looks up where an event leads in the tables of `moves`. Nearly all moves are one of three: the partial match stays
as it is, ends, or goes on to one state with the event. `run` makes these itself, on the plain lists of the memory; a
partial match that goes on hands its reference to its last link over to the new one, so no reference is counted. All
other moves, and questions to conditions that look at the partial match, take the long way. An event that changes
nothing costs a look at each partial match.

`advance` comes before each event, and whenever time advances without one. It removes partial matches that are older
than `within_ms` or have waited too long for their next event; pending ones become matches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.base.errors import OperationError
from penstock.runtime.patterns.automaton import FINAL, Question, Ways, build_automaton
from penstock.runtime.patterns.memory import (
    EVENT,
    LINK_REFERENCES,
    NEXT,
    NO_LINK,
    PARTIALS,
    WAITING,
    Memory,
    Partial,
    Stored,
)
from penstock.runtime.patterns.moves import IDLE, UNKNOWN, Holds, Idleness, Moves
from penstock.runtime.patterns.pattern import Pattern

_STATE, _LINK, _FIRST, _FIRST_MS, _LAST_MS = range(5)
#: an event with its time (ms) and its symbol
TimedEvent: TypeAlias = tuple[int, Any, Any]
#: later than any time, even with a window's length subtracted
_NEVER: Final = 1 << 79


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

    def kept(self, partials: Sequence[Stored], path: Sequence[tuple[str, int]], memory: Memory) -> list[Stored]:
        """Return the partial matches that survive a match with this path; the others are released."""
        first_kept = self._first_kept(path)
        if first_kept is None:
            return list(partials)
        remaining = []
        for partial in partials:
            if partial[_FIRST] >= first_kept:
                remaining.append(partial)
            else:
                memory.release(partial[_LINK])
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


def joined(queue: list[Stored], matches: list[Stored]) -> list[Stored]:
    """Return a queue with added matches that completed together, in the order of their own queue as in Flink."""
    together: list[Stored] = []
    for match in matches:
        _push(together, match)
    merged = list(queue)
    for match in together:
        _push(merged, match)
    return merged


def ordered(matches: list[Stored]) -> list[Stored]:
    """Return matches that completed together, in output order."""
    queue = joined([], matches)
    return [pop(queue) for _ in matches]


def _push(queue: list[Stored], match: Stored) -> None:
    """Add a match, moving it up until its parent began no later."""
    queue.append(match)
    index = len(queue) - 1
    while index and queue[(index - 1) // 2][_FIRST] > match[_FIRST]:
        queue[index] = queue[(index - 1) // 2]
        index = (index - 1) // 2
    queue[index] = match


def pop(queue: list[Stored]) -> Stored:
    """Remove and return the first match; the last item takes its place and sinks."""
    first, last = queue[0], queue.pop()
    if queue:
        _sink(queue, 0, last)
    return first


def restore(queue: list[Stored]) -> None:
    """Restore the heap after items were removed from the middle."""
    for index in reversed(range(len(queue) // 2)):
        _sink(queue, index, queue[index])


def _sink(queue: list[Stored], index: int, match: Stored) -> None:
    while (child := 2 * index + 1) < len(queue):
        if child + 1 < len(queue) and queue[child][_FIRST] > queue[child + 1][_FIRST]:
            child += 1
        if match[_FIRST] <= queue[child][_FIRST]:
            break
        queue[index] = queue[child]
        index = child
    queue[index] = match


class TimedOut(NamedTuple):
    """A partial match that timed out, and when (ms)."""

    events: dict[str, list[Any]]
    time_ms: int


@dataclass(slots=True)
class Found:
    """The output: matches as events by stage, and partial matches that timed out."""

    matches: list[dict[str, list[Any]]] = field(default_factory=list)
    timed_out: list[TimedOut] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A partial match that receives an event. `link`: its last link, `NO_LINK` at the start."""

    link: int
    conditions: frozenset[int]


@dataclass(frozen=True, slots=True)
class Listener:
    """What `Matcher.run` calls, always with the memory of the key up to date.

    Attributes:
        expire: advances time to that of the next event, by which a partial match has timed out.
        match: takes the matches that an event of this time completes.
        overflow: limits the partial matches of the key, of which there are too many after an event.
        ask: returns what evaluates conditions for an event; may add answers that all partial matches share.
    """

    expire: Callable[[Memory, int], None]
    match: Callable[[list[dict[str, list[Any]]], int], None]
    overflow: Callable[[Memory, Any, int], None]
    ask: Callable[[Memory, Any, int, dict[int, bool]], Holds]


class Matcher:
    """Finds a pattern. It has no state of its own: each call receives the memory of a key.

    Args:
        pattern: the pattern to find.
        strategy: which partial matches a match discards.
        simple: the conditions whose answers are in the symbols of events, see `Moves`.
        twins: conditions that are the same as one of these, with that one.
        partly: those of them that a symbol answers in part.
        partials_max: how many partial matches a key may have; None for any number.
        tells_timed_out: whether the events of partial matches that time out matter.
    """

    def __init__(
        self,
        pattern: Pattern,
        strategy: SkipStrategy = SkipStrategy(),
        *,
        simple: Sequence[int] = (),
        twins: Mapping[int, int] | None = None,
        partly: Collection[int] = (),
        partials_max: int | None = None,
        tells_timed_out: bool = True,
    ) -> None:
        self.pattern = pattern
        self.strategy = strategy
        self.automaton = build_automaton(pattern)
        self.moves = Moves(self.automaton, simple, twins, partly)
        self._conditions = self.automaton.conditions()
        self._windows = self.automaton.windows
        self.has_windows = any(window is not None for window in self._windows)
        self._within = 2 * _NEVER if pattern.within_ms is None else pattern.within_ms
        self._partials_max = partials_max
        self._tells_timed_out = tells_timed_out
        self._start = self.automaton.start
        #: whether partial matches that time out only go
        self._drops_in_silence = not (tells_timed_out or self.has_windows or self.automaton.pending)

    @property
    def minds_time(self) -> bool:
        """Whether the passing of time completes or releases matches."""
        waits = self.strategy.skip is not Skip.NO_SKIP and (self.pattern.within_ms is not None or self.has_windows)
        return waits or bool(self.automaton.pending)

    def idleness(self) -> Idleness:
        """Return what an idle event does, as far as less may be done for it than for other events.

        If time completes matches, the time of an idle event matters, unless timeouts depend only on when a match began.
        Its step is not made with that of the next event if a window may end in between, if matches wait for the end of
        partial matches, or if these are counted.
        """
        idleness = self.moves.idleness()
        if idleness is Idleness.NOTHING and not (self.minds_time and self.has_windows):
            return idleness
        waits = self.strategy.skip is not Skip.NO_SKIP
        is_step_alone = self.minds_time or self.has_windows or waits or self._partials_max is not None
        if idleness is Idleness.ONCE and self.moves.knows_all and not is_step_alone:
            return idleness
        return Idleness.ALWAYS

    @property
    def may_pass_idle(self) -> bool:
        """Whether idle events that do anything `Idleness.ONCE` may be passed over, see `moves`.

        After an idle event, a partial match may be several, which time out one by one: this matters if anybody is told.
        """
        tells_time = self._tells_timed_out and self.pattern.within_ms is not None
        return self.idleness() is Idleness.ONCE and not tells_time and self.moves.enters_unsettled_by_taking()

    def candidates(self, memory: Memory) -> list[Candidate]:
        """Return the partial matches that an event is offered to, and the start."""
        candidates = [Candidate(partial[_LINK], self._conditions[partial[_STATE]]) for partial in memory.data[PARTIALS]]
        return [*candidates, Candidate(NO_LINK, self._conditions[self._start])]

    # --- time --------------------------------------------------------------------------------------------------------

    def deadline_ms(self, memory: Memory) -> int | None:
        """Return when the first partial match will time out; None if none ever will."""
        deadline = self._deadline(memory.data[PARTIALS])
        return None if deadline >= _NEVER else deadline

    def _deadline(self, partials: Sequence[Stored]) -> int:
        if not partials:
            return _NEVER
        if self.has_windows:
            return min(map(self._due_ms, partials))
        deadline: int = partials[0][_FIRST_MS] + self._within
        return deadline

    def _due_ms(self, partial: Stored) -> int:
        """Return when a partial match will time out."""
        since_first: int = partial[_FIRST_MS] + self._within
        window = self._windows[partial[_STATE]]
        return since_first if window is None else min(since_first, _last_ms(partial) + window)

    def advance(self, memory: Memory, time_ms: int) -> Found:
        """Advance time to this point: remove timed-out partial matches, and return the matches that waited for it.

        Deadlines are handled in order, so the result does not depend on the times of these calls.
        """
        result, data = Found(), memory.data
        if self._drops_in_silence and not data[WAITING]:
            self._drop_those_due(memory, time_ms)
            return result
        deadline = self._deadline(data[PARTIALS])
        if data[WAITING] and deadline > time_ms:
            self._send(memory, result.matches)
        while deadline <= time_ms:
            self._end_those_due(memory, deadline, result)
            deadline = self._deadline(data[PARTIALS])
        return result

    def _drop_those_due(self, memory: Memory, time_ms: int) -> None:
        """Release the partial matches that time out, which are the first ones."""
        partials, since_ms, due = memory.data[PARTIALS], time_ms - self._within, 0
        for partial in partials:
            if partial[_FIRST_MS] > since_ms:
                break
            memory.release(partial[_LINK])
            due += 1
        memory.data[PARTIALS] = partials[due:]

    def _end_those_due(self, memory: Memory, time_ms: int, result: Found) -> None:
        living: list[Stored] = []
        complete: list[Stored] = []
        pending, due_ms = self.automaton.pending, self._due_ms
        for partial in memory.data[PARTIALS]:
            if due_ms(partial) > time_ms:
                living.append(partial)
            elif partial[_STATE] in pending:
                complete.append(partial)
            else:
                if self._tells_timed_out:
                    late_ms = self._late_ms(partial, time_ms)
                    result.timed_out.append(TimedOut(memory.events(partial[_LINK]), late_ms))
                memory.release(partial[_LINK])
        memory.data[PARTIALS] = living
        self._complete(memory, complete, result.matches)

    def _late_ms(self, partial: Stored, time_ms: int) -> int:
        """Return when a partial match timed out: by its last event, or by its first one."""
        window = self._windows[partial[_STATE]]
        if window is not None and time_ms - _last_ms(partial) >= window:
            return _last_ms(partial) + window
        late_ms: int = partial[_FIRST_MS] + self._within
        return late_ms

    # --- events ------------------------------------------------------------------------------------------------------

    def run(self, sequences: Iterable[tuple[Memory, Iterable[TimedEvent]]], listener: Listener) -> None:
        """Process events that follow all earlier ones of their keys. `sequences`: the memory of a key, and its events.

        Raises `SkipError` if a match cannot skip as configured.
        """
        table, most, is_plain = self.moves, self._partials_max, not self.has_windows
        within, skips = self._within, self.strategy.skip is not Skip.NO_SKIP
        for memory, events in sequences:
            data, links, counts, elsewhere = memory.data, memory.links, memory.counts, memory.elsewhere
            partials, number = data[PARTIALS], data[NEXT]
            link = next(reversed(links), NO_LINK) + 1
            if not partials:
                deadline = before = _NEVER
            else:
                deadline = before = partials[0][3] + within if is_plain else self._deadline(partials)
            is_idle = False
            for time_ms, event, symbol in events:
                if symbol == IDLE:
                    is_idle = deadline > time_ms
                    if is_idle:
                        continue
                    symbol = 0
                elif is_idle:
                    is_idle = False
                    if deadline > time_ms:
                        symbol += IDLE
                    else:
                        self.settle(memory)
                if deadline <= time_ms:
                    listener.expire(memory, time_ms)
                    partials = data[PARTIALS]
                    deadline = self._deadline(partials)
                moves, begin, known, moves_any = table[symbol]
                if begin is None:
                    for partial in partials if moves_any else ():
                        if moves[partial[0]] is not None:
                            break
                    else:
                        continue
                first_link = link
                living: list[Stored] = [] if moves_any else partials
                complete: list[Stored] = []
                holds: Holds | None = None
                for partial in partials if moves_any else ():
                    move = moves[partial[0]]
                    if move is None:
                        living.append(partial)
                    elif move.__class__ is tuple:
                        if not move:
                            memory.release(partial[1])
                            continue
                        target, stage = move
                        links[link] = [partial[1], stage, number, 1]
                        moved = (target, link, partial[2], partial[3], time_ms)
                        link += 1
                        if target:
                            living.append(moved)
                        else:
                            complete.append(moved)
                    else:
                        if move.__class__ is Question:
                            if holds is None:
                                known = dict(known)
                                holds = listener.ask(memory, event, time_ms, known)
                            move = table.decide(partial[0], move, partial[1], known, holds)
                        if move.stays:
                            living.append(partial)
                            continue
                        link = self._go(memory, partial, move, number, link, time_ms, living, complete)
                        memory.release(partial[1])
                if begin is not None:
                    if begin.__class__ is tuple:
                        target, stage = begin
                        links[link] = [NO_LINK, stage, number, 1]
                        (living if target else complete).append((target, link, number, time_ms, time_ms))
                        link += 1
                    else:
                        if begin.__class__ is Question:
                            if holds is None:
                                known = dict(known)
                                holds = listener.ask(memory, event, time_ms, known)
                            begin = table.decide(self._start, begin, NO_LINK, known, holds)
                        first = (self._start, NO_LINK, number, time_ms, None)
                        link = self._go(memory, first, begin, number, link, time_ms, living, complete)
                if link != first_link:
                    if elsewhere is None:
                        counts[number] = [event, time_ms, link - first_link]
                    else:
                        counts[number] = link - first_link
                        elsewhere[number] = event
                    number += 1
                data[PARTIALS] = partials = living
                if complete or (skips and data[WAITING]):
                    matches: list[dict[str, list[Any]]] = []
                    self._complete(memory, complete, matches)
                    if matches:
                        listener.match(matches, time_ms)
                    partials = data[PARTIALS]
                if most is not None and len(partials) + len(data[WAITING]) > most:
                    listener.overflow(memory, event, time_ms)
                    partials = data[PARTIALS]
                deadline = partials[0][3] + within if is_plain and partials else self._deadline(partials)
            data[NEXT] = number
            if is_idle:
                self.settle(memory)
            memory.deadline_ms = deadline if deadline < before and deadline < _NEVER else None

    def settle(self, memory: Memory, is_idle: bool = True) -> None:
        """Make the step of idle events, which take nothing and complete nothing.

        `is_idle`: whether the last event was idle. If not, partial matches that have just taken it make no step.
        """
        data, moves, living = memory.data, self.moves[0][0], []
        last = _NEVER if is_idle else data[NEXT] - 1
        for partial in data[PARTIALS]:
            move = moves[partial[_STATE]]
            if move is None or memory.links[partial[_LINK]][EVENT] == last:
                living.append(partial)
                continue
            if move:
                self._go(memory, partial, move, NO_LINK, NO_LINK, 0, living, [])
            memory.release(partial[_LINK])
        data[PARTIALS] = living

    def _go(
        self,
        memory: Memory,
        partial: Stored,
        ways: Ways,
        number: int,
        link: int,
        time_ms: int,
        living: list[Stored],
        complete: list[Stored],
    ) -> int:
        """Apply the transitions of a partial match, or of the start; `link` is the next one, and the result as well."""
        before, first, first_ms = partial[_LINK], partial[_FIRST], partial[_FIRST_MS]
        links = memory.links
        for way in ways.ways:
            if way.stage is None:
                if before != NO_LINK:
                    links[before][LINK_REFERENCES] += 1
                    passed = (way.target, before, first, first_ms, _last_or_none(partial))
                    (complete if way.target == FINAL else living).append(passed)
                continue
            if before != NO_LINK:
                links[before][LINK_REFERENCES] += 1
            links[link] = [before, way.stage, number, 1 + way.ends]
            (complete if way.target == FINAL else living).append((way.target, link, first, first_ms, time_ms))
            if way.ends:
                complete.append((FINAL, link, first, first_ms, time_ms))
            link += 1
        return link

    def process(
        self, memory: Memory, event: Any, time_ms: int, holds: Holds, known: dict[int, bool] | None = None
    ) -> Found:
        """Process one event without a symbol; time has advanced to it. See `run`.

        Args:
            memory: the memory of the key.
            event: the event.
            time_ms: its time.
            holds: evaluates conditions.
            known: answers that are the same for all partial matches; `holds` may add more of them.
        """
        found = Found()

        def take(matches: list[dict[str, list[Any]]], _: int) -> None:
            found.matches.extend(matches)

        def share(_: Memory, __: Any, ___: int, answers: dict[int, bool]) -> Holds:
            answers.update(known or {})
            return holds

        self.run([(memory, [(time_ms, event, UNKNOWN)])], Listener(_refuse, take, _refuse, share))
        return found

    def find_transitions(self, memory: Memory, holds: Holds, known: dict[int, bool]) -> list[tuple[Partial, Ways]]:
        """Return where the current event would lead each partial match; for tracing a pattern."""
        roots, decide = self.moves.trees.roots, self.moves.decide
        return [
            (partial, decide(partial.state, roots[partial.state], partial.link, known, holds))
            for partial in memory.partials
        ]

    def drop_oldest(self, memory: Memory, most: int) -> tuple[int, Found]:
        """Limit a key's partial matches to this number by dropping the oldest ones.

        Returns how many were dropped, and the matches that waited only for them.
        """
        result, dropped, data = Found(), 0, memory.data
        while data[PARTIALS] and memory.size > most:
            oldest, *data[PARTIALS] = data[PARTIALS]
            memory.release(oldest[_LINK])
            dropped += 1
            self._send(memory, result.matches)
        return dropped, result

    # --- matches -----------------------------------------------------------------------------------------------------

    def _complete(self, memory: Memory, complete: list[Stored], matches: list[dict[str, list[Any]]]) -> None:
        """Output complete matches, or let them wait for partial matches that began earlier."""
        if self.strategy.skip is not Skip.NO_SKIP:
            data = memory.data
            if complete or data[WAITING]:
                data[WAITING] = joined(data[WAITING], complete)
                self._send(memory, matches)
            return
        for match in complete if _is_ordered(complete) else ordered(complete):
            matches.append(memory.take_out(match[_LINK]))

    def _send(self, memory: Memory, matches: list[dict[str, list[Any]]]) -> None:
        """Output the complete matches that no partial match can precede any more, and skip accordingly."""
        data, strategy = memory.data, self.strategy
        waiting, partials = list(data[WAITING]), data[PARTIALS]
        while waiting and (not partials or waiting[0][_FIRST] <= partials[0][_FIRST]):
            match = pop(waiting)
            path = memory.path(match[_LINK])
            matches.append(memory.read(path))
            remaining = strategy.kept(waiting, path, memory)
            if len(remaining) < len(waiting):
                waiting = remaining
                restore(waiting)
            partials = strategy.kept(partials, path, memory)
            memory.release(match[_LINK])
        data[WAITING], data[PARTIALS] = waiting, partials


def _refuse(*_: Any) -> None:
    raise AssertionError("time has advanced to a single event, which has no limit")


def _is_ordered(matches: Sequence[Stored]) -> bool:
    """Return whether the queue keeps this order: that of two matches, or of matches with different first events."""
    return len(matches) < 3 or all(match[_FIRST] < other[_FIRST] for match, other in pairwise(matches))


def _last_ms(partial: Stored) -> int:
    """Return the time of the last event; of the first one if only that was stored."""
    last_ms = _last_or_none(partial)
    result: int = partial[_FIRST_MS] if last_ms is None else last_ms
    return result


def _last_or_none(partial: Stored) -> int | None:
    return partial[_LAST_MS] if len(partial) > _LAST_MS else None
