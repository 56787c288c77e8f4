"""What a source reads: which snapshots, which columns, and the parts that readers read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.connectors.iceberg.catalog import TableLoader
from penstock.connectors.iceberg.data_files import StoredFile, restored, stored
from penstock.connectors.iceberg.equality_deletes import EQUALITY, EqualityDeletes
from penstock.connectors.iceberg.settings import MAIN

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask

INTERVAL_MS: Final = 60_000
#: What a reader has to know of a file; the rest is for planning.
_NEEDED: Final = (
    "content",
    "file_path",
    "file_format",
    "partition",
    "record_count",
    "file_size_in_bytes",
    "equality_ids",
)


class StreamingStartingStrategy(Enum):
    """Where a source that follows a table begins."""

    TABLE_SCAN_THEN_INCREMENTAL = "TABLE_SCAN_THEN_INCREMENTAL"
    """The rows that are there, and then what is appended."""

    INCREMENTAL_FROM_LATEST_SNAPSHOT = "INCREMENTAL_FROM_LATEST_SNAPSHOT"
    """What the latest snapshot appends, and those after it."""

    INCREMENTAL_FROM_EARLIEST_SNAPSHOT = "INCREMENTAL_FROM_EARLIEST_SNAPSHOT"
    """What the earliest snapshot appends that is still known, and those after it."""

    INCREMENTAL_FROM_SNAPSHOT_ID = "INCREMENTAL_FROM_SNAPSHOT_ID"
    """What a snapshot appends, and those after it."""

    INCREMENTAL_FROM_SNAPSHOT_TIMESTAMP = "INCREMENTAL_FROM_SNAPSHOT_TIMESTAMP"
    """What the first snapshot at or after a time appends, and those after it."""


@dataclass(frozen=True, slots=True)
class ScannedColumn:
    """A column of the table, its name in the output, and its type there."""

    name: str
    output: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Scanned:
    """See the methods of `IcebergSourceBuilder`.

    Attributes:
        loader: the table.
        columns: of the output.
        row_filter: a condition in the syntax of pyiceberg, or its expression; None for all rows.
        limit: how many rows of each reader are enough; None for all.
        snapshot_id: which snapshot is read, if that is said.
        as_of_ms: or that of which time.
        ref: or that of which branch or tag. A source that follows the table follows this branch.
        follows: whether it goes on with what is appended.
        strategy: where it begins then.
        start_snapshot_id: for a strategy that needs it.
        start_ms: the same.
        interval_ms: how often to look for new snapshots.
        skips_overwrites: whether snapshots that replace rows are passed over when they are followed.
        skips_deletes: whether those that remove rows are.
    """

    loader: TableLoader
    columns: tuple[ScannedColumn, ...]
    row_filter: Any = None
    limit: int | None = None
    snapshot_id: int | None = None
    as_of_ms: int | None = None
    ref: str = MAIN
    follows: bool = False
    strategy: StreamingStartingStrategy = StreamingStartingStrategy.INCREMENTAL_FROM_LATEST_SNAPSHOT
    start_snapshot_id: int | None = None
    start_ms: int | None = None
    interval_ms: int = INTERVAL_MS
    skips_overwrites: bool = False
    skips_deletes: bool = False


@dataclass(frozen=True, slots=True)
class IcebergSplit:
    """A data file, with the files that say which of its rows are deleted, read up to a position.

    Attributes:
        order: the sequence number of the snapshot, and the place among its files.
        schema_id: the schema of the table under which it is read.
        file: as plain values.
        spec_id: of its partitioning.
        deletes: of files of deletions, by position or by equality: the partitioning, and plain values.
        row_filter: only rows for which it is true are counted and given.
        position: how many of these have been given.
    """

    order: tuple[int, int]
    schema_id: int
    file: StoredFile
    spec_id: int
    deletes: tuple[tuple[int, StoredFile], ...] = ()
    row_filter: Any = None
    position: int = 0

    def task(self) -> FileScanTask:
        """As pyiceberg reads it."""
        from pyiceberg.table import FileScanTask

        deletes = {restored(values, spec_id) for spec_id, values in self.deletes if values["content"] != EQUALITY}
        return FileScanTask(restored(self.file, self.spec_id), deletes)

    @property
    def equality_deletes(self) -> tuple[tuple[int, StoredFile], ...]:
        """The files of deletions by equality."""
        return tuple(one for one in self.deletes if one[1]["content"] == EQUALITY)


def splits_of(
    tasks: Iterable[FileScanTask],
    sequence: int,
    schema_id: int,
    row_filter: Any,
    equality_deletes: EqualityDeletes | None = None,
) -> list[IcebergSplit]:
    """The splits of what pyiceberg has planned, in the order of their files' names."""
    found = sorted(tasks, key=lambda task: task.file.file_path)
    return [
        IcebergSplit(
            (sequence, place),
            schema_id,
            _needed(stored(task.file)),
            task.file.spec_id,
            tuple(
                (file.spec_id, _needed(stored(file)))
                for file in [
                    *sorted(task.delete_files, key=_path),
                    *(() if equality_deletes is None else equality_deletes.of(task.file)),
                ]
            ),
            row_filter,
        )
        for place, task in enumerate(found)
    ]


def _needed(values: Mapping[str, Any]) -> StoredFile:
    return {name: values[name] for name in _NEEDED if name in values}


def _path(file: Any) -> str:
    return str(file.file_path)
