"""`parquet` and `orc`: columnar files that Arrow reads and writes, and the code that both formats share.

**Legacy timestamps.** Files of programs that use Java's legacy date classes have timestamps in the time zone of the
program. Such a program has a local time, and stores the instant at which the clock in its zone shows this time. The
legacy date classes have their own rules: before 1900 the offset of a zone from UTC is always today's, without daylight
saving time, and before 15 October 1582 dates are in the Julian calendar.

**Row groups.** `select_row_groups` selects the row groups of a Parquet file that may have rows for a query, by their
statistics. Files store the minimum, maximum and null count of each column in a row group. A condition is usable if it
compares columns with constants. Arrow's own filters give up if a column has a NULL, so conditions are evaluated here.
Statistics ignore NaN and may truncate strings, so an inequality (`<>`) on floats or strings is not usable; nor is a
column whose type in the file differs from the table's.

A statistic is used only if it can be compared. Writers differ: some put NaN into the bounds, swap them, or count NULLs
wrongly. Such a statistic excludes nothing, so the row group is read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.base.config_options import ConfigOption, ConfigOptions, choice
from penstock.base.errors import FormatError, UnsupportedError
from penstock.codecs import variant
from penstock.codecs.arrow_columns import (
    NANOSECONDS,
    convert_leaves,
    exact_cast,
    has_times,
    leaf_types,
    nullable_key_column,
    plain_column,
    plain_type,
    to_gregorian,
    to_julian,
)
from penstock.codecs.column_data import ColumnData
from penstock.formats.file_format import BatchWriter, BatchWriterFactory, BulkFile, BulkFormat
from penstock.formats.orc import STRIPE_BYTES, OrcFormat, OrcWriterFactory
from penstock.formats.parquet import ParquetFormat, ParquetWriterFactory
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type, to_scalar
from penstock.sql.data.datetimes import to_local, to_moments
from penstock.sql.data.types import DataType
from penstock.sql.formats.format import ColumnsWriter, Decoding, Encoding, TableFormat
from penstock.sql.logical.nodes import RowSchema
from penstock.sql.tables.connector import TableOptions
from penstock.sql.typed import Constant, Field, FunctionCall, Typed, separated

#: types that no file format can store
NO_FILE_TYPES: Final = (
    types.YearMonthIntervalType,
    types.DayTimeIntervalType,
    types.RawType,
    types.BitmapType,
    types.NullType,
)
_GROUP_ROWS: Final = 1 << 16


def arrow_columns(schema: RowSchema, format_name: str, refused: tuple[type[DataType], ...]) -> pa.Schema:
    """Return the columns as stored in files. Raises `UnsupportedError` if a column's type contains a refused type."""
    for column in schema:
        if refused_type := _refused(column.type, refused):
            raise UnsupportedError(
                f"{format_name} has no form for {refused_type}: column '{column.name}' of type {column.type}"
            )
    return pa.schema([pa.field(column.name, _stored_type(column.type)) for column in schema])


def _stored_type(kind: DataType) -> pa.DataType:
    """Return the type of a column in files."""
    if isinstance(kind, types.VariantType):
        return variant.STORED
    if not _refused(kind, (types.VariantType,)):
        return plain_type(arrow_type(kind))
    if isinstance(kind, types.RowType):
        return pa.struct([pa.field(field.name, _stored_type(field.data_type)) for field in kind.fields])
    children = [_stored_type(child) for child in kind.children()]
    if isinstance(kind, types.MultisetType):
        return pa.map_(children[0], pa.int32())
    return pa.map_(*children) if isinstance(kind, types.MapType) else pa.list_(*children)


def not_null_columns(schema: RowSchema) -> frozenset[str]:
    """Return the names of the NOT NULL columns."""
    return frozenset(column.name for column in schema if not column.type.is_nullable)


def _refused(kind: DataType, refused: tuple[type[DataType], ...]) -> DataType | None:
    if isinstance(kind, refused):
        return kind
    return next(
        (refused_type for child in kind.children() if (refused_type := _refused(child, refused)) is not None), None
    )


class TypedFile(BulkFile[Any]):
    """Reads the columns of a file as these types, in the representation that tables use.

    Args:
        inner: reads the columns with the file's types.
        schema: the names and types of the columns.
        units: the units to read; None for all.
        required: the columns that must not be NULL. A column that the file lacks is NULL.
        convert: converts timestamps, also nested ones, before the cast to these types; None for no conversion.
    """

    def __init__(
        self,
        inner: BulkFile[Any],
        schema: pa.Schema,
        units: frozenset[int] | None = None,
        convert: Callable[[pa.Array], pa.Array] | None = None,
        required: Collection[str] = (),
    ) -> None:
        self._inner = inner
        self._schema = schema
        self._kept = units
        self._required = frozenset(required)
        self._convert = convert

    def units(self, start: int, end: int | None) -> Sequence[int]:
        """See `BulkFile`."""
        units = self._inner.units(start, end)
        return units if self._kept is None else [unit for unit in units if unit in self._kept]

    def read(self, unit: int, skip_records: int) -> Iterator[list[Any] | ColumnData]:
        """See `BulkFile`."""
        for data in self._inner.read(unit, skip_records):
            assert isinstance(data, ColumnData)
            yield ColumnData(self._typed(data.columns))

    def _typed(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        arrays = []
        for field in self._schema:
            if field.name not in columns.schema.names:
                if field.name in self._required:
                    raise FormatError(f"the file has no column '{field.name}', which is NOT NULL")
                arrays.append(nullable_key_column(pa.nulls(columns.num_rows, variant.packed_type(field.type))))
                continue
            column = columns.column(field.name)
            try:
                column = variant.from_stored(column, field.type)
                if self._convert is not None and has_times(column.type):
                    column = convert_leaves(self._convert, column)
                arrays.append(nullable_key_column(exact_cast(column, variant.packed_type(field.type))))
            except pa.ArrowException as error:
                raise FormatError(
                    f"column '{field.name}' of type {column.type} cannot be read as {field.type}: {error}"
                ) from error
        return pa.RecordBatch.from_arrays(arrays, self._schema.names)


class GatheringWriterFactory(BatchWriterFactory[Any]):
    """Writes columns in batches of many rows, so that groups are large.

    Args:
        schema: the columns.
        inner: writes the batches.
        convert: converts timestamps, also nested ones, before `inner` gets them; None for no conversion.
    """

    def __init__(
        self,
        schema: RowSchema,
        inner: BatchWriterFactory[Any],
        convert: Callable[[pa.Array], pa.Array] | None = None,
    ) -> None:
        self._schema = schema
        self._inner = inner
        self._convert = convert

    def create(self, stream: BinaryIO) -> BatchWriter[Any]:
        """See `BatchWriterFactory`."""
        return _Writer(self._schema, self._inner.create(stream), self._convert)


def _plain(name: str, column: pa.Array) -> pa.Array:
    try:
        return plain_column(column)
    except pa.ArrowInvalid as error:
        raise FormatError(f"column '{name}' cannot be written: {error}") from error


class _Writer(ColumnsWriter):
    def __init__(
        self, schema: RowSchema, inner: BatchWriter[Any], convert: Callable[[pa.Array], pa.Array] | None
    ) -> None:
        super().__init__(schema)
        self._inner = inner
        self._convert = convert
        stored = [_stored_type(column.type) for column in schema]
        #: the types in files, if any is a variant or contains one
        self._stored = stored if any(map(variant.holds_variants, stored)) else None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def add_columns(self, data: ColumnData) -> None:
        self._waiting.append(data.columns)
        self._rows += len(data)
        if self._rows >= _GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting).combine_chunks()
            self._waiting, self._rows = [], 0
            for batch in table.to_batches():
                arrays = [_plain(*pair) for pair in zip(batch.schema.names, batch.columns, strict=True)]
                if self._convert is not None:
                    arrays = [
                        convert_leaves(self._convert, array) if has_times(array.type) else array for array in arrays
                    ]
                if self._stored is not None:
                    arrays = [variant.to_stored(*pair) for pair in zip(arrays, self._stored, strict=True)]
                self._inner.add_columns(ColumnData(pa.RecordBatch.from_arrays(arrays, batch.schema.names)))

    def finish(self) -> None:
        self.flush()
        self._inner.finish()

    def discard(self) -> None:
        self._waiting = []
        self._inner.discard()


_DAY_NS: Final = 86_400 * 10**9
#: 1 January 1900, in days since 1970
_RULES_BEGIN_DAY: Final = -25_567


def clock_times(column: pa.Array, zone: tzinfo) -> pa.Array:
    """Return the local times that a program in a zone has stored as instants in UTC.

    Args:
        column: timestamps. Columns of other types are returned unchanged.
        zone: the time zone of the program.

    Returns:
        Timestamps without a zone, in the same unit.
    """
    if not pa.types.is_timestamp(column.type):
        return column
    unit = column.type.unit
    day = _DAY_NS // NANOSECONDS[unit]
    clock = to_local(column.view(pa.timestamp(unit, "UTC")), zone)
    moments = _numbers(column)
    is_old = moments < _RULES_BEGIN_DAY * day
    if not is_old.any():
        return clock
    clock_numbers = moments + _first_offset(zone) // NANOSECONDS[unit]
    days = clock_numbers // day
    clock_numbers = to_gregorian(days) * day + (clock_numbers - days * day)
    return _with_numbers(clock, np.where(is_old, clock_numbers, _numbers(clock)))


def stored_moments(column: pa.Array, zone: tzinfo) -> pa.Array:
    """Return the instants stored by a program in a zone for local times: the inverse of `clock_times`.

    Keeps the type.
    """
    if not pa.types.is_timestamp(column.type):
        return column
    unit = column.type.unit
    day = _DAY_NS // NANOSECONDS[unit]
    clock = column.view(pa.timestamp(unit))
    converted = to_moments(clock, zone).view(column.type)
    clock_numbers = _numbers(column)
    offset = _first_offset(zone) // NANOSECONDS[unit]
    is_old = clock_numbers < _RULES_BEGIN_DAY * day + offset
    if not is_old.any():
        return converted
    days = clock_numbers // day
    moments = to_julian(days) * day + (clock_numbers - days * day) - offset
    return _with_numbers(converted, np.where(is_old, moments, _numbers(converted)))


def _first_offset(zone: tzinfo) -> int:
    """Return a zone's offset from UTC before 1900, in nanoseconds, according to Java's legacy classes."""
    now = datetime(2024, 1, 1, tzinfo=zone)
    offset = (now.utcoffset() or timedelta()) - (now.dst() or timedelta())
    return int(offset.total_seconds()) * 10**9


def _numbers(column: pa.Array) -> Any:
    numbers = column.view(pa.int64())
    return (numbers.fill_null(0) if column.null_count else numbers).to_numpy()


def _with_numbers(column: pa.Array, numbers: Any) -> pa.Array:
    missing = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(numbers, pa.int64(), mask=missing).view(column.type)


_TURNED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_FLOATING: Final = (types.FloatType, types.DoubleType)
_TEXTS: Final = (types.CharType, types.VarCharType)
#: types whose bounds in statistics are integers
_WHOLE: Final = (types.IntegralType, types.DateType, types.TimestampType)
#: longer IN lists exclude hardly any row group, and each constant is compared with the statistics of every row group
_IN_MAX: Final = 1_000
#: the physical types of these in Parquet, whose bounds sort like the values
_WHOLE_IN_FILES: Final = ("INT32", "INT64")
_COMPARED: Final = (*_WHOLE, *_FLOATING, types.DecimalType, *_TEXTS)


class Figures(NamedTuple):
    """The statistics of a column in a row group; None if unknown. `nulls`: the number of NULLs in `rows` values."""

    rows: int
    least: Any = None
    greatest: Any = None
    nulls: int | None = None

    @property
    def has_bounds(self) -> bool:
        """Whether both bounds are known and in order. NaN compares with nothing, so it is not a valid bound."""
        return self.least is not None and self.greatest is not None and bool(self.least <= self.greatest)

    @property
    def has_only_nulls(self) -> bool:
        """Whether every value is NULL. A count is wrong if bounds contradict it or if it exceeds the number of rows."""
        return self.nulls == self.rows and self.least is None and self.greatest is None


@dataclass(frozen=True, slots=True)
class StatisticsFilter:
    """A condition that only compares columns of files with constants.

    Attributes:
        condition: the condition that rows must meet.
        columns: the index, name and type of each column.
    """

    condition: Typed
    columns: tuple[tuple[int, str, pa.DataType], ...]

    def fits(self, schema: pa.Schema) -> bool:
        """Return whether a file has the columns with the expected types."""
        return all(name in schema.names and schema.field(name).type == kind for _, name, kind in self.columns)

    def has_times(self) -> bool:
        """Return whether the condition compares timestamps."""
        return any(pa.types.is_timestamp(kind) for _, _, kind in self.columns)

    def may_be_true(self, figures: Mapping[str, Figures]) -> bool:
        """Return whether a row group may have a row that meets the condition. `figures`: column statistics by name."""
        by_index = {index: figures[name] for index, name, _ in self.columns if name in figures}
        return len(by_index) < len(self.columns) or _may_be_true(self.condition, by_index)


def statistics_filter(condition: Typed, schema: RowSchema) -> StatisticsFilter:
    """Return the filter of a condition that `is_of_use`, over the columns of files."""
    read = sorted({node.index for node in condition.walk() if isinstance(node, Field)})
    return StatisticsFilter(
        condition, tuple((index, schema[index].name, arrow_type(schema[index].type)) for index in read)
    )


def is_of_use(condition: Typed) -> bool:
    """Return whether statistics can prove that no row in a row group meets a condition."""
    if not isinstance(condition, FunctionCall):
        return False
    operands = condition.operands
    match condition.function:
        case "AND" | "OR":
            return all(map(is_of_use, operands))
        case "IS NULL" | "IS NOT NULL":
            return isinstance(operands[0], Field) and isinstance(operands[0].type, _COMPARED)
        case "IN":
            among = separated(operands[1:])
            return len(among) <= _IN_MAX and all(_is_comparison("=", operands[0], constant) for constant in among)
        case function if function in _TURNED:
            left, right = operands
            return _is_comparison(function, left, right) or _is_comparison(_TURNED[function], right, left)
        case _:
            return False


def _is_comparison(function: str, column: Typed, constant: Typed) -> bool:
    """Return whether a column is compared with a constant of its own type in a way that statistics can decide."""
    if not isinstance(column, Field) or not isinstance(constant, Constant) or constant.value is None:
        return False
    if isinstance(column.type, _FLOATING) and constant.value != constant.value:
        return False
    if function == "<>" and isinstance(column.type, (*_FLOATING, *_TEXTS)):
        return False
    return isinstance(column.type, _COMPARED) and _fits(constant, column.type)


def _fits(constant: Constant, kind: DataType) -> bool:
    try:
        return bool(to_scalar(constant.value, constant.type).type == arrow_type(kind))
    except pa.ArrowException:
        return False


def _may_be_true(condition: Typed, figures: Mapping[int, Figures]) -> bool:
    assert isinstance(condition, FunctionCall)
    operands = condition.operands
    match condition.function:
        case "AND":
            return all(_may_be_true(operand, figures) for operand in operands)
        case "OR":
            return any(_may_be_true(operand, figures) for operand in operands)
        case "IS NULL":
            return _get_figures(operands[0], figures).nulls != 0
        case "IS NOT NULL":
            return not _get_figures(operands[0], figures).has_only_nulls
        case "IN":
            return any(_may_compare("=", operands[0], constant, figures) for constant in separated(operands[1:]))
        case function:
            left, right = operands
            if isinstance(left, Field):
                return _may_compare(function, left, right, figures)
            return _may_compare(_TURNED[function], right, left, figures)


def _get_figures(column: Typed, figures: Mapping[int, Figures]) -> Figures:
    assert isinstance(column, Field)
    return figures[column.index]


def _may_compare(function: str, column: Typed, constant: Typed, figures: Mapping[int, Figures]) -> bool:
    """Return whether a value between the bounds may satisfy the comparison."""
    column_figures = _get_figures(column, figures)
    if column_figures.has_only_nulls:
        return False
    if not column_figures.has_bounds:
        return True
    value = _held(constant)
    return _BETWEEN[function](column_figures.least, column_figures.greatest, value)


def _held(constant: Typed) -> Any:
    assert isinstance(constant, Constant)
    scalar = to_scalar(constant.value, constant.type)
    return scalar.value if isinstance(constant.type, types.DateType | types.TimestampType) else scalar.as_py()


_BETWEEN: Final[Mapping[str, Callable[[Any, Any, Any], bool]]] = {
    "=": lambda least, greatest, value: bool(least <= value <= greatest),
    "<>": lambda least, greatest, value: not least == greatest == value,
    "<": lambda least, greatest, value: bool(operator.lt(least, value)),
    "<=": lambda least, greatest, value: bool(operator.le(least, value)),
    ">": lambda least, greatest, value: bool(operator.gt(greatest, value)),
    ">=": lambda least, greatest, value: bool(operator.ge(greatest, value)),
}


def select_row_groups(file: Any, filters: Sequence[StatisticsFilter]) -> frozenset[int]:
    """Return the row groups of a `pyarrow.parquet.ParquetFile` that may have a row that satisfies all filters."""
    schema = file.schema_arrow
    fitting = [predicate for predicate in filters if predicate.fits(schema)]
    kinds = {name: kind for predicate in fitting for _, name, kind in predicate.columns}
    row_groups = []
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        figures = {}
        for index in range(group.num_columns):
            column = group.column(index)
            if column.path_in_schema in kinds:
                figures[column.path_in_schema] = _read(column, group.num_rows, kinds[column.path_in_schema])
        if all(predicate.may_be_true(figures) for predicate in fitting):
            row_groups.append(number)
    return frozenset(row_groups)


def _read(column: Any, rows: int, kind: pa.DataType) -> Figures:
    statistics = column.statistics
    if statistics is None:
        return Figures(rows)
    nulls = statistics.null_count if statistics.has_null_count else None
    if not statistics.has_min_max or column.physical_type == "INT96":
        return Figures(rows, nulls=nulls)
    if pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        if statistics.physical_type not in _WHOLE_IN_FILES:  # INT96 bounds have no order
            return Figures(rows, nulls=nulls)
        return Figures(rows, statistics.min_raw, statistics.max_raw, nulls)
    try:
        return Figures(rows, statistics.min, statistics.max, nulls)
    except UnicodeDecodeError:  # a string truncated within a character
        return Figures(rows, nulls=nulls)


def list_leaves(schema: pa.Schema) -> list[str] | None:
    """Return the names of Parquet's leaf columns, including nested fields; None if a name contains a dot."""
    leaves = [leaf for field in schema for leaf in _leaves("", field)]
    return None if None in leaves else [leaf for leaf in leaves if leaf is not None]


def _leaves(around: str, field: pa.Field) -> list[str | None]:
    if "." in field.name:
        return [None]
    if not pa.types.is_struct(field.type) or field.type == variant.STORED:
        return [around + field.name]
    return [leaf for child in field.type for leaf in _leaves(f"{around}{field.name}.", child)] or [None]


_IN_NANOSECONDS: Final = (pa.timestamp("ns"), pa.timestamp("ns", "UTC"))
COMPRESSION: Final = ConfigOption(
    "compression",
    choice("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4", "BROTLI"),
    "SNAPPY",
    "The compression of columns.",
)


UTC_TIMEZONE: Final = (
    ConfigOptions.key("utc-timezone")
    .boolean_type()
    .no_default_value()
    .with_description(
        "Whether timestamps in files are in UTC; `false` means the session time zone, as in Flink by default. If "
        "unset, files written by Flink are read as with `false`, other files as they declare, with UTC for INT96, and "
        "files are written in UTC."
    )
)


class ParquetTableFormat(TableFormat):
    """See the module docstring. Columns are found by name."""

    name = "parquet"
    options = (COMPRESSION, UTC_TIMEZONE)
    has_named_fields = True

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> Decoding:
        """See `TableFormat`."""
        columns = RowSchema(tuple(schema[index] for index in wanted))
        return Decoding(
            TypedParquetFormat(
                parquet_columns(columns),
                is_utc=options.read(UTC_TIMEZONE),
                zone=options.zone,
                required=not_null_columns(columns),
            )
        )

    def uses(self, condition: Typed) -> bool:
        """See `TableFormat`. Uses the statistics of row groups."""
        return is_of_use(condition)

    def filtered(self, decoding: Decoding, schema: RowSchema, conditions: Sequence[Typed]) -> Decoding:
        """See `TableFormat`."""
        assert isinstance(decoding.files, TypedParquetFormat)
        filters = [statistics_filter(condition, schema) for condition in conditions]
        return replace(decoding, files=decoding.files.with_filters(filters))

    def encoding(self, schema: RowSchema, options: TableOptions) -> Encoding:
        """See `TableFormat`."""
        compression = options.read(COMPRESSION).lower()
        inner = ParquetWriterFactory(
            parquet_columns(schema), compression="none" if compression == "uncompressed" else compression
        )
        is_local = options.read(UTC_TIMEZONE) is False
        convert = partial(stored_moments, zone=options.zone) if is_local else None
        return Encoding(GatheringWriterFactory(schema, inner, convert))


def parquet_columns(schema: RowSchema) -> pa.Schema:
    """Return the columns of a file. Raises `UnsupportedError` for a type that Parquet cannot store."""
    return arrow_columns(schema, "Parquet", NO_FILE_TYPES)


class TypedParquetFormat(BulkFormat[Any]):
    """Reads columns with these names and types. Readers share the row groups.

    Args:
        schema: the columns; row columns have only the fields to read. A column that a file lacks is NULL.
        filters: row groups without a row that satisfies all filters are skipped.
        is_utc: whether timestamps in files are in UTC; None if it depends on the file's writer.
        zone: the time zone of timestamps that are not in UTC.
        required: the columns that every file must have.
    """

    def __init__(
        self,
        schema: pa.Schema,
        filters: Sequence[StatisticsFilter] = (),
        is_utc: bool | None = None,
        zone: tzinfo = UTC,
        required: Collection[str] = (),
    ) -> None:
        self._required = frozenset(required)
        self._schema = schema
        self._filters = tuple(filters)
        self._is_utc = is_utc
        self._zone = zone
        self._may_be_local = not is_utc and any(map(has_times, schema.types))
        in_nanoseconds = [
            field.name for field in schema if any(leaf_type in _IN_NANOSECONDS for leaf_type in leaf_types(field.type))
        ]
        self._inner = ParquetFormat(
            schema.names,
            as_columns=True,
            leaves=list_leaves(schema),
            allows_missing=True,
            nanosecond_columns=in_nanoseconds,
        )

    def with_filters(self, filters: Sequence[StatisticsFilter]) -> TypedParquetFormat:
        """Return the format with additional filters."""
        return TypedParquetFormat(self._schema, (*self._filters, *filters), self._is_utc, self._zone, self._required)

    def open(self, file: BinaryIO) -> BulkFile[Any]:
        """See `BulkFormat`."""
        inner = self._inner.open(file)
        is_local = self._may_be_local and (self._is_utc is False or inner.is_of_flink)
        filters = [predicate for predicate in self._filters if not is_local or not predicate.has_times()]
        row_groups = select_row_groups(inner.file, filters) if filters else None
        return TypedFile(
            inner, self._schema, row_groups, partial(clock_times, zone=self._zone) if is_local else None, self._required
        )


COMPRESS: Final = ConfigOption(
    "compress", choice("NONE", "ZLIB", "SNAPPY", "LZ4", "ZSTD"), "ZLIB", "The compression of stripes."
)
STRIPE_SIZE: Final = (
    ConfigOptions.key("stripe.size")
    .memory_type()
    .default_value(STRIPE_BYTES)
    .with_description("The size of a stripe. Readers split a file by stripes.")
)
_REFUSED: Final = (*NO_FILE_TYPES, types.TimeType, types.VariantType)


class OrcTableFormat(TableFormat):
    """See the module docstring. Columns are found by name."""

    name = "orc"
    options = (COMPRESS, STRIPE_SIZE)
    has_named_fields = True

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> Decoding:
        """See `TableFormat`."""
        columns = RowSchema(tuple(schema[index] for index in wanted))
        return Decoding(TypedOrcFormat(orc_columns(columns), not_null_columns(columns)))

    def encoding(self, schema: RowSchema, options: TableOptions) -> Encoding:
        """See `TableFormat`."""
        compression = options.read(COMPRESS).lower()
        inner = OrcWriterFactory(
            pa.schema([field.with_type(_without_zone(field.type)) for field in orc_columns(schema)]),
            compression="uncompressed" if compression == "none" else compression,
            stripe_bytes=options.read(STRIPE_SIZE),
        )
        return Encoding(GatheringWriterFactory(schema, inner, _plain_times))


def orc_columns(schema: RowSchema) -> pa.Schema:
    """Return the columns of a file. Raises `UnsupportedError` for a type that ORC cannot store."""
    return arrow_columns(schema, "ORC", _REFUSED)


def _plain_times(column: pa.Array) -> pa.Array:
    """Return instants as plain timestamps in UTC: Spark and Flink do not read ORC's own type for instants."""
    return column.view(_without_zone(column.type)) if pa.types.is_timestamp(column.type) else column


def _without_zone(kind: pa.DataType) -> pa.DataType:
    """Return a type with timestamps without a zone, also inside lists, maps and structs."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_zone(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_without_zone(kind.key_type), _without_zone(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_without_zone(kind.value_type))
    return kind


class TypedOrcFormat(BulkFormat[Any]):
    """Reads columns with these names and types. Readers share the stripes.

    Args:
        schema: the columns; row columns have only the fields to read. A column that a file lacks is NULL.
        required: the columns that every file must have.
    """

    def __init__(self, schema: pa.Schema, required: Collection[str] = ()) -> None:
        self._schema = schema
        self._required = frozenset(required)
        self._inner = OrcFormat(schema.names, as_columns=True, leaves=list_leaves(schema), allows_missing=True)

    def open(self, file: BinaryIO) -> BulkFile[Any]:
        """See `BulkFormat`."""
        return TypedFile(self._inner.open(file), self._schema, required=self._required)
