"""Timers of one operator in one time domain, fired in order of time, each item at most once a time.

Timers that share a time lie in one bucket, so that registering one costs a dictionary access, and a heap operation
only for the first of its time. Deleting is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from penstock.state.backend import KeyedTable

_MISSING = object()


class TimerQueue:
    """Items (such as keys) with the times (ms) at which they are due.

    The buckets are the namespaces of a state table, so timers are part of every snapshot, and a queue over a restored
    table goes on where it was.
    """

    __slots__ = ("_buckets", "_heap", "_table")

    def __init__(self, table: KeyedTable) -> None:
        self._table = table
        self._buckets = table.panes
        self._heap = list(self._buckets)
        heapify(self._heap)

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def register(self, timestamp: int, item: Any) -> None:
        """Let `item` be due at `timestamp`; registering it twice is registering it once."""
        bucket = self._buckets.get(timestamp)
        if bucket is None:
            bucket = self._table.entries(timestamp)
            heappush(self._heap, timestamp)
        elif item in bucket:
            return
        bucket[item] = None
        self._table.changed(timestamp).add(item)

    def delete(self, timestamp: int, item: Any) -> None:
        """Forget `item` at `timestamp`, when it is there."""
        bucket = self._buckets.get(timestamp)
        if bucket is not None and item in bucket:
            del bucket[item]
            self._table.changed(timestamp).add(item)

    def next_timestamp(self) -> int | None:
        """The earliest time at which anything is due, or None."""
        while self._heap:
            timestamp: int = self._heap[0]
            if self._buckets.get(timestamp):
                return timestamp
            heappop(self._heap)
            self._table.drop(timestamp)
        return None

    def clear(self) -> None:
        """Forget all."""
        for timestamp in list(self._buckets):
            self._table.drop(timestamp)
        self._heap.clear()

    def fire(self, up_to: int, on_timer: Callable[[int, Any], None]) -> bool:
        """Call `on_timer(timestamp, item)` for all that is due at or before `up_to`; timers may be added meanwhile."""
        fired = False
        settle = self._table.settle
        while (timestamp := self.next_timestamp()) is not None and timestamp <= up_to:
            bucket = self._buckets[timestamp]
            for item in list(bucket):
                # A timer that was deleted by an earlier one of the same time must not fire.
                if bucket.pop(item, _MISSING) is not _MISSING:
                    fired = True
                    on_timer(timestamp, item)
                    if settle is not None:
                        settle()
                    if self._heap[0] < timestamp:
                        break  # one was set for an earlier time, and is next
        return fired
