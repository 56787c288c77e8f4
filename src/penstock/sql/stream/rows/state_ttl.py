"""State that expires when it has not been written for some time (`table.exec.state.ttl`).

For each key, the time of the last write is kept, in ms of processing time. Expired state is dropped at the next access
to its key, before it is read. Timers drop state that is not accessed: each key has one timer, in a bucket of time, so a
key that is written repeatedly costs one check per lifetime instead of one per write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.timers import TimerQueue
from penstock.state.backend import KeyedStateBackend

#: The names of the states.
WRITTEN: Final = "last_written"
EXPIRIES: Final = "expiries"
#: State that is not accessed stays longer, by up to its lifetime divided by this.
_BUCKETS: Final = 8


def compute_due_time(written_ms: int, ttl_ms: int) -> int:
    """Return when state that was written at a time is dropped: at the end of the bucket of its expiry."""
    width = max(1, ttl_ms // _BUCKETS)
    return -(-(written_ms + ttl_ms) // width) * width


class StateTimes:
    """The time at which the state of each key was last written.

    Args:
        keyed: the backend that stores the times.
        ttl_ms: how long state lives after a write.
        forget: drops the state of a key and marks it as changed; returns False if it must stay.
    """

    def __init__(self, keyed: KeyedStateBackend, ttl_ms: int, forget: Callable[[Any], bool]) -> None:
        table = keyed.table(WRITTEN)
        self._times, self._mark = table.entries(None), table.mark
        self._timers = TimerQueue(keyed.table(EXPIRIES))
        self._ttl_ms = ttl_ms
        self._forget = forget

    def look(self, keys: Collection[Any], now_ms: int) -> None:
        """Drop the expired state of these keys, before it is read."""
        get, oldest = self._times.get, now_ms - self._ttl_ms
        for key in [key for key in keys if get(key, now_ms) <= oldest]:
            self._forget(key)

    def write(self, keys: Collection[Any], now_ms: int) -> None:
        """Record that the state of these keys is written."""
        times = self._times
        due = compute_due_time(now_ms, self._ttl_ms)
        for key in [key for key in keys if key not in times]:
            self._timers.register(due, key)
        times.update(dict.fromkeys(keys, now_ms))
        self._mark(None, keys)

    def begin(self, keys: Collection[Any], now_ms: int) -> None:
        """Treat restored state of these keys as written now, if the previous job kept no times."""
        if not len(self._timers) and keys:
            self.write(list(keys), now_ms)

    def next_timer_ms(self) -> int | None:
        """Return when the next bucket is due."""
        return self._timers.next_timestamp()

    def fire(self, now_ms: int) -> None:
        """Drop the expired state of the buckets that are due."""
        times, ttl_ms = self._times, self._ttl_ms
        for _, key in self._timers.due(now_ms):
            written = times.get(key)
            if written is None:
                continue
            if written + ttl_ms <= now_ms and self._forget(key):
                del times[key]
                self._mark(None, (key,))
            else:
                self._timers.register(compute_due_time(max(written, now_ms - ttl_ms + 1), ttl_ms), key)


class ExpiringOperator(StreamOperator):
    """An operator whose state expires some time after it was written. Subclasses specify their table with `_expire`."""

    is_keyed = True
    #: how long state lives after a write; 0 for unlimited
    ttl_ms: int = 0
    _lifetimes: StateTimes | None = None

    def _expire(self, entries: dict[Any, Any], mark: Callable[[Any, Collection[Any]], None]) -> None:
        """Let the entries of a table expire, if the state has a lifetime."""
        if self.ttl_ms <= 0:
            return

        def forget(key: Any) -> bool:
            if entries.pop(key, None) is not None:
                mark(None, (key,))
            return True

        self._begin_lifetimes(entries, forget)

    def _begin_lifetimes(self, keys: Collection[Any], forget: Callable[[Any], bool]) -> None:
        if self.ttl_ms > 0:
            self._lifetimes = StateTimes(self.context.keyed, self.ttl_ms, forget)
            self._lifetimes.begin(keys, self.context.now_ms())

    def _look(self, keys: Collection[Any]) -> None:
        """Drop the expired state of these keys, before it is read."""
        if self._lifetimes is not None:
            self._lifetimes.look(keys, self.context.now_ms())

    def _written(self, keys: Collection[Any]) -> None:
        """Record that the state of these keys was written."""
        if self._lifetimes is not None:
            self._lifetimes.write(keys, self.context.now_ms())

    def next_timer_ms(self) -> int | None:
        """Return when state next expires."""
        return None if self._lifetimes is None else self._lifetimes.next_timer_ms()

    def on_processing_time(self, now_ms: int) -> None:
        """Drop expired state."""
        if self._lifetimes is not None:
            self._lifetimes.fire(now_ms)


def lasting(factory: Callable[[], StreamOperator], ttl_ms: int | tuple[int, int]) -> Callable[[], StreamOperator]:
    """Return a factory of an operator whose state lives this long after a write; for joins, of each side.

    0 means unlimited.
    """
    return partial(_made, factory, ttl_ms)


def _made(factory: Callable[[], Any], ttl_ms: int | tuple[int, int]) -> StreamOperator:
    operator = factory()
    operator.ttl_ms = ttl_ms
    return operator  # type: ignore[no-any-return]
