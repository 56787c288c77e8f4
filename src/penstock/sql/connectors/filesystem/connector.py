"""`filesystem`: reads and writes files, with the options of Flink's connector of this name.

A sink writes each row exactly once: files become visible when the checkpoint that covers them completes, or at the end.

`TableFilesSource` reads the files of a table: the format's columns, and metadata on the origin of each row. `FilesScan`
has the abilities of a scan. It prunes row columns in files to the fields that are read, for formats that find fields by
name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.durable_files import check_outlives
from penstock.base.errors import UnsupportedError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.file.filesystem import FileInfo, absolute_path, file_info, list_files
from penstock.connectors.file.reader import FileEnumerator, FileSourceReader, FileSplit
from penstock.connectors.file.source import FileSource
from penstock.formats.file_format import BulkFormat, StreamFormat
from penstock.runtime import connector
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.records import Batch
from penstock.sql.connectors.filesystem import partition_commit
from penstock.sql.connectors.filesystem.sink import (
    DEFAULT_NAME,
    FILE_SIZE,
    INTERVAL,
    PATH,
    PATTERN,
    READ_OPTIONS,
    REFUSED,
    WRITE_OPTIONS,
    PartitionValues,
    TableFilesSink,
    WantedPartitions,
    build_partition_path,
    check_types,
    is_plain,
    parse_partition,
    rolling_policy,
)
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type, to_full_array
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType, RowField, RowType
from penstock.sql.formats.format import Formats, TableFormat, only_messages
from penstock.sql.logical.nodes import INSERTS, RowSchema, Scan, Write
from penstock.sql.tables import tables
from penstock.sql.tables.connector import FORMAT, TableConnector, TableLookup, TableOptions, held_lookup
from penstock.sql.typed import Field, Typed, transformed

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
        self, context: connector.SplitEnumeratorContext[FileSplit], restored: Any | None
    ) -> connector.SplitEnumerator[FileSplit]:
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

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, FileSplit]:
        """See `Source`."""
        return _Reader(context, self._format, self._columns, self._default_name, self._limit)


class _Enumerator(FileEnumerator):
    """Selects the files whose paths match a pattern. Files of pruned partitions count as read in their turn.

    The state is therefore that of an enumerator that assigns all files, and stays valid for other partition filters.
    """

    def __init__(
        self,
        context: connector.SplitEnumeratorContext[FileSplit],
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
        context: connector.SourceReaderContext,
        file_format: FileFormat,
        columns: Sequence[OutputColumn],
        default_name: str,
        limit: int | None,
    ) -> None:
        super().__init__(context, file_format)
        self._columns = columns
        kinds = {column.name: column.type for column in columns if column.is_partition}
        self._partitions = PartitionValues(kinds, default_name)
        self._names = tables.column_names(len(columns))
        self._is_constant = [column.is_partition or column.metadata is not None for column in columns]
        self._left = limit
        self._constants_of = ""
        self._constants: dict[str, pa.Scalar] = {}

    def poll_next(self, max_records: int) -> Batch | connector.InputStatus:
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


@dataclass(frozen=True, slots=True)
class FilesScan(
    tables.TableScan,
    tables.ProjectionPushDown,
    tables.NestedPushDown,
    tables.FilterPushDown,
    tables.LimitPushDown,
    tables.PartitionPushDown,
    tables.WatermarkPushDown,
):
    """Reads some columns, or fields of them, and some partitions, skips parts of files, and stops early.

    Attributes:
        title: the table.
        path: the location of the files.
        format: reads the files.
        options: the options of the format.
        stored: the columns stored in files, in order.
        columns: the columns to read.
        partition_keys: the columns that name directories.
        default_name: the name of the partition of NULL.
        pattern: a regular expression that file paths must match; None for any.
        interval_ms: how often to look for new files; None to look once.
        wanted: the partitions that satisfy the query's conditions; None for all.
        conditions: over the stored columns; the format may skip rows that do not satisfy them.
        only: the values of the partitions to read, in the order of the partition keys; None for all.
        limit: the number of rows needed; None for all.
        strategy: the watermark strategy of each subtask, which reads one part of a file after another.
        zone: the time zone of the session.
    """

    title: str
    path: str
    format: TableFormat
    options: tuple[tuple[str, str], ...]
    stored: RowSchema
    columns: tuple[OutputColumn, ...]
    partition_keys: tuple[str, ...] = ()
    default_name: str = ""
    pattern: str | None = None
    interval_ms: int | None = None
    wanted: WantedPartitions | None = None
    conditions: tuple[Typed, ...] = ()
    only: tuple[tuple[str | None, ...], ...] | None = None
    limit: int | None = None
    strategy: WatermarkStrategy = tables.NO_WATERMARKS
    zone: tzinfo = UTC

    def reader(self) -> tables.TableReader:
        """See `TableScan`."""
        names = self.stored.names
        of_files = [column for column in self.columns if not column.is_partition and column.metadata is None]
        indices = list(dict.fromkeys(names.index(column.name) for column in of_files))
        if not indices and names:
            indices = [0]  # only to count rows
        options = TableOptions(self.title, dict(self.options), zone=self.zone)
        stored, columns = self.stored, self.columns
        if self.format.has_named_fields and any(column.path for column in of_files):
            stored, columns = with_fields_alone(stored, columns)
        decoding = self.format.decoding(stored, indices, options)
        if self.conditions:
            decoding = self.format.filtered(decoding, self.stored, self.conditions)
        if decoding.files is None:
            raise only_messages(self.format.name, self.title)
        source = TableFilesSource(
            decoding.files,
            columns,
            (self.path,),
            pattern=self.pattern,
            default_name=self.default_name,
            interval_ms=self.interval_ms,
            limit=self.limit,
            wanted=self._all_wanted(),
        )
        if decoding.changes != INSERTS:
            return tables.TableReader(source, decoding.changes, has_before=True, strategy=self.strategy)
        return tables.TableReader(source, location=self._location(), strategy=self.strategy)

    def with_columns(self, columns: Sequence[int]) -> FilesScan:
        """See `ProjectionPushDown`."""
        return replace(self, columns=tuple(self.columns[index] for index in columns))

    def with_leaves(self, paths: Sequence[tables.Path]) -> FilesScan:
        """See `NestedPushDown`."""
        return replace(self, columns=tuple(_leaf(self.columns[column], fields) for column, *fields in paths))

    def with_conditions(self, conditions: Sequence[Typed]) -> tables.Filtered:
        """See `FilterPushDown`. Conditions on partitions are applied here; the format may use the others."""
        keys = {
            index: self.partition_keys.index(column.name)
            for index, column in enumerate(self.columns)
            if column.is_partition
        }
        names = self.stored.names
        stored = {
            index: names.index(column.name)
            for index, column in enumerate(self.columns)
            if not column.is_partition and column.metadata is None and not column.path
        }
        done = [condition for condition in conditions if _is_over(condition, keys) and is_plain(condition)]
        rest = tuple(condition for condition in conditions if condition not in done)
        used = tuple(
            condition
            for condition in rest
            if _is_over(condition, stored) and self.format.uses(_moved(condition, stored))
        )
        table_scan = replace(self, conditions=(*self.conditions, *(_moved(condition, stored) for condition in used)))
        if done:
            table_scan = replace(table_scan, wanted=self._wanted([_moved(condition, keys) for condition in done]))
        return tables.Filtered(table_scan, rest, used)

    def _wanted(self, conditions: Sequence[Typed]) -> WantedPartitions:
        kinds = {column.name: column.type for column in self.columns if column.is_partition}
        read = tuple(key for key in self.partition_keys if key in kinds)
        positions = {self.partition_keys.index(key): position for position, key in enumerate(read)}
        moved = [_moved(condition, positions) for condition in conditions]
        return WantedPartitions(tuple(moved), read, tuple(kinds[key] for key in read), self.default_name)

    def with_limit(self, limit: int) -> FilesScan:
        """See `LimitPushDown`."""
        return replace(self, limit=limit if self.limit is None else min(limit, self.limit))

    def with_watermarks(self, strategy: WatermarkStrategy) -> FilesScan:
        """See `WatermarkPushDown`."""
        return replace(self, strategy=strategy)

    def partitions(self) -> list[tables.Partition] | None:
        """See `PartitionPushDown`. Unknown while new files are monitored."""
        if not self.partition_keys or self.interval_ms is not None:
            return None
        by_directory: dict[str, tables.Partition] = {}
        try:
            files = list_files(self.path)
        except FileNotFoundError:
            return None
        for file in files:
            values = parse_partition(file.path, self.partition_keys, self.default_name)
            by_directory[build_partition_path(values, self.partition_keys, self.default_name)] = values
        partitions = [by_directory[directory] for directory in sorted(by_directory)]
        return [
            partition
            for partition in partitions
            if self.only is None or self._get_partition_values(partition) in self.only
        ]

    def with_partitions(self, partitions: Sequence[tables.Partition]) -> FilesScan:
        """See `PartitionPushDown`. Raises `ValidationError` for partitions of other columns."""
        for partition in partitions:
            if set(partition) != set(self.partition_keys):
                raise ValidationError(
                    f"a partition of table {self.title} has values of {', '.join(self.partition_keys)}, "
                    f"not of {', '.join(partition)}"
                )
        return replace(self, only=tuple(map(self._get_partition_values, partitions)))

    def _get_partition_values(self, partition: tables.Partition) -> tuple[str | None, ...]:
        return tuple(partition[key] for key in self.partition_keys)

    def _all_wanted(self) -> WantedPartitions | None:
        if self.only is None:
            return self.wanted
        partitions = self.wanted or WantedPartitions((), (), (), self.default_name)
        return replace(partitions, all_keys=self.partition_keys, only=frozenset(self.only))

    def _location(self) -> tables.TableLocation:
        is_all = self.pattern is None and self.limit is None and self.wanted is None
        has_plain_columns = all(column.metadata is None and not column.path for column in self.columns)
        only = None
        if self.only is not None:
            partitions = [dict(zip(self.partition_keys, values, strict=True)) for values in self.only]
            only = tuple(
                build_partition_path(partition, self.partition_keys, self.default_name) for partition in partitions
            )
        return tables.TableLocation(
            self.path, self.format.name, self.options, self.partition_keys, only, is_all and has_plain_columns
        )


def _leaf(column: OutputColumn, fields: Sequence[int]) -> OutputColumn:
    return replace(column, type=tables.leaf_type(column.type, fields), path=(*column.path, *fields))


def _is_over(condition: Typed, positions: Mapping[int, int]) -> bool:
    read = {node.index for node in condition.walk() if isinstance(node, Field)}
    return bool(read) and read <= positions.keys()


def _moved(condition: Typed, positions: Mapping[int, int]) -> Typed:
    return transformed(
        condition, lambda node: replace(node, index=positions[node.index]) if isinstance(node, Field) else node
    )


class FilesystemConnector(TableConnector):
    """See the module docstring. `formats`: the possible values of the option `format`."""

    name = "filesystem"
    required_options = (PATH, FORMAT)
    optional_options = (DEFAULT_NAME, *READ_OPTIONS, *WRITE_OPTIONS, *partition_commit.COMMIT_OPTIONS)
    takes_partitions = True
    options_up_to_now: ClassVar = {INTERVAL.key(): None}

    def __init__(self, formats: Formats) -> None:
        self._formats = formats

    def more_options(self, options: TableOptions, columns: Sequence[str]) -> Iterable[str]:
        """Return the options of the format."""
        options.refuse(REFUSED)
        return self._formats.option_keys(options)

    def readable_metadata(self, options: TableOptions) -> Mapping[str, DataType]:
        """Return the metadata of files."""
        return METADATA

    def scan(self, scan: Scan, options: TableOptions) -> tables.TableScan:
        """Return the scan. Raises `ValidationError` if the columns do not fit the format."""
        table_format, of_format = self._formats.find(options)
        metadata = dict(scan.metadata)
        keys = scan.partition_keys
        check_types(options.title, scan.schema, keys)
        columns = tuple(
            OutputColumn(column.name, column.type, column.name in keys, metadata.get(index))
            for index, column in enumerate(scan.schema)
        )
        stored = tuple(
            column for index, column in enumerate(scan.schema) if column.name not in keys and index not in metadata
        )
        interval_ms = options.read(INTERVAL)
        if interval_ms is not None and interval_ms <= 0:
            raise options.wrong(INTERVAL.key(), "it must be above 0")
        table_scan = FilesScan(
            title=options.title,
            path=absolute_path(options.required(PATH)),
            format=table_format,
            options=tuple(sorted(of_format.items())),
            stored=RowSchema(stored),
            columns=columns,
            partition_keys=keys,
            default_name=options.read(DEFAULT_NAME),
            pattern=options.read(PATTERN),
            interval_ms=interval_ms,
            zone=options.zone,
        )
        table_scan.reader()
        return table_scan

    def lookup(self, scan: Scan, key: Sequence[int], options: TableOptions) -> TableLookup:
        """Return a lookup that reads all files once and caches their rows."""
        return held_lookup(self.scan(scan, options).reader(), scan, key)

    def writer(self, write: Write, options: TableOptions) -> tables.TableWriter:
        """Return a writer that accepts the changes that the format can represent."""
        table_format, of_format = self._formats.find(options)
        if write.overwrites:
            raise UnsupportedError(
                f"INSERT OVERWRITE into files is not supported: table {options.title}. Remove the files first"
            )
        keys = write.partition_keys
        check_types(options.title, write.schema, keys)
        stored = RowSchema(tuple(column for column in write.schema if column.name not in keys))
        if not len(stored):
            raise ValidationError(f"table {options.title} has no columns besides those of its partitions")
        encoding = table_format.encoding(stored, of_format)
        if encoding.files is None:
            raise only_messages(table_format.name, options.title)
        check_outlives(options.required(PATH))
        sink = TableFilesSink(
            absolute_path(options.required(PATH)),
            encoding.files,
            write.schema,
            keys,
            options.read(DEFAULT_NAME),
            rolling_policy(options),
            partition_commit.read_compaction(options, options.read(FILE_SIZE)),
            partition_commit.read_partition_commit(options, keys),
        )
        return tables.TableWriter(sink, encoding.accepts, takes_columns=True, follows_query=encoding.accepts != INSERTS)
