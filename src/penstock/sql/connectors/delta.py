"""`delta`: reads and writes Delta Lake tables.

A sink writes each row exactly once, in one table version per checkpoint; with a primary key it merges changes.

The options have the names of Flink's connector where it has them. `FilterPruning` selects the files that a query
may skip, by the column statistics in the log. `DeltaScan` has the abilities of a scan, and `TableDeltaSink` writes the
rows or changes of a query.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, ClassVar, Final

import pyarrow as pa

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.durable_files import check_outlives
from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.codecs.arrow_columns import NANOSECONDS, exact_cast
from penstock.codecs.column_data import ColumnData
from penstock.connectors.delta import log
from penstock.connectors.delta.commits import NewTable, PreparedFiles, quoted
from penstock.connectors.delta.log import (
    Scanned,
    Start,
    WantedColumn,
    check_before_reading,
    check_before_writing,
    check_writable,
)
from penstock.connectors.delta.row_changes import remove_rows
from penstock.connectors.delta.sink import DeltaSink, DeltaWriter, RowChangesWriter
from penstock.connectors.delta.source import INTERVAL_MS, DeltaSource, parse_start
from penstock.connectors.delta.table import TARGET_BYTES, TablePlace, require_library, stored_type
from penstock.connectors.row_changes import after
from penstock.runtime.connector import SinkWriter, SinkWriterContext
from penstock.sql.data.arrow import arrow_type, columns_of_changes
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import BooleanType, CharType, DataType, DateType, IntegralType, VarCharType, VariantType
from penstock.sql.formats import columnar_files
from penstock.sql.logical.nodes import ALL, INSERTS, PlanColumn, RowSchema, Scan, Write
from penstock.sql.tables import tables
from penstock.sql.tables.connector import (
    TableConnector,
    TableLookup,
    TableOptions,
    columns_scan,
    find_replaced_partition,
    held_lookup,
    refuse_versions,
)
from penstock.sql.typed import Constant, Field, FunctionCall, Typed, separated


def _text(key: str, description: str) -> ConfigOption[str | None]:
    return ConfigOptions.key(key).string_type().no_default_value().with_description(description)


def _flag(key: str, description: str) -> ConfigOption[bool]:
    return ConfigOptions.key(key).boolean_type().default_value(False).with_description(description)


BATCH: Final = "batch"
STREAMING: Final = "streaming"

PATH: Final = _text("table-path", "The directory of the table, or a URL such as `s3://bucket/table`.")
MODE: Final = (
    ConfigOptions.key("mode")
    .string_type()
    .default_value(BATCH)
    .with_description("`batch` reads one version; `streaming` reads the current table, then the rows added to it.")
)
VERSION_AS_OF: Final = (
    ConfigOptions.key("versionAsOf")
    .long_type()
    .no_default_value()
    .with_description("With `batch`, the version to read; by default the latest.")
)
TIMESTAMP_AS_OF: Final = _text("timestampAsOf", "The same as a timestamp, such as `2026-01-31T12:00:00Z`.")
STARTING_VERSION: Final = _text(
    "startingVersion",
    "With `streaming`, skip the current table and read from this version on; `latest` reads new rows only.",
)
STARTING_TIMESTAMP: Final = _text("startingTimestamp", "The same as a timestamp.")
INTERVAL: Final = (
    ConfigOptions.key("updateCheckIntervalMillis")
    .long_type()
    .default_value(INTERVAL_MS)
    .with_description("The interval at which new versions are discovered.")
)
IGNORE_DELETES: Final = _flag("ignoreDeletes", "Whether to skip versions that only delete rows, instead of failing.")
IGNORE_CHANGES: Final = _flag(
    "ignoreChanges", "Whether to read the rows of rewritten files as new rows, instead of failing."
)
CHANGE_FEED: Final = _flag(
    "readChangeFeed",
    "With `streaming`, whether to read a changelog; the table must have `delta.enableChangeDataFeed`.",
)
CREATE: Final = (
    ConfigOptions.key("sink.create-table")
    .boolean_type()
    .default_value(True)
    .with_description("Whether to create a missing table from the declared columns.")
)
MERGE_SCHEMA: Final = _flag("mergeSchema", "Whether a sink adds missing columns to the table.")
FILE_SIZE: Final = (
    ConfigOptions.key("targetFileSize")
    .memory_type()
    .default_value(TARGET_BYTES)
    .with_description("The size at which a data file is closed.")
)
COMPACTION: Final = (
    ConfigOptions.key("compactAfterVersions")
    .int_type()
    .no_default_value()
    .with_description("The number of table versions after which a sink compacts small files. If unset, it never does.")
)
OPTIONAL: Final[tuple[ConfigOption[Any], ...]] = (
    MODE,
    VERSION_AS_OF,
    TIMESTAMP_AS_OF,
    STARTING_VERSION,
    STARTING_TIMESTAMP,
    INTERVAL,
    IGNORE_DELETES,
    IGNORE_CHANGES,
    CHANGE_FEED,
    CREATE,
    MERGE_SCHEMA,
    FILE_SIZE,
    COMPACTION,
)
#: the prefix of options for delta-rs's storage
STORAGE: Final = "storage."
#: the prefix of properties for a new table
PROPERTIES: Final = "delta."
#: The option in which a catalog passes a table that the commit creates.
NEW_TABLE: Final = "sink.new-table"
#: The option that pins the version of a statement that changes rows.
ROW_CHANGES: Final = "sink.row-changes"
#: The option in which a catalog asks for a metadata table, and the names of these tables.
METADATA_TABLE: Final = "metadata-table"
METADATA_TABLES: Final = ("history", "files")
_EPOCH: Final = datetime.date(1970, 1, 1)
_OF_BATCH: Final = (VERSION_AS_OF, TIMESTAMP_AS_OF)
_OF_STREAMING: Final = (STARTING_VERSION, STARTING_TIMESTAMP, IGNORE_DELETES, IGNORE_CHANGES, CHANGE_FEED)


def read_place(options: TableOptions) -> TablePlace:
    """Return the location of the table."""
    return TablePlace.of(options.required(PATH), dict(options.below(STORAGE)))


def load_metadata(table: Any, kind: str) -> pa.Table:
    """Return the rows of a table about a table: its versions, or the files of the newest one."""
    instant = pa.timestamp("ms", "UTC")
    if kind == "files":
        files = pa.table(table.get_add_actions())
        names = ("path", "size_bytes", "modification_time", "num_records")
        kinds = (pa.string(), pa.int64(), instant, pa.int64())
        columns = [files.column(name).cast(column) for name, column in zip(names, kinds, strict=True)]
        partitions = files.column("partition").to_pylist() if "partition" in files.column_names else []
        texts: list[str | None] = [json.dumps(value, default=str) for value in partitions]
        texts = texts or [None] * files.num_rows
        return pa.table([*columns, pa.array(texts, pa.string())], [*names, "partition"])
    schema = pa.schema(
        [
            ("version", pa.int64()),
            ("timestamp", instant),
            ("operation", pa.string()),
            ("operation_parameters", pa.string()),
        ]
    )
    rows = [
        {
            "version": entry["version"],
            "timestamp": entry.get("timestamp"),
            "operation": entry.get("operation"),
            "operation_parameters": json.dumps(entry.get("operationParameters"), default=str),
        }
        for entry in table.history()
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def read_table_properties(options: TableOptions) -> dict[str, str]:
    """Return the properties for a new table."""
    return {f"{PROPERTIES}{key}": value for key, value in options.below(PROPERTIES).items()}


def follows(options: TableOptions) -> bool:
    """Return whether new versions are followed. Raises `ValidationError` for options that conflict with the mode."""
    mode = options.read(MODE).lower()
    if mode not in (BATCH, STREAMING):
        raise options.wrong(MODE.key(), f"it is {BATCH} or {STREAMING}, not {mode}")
    for option in _OF_BATCH if mode == STREAMING else _OF_STREAMING:
        if option.key() in options:
            other = STREAMING if mode == BATCH else BATCH
            raise options.wrong(option.key(), f"it goes with '{MODE.key()}' = '{other}'")
    return mode == STREAMING


def where_to_begin(options: TableOptions) -> Start:
    """Return where reading begins. Raises `ValidationError` if both a version and a timestamp are set."""
    version = options.read(STARTING_VERSION) if options.read(VERSION_AS_OF) is None else options.read(VERSION_AS_OF)
    timestamp = options.read(STARTING_TIMESTAMP) or options.read(TIMESTAMP_AS_OF)
    if version is not None and timestamp is not None:
        raise options.wrong(MODE.key(), "reading begins at a version or at a time, not at both")
    if version is None:
        return Start(timestamp=timestamp)
    try:
        return Start(**parse_start(version))
    except ConfigurationError as error:
        raise options.wrong(STARTING_VERSION.key(), str(error)) from error


#: The log may truncate timestamps to milliseconds. The largest possible error of a bound, in the column's unit.
_CUT: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}
#: Writers such as delta-rs log decimals as doubles, which are exact up to this many digits.
_EXACT_DIGITS: Final = 15


@dataclass(frozen=True, slots=True)
class FilterPruning:
    """Skips files without a row that satisfies all filters (`FilePruning`)."""

    filters: tuple[columnar_files.StatisticsFilter, ...]

    def may_have(self, figures: Mapping[str, log.Figures], partition: Mapping[str, pa.Scalar]) -> bool:
        """See `FilePruning`."""
        return all(self._may_be_true(predicate, figures, partition) for predicate in self.filters)

    def _may_be_true(
        self,
        predicate: columnar_files.StatisticsFilter,
        figures: Mapping[str, log.Figures],
        partition: Mapping[str, pa.Scalar],
    ) -> bool:
        statistics = {}
        for _, name, kind in predicate.columns:
            if name in partition:
                statistics[name] = _of_partition(partition[name], kind)
            elif name in figures:
                statistics[name] = _of_file(figures[name], kind)
        return predicate.may_be_true(statistics)

    def select_row_groups(self, file: Any) -> frozenset[int]:
        """See `FilePruning`."""
        return columnar_files.select_row_groups(file, self.filters)


def _of_partition(value: pa.Scalar, kind: pa.DataType) -> columnar_files.Figures:
    if not value.is_valid:
        return columnar_files.Figures(1, nulls=1)
    bound = _held(value, kind)
    return columnar_files.Figures(1, bound, bound, 0)


def _of_file(figures: log.Figures, kind: pa.DataType) -> columnar_files.Figures:
    if figures.least is None or figures.greatest is None:
        return columnar_files.Figures(figures.rows, nulls=figures.nulls)
    least, greatest = _held(figures.least, kind), _held(figures.greatest, kind)
    if least is None or greatest is None:
        return columnar_files.Figures(figures.rows, nulls=figures.nulls)
    if pa.types.is_timestamp(kind):
        cut = _CUT.get(kind.unit, 1)
        least, greatest = least - cut, greatest + cut
    elif pa.types.is_decimal(kind) and kind.precision > _EXACT_DIGITS:
        least, greatest = least - _rounding(least), greatest + _rounding(greatest)
    return columnar_files.Figures(figures.rows, least, greatest, figures.nulls)


def _rounding(bound: Decimal) -> Decimal:
    """Return the largest possible error of a bound that was once a double."""
    return abs(bound).scaleb(-_EXACT_DIGITS)


def _held(value: pa.Scalar, kind: pa.DataType) -> Any:
    """Return a value as `StatisticsFilter` compares it; None if it cannot be converted to the type."""
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(value.type):
        # Use Python integers: Arrow's nanoseconds cannot hold every timestamp and would wrap around.
        return value.value * NANOSECONDS[value.type.unit] // NANOSECONDS[kind.unit]
    try:
        scalar = exact_cast(pa.repeat(value, 1), kind)[0]
    except pa.ArrowException:
        return None
    return scalar.value if pa.types.is_temporal(kind) else scalar.as_py()


@dataclass(frozen=True, slots=True)
class DeltaScan(
    tables.TableScan, tables.ProjectionPushDown, tables.FilterPushDown, tables.LimitPushDown, tables.WatermarkPushDown
):
    """Reads some columns, and skips files and parts of files.

    Attributes:
        scanned: the table, and where to begin.
        columns: the columns to read.
        key: the names of the primary key columns.
        filters: files without a row that satisfies all filters are skipped.
        strategy: the watermark strategy of each subtask, which reads one file after another.
    """

    scanned: Scanned
    columns: tuple[PlanColumn, ...]
    key: tuple[str, ...] = ()
    filters: tuple[columnar_files.StatisticsFilter, ...] = ()
    strategy: WatermarkStrategy = tables.NO_WATERMARKS

    def _whole(self) -> Scanned:
        columns = tuple(
            WantedColumn(output, column.name, arrow_type(column.type))
            for output, column in zip(tables.column_names(len(self.columns)), self.columns, strict=True)
        )
        return replace(self.scanned, columns=columns, pruning=FilterPruning(self.filters) if self.filters else None)

    def check(self) -> None:
        """See `TableScan`."""
        check_before_reading(self._whole())

    def reader(self) -> tables.TableReader:
        """See `TableScan`."""
        names = [column.name for column in self.columns]
        source = DeltaSource(self._whole())
        key = tuple(names.index(name) for name in self.key) if set(self.key) <= set(names) else ()
        if self.scanned.reads_changes:
            return tables.TableReader(source, ALL, has_before=True, key=key, strategy=self.strategy)
        return tables.TableReader(source, strategy=self.strategy)

    def with_columns(self, columns: Sequence[int]) -> DeltaScan:
        """See `ProjectionPushDown`."""
        return replace(self, columns=tuple(self.columns[index] for index in columns))

    def with_conditions(self, conditions: Sequence[Typed]) -> tables.Filtered:
        """See `FilterPushDown`. All conditions remain: statistics only prove that a file has no matching row."""
        used = tuple(condition for condition in conditions if columnar_files.is_of_use(condition))
        filters = tuple(columnar_files.statistics_filter(condition, RowSchema(self.columns)) for condition in used)
        return tables.Filtered(replace(self, filters=(*self.filters, *filters)), tuple(conditions), used)

    def with_limit(self, limit: int) -> DeltaScan:
        """See `LimitPushDown`."""
        known = self.scanned.limit
        return replace(self, scanned=replace(self.scanned, limit=limit if known is None else min(limit, known)))

    def with_watermarks(self, strategy: WatermarkStrategy) -> DeltaScan:
        """See `WatermarkPushDown`."""
        return replace(self, strategy=strategy)


class TableDeltaSink(DeltaSink):
    """Accepts rows as (kind, internal values), or columns in the order of the table's declaration."""

    def __init__(self, types: tuple[DataType, ...], *parts: Any, **settings: Any) -> None:
        super().__init__(*parts, by_place=True, **settings)
        self._types = types

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, PreparedFiles]:
        """See `Sink`."""
        target = self._target()
        if target.base is not None:
            return RowChangesWriter(context, target, self._target_bytes)
        return _TableWriter(self._types, context, self._target(), self._target_bytes, self._by_place)


class _TableWriter(DeltaWriter):
    def __init__(self, types: tuple[DataType, ...], *parts: Any) -> None:
        super().__init__(*parts)
        self._types = types

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        if not values:
            return
        names = [f"c{index}" for index in range(len(self._types))]
        columns, kinds = columns_of_changes(values, names, self._types)
        self.write_changes(ColumnData(columns), kinds, None)


class DeltaConnector(TableConnector):
    """See the module docstring."""

    name = "delta"
    required_options = (PATH,)
    optional_options = OPTIONAL
    takes_partitions = True
    takes_overwrites = True
    options_up_to_now: ClassVar = {
        option.key(): None for option in (MODE, INTERVAL, IGNORE_DELETES, IGNORE_CHANGES, CHANGE_FEED)
    }

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the delta-rs storage options and the table properties."""
        return [
            key
            for key in options
            if key.startswith((STORAGE, PROPERTIES)) or key in (NEW_TABLE, METADATA_TABLE, ROW_CHANGES)
        ]

    def scan(self, scan: Scan, options: TableOptions) -> tables.TableScan:
        """Return the scan. Raises `ValidationError` for conflicting options."""
        require_library()
        if METADATA_TABLE in options:
            return columns_scan(load_metadata(read_place(options).open(), options[METADATA_TABLE]), scan.schema)
        _stored(options.title, scan.schema)
        is_following = follows(options)
        interval_ms = options.read(INTERVAL)
        if interval_ms < 1:
            raise options.wrong(INTERVAL.key(), f"it must be 1 or above, not {interval_ms}")
        scanned = Scanned(
            read_place(options),
            (),
            where_to_begin(options),
            interval_ms if is_following else None,
            options.read(IGNORE_DELETES),
            options.read(IGNORE_CHANGES),
            options.read(CHANGE_FEED),
        )
        return DeltaScan(scanned, tuple(scan.schema), tuple(scan.schema[index].name for index in scan.key))

    def pin_version(self, options: TableOptions, path: tuple[str, ...]) -> dict[str, str]:
        """See `TableConnector`. Raises `ValidationError` for a table that is read at an earlier version."""
        refuse_versions(options, (VERSION_AS_OF, TIMESTAMP_AS_OF, STARTING_VERSION, STARTING_TIMESTAMP))
        table_place = read_place(options)
        table = table_place.open()
        check_writable(table_place, table, True)
        return {ROW_CHANGES: str(table.version()), VERSION_AS_OF.key(): str(table.version())}

    def remove_rows(
        self, options: TableOptions, path: tuple[str, ...], condition: Typed | None, names: Sequence[str]
    ) -> int | None:
        """See `TableConnector`."""
        predicate = None if condition is None else to_predicate(condition, names)
        if condition is not None and predicate is None:
            return None
        self.pin_version(options, path)  # checks the table
        return remove_rows(read_place(options), predicate)

    def lookup(self, scan: Scan, key: Sequence[int], options: TableOptions) -> TableLookup:
        """Return a lookup that reads the table once and caches its rows."""
        table_scan = self.scan(scan, options)
        table_scan.check()
        return held_lookup(table_scan.reader(), scan, key)

    def writer(self, write: Write, options: TableOptions) -> tables.TableWriter:
        """Return a writer that merges by the primary key if the table declares one."""
        require_library()
        if METADATA_TABLE in options:
            raise UnsupportedError(f"table {options.title} tells about a table, and is not written")
        if ROW_CHANGES in options:
            table_place = read_place(options)
            count = (len(write.schema) - 1) // 2
            changed = [column.name.removeprefix(after("")) for column in write.schema][1 + count :]
            columns = RowSchema(
                tuple(
                    PlanColumn(name, column.type)
                    for name, column in zip(changed, list(write.schema)[1 + count :], strict=True)
                )
            )
            stored = _stored(options.title, columns)
            sink = TableDeltaSink(tuple(write.schema.types), table_place, stored, base=int(options[ROW_CHANGES]))
            return tables.TableWriter(sink, INSERTS, takes_columns=True)
        schema, is_by_key = write.schema, bool(write.key) and not write.overwrites
        new = NewTable.from_text(options[NEW_TABLE]) if NEW_TABLE in options else None
        if new is None:
            check_before_writing(read_place(options), bool(write.key) or write.overwrites)
        else:
            new.check(options.title)
        compaction = options.read(COMPACTION)
        if compaction is not None and compaction < 1:
            raise options.wrong(COMPACTION.key(), f"it must be 1 or above, not {compaction}")
        check_outlives(options.required(PATH))
        try:
            sink = TableDeltaSink(
                tuple(schema.types),
                read_place(options),
                _stored(options.title, schema),
                partition_columns=write.partition_keys or None,
                key=tuple(schema[index].name for index in write.key) if is_by_key else (),
                merge_schema=options.read(MERGE_SCHEMA),
                properties=read_table_properties(options),
                target_bytes=options.read(FILE_SIZE),
                compact_after=compaction,
                creates=options.read(CREATE),
                new=new,
                overwrites=write.overwrites,
                replaced=_find_replaced_partition(write),
            )
        except ConfigurationError as error:
            raise ValidationError(f"table {options.title} cannot be written: {error}") from error
        if not is_by_key:
            return tables.TableWriter(sink, INSERTS, takes_columns=True)
        return tables.TableWriter(sink, ALL, wants_before=False, takes_columns=True, deletes_by_key=True)


_COMPARISONS: Final = ("=", "<", "<=", ">", ">=")


def to_predicate(condition: Typed, names: Sequence[str]) -> str | None:
    """Return a condition over columns with these names in delta-rs's SQL; None if it could mean something else there.

    Comparisons of whole numbers, text, dates and booleans with constants of their kind mean the same.
    """
    if not isinstance(condition, FunctionCall) or condition.options:
        return None
    name, operands = condition.function, condition.operands
    if name in ("AND", "OR"):
        parts = [to_predicate(operand, names) for operand in operands]
        return None if None in parts else f" {name} ".join(f"({part})" for part in parts)
    column = operands[0] if operands else None
    if not isinstance(column, Field):
        return None
    title = quoted(names[column.index], '"')
    if name in ("IS NULL", "IS NOT NULL"):
        return f"{title} {name}"
    texts = [_literal(constant, column.type) for constant in separated(operands[1:])]
    if None in texts or not texts:
        return None
    if name == "IN":
        return f"{title} IN ({', '.join(map(str, texts))})"
    return f"{title} {name} {texts[0]}" if name in _COMPARISONS and len(texts) == 1 else None


def _literal(constant: Typed, other: DataType) -> str | None:
    """Return a constant of the column's kind in delta-rs's SQL; None for NULL and for other constants."""
    if not isinstance(constant, Constant) or constant.value is None:
        return None
    if isinstance(other, VarCharType) and isinstance(constant.type, CharType | VarCharType):
        return quoted(str(constant.value), "'")
    if isinstance(other, IntegralType) and isinstance(constant.type, IntegralType):
        return str(constant.value)
    if isinstance(other, DateType) and isinstance(constant.type, DateType):
        return f"DATE '{(_EPOCH + datetime.timedelta(days=int(str(constant.value)))).isoformat()}'"
    if isinstance(other, BooleanType) and isinstance(constant.type, BooleanType):
        return str(constant.value).lower()
    return None


def _find_replaced_partition(write: Write) -> tuple[tuple[str, str], ...]:
    """Return the partition that is replaced, in the texts of Delta Lake's log."""
    kinds = {column.name: column.type for column in write.schema}
    texts = []
    for name, text in find_replaced_partition(write):
        if isinstance(kinds[name], DateType):
            text = (_EPOCH + datetime.timedelta(days=int(text))).isoformat()
        texts.append((name, text.lower() if isinstance(kinds[name], BooleanType) else text))
    return tuple(texts)


def _stored(title: str, schema: RowSchema) -> pa.Schema:
    """Return the columns with Delta Lake types. Raises `UnsupportedError` for a type that Delta Lake lacks."""
    try:
        # VARIANT is bytes in Arrow, which would be written as BINARY.
        columnar_files.arrow_columns(schema, "Delta Lake", (VariantType,))
        return pa.schema([(column.name, stored_type(arrow_type(column.type), column.name)) for column in schema])
    except UnsupportedError as error:
        raise UnsupportedError(f"table {title}: {error}") from error
