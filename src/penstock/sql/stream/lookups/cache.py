"""Caches of looked-up rows, and lookup readers that add a cache, retries or a reload to a connector's reader.

`RowCache` keeps rows so that the same keys need not be looked up again. All rows are in one Arrow table, and each key
has a contiguous range of it, so one kernel assembles an answer. Rows of evicted keys remain until they outnumber the
other rows.

`ReloadingReader` is a fully cached table that is reloaded from time to time. The first load is part of `open()`. Later
loads run in their own thread while the previous rows still serve lookups; the first lookup after a load uses the new
rows. If the load fails, that lookup fails.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from datetime import tzinfo
from time import sleep
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.sql.stream.lookups.pairing import merged
from penstock.sql.stream.lookups.settings import CacheSettings, LookupSettings, Reload
from penstock.sql.tables.connector import AsyncLookupReader, HeldTable, LookedUp, LookupReader, RowsByKey
from penstock.state.equality import needs_canonical
from penstock.state.keys import with_one_nan

#: Fields of an entry: the start and number of the key's rows, when they were cached and when last used (ms).
_START, _COUNT, _WRITTEN, _ASKED = range(4)
_CHUNKS_MAX: Final = 64
_SPARE_ROWS: Final = 1024


class Hits(NamedTuple):
    """The keys that are not cached, and their numbers as a numpy array; the rows of the cached keys, or None."""

    absent: list[Any]
    places: Any
    rows: LookedUp | None


class RowCache:
    """Caches the rows of keys. `now_ms` is the clock; the least recently used key is evicted first."""

    def __init__(self, settings: CacheSettings, now_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._now_ms = now_ms
        self._entries: OrderedDict[Any, list[int]] = OrderedDict()
        self._rows: pa.Table | None = None
        self._live = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def rows_held(self) -> int:
        """The number of rows in memory, including rows of evicted keys."""
        return 0 if self._rows is None else int(self._rows.num_rows)

    def find(self, keys: pa.RecordBatch) -> Hits:
        """Return the cached rows of these keys."""
        now = self._now_ms()
        known = list(zip(*map(_key_values, keys.columns), strict=True))
        here, absent, ranges = [], [], []
        for number, key in enumerate(known):
            entry = self._entries.get(key)
            if entry is None or self._expired(entry, now):
                absent.append(number)
                continue
            entry[_ASKED] = now
            self._entries.move_to_end(key)
            here.append(number)
            ranges.append(entry)
        rows = self._gather_rows(np.array(here, np.int64), ranges) if here else None
        return Hits([known[number] for number in absent], np.array(absent, np.int64), rows)

    def _gather_rows(self, key_numbers: Any, ranges: list[list[int]]) -> LookedUp:
        starts, counts = (np.array([entry[part] for entry in ranges], np.int64) for part in (_START, _COUNT))
        assert self._rows is not None
        table = self._rows.take(pa.array(_ranges(starts, counts)))
        arrays = [
            column.combine_chunks() if column.num_chunks else pa.array([], column.type)
            for column in table.itercolumns()
        ]
        rows = pa.RecordBatch.from_arrays(arrays, table.schema.names)
        return LookedUp(rows, pa.array(np.repeat(key_numbers, counts)))

    def hold(self, keys: list[Any], answer: LookedUp) -> None:
        """Cache the rows of these keys."""
        now = self._now_ms()
        added = pa.Table.from_batches([answer.rows])
        before = 0 if self._rows is None else self._rows.num_rows
        self._rows = added if self._rows is None else pa.concat_tables([self._rows, added])
        numbers = answer.key_numbers.to_numpy(zero_copy_only=False)
        starts = np.searchsorted(numbers, np.arange(len(keys)), side="left")
        counts = np.searchsorted(numbers, np.arange(len(keys)), side="right") - starts
        for key, start, count in zip(keys, (starts + before).tolist(), counts.tolist(), strict=True):
            self._forget(key)
            if count or self._settings.holds_missing:
                self._entries[key] = [start, count, now, now]
                self._live += count
        self._evict()

    def _expired(self, entry: list[int], now: int) -> bool:
        write, access = self._settings.after_write_ms, self._settings.after_access_ms
        return (write is not None and now - entry[_WRITTEN] >= write) or (
            access is not None and now - entry[_ASKED] >= access
        )

    def _forget(self, key: Any) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._live -= entry[_COUNT]

    def _evict(self) -> None:
        """Evict expired and surplus keys, and compact the table if too many rows belong to evicted keys."""
        now, most = self._now_ms(), self._settings.max_keys
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if not self._expired(entry, now) and (most is None or len(self._entries) <= most):
                break
            self._forget(key)
        assert self._rows is not None
        if self._rows.num_rows > 2 * self._live + _SPARE_ROWS:
            self._compact()
        elif self._rows.column(0).num_chunks > _CHUNKS_MAX:
            self._rows = self._rows.combine_chunks()

    def _compact(self) -> None:
        entries = list(self._entries.values())
        counts = np.array([entry[_COUNT] for entry in entries], np.int64)
        starts = np.array([entry[_START] for entry in entries], np.int64)
        begins = np.cumsum(counts) - counts
        assert self._rows is not None
        self._rows = self._rows.take(pa.array(_ranges(starts, counts))).combine_chunks()
        for entry, begin in zip(entries, begins.tolist(), strict=True):
            entry[_START] = begin


def _key_values(column: pa.Array) -> list[Any]:
    """Return the values of a key column in canonical form, as dictionary keys."""
    values: list[Any] = column.to_pylist()
    return list(map(with_one_nan, values)) if needs_canonical(column.type) else values


def _ranges(starts: Any, counts: Any) -> Any:
    """Return the row numbers of all ranges, one range after another."""
    return np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())


def wrap_reader(
    reader: LookupReader,
    settings: LookupSettings,
    now_ms: Callable[[], int],
    wait: Callable[[float], None] = sleep,
) -> LookupReader:
    """Return a reader with the cache and retries of the settings. `wait` sleeps for a number of seconds."""
    if settings.error_retries:
        reader = _Repeating(reader, settings.error_retries)
    if settings.cache is not None:
        reader = CachedReader(reader, RowCache(settings.cache, now_ms))
    return _Insisting(reader, settings, wait) if settings.miss_retries else reader


def wrap_async_reader(
    reader: AsyncLookupReader, settings: LookupSettings, now_ms: Callable[[], int]
) -> AsyncLookupReader:
    """Return a reader with the cache and retries of the settings; the operator retries keys without rows."""
    if settings.error_retries:
        reader = _AsyncRepeating(reader, settings.error_retries)
    return reader if settings.cache is None else CachedAsyncReader(reader, RowCache(settings.cache, now_ms))


class _Around(LookupReader):
    def __init__(self, reader: LookupReader) -> None:
        self._reader = reader

    def open(self) -> None:
        """See `LookupReader`."""
        self._reader.open()

    def close(self) -> None:
        """See `LookupReader`."""
        self._reader.close()


class _AsyncAround(AsyncLookupReader):
    def __init__(self, reader: AsyncLookupReader) -> None:
        self._reader = reader

    async def open(self) -> None:
        """See `AsyncLookupReader`."""
        await self._reader.open()

    async def close(self) -> None:
        """See `AsyncLookupReader`."""
        await self._reader.close()


class CachedReader(_Around):
    """Looks up only keys that are not cached."""

    def __init__(self, reader: LookupReader, cache: RowCache) -> None:
        super().__init__(reader)
        self._cache = cache

    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `LookupReader`."""
        hits = self._cache.find(keys)
        more = self._reader.lookup(keys.take(pa.array(hits.places))) if hits.absent else None
        return _complete_hits(self._cache, hits, more)


class CachedAsyncReader(_AsyncAround):
    """The asynchronous form of `CachedReader`."""

    def __init__(self, reader: AsyncLookupReader, cache: RowCache) -> None:
        super().__init__(reader)
        self._cache = cache

    async def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `AsyncLookupReader`."""
        hits = self._cache.find(keys)
        more = await self._reader.lookup(keys.take(pa.array(hits.places))) if hits.absent else None
        return _complete_hits(self._cache, hits, more)


def _complete_hits(cache: RowCache, hits: Hits, more: LookedUp | None) -> LookedUp:
    """Cache the new rows, and return the answer for all keys."""
    if more is None:
        assert hits.rows is not None
        return hits.rows
    cache.hold(hits.absent, more)
    if hits.rows is not None:
        return merged(hits.rows, more, hits.places)
    return more


class _Repeating(_Around):
    """Retries failed calls immediately, a limited number of times."""

    def __init__(self, reader: LookupReader, retries: int) -> None:
        super().__init__(reader)
        self._retries = retries

    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `LookupReader`."""
        for _ in range(self._retries):
            try:
                return self._reader.lookup(keys)
            except Exception:  # noqa: BLE001 - the last error is raised
                continue
        return self._reader.lookup(keys)


class _AsyncRepeating(_AsyncAround):
    """The asynchronous form of `_Repeating`."""

    def __init__(self, reader: AsyncLookupReader, retries: int) -> None:
        super().__init__(reader)
        self._retries = retries

    async def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `AsyncLookupReader`."""
        for _ in range(self._retries):
            try:
                return await self._reader.lookup(keys)
            except Exception:  # noqa: BLE001 - the last error is raised
                continue
        return await self._reader.lookup(keys)


class _Insisting(_Around):
    """Looks up keys without rows again after a delay, a limited number of times."""

    def __init__(self, reader: LookupReader, settings: LookupSettings, wait: Callable[[float], None]) -> None:
        super().__init__(reader)
        self._settings = settings
        self._wait = wait

    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `LookupReader`."""
        answer = self._reader.lookup(keys)
        for _ in range(self._settings.miss_retries):
            key_numbers = np.setdiff1d(np.arange(keys.num_rows), answer.key_numbers.to_numpy(zero_copy_only=False))
            if not len(key_numbers):
                break
            self._wait(self._settings.miss_delay_ms / 1000)
            answer = merged(answer, self._reader.lookup(keys.take(pa.array(key_numbers))), key_numbers)
        return answer


#: how long to wait (ms) before checking whether a load has ended
_LOOK_MS: Final = 1_000


def _one_thread() -> Executor:
    return ThreadPoolExecutor(1, "penstock-lookup")


class ReloadingReader(LookupReader):
    """See the module docstring.

    Args:
        table: the cached table.
        reload: when it is reloaded.
        now_ms: the clock.
        zone: the time zone of times of day.
        threads: creates the executor that runs loads.
    """

    def __init__(
        self,
        table: HeldTable,
        reload: Reload,
        now_ms: Callable[[], int],
        zone: tzinfo,
        threads: Callable[[], Executor] = _one_thread,
    ) -> None:
        self._table = table
        self._reload = reload
        self._now_ms = now_ms
        self._zone = zone
        self._threads = threads
        self._thread: Executor | None = None
        self._due_ms = 0
        self._look_ms = 0
        self._ended_ms = 0
        self._reading: Future[RowsByKey] | None = None

    def open(self) -> None:
        """Load the table for the first time."""
        begin = self._now_ms()
        self._table.open()
        is_rate = getattr(self._reload, "is_fixed_rate", False)
        self._due_ms = self._reload.first(begin if is_rate else self._now_ms(), self._zone)

    def due_ms(self) -> int:
        """Return when to call `go_on` next (ms since 1970)."""
        return self._due_ms if self._reading is None else self._look_ms

    def go_on(self) -> None:
        """Switch to rows loaded in the meantime, and start a reload if it is due."""
        now_ms = self._now_ms()
        self._take()
        self._look_ms = now_ms + _LOOK_MS
        if self._reading is None and now_ms >= self._due_ms:
            if self._thread is None:
                self._thread = self._threads()
            self._reading = self._thread.submit(self._read)

    def _read(self) -> RowsByKey:
        rows = self._table.read()
        self._ended_ms = self._now_ms()
        return rows

    def _take(self) -> None:
        """Switch to the loaded rows if the load has ended."""
        reading = self._reading
        if reading is not None and reading.done():
            self._reading = None
            self._table.hold(reading.result())
            self._due_ms = self._reload.next(self._due_ms, self._ended_ms, self._zone)

    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `LookupReader`."""
        self.go_on()
        return self._table.lookup(keys)

    def close(self) -> None:
        """Drop the rows, and wait for a running load to end."""
        self._table.close()
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
