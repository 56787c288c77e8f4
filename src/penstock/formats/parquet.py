"""Reads and writes Parquet files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.base.errors import FormatError
from penstock.base.typeinfo import RowTypeInfo
from penstock.codecs.column_data import COLUMN_BATCH_ROWS, ColumnData
from penstock.formats.arrow_writer import ArrowWriter, ArrowWriterFactory
from penstock.formats.bulk_format import BatchWriter, BulkFile
from penstock.formats.columnar_format import ColumnarFormat
from penstock.formats.columns import to_records
from penstock.formats.parquet_times import OldTimes, int96_columns, written_by_flink

_READ_ROWS = 4096


class ParquetFormat(ColumnarFormat):
    """Reads Parquet; see `ColumnarFormat`. Readers share a large file by row groups.

    INT96, the old timestamp type, is read in microseconds, which cover all years from 1 to 9999.

    Args:
        nanosecond_columns: the columns whose INT96 is read in nanoseconds, which cover the years 1678 to 2261. Other
            years raise a `FormatError`.
    """

    def __init__(
        self,
        columns: Sequence[str] | RowTypeInfo | None = None,
        *,
        as_tuple: bool = False,
        as_columns: bool = False,
        leaves: Sequence[str] | None = None,
        allows_missing: bool = False,
        nanosecond_columns: Collection[str] = (),
    ) -> None:
        super().__init__(
            columns, as_tuple=as_tuple, as_columns=as_columns, leaves=leaves, allows_missing=allows_missing
        )
        self._nanosecond_columns = frozenset(nanosecond_columns)

    def open(self, file: BinaryIO) -> ParquetFile:
        try:
            return ParquetFile(file, self, self._nanosecond_columns)
        except pa.ArrowException as error:
            raise FormatError(f"not a Parquet file: {error}") from error


class ParquetFile(BulkFile[Any]):
    """An open file. `file` is Arrow's; `is_of_flink` says whether Flink wrote it."""

    def __init__(
        self,
        stream: BinaryIO,
        columnar_format: ColumnarFormat,
        nanosecond_columns: Collection[str] = (),
    ) -> None:
        self.file = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
        self._columns, self._read = columnar_format.choose_columns(self.file.schema_arrow)
        self._output = columnar_format.output
        self._old_times: OldTimes | None = None
        self.is_of_flink = written_by_flink(self.file)
        old_columns = int96_columns(self.file).intersection(self._columns)
        if old_columns and (self.is_of_flink or not old_columns.isdisjoint(nanosecond_columns)):
            self._old_times = OldTimes(stream, self.file, old_columns, nanosecond_columns, self.is_of_flink)

    def units(self, start: int, end: int | None) -> Sequence[int]:
        metadata = self.file.metadata
        return [
            i for i in range(metadata.num_row_groups) if start <= _begin(metadata.row_group(i)) < (end or float("inf"))
        ]

    def read(self, unit: int, skip_records: int) -> Iterator[list[Any] | ColumnData]:
        size = COLUMN_BATCH_ROWS if self._output == "columns" else _READ_ROWS
        batches = self.file.iter_batches(size, row_groups=[unit], columns=self._read, use_threads=False)
        if self._old_times is not None:
            batches = self._old_times.completed(batches, size, unit, self._read)
        try:
            for batch in batches:
                if skip_records >= batch.num_rows:
                    skip_records -= batch.num_rows
                    continue
                if lacking := set(self._columns) - set(batch.schema.names):
                    raise FormatError(f"the file has no field that is read of column {sorted(lacking)[0]!r}")
                batch = batch.slice(skip_records).select(self._columns)
                skip_records = 0
                yield to_records(batch, self._output)
        except pa.ArrowException as error:
            raise FormatError(f"row group {unit} cannot be read: {error}") from error


def _begin(row_group: Any) -> int:
    """Return the byte where a row group begins."""
    column = row_group.column(0)
    pages = [column.data_page_offset]
    if column.has_dictionary_page and column.dictionary_page_offset is not None:
        pages.append(column.dictionary_page_offset)
    return int(min(pages))


class ParquetWriterFactory(ArrowWriterFactory):
    """Writes records to Parquet, for `FileSink.for_bulk_format`.

    Args:
        columns: a row type, a dict from name to type, or an Arrow schema; records are dicts, rows or tuples.
        row_group_rows: rows kept in memory before a row group is written.
        compression: a codec supported by Arrow, such as `snappy` or `zstd`.

    Raises:
        ConfigurationError: if a type cannot be written, or there are no columns.
    """

    format_name = "Parquet"

    def __init__(self, columns: Any, *, row_group_rows: int = 65536, compression: str = "snappy") -> None:
        super().__init__(columns, row_group_rows)
        self.compression = compression

    def create(self, stream: BinaryIO) -> BatchWriter[Any]:
        """Create a writer for a new, empty file."""
        return _ParquetWriter(self, stream)


class _ParquetWriter(ArrowWriter):
    def __init__(self, factory: ParquetWriterFactory, stream: BinaryIO) -> None:
        super().__init__(factory)
        self._row_group_rows = factory.group_rows
        # In a column with a dictionary, Flink reads decimals of up to 18 digits only from integers.
        self._writer = pq.ParquetWriter(
            stream, factory.schema, compression=factory.compression, store_decimal_as_integer=True
        )

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=self._row_group_rows)

    def close(self) -> None:
        self._writer.close()
