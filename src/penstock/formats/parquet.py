"""Parquet files: reader and writer, and INT96, the old timestamp type.

Flink, Hive and Spark write INT96 unless an option says otherwise. A value is a day and the nanoseconds of that day.
Arrow combines both in one number of 64 bits, without a check. `OldTimes` reads the same column in microseconds and in
nanoseconds, which shows which values are right:

- In nanoseconds, years outside 1678 to 2261 turn into other years.
- In microseconds, all years are right if the nanoseconds of the day are above 0. Flink writes a negative number for
  times before 1970, which Arrow reads as unsigned: 2^64 ns too late. That is a multiple of 1000 ns, and 616 ns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.base.errors import FormatError
from penstock.base.typeinfo import RowTypeInfo
from penstock.codecs.arrow_columns import convert_leaves
from penstock.codecs.column_data import COLUMN_BATCH_ROWS, ColumnData
from penstock.formats.arrow import ArrowWriter, ArrowWriterFactory, ColumnarFormat
from penstock.formats.file_format import BatchWriter, BulkFile, to_records

#: the error of a time whose nanoseconds of the day are negative: it is this much too late
_SIGN_US: Final = 2**64 // 1000
_SIGN_REST_NS: Final = 2**64 % 1000
_NANOSECONDS_END_US: Final = 2**63 // 1000
_ROOT_OF_FLINK: Final = " flink_schema {"


def written_by_flink(file: Any) -> bool:
    """Return whether Flink wrote a file (Arrow's `ParquetFile`): its group of columns has a distinctive name."""
    creator = file.metadata.created_by or ""
    if not creator.startswith("parquet-mr") or b"org.apache.spark.version" in (file.metadata.metadata or {}):
        return False
    return any(line.endswith(_ROOT_OF_FLINK) for line in str(file.schema).splitlines()[:3])


def int96_columns(file: Any) -> set[str]:
    """Return the names of the columns of a file (Arrow's `ParquetFile`) that contain INT96."""
    schema = file.metadata.schema
    names = file.schema_arrow.names
    columns: set[str] = set()
    for index in range(len(schema)):
        leaf = schema.column(index)
        if leaf.physical_type == "INT96":
            columns.update(name for name in names if leaf.path == name or leaf.path.startswith(f"{name}."))
    return columns


class OldTimes:
    """Reads the INT96 columns of a file again, in nanoseconds, and keeps the correct values of both reads.

    Args:
        stream: the file.
        file: Arrow's `ParquetFile`, which reads INT96 in microseconds.
        columns: the columns that contain INT96.
        nanosecond_columns: the columns to return in nanoseconds.
        is_of_flink: whether times before 1970 may have a negative number of nanoseconds.
    """

    def __init__(
        self,
        stream: BinaryIO,
        file: Any,
        columns: Collection[str],
        nanosecond_columns: Collection[str],
        is_of_flink: bool,
    ) -> None:
        self._fine = pq.ParquetFile(stream, metadata=file.metadata)
        self._columns = sorted(columns)
        self._nanosecond_columns = frozenset(nanosecond_columns)
        self._is_of_flink = is_of_flink

    def completed(
        self, batches: Iterator[pa.RecordBatch], size: int, unit: int, leaves: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a row group with corrected times.

        Args:
            batches: the batches as Arrow reads them, with INT96 in microseconds.
            size: the number of rows of a batch.
            unit: the number of the row group.
            leaves: the columns and fields to read.

        Raises:
            FormatError: for a time that a column in nanoseconds cannot hold. The message names the column.
        """
        read = [
            leaf for leaf in leaves if any(leaf == column or leaf.startswith(f"{column}.") for column in self._columns)
        ]
        fine_batches = self._fine.iter_batches(size, row_groups=[unit], columns=read, use_threads=False)
        for batch, fine_batch in zip(batches, fine_batches, strict=True):
            for name in fine_batch.schema.names:
                index = batch.schema.get_field_index(name)
                times = self._times(name, batch.column(index), fine_batch.column(name))
                batch = batch.set_column(index, pa.field(name, times.type), times)
            yield batch

    def _times(self, name: str, coarse: pa.Array, fine: pa.Array) -> pa.Array:
        in_nanoseconds = name in self._nanosecond_columns

        def leaf(coarse: pa.Array, fine: pa.Array) -> pa.Array:
            if not pa.types.is_timestamp(coarse.type):
                return coarse
            missing = coarse.is_null().to_numpy(zero_copy_only=False)
            us = coarse.view(pa.int64()).fill_null(0).to_numpy()
            ns = fine.view(pa.int64()).fill_null(0).to_numpy()
            if self._is_of_flink:
                # The numbers overflow on purpose, and so does their difference.
                is_negative = ns - us * 1000 == _SIGN_REST_NS
                if in_nanoseconds:  # 616 ns may be genuine
                    is_negative &= np.abs(us) >= _NANOSECONDS_END_US
                us = np.where(is_negative, us - _SIGN_US, us)
            if not in_nanoseconds:
                return pa.array(us, pa.int64(), mask=missing).view(coarse.type)
            is_far = ~missing & ((us >= _NANOSECONDS_END_US) | (us <= -_NANOSECONDS_END_US))
            if is_far.any():
                year = np.datetime64(int(us[is_far][0]), "us")
                raise FormatError(
                    f"column {name!r} has the time {str(year).replace('T', ' ')}, and nanoseconds hold the years 1678 "
                    "to 2261 only: declare the column with 6 digits or fewer"
                )
            return pa.array(ns, pa.int64(), mask=missing).view(fine.type)

        return convert_leaves(leaf, coarse, fine)


_READ_ROWS = 4096


class ParquetFormat(ColumnarFormat):
    """Reads Parquet; see `ColumnarFormat`. Readers share a large file by row groups.

    INT96, the old timestamp type, is read in microseconds, which cover all years from 1 to 9999.

    Args:
        nanosecond_columns: the columns whose INT96 is read in nanoseconds, which cover the years 1678 to 2261. Other
            years raise a `FormatError`.

    Examples:
        >>> import pyarrow as pa
        >>> import pyarrow.parquet as pq
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import FileSource
        >>> from penstock.datastream.formats.parquet import ParquetFormat
        >>> pq.write_table(pa.table({"drink": ["tea"], "cups": [2]}), "orders")
        >>> source = FileSource.for_bulk_file_format(ParquetFormat(), "orders").build()
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_source(source, WatermarkStrategy.no_watermarks(), "orders").collect()
        [{'drink': 'tea', 'cups': 2}]
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

    Examples:
        >>> from pathlib import Path
        >>> import pyarrow.parquet as pq
        >>> from penstock.common import Types
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import BucketAssigner, FileSink
        >>> from penstock.datastream.formats.parquet import ParquetWriterFactory
        >>> row_type = Types.ROW_NAMED(["drink", "cups"], [Types.STRING(), Types.INT()])
        >>> files = FileSink.for_bulk_format("orders", ParquetWriterFactory(row_type))
        >>> files = files.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> _ = env.from_elements(("tea", 2)).sink_to(files.build())
        >>> result = env.execute()
        >>> (path,) = Path("orders").glob("part-*")
        >>> pq.read_table(path).to_pylist()
        [{'drink': 'tea', 'cups': 2}]
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
