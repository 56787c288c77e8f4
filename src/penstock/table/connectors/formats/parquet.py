"""`parquet`: columns in files, read and written by Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, BinaryIO, Final

import pyarrow as pa

from penstock.base.config_options import ConfigOption
from penstock.base.value_types import choice
from penstock.formats.bulk_format import BulkFile, BulkFormat
from penstock.formats.parquet import ParquetFormat, ParquetWriterFactory
from penstock.table.connectors.formats.arrow_files import (
    NO_FILE_TYPES,
    GatheringWriterFactory,
    TypedFile,
    arrow_columns,
)
from penstock.table.connectors.formats.format import Decoding, Encoding, TableFormat
from penstock.table.connectors.formats.parquet_statistics import (
    StatisticsFilter,
    groups_of,
    is_of_use,
    leaves_of,
    statistics_filter,
)
from penstock.table.connectors.table_options import TableOptions
from penstock.table.plan.row_schema import RowSchema
from penstock.table.typed.nodes import Typed

COMPRESSION: Final = ConfigOption(
    "compression",
    choice("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4", "BROTLI"),
    "SNAPPY",
    "how columns are compressed",
)


class ParquetTableFormat(TableFormat):
    """See the module's text. Columns are found by their names."""

    name = "parquet"
    options = (COMPRESSION,)
    has_named_fields = True

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> Decoding:
        """See `TableFormat`."""
        return Decoding(TypedParquetFormat(parquet_columns(RowSchema(tuple(schema[place] for place in wanted)))))

    def uses(self, condition: Typed) -> bool:
        """See `TableFormat`: what row groups say of themselves."""
        return is_of_use(condition)

    def filtered(self, decoding: Decoding, schema: RowSchema, conditions: Sequence[Typed]) -> Decoding:
        """See `TableFormat`."""
        assert isinstance(decoding.files, TypedParquetFormat)
        filters = [statistics_filter(one, schema) for one in conditions]
        return replace(decoding, files=decoding.files.with_filters(filters))

    def encoding(self, schema: RowSchema, options: TableOptions) -> Encoding:
        """See `TableFormat`."""
        found = options.read(COMPRESSION).lower()
        inner = ParquetWriterFactory(parquet_columns(schema), compression="none" if found == "uncompressed" else found)
        return Encoding(GatheringWriterFactory(schema, inner))


def parquet_columns(schema: RowSchema) -> pa.Schema:
    """The columns of a file. Raises `UnsupportedError` for a type that the format has no form for."""
    return arrow_columns(schema, "Parquet", NO_FILE_TYPES)


class TypedParquetFormat(BulkFormat[Any]):
    """Reads columns of these names as these types. Row groups are shared by readers.

    Args:
        schema: the columns, whose rows have only the fields that are wanted.
        filters: row groups are passed over that have no row for which all of them are true.
    """

    def __init__(self, schema: pa.Schema, filters: Sequence[StatisticsFilter] = ()) -> None:
        self._schema = schema
        self._filters = tuple(filters)
        self._inner = ParquetFormat(schema.names, as_columns=True, leaves=leaves_of(schema))

    def with_filters(self, filters: Sequence[StatisticsFilter]) -> TypedParquetFormat:
        """The same with more filters."""
        return TypedParquetFormat(self._schema, (*self._filters, *filters))

    def open(self, file: BinaryIO) -> BulkFile[Any]:
        """See `BulkFormat`."""
        inner = self._inner.open(file)
        return TypedFile(inner, self._schema, groups_of(inner.file, self._filters) if self._filters else None)
