"""All ways to give a match its events: for each first event, every selection that the pattern's words allow.

A run is a beginning of a match: the events that it has taken, and the stage for whose event it waits. It ends with an
event that may not lie there, by taking the next one, or when its time is over. Nothing here knows other matches: that
an event belongs to one match takes it from no other. That is the skip strategy's business (see `answers.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tests.cep.oracle.choices import NOTHING, Between, Choice, Greed, first_choices
from tests.cep.oracle.specifications import Contiguity, Event, Specification

#: (time, event), in order of time
Events: TypeAlias = Sequence[tuple[int, Event]]
#: Of each event since the first: how many stages were passed over to get to its stage, and whether it was only passed
#: by. Flink hands out matches with the same first event that are complete at the same moment in this order.
Trace: TypeAlias = tuple[tuple[int, int], ...]
NEVER: Final = 1 << 60


@dataclass(frozen=True)
class Taking:
    """An event taken by a stage."""

    name: str
    index: int


@dataclass(frozen=True)
class Full:
    """A match. `at`: the index of the event that completes it; or `at_ms`, the time that does."""

    taken: tuple[Taking, ...]
    trace: Trace
    at: int | None
    at_ms: int | None = None

    @property
    def first(self) -> int:
        return self.taken[0].index


@dataclass(frozen=True)
class Partial:
    """What lives from the event `taken[-1]` on, until event `until` ends it, or the time `until_ms`."""

    taken: tuple[Taking, ...]
    until: int
    until_ms: int
    #: a match when its time is over, and no time-out
    is_pending: bool

    @property
    def first(self) -> int:
        return self.taken[0].index

    @property
    def since(self) -> int:
        return self.taken[-1].index


Found: TypeAlias = Full | Partial


def runs(specification: Specification, events: Events) -> Iterator[Found]:
    """Everything that the events give, as if no match ever took another's place."""
    for first in range(len(events)):
        yield from _Search(specification, events, first).found()


class _Search:
    """What begins with one event."""

    def __init__(self, specification: Specification, events: Events, first: int) -> None:
        self._specification = specification
        self._first = first
        window_ms = specification.window_ms
        self._end_ms = NEVER if window_ms is None else events[first][0] + window_ms
        # The window's right border is open.
        self._events = [one for one in events if one[0] < self._end_ms]

    def found(self) -> Iterator[Found]:
        for rank, choice in enumerate(first_choices(self._specification)):
            if choice.stage is not None and self._takes(choice, self._first, (), choice.between):
                yield from self._after(choice, (Taking(choice.stage.name, self._first),), ((rank, 0),))

    def _after(self, choice: Choice, taken: tuple[Taking, ...], trace: Trace) -> Iterator[Found]:
        """What comes of a beginning whose last event was taken by that choice."""
        last = taken[-1].index
        for rank, following in enumerate(choice.then(NOTHING)):
            if following.stage is None:
                yield from self._ended(following.between, taken, trace)
                continue
            end_ms = self._end_ms
            if following.stage.window_ms is not None:
                end_ms = min(end_ms, self._events[last][0] + following.stage.window_ms)
            passed: Trace = ()
            until = NEVER
            for index in range(last + 1, len(self._events)):
                if self._events[index][0] >= end_ms:
                    break
                between = following.between
                if self._takes(following, index, taken, between):
                    assert following.stage is not None
                    more = (*taken, Taking(following.stage.name, index))
                    yield from self._after(following, more, (*trace, *passed, (rank, 0)))
                if not self._passes(following, index, taken, between):
                    until = index
                    break
                passed = (*passed, (rank, 1))
            yield Partial(taken, until, end_ms, False)

    def _ended(self, between: Between, taken: tuple[Taking, ...], trace: Trace) -> Iterator[Found]:
        """The match is complete, or waits for what a last NOT says."""
        last = taken[-1].index
        events = self._group_events(taken)
        negative = between.last
        if negative is None:
            event = self._events[last][1]
            before = self._group_events(taken[:-1])
            # What stands before stages that need not come is asked of the last event itself.
            greed = [one for one in between.first_greed if one.until is None or not one.until.holds(event, before)]
            asked = [*(one.condition for one in greed), *between.not_next]
            if not any(condition.holds(event, before) for condition in asked):
                yield Full(taken, trace, last)
        elif negative.is_next:
            following = last + 1
            comes = following < len(self._events)
            if comes and not negative.condition.holds(self._events[following][1], events):
                yield Full(taken, (*trace, (0, 1)), following)
            yield Partial(taken, following if comes else NEVER, self._end_ms, False)
        else:
            window_ms = self._specification.not_window_ms
            end_ms = min(self._end_ms, NEVER if window_ms is None else self._events[last][0] + window_ms)
            until = NEVER
            passed: Trace = ()
            for index in range(last + 1, len(self._events)):
                if self._events[index][0] >= end_ms:
                    break
                if negative.condition.holds(self._events[index][1], events):
                    until = index
                    break
                passed = (*passed, (0, 1))
            yield Partial(taken, until, end_ms, True)
            if until == NEVER:
                yield Full(taken, (*trace, *passed), None, end_ms)

    def _takes(self, choice: Choice, index: int, taken: tuple[Taking, ...], between: Between) -> bool:
        stage, event, events = choice.stage, self._events[index][1], self._group_events(taken)
        assert stage is not None
        assert stage.condition is not None
        if not stage.condition.holds(event, events) or any(one.holds(event, events) for one in choice.until_taken):
            return False
        is_first = not taken or index == taken[-1].index + 1
        return self._lets(between, event, events, is_first, self._greed(between, index, taken))

    def _passes(self, choice: Choice, index: int, taken: tuple[Taking, ...], between: Between) -> bool:
        stage, event, events = choice.stage, self._events[index][1], self._group_events(taken)
        assert stage is not None
        if choice.contiguity is Contiguity.STRICT or any(one.holds(event, events) for one in choice.until):
            return False
        if choice.contiguity is Contiguity.RELAXED:
            assert stage.condition is not None
            if stage.condition.holds(event, events):
                return False
        is_first = index == taken[-1].index + 1
        return self._lets(between, event, events, is_first, self._greed(between, index, taken))

    def _greed(self, between: Between, index: int, taken: tuple[Taking, ...]) -> tuple[Greed, ...]:
        """The greed that this event has to mind."""
        events = self._group_events(taken)
        since = taken[-1].index + 1 if taken else index
        first = self._events[since][1]
        greed = between.greed + (between.first_greed if index == since else ())
        return tuple(one for one in greed if one.until is None or not one.until.holds(first, events))

    def _lets(
        self, between: Between, event: Event, events: dict[str, list[Event]], is_first: bool, greed: tuple[Greed, ...]
    ) -> bool:
        """Whether nothing that was passed over stands against the event."""
        against = [*between.forbidden, *(one.condition for one in greed)]
        if is_first:
            against += between.not_next
        return not any(condition.holds(event, events) for condition in against)

    def _group_events(self, taken: tuple[Taking, ...]) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = {}
        for one in taken:
            found.setdefault(one.name, []).append(self._events[one.index][1])
        return found
