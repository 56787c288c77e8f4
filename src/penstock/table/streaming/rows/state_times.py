"""State that is forgotten when nobody has written it for a while (`table.exec.state.ttl`).

For each key it is held when its state was last written, in ms of processing time. What expired is thrown out when its
key is next looked at, before anybody sees it. What nobody looks at goes by timers: a key has one timer, in a bucket of
time, so that a key that is written again and again costs a look per lifetime and not per write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from penstock.core.operators.base import StreamOperator
from penstock.core.operators.timers import TimerQueue
from penstock.state.backend import KeyedStateBackend

#: The states.
WRITTEN: Final = "last_written"
EXPIRIES: Final = "expiries"
#: State that nobody looks at stays for up to a lifetime divided by this longer.
_BUCKETS: Final = 8


def due_at(written_ms: int, ttl_ms: int) -> int:
    """The end of the bucket in which what was written at a time expires."""
    width = max(1, ttl_ms // _BUCKETS)
    return -(-(written_ms + ttl_ms) // width) * width


class StateTimes:
    """When the state of each key was last written.

    Args:
        keyed: where that is kept.
        ttl_ms: how long state lives after it was written.
        forget: throws the state of a key out, and marks it; False if it has to stay.
    """

    def __init__(self, keyed: KeyedStateBackend, ttl_ms: int, forget: Callable[[Any], bool]) -> None:
        table = keyed.table(WRITTEN)
        self._times, self._mark = table.entries(None), table.mark
        self._timers = TimerQueue(keyed.table(EXPIRIES))
        self._ttl_ms = ttl_ms
        self._forget = forget

    def look(self, keys: Collection[Any], now_ms: int) -> None:
        """Throw out what has expired of these keys, before anybody looks at it."""
        get, oldest = self._times.get, now_ms - self._ttl_ms
        for key in [key for key in keys if get(key, now_ms) <= oldest]:
            self._forget(key)

    def write(self, keys: Collection[Any], now_ms: int) -> None:
        """The state of these keys is written."""
        times = self._times
        due = due_at(now_ms, self._ttl_ms)
        for key in [key for key in keys if key not in times]:
            self._timers.register(due, key)
        times.update(dict.fromkeys(keys, now_ms))
        self._mark(None, keys)

    def begin(self, keys: Collection[Any], now_ms: int) -> None:
        """State of these keys that was restored from a job without times counts as written now."""
        if not len(self._timers) and keys:
            self.write(list(keys), now_ms)

    def next_timer_ms(self) -> int | None:
        """When the next bucket is due."""
        return self._timers.next_timestamp()

    def fire(self, now_ms: int) -> None:
        """Throw out what has expired of the buckets that are due."""
        times, ttl_ms = self._times, self._ttl_ms
        for _, key in self._timers.due(now_ms):
            written = times.get(key)
            if written is None:
                continue
            if written + ttl_ms <= now_ms and self._forget(key):
                del times[key]
                self._mark(None, (key,))
            else:
                self._timers.register(due_at(max(written, now_ms - ttl_ms + 1), ttl_ms), key)


class ExpiringOperator(StreamOperator):
    """An operator whose state is forgotten a while after it was written. A subclass names its table (`_expire`)."""

    is_keyed = True
    #: how long state lives after it was written; 0 for ever
    ttl_ms: int = 0
    _lifetimes: StateTimes | None = None

    def _expire(self, entries: dict[Any, Any], mark: Callable[[Any, Collection[Any]], None]) -> None:
        """Let the entries of a table expire, if state does."""
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
        """State of these keys will be looked at: what has expired is not seen."""
        if self._lifetimes is not None:
            self._lifetimes.look(keys, self.context.now_ms())

    def _written(self, keys: Collection[Any]) -> None:
        """State of these keys was written."""
        if self._lifetimes is not None:
            self._lifetimes.write(keys, self.context.now_ms())

    def next_timer_ms(self) -> int | None:
        """When state next expires."""
        return None if self._lifetimes is None else self._lifetimes.next_timer_ms()

    def on_processing_time(self, now_ms: int) -> None:
        """Forget what has expired."""
        if self._lifetimes is not None:
            self._lifetimes.fire(now_ms)


def lasting(factory: Callable[[], StreamOperator], ttl_ms: int | tuple[int, int]) -> Callable[[], StreamOperator]:
    """The factory of an operator whose state lives so long after it was written, of joins that of each side.

    0 is for ever.
    """
    return partial(_made, factory, ttl_ms)


def _made(factory: Callable[[], Any], ttl_ms: int | tuple[int, int]) -> StreamOperator:
    operator = factory()
    operator.ttl_ms = ttl_ms
    return operator  # type: ignore[no-any-return]
