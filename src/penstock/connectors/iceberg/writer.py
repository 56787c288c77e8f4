"""Writers, which buffer and write the rows of a subtask before a checkpoint completes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.base.types import Row
from penstock.codecs.column_data import ColumnData
from penstock.connectors.iceberg.columns import conformed, record_columns
from penstock.connectors.iceberg.data_files import StoredFile, stored
from penstock.connectors.iceberg.ledger import Naming
from penstock.connectors.iceberg.settings import SinkSettings
from penstock.connectors.iceberg.staged import KIND, Staged, StagedChanges, StagedFiles
from penstock.connectors.iceberg.tables import arrow_schema, loaded
from penstock.connectors.iceberg.writing import FileWriting, remove
from penstock.connectors.last_changes import is_gone, last_of_each
from penstock.core.connector import RecordError, SinkWriter, SinkWriterContext

if TYPE_CHECKING:
    from pyiceberg.table import Table


class _Writer(SinkWriter[Any, Staged]):
    """Converts records to columns of the table."""

    def __init__(self, settings: SinkSettings, context: SinkWriterContext) -> None:
        self.settings = settings
        self.naming = Naming(context)
        self.catalog = settings.loader.catalog.load_catalog()
        self.table: Table = loaded(settings.loader, self.catalog, settings.declared, settings.creates, settings.evolves)
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
        """See `SinkWriter`."""
        self._write()

    def prepare_commit(self) -> list[Staged]:
        """See `SinkWriter`."""
        self._write()
        if not self._files:
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
