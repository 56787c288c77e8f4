"""The scan of a table stored in files, with its abilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.file.filesystem import list_files
from penstock.table.connectors.abilities import (
    Filtered,
    FilterPushDown,
    LimitPushDown,
    NestedPushDown,
    Partition,
    PartitionPushDown,
    Path,
    ProjectionPushDown,
    TableScan,
    WatermarkPushDown,
    leaf_type,
)
from penstock.table.connectors.filesystem.leaves import with_fields_alone
from penstock.table.connectors.filesystem.partitions import build_partition_path, parse_partition
from penstock.table.connectors.filesystem.source import OutputColumn, TableFilesSource
from penstock.table.connectors.filesystem.wanted_partitions import WantedPartitions, is_plain
from penstock.table.connectors.formats.format import TableFormat, only_messages
from penstock.table.connectors.table_options import TableOptions
from penstock.table.connectors.tables import NO_WATERMARKS, TableLocation, TableReader
from penstock.table.data.errors import ValidationError
from penstock.table.plan.changes import INSERTS
from penstock.table.plan.row_schema import RowSchema
from penstock.table.typed.nodes import Field, Typed, transformed


@dataclass(frozen=True, slots=True)
class FilesScan(
    TableScan,
    ProjectionPushDown,
    NestedPushDown,
    FilterPushDown,
    LimitPushDown,
    PartitionPushDown,
    WatermarkPushDown,
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
    strategy: WatermarkStrategy = NO_WATERMARKS
    zone: tzinfo = UTC

    def reader(self) -> TableReader:
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
            return TableReader(source, decoding.changes, has_before=True, strategy=self.strategy)
        return TableReader(source, location=self._location(), strategy=self.strategy)

    def with_columns(self, columns: Sequence[int]) -> FilesScan:
        """See `ProjectionPushDown`."""
        return replace(self, columns=tuple(self.columns[index] for index in columns))

    def with_leaves(self, paths: Sequence[Path]) -> FilesScan:
        """See `NestedPushDown`."""
        return replace(self, columns=tuple(_leaf(self.columns[column], fields) for column, *fields in paths))

    def with_conditions(self, conditions: Sequence[Typed]) -> Filtered:
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
        return Filtered(table_scan, rest, used)

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

    def partitions(self) -> list[Partition] | None:
        """See `PartitionPushDown`. Unknown while new files are monitored."""
        if not self.partition_keys or self.interval_ms is not None:
            return None
        by_directory: dict[str, Partition] = {}
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

    def with_partitions(self, partitions: Sequence[Partition]) -> FilesScan:
        """See `PartitionPushDown`. Raises `ValidationError` for partitions of other columns."""
        for partition in partitions:
            if set(partition) != set(self.partition_keys):
                raise ValidationError(
                    f"a partition of table {self.title} has values of {', '.join(self.partition_keys)}, "
                    f"not of {', '.join(partition)}"
                )
        return replace(self, only=tuple(map(self._get_partition_values, partitions)))

    def _get_partition_values(self, partition: Partition) -> tuple[str | None, ...]:
        return tuple(partition[key] for key in self.partition_keys)

    def _all_wanted(self) -> WantedPartitions | None:
        if self.only is None:
            return self.wanted
        partitions = self.wanted or WantedPartitions((), (), (), self.default_name)
        return replace(partitions, all_keys=self.partition_keys, only=frozenset(self.only))

    def _location(self) -> TableLocation:
        is_all = self.pattern is None and self.limit is None and self.wanted is None
        has_plain_columns = all(column.metadata is None and not column.path for column in self.columns)
        only = None
        if self.only is not None:
            partitions = [dict(zip(self.partition_keys, values, strict=True)) for values in self.only]
            only = tuple(
                build_partition_path(partition, self.partition_keys, self.default_name) for partition in partitions
            )
        return TableLocation(
            self.path, self.format.name, self.options, self.partition_keys, only, is_all and has_plain_columns
        )


def _leaf(column: OutputColumn, fields: Sequence[int]) -> OutputColumn:
    return replace(column, type=leaf_type(column.type, fields), path=(*column.path, *fields))


def _is_over(condition: Typed, positions: Mapping[int, int]) -> bool:
    read = {node.index for node in condition.walk() if isinstance(node, Field)}
    return bool(read) and read <= positions.keys()


def _moved(condition: Typed, positions: Mapping[int, int]) -> Typed:
    return transformed(
        condition, lambda node: replace(node, index=positions[node.index]) if isinstance(node, Field) else node
    )
