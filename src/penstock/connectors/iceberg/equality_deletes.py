"""Equality deletes: a file holds values of some columns, and every older row with these values is deleted.

Flink's sink writes such files for changes by key. pyiceberg does not read them, so it plans scans without them, and the
deleted rows are filtered out here. A delete file applies to data files with a smaller sequence number, in its own
partition, or in the whole table if it has no partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.connectors.iceberg.data_files import StoredFile, restored
from penstock.connectors.last_changes import has_key

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestEntry
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

#: The content codes of data files and equality delete files in the specification.
DATA, EQUALITY = 0, 2


def has_equality_deletes(table: Table, snapshot: Snapshot) -> bool:
    """Return whether a snapshot has equality deletes, as Flink's sink writes them."""
    from pyiceberg.manifest import DataFileContent, ManifestContent

    count = None if snapshot.summary is None else snapshot.summary.get("total-equality-deletes")
    if count is not None:
        return int(count) > 0
    deletes = [manifest for manifest in snapshot.manifests(table.io) if manifest.content == ManifestContent.DELETES]
    return any(
        entry.data_file.content == DataFileContent.EQUALITY_DELETES
        for manifest in deletes
        for entry in manifest.fetch_manifest_entry(table.io)
    )


def refuse_equality_deletes(title: str, table: Table, snapshot: Snapshot | None) -> None:
    """Raise `UnsupportedError` if a snapshot whose rows are to be replaced by key has equality deletes."""
    if snapshot is not None and has_equality_deletes(table, snapshot):
        raise UnsupportedError(
            f"snapshot {snapshot.snapshot_id} of table {title} has rows that are deleted by equality, with which "
            "changes by key cannot be written: rewrite its files first (CALL … rewrite_data_files with "
            "'delete-file-threshold' = '1')"
        )


class EqualityDeletes:
    """Collects equality delete files while pyiceberg plans a scan, and hides them from it."""

    def __init__(self) -> None:
        self._sequences: dict[str, int] = {}
        self._deletes: list[tuple[int, DataFile]] = []

    def take(self, entry: ManifestEntry) -> bool:
        """Return whether pyiceberg plans with a manifest entry."""
        file, sequence = entry.data_file, entry.sequence_number or 0
        if int(file.content) == EQUALITY:
            self._deletes.append((sequence, file))
            return False
        if int(file.content) == DATA:
            self._sequences[file.file_path] = sequence
        return True

    def files(self) -> list[DataFile]:
        """Return all equality delete files."""
        return [file for _, file in self._deletes]

    def of(self, file: DataFile) -> list[DataFile]:
        """Return the delete files that apply to a data file, ordered by path."""
        sequence = self._sequences[file.file_path]
        matches = [
            deletes
            for number, deletes in self._deletes
            if number > sequence
            and (
                not len(deletes.partition) or (deletes.spec_id == file.spec_id and deletes.partition == file.partition)
            )
        ]
        return sorted(matches, key=lambda delete_file: str(delete_file.file_path))


class DeletedKeys(NamedTuple):
    """Column values that mark rows as deleted."""

    names: list[str]
    keys: pa.Table

    def keep(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that are not deleted."""
        table = _plain(pa.Table.from_batches([rows.select(self.names)]))
        return rows.filter(pc.invert(has_key(table, self.keys.cast(table.schema))))


def load_keys(table: Table, schema: Schema, deletes: Sequence[tuple[int, StoredFile]], title: str) -> list[DeletedKeys]:
    """Load the values in equality delete files, grouped by their columns.

    Args:
        table: the table of the files.
        schema: the schema under which rows are read.
        deletes: the partition spec id and the plain values of each file.
        title: the name of the table in errors.

    Raises:
        UnsupportedError: for columns that the schema does not have.
    """
    by_columns: dict[tuple[int, ...], list[pa.RecordBatch]] = {}
    for spec_id, file in deletes:
        ids = tuple(sorted(file["equality_ids"]))
        names = [_find_column_name(schema, number, title) for number in ids]
        by_columns.setdefault(ids, []).extend(_read(table, schema.select(*names), file, spec_id))
    deleted_keys = []
    for ids, batches in by_columns.items():
        names = [_find_column_name(schema, number, title) for number in ids]
        if batches:
            deleted_keys.append(DeletedKeys(names, _plain(pa.Table.from_batches(batches).select(names))))
    return deleted_keys


def _read(table: Table, schema: Schema, file: StoredFile, spec_id: int) -> Iterator[pa.RecordBatch]:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.table import FileScanTask

    task = FileScanTask(restored({**file, "content": DATA}, spec_id), set())
    scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
    yield from scan._record_batches_from_scan_tasks_and_deletes([task], {})


def _find_column_name(schema: Schema, field_id: int, title: str) -> str:
    name = schema.find_column_name(field_id)
    if name is None or "." in name:
        raise UnsupportedError(
            f"rows of table {title} are deleted by equality of the field {field_id}, which is no column of the table "
            "now: rewrite its files first (rewrite_data_files)"
        )
    return name


def _plain(table: pa.Table) -> pa.Table:
    """Replace extension types, which cannot be compared, by their storage types."""
    columns: list[Any] = [
        pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
        if isinstance(column.type, pa.BaseExtensionType)
        else column
        for column in table.itercolumns()
    ]
    return pa.table(columns, names=table.column_names)
