"""Tables that are asked for the rows of keys, instead of being read whole: what a look-up join needs.

An operator collects the keys of a batch and asks once. The answer has the rows of all keys, and for each row the number
of its key, so that the operator can put both together by Arrow's kernels:

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
    """Rows that belong to keys.

    Attributes:
        rows: columns as a `TableReader` gives them, named c0, c1 and on.
        key_numbers: for each row the place of its key in the batch of keys, 64-bit integers that never go down.
    """

    rows: pa.RecordBatch
    key_numbers: pa.Array


class LookupReader(ABC):
    """Answers at once. Made where it is used, and used by one thread."""

    def open(self) -> None:  # noqa: B027 - most have nothing to open
        """Connect to what is asked; called once, before the first keys."""

    @abstractmethod
    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """The rows of these keys, a column for each key column in the order of `TableLookup.key`.

        A key with NULL has no rows. Keys may be there twice: each gets its rows.
        """

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Release what it holds; called on every path."""


class AsyncLookupReader(ABC):
    """Answers later, so that several batches of keys are on their way at once. Runs in one event loop."""

    async def open(self) -> None:  # noqa: B027 - most have nothing to open
        """Connect to what is asked; awaited once, before the first keys."""

    @abstractmethod
    async def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """As `LookupReader.lookup`."""

    async def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Release what it holds; awaited on every path."""


@dataclass(frozen=True, slots=True)
class TableLookup:
    """How the rows of keys are found. It travels with the job; readers are made in the workers.

    Attributes:
        key: the places of the columns that keys have, among the stored columns of the table.
        create_reader: makes a reader that answers at once; None where there is only the other.
        create_async_reader: makes one that answers later; None where there is none.
    """

    key: tuple[int, ...]
    create_reader: Callable[[], LookupReader] | None = None
    create_async_reader: Callable[[], AsyncLookupReader] | None = None


class ColumnsLookup(LookupReader):
    """Finds rows in columns that are held in memory: for small tables, and for tests.

    Args:
        columns: the rows, in the order of the table's stored columns.
        key: the places of the key columns.
    """

    def __init__(self, columns: pa.Table, key: Sequence[int]) -> None:
        self._names = column_names(columns.num_columns)
        self._keys = [self._names[place] for place in key]
        self._columns = columns.rename_columns(self._names)

    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `LookupReader`."""
        asked = pa.Table.from_batches([keys]).rename_columns(self._keys)
        asked = asked.append_column("$key", pa.array(range(keys.num_rows), pa.int64()))
        numbered = self._columns.append_column("$row", pa.array(range(self._columns.num_rows), pa.int64()))
        places = numbered.select([*self._keys, "$row"])
        found = asked.join(places, self._keys, join_type="inner").sort_by(
            [("$key", "ascending"), ("$row", "ascending")]
        )
        rows = self._columns.take(found["$row"]).combine_chunks()
        arrays = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in rows.itercolumns()]
        numbers = found["$key"].combine_chunks()
        return LookedUp(pa.RecordBatch.from_arrays(arrays, self._names), numbers)


def key_schema(schema: RowSchema, key: Sequence[int]) -> RowSchema:
    """The columns of keys."""
    return RowSchema(tuple(schema[place] for place in key))
