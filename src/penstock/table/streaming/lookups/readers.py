"""Lookup readers that add a cache and retries to a connector's reader."""

from __future__ import annotations

from collections.abc import Callable
from time import sleep

import numpy as np
import pyarrow as pa

from penstock.table.connectors.lookup import AsyncLookupReader, LookedUp, LookupReader
from penstock.table.streaming.lookups.lookup_settings import LookupSettings
from penstock.table.streaming.lookups.pairing import merged
from penstock.table.streaming.lookups.row_cache import Hits, RowCache


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
