"""A table in memory that is asked and answers later."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.sql.tables.connector import AsyncLookupReader, ColumnsLookup, LookedUp


class LaterLookup(AsyncLookupReader):
    """As `ColumnsLookup`."""

    def __init__(self, columns: pa.Table, key: Sequence[int]) -> None:
        self._columns = ColumnsLookup(columns, key)

    async def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """The rows of keys."""
        return self._columns.lookup(keys)
