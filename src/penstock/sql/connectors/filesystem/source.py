"""Reads the files of a table: the format's columns, and metadata on the origin of each row.

Prunes row columns in files to the fields that are read, for formats that find fields by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.file.filesystem import FileInfo, file_info
from penstock.connectors.file.reader import FileSourceReader
from penstock.connectors.file.source import FileSource
from penstock.connectors.file.split import FileEnumerator, FileSplit
from penstock.formats.file_format import BulkFormat, StreamFormat
from penstock.runtime.columns.batch import ColumnBatch
from penstock.runtime.connector import (
    InputStatus,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from penstock.runtime.records import Batch
from penstock.sql.connectors.filesystem.partitions import PartitionValues, WantedPartitions
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type, to_full_array
from penstock.sql.data.types import DataType, RowField, RowType
from penstock.sql.logical.nodes import RowSchema
from penstock.sql.tables.tables import column_names

FileFormat = StreamFormat[Any] | BulkFormat[Any]

#: the metadata of a row's file that METADATA columns can read
METADATA: Final[Mapping[str, DataType]] = {
    "file.path": types.VarCharType(types.LENGTH_MAX, False),
    "file.name": types.VarCharType(types.LENGTH_MAX, False),
    "file.size": types.BigIntType(False),
    "file.modification-time": types.LocalZonedTimestampType(3, False),
}


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of the table: `name` of a stored or partition column, or `metadata`, a key of `METADATA`.

    `path`: the nested field of a stored row column; empty for the whole column.
    """

    name: str
    type: DataType
    is_partition: bool = False
    metadata: str | None = None
    path: tuple[int, ...] = ()


class TableFilesSource(FileSource[Any]):
    """Reads files as the columns of a table, named c0, c1 and so on.

    Args:
        file_format: reads the columns stored in files.
        columns: all columns to read.
        paths: files and directories.
        pattern: a regular expression that the whole path of a file must match; None for any.
        default_name: the name of the partition of NULL.
        interval_ms: how often to look for new files; None to look once.
        limit: the most rows that a reader returns; None for all.
        wanted: the partitions to read; None for all.
    """

    def __init__(
        self,
        file_format: FileFormat,
        columns: Sequence[OutputColumn],
        paths: tuple[str, ...],
        *,
        pattern: str | None = None,
        default_name: str = "",
        interval_ms: int | None = None,
        limit: int | None = None,
        wanted: WantedPartitions | None = None,
    ) -> None:
        super().__init__(file_format, paths, interval_ms, None)
        self._wanted = wanted
        self._columns = tuple(columns)
        self._pattern = pattern
        self._default_name = default_name
        self._limit = limit

    def create_enumerator(
        self, context: SplitEnumeratorContext[FileSplit], restored: Any | None
    ) -> SplitEnumerator[FileSplit]:
        """See `Source`."""
        splittable = not isinstance(self._format, StreamFormat) or self._format.splittable
        return _Enumerator(
            context,
            self._paths,
            splittable,
            self._split_bytes,
            self._interval_ms,
            restored,
            self._pattern,
            self._wanted,
        )

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, FileSplit]:
        """See `Source`."""
        return _Reader(context, self._format, self._columns, self._default_name, self._limit)


class _Enumerator(FileEnumerator):
    """Selects the files whose paths match a pattern. Files of pruned partitions count as read in their turn.

    The state is therefore that of an enumerator that assigns all files, and stays valid for other partition filters.
    """

    def __init__(
        self,
        context: SplitEnumeratorContext[FileSplit],
        paths: Sequence[str],
        splittable: bool,
        split_bytes: int | None,
        interval_ms: int | None,
        restored: Any | None,
        pattern: str | None,
        wanted: WantedPartitions | None,
    ) -> None:
        super().__init__(context, paths, splittable, split_bytes, interval_ms, restored)
        self._is_wanted = None if wanted is None else wanted.asker()
        self._pattern = None if pattern is None else re.compile(pattern)

    def _look(self) -> list[FileInfo]:
        files = super()._look()
        pattern = self._pattern
        return files if pattern is None else [file for file in files if pattern.fullmatch(file.path)]

    def _next(self) -> FileSplit | None:
        split = super()._next()
        while split is not None and self._is_wanted is not None and not self._is_wanted(split.path):
            split = super()._next()
        return split


class _Reader(FileSourceReader):
    """Adds partition and metadata columns to the columns of files."""

    def __init__(
        self,
        context: SourceReaderContext,
        file_format: FileFormat,
        columns: Sequence[OutputColumn],
        default_name: str,
        limit: int | None,
    ) -> None:
        super().__init__(context, file_format)
        self._columns = columns
        kinds = {column.name: column.type for column in columns if column.is_partition}
        self._partitions = PartitionValues(kinds, default_name)
        self._names = column_names(len(columns))
        self._is_constant = [column.is_partition or column.metadata is not None for column in columns]
        self._left = limit
        self._constants_of = ""
        self._constants: dict[str, pa.Scalar] = {}

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        """Return the next rows, with all columns."""
        if self._left == 0:
            self._pass_over()
        answer = super().poll_next(max_records)
        if not isinstance(answer, ColumnBatch):
            return answer
        complete = self._completed(answer.columns, self._splits[0].path)
        kinds = answer.kinds
        if self._left is not None:
            complete = complete.slice(0, self._left)
            kinds = None if kinds is None else kinds[: self._left]
            self._left -= complete.num_rows
        rows = ColumnBatch(complete, None, kinds)
        rows.origin = answer.origin
        return rows

    def _pass_over(self) -> None:
        """Skip the rest of the current splits."""
        self.close()
        self._block = None
        self._splits.clear()

    def _completed(self, columns: pa.RecordBatch, path: str) -> pa.RecordBatch:
        if path != self._constants_of:
            self._constants, self._constants_of = self._read_constants(path), path
        arrays = []
        for name, column, is_constant in zip(self._names, self._columns, self._is_constant, strict=True):
            if is_constant:
                arrays.append(to_full_array(self._constants[name], columns.num_rows))
            else:
                array = columns.column(column.name)
                arrays.append(pc.struct_field(array, list(column.path)) if column.path else array)
        return pa.RecordBatch.from_arrays(arrays, self._names)

    def _read_constants(self, path: str) -> dict[str, pa.Scalar]:
        """Return the values shared by all rows of a file, by column name."""
        values = self._partitions.of_file(path)
        constants = {}
        info = file_info(path) if any(column.metadata is not None for column in self._columns) else None
        for name, column in zip(self._names, self._columns, strict=True):
            if column.metadata is not None:
                assert info is not None
                constants[name] = _metadata(column.metadata, info).cast(arrow_type(column.type))
            elif column.is_partition:
                constants[name] = values[column.name]
        return constants


def _metadata(key: str, info: FileInfo) -> pa.Scalar:
    values = {
        "file.path": info.path,
        "file.name": info.path.rpartition("/")[2],
        "file.size": info.size_bytes,
        "file.modification-time": info.modified_ms,
    }
    return pa.scalar(values[key], arrow_type(METADATA[key]))


_Path = tuple[int, ...]


def with_fields_alone(stored: RowSchema, columns: Sequence[OutputColumn]) -> tuple[RowSchema, tuple[OutputColumn, ...]]:
    """Return the stored columns with only the required fields, and the output columns with matching paths."""
    paths: dict[str, list[_Path]] = {}
    for output_column in columns:
        if not output_column.is_partition and output_column.metadata is None:
            paths.setdefault(output_column.name, []).append(output_column.path)
    kinds = {
        column.name: _cut(column.type, paths[column.name]) if all(paths.get(column.name, [()])) else column.type
        for column in stored
    }
    schema = RowSchema(tuple(replace(column, type=kinds[column.name]) for column in stored))
    moved = tuple(
        replace(output, path=_place(output.path, paths[output.name]))
        if output.path and all(paths[output.name])
        else output
        for output in columns
    )
    return schema, moved


def _cut(kind: DataType, paths: Sequence[_Path]) -> DataType:
    """Return a row type with only the fields on these paths; it is unchanged if a path is empty."""
    if not all(paths):
        return kind
    assert isinstance(kind, RowType)
    fields = [
        RowField(kind.fields[index].name, _cut(kind.fields[index].data_type, _below(index, paths)))
        for index in _firsts(paths)
    ]
    return RowType(fields, kind.is_nullable)


def _place(path: _Path, paths: Sequence[_Path]) -> _Path:
    """Return the path to the same field in the type that `_cut` returns."""
    if not path or not all(paths):
        return path
    return (_firsts(paths).index(path[0]), *_place(path[1:], _below(path[0], paths)))


def _firsts(paths: Sequence[_Path]) -> list[int]:
    return sorted({path[0] for path in paths})


def _below(index: int, paths: Sequence[_Path]) -> list[_Path]:
    return [path[1:] for path in paths if path[0] == index]
