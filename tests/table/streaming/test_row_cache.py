"""A cache of looked up rows gives what the table gave, and stays small."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from penstock.sql.stream.lookups.cache import CachedReader, RowCache
from penstock.sql.stream.lookups.settings import CacheSettings
from penstock.sql.tables.connector import ColumnsLookup, LookedUp, LookupReader

TABLE = pa.table({"number": [key for key in range(20) for _ in range(key % 4)], "text": [str(n) for n in range(30)]})


class Reader(LookupReader):
    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        return ColumnsLookup(TABLE, [0]).lookup(keys)


def asked(reader: LookupReader, keys: list[int]) -> list[Any]:
    found = reader.lookup(pa.record_batch([pa.array(keys, pa.int64())], ["c0"]))
    return list(zip(found.key_numbers.to_pylist(), *found.rows.to_pydict().values(), strict=True))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 25), min_size=1, max_size=12, unique=True), max_size=30),
    st.integers(1, 12),
    st.booleans(),
)
def test_answers_are_those_of_the_table(batches: list[list[int]], max_keys: int, holds_missing: bool) -> None:
    cache = RowCache(CacheSettings(max_keys, holds_missing=holds_missing), lambda: 0)
    reader = CachedReader(Reader(), cache)
    for keys in batches:
        assert asked(reader, keys) == asked(Reader(), keys)
        assert len(cache) <= max_keys


@pytest.mark.slow
def test_rows_of_keys_that_have_left_leave() -> None:
    cache = RowCache(CacheSettings(4), lambda: 0)
    reader = CachedReader(Reader(), cache)
    for start in range(3000):
        keys = [start % 20, (start + 7) % 20]
        assert asked(reader, keys) == asked(Reader(), keys)
    assert cache.rows_held < 2000
