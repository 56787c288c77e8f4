"""What an operator gives for a pattern and events: matches and time-outs moment by moment, by the skip strategy.

A moment is the coming of an event, which brings its time with it, or of a watermark. At each, first all ends whose time
is over, then the matches that are complete leave.
With a skip strategy they leave in the order of their first events, so that one waits while a run that began earlier
lives, and each that leaves ends every run and every waiting match that began where the strategy says. Of several that
may leave and have one first event, any may: Flink keeps them in a heap, whose order for equals is its own. The oracle
lets that one leave that was told next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tests.cep.oracle.runs import NEVER, Events, Full, Partial, Taking, runs
from tests.cep.oracle.specifications import Skip, Specification

#: A match as it is shown: (stage, numbers of its events), in the order in which the stages got their first event.
Shown: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]


class Match(NamedTuple):
    """One match. `at_ms`: the time of the event that completed it; None where it had to wait."""

    shown: Shown
    at_ms: int | None


class TimeOut(NamedTuple):
    """A partial match whose time was over."""

    shown: Shown
    at_ms: int


@dataclass
class Answer:
    """Matches in their order, a list a moment; time-outs.

    Time-outs are a set: how many states of an automaton stand for the same partial match is no part of the semantics.
    Without a skip strategy, the order of the matches of a moment is none, either.
    """

    moments: list[list[Match]] = field(default_factory=list)
    time_outs: set[TimeOut] = field(default_factory=set)

    @property
    def matches(self) -> list[Match]:
        """All of them."""
        return [match for moment in self.moments for match in moment]


def answer(specification: Specification, events: Events, told: Sequence[Shown] = ()) -> Answer:
    """What comes of the events of one key, which are in order of time; in the end all time is over.

    `told`: the matches that were told, in their order if that is known, for where any may leave; else the one that took
    events and stayed in loops as long as it could.
    """
    return _Timeline(specification, events, told).answer()


class _Timeline:
    def __init__(self, specification: Specification, events: Events, told: Sequence[Shown]) -> None:
        self._told = told
        self._count = 0
        self._skip = specification.skip
        self._events = events
        found = list(runs(specification, events))
        self._full = sorted((one for one in found if isinstance(one, Full)), key=lambda one: (one.first, one.trace))
        self._partial = [one for one in found if isinstance(one, Partial)]
        #: first events whose runs were ended, with the index of the last event that had come by then
        self._ended: set[int] = set()
        self._waiting: list[Full] = []
        self._answer = Answer()

    def answer(self) -> Answer:
        times = sorted({one.until_ms for one in self._partial if one.until_ms != NEVER})
        for index, (time, _) in enumerate(self._events):
            self._pass_time(times, time, index - 1)
            self._leave([one for one in self._full if one.at == index], index, -1)
        self._pass_time(times, NEVER - 1, len(self._events) - 1)
        return self._answer

    def _pass_time(self, times: list[int], to_ms: int, last: int) -> None:
        """Time comes to `to_ms`; the last event that came is that of index `last`."""
        while times and times[0] <= to_ms:
            now = times.pop(0)
            for one in self._partial:
                is_over = one.until_ms == now and one.until == NEVER and not one.is_pending
                if is_over and self._lives(one, last, now - 1):
                    self._answer.time_outs.add(TimeOut(self._shown(one.taken), now))
            self._leave([one for one in self._full if one.at_ms == now and one.taken[-1].index <= last], last, now)

    def _lives(self, one: Partial, last: int, now_ms: int) -> bool:
        """Whether it lives when the event of index `last` has come and time is past `now_ms`."""
        return one.first not in self._ended and one.since <= last < one.until and one.until_ms > now_ms

    def _leave(self, complete: Iterable[Full], last: int, now_ms: int) -> None:
        """Hand out what may leave now."""
        complete = [one for one in complete if one.first not in self._ended]
        moment: list[Match] = []
        if self._skip.kind == "no_skip":
            moment += map(self._match, complete)
        else:
            self._waiting = sorted([*self._waiting, *complete], key=lambda one: one.first)
            is_event = now_ms < 0
            now_ms = max(now_ms, self._events[last][0])
            while self._waiting:
                match = self._next()
                if any(one.first < match.first and self._lives(one, last, now_ms) for one in self._partial):
                    break
                self._waiting.remove(match)
                self._count += 1
                moment.append(self._match(match, is_prompt=is_event and match.at == last))
                self._ended.update(first for first in _ended_by(self._skip, match) if first <= last)
                self._waiting = [one for one in self._waiting if one.first not in self._ended]
        if moment:
            self._answer.moments.append(moment)

    def _next(self) -> Full:
        """The waiting match that leaves first."""
        equals = [one for one in self._waiting if one.first == self._waiting[0].first]
        expected = self._told[self._count : self._count + 1]
        for told in (expected, self._told):
            if (found := next((one for one in equals if self._shown(one.taken) in told), None)) is not None:
                return found
        return equals[0]

    def _match(self, one: Full, is_prompt: bool = True) -> Match:
        is_timed = one.at is not None and is_prompt
        return Match(self._shown(one.taken), self._events[one.at][0] if is_timed and one.at is not None else None)

    def _shown(self, taken: tuple[Taking, ...]) -> Shown:
        numbers: dict[str, list[int]] = {}
        for one in taken:
            numbers.setdefault(one.name, []).append(self._events[one.index][1].number)
        return tuple((name, tuple(found)) for name, found in numbers.items())


def _ended_by(skip: Skip, match: Full) -> Iterator[int]:
    """The first events whose runs the match ends."""
    if skip.kind == "skip_to_next":
        yield from range(match.first + 1)
    elif skip.kind == "skip_past_last_event":
        yield from range(match.taken[-1].index + 1)
    else:
        indexes = [one.index for one in match.taken if one.name == skip.stage]
        if indexes:
            yield from range(indexes[0 if skip.kind == "skip_to_first" else -1])
