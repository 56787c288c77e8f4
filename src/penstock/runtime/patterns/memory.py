"""The matcher's memory of one key: partial matches, complete matches that wait, and the events of both.

The memory is plain lists and dictionaries, so that it can be stored as state:

`[number of the next event, partial matches, complete matches that wait, links, events]`. Partial matches are (state,
link, number of the first event, its time, time of the last event), in the order of their first events. Links are
[previous link or -1, stage, event, references]. An event that no partial match takes has no number, and changes
nothing.

Events are [event, its time, references]. If they are kept elsewhere (`Elsewhere`), the memory has only their reference
counts, and an event is written once and deleted once, whatever happens to the partial matches that include it.

`Memory` is a view of it. It has no copy of anything, so the matcher may work on the lists directly, and does so where
time counts.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol, TypeAlias

#: the link before the first one
NO_LINK: Final = -1
#: the parts of the memory
NEXT, PARTIALS, WAITING, LINKS, EVENTS = range(5)
#: the parts of a link
BEFORE, STAGE, EVENT, LINK_REFERENCES = range(4)
#: the parts of an event that is not kept elsewhere
VALUE, TIME, EVENT_REFERENCES = range(3)


class Partial(NamedTuple):
    """A partial match. `link`: the link of the last event; `first`: the number of the first event.

    `last_ms`: the time of the last event; None if it was stored before this field existed.
    """

    state: int
    link: int
    first: int
    first_ms: int
    last_ms: int | None = None


#: The fields of a `Partial` as they are stored; without the last one if it was stored before that existed.
Stored: TypeAlias = tuple[Any, ...]


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

    Attributes:
        deadline_ms: the matcher's note of when the first partial match times out, if that is earlier than before.
    """

    __slots__ = ("counts", "data", "deadline_ms", "elsewhere", "links")

    def __init__(self, data: list[Any], elsewhere: Elsewhere | None = None) -> None:
        self.show(data, elsewhere)
        self.deadline_ms: int | None = None

    def show(self, data: list[Any], elsewhere: Elsewhere | None) -> None:
        """Become the view of another memory."""
        self.data = data
        self.links: dict[int, list[Any]] = data[LINKS]
        self.counts: dict[int, Any] = data[EVENTS]
        self.elsewhere = elsewhere

    @staticmethod
    def empty() -> list[Any]:
        """Return the memory before the first event."""
        return [0, [], [], {}, {}]

    @property
    def is_empty(self) -> bool:
        """Whether no match is in progress, so that the key may be forgotten."""
        return not self.data[PARTIALS] and not self.data[WAITING]

    @property
    def partials(self) -> list[Partial]:
        """Partial matches in the order of their first events."""
        return [Partial(*fields) for fields in self.data[PARTIALS]]

    @property
    def waiting(self) -> list[Partial]:
        """Complete matches that an earlier match may still precede."""
        return [Partial(*fields) for fields in self.data[WAITING]]

    @property
    def size(self) -> int:
        """How many partial matches and waiting matches there are."""
        return len(self.data[PARTIALS]) + len(self.data[WAITING])

    def keep_partials(self, partials: list[Partial]) -> None:
        """Replace the partial matches."""
        self.data[PARTIALS] = list(map(tuple, partials))

    def next_link(self) -> int:
        """Return the number of the next link: numbers only grow from the first link in the dictionary to the last."""
        return next(reversed(self.links), NO_LINK) + 1

    def release(self, link: int) -> None:
        """Remove a reference to a link, and delete links and events without references."""
        links = self.links
        while link != NO_LINK:
            entry = links[link]
            if entry[LINK_REFERENCES] > 1:
                entry[LINK_REFERENCES] -= 1
                return
            del links[link]
            self._drop(entry[EVENT])
            link = entry[BEFORE]

    def _drop(self, number: int) -> None:
        """Remove a reference to an event."""
        counts = self.counts
        if self.elsewhere is None:
            entry = counts[number]
            if entry[EVENT_REFERENCES] > 1:
                entry[EVENT_REFERENCES] -= 1
            else:
                del counts[number]
        elif counts[number] > 1:
            counts[number] -= 1
        else:
            del counts[number]
            del self.elsewhere[number]

    def event(self, number: int) -> Any:
        """Return an event by its number."""
        return self.counts[number][VALUE] if self.elsewhere is None else self.elsewhere[number]

    def path(self, link: int) -> list[tuple[str, int]]:
        """Return the stages and numbers of events up to a link, in order."""
        path, links = [], self.links
        while link != NO_LINK:
            link, stage, number, _ = links[link]
            path.append((stage, number))
        path.reverse()
        return path

    def events(self, link: int) -> dict[str, list[Any]]:
        """Return the events up to a link by stage, each stage's in order of arrival."""
        return self.read(self.path(link))

    def take_out(self, link: int) -> dict[str, list[Any]]:
        """Return the events up to a link, as `events` does, and remove a reference to the link."""
        links, counts, elsewhere = self.links, self.counts, self.elsewhere
        backward, is_released = [], True
        while link != NO_LINK:
            entry = links[link]
            before, stage, number, references = entry
            backward.append((stage, counts[number][VALUE] if elsewhere is None else elsewhere[number]))
            if is_released:
                if references > 1:
                    entry[LINK_REFERENCES] = references - 1
                    is_released = False
                else:
                    del links[link]
                    self._drop(number)
            link = before
        backward.reverse()
        events: dict[str, list[Any]] = {}
        for stage, event in backward:
            if stage in events:
                events[stage].append(event)
            else:
                events[stage] = [event]
        return events

    def read(self, path: list[tuple[str, int]]) -> dict[str, list[Any]]:
        """Return the events of a path by stage, each stage's in order of arrival."""
        counts, elsewhere = self.counts, self.elsewhere
        events: dict[str, list[Any]] = {}
        for stage, number in path:
            event = counts[number][VALUE] if elsewhere is None else elsewhere[number]
            if stage in events:
                events[stage].append(event)
            else:
                events[stage] = [event]
        return events

    def collect_events(self, link: int, stage: str) -> list[Any]:
        """Return the events of one stage up to a link, in order of arrival."""
        numbers = []
        while link != NO_LINK:
            before, name, number, _ = self.links[link]
            if name == stage:
                numbers.append(number)
            link = before
        return [self.event(number) for number in reversed(numbers)]

    def validate(self) -> None:
        """Raise `AssertionError` if references are counted wrongly."""
        references = [partial.link for partial in (*self.partials, *self.waiting)]
        befores = [link_entry[BEFORE] for link_entry in self.links.values() if link_entry[BEFORE] != NO_LINK]
        for link, entry in self.links.items():
            assert entry[LINK_REFERENCES] == (references + befores).count(link) > 0, (link, entry)
        for number, entry in self.counts.items():
            count = entry if self.elsewhere is not None else entry[EVENT_REFERENCES]
            assert count == sum(link_entry[EVENT] == number for link_entry in self.links.values()), number
        firsts = [partial.first for partial in self.partials]
        assert firsts == sorted(firsts), firsts
