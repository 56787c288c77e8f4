"""`parquet`: columns in files, read and written by Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, BinaryIO, Final

import pyarrow as pa

from penstock.base.config_options import ConfigOption
from penstock.base.errors import FormatError, UnsupportedError
from penstock.base.value_types import choice
from penstock.codecs.column_data import ColumnData
from penstock.formats.bulk_format import BatchWriter, BatchWriterFactory, BulkFile, BulkFormat
from penstock.formats.parquet import ParquetFormat, ParquetWriterFactory
from penstock.table.connectors.formats.format import Decoding, Encoding, TableFormat
from penstock.table.connectors.formats.lines import ColumnsWriter
from penstock.table.connectors.formats.parquet_statistics import (
    StatisticsFilter,
    groups_of,
    is_of_use,
    leaves_of,
    statistics_filter,
)
from penstock.table.connectors.table_options import TableOptions
from penstock.table.data import logical_types as types
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import DataType
from penstock.table.plan.row_schema import RowSchema
from penstock.table.typed.nodes import Typed

COMPRESSION: Final = ConfigOption(
    "compression",
    choice("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4", "BROTLI"),
    "SNAPPY",
    "how columns are compressed",
)
_REFUSED: Final = (
    types.YearMonthIntervalType,
    types.DayTimeIntervalType,
    types.RawType,
    types.VariantType,
    types.BitmapType,
    types.NullType,
)


class ParquetTableFormat(TableFormat):
    """See the module's text. Columns are found by their names."""

    name = "parquet"
    options = (COMPRESSION,)
    has_named_fields = True

    def decoding(self, schema: RowSchema, wanted: Sequence[int], options: TableOptions) -> Decoding:
        """See `TableFormat`."""
        return Decoding(TypedParquetFormat(_arrow(RowSchema(tuple(schema[place] for place in wanted)))))

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
        return Encoding(_WriterFactory(schema, "none" if found == "uncompressed" else found))


def _arrow(schema: RowSchema) -> pa.Schema:
    for column in schema:
        if refused := _refused(column.type):
            raise UnsupportedError(f"Parquet has no form for {refused}: column '{column.name}' of type {column.type}")
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in schema])


def _refused(kind: DataType) -> DataType | None:
    if isinstance(kind, _REFUSED):
        return kind
    return next((found for one in kind.children() if (found := _refused(one)) is not None), None)


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
        return _TypedFile(inner, self._schema, groups_of(inner.file, self._filters) if self._filters else None)


class _TypedFile(BulkFile[Any]):
    def __init__(self, inner: BulkFile[Any], schema: pa.Schema, groups: frozenset[int] | None) -> None:
        self._inner = inner
        self._schema = schema
        self._groups = groups

    def units(self, start: int, end: int | None) -> Sequence[int]:
        found = self._inner.units(start, end)
        return found if self._groups is None else [one for one in found if one in self._groups]

    def read(self, unit: int, skip_records: int) -> Iterator[list[Any] | ColumnData]:
        for data in self._inner.read(unit, skip_records):
            assert isinstance(data, ColumnData)
            yield ColumnData(self._typed(data.columns))

    def _typed(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        arrays = []
        for field, column in zip(self._schema, columns.columns, strict=True):
            try:
                arrays.append(column if column.type == field.type else _cast(column, field.type))
            except pa.ArrowException as error:
                raise FormatError(
                    f"column '{field.name}' of type {column.type} cannot be read as {field.type}: {error}"
                ) from error
        return pa.RecordBatch.from_arrays(arrays, self._schema.names)


def _cast(column: pa.Array, to: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(column.type) and pa.types.is_timestamp(to):
        # Files hold UTC whatever the type says, and digits that the column has not are left out.
        kind = pa.timestamp(to.unit, column.type.tz)
        return column.cast(kind, safe=False).cast(pa.int64()).cast(to)
    return column.cast(to)


class _WriterFactory(BatchWriterFactory[Any]):
    def __init__(self, schema: RowSchema, compression: str) -> None:
        self._schema = schema
        self._inner = ParquetWriterFactory(_arrow(schema), compression=compression)

    def create(self, stream: BinaryIO) -> BatchWriter[Any]:
        return _Writer(self._schema, self._inner.create(stream))


class _Writer(ColumnsWriter):
    """Gathers columns, so that row groups are large."""

    def __init__(self, schema: RowSchema, inner: BatchWriter[Any]) -> None:
        super().__init__(schema)
        self._inner = inner
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def add_columns(self, data: ColumnData) -> None:
        self._waiting.append(data.columns)
        self._rows += len(data)
        if self._rows >= _ROW_GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting).combine_chunks()
            self._waiting, self._rows = [], 0
            for batch in table.to_batches():
                self._inner.add_columns(ColumnData(batch))

    def finish(self) -> None:
        self.flush()
        self._inner.finish()

    def discard(self) -> None:
        self._waiting = []
        self._inner.discard()


_ROW_GROUP_ROWS: Final = 1 << 16
