"""Timers of windows in one time domain: which windows of which keys are due when.

Like `TimerQueue`, but an item is a key with a window. The buckets are namespaces of a state table, keyed like the
stream, so timers move with their keys. Each key's entry contains the windows that are due.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from penstock.core.windowing.windows import WindowToken
from penstock.state.backend import KeyedTable


class WindowTimers:
    """Windows of keys with the times (ms) at which they are due; each is due at most once per time."""

    __slots__ = ("_buckets", "_heap", "_table")

    def __init__(self, table: KeyedTable) -> None:
        self._table = table
        self._buckets = table.panes
        self._heap = list(self._buckets)
        heapify(self._heap)

    def register(self, timestamp: int, key: Any, token: WindowToken) -> None:
        """Make a window of a key due at `timestamp`; a second registration changes nothing."""
        bucket = self._buckets.get(timestamp)
        if bucket is None:
            bucket = self._table.entries(timestamp)
            heappush(self._heap, timestamp)
        due = bucket.get(key)
        if due is None:
            bucket[key] = {token: None}
        elif token in due:
            return
        else:
            due[token] = None
        self._table.changed(timestamp).add(key)

    def holds(self, timestamp: int, key: Any, token: WindowToken) -> bool:
        """Return whether a window of a key is due at `timestamp`."""
        bucket = self._buckets.get(timestamp)
        return bucket is not None and token in (bucket.get(key) or ())

    def delete(self, timestamp: int, key: Any, token: WindowToken) -> None:
        """Remove the timer of a window of a key at `timestamp`, if there is one."""
        bucket = self._buckets.get(timestamp)
        if bucket is not None:
            self._take(timestamp, bucket, key, token)

    def _take(self, timestamp: int, bucket: dict[Any, Any], key: Any, token: WindowToken) -> bool:
        due = bucket.get(key)
        if due is None or token not in due:
            return False
        del due[token]
        if not due:
            del bucket[key]
        self._table.changed(timestamp).add(key)
        return True

    def times(self) -> dict[tuple[Any, WindowToken], set[int]]:
        """Return all due times for each window of a key."""
        timestamps: dict[tuple[Any, WindowToken], set[int]] = {}
        for timestamp, bucket in self._buckets.items():
            for key, due in bucket.items():
                for token in due:
                    timestamps.setdefault((key, token), set()).add(timestamp)
        return timestamps

    def next_timestamp(self) -> int | None:
        """Return the earliest time at which anything is due, or None."""
        while self._heap:
            timestamp: int = self._heap[0]
            if self._buckets.get(timestamp):
                return timestamp
            heappop(self._heap)
            self._table.drop(timestamp)
        return None

    def clear(self) -> None:
        """Remove all timers."""
        for timestamp in list(self._buckets):
            self._table.drop(timestamp)
        self._heap.clear()

    def fire(self, up_to: int, on_timer: Callable[[int, Any, WindowToken], None]) -> None:
        """Call `on_timer` for all timers due at or before `up_to`; timers may be added and deleted meanwhile."""
        while (timestamp := self.next_timestamp()) is not None and timestamp <= up_to:
            for key in list(self._buckets[timestamp]):
                if not self._fire_key(timestamp, key, on_timer):
                    break

    def _fire_key(self, timestamp: int, key: Any, on_timer: Callable[[int, Any, WindowToken], None]) -> bool:
        """Fire a key's timers; return False if an earlier timer was set, so that the bucket is no longer next."""
        bucket, settle = self._buckets[timestamp], self._table.settle
        for token in list(bucket.get(key) or ()):
            # A timer deleted by an earlier one of the same time must not fire.
            if self._take(timestamp, bucket, key, token):
                on_timer(timestamp, key, token)
                if settle is not None:
                    settle()
                if self._heap[0] < timestamp:
                    return False
        return True
