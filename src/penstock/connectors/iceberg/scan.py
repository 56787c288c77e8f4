"""The scan of an Iceberg table: its columns and splits, and the snapshots and files to read, from the table's metadata.

A table is followed along the ancestors of its branch: each snapshot after the last one that was read, once. A snapshot
that appends contributes its files. One that only rearranges rows (a compaction) contributes nothing. One that replaces
or removes rows cannot be expressed as appended rows, so it fails the job unless an option skips it.

A table that cannot be read is rejected with an error that names the columns or files at fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from penstock.base.errors import ConfigurationError, OperationError, UnsupportedError
from penstock.connectors.iceberg import data_files
from penstock.connectors.iceberg.tables import MAIN, TableLoader

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


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
        keeps_schema: whether a snapshot that is read by its id is read under the table's schema, not its own.
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
    keeps_schema: bool = False


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
    file: data_files.StoredFile
    spec_id: int
    deletes: tuple[tuple[int, data_files.StoredFile], ...] = ()
    row_filter: Any = None
    position: int = 0

    def task(self) -> FileScanTask:
        """Return the split as a scan task of pyiceberg."""
        from pyiceberg.table import FileScanTask

        deletes = {
            data_files.restored(values, spec_id)
            for spec_id, values in self.deletes
            if values["content"] != data_files.EQUALITY
        }
        return FileScanTask(data_files.restored(self.file, self.spec_id), deletes)

    @property
    def equality_deletes(self) -> tuple[tuple[int, data_files.StoredFile], ...]:
        """The equality delete files."""
        return tuple(entry for entry in self.deletes if entry[1]["content"] == data_files.EQUALITY)


def build_splits(
    tasks: Iterable[FileScanTask],
    sequence: int,
    schema_id: int,
    row_filter: Any,
    equality_deletes: data_files.EqualityDeletes | None = None,
) -> list[IcebergSplit]:
    """Return the splits of pyiceberg's scan tasks, ordered by file name."""
    ordered = sorted(tasks, key=lambda task: task.file.file_path)
    return [
        IcebergSplit(
            (sequence, index),
            schema_id,
            _needed(data_files.stored(task.file)),
            task.file.spec_id,
            tuple(
                (file.spec_id, _needed(data_files.stored(file)))
                for file in [
                    *sorted(task.delete_files, key=_path),
                    *(() if equality_deletes is None else equality_deletes.of(task.file)),
                ]
            ),
            row_filter,
        )
        for index, task in enumerate(ordered)
    ]


def _needed(values: Mapping[str, Any]) -> data_files.StoredFile:
    return {name: values[name] for name in _NEEDED if name in values}


def _path(file: Any) -> str:
    return str(file.file_path)


def check_columns(scanned: Scanned, schema: Schema) -> None:
    """Raise `ConfigurationError` unless a table has the columns, with compatible types."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    table_schema = schema_to_pyarrow(schema, include_field_ids=False)
    missing = [column.name for column in scanned.columns if column.name not in table_schema.names]
    if missing:
        raise ConfigurationError(
            f"table {scanned.loader.title} has no column {', '.join(map(repr, missing))}; there are "
            f"{', '.join(table_schema.names)}"
        )
    for column in scanned.columns:
        kind = table_schema.field(column.name).type
        if not data_files.is_readable(kind, column.type):
            raise ConfigurationError(
                f"column '{column.name}' of table {scanned.loader.title} cannot be read as {column.type}. It is "
                f"{data_files.describe(kind)}"
            )


def refuse_formats(title: str, files: Iterable[DataFile]) -> None:
    """Raise `UnsupportedError` for data files in a format that pyiceberg does not read."""
    from pyiceberg.manifest import FileFormat

    for file in files:
        if file.file_format not in (FileFormat.PARQUET, FileFormat.ORC):
            raise UnsupportedError(
                f"table {title} has files in {file.file_format.value}, which pyiceberg does not "
                f"read, such as {file.file_path}: rewrite them as Parquet (write.format.default = parquet)"
            )


def first_files(table: Table, snapshot: Snapshot) -> Iterator[DataFile]:
    """Yield the files of the first data manifest. A job checks all files when it lists them."""
    from pyiceberg.manifest import ManifestContent

    for manifest in snapshot.manifests(table.io):
        if manifest.content == ManifestContent.DATA:
            yield from (entry.data_file for entry in manifest.fetch_manifest_entry(table.io))
            return


class Followed(NamedTuple):
    """New splits of a followed table, and the last snapshot that they cover."""

    splits: list[IcebergSplit]
    last: int | None


def scan(table: Table, scanned: Scanned) -> list[IcebergSplit]:
    """Return the splits of one snapshot, under its own schema if it is an older one, else under the table's."""
    snapshot = _chosen(table, scanned)
    if snapshot is None:
        return []
    return _scan(table, scanned, snapshot, snapshot.schema_id if _reads_older(table, scanned) else None)


def _scan(table: Table, scanned: Scanned, snapshot: Snapshot, schema_id: int | None = None) -> list[IcebergSplit]:
    table_scan = table.scan(
        row_filter=_condition(scanned),
        selected_fields=tuple(column.name for column in scanned.columns),
        snapshot_id=snapshot.snapshot_id,
    )
    schema_id = table.schema().schema_id if schema_id is None else schema_id
    title = scanned.loader.title
    if not data_files.has_equality_deletes(table, snapshot):
        files = list(table_scan.plan_files())
        refuse_formats(title, (task.file for task in files))
        return build_splits(files, snapshot.sequence_number or 0, schema_id, scanned.row_filter)
    deletes = data_files.EqualityDeletes()
    files = list(table_scan._manifest_planner.plan_files(snapshot.manifests(table.io), deletes.take))
    refuse_formats(title, [*(task.file for task in files), *deletes.files()])
    return build_splits(files, snapshot.sequence_number or 0, schema_id, scanned.row_filter, deletes)


def check_before_reading(scanned: Scanned) -> None:
    """Check a table against its declaration while a statement is planned. A missing table is left to the job.

    Raises:
        ConfigurationError: for missing or incompatible columns, or a missing snapshot.
        UnsupportedError: for files or types that cannot be read.
    """

    def check(table: Table) -> None:
        snapshot = _head(table.metadata, scanned) if scanned.follows else _chosen(table, scanned)
        check_columns(scanned, _schema(table, scanned, snapshot))
        if snapshot is not None and _reads_whole(scanned):
            refuse_formats(scanned.loader.title, first_files(table, snapshot))

    scanned.loader.check_while_planning(check)


def _reads_whole(scanned: Scanned) -> bool:
    return not scanned.follows or scanned.strategy is StreamingStartingStrategy.TABLE_SCAN_THEN_INCREMENTAL


def _schema(table: Table, scanned: Scanned, snapshot: Snapshot | None) -> Schema:
    is_older = not scanned.follows and _reads_older(table, scanned)
    if snapshot is None or snapshot.schema_id is None or not is_older:
        return table.schema()
    return table.schemas()[snapshot.schema_id]


def _reads_older(table: Table, scanned: Scanned) -> bool:
    """Return whether a snapshot is read under its own schema."""
    ref = table.metadata.refs.get(scanned.ref)
    if scanned.keeps_schema:
        return False
    is_fixed = scanned.snapshot_id is not None or scanned.as_of_ms is not None
    return is_fixed or (ref is not None and ref.snapshot_ref_type.value == "tag")


def _condition(scanned: Scanned) -> Any:
    from pyiceberg.expressions import AlwaysTrue

    return AlwaysTrue() if scanned.row_filter is None else scanned.row_filter


def _chosen(table: Table, scanned: Scanned) -> Snapshot | None:
    """Return the snapshot to read; None for an empty table."""
    title = scanned.loader.title
    if scanned.snapshot_id is not None:
        snapshot = table.snapshot_by_id(scanned.snapshot_id)
        if snapshot is None:
            raise ConfigurationError(f"table {title} has no snapshot {scanned.snapshot_id}: it may have expired")
        return snapshot
    if scanned.as_of_ms is not None:
        snapshot = table.snapshot_as_of_timestamp(scanned.as_of_ms)
        if snapshot is None:
            raise ConfigurationError(f"table {title} has no snapshot at or before {scanned.as_of_ms} (ms)")
        return snapshot
    return _head(table.metadata, scanned)


def _head(metadata: TableMetadata, scanned: Scanned) -> Snapshot | None:
    snapshot = metadata.snapshot_by_name(scanned.ref)
    if snapshot is None and scanned.ref != "main":
        known = ", ".join(sorted(metadata.refs)) or "none"
        raise ConfigurationError(
            f"table {scanned.loader.title} has no branch or tag {scanned.ref!r}; there are {known}"
        )
    return snapshot


def begin(table: Table, scanned: Scanned) -> Followed:
    """Return the first splits of a followed table.

    Raises:
        ConfigurationError: if the starting snapshot does not exist.
        OperationError: as `follow`.
    """
    head = _head(table.metadata, scanned)
    if scanned.strategy is StreamingStartingStrategy.TABLE_SCAN_THEN_INCREMENTAL:
        return Followed([], None) if head is None else Followed(_scan(table, scanned, head), head.snapshot_id)
    if head is None:
        return Followed([], None)
    return follow(table, scanned, _before_first(table.metadata, scanned, head))


def _before_first(metadata: TableMetadata, scanned: Scanned, head: Snapshot) -> int | None:
    """Return the id of the snapshot before the first one to follow."""
    strategies, title = StreamingStartingStrategy, scanned.loader.title
    ancestors = _ancestors(metadata, head)
    if scanned.strategy is strategies.INCREMENTAL_FROM_LATEST_SNAPSHOT:
        return head.parent_snapshot_id
    if scanned.strategy is strategies.INCREMENTAL_FROM_EARLIEST_SNAPSHOT:
        return ancestors[-1].parent_snapshot_id
    if scanned.strategy is strategies.INCREMENTAL_FROM_SNAPSHOT_ID:
        for ancestor in ancestors:
            if ancestor.snapshot_id == scanned.start_snapshot_id:
                return ancestor.parent_snapshot_id
        raise ConfigurationError(
            f"snapshot {scanned.start_snapshot_id}, from which table {title} is to be followed, is no ancestor of the "
            f"latest one of {scanned.ref!r} that is still known"
        )
    assert scanned.start_ms is not None
    later = [snapshot for snapshot in ancestors if snapshot.timestamp_ms >= scanned.start_ms]
    return later[-1].parent_snapshot_id if later else head.snapshot_id


def follow(table: Table, scanned: Scanned, last: int | None) -> Followed:
    """Return the splits added after snapshot `last`; None to start before the first snapshot.

    Raises:
        OperationError: if the snapshot is not an ancestor any more, or rows were replaced or removed since.
    """
    head = _head(table.metadata, scanned)
    if head is None:
        if last is None:
            return Followed([], None)
        raise _lost(scanned, last)
    splits: list[IcebergSplit] = []
    for snapshot in _after(table.metadata, scanned, head, last):
        if _appends(snapshot, scanned):
            appended = table.incremental_append_scan(
                row_filter=_condition(scanned),
                selected_fields=tuple(column.name for column in scanned.columns),
                from_snapshot_id_exclusive=snapshot.parent_snapshot_id,
                to_snapshot_id_inclusive=snapshot.snapshot_id,
            )
            schema_id = table.schema().schema_id
            files = list(appended.plan_files())
            refuse_formats(scanned.loader.title, (task.file for task in files))
            splits += build_splits(files, snapshot.sequence_number or 0, schema_id, scanned.row_filter)
    return Followed(splits, head.snapshot_id)


def _ancestors(metadata: TableMetadata, head: Snapshot) -> list[Snapshot]:
    """Return a snapshot and its ancestors that still exist, newest first."""
    ancestors = [head]
    while (parent := ancestors[-1].parent_snapshot_id) is not None:
        snapshot = metadata.snapshot_by_id(parent)
        if snapshot is None:
            break
        ancestors.append(snapshot)
    return ancestors


def _after(metadata: TableMetadata, scanned: Scanned, head: Snapshot, last: int | None) -> Sequence[Snapshot]:
    """Return the snapshots after `last`, oldest first."""
    if head.snapshot_id == last:
        return []
    snapshots = []
    for snapshot in _ancestors(metadata, head):
        snapshots.append(snapshot)
        if snapshot.parent_snapshot_id == last:
            return snapshots[::-1]
    raise _lost(scanned, last)


def _lost(scanned: Scanned, last: int | None) -> OperationError:
    subject = "its first snapshot" if last is None else f"snapshot {last}, up to which it was read,"
    return OperationError(
        f"table {scanned.loader.title} cannot be followed: {subject} is no ancestor of the latest one of "
        f"{scanned.ref!r} that is still known. It has expired meanwhile, or the table was rolled back. Keep snapshots "
        "for longer than the job may stand still, and start the job anew with a starting strategy"
    )


def _appends(snapshot: Snapshot, scanned: Scanned) -> bool:
    operation = "append" if snapshot.summary is None else snapshot.summary.operation.value
    if operation == "append":
        return True
    if operation == "replace":
        return False
    is_skipped = scanned.skips_overwrites if operation == "overwrite" else scanned.skips_deletes
    if is_skipped:
        return False
    setter = "skip_overwrite_snapshots" if operation == "overwrite" else "skip_delete_snapshots"
    raise OperationError(
        f"snapshot {snapshot.snapshot_id} of table {scanned.loader.title} is of the kind {operation!r}: it replaces or "
        f"removes rows, which cannot be followed as rows that are appended. Pass over such snapshots with "
        f"{setter}(True) (in SQL 'streaming-{setter.replace('_', '-')}' = 'true'), or start anew from a scan of the "
        "table"
    )
