"""A Spark data frame as a bounded source.

Batch execution on Spark reads the frame in place: its partitions are the input of the tasks, and no data goes through
the program. All other executions read a copy. Spark runs the frame's query once, before the job begins, and writes
Parquet files, one per partition. A position is a file and a row in it, so records can be read again (G8), although a
query need not return its rows in the same order twice.

The copy lies below the checkpoint directory if there is one, and stays there because checkpoints refer to it. Deleting
the job's checkpoints deletes the copy as well. Without a checkpoint directory the copy lies in a temporary directory,
which is deleted when the program ends.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.base.errors import ConfigurationError, FormatError, UnsupportedError, WrongTimeError
from penstock.base.typeinfo import TypeInformation
from penstock.codecs.arrow_columns import exact_cast_columns
from penstock.connectors.file.source import FileSource
from penstock.connectors.file.split import FileSplit
from penstock.drivers.directories import directory_of_this_process
from penstock.drivers.spark.frame_records import RecordShape, build_record_shape, to_records
from penstock.formats.file_format import BulkFile, BulkFormat
from penstock.runtime.connector import (
    Boundedness,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_READ_ROWS = 4096


class DataFrameSource(Source[Any, FileSplit]):
    """Reads a data frame.

    Args:
        frame: the data frame.
        type_info: the type of its records, see `build_record_shape`.
        directory: a URL for copies; None for a temporary directory.

    Raises:
        ConfigurationError: if the type does not fit the frame's columns.
    """

    def __init__(self, frame: DataFrame, type_info: TypeInformation | None, directory: str | None) -> None:
        names = list(frame.columns)
        self.shape = build_record_shape(type_info, names)
        self._frame: DataFrame | None = frame
        self._schema = arrow_schema(frame.schema)
        self._directory = directory
        self._files: FileSource[Any] | None = None

    @property
    def frame(self) -> DataFrame:
        """The data frame. It exists only in the program, because it is not pickled."""
        if self._frame is None:
            raise WrongTimeError("a data frame exists only in the program that created it, not in tasks")
        return self._frame

    @property
    def boundedness(self) -> Boundedness:
        """Bounded."""
        return Boundedness.BOUNDED

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_frame": None}

    def prepare(self, check_cancelled: Callable[[], None]) -> None:
        """Let Spark write the copy."""
        self._write_copy()

    def _write_copy(self) -> None:
        path = f"{self._base()}/{uuid.uuid4().hex}"
        self.frame.write.parquet(path)
        self._files = FileSource.for_bulk_file_format(_FrameFormat(self.shape, self._schema), path).build()

    def _base(self) -> str:
        if self._directory is not None:
            return f"{self._directory.rstrip('/')}/data-frames"
        if not _is_on_this_machine(self.frame):
            raise ConfigurationError(
                "to stream a data frame on a cluster, set execution.checkpointing.dir to a directory that all machines "
                "can reach: Penstock writes a copy of the frame there"
            )
        return directory_of_this_process("penstock-frame-")

    def create_enumerator(
        self, context: SplitEnumeratorContext[FileSplit], restored: Any | None
    ) -> SplitEnumerator[FileSplit]:
        """Create an enumerator for the files of the copy, or for an earlier copy in a checkpoint."""
        if self._files is None:
            self._write_copy()
        assert self._files is not None
        return self._files.create_enumerator(context, restored)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, FileSplit]:
        """Create a reader of files."""
        return FileSource(_FrameFormat(self.shape, self._schema), (), None, None).create_reader(context)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Convert Spark's schema to an Arrow schema with timestamps in UTC.

    Raises:
        UnsupportedError: if a column's type, or a type nested in it, cannot be read, such as VARIANT.
    """
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import to_arrow_schema

    for field in schema.fields:
        if _has_variant(field.dataType):
            raise UnsupportedError(
                f"column {field.name!r} of the data frame has Spark's type {field.dataType.simpleString().upper()}, "
                "and Spark's VARIANT cannot be read: select it as text with to_json, or a part of it with variant_get"
            )
    try:
        # Spark 4.0 always uses UTC and lacks this argument; later releases need it.
        zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
        return to_arrow_schema(schema, **zone)
    except PySparkTypeError as error:
        raise UnsupportedError(f"a column of the data frame has a type that cannot be read: {error}") from error


def _has_variant(kind: Any) -> bool:
    """Return whether a Spark type contains VARIANT, which Spark 3 does not have."""
    parts = [getattr(kind, name, None) for name in ("elementType", "keyType", "valueType")]
    parts += [field.dataType for field in getattr(kind, "fields", [])]
    return type(kind).__name__ == "VariantType" or any(_has_variant(part) for part in parts if part is not None)


def _is_on_this_machine(frame: DataFrame) -> bool:
    session = frame.sparkSession
    return "connect" not in type(session).__module__ and str(session.sparkContext.master).startswith("local")


class _FrameFormat(BulkFormat[Any]):
    """Parquet files written by Spark."""

    def __init__(self, shape: RecordShape, schema: pa.Schema) -> None:
        self._shape = shape
        self._schema = schema

    def open(self, file: BinaryIO) -> BulkFile[Any]:
        try:
            # Spark writes INT96, whose range exceeds that of Arrow's nanoseconds.
            return _FrameFile(pq.ParquetFile(file, coerce_int96_timestamp_unit="us"), self._shape, self._schema)
        except pa.ArrowException as error:
            raise FormatError(f"not a copy of a data frame: {error}") from error


class _FrameFile(BulkFile[Any]):
    """One file, read by row groups."""

    def __init__(self, file: Any, shape: RecordShape, schema: pa.Schema) -> None:
        self._file = file
        self._shape = shape
        self._schema = schema

    def units(self, start: int, end: int | None) -> Sequence[int]:
        metadata = self._file.metadata
        return [
            i
            for i in range(metadata.num_row_groups)
            if start <= _find_row_group_start(metadata.row_group(i)) < (end or float("inf"))
        ]

    def read(self, unit: int, skip_records: int) -> Iterator[list[Any]]:
        for batch in self._file.iter_batches(_READ_ROWS, row_groups=[unit], use_threads=False):
            if skip_records >= batch.num_rows:
                skip_records -= batch.num_rows
                continue
            records = exact_cast_columns(batch.slice(skip_records), self._schema)
            yield to_records(records.columns, self._shape)
            skip_records = 0


def _find_row_group_start(row_group: Any) -> int:
    """Return the byte offset of a row group."""
    column = row_group.column(0)
    pages = [column.data_page_offset]
    if column.has_dictionary_page and column.dictionary_page_offset is not None:
        pages.append(column.dictionary_page_offset)
    return int(min(pages))
