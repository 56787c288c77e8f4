"""Data files as plain values for checkpoints: a savepoint must not depend on the classes of one pyiceberg version.

Writes rows as data files with pyiceberg's own writer: partitioned, with field ids and column metrics.

Equality deletes: a file holds values of some columns, and every older row with these values is deleted.

Flink's sink writes such files for changes by key. pyiceberg does not read them, so it plans scans without them, and the
deleted rows are filtered out here. A delete file applies to data files with a smaller sequence number, in its own
partition, or in the whole table if it has no partition.
"""

from __future__ import annotations

import itertools
import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.connectors.base import has_key

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile, ManifestEntry
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


#: the fields of a data file, by their names in the Iceberg specification
StoredFile = dict[str, Any]


def stored(file: DataFile) -> StoredFile:
    """Convert a data file to plain values."""
    from pyiceberg.manifest import DATA_FILE_TYPE

    names = [field.name for field in DATA_FILE_TYPE[2].fields]
    values: StoredFile = {name: file[index] for index, name in enumerate(names) if file[index] is not None}
    values["content"] = int(file.content)
    values["file_format"] = file.file_format.value
    values["partition"] = tuple(file.partition[index] for index in range(len(file.partition)))
    return values


def restored(values: StoredFile, spec_id: int) -> DataFile:
    """Convert plain values to a data file that is partitioned by the spec with this id."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    file = DataFile.from_args(
        **{
            **values,
            "content": DataFileContent(values["content"]),
            "file_format": FileFormat(values["file_format"]),
            "partition": Record(*values["partition"]),
        }
    )
    file.spec_id = spec_id
    return file


LOG = logging.getLogger("penstock.connectors.iceberg")


class FileWriting:
    """Writes data files of a table, under unique names."""

    def __init__(self, metadata: TableMetadata, io: FileIO) -> None:
        self._metadata = metadata
        self._io = io
        self._uuid = uuid.uuid4()
        self._counter = itertools.count()

    def write(self, rows: pa.Table) -> list[DataFile]:
        """Write rows to data files: one per partition, unless it would exceed the table's target size."""
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        if not rows.num_rows:
            return []
        files = list(
            _dataframe_to_data_files(
                table_metadata=self._metadata, df=rows, io=self._io, write_uuid=self._uuid, counter=self._counter
            )
        )
        for file in files:
            file.spec_id = self._metadata.default_spec_id
        return files


def remove(io: FileIO, paths: Iterable[str]) -> None:
    """Remove files that are not in the table, as far as possible."""
    for path in paths:
        try:
            io.delete(path)
        except Exception as error:  # noqa: BLE001 - what stays is an orphan, which does no harm
            LOG.warning("%s is not in the table and could not be removed: %s", path, error)


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
