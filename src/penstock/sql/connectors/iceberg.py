"""`iceberg`: reads, follows and writes Iceberg tables. The module has the options, the scan and the sink.

`to_row_filter` translates query conditions to pyiceberg expressions, which skip files and parts of files. They skip no
row that satisfies a condition; the query evaluates every condition again. Only conditions with the same meaning in both
systems are translated: comparisons of a column with constants of its own kind.

`TableIcebergSink` writes the rows of a table, or its changes by key, as columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import pyarrow as pa

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.codecs.column_data import ColumnData
from penstock.connectors.iceberg import tables
from penstock.connectors.iceberg.committer import Staged, remove_rows
from penstock.connectors.iceberg.data_files import refuse_equality_deletes
from penstock.connectors.iceberg.scan import (
    INTERVAL_MS,
    Scanned,
    ScannedColumn,
    StreamingStartingStrategy,
    check_before_reading,
)
from penstock.connectors.iceberg.sink import IcebergSink
from penstock.connectors.iceberg.source import IcebergSource, checked
from penstock.runtime.connector import SinkWriter, SinkWriterContext
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type, columns_of_changes, to_column
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import ALL, INSERTS, PlanColumn, RowSchema, Scan, Write
from penstock.sql.tables.connector import (
    TableConnector,
    TableLookup,
    TableOptions,
    columns_scan,
    find_replaced_partition,
    held_lookup,
    refuse_versions,
)
from penstock.sql.tables.tables import (
    Filtered,
    FilterPushDown,
    LimitPushDown,
    ProjectionPushDown,
    TableReader,
    TableScan,
    TableWriter,
    column_names,
)
from penstock.sql.typed import Constant, Field, FunctionCall, Typed, separated

_STRATEGIES: Final = ", ".join(f"`{strategy.value}`" for strategy in StreamingStartingStrategy)


def _text(key: str, description: str) -> ConfigOption[str | None]:
    return ConfigOptions.key(key).string_type().no_default_value().with_description(description)


def _number(key: str, description: str) -> ConfigOption[int | None]:
    return ConfigOptions.key(key).long_type().no_default_value().with_description(description)


def _flag(key: str, default: bool, description: str) -> ConfigOption[bool]:
    return ConfigOptions.key(key).boolean_type().default_value(default).with_description(description)


CATALOG_NAME: Final = _text("catalog-name", "The name of the catalog; pyiceberg adds its own configuration for it.")
CATALOG_TYPE: Final = _text("catalog-type", "`rest`, `sql`, `hive`, `glue` and so on; by default derived from the URI.")
URI: Final = _text("uri", "The URI of the catalog.")
WAREHOUSE: Final = _text("warehouse", "The location of new tables.")
DATABASE: Final = (
    ConfigOptions.key("catalog-database")
    .string_type()
    .default_value("default")
    .with_description("The namespace of the table; `a.b` for a nested one.")
)
TABLE: Final = _text("catalog-table", "The name of the table in the catalog; by default its name in SQL.")
BRANCH: Final = _text("branch", f"The branch to read, follow or write; by default `{tables.MAIN}`.")

STREAMING: Final = _flag("streaming", False, "Whether to keep reading appended rows, as an unbounded table.")
INTERVAL: Final = (
    ConfigOptions.key("monitor-interval")
    .duration_type()
    .default_value(INTERVAL_MS)
    .with_description("The interval at which new snapshots are discovered.")
)
STRATEGY: Final = (
    ConfigOptions.key("starting-strategy")
    .string_type()
    .default_value(StreamingStartingStrategy.INCREMENTAL_FROM_LATEST_SNAPSHOT.value)
    .with_description(f"Where a streaming read starts: {_STRATEGIES}.")
)
START_ID: Final = _number(
    "start-snapshot-id", "The first snapshot that is followed; by itself it selects `INCREMENTAL_FROM_SNAPSHOT_ID`."
)
START_MS: Final = _number("start-snapshot-timestamp", "The earliest creation time of the first snapshot (ms).")
SKIP_OVERWRITES: Final = _flag(
    "streaming-skip-overwrite-snapshots", False, "Whether to skip snapshots that replace rows, instead of failing."
)
SKIP_DELETES: Final = _flag(
    "streaming-skip-delete-snapshots", False, "Whether to skip snapshots that delete rows, instead of failing."
)
SNAPSHOT_ID: Final = _number("snapshot-id", "The snapshot to read.")
AS_OF: Final = _number("as-of-timestamp", "Read the snapshot that was current at this time (ms since 1970).")
TAG: Final = _text("tag", "Read the snapshot with this tag.")

UPSERT: Final = _flag(
    "write.upsert.enabled",
    True,
    "For a table with a primary key, whether to write upserts; `false` only appends rows.",
)
CREATE: Final = _flag("sink.create-table", True, "Whether to create a missing table from the declared columns.")
EVOLVE: Final = _flag("sink.schema-evolution", False, "Whether to add declared columns that the table lacks.")
PARTITIONING: Final = _text(
    "sink.partitioning", "The partitioning of a new table, instead of PARTITIONED BY: `day(ts), bucket(16, id)`."
)
TARGET: Final = (
    ConfigOptions.key("sink.target-file-size")
    .memory_type()
    .default_value(tables.TARGET_BYTES)
    .with_description("The number of buffered bytes at which a subtask writes a file before the checkpoint.")
)
RETENTION: Final = (
    ConfigOptions.key("sink.ledger-retention")
    .duration_type()
    .default_value(tables.RETENTION_MS)
    .with_description("The minimum time that the table remembers commits; keep it longer than savepoints.")
)
OPTIONAL: Final[tuple[ConfigOption[Any], ...]] = (
    CATALOG_TYPE,
    URI,
    WAREHOUSE,
    DATABASE,
    TABLE,
    BRANCH,
    STREAMING,
    INTERVAL,
    STRATEGY,
    START_ID,
    START_MS,
    SKIP_OVERWRITES,
    SKIP_DELETES,
    SNAPSHOT_ID,
    AS_OF,
    TAG,
    UPSERT,
    CREATE,
    EVOLVE,
    PARTITIONING,
    TARGET,
    RETENTION,
)

#: Options passed unchanged to the catalog and its file system; others need the prefix `catalog.`.
_OF_CATALOG: Final = re.compile(
    r"(s3|adls|gcs|hdfs|hf|rest|glue|hive|client|oauth2|header|ssl)\..+|token|credential|scope|prefix|py-io-impl"
)
#: Options that become properties of a new table.
_OF_TABLE: Final = re.compile(r"write\.(?!upsert\.enabled).+|commit\..+|history\..+|format-version|gc\.enabled")
_BEHIND: Final = "catalog."
#: The option in which a catalog passes a table that the first commit creates.
NEW_TABLE: Final = "sink.new-table"
#: The option that pins the snapshot of a statement that changes rows; empty for a table without one.
ROW_CHANGES: Final = "sink.row-changes"
#: The option in which a catalog asks for a metadata table, and the names of these tables.
METADATA_TABLE: Final = "metadata-table"
METADATA_TABLES: Final = (
    *("snapshots", "history", "files", "data_files", "delete_files", "all_files", "all_data_files", "partitions"),
    *("manifests", "all_manifests", "entries", "refs", "metadata_log_entries"),
)
#: unsupported options of Iceberg's connector, and why
_REFUSED: Final = (
    (re.compile(r"catalog-impl"), "catalogs are pyiceberg's: use 'catalog-type', or 'catalog.py-catalog-impl'"),
    (re.compile(r"(start|end)-tag|end-snapshot-id"), "a part of the history is not read by itself"),
    (re.compile(r"write-parallelism|(sink|scan)\.parallelism"), "set parallelism.default for the job"),
    (re.compile(r"write\.distribution-mode|distribution-mode"), "rows are not sent to writers by their partition"),
)


def more_keys(options: TableOptions) -> Iterable[str]:
    """Return the options of a table that belong to the catalog or to the Iceberg table.

    Raises:
        UnsupportedError: for options of Iceberg's connector that are not supported.
    """
    options.refuse(_REFUSED)
    for key in options:
        if belongs_to_catalog(key) or _OF_TABLE.fullmatch(key) or key in (NEW_TABLE, METADATA_TABLE, ROW_CHANGES):
            yield key


def load_metadata(table: Any, kind: str) -> pa.Table:
    """Return the rows of a table about a table, such as its snapshots."""
    rows: pa.Table = getattr(table.inspect, kind)()
    names = [field.name for field in rows.schema if field.type != pa.struct([])]
    # pyiceberg's points in time have no zone, and are UTC.
    is_utc = {name for name in names if pa.types.is_timestamp(rows.schema.field(name).type)}
    instant = pa.timestamp("ms", "UTC")
    columns = [rows.column(name).cast(instant) if name in is_utc else rows.column(name) for name in names]
    return pa.table(columns, names)


def belongs_to_catalog(key: str) -> bool:
    """Return whether an option is passed to the catalog."""
    return _OF_CATALOG.fullmatch(key) is not None or key.startswith(_BEHIND)


def read_catalog_loader(options: Mapping[str, str]) -> tables.CatalogLoader:
    """Return the loader of the catalog that options reach."""
    properties = {key: options[key] for key in options if _OF_CATALOG.fullmatch(key)}
    properties |= {key.removeprefix(_BEHIND): options[key] for key in options if key.startswith(_BEHIND)}
    for option, name in ((CATALOG_TYPE, "type"), (URI, "uri"), (WAREHOUSE, "warehouse")):
        if option.key() in options:
            properties[name] = options[option.key()]
    return tables.CatalogLoader.of(options[CATALOG_NAME.key()], properties)


def build_table_loader(options: TableOptions, path: tuple[str, ...]) -> tables.TableLoader:
    """Return the loader of the table."""
    options.required(CATALOG_NAME)
    catalog = read_catalog_loader({key: options[key] for key in options})
    table = options.read(TABLE) or path[-1]
    try:
        return tables.TableLoader.from_catalog(catalog, (*options.read(DATABASE).split("."), table))
    except ConfigurationError as error:
        raise options.wrong(DATABASE.key(), str(error)) from error


def table_properties(options: TableOptions) -> tuple[tuple[str, str], ...]:
    """Return the properties for a new table."""
    return tuple(sorted((key, options[key]) for key in options if _OF_TABLE.fullmatch(key)))


def read_strategy(options: TableOptions) -> StreamingStartingStrategy:
    """Return where following begins. Raises `ValidationError` for an unknown strategy."""
    if STRATEGY.key() not in options and options.read(START_ID) is not None:
        return StreamingStartingStrategy.INCREMENTAL_FROM_SNAPSHOT_ID
    text = options.read(STRATEGY).upper().replace("-", "_")
    try:
        return StreamingStartingStrategy(text)
    except ValueError:
        raise options.wrong(STRATEGY.key(), f"it is one of {_STRATEGIES.replace('`', '')}") from None


_MIRRORED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CLASSES: Final = {
    "=": "EqualTo",
    "<": "LessThan",
    "<=": "LessThanOrEqual",
    ">": "GreaterThan",
    ">=": "GreaterThanOrEqual",
}
#: Groups of types that all compare with each other, in the same order in both systems.
_KINDS: Final[tuple[tuple[type[DataType], ...], ...]] = (
    (types.IntegralType,),
    (types.VarCharType,),
    (types.DateType,),
    (types.BooleanType,),
)
_IN_MAX: Final = 200


def can_remove_rows(condition: Typed) -> bool:
    """Return whether pyiceberg removes exactly the rows that satisfy a condition that `to_row_filter` translates.

    When pyiceberg rewrites a file, it keeps every row with a NULL in a column that the condition compares. So no such
    row may satisfy the condition: `a = 1 OR b = 2` is true for a row with `a = 1` and no `b`. It loses rows if a column
    is both compared and tested for NULL.
    """
    needed, compared, tested = _columns(condition)
    return needed == compared and not compared & tested


def _columns(condition: Typed) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    """Return the nullable columns without which the condition is not true, all that it compares, and all it tests."""
    assert isinstance(condition, FunctionCall)
    nothing: frozenset[int] = frozenset()
    if condition.function in ("AND", "OR"):
        needed, compared, tested = zip(*map(_columns, condition.operands), strict=True)
        together = nothing.union(*needed) if condition.function == "AND" else needed[0].intersection(*needed)
        return together, nothing.union(*compared), nothing.union(*tested)
    columns = frozenset(
        operand.index for operand in condition.operands if isinstance(operand, Field) and operand.type.is_nullable
    )
    if condition.function in ("IS NULL", "IS NOT NULL"):
        return nothing, nothing, columns
    return columns, columns, nothing


def to_row_filter(condition: Typed, names: Sequence[str], is_whole: bool = False) -> Any | None:
    """Return a condition over columns with these names; None if it cannot be used to skip rows.

    `is_whole`: the result is true for the same rows as the condition; otherwise it may be true for more rows.
    """
    from pyiceberg import expressions

    classes: Any = expressions  # its classes accept names, which their type hints omit
    if not isinstance(condition, FunctionCall) or condition.options:
        return None
    name, operands = condition.function, condition.operands
    if name in ("AND", "OR"):
        parts = [to_row_filter(operand, names, is_whole) for operand in operands]
        known = [part for part in parts if part is not None]
        if not known or ((name == "OR" or is_whole) and len(known) < len(parts)):
            return None
        joined = known[0]
        for expression in known[1:]:
            joined = classes.And(joined, expression) if name == "AND" else classes.Or(joined, expression)
        return joined
    first = operands[0] if operands else None
    if name in ("IS NULL", "IS NOT NULL") and isinstance(first, Field):
        return classes.IsNull(names[first.index]) if name == "IS NULL" else classes.NotNull(names[first.index])
    if name == "IN" and isinstance(first, Field):
        values = [_constant(constant, first.type) for constant in separated(operands[1:])]
        if not values or len(values) > _IN_MAX or any(value is None for value in values):
            return None
        return classes.In(names[first.index], values)
    if name in _CLASSES and len(operands) == 2:
        left, right = operands
        if isinstance(left, Constant) and isinstance(right, Field):
            left, right, name = right, left, _MIRRORED[name]
        if isinstance(left, Field):
            value = _constant(right, left.type)
            if value is not None:
                return getattr(classes, _CLASSES[name])(names[left.index], value)
    return None


def _constant(constant: Typed, other: DataType) -> Any | None:
    """Return the value of a constant of the column's kind; None for NULL and for other constants."""
    if not isinstance(constant, Constant) or constant.value is None:
        return None
    for kind in _KINDS:
        if isinstance(other, kind):
            is_text = isinstance(constant.type, types.CharType | types.VarCharType) and kind == (types.VarCharType,)
            if not (is_text or isinstance(constant.type, kind)):
                return None
            value = to_column([constant.value], constant.type)[0].as_py()
            if isinstance(other, types.IntegralType) and not -(2**63) <= value < 2**63:
                return None
            # pyiceberg parses dates from ISO text.
            return value.isoformat() if isinstance(other, types.DateType) else value
    return None


@dataclass(frozen=True, slots=True)
class IcebergScan(TableScan, ProjectionPushDown, FilterPushDown, LimitPushDown):
    """Reads some columns, and skips partitions, files and parts of files.

    Attributes:
        scanned: the scan settings, except for the columns.
        columns: the columns to read.
    """

    scanned: Scanned
    columns: tuple[PlanColumn, ...]

    def _whole(self) -> Scanned:
        columns = tuple(
            ScannedColumn(column.name, name, arrow_type(column.type))
            for name, column in zip(column_names(len(self.columns)), self.columns, strict=True)
        )
        return replace(self.scanned, columns=columns)

    def check(self) -> None:
        """See `TableScan`."""
        check_before_reading(self._whole())

    def reader(self) -> TableReader:
        """See `TableScan`."""
        return TableReader(IcebergSource(self._whole()))

    def with_columns(self, columns: Sequence[int]) -> IcebergScan:
        """See `ProjectionPushDown`."""
        return replace(self, columns=tuple(self.columns[index] for index in columns))

    def with_conditions(self, conditions: Sequence[Typed]) -> Filtered:
        """See `FilterPushDown`. The query evaluates all conditions again."""
        from pyiceberg.expressions import And

        names = [column.name for column in self.columns]
        known = [(expression, to_row_filter(expression, names)) for expression in conditions]
        joined = self.scanned.row_filter
        for _, condition in known:
            if condition is not None:
                joined = condition if joined is None else And(joined, condition)
        used = tuple(expression for expression, condition in known if condition is not None)
        return Filtered(replace(self, scanned=replace(self.scanned, row_filter=joined)), tuple(conditions), used)

    def with_limit(self, limit: int) -> IcebergScan:
        """See `LimitPushDown`."""
        before = self.scanned.limit
        return replace(self, scanned=replace(self.scanned, limit=limit if before is None else min(limit, before)))


class TableIcebergSink(IcebergSink):
    """Accepts rows as (kind, internal values), or columns by position."""

    def __init__(self, settings: tables.SinkSettings, schema: RowSchema) -> None:
        super().__init__(settings)
        self._schema = schema

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Staged]:
        """See `Sink`."""
        return _TableWriter(super().create_writer(context), self._schema)


class _TableWriter(SinkWriter[Any, Staged]):
    """Renames columns to their names in the table."""

    def __init__(self, writer: SinkWriter[Any, Staged], schema: RowSchema) -> None:
        self._writer = writer
        self._schema = schema

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        if not values:
            return
        columns, kinds = columns_of_changes(values, self._schema.names, self._schema.types)
        self._writer.write_changes(ColumnData(columns), kinds, None)

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._writer.write_columns(self._named(data), rowtimes)

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._writer.write_changes(self._named(data), kinds, rowtimes)

    def _named(self, data: ColumnData) -> ColumnData:
        return ColumnData(data.columns.rename_columns(list(self._schema.names)))

    def flush(self, end_of_input: bool) -> None:
        """See `SinkWriter`."""
        self._writer.flush(end_of_input)

    def prepare_commit(self) -> list[Staged]:
        """See `SinkWriter`."""
        return self._writer.prepare_commit()

    def close(self) -> None:
        """See `SinkWriter`."""
        self._writer.close()


_OTHERS: Final = (
    types.YearMonthIntervalType,
    types.DayTimeIntervalType,
    types.RawType,
    types.BitmapType,
    types.NullType,
)
#: the commas between partition transforms, not those within one
_COMMA: Final = re.compile(r",(?![^(]*\))")


class IcebergConnector(TableConnector):
    """See the module docstring."""

    name = "iceberg"
    required_options = (CATALOG_NAME,)
    optional_options = OPTIONAL
    takes_partitions = True
    takes_overwrites = True
    options_up_to_now: ClassVar = {STREAMING.key(): None}

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the options of catalogs, their file systems, and new tables."""
        return more_keys(options)

    def scan(self, scan: Scan, options: TableOptions) -> TableScan:
        """Return the scan. Raises `ValidationError` for conflicting options."""
        tables.require_library()
        if METADATA_TABLE in options:
            with build_table_loader(options, scan.path).opened() as table:
                return columns_scan(load_metadata(table, options[METADATA_TABLE]), scan.schema)
        check_types(options.title, scan.schema, is_read=True)
        scanned = Scanned(
            build_table_loader(options, scan.path),
            (),
            snapshot_id=options.read(SNAPSHOT_ID),
            as_of_ms=options.read(AS_OF),
            follows=options.read(STREAMING),
            strategy=read_strategy(options),
            start_snapshot_id=options.read(START_ID),
            start_ms=options.read(START_MS),
            interval_ms=options.read(INTERVAL),
            skips_overwrites=options.read(SKIP_OVERWRITES),
            skips_deletes=options.read(SKIP_DELETES),
        )
        if ROW_CHANGES in options:
            pinned = options[ROW_CHANGES]
            scanned = replace(scanned, snapshot_id=int(pinned) if pinned else None, keeps_schema=True)
            return IcebergScan(scanned, tuple(scan.schema))
        try:
            scanned = checked(scanned, options.read(BRANCH), options.read(TAG))
        except ConfigurationError as error:
            raise options.wrong(STREAMING.key(), str(error)) from error
        return IcebergScan(scanned, tuple(scan.schema))

    def pin_version(self, options: TableOptions, path: tuple[str, ...]) -> dict[str, str]:
        """See `TableConnector`. Raises `ValidationError` for a table that is read at an earlier snapshot."""
        refuse_versions(options, (SNAPSHOT_ID, AS_OF, TAG, STREAMING))
        branch = options.read(BRANCH) or tables.MAIN
        loader = build_table_loader(options, path)
        with loader.opened() as table:
            tables.check_before_changing(loader.title, table)
            head = table.metadata.snapshot_by_name(branch)
            if head is None and branch != tables.MAIN:
                raise options.wrong(BRANCH.key(), f"there is no branch '{branch}'")
            refuse_equality_deletes(loader.title, table, head)
        return {ROW_CHANGES: "" if head is None else str(head.snapshot_id)}

    def remove_rows(
        self, options: TableOptions, path: tuple[str, ...], condition: Typed | None, names: Sequence[str]
    ) -> int | None:
        """See `TableConnector`."""
        from pyiceberg.expressions import AlwaysTrue

        row_filter = AlwaysTrue() if condition is None else to_row_filter(condition, names, is_whole=True)
        if row_filter is None or not (condition is None or can_remove_rows(condition)):
            return None
        self.pin_version(options, path)  # checks the table
        return remove_rows(build_table_loader(options, path), options.read(BRANCH) or tables.MAIN, row_filter)

    def lookup(self, scan: Scan, key: Sequence[int], options: TableOptions) -> TableLookup:
        """Return a lookup that reads the table once and caches its rows."""
        table_scan = self.scan(scan, options)
        table_scan.check()
        return held_lookup(table_scan.reader(), scan, key)

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Return a writer that appends rows, or writes by primary key if the table declares one."""
        tables.require_library()
        if METADATA_TABLE in options:
            raise UnsupportedError(f"table {options.title} tells about a table, and is not written")
        check_types(options.title, write.schema)
        if ROW_CHANGES in options:
            pinned = options[ROW_CHANGES]
            settings = tables.SinkSettings(
                build_table_loader(options, write.path),
                changes=True,
                base=int(pinned) if pinned else None,
                branch=options.read(BRANCH) or tables.MAIN,
                retention_ms=options.read(RETENTION),
            )
            return TableWriter(TableIcebergSink(settings, write.schema), INSERTS, takes_columns=True)
        is_by_key = bool(write.key) and options.read(UPSERT) and not write.overwrites
        key = tuple(write.schema[index].name for index in write.key)
        target, retention_ms = options.read(TARGET), options.read(RETENTION)
        if target < 1:
            raise options.wrong(TARGET.key(), "it must be above 0")
        settings = tables.SinkSettings(
            build_table_loader(options, write.path),
            _declared(write, options, key),
            creates=options.read(CREATE),
            evolves=options.read(EVOLVE),
            equality=key if is_by_key else (),
            overwrites=write.overwrites,
            replaced=find_replaced_partition(write),
            branch=options.read(BRANCH) or tables.MAIN,
            target_bytes=target,
            retention_ms=retention_ms,
            new=tables.NewTable.from_text(options[NEW_TABLE]) if NEW_TABLE in options else None,
        )
        assert settings.declared is not None
        if settings.new is None:
            tables.check_before_writing(
                settings.loader, settings.declared, settings.evolves, settings.branch if is_by_key else None
            )
        sink = TableIcebergSink(settings, write.schema)
        if not is_by_key:
            return TableWriter(sink, INSERTS, takes_columns=True)
        return TableWriter(sink, ALL, wants_before=False, takes_columns=True, deletes_by_key=True)


def split_partitioning(text: str) -> list[str]:
    """Return the partition fields in a text such as `day(ts), bucket(16, id)`."""
    return list(map(str.strip, _COMMA.split(text)))


def _declared(write: Write, options: TableOptions, key: tuple[str, ...]) -> tables.DeclaredTable:
    fields = [pa.field(column.name, arrow_type(column.type), column.type.is_nullable) for column in write.schema]
    text = options.read(PARTITIONING)
    if text is not None and write.partition_keys:
        raise options.wrong(PARTITIONING.key(), "the table is PARTITIONED BY columns already: leave out one of the two")
    partitioning = write.partition_keys if text is None else split_partitioning(text)
    try:
        for transform in partitioning:
            column, _ = tables.partition_transform(transform)
            if column not in write.schema.names:
                raise options.wrong(PARTITIONING.key(), f"there is no column {column!r}")
    except ConfigurationError as error:
        raise options.wrong(PARTITIONING.key(), str(error)) from error
    return tables.DeclaredTable(pa.schema(fields), key, tuple(partitioning), table_properties(options))


def check_types(title: str, schema: RowSchema, is_read: bool = False) -> None:
    """Raise `UnsupportedError` for column types that Iceberg lacks. Timestamps with 9 digits can only be read."""
    for column in schema:
        waiting = [column.type]
        while waiting:
            kind = waiting.pop()
            is_too_fine = (
                isinstance(kind, types.TimestampType | types.LocalZonedTimestampType)
                and kind.precision > 6
                and not is_read
            )
            if isinstance(kind, types.VariantType):
                raise UnsupportedError(
                    f"column '{column.name}' of table {title} is {column.type}, which pyiceberg does not read or "
                    "write: keep it as STRING, with JSON_STRING and PARSE_JSON"
                )
            if is_too_fine or isinstance(kind, _OTHERS):
                raise UnsupportedError(
                    f"column '{column.name}' of table {title} is {column.type}, which Iceberg does not have: "
                    + ("it keeps points in time with 6 digits" if is_too_fine else "declare it as another type")
                )
            waiting += kind.children()
