"""`jdbc`: reads, looks up and writes tables of PostgreSQL, MySQL and MariaDB; the URL chooses the dialect.

**Writing.** `JdbcTableSink` writes a table's changes: inserts, or upserts and deletes by primary key. Only the last
change of each key in a batch is written: one INSERT … ON CONFLICT upserts rows, and one DELETE removes rows. Writing a
batch again therefore changes nothing. Changes that were written before a failure and are not emitted again afterwards
remain in the table; only a sink with a ledger avoids this.

Keys that differ here may be equal in the database: in a column of type timestamp(0), citext, char(n), uuid or numeric
with fewer digits. If the types of the key columns allow that, the database determines the last change of each key
itself.

**MySQL and MariaDB** are written by `MySqlRows` in the same way, see `penstock.connectors.mysql.sink`.

**Lookups.** `JdbcLookupReader` finds rows by key for lookup joins, with one query per batch of keys.

**Vectors.** Columns of the extension pgvector are arrays of numbers here. The server searches them if the table says so
(`penstock.sql.connectors.pgvector`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.codecs.column_data import ColumnData
from penstock.connectors.conditions import Partitions
from penstock.connectors.mysql import scan as mysql_scan
from penstock.connectors.mysql.client import MySqlLink, load_library
from penstock.connectors.mysql.sink import MySqlLedger, MySqlTarget
from penstock.connectors.postgres import client, text_columns
from penstock.connectors.postgres.scan import FETCH_SIZE, JdbcSource, KeyLookup, Scanned, ScannedColumn
from penstock.connectors.postgres.sink import (
    Gathered,
    GatheringWriter,
    LedgerCommitter,
    RowsToHold,
    Writing,
    WrittenRows,
    is_plain_table,
    run_name,
)
from penstock.runtime.connector import Committer, Sink, SinkWriter, SinkWriterContext
from penstock.sql.connectors.jdbc_dialects import (
    Condition,
    MySqlRows,
    delete_rows,
    find_dialect,
    to_sql_condition,
)
from penstock.sql.connectors.pgvector import StoredInPostgres, find_vectors
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type, columns_of_changes
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import ALL, DELETE, INSERTS, UPDATE_BEFORE, PlanColumn, RowSchema, Scan, Write
from penstock.sql.tables import tables
from penstock.sql.tables.connector import LookedUp, LookupReader, TableConnector, TableLookup, TableOptions
from penstock.sql.tables.vectors import INDEX, METRIC, PGVECTOR, VectorColumn, read_vector_options
from penstock.sql.typed import Typed

if TYPE_CHECKING:
    import psycopg


#: The index of a change in its batch, in the temporary tables. User columns do not have this prefix.
_PLACE: Final = "__penstock_place"


@dataclass(frozen=True, slots=True)
class Target:
    """The table to write.

    Attributes:
        address: the database: an `Address`, or a `MySqlAddress`.
        table: the path of the table.
        names: the names of the written columns, in order.
        types: the types of these columns.
        key: the positions of the primary key columns; empty if rows are only inserted.
    """

    address: Any
    table: str
    names: tuple[str, ...]
    types: tuple[DataType, ...]
    key: tuple[int, ...]


class JdbcTableSink(Sink[Any]):
    """Accepts rows as (kind, internal values), or columns.

    Args:
        target: the table to write.
        execution: when to write.
        ledger_table: records the rows written, so that each row is written once; None to write while rows arrive.
    """

    def __init__(self, target: Target, execution: client.JdbcExecutionOptions, ledger_table: str | None) -> None:
        self._target = target
        self._execution = execution
        self._ledger_table = ledger_table

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """See `Sink`."""
        target = self._target
        link, writing = self._link_and_writing()
        gathered: Gathered = (
            WrittenRows(context, link, self._execution, writing)
            if self._ledger_table is None
            else RowsToHold(run_name(context))
        )
        return _TableWriter(target, gathered)

    def _link_and_writing(self) -> tuple[Any, Writing]:
        target = self._target
        if isinstance(target.address, client.Address):
            return client.Link(target.address), ColumnsWriting(target)
        rows = MySqlTarget(target.table, target.names, target.key, self._ledger_table is not None)
        return MySqlLink(target.address), MySqlRows(rows)

    def create_committer(self, context: SinkWriterContext) -> Committer[Any] | None:
        """See `Sink`."""
        if self._ledger_table is None:
            return None
        link, writing = self._link_and_writing()
        kind = LedgerCommitter if isinstance(link, client.Link) else MySqlLedger
        return kind(link, self._ledger_table, self._execution.max_retries, writing)

    @property
    def shows_on_commit(self) -> bool:
        """Whether rows become visible only on commit: true for exactly-once writes."""
        return self._ledger_table is not None


class _TableWriter(GatheringWriter):
    """Buffers columns."""

    def __init__(self, target: Target, gathered: Gathered) -> None:
        super().__init__(gathered)
        self._target = target

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        if not values:
            return
        columns, kinds = columns_of_changes(values, self._target.names, self._target.types)
        self._add(ColumnData(columns), kinds if any(kinds) else None)

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._add(data, None)

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._add(data, kinds)

    def _add(self, data: ColumnData, kinds: bytes | None) -> None:
        self._gathered.add([(data, kinds)], len(data))


class ColumnsWriting:
    """Writes columns within a transaction, once per transaction (`Writing`)."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._table = client.quoted_path(target.table)
        self._connection: psycopg.Connection[Any] | None = None
        self._copies = False
        digest = hashlib.blake2b(repr((target.table, target.names)).encode(), digest_size=6).hexdigest()
        self._stage, self._gone = f"penstock_rows_{digest}", f"penstock_keys_{digest}"
        self._is_exact = True
        self._vectors: frozenset[str] = frozenset()

    def prepare(self, connection: psycopg.Connection[Any]) -> None:
        """See `Writing`."""
        if connection is self._connection:
            return
        target = self._target
        connection.execute(text_columns.SESSION)
        with client.naming(f"cannot write into {self._table}"):
            self._copies = not target.key and is_plain_table(connection, self._table)
            if target.key:
                self._is_exact = text_columns.has_exact_keys(connection, self._table, self._key_types())
            if any(isinstance(kind, types.ArrayType) for kind in target.types):
                self._vectors = find_vectors(client.relation(connection, target.table))
            if not self._copies:
                self._make(connection, self._stage, target.names)
            if target.key:
                self._make(connection, self._gone, self._key())
        self._connection = connection

    def _key(self) -> list[str]:
        return [self._target.names[index] for index in self._target.key]

    def _key_types(self) -> list[tuple[str, pa.DataType]]:
        return [(self._target.names[index], arrow_type(self._target.types[index])) for index in self._target.key]

    def _make(self, connection: psycopg.Connection[Any], stage: str, names: Sequence[str]) -> None:
        position_column = "" if self._is_exact else f", 0::bigint AS {_PLACE}"
        connection.execute(
            f"CREATE TEMP TABLE IF NOT EXISTS {stage} ON COMMIT DELETE ROWS AS "
            f"SELECT {client.quoted_list(names)}{position_column} FROM {self._table} WITH NO DATA"
        )

    def run(self, connection: psycopg.Connection[Any], rows: Sequence[tables.Part]) -> None:
        """See `Writing`."""
        target = self._target
        table = pa.Table.from_batches([data.columns.rename_columns(list(target.names)) for data, _ in rows])
        columns = [tables.whole_column(column) for column in table.itercolumns()]
        with client.naming(f"PostgreSQL refuses rows of {self._table}"):
            if target.key:
                self._replace(connection, columns, tables.concatenate_kinds(rows))
            elif self._copies:
                self._copy(connection, self._table, target.names, columns)
            else:
                self._copy(connection, self._stage, target.names, columns)
                self._insert(connection, "")

    def _replace(self, connection: psycopg.Connection[Any], columns: list[pa.Array], kinds: Any) -> None:
        target = self._target
        last = tables.last_of_each([columns[index] for index in target.key])
        # An update's previous row is the last change of its key if the new row has another key.
        is_gone = (kinds[last] == DELETE) | (kinds[last] == UPDATE_BEFORE)
        deleted, upserted = last[is_gone], last[~is_gone]
        key = self._key()
        if len(deleted):
            keys = [columns[index].take(pa.array(deleted)) for index in target.key]
            self._copy(connection, self._gone, *self._with_places(key, keys, deleted))
            matches = _matches(key, "t", "k")
            connection.execute(f"DELETE FROM {self._table} AS t USING {self._gone} AS k WHERE {matches}")
        if len(upserted):
            rows = [column.take(pa.array(upserted)) for column in columns]
            self._copy(connection, self._stage, *self._with_places(target.names, rows, upserted))
            non_key_columns = [name for name in target.names if name not in key]
            sets = ", ".join(f"{client.quoted(name)} = EXCLUDED.{client.quoted(name)}" for name in non_key_columns)
            does = f"UPDATE SET {sets}" if non_key_columns else "NOTHING"
            source = None if self._is_exact else self._last_rows(key, non_key_columns)
            # Sort by key, so that concurrent writers do not wait for each other.
            self._insert(
                connection,
                f" ORDER BY {client.quoted_list(key)} ON CONFLICT ({client.quoted_list(key)}) DO {does}",
                source,
            )

    def _with_places(
        self, names: Sequence[str], columns: Sequence[pa.Array], indices: Any
    ) -> tuple[Sequence[str], Sequence[pa.Array]]:
        """Return the columns, with the index of each change in the batch if the database compares keys itself."""
        if self._is_exact:
            return names, columns
        return [*names, _PLACE], [*columns, pa.array(indices, pa.int64())]

    def _last_rows(self, key: Sequence[str], non_key_columns: Sequence[str]) -> str:
        """Return a subquery for the rows that remain if the staged changes are executed one by one after the deletions.

        An update does not write the key, so a row has the key of its first change, and the other columns of its last
        one.
        """
        columns = [f"first_value(s.{client.quoted(name)}) OVER w AS {client.quoted(name)}" for name in key]
        columns += [f"last_value(s.{client.quoted(name)}) OVER w AS {client.quoted(name)}" for name in non_key_columns]
        keys = ", ".join(f"s.{client.quoted(name)}" for name in key)
        by_place = f"PARTITION BY {keys} ORDER BY s.{_PLACE}"
        return (
            f"(SELECT {', '.join(columns)}, row_number() OVER ({by_place}) AS {_PLACE} FROM {self._stage} AS s "
            f"WHERE NOT EXISTS (SELECT FROM {self._gone} AS k WHERE {_matches(key, 'k', 's')} "
            f"AND k.{_PLACE} > s.{_PLACE}) "
            f"WINDOW w AS ({by_place} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)) AS r "
            f"WHERE {_PLACE} = 1"
        )

    def _insert(self, connection: psycopg.Connection[Any], clause: str, source: str | None = None) -> None:
        names = client.quoted_list(self._target.names)
        connection.execute(f"INSERT INTO {self._table} ({names}) SELECT {names} FROM {source or self._stage}{clause}")

    def _copy(
        self, connection: psycopg.Connection[Any], table: str, names: Sequence[str], columns: Sequence[pa.Array]
    ) -> None:
        texts = [
            text_columns.to_vector_texts(column) if name in self._vectors else text_columns.to_server_texts(column)
            for name, column in zip(names, columns, strict=True)
        ]
        lines = text_columns.format_csv(texts)
        text = f"COPY {table} ({client.quoted_list(names)}) FROM STDIN (FORMAT csv)"
        with connection.cursor() as cursor, cursor.copy(text) as copy:
            copy.write(lines)


def _matches(key: Sequence[str], alias: str, other: str) -> str:
    return " AND ".join(f"{alias}.{client.quoted(name)} = {other}.{client.quoted(name)}" for name in key)


def _text(key: str, description: str) -> ConfigOption[str | None]:
    return ConfigOptions.key(key).string_type().no_default_value().with_description(description)


def _number(key: str, default: int, description: str) -> ConfigOption[int]:
    return ConfigOptions.key(key).int_type().default_value(default).with_description(description)


URL: Final = _text(
    "url",
    "`jdbc:postgresql://HOST:PORT/DATABASE`, `postgresql://…` with libpq's parameters, "
    "`jdbc:mysql://HOST:PORT/DATABASE` or `jdbc:mariadb://HOST:PORT/DATABASE`.",
)
TABLE: Final = _text(
    "table-name",
    "The name of a table or view; `schema.table` if it is in another schema, `database.table` in MySQL and MariaDB.",
)
USERNAME: Final = _text("username", "The user name.")
PASSWORD: Final = _text("password", "The password.")
DRIVER_NAME: Final = _text(
    "driver", "The name of a Java driver, for compatibility; only that of the URL's database is accepted."
)
PARTITION_COLUMN: Final = _text("scan.partition.column", "The integer column that partitions the scan.")
PARTITION_COUNT: Final = (
    ConfigOptions.key("scan.partition.num").int_type().no_default_value().with_description("The number of partitions.")
)
LOWER: Final = (
    ConfigOptions.key("scan.partition.lower-bound")
    .long_type()
    .no_default_value()
    .with_description(
        "The least value of the column. Rows below it, and rows with NULL, are read with the first partition."
    )
)
UPPER: Final = (
    ConfigOptions.key("scan.partition.upper-bound")
    .long_type()
    .no_default_value()
    .with_description("The greatest value of the column. Rows above it are read with the last partition.")
)
FETCH: Final = _number("scan.fetch-size", FETCH_SIZE, "The number of rows to fetch at a time.")
MAX_ROWS: Final = _number("sink.buffer-flush.max-rows", 5_000, "The number of buffered rows that triggers a write.")
INTERVAL: Final = (
    ConfigOptions.key("sink.buffer-flush.interval")
    .duration_type()
    .default_value(1_000)
    .with_description(
        "The maximum time that rows stay buffered; with `0`, until the buffer is full or a checkpoint is taken."
    )
)
RETRIES: Final = _number("sink.max-retries", client.MAX_RETRIES, "The maximum number of retries of a failed write.")
GUARANTEE: Final = (
    ConfigOptions.key("sink.delivery-guarantee")
    .string_type()
    .default_value("at-least-once")
    .with_description(
        "`exactly-once` buffers rows until the checkpoint completes, and writes them together with an entry in the "
        "ledger."
    )
)
LEDGER_TABLE: Final = (
    ConfigOptions.key("sink.ledger-table")
    .string_type()
    .default_value(client.LEDGER)
    .with_description("The table that records exactly-once writes; it is created if it does not exist.")
)
UNREPRESENTABLE: Final = (
    ConfigOptions.key(text_columns.OPTION)
    .string_type()
    .default_value(text_columns.FAIL)
    .with_description(
        "How to treat values that the declared type cannot represent, such as NaN for DECIMAL or `infinity` for "
        "TIMESTAMP: `fail` the job, or convert them to `null`. A STRING column holds every value as text."
    )
)
LOOKUP_OPTIONS: Final[tuple[ConfigOption[Any], ...]] = (
    ConfigOptions.key("lookup.cache")
    .string_type()
    .default_value("NONE")
    .with_description("`PARTIAL` caches the rows of some keys, `FULL` the whole table."),
    ConfigOptions.key("lookup.partial-cache.max-rows")
    .long_type()
    .no_default_value()
    .with_description("The maximum number of cached keys."),
    ConfigOptions.key("lookup.partial-cache.expire-after-write")
    .duration_type()
    .no_default_value()
    .with_description("The time after which a key expires once it is fetched."),
    ConfigOptions.key("lookup.partial-cache.expire-after-access")
    .duration_type()
    .no_default_value()
    .with_description("The time after which a key expires once it is last used."),
    ConfigOptions.key("lookup.partial-cache.cache-missing-key")
    .boolean_type()
    .default_value(True)
    .with_description("Whether to cache keys without rows."),
    ConfigOptions.key("lookup.max-retries")
    .int_type()
    .default_value(3)
    .with_description("The maximum number of retries of a failed lookup."),
)
OPTIONAL: Final[tuple[ConfigOption[Any], ...]] = (
    USERNAME,
    PASSWORD,
    DRIVER_NAME,
    PARTITION_COLUMN,
    PARTITION_COUNT,
    LOWER,
    UPPER,
    FETCH,
    UNREPRESENTABLE,
    *LOOKUP_OPTIONS,
    MAX_ROWS,
    INTERVAL,
    RETRIES,
    GUARANTEE,
    LEDGER_TABLE,
)

#: unsupported options of Flink's connector, and why
_REFUSED: Final = (
    (re.compile(r"scan\.auto-commit"), "a scan is one transaction, with one snapshot for all parts"),
    (re.compile(r"connection\.max-retry-timeout"), "the URL's connect_timeout says how long to wait for a connection"),
    (re.compile(r"compatible-mode|properties\..*"), "parameters of connections stand in the URL"),
)


def read_address(options: TableOptions) -> Any:
    """Return the address of the database, an `Address` or a `MySqlAddress`, after importing its driver.

    Raises `ValidationError` if the URL is malformed or of another database, or the driver is not that of the URL.
    """
    url = options.required(URL)
    try:
        address = client.read_address(url, options.read(USERNAME), options.read(PASSWORD))
    except ConfigurationError as error:
        raise options.wrong(URL.key(), str(error)) from error
    try:
        client.check_driver(url, options.read(DRIVER_NAME))
    except ConfigurationError as error:
        raise options.wrong(DRIVER_NAME.key(), str(error)) from error
    client.driver() if isinstance(address, client.Address) else load_library()
    return address


def read_unrepresentable(options: TableOptions) -> str:
    """Return how to read values that a type cannot hold. Raises `ValidationError` for an unknown mode."""
    try:
        return text_columns.check_mode(options.read(UNREPRESENTABLE))
    except ConfigurationError as error:
        raise options.wrong(text_columns.OPTION, str(error)) from error


def read_partitions(options: TableOptions) -> Partitions | None:
    """Return how the table is partitioned; None if it is not.

    Raises `ValidationError` if only some of the options are set.
    """
    column, count = options.read(PARTITION_COLUMN), options.read(PARTITION_COUNT)
    lower, upper = options.read(LOWER), options.read(UPPER)
    if column is None and count is None and lower is None and upper is None:
        return None
    if column is None or count is None or lower is None or upper is None:
        raise options.wrong(
            PARTITION_COLUMN.key(),
            "either all of scan.partition.column, scan.partition.num, scan.partition.lower-bound and "
            "scan.partition.upper-bound are set, or none",
        )
    try:
        return Partitions(column, lower, upper, count)
    except ConfigurationError as error:
        raise options.wrong(PARTITION_COUNT.key(), str(error)) from error


@dataclass(frozen=True, slots=True)
class JdbcScan(tables.TableScan, tables.ProjectionPushDown, tables.FilterPushDown, tables.LimitPushDown):
    """Reads some columns, and filters rows on the server.

    Attributes:
        address: the database.
        table: the path of the table.
        columns: the columns to read.
        fetch_size: how many rows are fetched at a time.
        partitions: how the table is partitioned.
        conditions: filters in SQL.
        limit: the number of rows needed from each partition; None for all.
        unrepresentable: what to do with values that a type cannot hold.
    """

    address: Any
    table: str
    columns: tuple[PlanColumn, ...]
    fetch_size: int
    partitions: Partitions | None = None
    conditions: tuple[str, ...] = ()
    limit: int | None = None
    unrepresentable: str = text_columns.FAIL

    def reader(self) -> tables.TableReader:
        """See `TableScan`."""
        # The engine of MySQL looks the column up, and says itself how to select it.
        quoted = client.quoted if isinstance(self.address, client.Address) else str
        columns = tuple(
            ScannedColumn(name, quoted(column.name), arrow_type(column.type))
            for name, column in zip(tables.column_names(len(self.columns)), self.columns, strict=True)
        )
        scanned = Scanned(
            self.address,
            self.table,
            columns,
            self.conditions,
            self.limit,
            self.partitions,
            self.fetch_size,
            self.unrepresentable,
        )
        return tables.TableReader(JdbcSource(scanned))

    def with_columns(self, columns: Sequence[int]) -> JdbcScan:
        """See `ProjectionPushDown`."""
        return replace(self, columns=tuple(self.columns[index] for index in columns))

    def with_conditions(self, conditions: Sequence[Typed]) -> tables.Filtered:
        """See `FilterPushDown`. Filters nothing if unrepresentable values become NULL, which the server cannot know."""
        if self.unrepresentable == text_columns.NULL:
            return tables.Filtered(self, tuple(conditions), ())
        dialect = find_dialect(self.address)
        names = [dialect.quoted(column.name) for column in self.columns]
        translated = [(condition, to_sql_condition(condition, names, dialect)) for condition in conditions]
        pushed = tuple(known.sql for _, known in translated if known is not None)
        remaining = tuple(condition for condition, known in translated if known is None or not known.is_exact)
        used = tuple(condition for condition, known in translated if known is not None and not known.is_exact)
        return tables.Filtered(replace(self, conditions=(*self.conditions, *pushed)), remaining, used)

    def with_limit(self, limit: int) -> JdbcScan:
        """See `LimitPushDown`."""
        return replace(self, limit=limit if self.limit is None else min(limit, self.limit))


@dataclass(frozen=True, slots=True)
class LookupSpec:
    """A lookup in a table.

    Attributes:
        address: the database.
        table: the path of the table.
        names: the names of its columns.
        types: the types of its columns.
        key: the names of the key columns.
        retries: how often a query is retried.
        unrepresentable: what to do with values that a type cannot hold.
    """

    address: Any
    table: str
    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    key: tuple[str, ...]
    retries: int
    unrepresentable: str


class JdbcLookupReader(LookupReader):
    """See the module docstring."""

    def __init__(self, spec: LookupSpec) -> None:
        is_postgres = isinstance(spec.address, client.Address)
        columns = [
            ScannedColumn(name, f"t.{client.quoted(name)}" if is_postgres else name, kind)
            for name, kind in zip(spec.names, spec.types, strict=True)
        ]
        kind = KeyLookup if is_postgres else mysql_scan.KeyLookup
        self._lookup = kind(
            spec.address,
            spec.table,
            columns,
            spec.key,
            retries=spec.retries,
            unrepresentable=spec.unrepresentable,
        )

    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `LookupReader`."""
        columns: Sequence[pa.Array] = keys.columns
        return LookedUp(*self._lookup.find(columns))

    def close(self) -> None:
        """Close the connection."""
        self._lookup.close()


_PLAIN: Final = (
    types.BooleanType,
    types.IntegralType,
    types.FractionalType,
    types.CharType,
    types.VarCharType,
    types.BinaryType,
    types.VarBinaryType,
    types.DateType,
    types.TimeType,
    types.TimestampType,
    types.LocalZonedTimestampType,
)
_GUARANTEES: Final = ("at-least-once", "exactly-once")


class JdbcConnector(TableConnector):
    """See the module docstring."""

    name = "jdbc"
    required_options = (URL, TABLE)
    optional_options = OPTIONAL

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return no more options, and reject unsupported ones with the reason."""
        options.refuse(_REFUSED)
        return ()

    def scan(self, scan: Scan, options: TableOptions) -> tables.TableScan:
        """Return the scan. Raises `ValidationError` for conflicting options."""
        address = _read_checked(options, scan.schema)
        return JdbcScan(
            address,
            options.required(TABLE),
            tuple(scan.schema),
            _at_least(1, options, FETCH.key(), options.read(FETCH)),
            read_partitions(options),
            unrepresentable=read_unrepresentable(options),
        )

    def lookup(self, scan: Scan, key: Sequence[int], options: TableOptions) -> TableLookup:
        """Return a lookup by all key columns."""
        spec = LookupSpec(
            _read_checked(options, scan.schema),
            options.required(TABLE),
            tuple(scan.schema.names),
            tuple(arrow_type(column.type) for column in scan.schema),
            tuple(scan.schema[index].name for index in key),
            # With this option the join itself retries.
            0 if "lookup.max-retries" in options else 3,
            read_unrepresentable(options),
        )
        return TableLookup(tuple(key), partial(JdbcLookupReader, spec))

    def vector_search(self, scan: Scan, column: int, options: TableOptions) -> Any:
        """Return a search by pgvector, if the table has `'vector.index' = 'pgvector'`."""
        about = read_vector_options(scan.options, options.title)
        if about.read(INDEX) != PGVECTOR:
            return None
        if not isinstance(read_address(options), client.Address):
            raise UnsupportedError(f"table {options.title}: pgvector searches tables of PostgreSQL alone")
        check_types(options.title, scan.schema)
        searched = VectorColumn(scan.schema, column, about.read(METRIC), options.title)
        table, mode = options.required(TABLE), read_unrepresentable(options)
        return StoredInPostgres(read_address(options), table, mode, searched, scan.zone)

    def remove_rows(
        self, options: TableOptions, path: tuple[str, ...], condition: Typed | None, names: Sequence[str]
    ) -> int | None:
        """See `TableConnector`. The server removes the rows, if it evaluates the condition exactly as a query would."""
        address, known = read_address(options), Condition("TRUE", True)
        dialect = find_dialect(address)
        if condition is not None:
            columns = [dialect.quoted(name) for name in names]
            known = to_sql_condition(condition, columns, dialect) or Condition("", False)
        if not known.is_exact:
            return None
        return delete_rows(address, options.required(TABLE), known.sql, options.title)

    def writer(self, write: Write, options: TableOptions) -> tables.TableWriter:
        """Return a writer, which writes by primary key if the table declares one."""
        if write.overwrites:
            raise UnsupportedError(
                f"INSERT OVERWRITE into table {options.title} is not supported: delete its rows first"
            )
        schema = write.schema
        target = Target(
            _read_checked(options, schema),
            options.required(TABLE),
            tuple(schema.names),
            tuple(schema.types),
            tuple(write.key),
        )
        guarantee = options.read(GUARANTEE).lower()
        if guarantee not in _GUARANTEES:
            raise options.wrong(GUARANTEE.key(), f"it is {' or '.join(_GUARANTEES)}, not {guarantee}")
        try:
            execution = client.JdbcExecutionOptions(
                options.read(INTERVAL), options.read(MAX_ROWS), options.read(RETRIES)
            )
        except ConfigurationError as error:
            raise options.wrong(MAX_ROWS.key(), str(error)) from error
        ledger = options.read(LEDGER_TABLE) if guarantee == "exactly-once" else None
        sink = JdbcTableSink(target, execution, ledger)
        if not write.key:
            return tables.TableWriter(sink, INSERTS, takes_columns=True)
        return tables.TableWriter(sink, ALL, wants_before=False, takes_columns=True, deletes_by_key=True)


def _read_checked(options: TableOptions, schema: RowSchema) -> Any:
    address = read_address(options)
    check_types(options.title, schema, isinstance(address, client.Address))
    return address


def check_types(title: str, schema: RowSchema, has_arrays: bool = True) -> None:
    """Raise `UnsupportedError` for column types that the database lacks; of these, only PostgreSQL has arrays."""
    for column in schema:
        is_array = type(column.type) is types.ArrayType and has_arrays
        kind = column.type.element_type if is_array and isinstance(column.type, types.ArrayType) else column.type
        if not isinstance(kind, _PLAIN):
            raise UnsupportedError(
                f"column '{column.name}' of table {title} is {column.type}, which is not read from or written into "
                f"{'PostgreSQL' if has_arrays else 'MySQL and MariaDB'}: declare it as STRING, and take it apart by "
                "functions of JSON"
            )


def _at_least(least: int, options: TableOptions, key: str, value: int) -> int:
    if value < least:
        raise options.wrong(key, f"it must be {least} or above, not {value}")
    return value
