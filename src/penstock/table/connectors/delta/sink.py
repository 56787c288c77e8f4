"""Writes rows of a query into a Delta table, or merges changes by primary key."""

from __future__ import annotations

from typing import Any

from penstock.codecs.column_data import ColumnData
from penstock.connectors.delta.commits import PreparedFiles
from penstock.connectors.delta.sink import DeltaSink
from penstock.connectors.delta.writer import DeltaWriter
from penstock.core.connector import SinkWriter, SinkWriterContext
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import columns_of_changes


class TableDeltaSink(DeltaSink):
    """Accepts rows as (kind, internal values), or columns in the order of the table's declaration."""

    def __init__(self, types: tuple[DataType, ...], *parts: Any, **settings: Any) -> None:
        super().__init__(*parts, by_place=True, **settings)
        self._types = types

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, PreparedFiles]:
        """See `Sink`."""
        return _TableWriter(self._types, context, self._target(), self._target_bytes, self._by_place)


class _TableWriter(DeltaWriter):
    def __init__(self, types: tuple[DataType, ...], *parts: Any) -> None:
        super().__init__(*parts)
        self._types = types

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        if not values:
            return
        names = [f"c{index}" for index in range(len(self._types))]
        columns, kinds = columns_of_changes(values, names, self._types)
        self.write_changes(ColumnData(columns), kinds, None)
