"""A cache of looked-up rows, so that the same keys need not be looked up again.

All rows are in one Arrow table, and each key has a contiguous range of it, so one kernel assembles an answer. Rows of
evicted keys remain until they outnumber the other rows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.state.equality import needs_canonical
from penstock.state.keys import with_one_nan
from penstock.table.connectors.lookup import LookedUp
from penstock.table.streaming.lookups.lookup_settings import CacheSettings

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
