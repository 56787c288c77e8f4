"""`orc`: columnar files, read and written by Arrow."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, BinaryIO, Final

import pyarrow as pa

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.value_types import choice
from penstock.formats.bulk_format import BulkFile, BulkFormat
from penstock.formats.orc import STRIPE_BYTES, OrcFormat, OrcWriterFactory
from penstock.table.connectors.formats.arrow_files import (
    NO_FILE_TYPES,
    GatheringWriterFactory,
    TypedFile,
    arrow_columns,
    not_null_columns,
)
from penstock.table.connectors.formats.format import Decoding, Encoding, TableFormat
from penstock.table.connectors.formats.parquet_statistics import list_leaves
from penstock.table.connectors.table_options import TableOptions
from penstock.table.data import logical_types as types
from penstock.table.plan.row_schema import RowSchema

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
