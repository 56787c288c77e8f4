"""Writes the rows of a table, or its changes by key, as columns."""

from __future__ import annotations

from typing import Any

from penstock.codecs.column_data import ColumnData
from penstock.connectors.iceberg.settings import SinkSettings
from penstock.connectors.iceberg.sink import IcebergSink
from penstock.connectors.iceberg.staged import Staged
from penstock.core.connector import SinkWriter, SinkWriterContext
from penstock.table.data.values import columns_of_changes
from penstock.table.plan.row_schema import RowSchema


class TableIcebergSink(IcebergSink):
    """Accepts rows as (kind, internal values), or columns by position."""

    def __init__(self, settings: SinkSettings, schema: RowSchema) -> None:
        super().__init__(settings)
        self._schema = schema

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Staged]:
        """See `Sink`."""
        return _TableWriter(super().create_writer(context), self._schema)


class _TableWriter(SinkWriter[Any, Staged]):
    """Renames columns to their names in the table."""

    def __init__(self, writer: SinkWriter[Any, Staged], schema: RowSchema) -> None:
        self._writer = writer
        self._schema = schema

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        if not values:
            return
        columns, kinds = columns_of_changes(values, self._schema.names, self._schema.types)
        self._writer.write_changes(ColumnData(columns), kinds, None)

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._writer.write_columns(self._named(data), rowtimes)

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """See `SinkWriter`."""
        self._writer.write_changes(self._named(data), kinds, rowtimes)

    def _named(self, data: ColumnData) -> ColumnData:
        return ColumnData(data.columns.rename_columns(list(self._schema.names)))

    def flush(self, end_of_input: bool) -> None:
        """See `SinkWriter`."""
        self._writer.flush(end_of_input)

    def prepare_commit(self) -> list[Staged]:
        """See `SinkWriter`."""
        return self._writer.prepare_commit()

    def close(self) -> None:
        """See `SinkWriter`."""
        self._writer.close()
