"""`TableConnector`, the interface of table connectors; the options of a table; and lookups by key for lookup joins.

A connector reads and writes a table according to its options. `TableOptions` parses the options of one table as a
connector declares them.

`TableLookup` is for tables that are queried by key instead of being read whole. An operator collects the keys of a
batch and makes one call. The answer (`LookedUp`) has the rows of all keys and, for each row, the number of its key, so
the operator can join both with Arrow's kernels:

    found = reader.lookup(keys)
    joined = left.take(found.key_numbers)       # beside the columns of found.rows
    missing = rows of `left` whose number is not among found.key_numbers

`HeldTable` is a bounded table read as a whole and cached by key: a lookup for every connector with bounded tables. A
table enables it with `lookup.cache` = `FULL`; the options `lookup.full-cache.*` set when it is reloaded.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import ConfigurationError, ContractError, UnsupportedError
from penstock.base.secrets import remember
from penstock.codecs.arrow_columns import exact_cast
from penstock.connectors.collection import ColumnsSource
from penstock.runtime.columns import as_columns
from penstock.runtime.connector import Boundedness, InputStatus, Source
from penstock.runtime.records import Batch
from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import BooleanType, DataType, DateType, IntegralType, VarCharType
from penstock.sql.functions.value_casts import supports_cast
from penstock.sql.logical.nodes import INSERTS, RowSchema, Scan, Write
from penstock.sql.tables.tables import TableReader, TableScan, TableWriter, WholeScan, column_names
from penstock.sql.typed import Typed
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
        repeats: whether readers repeat failed calls themselves, as `lookup.max-retries` says.
    """

    key: tuple[int, ...]
    create_reader: Callable[[], LookupReader] | None = None
    create_async_reader: Callable[[], AsyncLookupReader] | None = None
    repeats: bool = False


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
#: the beginning of the options by which a table of any connector is searched for vectors
ABOUT_VECTORS: Final = "vector."
#: the number of rows requested from a source at a time
_ROWS_AT_ONCE: Final = 1 << 16
_MS_A_SECOND: Final = 1_000


class ReadingStopped(Exception):
    """Raised when the table being read is no longer needed."""


class _Alone:
    """Hosts the enumerator and the only reader of a source. Calls are queued until `work` runs them."""

    subtask_index = 0
    parallelism = 1
    receives_source_events = False

    def __init__(self) -> None:
        self.splits: list[Any] = []
        self.requests = 0
        self.is_last = False
        self._waiting: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = deque()

    def now_ms(self) -> int:
        return int(time.time() * _MS_A_SECOND)

    def request_split(self) -> None:
        self.requests += 1

    def send_source_event(self, event: Any) -> None:
        raise ContractError("a table that is cached reads splits that are known from the start, without events")

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
    """Return a table's options without those of the full cache and of vectors, which connectors need not know."""
    options = {key: value for key, value in options.items() if not key.startswith(ABOUT_VECTORS)}
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
            "takes append-only tables"
        )
    schema = pa.schema([(f"c{at}", arrow_type(column.type)) for at, column in enumerate(scan.schema)])
    return TableLookup(tuple(key), partial(HeldTable, reader.source, schema, tuple(key)))


T = TypeVar("T")

CONNECTOR: Final = ConfigOptions.key("connector").string_type().no_default_value()
FORMAT: Final = (
    ConfigOptions.key("format")
    .string_type()
    .no_default_value()
    .with_description("The format of rows; its own options are prefixed with its name, such as `csv.`.")
)


class TableOptions(Mapping[str, str]):
    """The options of a table as text, which `read` converts to typed values.

    Args:
        title: the table's name in error messages.
        values: the options by key.
        prefix: the prefix of each key; for a format, its name and a dot.
        zone: the session time zone.
    """

    #: what the options belong to, for messages
    what: ClassVar[str] = "table"

    def __init__(self, title: str, values: Mapping[str, str], prefix: str = "", zone: tzinfo = UTC) -> None:
        self.title = title
        self.zone = zone
        self._values = dict(values)
        remember(values)
        self._prefix = prefix

    def __getitem__(self, key: str) -> str:
        return self._values[self._prefix + key]

    def __iter__(self) -> Iterator[str]:
        return (key.removeprefix(self._prefix) for key in self._values if key.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def read(self, option: ConfigOption[T]) -> T:
        """Return the value of an option: durations in ms, memory sizes in bytes.

        Raises:
            ValidationError: if the value is invalid; it names the table, the option and the value.
        """
        text = self.get(option.key())
        if text is None:
            return option.default_value()
        try:
            return option.convert(text)
        except ConfigurationError as error:
            raise ValidationError(
                f"Invalid option of {self.what} {self.title}: {self._named(error, option)}"
            ) from error

    def required(self, option: ConfigOption[T | None]) -> T:
        """Return the value of a required option; raise `ValidationError` if it is missing."""
        value = self.read(option)
        if value is None:
            raise missing(self.title, [self._prefix + option.key()], self.what)
        return value

    def below(self, prefix: str) -> TableOptions:
        """Return the options whose keys begin with a prefix, without the prefix."""
        return TableOptions(self.title, self._values, self._prefix + prefix, self.zone)

    def refuse(self, reasons: Iterable[tuple[re.Pattern[str], str]]) -> None:
        """Raise `UnsupportedError` with the reason for an option that one of the patterns matches."""
        for key in self:
            for pattern, reason in reasons:
                if pattern.fullmatch(key):
                    raise UnsupportedError(
                        f"option '{self._prefix}{key}' of {self.what} {self.title} is not supported ({reason}): leave "
                        "it out"
                    )

    def wrong(self, key: str, reason: str) -> ValidationError:
        """Return the error for an option with an invalid value."""
        return ValidationError(f"Invalid value for option '{self._prefix}{key}' of {self.what} {self.title}: {reason}")

    def _named(self, error: ConfigurationError, option: ConfigOption[Any]) -> str:
        return str(error).replace(f"option {option.key()} ", f"option {self._prefix}{option.key()} ", 1)


def columns_scan(rows: pa.Table, schema: RowSchema) -> TableScan:
    """Return the scan of a small table whose rows are known while the statement is planned."""
    arrays = [exact_cast(_whole(rows.column(column.name)), arrow_type(column.type)) for column in schema]
    batch = pa.RecordBatch.from_arrays(arrays, column_names(len(arrays)))
    return WholeScan(TableReader(ColumnsSource(batch)))


def refuse_versions(options: TableOptions, given: Iterable[ConfigOption[Any]]) -> None:
    """Raise `ValidationError` if one of these options is set, which select an earlier version to read."""
    for option in given:
        if option.key() in options:
            raise options.wrong(option.key(), "rows are changed in the newest version of a table")


#: types of columns that PARTITION (…) of INSERT OVERWRITE may name
_STATIC: Final = (VarCharType, IntegralType, DateType, BooleanType)


def find_replaced_partition(write: Write) -> tuple[tuple[str, str], ...]:
    """Return the partition that INSERT OVERWRITE … PARTITION (…) replaces; empty without such a clause.

    Raises:
        UnsupportedError: for a column of a type whose values have several forms.
    """
    if not write.overwrites:
        return ()
    for name, _ in write.static_partition:
        kind = write.schema[write.schema.names.index(name)].type
        if not isinstance(kind, _STATIC):
            raise UnsupportedError(
                f"INSERT OVERWRITE of a partition by column '{name}' of type {kind} is not supported: leave out "
                "PARTITION, and select the value"
            )
    return write.static_partition


def missing(title: str, keys: Sequence[str], what: str = "table") -> ValidationError:
    """Return the error for missing required options."""
    return ValidationError(
        f"One or more required options are missing for {what} {title}. Missing required options are: {', '.join(keys)}"
    )


class TableConnector:
    """Base class of table connectors. A connector that only reads or only writes leaves out the other methods.

    A simple source implements `reader`, a source with abilities `scan`, a sink `writer`, and a connector that looks up
    rows by key `lookup`.
    """

    #: the value of the option `connector`
    name: ClassVar[str]
    #: the required options of a table, besides `connector`
    required_options: ClassVar[tuple[ConfigOption[Any], ...]] = ()
    #: the optional options of a table
    optional_options: ClassVar[tuple[ConfigOption[Any], ...]] = ()
    #: whether a table may be PARTITIONED BY columns
    takes_partitions: ClassVar[bool] = False
    #: whether a batch job may replace the contents of a table with INSERT OVERWRITE
    takes_overwrites: ClassVar[bool] = False
    #: what changes in the options of an unbounded table so that it is read up to its present end: a value for an option
    #: that is not set, or None to leave an option out
    options_up_to_now: ClassVar[Mapping[str, str | None]] = {}

    def reader(self, scan: Scan, options: TableOptions) -> TableReader:
        """Return the reader of a table."""
        raise ValidationError(
            f"Connector '{self.name}' can only be used as a sink. It cannot be used as a source: "
            f"table {'.'.join(scan.path)}"
        )

    def scan(self, scan: Scan, options: TableOptions) -> TableScan:
        """Return the scan of a table, which the planner may modify (see `tables`); by default it cannot."""
        return WholeScan(self.reader(scan, options))

    def lookup(self, scan: Scan, key: Sequence[int], options: TableOptions) -> TableLookup:
        """Return the lookup of rows by key. `key`: the positions of the key columns in the table."""
        raise ValidationError(
            "Processing-time temporal join is not supported yet. "
            f"Connector '{self.name}' cannot be asked for the rows of keys, so table {'.'.join(scan.path)} cannot be "
            "joined FOR SYSTEM_TIME AS OF a processing time: use a connector that has a look-up"
        )

    def vector_search(self, scan: Scan, column: int, options: TableOptions) -> Any:
        """Return the connector's own search for vectors in a column; None to hold the table in memory."""
        return None

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return the writer of a table."""
        raise ValidationError(
            f"Connector '{self.name}' can only be used as a source. It cannot be used as a sink: "
            f"table {'.'.join(write.path)}"
        )

    def pin_version(self, options: TableOptions, path: tuple[str, ...]) -> dict[str, str]:
        """Return options for reading the rows that DELETE, UPDATE or MERGE changes, and for changing these.

        With them, `writer` gets changes of rows (`penstock.connectors.row_changes`), which it makes at once.
        """
        raise UnsupportedError(
            f"DELETE, UPDATE and MERGE are not supported by connector '{self.name}': table {options.title}. Tables of "
            "Iceberg and Delta Lake can change rows, and those of 'jdbc' remove them where a condition compares "
            "numbers and dates with constants. An INSERT into a table with a primary key replaces rows"
        )

    def remove_rows(
        self, options: TableOptions, path: tuple[str, ...], condition: Typed | None, names: Sequence[str]
    ) -> int | None:
        """Remove rows without a job; return their number, or -1 if that is not known.

        `condition`: over columns with these names; None for all rows. The result None says that nothing was done, since
        the connector cannot evaluate the condition as the query would.
        """
        return None

    def readable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """Return the METADATA columns that a source provides, by key."""
        return {}

    def writable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """Return the METADATA columns that a sink accepts, by key."""
        return {}

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the option keys that depend on other options or on column names, such as those of a format."""
        return ()

    def check(self, options: TableOptions, columns: Sequence[str]) -> None:
        """Reject unsupported options, and tables that lack required ones."""
        declared = [*self.required_options, *self.optional_options]
        known = {CONNECTOR.key(), *(option.key() for option in declared), *self.more_options(options, columns)}
        unknown = sorted(options.keys() - known)
        if unknown:
            raise ValidationError(
                f"Unsupported options found for '{self.name}' of table {options.title}: {', '.join(unknown)}. "
                f"Supported options: {', '.join(sorted(known))}"
            )
        absent = [option.key() for option in self.required_options if option.key() not in options]
        if absent:
            raise missing(options.title, absent)
        for option in declared:
            options.read(option)


class Connectors:
    """Connectors by name.

    Args:
        connectors: connectors, which replace built-in ones of the same name.
        built_in: creates the built-in connector of a name when a table first uses it. A connector's module imports
            the client library of its system, and most programs use one or two connectors.
    """

    def __init__(
        self, *connectors: TableConnector, built_in: Mapping[str, Callable[[], TableConnector]] | None = None
    ) -> None:
        self._connectors = {connector.name: connector for connector in connectors}
        self._built_in = {} if built_in is None else built_in

    def names(self) -> list[str]:
        """Return the possible values of the option `connector`."""
        return sorted({*self._connectors, *self._built_in})

    def find(self, name: str) -> TableConnector | None:
        """Return the connector with this name."""
        if name not in self._connectors and name in self._built_in:
            self._connectors[name] = self._built_in[name]()
        return self._connectors.get(name)

    def scan(self, node: Scan) -> TableScan:
        """Return the scan of a table. Raises `ValidationError` for options that no connector supports."""
        if isinstance(node.source, TableScan):
            return node.source
        connector, options = self._checked(node)
        _check_metadata(options.title, node, connector.readable_metadata(options), is_read=True)
        return connector.scan(node, options)

    def reader(self, node: Scan) -> TableReader:
        """Return the reader of a table. Raises `ValidationError` for options that no connector supports."""
        scan = self.scan(node)
        scan.check()
        reader = scan.reader()
        if reader.source is not None:
            from penstock.sql.logical.lineage import describe_table  # only when a statement runs

            reader.source.lineage = (describe_table(node),)
        return reader

    def lookup(self, node: Scan, key: Sequence[int]) -> TableLookup:
        """Return the lookup of rows by key. Raises `ValidationError` if the connector does not support lookups."""
        if holds_all(dict(node.options)):
            return held_lookup(self.reader(node), node, key)
        connector, options = self._checked(node)
        _check_metadata(options.title, node, connector.readable_metadata(options), is_read=True)
        return connector.lookup(node, key, options)

    def vector_search(self, node: Scan, column: int) -> Any:
        """Return the search for vectors of a column, a `vectors.VectorSearchFunction`."""
        connector, options = self._checked(node)
        search = connector.vector_search(node, column, options)
        if search is not None:
            return search
        from penstock.sql.tables.vectors import held_vectors  # imports this module

        return held_vectors(self.reader(node), node, column)

    def writer(self, node: Write) -> TableWriter:
        """Return the writer of a table. Raises `ValidationError` for options that no connector supports."""
        connector, options = self._checked(node)
        _check_metadata(options.title, node, connector.writable_metadata(options), is_read=False)
        writer = connector.writer(node, options)
        from penstock.sql.logical.lineage import describe_write  # only when a statement runs

        writer.sink.lineage = (describe_write(node),)
        return writer

    def pin_version(self, path: tuple[str, str, str], options: Mapping[str, str]) -> dict[str, str]:
        """See `TableConnector`."""
        connector, known = self._of_table(path, options)
        return connector.pin_version(known, path)

    def remove_rows(
        self, path: tuple[str, str, str], options: Mapping[str, str], condition: Typed | None, names: Sequence[str]
    ) -> int | None:
        """See `TableConnector`."""
        connector, known = self._of_table(path, options)
        return connector.remove_rows(known, path, condition, names)

    def _of_table(self, path: tuple[str, str, str], given: Mapping[str, str]) -> tuple[TableConnector, TableOptions]:
        options = TableOptions(".".join(path), without_holding(dict(given)))
        connector = self._find(options)
        connector.check(options, ())
        return connector, options

    def options_up_to_now(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the options with which a table is read up to its present end, if its connector can do so."""
        connector = self.find(options.get(CONNECTOR.key(), ""))
        changes = {} if connector is None else connector.options_up_to_now
        added = {key: value for key, value in changes.items() if value is not None}
        return added | {key: value for key, value in options.items() if changes.get(key, "") is not None}

    def check_overwrites(self, node: Write) -> None:
        """Raise `UnsupportedError` unless a batch job may replace the contents of the table."""
        options = TableOptions(".".join(node.path), without_holding(dict(node.options)))
        connector = self._find(options)
        if not connector.takes_overwrites:
            raise UnsupportedError(
                f"INSERT OVERWRITE is not supported by connector '{connector.name}': table {options.title}. Remove its "
                "rows first"
            )

    def _checked(self, node: Scan | Write) -> tuple[TableConnector, TableOptions]:
        options = TableOptions(".".join(node.path), without_holding(dict(node.options)), zone=node.zone)
        connector = self._find(options)
        connector.check(options, node.schema.names)
        if node.partition_keys and not connector.takes_partitions:
            raise ValidationError(
                f"Table {options.title} is partitioned, but connector '{connector.name}' has no partitions: leave out "
                "PARTITIONED BY"
            )
        return connector, options

    def _find(self, options: TableOptions) -> TableConnector:
        name = options.read(CONNECTOR)
        known = ", ".join(self.names())
        if name is None:
            raise ValidationError(
                f"Table options of {options.title} do not contain an option key 'connector' for discovering a "
                f"connector. Set it in WITH; there are {known}"
            )
        if (connector := self.find(name)) is None:
            raise ValidationError(f"Could not find any connector '{name}' for table {options.title}: there are {known}")
        return connector


def _check_metadata(title: str, node: Scan | Write, known: Mapping[str, DataType], *, is_read: bool) -> None:
    for index, key in node.metadata:
        column = node.schema[index]
        if key not in known:
            available = ", ".join(sorted(known)) or "none"
            raise ValidationError(
                f"Invalid metadata key '{key}' in column '{column.name}' of table {title}. The connector "
                f"{'reads' if is_read else 'writes'} these metadata keys: {available}"
            )
        pair = (known[key], column.type) if is_read else (column.type, known[key])
        if not supports_cast(*pair):
            raise ValidationError(
                f"Invalid data type for metadata column '{column.name}' of table {title}. The column cannot be "
                f"declared as '{column.type}' because the type must be castable {'from' if is_read else 'to'} metadata "
                f"type '{known[key]}'."
            )
