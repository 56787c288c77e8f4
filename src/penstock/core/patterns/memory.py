"""A matcher's memory of one key: plain lists and dictionaries, so that it can be stored as state.

`[number of the next event, partial matches, complete matches that wait, links, events]`. Partial matches are (state,
link, number of the first event, its time, time of the last event), in the order of their first events. Links are
[previous link or -1, stage, event, references]. An event that no partial match takes has no number, and changes
nothing.

Events are [event, its time, references]. If they are kept elsewhere (`Elsewhere`), the memory has only their reference
counts, and an event is written once and deleted once, whatever happens to the partial matches that include it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

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
        """Complete matches that an earlier match may still precede, see `queueing`."""
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
