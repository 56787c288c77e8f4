"""Events that wait for their time, released in order.

Most events wait for less time than passes between two checkpoints, so they stay in lists. When a checkpoint begins, the
waiting events are written to a state table and stay there. So are events that would take too much memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from heapq import heapify, heappop, heappush
from itertools import chain, compress
from operator import itemgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.state.backend import KeyedTable

#: The maximum number of events that wait in lists.
LISTED_MAX: Final = 1 << 17


@dataclass(slots=True)
class _Part:
    """Events that arrived together, with their times and keys. `first_ms`, `last_ms`: earliest and latest time."""

    times: npt.NDArray[np.int64]
    keys: Sequence[Any]
    events: Sequence[Any]
    first_ms: int
    last_ms: int

    @classmethod
    def of(cls, times: npt.NDArray[np.int64], keys: Sequence[Any], events: Sequence[Any]) -> _Part:
        """Create a part from at least one event."""
        return cls(times, keys, events, int(times.min()), int(times.max()))

    def chosen(self, is_chosen: npt.NDArray[np.bool_]) -> _Part:
        """Return a part with some of the events."""
        chosen = is_chosen.tolist()
        return _Part.of(self.times[is_chosen], list(compress(self.keys, chosen)), list(compress(self.events, chosen)))


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
        self._parts.append(_Part.of(np.array(times, np.int64), keys, events))
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
        return (row for part in self._parts for row in zip(part.keys, part.times.tolist(), part.events, strict=True))

    def take(self, up_to: int) -> dict[Any, list[tuple[int, Any]]]:
        """Remove and return all events up to a time: by key, in order, each with its time."""
        due = self._from_table(up_to)
        due += self._from_parts(up_to)
        if not due:
            return {}
        times = np.concatenate([part.times for part in due])
        keys = list(chain.from_iterable(part.keys for part in due))
        rows = list(zip(times.tolist(), chain.from_iterable(part.events for part in due), strict=True))
        if len(rows) > 1:
            in_order = itemgetter(*np.argsort(times, kind="stable").tolist())
            keys, rows = in_order(keys), in_order(rows)
        rows_by_key: defaultdict[Any, list[tuple[int, Any]]] = defaultdict(list)
        for key, row in zip(keys, rows, strict=True):
            rows_by_key[key].append(row)
        if (sort_key := self._sort_key) is not None:
            for of_key in rows_by_key.values():
                of_key.sort(key=lambda row: (row[0], sort_key(row[1])))
        return rows_by_key

    def _from_table(self, up_to: int) -> list[_Part]:
        times: list[int] = []
        keys: list[Any] = []
        events: list[Any] = []
        while self._times and self._times[0] <= up_to:
            time_ms = heappop(self._times)
            for key, of_key in self._table.drop(time_ms).items():
                events += of_key
                keys += [key] * len(of_key)
                times += [time_ms] * len(of_key)
        return [_Part.of(np.array(times, np.int64), keys, events)] if events else []

    def _from_parts(self, up_to: int) -> list[_Part]:
        due, left = [], []
        for part in self._parts:
            if part.last_ms <= up_to:
                due.append(part)
            elif part.first_ms > up_to:
                left.append(part)
            else:
                is_due = part.times <= up_to
                due.append(part.chosen(is_due))
                left.append(part.chosen(~is_due))
        self._parts, self._listed = left, sum(len(part.events) for part in left)
        return due
