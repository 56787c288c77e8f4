"""`IcebergSink`: writes records to an Iceberg table exactly once, with one snapshot per checkpoint.

Before a checkpoint completes, `AppendWriter` buffers the rows of a subtask and writes them to data files.
`ChangesWriter` buffers changes and hands over the last change of each key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.base.types import Row
from penstock.codecs.column_data import ColumnData
from penstock.connectors.base import is_gone, last_of_each
from penstock.connectors.iceberg.committer import IcebergCommitter, Naming, Staged, StagedChanges, StagedFiles
from penstock.connectors.iceberg.data_files import FileWriting, StoredFile, conformed, record_columns, remove, stored
from penstock.connectors.iceberg.replacement import KIND
from penstock.connectors.iceberg.tables import (
    RETENTION_MS,
    TARGET_BYTES,
    DeclaredTable,
    SinkSettings,
    TableLoader,
    arrow_schema,
    loaded,
    partition_transform,
    require_library,
)
from penstock.runtime.connector import Committer, RecordError, Sink, SinkWriter, SinkWriterContext

if TYPE_CHECKING:
    from pyiceberg.table import Table


class _Writer(SinkWriter[Any, Staged]):
    """Converts records to columns of the table."""

    def __init__(self, settings: SinkSettings, context: SinkWriterContext) -> None:
        self.settings = settings
        self.naming = Naming(context)
        self.catalog = settings.loader.catalog.load_catalog()
        self.table: Table = (
            loaded(settings.loader, self.catalog, settings.declared, settings.creates, settings.evolves)
            if settings.new is None
            else settings.new.open(settings.loader, self.catalog)
        )
        self.schema = arrow_schema(self.table)
        declared = settings.declared
        # Records without names have their fields in the order of the declaration.
        self._columns_of = record_columns(self.schema if declared is None else declared.stored_schema())

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        if values:
            self.add(self._columns_of(values), _get_row_kinds(values))

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self.add(data.columns, None)

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self.add(data.columns, kinds)

    def add(self, columns: pa.RecordBatch, kinds: bytes | None) -> None:
        """Add rows."""
        raise NotImplementedError

    def conformed(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        """Return rows in the table's types and order."""
        columns = pa.Table.from_batches(batches)
        unknown = [name for name in columns.schema.names if name not in self.schema.names]
        if unknown:
            raise UnsupportedError(
                f"table {self.settings.loader.title} has no column {', '.join(map(repr, unknown))}, which the records "
                "have: add it to the table, or declare it and let the sink do so by schema_evolution(True)"
            )
        return conformed(columns, self.schema, self.settings.loader.title)

    def close(self) -> None:
        """See `SinkWriter`."""
        self.catalog.close()


def _get_row_kinds(values: Sequence[Any]) -> bytes | None:
    """Return the row kind of each record; None if all are inserts, as records other than rows always are."""
    if not any(type(value) is Row for value in values):
        return None
    kinds = bytes(value.get_row_kind().value if type(value) is Row else 0 for value in values)
    return kinds if any(kinds) else None


class AppendWriter(_Writer):
    """Buffers rows, and writes them when there are enough for a file or a checkpoint comes."""

    def __init__(self, settings: SinkSettings, context: SinkWriterContext) -> None:
        super().__init__(settings, context)
        self._writing = FileWriting(self.table.metadata, self.table.io)
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._files: list[StoredFile] = []
        self._replaces_all = False

    def add(self, columns: pa.RecordBatch, kinds: bytes | None) -> None:
        """See `_Writer`."""
        if kinds is not None and any(kinds):
            index = next(position for position, kind in enumerate(kinds) if kind)
            row = columns.slice(index, 1).to_pylist()[0]
            raise RecordError(row, "the sink") from UnsupportedError(
                f"the sink of table {self.settings.loader.title} only adds rows, but this is a change of a table that "
                "is no insert: say by equality_field_columns() (in SQL by a PRIMARY KEY) which columns tell rows apart"
            )
        if self._held and not self._held[0].schema.equals(columns.schema):
            self._write()
        self._held.append(columns)
        self._held_bytes += columns.nbytes
        if self._held_bytes >= self.settings.target_bytes:
            self._write()

    def _write(self) -> None:
        batches, self._held, self._held_bytes = self._held, [], 0
        if batches:
            self._files += map(stored, self._writing.write(self.conformed(batches)))

    def flush(self, end_of_input: bool) -> None:
        """See `SinkWriter`. Without any row, a batch that replaces all rows leaves an unpartitioned table empty."""
        self._write()
        self._replaces_all = end_of_input and self.settings.overwrites and self.table.spec().is_unpartitioned()

    def prepare_commit(self) -> list[Staged]:
        """See `SinkWriter`."""
        self._write()
        if not self._files and not self._replaces_all:
            return []
        files, self._files = self._files, []
        return [StagedFiles(self.naming.next(), self.table.metadata.default_spec_id, tuple(files))]

    def close(self) -> None:
        """Remove the files that were not prepared for commit."""
        remove(self.table.io, [file["file_path"] for file in self._files])
        super().close()


class ChangesWriter(_Writer):
    """Buffers the changes of rows until a checkpoint comes, which gets the last one of each key."""

    def __init__(self, settings: SinkSettings, context: SinkWriterContext) -> None:
        super().__init__(settings, context)
        self._held: list[pa.Table] = []

    def add(self, columns: pa.RecordBatch, kinds: bytes | None) -> None:
        """See `_Writer`."""
        does = np.zeros(columns.num_rows, np.uint8) if kinds is None else np.frombuffer(kinds, np.uint8)
        # A deletion by key has NULL in required columns.
        self._held.append(pa.Table.from_batches([columns]).append_column(KIND, pa.array(is_gone(does), pa.bool_())))

    def prepare_commit(self) -> list[Staged]:
        """See `SinkWriter`."""
        if not self._held:
            return []
        tables, self._held = self._held, []
        changes = pa.concat_tables(tables, promote_options="default").combine_chunks()
        last = changes.take(last_of_each(changes, self.settings.equality))
        upserts = last.filter(pa.compute.invert(last.column(KIND))).drop_columns([KIND])
        self.conformed(upserts.to_batches() or [pa.RecordBatch.from_pylist([], schema=upserts.schema)])  # fail early
        return [StagedChanges.of(self.naming.next(), last)]


class RowChangesWriter(_Writer):
    """Buffers changes of rows by value until the end of a batch."""

    def __init__(self, settings: SinkSettings, context: SinkWriterContext) -> None:
        super().__init__(settings, context)
        self._held: list[pa.RecordBatch] = []

    def add(self, columns: pa.RecordBatch, kinds: bytes | None) -> None:
        """See `_Writer`."""
        self._held.append(columns)

    def prepare_commit(self) -> list[Staged]:
        """See `SinkWriter`."""
        if not self._held:
            return []
        batches, self._held = self._held, []
        return [StagedChanges.of(self.naming.next(), pa.Table.from_batches(batches))]


class IcebergSink(Sink[Any]):
    """Writes rows, or changes by key, to a table; created with `for_row`.

    Readers see the data of a checkpoint when it completes, in one snapshot for all subtasks. In a batch that is at its
    end. `penstock.connectors.iceberg.committer` explains why each row is written once.
    """

    commits_globally = True

    def __init__(self, settings: SinkSettings) -> None:
        self.settings = settings
        self.commits_without_rows = settings.new is not None or settings.overwrites

    @staticmethod
    def for_row(schema: pa.Schema | None = None) -> IcebergSinkBuilder:
        """Return a builder of a sink for named rows, dicts, tuples, or Arrow columns.

        Args:
            schema: the columns, for records without names, and for a table that the sink creates or adds columns to.
                None to use the columns of the table.
        """
        return IcebergSinkBuilder(schema)

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Staged]:
        """See `Sink`."""
        if self.settings.changes:
            return RowChangesWriter(self.settings, context)
        make = ChangesWriter if self.settings.equality else AppendWriter
        return make(self.settings, context)

    def create_committer(self, context: SinkWriterContext) -> Committer[Any]:
        """See `Sink`."""
        return IcebergCommitter(self.settings, context)


class IcebergSinkBuilder:
    """Builder for `IcebergSink`."""

    def __init__(self, schema: pa.Schema | None) -> None:
        self._schema = schema
        self._loader: TableLoader | None = None
        self._equality: tuple[str, ...] = ()
        self._upserts = self._overwrites = self._creates = self._evolves = False
        self._partitioning: tuple[str, ...] = ()
        self._table_properties: dict[str, str] = {}
        self._summary: dict[str, str] = {}
        self._branch = "main"
        self._target_bytes, self._retention_ms = TARGET_BYTES, RETENTION_MS

    def table_loader(self, loader: TableLoader) -> IcebergSinkBuilder:
        """Set the table; every process loads it itself."""
        self._loader = loader
        return self

    def equality_field_columns(self, *columns: str) -> IcebergSinkBuilder:
        """Set the key columns: the records are then changes, and the last one of each key counts.

        All changes of a key must reach the same subtask, so key the stream by these columns. The sink rewrites the data
        files that contain changed keys (copy on write).
        """
        self._equality = columns
        return self

    def upsert(self, enabled: bool) -> IcebergSinkBuilder:
        """Set whether inserts replace rows with the same key. Requires equality fields, which always imply it."""
        self._upserts = enabled
        return self

    def overwrite(self, new_overwrite: bool) -> IcebergSinkBuilder:
        """Set whether the rows of a batch replace the partitions that they belong to, or the whole table."""
        self._overwrites = new_overwrite
        return self

    def to_branch(self, branch: str) -> IcebergSinkBuilder:
        """Set the branch; `main` by default. A new branch starts empty."""
        self._branch = branch
        return self

    def create_table(self, *partitioning: str, properties: Mapping[str, str] | None = None) -> IcebergSinkBuilder:
        """Create the table and its namespace if they are missing.

        Args:
            partitioning: `column`, `day(column)`, `bucket(16, column)`, `truncate(8, column)` and so on.
            properties: the properties of a new table.
        """
        self._creates = True
        self._partitioning = partitioning
        self._table_properties = dict(properties or {})
        return self

    def schema_evolution(self, enabled: bool) -> IcebergSinkBuilder:
        """Set whether to add missing columns to the table; otherwise they are an error."""
        self._evolves = enabled
        return self

    def target_file_size(self, size_bytes: int) -> IcebergSinkBuilder:
        """Write a file before the checkpoint when a subtask buffers this many bytes of rows; 128 MiB by default."""
        self._target_bytes = size_bytes
        return self

    def ledger_retention(self, time_ms: int) -> IcebergSinkBuilder:
        """Set the minimum time (ms) that the table remembers commits; 30 days by default.

        It must exceed the age of savepoints.
        """
        self._retention_ms = time_ms
        return self

    def set_snapshot_property(self, name: str, value: str) -> IcebergSinkBuilder:
        """Add an entry to the summary of each snapshot."""
        self._summary[name] = value
        return self

    def build(self) -> IcebergSink:
        """Build the sink.

        Raises:
            ConfigurationError: if settings are missing or conflict, or pyiceberg is not installed.
        """
        require_library()
        if self._loader is None:
            raise ConfigurationError("an IcebergSink needs table_loader()")
        if self._upserts and not self._equality:
            raise ConfigurationError("upsert(True) needs equality_field_columns(): which columns tell rows apart?")
        if self._overwrites and self._equality:
            raise ConfigurationError("overwrite(True) and equality_field_columns() cannot be set together")
        if self._target_bytes < 1 or self._retention_ms < 0:
            raise ConfigurationError("target_file_size() is above 0, and ledger_retention() is not below it")
        if self._schema is None and (self._creates or self._evolves):
            raise ConfigurationError(
                "create_table() and schema_evolution(True) need the columns: give for_row() a pyarrow.Schema"
            )
        for text in self._partitioning:
            partition_transform(text)
        declared = None
        if self._schema is not None:
            unknown = [name for name in self._equality if name not in self._schema.names]
            if unknown:
                raise ConfigurationError(f"there is no column {', '.join(map(repr, unknown))} for the equality fields")
            properties = tuple(sorted(self._table_properties.items()))
            declared = DeclaredTable(self._schema, self._equality, self._partitioning, properties)
            declared.stored_schema()
        settings = SinkSettings(self._loader, declared)
        return IcebergSink(
            replace(
                settings,
                creates=self._creates,
                evolves=self._evolves,
                equality=self._equality,
                overwrites=self._overwrites,
                branch=self._branch,
                target_bytes=self._target_bytes,
                retention_ms=self._retention_ms,
                properties=tuple(sorted(self._summary.items())),
            )
        )
