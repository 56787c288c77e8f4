"""Columnar files that Arrow reads and writes: the code that their formats share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, BinaryIO, Final

import pyarrow as pa

from penstock.base.errors import FormatError, UnsupportedError
from penstock.codecs.column_data import ColumnData
from penstock.codecs.column_leaves import convert_leaves, has_times
from penstock.codecs.exact_cast import exact_cast
from penstock.codecs.map_columns import nullable_key_column, plain_column, plain_type
from penstock.formats.bulk_format import BatchWriter, BatchWriterFactory, BulkFile
from penstock.table.connectors.formats.lines import ColumnsWriter
from penstock.table.data import logical_types as types
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import DataType
from penstock.table.plan.row_schema import RowSchema

#: types that no file format can store
NO_FILE_TYPES: Final = (
    types.YearMonthIntervalType,
    types.DayTimeIntervalType,
    types.RawType,
    types.VariantType,
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
    return pa.schema([pa.field(column.name, plain_type(arrow_type(column.type))) for column in schema])


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
                arrays.append(nullable_key_column(pa.nulls(columns.num_rows, field.type)))
                continue
            column = columns.column(field.name)
            try:
                if self._convert is not None and has_times(column.type):
                    column = convert_leaves(self._convert, column)
                arrays.append(nullable_key_column(exact_cast(column, field.type)))
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
                self._inner.add_columns(ColumnData(pa.RecordBatch.from_arrays(arrays, batch.schema.names)))

    def finish(self) -> None:
        self.flush()
        self._inner.finish()

    def discard(self) -> None:
        self._waiting = []
        self._inner.discard()
