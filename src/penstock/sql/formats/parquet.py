"""`parquet`: columnar files, read and written by Arrow.

`orc`: columnar files, read and written by Arrow.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, tzinfo
from functools import partial
from typing import Any, BinaryIO, Final

import pyarrow as pa

from penstock.base.config_options import ConfigOption, ConfigOptions, choice
from penstock.codecs.arrow_columns import has_times, leaf_types
from penstock.formats.file_format import BulkFile, BulkFormat
from penstock.formats.orc import STRIPE_BYTES, OrcFormat, OrcWriterFactory
from penstock.formats.parquet import ParquetFormat, ParquetWriterFactory
from penstock.sql.data import types
from penstock.sql.formats.columnar_files import (
    NO_FILE_TYPES,
    GatheringWriterFactory,
    StatisticsFilter,
    TypedFile,
    arrow_columns,
    clock_times,
    is_of_use,
    list_leaves,
    not_null_columns,
    select_row_groups,
    statistics_filter,
    stored_moments,
)
from penstock.sql.formats.format import Decoding, Encoding, TableFormat
from penstock.sql.logical.nodes import RowSchema
from penstock.sql.tables.connector import TableOptions
from penstock.sql.typed import Typed

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
_REFUSED: Final = (*NO_FILE_TYPES, types.TimeType)


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
