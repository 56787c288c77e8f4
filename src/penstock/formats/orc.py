"""Reads and writes ORC files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.orc

from penstock.base.errors import FormatError
from penstock.codecs.arrow_columns import convert_leaves, exact_cast, gregorian_dates, has_dates, has_times
from penstock.codecs.column_data import COLUMN_BATCH_ROWS, ColumnData
from penstock.formats.arrow import ArrowWriter, ArrowWriterFactory, ColumnarFormat
from penstock.formats.file_format import BatchWriter, BulkFile, to_records

#: ORC's own default for the size of a stripe.
STRIPE_BYTES: Final = 64 << 20
#: field numbers in ORC's definition (orc_proto.proto)
_FOOTER_OF_TAIL: Final = 2
_CALENDAR_OF_FOOTER: Final = 11
_JULIAN_GREGORIAN: Final = 1
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_PLAIN_TIME: Final = pa.timestamp("us")
#: the key of Spark's type in a column's metadata
_TYPE_OF_SPARK: Final = b"spark.sql.catalyst.type"
#: part of Arrow's error for a time that its nanoseconds cannot hold
_FAR_TIME: Final = "out of range for nanosecond resolution"


class OrcFormat(ColumnarFormat):
    """Reads ORC; see `ColumnarFormat`. Readers share a large file by stripes.

    Examples:
        >>> import pyarrow as pa
        >>> import pyarrow.orc as orc
        >>> from penstock.common import WatermarkStrategy
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import FileSource
        >>> from penstock.datastream.formats.orc import OrcFormat
        >>> orc.write_table(pa.table({"drink": ["tea"], "cups": [2]}), "orders")
        >>> source = FileSource.for_bulk_file_format(OrcFormat(), "orders").build()
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_source(source, WatermarkStrategy.no_watermarks(), "orders").collect()
        [{'drink': 'tea', 'cups': 2}]
    """

    def open(self, file: BinaryIO) -> BulkFile[Any]:
        try:
            return _OrcFile(pyarrow.orc.ORCFile(file), self)
        except (pa.ArrowException, OSError) as error:
            raise _of_data(error, "not an ORC file") from error


class _OrcFile(BulkFile[Any]):
    """An open file; each stripe is a unit.

    Arrow does not report where stripes begin. So the file counts as divided into as many equal parts as it has stripes,
    which shares them among readers as well.
    """

    def __init__(self, file: Any, columnar_format: ColumnarFormat) -> None:
        self._file = file
        self._columns, self._read = columnar_format.choose_columns(file.schema)
        self._output = columnar_format.output
        # Spark writes TIMESTAMP_NTZ as integers.
        self._plain_times = {
            field.name
            for field in file.schema
            if field.type == pa.int64() and (field.metadata or {}).get(_TYPE_OF_SPARK) == b"timestamp_ntz"
        }
        self._has_old_dates = has_julian_dates(file.reader.serialized_file_tail())

    def units(self, start: int, end: int | None) -> Sequence[int]:
        count, size = self._file.nstripes, self._file.file_length
        return [unit for unit in range(count) if start <= size * unit // count < (end or float("inf"))]

    def read(self, unit: int, skip_records: int) -> Iterator[list[Any] | ColumnData]:
        try:
            stripe = self._file.read_stripe(unit, columns=self._read)
        except (pa.ArrowException, OSError) as error:
            if _FAR_TIME in str(error):
                raise FormatError(
                    f"stripe {unit} has a timestamp outside of the years 1678 to 2261, and Arrow reads timestamps of "
                    f"ORC in nanoseconds only: leave the column out, or store the table as Parquet ({error})"
                ) from error
            raise _of_data(error, f"stripe {unit} cannot be read") from error
        if lacking := set(self._columns) - set(stripe.schema.names):
            raise FormatError(f"the file has no field that is read of column {sorted(lacking)[0]!r}")
        stripe = stripe.select(self._columns)
        if self._has_old_dates:
            arrays = [
                convert_leaves(gregorian_dates, column) if has_dates(column.type) else column
                for column in stripe.columns
            ]
            stripe = pa.RecordBatch.from_arrays(arrays, self._columns)
        for index, name in enumerate(self._columns):
            if name in self._plain_times:
                stripe = stripe.set_column(index, name, stripe.column(index).view(_PLAIN_TIME))
        for begin in range(skip_records, stripe.num_rows, COLUMN_BATCH_ROWS):
            yield to_records(stripe.slice(begin, COLUMN_BATCH_ROWS), self._output)


def _check_time(name: str, column: pa.Array) -> pa.Array:
    """Return the column. Raises `FormatError` for a time that could not be read back."""
    if pa.types.is_timestamp(column.type):
        try:
            exact_cast(column, pa.timestamp("ns", column.type.tz))
        except pa.ArrowInvalid as error:
            raise FormatError(
                f"column {name!r} cannot be written to ORC, and be read again: Arrow reads the years 1678 to 2261. "
                f"Store the table as Parquet. {error}"
            ) from error
    return column


def _of_data(error: Exception, message: str) -> Exception:
    """Convert Arrow's OSError for bad ORC data to FormatError; keep an operating system error, which has a number."""
    return error if isinstance(error, OSError) and error.errno is not None else FormatError(f"{message}: {error}")


class OrcWriterFactory(ArrowWriterFactory):
    """Writes records to ORC, for `FileSink.for_bulk_format`.

    Args:
        columns: a row type, a dict from name to type, or an Arrow schema; records are dicts, rows or tuples.
        compression: a codec supported by Arrow, such as `zlib` or `zstd`; `uncompressed` for none.
        stripe_bytes: the size of a stripe.

    Raises:
        ConfigurationError: if a type cannot be written, or there are no columns.

    Examples:
        >>> from pathlib import Path
        >>> import pyarrow.orc as orc
        >>> from penstock.common import Types
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.connectors import BucketAssigner, FileSink
        >>> from penstock.datastream.formats.orc import OrcWriterFactory
        >>> row_type = Types.ROW_NAMED(["drink", "cups"], [Types.STRING(), Types.INT()])
        >>> files = FileSink.for_bulk_format("orders", OrcWriterFactory(row_type))
        >>> files = files.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> _ = env.from_elements(("tea", 2)).sink_to(files.build())
        >>> result = env.execute()
        >>> (path,) = Path("orders").glob("part-*")
        >>> orc.read_table(path).to_pylist()
        [{'drink': 'tea', 'cups': 2}]
    """

    format_name = "ORC"

    def __init__(self, columns: Any, *, compression: str = "zlib", stripe_bytes: int = STRIPE_BYTES) -> None:
        super().__init__(columns)
        self.compression = compression
        self.stripe_bytes = stripe_bytes

    def create(self, stream: BinaryIO) -> BatchWriter[Any]:
        """Create a writer for a new, empty file."""
        return _OrcWriter(self, stream)


class _OrcWriter(ArrowWriter):
    def __init__(self, factory: OrcWriterFactory, stream: BinaryIO) -> None:
        super().__init__(factory)
        self._writer = pyarrow.orc.ORCWriter(
            stream, compression=factory.compression, stripe_size=factory.stripe_bytes, file_version="0.12"
        )
        self._is_empty = True

    def write(self, table: pa.Table) -> None:
        for name, column in zip(table.schema.names, table.columns, strict=True):
            for chunk in column.chunks if has_times(column.type) else ():
                convert_leaves(partial(_check_time, name), chunk)
        self._is_empty = False
        self._writer.write(table)

    def close(self) -> None:
        if self._is_empty:  # Arrow derives the columns of a file from the data written to it
            self._writer.write(self.schema.empty_table())
        self._writer.close()


# --- the end of a file: a message of Protocol Buffers, which Arrow hands on as bytes ----------------------------------


def has_julian_dates(tail: bytes) -> bool:
    """Return whether the writer dates days before 15 October 1582 by the Julian calendar, as Spark and Hive do.

    A file that names no calendar has dates of the Gregorian calendar: Flink and Arrow write no calendar.

    Args:
        tail: the end of the file, uncompressed (`FileTail`).
    """
    for number, footer in _fields(tail):
        if number == _FOOTER_OF_TAIL and isinstance(footer, bytes):
            return any(field == (_CALENDAR_OF_FOOTER, _JULIAN_GREGORIAN) for field in _fields(footer))
    return False


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the numbers and values of a message's fields, up to the first bytes that are not a field."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
        elif kind == _BYTES:
            size, at = _varint(message, at)
            yield key >> 3, message[at : at + size]
            at += size
        elif kind in (_FIXED_64, _FIXED_32):
            at += 8 if kind == _FIXED_64 else 4
        else:
            return


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable size, and the position of the next byte."""
    number, shift = 0, 0
    while at < len(message):
        byte = message[at]
        number |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            break
    return number, at
