"""What a matcher remembers of one key: plain lists and dictionaries, so that it is state that can be stored.

`[number of the next event, partial matches, complete matches that wait, links, events]`. Partial matches are
(state, link, number of the first event, its time), in the order of their first events. Links are
[link before or -1, stage, event, references]; events are [event, its time, references].
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

NO_LINK: Final = -1
_NEXT, _PARTIALS, _WAITING, _LINKS, _EVENTS = range(5)
_BEFORE, _STAGE, _EVENT, _LINK_REFERENCES = range(4)
_FIRST_MS: Final = 3
_VALUE, _TIME, _EVENT_REFERENCES = range(3)


class Partial(NamedTuple):
    """Events taken so far, and where they have led. `link`: the last one; `first`: the number of the first event."""

    state: int
    link: int
    first: int
    first_ms: int


class Memory:
    """A view of what is held for one key, see the module's text."""

    __slots__ = ("_events", "_held", "_links", "_partials")

    def __init__(self, held: list[Any]) -> None:
        self._held = held
        self._links: dict[int, list[Any]] = held[_LINKS]
        self._events: dict[int, list[Any]] = held[_EVENTS]
        self._partials: list[Partial] | None = None

    @staticmethod
    def empty() -> list[Any]:
        """What is held before the first event."""
        return [0, [], [], {}, {}]

    @property
    def is_empty(self) -> bool:
        """Whether nothing has begun: then the key may be forgotten."""
        return not self._held[_PARTIALS] and not self._held[_WAITING]

    @property
    def partials(self) -> list[Partial]:
        """Partial matches in the order of their first events."""
        if self._partials is None:
            self._partials = [Partial(*one) for one in self._held[_PARTIALS]]
        return self._partials

    def keep_partials(self, partials: list[Partial]) -> None:
        """These are the partial matches from now on."""
        self._partials = partials
        self._held[_PARTIALS] = [tuple(one) for one in partials]

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest partial match began."""
        return self._held[_PARTIALS][0][_FIRST_MS] if self._held[_PARTIALS] else None

    @property
    def waiting(self) -> list[Partial]:
        """Complete matches before which an earlier one may come, in the order of their first events."""
        return [Partial(*one) for one in self._held[_WAITING]]

    def keep_waiting(self, matches: list[Partial]) -> None:
        """These are the ones that wait from now on."""
        self._held[_WAITING] = [tuple(one) for one in matches]

    def next_number(self) -> int:
        """A number for an event that comes."""
        number: int = self._held[_NEXT]
        self._held[_NEXT] = number + 1
        return number

    def add(self, before: int, stage: str, number: int, event: Any, time_ms: int) -> int:
        """A link to an event, to which nobody refers yet."""
        known = self._events.get(number)
        if known is None:
            known = self._events[number] = [event, time_ms, 0]
        known[_EVENT_REFERENCES] += 1
        if before != NO_LINK:
            self.refer(before)
        # Numbers only grow from the first link in the dictionary to the last one, so this one is new.
        link = next(reversed(self._links), NO_LINK) + 1
        self._links[link] = [before, stage, number, 0]
        return link

    def refer(self, link: int) -> None:
        """One more refers to a link."""
        self._links[link][_LINK_REFERENCES] += 1

    def release(self, link: int) -> None:
        """One less refers to a link; what nobody refers to goes."""
        while link != NO_LINK:
            found = self._links[link]
            found[_LINK_REFERENCES] -= 1
            if found[_LINK_REFERENCES] > 0:
                return
            del self._links[link]
            event = self._events[found[_EVENT]]
            event[_EVENT_REFERENCES] -= 1
            if not event[_EVENT_REFERENCES]:
                del self._events[found[_EVENT]]
            link = found[_BEFORE]

    def path(self, link: int) -> list[tuple[str, int]]:
        """The stages and numbers of events up to a link, the first one first."""
        found = []
        while link != NO_LINK:
            before, stage, number, _ = self._links[link]
            found.append((stage, number))
            link = before
        found.reverse()
        return found

    def events(self, link: int) -> dict[str, list[Any]]:
        """The events up to a link, by stages in the order in which they came."""
        found: dict[str, list[Any]] = {}
        for stage, number in self.path(link):
            found.setdefault(stage, []).append(self._events[number][_VALUE])
        return found

    def validate(self) -> None:
        """Raise `AssertionError` where references are counted wrongly."""
        references = [one.link for one in (*self.partials, *self.waiting)]
        befores = [one[_BEFORE] for one in self._links.values() if one[_BEFORE] != NO_LINK]
        for link, held in self._links.items():
            assert held[_LINK_REFERENCES] == (references + befores).count(link) > 0, (link, held)
        for number, event in self._events.items():
            assert event[_EVENT_REFERENCES] == sum(one[_EVENT] == number for one in self._links.values()), number
        firsts = [one.first for one in self.partials]
        assert firsts == sorted(firsts), firsts
