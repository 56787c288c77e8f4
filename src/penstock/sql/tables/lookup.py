"""Tables that are queried by key instead of being read whole, for lookup joins.

An operator collects the keys of a batch and makes one call. The answer has the rows of all keys and, for each row, the
number of its key, so the operator can join both with Arrow's kernels:

    found = reader.lookup(keys)
    joined = left.take(found.key_numbers)       # beside the columns of found.rows
    missing = rows of `left` whose number is not among found.key_numbers

A bounded table read as a whole and cached by key: a lookup for every connector with bounded tables.

A table enables it with `lookup.cache` = `FULL`; the options `lookup.full-cache.*` set when it is reloaded.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.runtime.columns.batch import as_columns
from penstock.runtime.connector import Boundedness, InputStatus, Source
from penstock.runtime.records import Batch
from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.nodes import INSERTS, RowSchema, Scan
from penstock.sql.tables.tables import TableReader, column_names
from penstock.state.equality import canonical_column
from penstock.state.key_columns import distinct_keys


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


#: the option that selects how much of a table is cached
CACHE: Final = "lookup.cache"
_ABOUT_HOLDING: Final = "lookup.full-cache."
#: the number of rows requested from a source at a time
_ROWS_AT_ONCE: Final = 1 << 16
_MS_A_SECOND: Final = 1_000


class ReadingStopped(Exception):
    """Raised when the table being read is no longer needed."""


class _Alone:
    """Hosts the enumerator and the only reader of a source. Calls are queued until `work` runs them."""

    subtask_index = 0
    parallelism = 1

    def __init__(self) -> None:
        self.splits: list[Any] = []
        self.requests = 0
        self.is_last = False
        self._waiting: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = deque()

    def now_ms(self) -> int:
        return int(time.time() * _MS_A_SECOND)

    def request_split(self) -> None:
        self.requests += 1

    def count(self, name: str, increment: int = 1) -> None:
        """Do nothing: metrics of a cached table are not reported."""

    def gauge(self, name: str, function: Callable[[], int | float]) -> None:
        """Do nothing: metrics of a cached table are not reported."""

    def collect_side(self, tag_id: str, batch: Batch) -> None:
        """Do nothing: a table has no side outputs."""

    def open_split(self, split_id: str) -> None:
        """Do nothing: watermarks do not matter."""

    def close_split(self, split_id: str) -> None:
        """Do nothing: watermarks do not matter."""

    def assign_split(self, split: Any, subtask_index: int) -> None:
        self.splits.append(split)

    def signal_no_more_splits(self, subtask_index: int) -> None:
        self.is_last = True

    def call_async(
        self, work: Callable[[], Any], handler: Callable[[Any, BaseException | None], None], delay_ms: int = 0
    ) -> None:
        self._waiting.append((work, handler))

    def work(self) -> bool:
        """Run the queued calls; return whether there were any."""
        had = bool(self._waiting)
        while self._waiting:
            work, handler = self._waiting.popleft()
            handler(work(), None)
        return had


def read_whole(source: Source[Any, Any], is_stopped: Callable[[], bool] = lambda: False) -> list[pa.RecordBatch]:
    """Read all rows of a bounded source of columns in this thread. Raises `ReadingStopped` if `is_stopped` says so."""

    def check() -> None:
        if is_stopped():
            raise ReadingStopped

    source.prepare(check)
    host = _Alone()
    enumerator = source.create_enumerator(host, None)
    reader = source.create_reader(host)
    batches: list[pa.RecordBatch] = []
    try:
        enumerator.start()
        host.work()
        reader.start()
        while True:
            check()
            answer = reader.poll_next(_ROWS_AT_ONCE)
            if answer is InputStatus.END_OF_INPUT:
                return batches
            if isinstance(answer, Batch):
                batches.append(as_columns(answer, "look-up").columns)
            elif not _served(host, enumerator, reader):
                time.sleep(reader.retry_after_ms() / _MS_A_SECOND)
    finally:
        reader.close()
        enumerator.close()


def _served(host: _Alone, enumerator: Any, reader: Any) -> bool:
    """Pass messages between enumerator and reader; return whether there were any."""
    served = host.work()
    while host.requests:
        host.requests -= 1
        enumerator.handle_split_request(0)
        host.work()
        served = True
    if host.splits:
        reader.add_splits(host.splits)
        host.splits = []
        served = True
    if host.is_last:
        reader.no_more_splits()
        host.is_last = False
        served = True
    return served


class RowsByKey:
    """Rows sorted by key, with the location of each key's rows. Immutable, so threads may share it."""

    def __init__(self, batches: Sequence[pa.RecordBatch], schema: pa.Schema, key: Sequence[int]) -> None:
        names = column_names(len(schema))
        batches = [batch.rename_columns(names) for batch in batches]
        table = pa.Table.from_batches(batches, schema if not batches else None).rename_columns(names)
        self._key = tuple(key)
        keys = [_comparable(_whole(table.column(index))) for index in self._key]
        valid = np.ones(table.num_rows, np.bool_)
        for column in keys:
            if column.null_count:
                valid &= column.is_valid().to_numpy(zero_copy_only=False)
        if not valid.all():
            indices = pa.array(np.flatnonzero(valid))
            table, keys = table.take(indices), [column.take(indices) for column in keys]
        #: the distinct keys, if the key is one integer column; otherwise None, and `_numbers` holds them
        self._sorted: Any = None
        self._numbers: dict[Any, int] = {}
        if len(keys) == 1 and pa.types.is_integer(keys[0].type):
            self._sorted, codes = np.unique(keys[0].to_numpy(), return_inverse=True)
            count = len(self._sorted)
        else:
            codes, distinct = distinct_keys(keys)
            self._numbers = {key: number for number, key in enumerate(distinct)}
            count = len(distinct)
        columns = [_whole(column) for column in table.itercolumns()]
        self._rows = pa.RecordBatch.from_arrays(columns, names).take(pa.array(np.argsort(codes, kind="stable")))
        self._counts = np.bincount(codes, minlength=count)
        self._starts = np.cumsum(self._counts) - self._counts

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def find(self, keys: pa.RecordBatch) -> LookedUp:
        """Return the rows of keys; see `LookupReader`."""
        numbers = self._find_numbers(keys)
        known = np.flatnonzero(numbers >= 0)
        counts = self._counts[numbers[known]]
        ends = np.cumsum(counts)
        indices = np.repeat(self._starts[numbers[known]] - ends + counts, counts) + np.arange(counts.sum())
        rows = self._rows.take(pa.array(indices))
        return LookedUp(rows, pa.array(np.repeat(known, counts), pa.int64()))

    def _find_numbers(self, keys: pa.RecordBatch) -> Any:
        """Return the number of each key in this table; -1 for unknown keys."""
        columns = [_comparable(column) for column in keys.columns]
        if self._sorted is not None:
            key_values = columns[0].fill_null(0).to_numpy()
            positions = np.searchsorted(self._sorted, key_values)
            positions[positions == len(self._sorted)] = 0
            is_here = (
                self._sorted[positions] == key_values if len(self._sorted) else np.zeros(len(key_values), np.bool_)
            )
            valid = columns[0].is_valid().to_numpy(zero_copy_only=False)
            return np.where(is_here & valid, positions, -1)
        codes, distinct = distinct_keys(columns)
        get = self._numbers.get
        known = np.fromiter((get(key, -1) for key in distinct), np.int64, len(distinct))
        return known[codes]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def _comparable(column: pa.Array) -> pa.Array:
    """Return values in canonical form, and timestamps as integers: Python's own have no nanoseconds."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return column.view(pa.int64())
    return column.view(pa.int32()) if pa.types.is_time32(kind) else canonical_column(column)


class HeldTable(LookupReader):
    """Reads a table when it opens, and then answers from memory.

    Args:
        source: reads the table; must be bounded.
        schema: the columns of the source.
        key: the positions of the key columns.
    """

    def __init__(self, source: Source[Any, Any], schema: pa.Schema, key: Sequence[int]) -> None:
        self._source = source
        self._schema = schema
        self._key = tuple(key)
        self._held: RowsByKey | None = None
        self._is_closed = False

    def open(self) -> None:
        """Read the table."""
        self._held = self.read()

    def read(self) -> RowsByKey:
        """Read the current table. Changes no state, so it may run alongside `lookup` in another thread.

        Raises `ReadingStopped` if the reader is closed in the meantime.
        """
        return RowsByKey(read_whole(self._source, lambda: self._is_closed), self._schema, self._key)

    def hold(self, rows: RowsByKey) -> None:
        """Use these rows for lookups from now on."""
        self._held = rows

    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `LookupReader`."""
        assert self._held is not None
        return self._held.find(keys)

    def close(self) -> None:
        """Release the rows, and stop a running read."""
        self._is_closed = True
        self._held = None


def holds_all(options: Mapping[str, str]) -> bool:
    """Return whether a table is cached as a whole."""
    return options.get(CACHE, "").upper() == "FULL"


def without_holding(options: Mapping[str, str]) -> Mapping[str, str]:
    """Return a table's options without the options of the full cache, which connectors need not know."""
    if not holds_all(options):
        return options
    return {key: value for key, value in options.items() if key != CACHE and not key.startswith(_ABOUT_HOLDING)}


def held_lookup(reader: TableReader, scan: Scan, key: Sequence[int]) -> TableLookup:
    """Return the lookup of a cached table. Raises `ValidationError` if it is unbounded or not append-only."""
    title = ".".join(scan.path)
    if reader.source is None or reader.source.boundedness is not Boundedness.BOUNDED:
        raise ValidationError(
            f"table {title} cannot be held for look-ups, because it does not end: only a bounded table can have "
            f"'{CACHE}' = 'FULL'"
        )
    if reader.changes != INSERTS:
        raise ValidationError(
            f"table {title} cannot be held for look-ups, because its rows are updated or deleted: '{CACHE}' = 'FULL' "
            "takes tables whose rows only come"
        )
    schema = pa.schema([(f"c{at}", arrow_type(column.type)) for at, column in enumerate(scan.schema)])
    return TableLookup(tuple(key), partial(HeldTable, reader.source, schema, tuple(key)))
