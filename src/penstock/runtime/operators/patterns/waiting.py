"""Events that wait for their time.

Most events wait for less time than passes between two checkpoints, so they stay in the batches in which they arrived.
An event is not moved while it waits: a batch whose events are due in part remembers up to when it was taken. When a
checkpoint begins, the waiting events are written to a state table and stay there. So are events that would take too
much memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from heapq import heapify, heappop, heappush
from typing import Any, Final

import numpy as np

from penstock.runtime.operators.patterns.sieve import Columns, DueEvents, Offered, Symbols
from penstock.runtime.records import MIN_TIMESTAMP
from penstock.state.backend import KeyedTable

#: The maximum number of events that wait in lists.
LISTED_MAX: Final = 1 << 17


@dataclass(slots=True)
class _Part:
    """Events that arrived together. Events up to `taken_ms` no longer wait.

    `first_ms`, `last_ms`: the earliest and the latest time of the waiting events.
    """

    batch: Columns
    first_ms: int
    last_ms: int
    taken_ms: int = MIN_TIMESTAMP

    @classmethod
    def of(cls, batch: Columns) -> _Part:
        """Create a part from at least one event."""
        return cls(batch, int(batch.times.min()), int(batch.times.max()))

    def take(self, up_to: int) -> DueEvents:
        """Take the events up to a time, at least one of which waits."""
        times = self.batch.times
        is_due = times <= up_to
        if up_to < self.last_ms:
            self.first_ms = int(times[~is_due].min())
        if self.taken_ms != MIN_TIMESTAMP:
            is_due &= times > self.taken_ms
        self.taken_ms = up_to
        return DueEvents(self.batch, np.flatnonzero(is_due))

    def waiting(self) -> Columns:
        """Return the events that wait."""
        return self.batch.chosen(np.flatnonzero(self.batch.times > self.taken_ms))


class WaitingEvents:
    """Waiting events by time and key.

    Args:
        table: stores the events; its namespaces are times, and its values lists of events.
        compare: the order of events of the same time and key; None for the order of arrival.
    """

    def __init__(self, table: KeyedTable, compare: Callable[[Any, Any], int] | None) -> None:
        self._table = table
        self._sort_key = None if compare is None else cmp_to_key(compare)
        self._times = list(table.panes)
        heapify(self._times)
        self._parts: list[_Part] = []
        self._listed = 0

    @property
    def next_ms(self) -> int | None:
        """The earliest time of a waiting event, or None."""
        return min([*self._times[:1], *(part.first_ms for part in self._parts)], default=None)

    def add_all(self, keys: Sequence[Any], times: Sequence[int], events: Sequence[Any]) -> None:
        """Add waiting events."""
        if not events:
            return
        self._parts.append(_Part.of(Columns(keys, np.array(times, np.int64), events)))
        self._listed += len(events)
        if self._listed > LISTED_MAX:
            self.store()

    def store(self) -> None:
        """Move all events into the table."""
        table = self._table
        panes, is_marked = table.panes, not table.is_next_whole
        pane: dict[Any, list[Any]] | None = None
        last_ms: int | None = None
        for key, time_ms, event in self._listed_events():
            if time_ms != last_ms or pane is None:
                pane, last_ms = panes.get(time_ms), time_ms
                if pane is None:
                    pane = table.entries(time_ms)
                    heappush(self._times, time_ms)
            known = pane.get(key)
            if known is None:
                pane[key] = [event]
            else:
                known.append(event)
            if is_marked:
                table.changed(time_ms).add(key)
        self._parts, self._listed = [], 0

    def _listed_events(self) -> Iterable[tuple[Any, int, Any]]:
        for part in self._parts:
            waiting = part.waiting()
            yield from zip(waiting.keys, waiting.times.tolist(), waiting.events, strict=True)

    def take(self, up_to: int, screen: Callable[[Sequence[Any]], Symbols | None] | None = None) -> list[DueEvents]:
        """Remove and return all events up to a time, in the order in which they arrived.

        `screen`: returns the symbols of the events of a batch, or None; called if it has not returned any before.
        """
        due, left = [], []
        stored = self._take_from_table(up_to)
        for part in self._parts if stored is None else [stored, *self._parts]:
            if part.first_ms <= up_to:
                if screen is not None and part.batch.symbols is None:
                    self._screen(part, screen)
                due.append(part.take(up_to))
            if part.last_ms > up_to:
                left.append(part)
        self._parts, self._listed = left, sum(len(part.batch.events) for part in left)
        return due

    def _screen(self, part: _Part, screen: Callable[[Sequence[Any]], Symbols | None]) -> None:
        """Note the symbols of the events of a part that wait."""
        waiting = part.waiting()
        waiting.symbols = screen(waiting.events)
        if waiting.symbols is not None:
            part.batch, part.taken_ms = waiting, MIN_TIMESTAMP

    def _take_from_table(self, up_to: int) -> _Part | None:
        times: list[int] = []
        keys: list[Any] = []
        events: list[Any] = []
        while self._times and self._times[0] <= up_to:
            time_ms = heappop(self._times)
            for key, of_key in self._table.drop(time_ms).items():
                events += of_key
                keys += [key] * len(of_key)
                times += [time_ms] * len(of_key)
        return _Part.of(Columns(keys, np.array(times, np.int64), events)) if events else None

    def arrange(self, events: Offered) -> None:
        """Put events of a key that have the same time into the order of the comparator, if there is one."""
        sort_key = self._sort_key
        if sort_key is not None:
            events.sort(key=lambda row: (row[0], sort_key(row[1])))
