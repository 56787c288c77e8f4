"""Timers of one operator in one time domain, fired in time order, each item at most once per time.

Timers with the same time share a bucket, so registering one costs a dictionary access, and a heap operation only for
the first of its time. Deletion is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Final

from penstock.base.errors import OperationError, short_repr
from penstock.runtime.operators.function_context import OperatorContext
from penstock.state.backend import KeyedTable
from penstock.state.states import NO_KEY

_MISSING = object()
#: The metric of timers that were set too late to fire.
DROPPED_TIMERS: Final = "numTimersDropped"


class EndlessTimersError(OperationError):
    """A key keeps setting timers after the end of its input. Another attempt would not end either."""

    suppresses_restart = True


class TimersAfterEnd:
    """Admits timers that keys set after the end of their input, up to a limit for each key.

    All timers are due by then, so a timer that always sets another would never end. The limit 0 admits none.
    """

    __slots__ = ("_context", "_counts")

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self._counts: dict[Any, int] = {}

    def admit(self, key: Any) -> bool:
        """Return whether the key may set another timer.

        Raises:
            EndlessTimersError: if the key has set too many.
        """
        limit = self._context.timers_after_end_max
        if limit == 0:
            self._context.count(DROPPED_TIMERS)
            return False
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count > limit:
            raise EndlessTimersError(
                f"{self._context.operator_name}: key {short_repr(key)} has set more than {limit} timers after the end "
                "of its input, when all timers are due, so it would never end. Set no timer when the current watermark "
                "is 2**63 - 1. If the timers do end, raise penstock.timers.after-end-of-input.max; 0 drops them"
            )
        return True

    def clear(self) -> None:
        """Reset the counts for other keys."""
        self._counts.clear()


class TimerQueue:
    """Items (such as keys) with the times (ms) at which they are due.

    The buckets are namespaces of a state table, so timers are part of every snapshot, and a queue over a restored table
    continues where it was.
    """

    __slots__ = ("_buckets", "_heap", "_lone", "_table")

    def __init__(self, table: KeyedTable) -> None:
        self._table = table
        self._buckets = table.panes
        #: the items that are the only ones due at their times
        self._lone: dict[int, Any] = {} if table.lone is None else table.lone
        self._heap = [*self._buckets, *self._lone]
        heapify(self._heap)

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values())) + len(self._lone)

    def register(self, timestamp: int, item: Any) -> None:
        """Make `item` due at `timestamp`; a second registration changes nothing."""
        bucket = self._buckets.get(timestamp)
        if bucket is None or item not in bucket:
            self.put(timestamp, item, bucket)

    def put(self, timestamp: int, item: Any, bucket: dict[Any, Any] | None) -> None:
        """Register an item that is not in `bucket`, the existing bucket of its time, if any."""
        table = self._table
        if bucket is not None:
            bucket[item] = None
        else:
            known = self._lone.get(timestamp, _MISSING)
            if known is _MISSING:
                if item is NO_KEY:
                    hash(item)  # raises: timers without a key fail like state without a key
                heappush(self._heap, timestamp)
                if table.lone is not None:
                    table.lone[timestamp] = item
                else:
                    table.entries(timestamp)[item] = None
            elif known is item or known == item:
                return
            else:
                table.entries(timestamp)[item] = None
        if not table.is_next_whole:
            table.changed(timestamp).add(item)

    def delete(self, timestamp: int, item: Any) -> None:
        """Remove `item` at `timestamp`, if it is there."""
        if timestamp in self._lone:
            self._table.entries(timestamp)
        bucket = self._buckets.get(timestamp)
        if bucket is not None and item in bucket:
            del bucket[item]
            if not self._table.is_next_whole:
                self._table.changed(timestamp).add(item)

    def next_timestamp(self) -> int | None:
        """Return the earliest time at which anything is due, or None."""
        while self._heap:
            timestamp: int = self._heap[0]
            if timestamp in self._lone or self._buckets.get(timestamp):
                return timestamp
            heappop(self._heap)
            self._table.drop(timestamp)
        return None

    def clear(self) -> None:
        """Remove all timers."""
        for timestamp in list(self._buckets):
            self._table.drop(timestamp)
        for timestamp in list(self._lone):
            self._table.drop(timestamp)
        self._heap.clear()

    def fire(self, up_to: int, on_timer: Callable[[int, Any], None]) -> int:
        """Call `on_timer(timestamp, item)` for all items due at or before `up_to`; timers may be added meanwhile.

        Returns the number of timers fired.
        """
        fired = 0
        for timestamp, item in self.due(up_to):
            fired += 1
            on_timer(timestamp, item)
        return fired

    def due(self, up_to: int) -> Iterator[tuple[int, Any]]:
        """Yield (timestamp, item) for all items due at or before `up_to`, removing each when it is requested.

        Timers may be added and deleted meanwhile.
        """
        heap, buckets, table = self._heap, self._buckets, self._table
        take_lone, settle = self._lone.pop, table.settle
        while heap and (timestamp := heap[0]) <= up_to:
            item = take_lone(timestamp, _MISSING)
            if item is not _MISSING:
                heappop(heap)
                if not table.is_next_whole:
                    table.drop(timestamp)
                yield timestamp, item
                continue
            bucket = buckets.get(timestamp)
            if not bucket:
                heappop(heap)
                table.drop(timestamp)
                continue
            for item in list(bucket):
                # A timer deleted by an earlier one of the same time must not fire.
                if bucket.pop(item, _MISSING) is not _MISSING:
                    yield timestamp, item
                    if settle is not None:
                        settle()
                    if heap[0] < timestamp:
                        break  # a timer was set for an earlier time and fires next
