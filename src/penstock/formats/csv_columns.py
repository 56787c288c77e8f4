"""Reads CSV as columns, parsed by Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from penstock.base.errors import FormatError
from penstock.codecs.arrow_types import arrow_type
from penstock.codecs.column_data import COLUMN_BATCH_ROWS, ColumnData
from penstock.codecs.exact_cast import exact_cast_columns
from penstock.formats.bulk_format import BulkFile, BulkFormat

#: texts that Arrow reads as NULL in columns other than text
_NULLS: Final = pa.array(pyarrow.csv.ConvertOptions().null_values)


class CsvColumnsFormat(BulkFormat[Any]):
    """Reads CSV as columns with Arrow's parser; operators that work record by record get rows with names.

    A file is read by one subtask, from its beginning: a position is a number of records, which are parsed again and
    skipped. A value that does not fit its column fails the job; `CsvFormat` can continue and send such lines to a side
    output.

    Args:
        columns: the columns with their types (Python's, `Types` or Arrow's), in the order of the file.
        delimiter: the character between fields.
        has_header: whether the first line contains the column names, which then identify the columns.
    """

    def __init__(self, columns: Mapping[str, Any], *, delimiter: str = ",", has_header: bool = False) -> None:
        self.schema = pa.schema([(name, arrow_type(column_type)) for name, column_type in columns.items()])
        self.delimiter = delimiter
        self.has_header = has_header

    def open(self, file: BinaryIO) -> BulkFile[Any]:
        return _CsvFile(file, self)


class _CsvFile(BulkFile[Any]):
    """An open file; the whole file is one unit."""

    def __init__(self, file: BinaryIO, csv_format: CsvColumnsFormat) -> None:
        self._file = file
        self._format = csv_format

    def units(self, start: int, end: int | None) -> Sequence[int]:
        return (0,) if start == 0 else ()

    def read(self, unit: int, skip_records: int) -> Iterator[list[Any] | ColumnData]:
        schema = self._format.schema
        try:
            reader = pyarrow.csv.open_csv(
                self._file,
                pyarrow.csv.ReadOptions(
                    use_threads=False, column_names=None if self._format.has_header else schema.names
                ),
                pyarrow.csv.ParseOptions(delimiter=self._format.delimiter),
                pyarrow.csv.ConvertOptions(
                    column_types={field.name: _read_type(field.type) for field in schema}, include_columns=schema.names
                ),
            )
            for batch in reader:
                if skip_records >= batch.num_rows:
                    skip_records -= batch.num_rows
                    continue
                for begin in range(skip_records, batch.num_rows, COLUMN_BATCH_ROWS):
                    yield ColumnData(_typed(batch.slice(begin, COLUMN_BATCH_ROWS), schema))
                skip_records = 0
        except (pa.ArrowException, KeyError) as error:
            raise FormatError(f"cannot be read as CSV with the columns {', '.join(schema.names)}: {error}") from error


def _typed(columns: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert columns that `_read_type` made text back to decimals."""
    for index, field in enumerate(schema):
        if pa.types.is_decimal(field.type):
            texts = columns.column(field.name)
            texts = pc.if_else(pc.is_in(texts, value_set=_NULLS), pa.scalar(None, pa.string()), texts)
            columns = columns.set_column(index, field.name, texts)
    return exact_cast_columns(columns, schema)


def _read_type(kind: pa.DataType) -> pa.DataType:
    """Return the type to read a column as: text for decimals, because Arrow parses decimals without checks."""
    return pa.string() if pa.types.is_decimal(kind) else kind
