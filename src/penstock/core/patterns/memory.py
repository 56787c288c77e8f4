"""What a matcher remembers of one key: plain lists and dictionaries, so that it is state that can be stored.

`[number of the next event, partial matches, complete matches that wait, links, events]`. Partial matches are
(state, link, number of the first event, its time, time of the last event), in the order of their first events. Links
are [link before or -1, stage, event, references]. An event that nobody takes has no number, and changes nothing.

Events are [event, its time, references], unless they are kept elsewhere (`Elsewhere`): then here are their references
alone, and an event is written once and deleted once, whatever happens to the partial matches that have it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

NO_LINK: Final = -1
_NEXT, _PARTIALS, _WAITING, _LINKS, _EVENTS = range(5)
_BEFORE, _STAGE, _EVENT, _LINK_REFERENCES = range(4)
_VALUE, _TIME, _EVENT_REFERENCES = range(3)


class Partial(NamedTuple):
    """Events taken so far, and where they have led. `link`: the last one; `first`: the number of the first event.

    `last_ms`: the time of the last event; None in what was stored before there was a use for it.
    """

    state: int
    link: int
    first: int
    first_ms: int
    last_ms: int | None = None


class Elsewhere(Protocol):
    """Where events are kept by their numbers, such as map state."""

    def __getitem__(self, number: int, /) -> Any: ...

    def __setitem__(self, number: int, event: Any, /) -> None: ...

    def __delitem__(self, number: int, /) -> None: ...


class Memory:
    """A view of what is held for one key, see the module's text.

    Args:
        held: what is held.
        elsewhere: where the events are; None where they are held here.
        is_lazy: whether partial matches are put down only by `put_down`, as is quicker for many events in a row.
    """

    __slots__ = ("_counts", "_elsewhere", "_held", "_is_lazy", "_links", "_partials", "_waiting")

    def __init__(self, held: list[Any], elsewhere: Elsewhere | None = None, is_lazy: bool = False) -> None:
        self._held = held
        self._is_lazy = is_lazy
        self._links: dict[int, list[Any]] = held[_LINKS]
        self._counts: dict[int, Any] = held[_EVENTS]
        self._elsewhere = elsewhere
        self._partials: list[Partial] | None = None
        self._waiting: list[Partial] | None = None

    @staticmethod
    def empty() -> list[Any]:
        """What is held before the first event."""
        return [0, [], [], {}, {}]

    @property
    def is_empty(self) -> bool:
        """Whether nothing has begun: then the key may be forgotten."""
        partials = self._held[_PARTIALS] if self._partials is None else self._partials
        return not partials and not self._held[_WAITING]

    @property
    def partials(self) -> list[Partial]:
        """Partial matches in the order of their first events."""
        if self._partials is None:
            self._partials = [Partial(*one) for one in self._held[_PARTIALS]]
        return self._partials

    def keep_partials(self, partials: list[Partial]) -> None:
        """These are the partial matches from now on."""
        self._partials = partials
        if not self._is_lazy:
            self.put_down()

    def put_down(self) -> None:
        """Let what is held have the partial matches as they are now."""
        if self._partials is not None:
            self._held[_PARTIALS] = [tuple(one) for one in self._partials]

    @property
    def waiting(self) -> list[Partial]:
        """Complete matches before which an earlier one may come, see `queueing`."""
        if self._waiting is None:
            self._waiting = [Partial(*one) for one in self._held[_WAITING]]
        return self._waiting

    def keep_waiting(self, matches: list[Partial]) -> None:
        """These are the ones that wait from now on."""
        self._waiting = matches
        self._held[_WAITING] = [tuple(one) for one in matches]

    @property
    def number(self) -> int:
        """The number of an event that comes, once it is taken."""
        number: int = self._held[_NEXT]
        return number

    def use_number(self) -> None:
        """The event has been taken: the next one has another number."""
        self._held[_NEXT] += 1

    def add(self, before: int, stage: str, number: int, event: Any, time_ms: int) -> int:
        """A link to an event, to which nobody refers yet."""
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
            self._drop(found[_EVENT])
            link = found[_BEFORE]

    def _drop(self, number: int) -> None:
        """One less refers to an event."""
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
        """An event by its number."""
        return self._counts[number][_VALUE] if self._elsewhere is None else self._elsewhere[number]

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
            found.setdefault(stage, []).append(self.event(number))
        return found

    def events_of(self, link: int, stage: str) -> list[Any]:
        """The events of one stage up to a link, in the order in which they came."""
        numbers = []
        while link != NO_LINK:
            before, name, number, _ = self._links[link]
            if name == stage:
                numbers.append(number)
            link = before
        return [self.event(number) for number in reversed(numbers)]

    def validate(self) -> None:
        """Raise `AssertionError` where references are counted wrongly."""
        references = [one.link for one in (*self.partials, *self.waiting)]
        befores = [one[_BEFORE] for one in self._links.values() if one[_BEFORE] != NO_LINK]
        for link, held in self._links.items():
            assert held[_LINK_REFERENCES] == (references + befores).count(link) > 0, (link, held)
        for number, held in self._counts.items():
            count = held if self._elsewhere is not None else held[_EVENT_REFERENCES]
            assert count == sum(one[_EVENT] == number for one in self._links.values()), number
        firsts = [one.first for one in self.partials]
        assert firsts == sorted(firsts), firsts
