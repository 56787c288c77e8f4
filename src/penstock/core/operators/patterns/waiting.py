"""Events that wait for their time, by time and key, and the order in which they come out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cmp_to_key
from heapq import heapify, heappop, heappush
from typing import Any

from penstock.state.backend import KeyedTable


class WaitingEvents:
    """Lists of events in a state table, whose namespaces are times.

    Args:
        table: where they are kept.
        compare: the order of events of one time and key; None for that in which they came.
    """

    def __init__(self, table: KeyedTable, compare: Callable[[Any, Any], int] | None) -> None:
        self._table = table
        self._sort_key = None if compare is None else cmp_to_key(compare)
        self._times = list(table.panes)
        heapify(self._times)

    @property
    def next_ms(self) -> int | None:
        """The earliest time that any waits for."""
        return self._times[0] if self._times else None

    def add_all(self, keys: Sequence[Any], times: Iterable[int], events: Sequence[Any]) -> None:
        """Let events wait."""
        table = self._table
        panes, is_marked = table.panes, not table.is_next_whole
        pane: dict[Any, list[Any]] | None = None
        last_ms: int | None = None
        for key, time_ms, event in zip(keys, times, events, strict=False):
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

    def take(self, up_to: int) -> dict[Any, list[tuple[int, Any]]]:
        """Take out all events up to a time: by key, in order, each with its time."""
        found: dict[Any, list[tuple[int, Any]]] = {}
        while self._times and self._times[0] <= up_to:
            time_ms = heappop(self._times)
            for key, events in self._table.drop(time_ms).items():
                rows = found.get(key)
                if rows is None:
                    rows = found[key] = []
                if len(events) == 1:
                    rows.append((time_ms, events[0]))
                    continue
                if self._sort_key is not None:
                    events = sorted(events, key=self._sort_key)
                rows += [(time_ms, event) for event in events]
        return found
