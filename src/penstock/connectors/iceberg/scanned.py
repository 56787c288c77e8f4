"""The snapshots and columns that a source reads, and the splits for its readers."""

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
#: The fields of a file that a reader needs; the others are for planning.
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
    """The starting point of a source that follows a table."""

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
    """A column of the table, with its name and type in the output."""

    name: str
    output: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Scanned:
    """See the methods of `IcebergSourceBuilder`.

    Attributes:
        loader: loads the table.
        columns: the columns of the output.
        row_filter: a condition as pyiceberg's text or expression; None for all rows.
        limit: the maximum number of rows per reader; None for all.
        snapshot_id: the snapshot to read, if set.
        as_of_ms: read the snapshot that was current at this time, if set.
        ref: otherwise read the snapshot of this branch or tag. A source that follows the table follows this branch.
        follows: whether to continue with appended rows.
        strategy: where to start following.
        start_snapshot_id: the first snapshot, for the strategy that needs it.
        start_ms: the earliest time of the first snapshot, for the strategy that needs it.
        interval_ms: how often to look for new snapshots.
        skips_overwrites: whether a source that follows the table skips snapshots that replace rows.
        skips_deletes: whether it skips snapshots that remove rows.
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
    """A data file with its delete files, read up to a position.

    Attributes:
        order: the sequence number of the snapshot, and the index of the file in it.
        schema_id: the schema of the table under which the file is read.
        file: the data file as plain values.
        spec_id: the id of its partition spec.
        deletes: the position and equality delete files: the partition spec id and plain values of each.
        row_filter: only rows that match this condition are counted and emitted.
        position: the number of these rows already emitted.
    """

    order: tuple[int, int]
    schema_id: int
    file: StoredFile
    spec_id: int
    deletes: tuple[tuple[int, StoredFile], ...] = ()
    row_filter: Any = None
    position: int = 0

    def task(self) -> FileScanTask:
        """Return the split as a scan task of pyiceberg."""
        from pyiceberg.table import FileScanTask

        deletes = {restored(values, spec_id) for spec_id, values in self.deletes if values["content"] != EQUALITY}
        return FileScanTask(restored(self.file, self.spec_id), deletes)

    @property
    def equality_deletes(self) -> tuple[tuple[int, StoredFile], ...]:
        """The equality delete files."""
        return tuple(entry for entry in self.deletes if entry[1]["content"] == EQUALITY)


def build_splits(
    tasks: Iterable[FileScanTask],
    sequence: int,
    schema_id: int,
    row_filter: Any,
    equality_deletes: EqualityDeletes | None = None,
) -> list[IcebergSplit]:
    """Return the splits of pyiceberg's scan tasks, ordered by file name."""
    ordered = sorted(tasks, key=lambda task: task.file.file_path)
    return [
        IcebergSplit(
            (sequence, index),
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
        for index, task in enumerate(ordered)
    ]


def _needed(values: Mapping[str, Any]) -> StoredFile:
    return {name: values[name] for name in _NEEDED if name in values}


def _path(file: Any) -> str:
    return str(file.file_path)
