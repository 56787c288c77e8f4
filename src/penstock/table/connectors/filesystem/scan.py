"""A table of files that is to be read, with its abilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.connectors.file.filesystem import join, list_files
from penstock.table.connectors.abilities import (
    LimitPushDown,
    Partition,
    PartitionPushDown,
    ProjectionPushDown,
    TableScan,
)
from penstock.table.connectors.filesystem.partitions import directory_of, values_in
from penstock.table.connectors.filesystem.source import OutputColumn, TableFilesSource
from penstock.table.connectors.formats.format import TableFormat
from penstock.table.connectors.table_options import TableOptions
from penstock.table.connectors.tables import TableLocation, TableReader
from penstock.table.data.errors import ValidationError
from penstock.table.plan.row_schema import RowSchema


@dataclass(frozen=True, slots=True)
class FilesScan(TableScan, ProjectionPushDown, LimitPushDown, PartitionPushDown):
    """Reads some columns, some partitions, and stops early.

    Attributes:
        title: the table.
        path: where the files are.
        format: reads them.
        options: those of the format.
        stored: the columns that are in files, in order.
        columns: those that are wanted.
        partition_keys: the columns by which there are directories.
        default_name: the name of the partition of NULL.
        pattern: what the path of a file must match; None for any.
        interval_ms: how often to look for new files; None to look once.
        only: the directories of the partitions that are wanted; None for all.
        limit: how many rows are enough; None for all.
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
    only: tuple[str, ...] | None = None
    limit: int | None = None

    def reader(self) -> TableReader:
        """See `TableScan`."""
        names = self.stored.names
        wanted = [names.index(one.name) for one in self.columns if not one.is_partition and one.metadata is None]
        if not wanted and names:
            wanted = [0]  # to know how many rows there are
        options = TableOptions(self.title, dict(self.options))
        decoding = self.format.decoding(self.stored, wanted, options)
        paths = (self.path,) if self.only is None else tuple(join(self.path, one) for one in self.only)
        source = TableFilesSource(
            decoding.files,
            self.columns,
            paths,
            pattern=self.pattern,
            default_name=self.default_name,
            interval_ms=self.interval_ms,
            limit=self.limit,
        )
        return TableReader(source, location=self._location())

    def with_columns(self, columns: Sequence[int]) -> FilesScan:
        """See `ProjectionPushDown`."""
        return replace(self, columns=tuple(self.columns[place] for place in columns))

    def with_limit(self, limit: int) -> FilesScan:
        """See `LimitPushDown`."""
        return replace(self, limit=limit if self.limit is None else min(limit, self.limit))

    def partitions(self) -> list[Partition] | None:
        """See `PartitionPushDown`. Not known while files are watched for."""
        if not self.partition_keys or self.interval_ms is not None:
            return None
        found: dict[str, Partition] = {}
        for file in list_files(self.path):
            values = values_in(file.path, self.partition_keys, self.default_name)
            found[directory_of(values, self.partition_keys, self.default_name)] = values
        return [found[one] for one in sorted(found) if self.only is None or one in self.only]

    def with_partitions(self, partitions: Sequence[Partition]) -> FilesScan:
        """See `PartitionPushDown`. Raises `ValidationError` for partitions of other columns."""
        for one in partitions:
            if set(one) != set(self.partition_keys):
                raise ValidationError(
                    f"a partition of table {self.title} has values of {', '.join(self.partition_keys)}, "
                    f"not of {', '.join(one)}"
                )
        return replace(
            self, only=tuple(directory_of(one, self.partition_keys, self.default_name) for one in partitions)
        )

    def _location(self) -> TableLocation:
        is_plain = self.pattern is None and self.limit is None and all(one.metadata is None for one in self.columns)
        return TableLocation(self.path, self.format.name, self.options, self.partition_keys, self.only, is_plain)
