"""`clickhouse`: reads, looks up and writes rows of tables of ClickHouse.

Rows are written in batches with deduplication tokens; `clickhouse_reading` has the reading.

A table without a primary key takes inserts. With one, each change is a row too: the server's table is a
ReplacingMergeTree that is ordered by the key. `sink.version-column` names its version column, which is either a column
of the table, or is filled here with numbers that grow; `sink.is-deleted-column` names its UInt8 column that says
whether a row is deleted. Without it, a deletion is an error.

Values are checked before they are sent, see `penstock.connectors.clickhouse`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.base.config_options import POSITIVE, POSITIVE_TIME_MS, ConfigOption, ConfigOptions, choice
from penstock.base.errors import ConfigurationError, UnsupportedError, WrongValueError
from penstock.codecs.column_data import ColumnData
from penstock.connectors import clickhouse
from penstock.connectors.base import DeliveryGuarantee
from penstock.runtime.connector import SinkWriter, SinkWriterContext
from penstock.sql.connectors import clickhouse_reading as reading
from penstock.sql.connectors.jdbc import LOOKUP_OPTIONS
from penstock.sql.data import types
from penstock.sql.data.arrow import columns_of_changes
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import ALL, DELETE, INSERTS, UPDATE_BEFORE, RowSchema, Scan, Write
from penstock.sql.tables.connector import TableConnector, TableLookup, TableOptions
from penstock.sql.tables.tables import TableWriter

_PLAIN: Final = (
    types.BooleanType,
    types.IntegralType,
    types.FloatType,
    types.DoubleType,
    types.DecimalType,
    types.CharType,
    types.VarCharType,
    types.BinaryType,
    types.VarBinaryType,
    types.DateType,
    types.TimestampType,
    types.LocalZonedTimestampType,
)
_SETTINGS: Final = "settings."
_NS_PER_US: Final = 1_000


class Versions:
    """Numbers for a version column: microseconds since 1970, or one more than the last number. Survives pickling."""

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._last = 0

    def take(self, count: int) -> Any:
        """Return `count` numbers, in ascending order, above all earlier ones."""
        first = max(self._last + 1, self._now_ns() // _NS_PER_US)
        self._last = first + count - 1
        return np.arange(first, first + count, dtype=np.uint64)


class Changes:
    """Makes rows of changes.

    Args:
        title: the table, for errors.
        schema: the columns.
        version: the column to fill with versions; None without one, or if the rows contain it.
        deleted: the column that says whether a row is deleted.
    """

    def __init__(self, title: str, schema: RowSchema, version: str | None, deleted: str | None) -> None:
        self.schema = schema
        self._title, self._version, self._deleted = title, version, deleted
        self._versions = Versions()

    def build(self, columns: pa.RecordBatch, kinds: bytes | None) -> pa.Table:
        """Return the rows. Raises `TableRuntimeError` for a deletion that the table cannot hold."""
        rows = pa.table(columns.columns, names=list(self.schema.names))
        changes = np.zeros(rows.num_rows, np.uint8) if kinds is None else np.frombuffer(kinds, np.uint8)
        is_gone = (changes == DELETE) | (changes == UPDATE_BEFORE)
        if self._deleted is not None:
            rows = rows.append_column(self._deleted, pa.array(is_gone.astype(np.uint8)))
        elif is_gone.any():
            raise TableRuntimeError(
                f"table {self._title} gets a deletion, which it cannot hold: set 'sink.is-deleted-column' to the "
                "column of its ReplacingMergeTree that says which rows are deleted"
            )
        if self._version is not None:
            rows = rows.append_column(self._version, pa.array(self._versions.take(rows.num_rows)))
        return rows


class ClickHouseTableSink(clickhouse.ClickHouseSink):
    """Accepts rows as (kind, internal values), or columns.

    Args:
        table: the table.
        guarantee: how often rows are inserted.
        settings: how they are inserted.
        changes: makes rows of changes.
    """

    def __init__(
        self,
        table: clickhouse.ClickHouseTable,
        guarantee: DeliveryGuarantee,
        settings: clickhouse.InsertSettings,
        changes: Changes,
    ) -> None:
        super().__init__(table, guarantee, settings)
        self.changes = changes

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """See `Sink`."""
        return _TableWriter(self, super().create_writer(context))


class _TableWriter(SinkWriter[Any, Any]):
    """Makes rows of columns, and hands them to the writer of the sink."""

    def __init__(self, sink: ClickHouseTableSink, writer: Any) -> None:
        self._changes, self._title, self._writer = sink.changes, sink.table.title, writer
        self._batch_rows = sink.inserts.batch_rows

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        if values:
            self._write(*columns_of_changes(values, self._changes.schema.names, self._changes.schema.types))

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._write(data.columns, None)

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._write(data.columns, kinds)

    def _write(self, columns: pa.RecordBatch, kinds: bytes | None) -> None:
        if columns.num_rows:
            try:
                self._writer.rows.add_rows(self._changes.build(columns, kinds))
            except clickhouse.Misfit as misfit:
                raise TableRuntimeError(str(misfit)) from misfit
            self._writer.send(self._batch_rows)

    def next_flush_ms(self) -> int | None:
        """See `SinkWriter`."""
        due: int | None = self._writer.next_flush_ms()
        return due

    def flush(self, end_of_input: bool) -> None:
        """See `SinkWriter`."""
        self._writer.flush(end_of_input)

    def prepare_commit(self) -> list[Any]:
        """See `SinkWriter`."""
        prepared: list[Any] = self._writer.prepare_commit()
        return prepared

    def close(self) -> None:
        """See `SinkWriter`."""
        self._writer.close()


def _text(key: str, description: str) -> ConfigOption[str | None]:
    return ConfigOptions.key(key).string_type().no_default_value().with_description(description)


URL: Final = _text("url", "The HTTP interface: `http://HOST:8123`, or `https://HOST:8443` with TLS.")
DATABASE: Final = (
    ConfigOptions.key("database-name").string_type().default_value("default").with_description("The database.")
)
TABLE: Final = _text("table-name", "The name of the table.")
USERNAME: Final = _text("username", "The user name.")
PASSWORD: Final = _text("password", "The password.")
TIMEOUT: Final = ConfigOption("request.timeout", POSITIVE_TIME_MS, 300_000).with_description(
    "How long the answer to a request may take."
)
GUARANTEE: Final = ConfigOption(
    "sink.delivery-guarantee", choice("at-least-once", "exactly-once"), "at-least-once"
).with_description(
    "`exactly-once` holds rows until the checkpoint completes, and inserts them in batches with tokens; the server's "
    "table must remember these."
)
MAX_ROWS: Final = ConfigOption("sink.buffer-flush.max-rows", POSITIVE, clickhouse.BATCH_ROWS).with_description(
    "The maximum number of rows in a batch."
)
INTERVAL: Final = ConfigOption("sink.buffer-flush.interval", POSITIVE_TIME_MS, clickhouse.INTERVAL_MS).with_description(
    "The maximum time that rows wait for others, without `exactly-once`."
)
RETRIES: Final = (
    ConfigOptions.key("sink.max-retries")
    .int_type()
    .default_value(clickhouse.MAX_RETRIES)
    .with_description("How often a batch is sent again before the job fails.")
)
RETRY: Final = ConfigOption("sink.retry.interval", POSITIVE_TIME_MS, clickhouse.RETRY_MS).with_description(
    "The time until a batch is sent again for the first time; it doubles each time."
)
IN_FLIGHT: Final = ConfigOption("sink.requests.max-inflight", POSITIVE, 2).with_description(
    "How many batches of a subtask are sent at the same time, without `exactly-once`."
)
VERSION: Final = _text(
    "sink.version-column",
    "The version column of a ReplacingMergeTree: one of the table's columns, or one of UInt64 that is filled with "
    "numbers that grow.",
)
DELETED: Final = _text(
    "sink.is-deleted-column",
    "The column of UInt8 that says whether a row is deleted. It exists only in the server's table.",
)


class ClickHouseConnector(TableConnector):
    """See the module docstring."""

    name = "clickhouse"
    required_options = (URL, TABLE)
    optional_options = (
        DATABASE,
        USERNAME,
        PASSWORD,
        TIMEOUT,
        GUARANTEE,
        MAX_ROWS,
        INTERVAL,
        RETRIES,
        RETRY,
        IN_FLIGHT,
        VERSION,
        DELETED,
        *reading.OPTIONS,
        *LOOKUP_OPTIONS,
    )

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the settings of ClickHouse, which begin with `settings.`."""
        return [key for key in options if key.startswith(_SETTINGS)]

    def scan(self, scan: Scan, options: TableOptions) -> reading.ClickHouseScan:
        """Return the scan. Raises `ValidationError` and `UnsupportedError` for tables that cannot be read."""
        check_types(options.title, scan.schema, "read from")
        return reading.build_scan(scan, read_table(options), options)

    def lookup(self, scan: Scan, key: Sequence[int], options: TableOptions) -> TableLookup:
        """Return the look-up. Raises `UnsupportedError` for key columns that the server compares otherwise."""
        return reading.build_lookup(self.scan(scan, options), key)

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return the writer. Raises `ValidationError` and `UnsupportedError` for tables that cannot be written."""
        if write.overwrites:
            raise UnsupportedError(f"INSERT OVERWRITE into table {options.title} is not supported: truncate it first")
        check_types(options.title, write.schema, "written into")
        names, key = write.schema.names, tuple(write.key)
        version, deleted = options.read(VERSION), options.read(DELETED)
        if (version or deleted) and not key:
            raise options.wrong((VERSION if version else DELETED).key(), "only a table with a primary key has changes")
        if deleted in names:
            raise options.wrong(DELETED.key(), f"column '{deleted}' is one of the table: leave it out there")
        if key and version is None:
            raise ValidationError(
                f"table {options.title} has a primary key, so later rows replace earlier ones: set "
                "'sink.version-column' to the version column of its ReplacingMergeTree, since batches arrive in any "
                "order"
            )
        try:
            settings = clickhouse.InsertSettings(
                options.read(MAX_ROWS),
                options.read(INTERVAL),
                options.read(RETRIES),
                options.read(RETRY),
                options.read(IN_FLIGHT),
            )
        except WrongValueError as error:
            raise ValidationError(f"Invalid options of table {options.title}: {error}") from error
        changes = Changes(options.title, write.schema, None if version in names else version, deleted)
        is_exact = options.read(GUARANTEE) == "exactly-once"
        guarantee = DeliveryGuarantee.EXACTLY_ONCE if is_exact else DeliveryGuarantee.AT_LEAST_ONCE
        sink = ClickHouseTableSink(read_table(options), guarantee, settings, changes)
        if not key:
            return TableWriter(sink, INSERTS, takes_columns=True)
        # A deleted row has the columns of the server's ORDER BY, which may be more than the key.
        return TableWriter(sink, ALL, wants_before=False, takes_columns=True)


def read_table(options: TableOptions) -> clickhouse.ClickHouseTable:
    """Return the table of the server. Raises `ValidationError` for a wrong URL."""
    settings = options.below(_SETTINGS)
    try:
        return clickhouse.ClickHouseTable(
            options.required(URL),
            options.read(DATABASE),
            options.required(TABLE),
            options.read(USERNAME),
            options.read(PASSWORD),
            tuple((key, settings[key]) for key in settings),
            options.read(TIMEOUT),
        )
    except ConfigurationError as error:
        raise options.wrong(URL.key(), str(error)) from error


def check_types(title: str, schema: RowSchema, verb: str) -> None:
    """Raise `UnsupportedError` for column types that are not converted."""
    for column in schema:
        kind: DataType = column.type
        while type(kind) is types.ArrayType:
            kind = kind.element_type
        if not isinstance(kind, _PLAIN):
            raise UnsupportedError(
                f"column '{column.name}' of table {title} is {column.type}, which is not {verb} ClickHouse: "
                "declare it as STRING"
            )
