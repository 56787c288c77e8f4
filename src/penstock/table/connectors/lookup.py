"""Tables that are queried by key instead of being read whole, for lookup joins.

An operator collects the keys of a batch and makes one call. The answer has the rows of all keys and, for each row, the
number of its key, so the operator can join both with Arrow's kernels:

    found = reader.lookup(keys)
    joined = left.take(found.key_numbers)       # beside the columns of found.rows
    missing = rows of `left` whose number is not among found.key_numbers
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from penstock.table.connectors.tables import column_names
from penstock.table.plan.row_schema import RowSchema


class LookedUp(NamedTuple):
    """The rows found for a batch of keys.

    Attributes:
        rows: columns named c0, c1 and so on, as a `TableReader` returns them.
        key_numbers: for each row, the position of its key in the batch; 64-bit integers that never decrease.
    """

    rows: pa.RecordBatch
    key_numbers: pa.Array


class LookupReader(ABC):
    """A synchronous lookup. Created where it is used, and used by one thread."""

    def open(self) -> None:  # noqa: B027 - most have nothing to open
        """Connect to the external system; called once, before the first keys."""

    @abstractmethod
    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """Return the rows of these keys, which have one column per key column in the order of `TableLookup.key`.

        A key with NULL has no rows. Duplicate keys each get their rows.
        """

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Release all resources; called on every path."""


class AsyncLookupReader(ABC):
    """An asynchronous lookup with several batches of keys in flight. Runs in one event loop."""

    async def open(self) -> None:  # noqa: B027 - most have nothing to open
        """Connect to the external system; awaited once, before the first keys."""

    @abstractmethod
    async def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `LookupReader.lookup`."""

    async def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Release all resources; awaited on every path."""


@dataclass(frozen=True, slots=True)
class TableLookup:
    """How to look up rows by key. It travels with the job; readers are created in the workers.

    Attributes:
        key: the indexes of the key columns among the table's stored columns.
        create_reader: creates a synchronous reader; None if lookups are only asynchronous.
        create_async_reader: creates an asynchronous reader; None if lookups are only synchronous.
    """

    key: tuple[int, ...]
    create_reader: Callable[[], LookupReader] | None = None
    create_async_reader: Callable[[], AsyncLookupReader] | None = None


class ColumnsLookup(LookupReader):
    """Looks up rows in columns held in memory, for small tables and for tests.

    Args:
        columns: the rows, in the order of the table's stored columns.
        key: the indexes of the key columns.
    """

    def __init__(self, columns: pa.Table, key: Sequence[int]) -> None:
        self._names = column_names(columns.num_columns)
        self._keys = [self._names[index] for index in key]
        self._columns = columns.rename_columns(self._names)

    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `LookupReader`."""
        key_table = pa.Table.from_batches([keys]).rename_columns(self._keys)
        key_table = key_table.append_column("$key", pa.array(range(keys.num_rows), pa.int64()))
        numbered = self._columns.append_column("$row", pa.array(range(self._columns.num_rows), pa.int64()))
        key_columns = numbered.select([*self._keys, "$row"])
        joined = key_table.join(key_columns, self._keys, join_type="inner").sort_by(
            [("$key", "ascending"), ("$row", "ascending")]
        )
        rows = self._columns.take(joined["$row"]).combine_chunks()
        arrays = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in rows.itercolumns()]
        numbers = joined["$key"].combine_chunks()
        return LookedUp(pa.RecordBatch.from_arrays(arrays, self._names), numbers)


def key_schema(schema: RowSchema, key: Sequence[int]) -> RowSchema:
    """Return the schema of keys."""
    return RowSchema(tuple(schema[index] for index in key))
