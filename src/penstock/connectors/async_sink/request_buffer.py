"""The send queue of an asynchronous sink: `RequestBuffer` decides which entries go into the next request, and when.

A buffer has no clock, no thread and no connection: callers pass the time, and report how each request ended.

**Order.** Entries without an ordering key leave in order, but several requests are in flight at a time and a part of a
request may be sent again, so they may arrive in another order. Entries with the same ordering key arrive in order: a
request has one entry of a key, and the next one waits until that entry is accepted. For a service that executes the
entries of a request in order, a request has as many of a key as fit, and only other requests wait. Where a later entry
supersedes an earlier one, such as a whole row, it takes the place of one that still waits.

**Congestion.** The number of entries in flight is limited by additive increase and multiplicative decrease, as Flink's
`AIMDScalingStrategy` does: an accepted request raises the limit, and a request with entries to resend lowers it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate, count, islice, repeat
from typing import Any, Final

import msgspec

from penstock.base.errors import WrongValueError

#: How the limit of entries in flight changes: Flink's figures.
INCREASE: Final = 10
DECREASE: Final = 0.99


@dataclass(frozen=True, kw_only=True, slots=True)
class AsyncSinkSettings:
    """How an asynchronous sink batches, limits and repeats its requests. The first eight names are Flink's.

    Attributes:
        max_batch_size: the maximum number of entries in a request.
        max_in_flight_requests: the maximum number of requests at the same time. With 1, and if no part is sent again,
            entries arrive in order.
        max_buffered_requests: the number of waiting entries at which the sink stops its input; more than a batch.
        max_batch_size_in_bytes: the maximum size of a request.
        max_time_in_buffer_ms: how long an entry waits for others.
        max_record_size_in_bytes: the maximum size of an entry; at most that of a request.
        request_timeout_ms: how long a request may take.
        fail_on_timeout: whether a request that takes longer fails the job; otherwise it is sent again, and may arrive
            twice.
        max_attempts: how often an entry is sent at most before the job fails.
        retry_delay_ms: the delay before the second attempt; it doubles with each further one.
        retry_delay_max_ms: the maximum delay.

    Raises:
        ValueError: for a number that is not positive, or limits that contradict each other.

    Examples:
        >>> from penstock.datastream.connectors import AsyncSinkSettings
        >>> AsyncSinkSettings(max_batch_size=100, max_in_flight_requests=1).max_buffered_requests
        10000
    """

    max_batch_size: int = 500
    max_in_flight_requests: int = 50
    max_buffered_requests: int = 10_000
    max_batch_size_in_bytes: int = 5 * 1024 * 1024
    max_time_in_buffer_ms: int = 5_000
    max_record_size_in_bytes: int = 1024 * 1024
    request_timeout_ms: int = 600_000
    fail_on_timeout: bool = False
    max_attempts: int = 10
    retry_delay_ms: int = 100
    retry_delay_max_ms: int = 10_000

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, bool) and value <= 0:
                raise WrongValueError(f"{each.name} is {value}; it must be positive")
        if self.max_buffered_requests <= self.max_batch_size:
            raise WrongValueError(
                f"max_buffered_requests is {self.max_buffered_requests}; it must exceed max_batch_size, which is "
                f"{self.max_batch_size}"
            )
        if self.max_batch_size_in_bytes < self.max_record_size_in_bytes:
            raise WrongValueError(
                f"max_batch_size_in_bytes is {self.max_batch_size_in_bytes}; it must be at least "
                f"max_record_size_in_bytes, which is {self.max_record_size_in_bytes}"
            )


class Entry(msgspec.Struct, eq=False, gc=False):
    """An entry of a request.

    Attributes:
        value: the entry in the client's form.
        size: its size in bytes.
        key: the ordering key; None for an entry whose order does not matter.
        since_ms: when it was added.
        number: how many were added before.
        attempts: how often it has been sent.
        not_before_ms: when it may be sent again.
    """

    value: Any
    size: int
    key: Hashable | None
    since_ms: float
    number: int = 0
    attempts: int = 0
    not_before_ms: float = 0.0


class RequestBuffer:
    """The entries that wait and those in flight.

    Args:
        settings: the limits.
        keeps_order: whether the service executes the entries of a request in order.
        supersedes: whether the first of two values with the same ordering key, the later one, makes the other
            superfluous; None if no value does.
    """

    def __init__(
        self,
        settings: AsyncSinkSettings,
        keeps_order: bool = False,
        supersedes: Callable[[Any, Any], bool] | None = None,
    ) -> None:
        self._settings = settings
        self._keeps_order = keeps_order
        self._supersedes = supersedes
        #: by key, the last entry that waits and has not been sent; kept only if entries may supersede others
        self._last: dict[Hashable, Entry] = {}
        self._waiting: deque[Entry] = deque()
        #: entries that would wait no longer if their keys were not in flight, by key; they precede the waiting ones
        self._queues: dict[Hashable, deque[Entry]] = {}
        self._queued = 0
        #: the keys of queues that are not in flight any more
        self._ready: deque[Hashable] = deque()
        #: whether entries with keys were added
        self._has_keys = False
        #: entries to send again, oldest first; they precede the waiting ones
        self._again: list[Entry] = []
        self._keys_in_flight: set[Hashable] = set()
        self._waiting_bytes = 0
        self._added = 0
        self._entries_max = settings.max_batch_size * settings.max_in_flight_requests
        self._limit: float = self._entries_max
        self.requests_in_flight = 0
        self.entries_in_flight = 0

    def __len__(self) -> int:
        """Return the number of entries that are not in flight."""
        return self._queued + len(self._waiting) + len(self._again)

    @property
    def room(self) -> int:
        """How many entries may be added; the sink must stop its input when there is no room."""
        return max(0, self._settings.max_buffered_requests - len(self))

    @property
    def is_empty(self) -> bool:
        """Whether every entry has been accepted."""
        return not (self._waiting or self._queues or self._again or self.requests_in_flight)

    @property
    def limit(self) -> int:
        """The maximum number of entries in flight at present."""
        return max(1, int(self._limit))

    def add(
        self,
        values: Sequence[Any],
        sizes: Sequence[int],
        keys: Sequence[Hashable | None] | None,
        now_ms: float,
    ) -> None:
        """Append entries, or replace those that they supersede.

        Args:
            values: what the client sends.
            sizes: their sizes in bytes.
            keys: their ordering keys; None if no entry has one.
            now_ms: the time.
        """
        self._has_keys = self._has_keys or keys is not None
        numbers = count(self._added)
        entries = map(Entry, values, sizes, repeat(None) if keys is None else keys, repeat(now_ms), numbers)
        if self._supersedes is None or keys is None:
            self._waiting.extend(entries)
            self._added += len(values)
            self._waiting_bytes += sum(sizes)
            return
        for entry in entries:
            if entry.key is not None:
                last = self._last.get(entry.key)
                if last is not None and self._supersedes(entry.value, last.value):
                    self._waiting_bytes += entry.size - last.size
                    last.value, last.size = entry.value, entry.size
                    continue
                self._last[entry.key] = entry
            self._waiting.append(entry)
            self._waiting_bytes += entry.size
        self._added += len(values)

    def take(self, now_ms: float, is_flushing: bool) -> list[Entry]:
        """Return the entries of the next request, which is in flight from now on; none if nothing may be sent now.

        Args:
            now_ms: the time.
            is_flushing: whether entries are sent without waiting for others.
        """
        room = self._room()
        if not room:
            return []
        entries: list[Entry] = []
        blocked_keys: set[Hashable] = set()
        size = self._take_again(now_ms, room, entries, blocked_keys) if self._again else 0
        if self._ready:
            size = self._take_queued(room, size, entries, blocked_keys)
        if entries or is_flushing or self._is_due(now_ms):
            if self._has_keys:
                self._take_waiting(room, size, entries, blocked_keys)
            else:
                self._take_first(room, size, entries)
        for entry in entries:
            entry.attempts += 1
        if entries:
            self.requests_in_flight += 1
            self.entries_in_flight += len(entries)
            if self._has_keys:
                self._keys_in_flight.update([entry.key for entry in entries if entry.key is not None])
        return entries

    def _room(self) -> int:
        """Return how many entries the next request may have."""
        if self.requests_in_flight >= self._settings.max_in_flight_requests:
            return 0
        return max(0, min(self._settings.max_batch_size, self.limit - self.entries_in_flight))

    def _is_due(self, now_ms: float) -> bool:
        if not self._waiting:
            return False
        settings = self._settings
        return (
            len(self._waiting) >= settings.max_batch_size
            or self._waiting_bytes >= settings.max_batch_size_in_bytes
            or now_ms >= self._waiting[0].since_ms + settings.max_time_in_buffer_ms
        )

    def _take_again(self, now_ms: float, room: int, entries: list[Entry], blocked_keys: set[Hashable]) -> int:
        """Take entries that are sent again, as far as their delays are over; return their size.

        `held` receives the keys whose later entries must wait.
        """
        kept, size = [], 0
        for entry in self._again:
            key = entry.key
            fits = len(entries) < room and (not entries or size + entry.size <= self._settings.max_batch_size_in_bytes)
            is_free = key is None or not (key in blocked_keys or key in self._keys_in_flight)
            if fits and is_free and now_ms >= entry.not_before_ms:
                entries.append(entry)
                size += entry.size
                if key is not None and not self._keeps_order:
                    blocked_keys.add(key)
            else:
                kept.append(entry)
                if key is not None:
                    blocked_keys.add(key)
        self._again = kept
        return size

    def _take_first(self, room: int, size: int, entries: list[Entry]) -> None:
        """Take entries from the front; none has a key."""
        waiting, size_max = self._waiting, self._settings.max_batch_size_in_bytes
        wanted = min(room - len(entries), len(waiting))
        first = list(islice(waiting, wanted))
        sizes = [entry.size for entry in first]
        taken = sum(sizes)
        if size + taken > size_max:
            ends = [size + end for end in accumulate(sizes)]
            first = first[: max(bisect_right(ends, size_max), 0 if entries else 1)]
            taken = sum(sizes[: len(first)])
        for _ in first:
            waiting.popleft()
        entries += first
        self._waiting_bytes -= taken

    def _take_queued(self, room: int, size: int, entries: list[Entry], blocked_keys: set[Hashable]) -> int:
        """Take entries of queues that are ready; return the size of all entries.

        A queue that has more entries waits for the end of this request.
        """
        kept: list[Hashable] = []
        size_max, start_size = self._settings.max_batch_size_in_bytes, size
        is_full = False
        while self._ready and not is_full:
            key = self._ready.popleft()
            queue = self._queues.get(key)
            if queue is None or key in self._keys_in_flight:
                continue  # it is ready again when the request has ended
            if key in blocked_keys:
                kept.append(key)
                continue
            taken = 0
            while queue and (self._keeps_order or not taken):
                if len(entries) >= room or (entries and size + queue[0].size > size_max):
                    is_full = True
                    break
                entry = queue.popleft()
                entries.append(entry)
                size += entry.size
                taken += 1
                if self._last.get(key) is entry:
                    del self._last[key]
            self._queued -= taken
            if not queue:
                del self._queues[key]
            if taken:
                if not self._keeps_order:
                    blocked_keys.add(key)
            elif queue:
                kept.append(key)
        self._ready.extendleft(reversed(kept))
        self._waiting_bytes -= size - start_size
        return size

    def _take_waiting(self, room: int, size: int, entries: list[Entry], blocked_keys: set[Hashable]) -> None:
        """Take entries from the front. Those whose keys must wait join the queues of these."""
        waiting, last, queues = self._waiting, self._last, self._queues
        size_max, start_size = self._settings.max_batch_size_in_bytes, size
        in_flight, is_alone = self._keys_in_flight, not self._keeps_order
        while waiting and len(entries) < room:
            entry = waiting[0]
            key = entry.key
            if key is not None and (key in in_flight or key in blocked_keys or key in queues):
                queues.setdefault(key, deque()).append(waiting.popleft())
                self._queued += 1
                continue
            if entries and size + entry.size > size_max:
                break
            entries.append(waiting.popleft())
            size += entry.size
            if key is not None:
                if is_alone:
                    blocked_keys.add(key)
                if last and last.get(key) is entry:
                    del last[key]
        self._waiting_bytes -= size - start_size

    def extend_again(self, entries: Sequence[Entry], again: Iterable[int]) -> list[int]:
        """Return the positions of the entries of a request to send again: those given, and what must follow them.

        An entry must not precede an earlier entry of its key, so it is sent again with it.
        """
        chosen = set(again)
        if not self._keeps_order or not chosen:
            return sorted(chosen)
        keys = set()
        for number, entry in enumerate(entries):
            if number in chosen:
                keys.add(entry.key)
            elif entry.key is not None and entry.key in keys:
                chosen.add(number)
        return sorted(chosen)

    def next_due_ms(self, now_ms: float) -> float | None:
        """Return when to call `take` again although nothing is added and no request ends; None for never.

        Args:
            now_ms: the time of the last call of `take`, which returned nothing. Delays that end before it are left
                out, since something else holds their entries back.
        """
        if not self._room():
            return None
        times = [entry.not_before_ms for entry in self._again]
        if self._waiting:
            times.append(self._waiting[0].since_ms + self._settings.max_time_in_buffer_ms)
        later = [time for time in times if time > now_ms]
        return min(later) if later else None

    def complete(
        self, entries: Sequence[Entry], again: Iterable[Entry], now_ms: float, delay_ms: float = 0, spread: float = 1
    ) -> None:
        """Note the end of a request.

        Args:
            entries: all entries of the request.
            again: the entries that were not accepted, to be sent again.
            now_ms: the time.
            delay_ms: the least delay until they are sent again, for example because the service asked for it.
            spread: what delays are multiplied by, so that the subtasks of a sink do not all come back at once.
        """
        self.requests_in_flight -= 1
        self.entries_in_flight -= len(entries)
        if self._has_keys:
            keys = {entry.key for entry in entries if entry.key is not None}
            self._keys_in_flight -= keys
            self._ready.extend(key for key in keys if key in self._queues)
        failed = list(again)
        if not failed:
            self._limit = min(self._entries_max, self._limit + INCREASE)
            return
        self._limit = max(1.0, self._limit * DECREASE)
        settings = self._settings
        for entry in failed:
            doubled = min(settings.retry_delay_max_ms, settings.retry_delay_ms * 2.0 ** min(entry.attempts - 1, 60))
            entry.not_before_ms = now_ms + spread * max(delay_ms, doubled)
        self._again = sorted([*self._again, *failed], key=lambda entry: entry.number)
