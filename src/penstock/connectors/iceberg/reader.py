"""Reads data files as columns, on a thread that reads ahead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.connectors.background import Background
from penstock.connectors.iceberg.equality_deletes import load_keys
from penstock.connectors.iceberg.reading import read_column
from penstock.connectors.iceberg.refusals import check_columns
from penstock.connectors.iceberg.scanned import IcebergSplit, Scanned
from penstock.connectors.read_ahead import ReadAheadReader
from penstock.core.columns.batch import ColumnBatch
from penstock.core.connector import InputStatus, SourceReaderContext
from penstock.core.records import Batch

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table


class OpenTable:
    """The table of a reader, loaded on first use."""

    def __init__(self, scanned: Scanned) -> None:
        self._scanned = scanned
        self._catalog: Catalog | None = None
        self._table: Table | None = None

    def rows(self, split: IcebergSplit) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split after its position, as output columns."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.expressions.parser import parse
        from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files

        table = self._with_schema(split.schema_id)
        condition = split.row_filter
        if condition is None:
            condition = AlwaysTrue()
        elif isinstance(condition, str):
            condition = parse(condition)
        task = split.task()
        schema = table.schemas()[split.schema_id]
        deleted = load_keys(table, schema, split.equality_deletes, self._scanned.loader.title)
        names = dict.fromkeys(name for deleted_keys in deleted for name in deleted_keys.names)
        scan = ArrowScan(table.metadata, table.io, self._projected(schema, names), condition)
        deletes = _read_all_delete_files(table.io, [task])
        left = split.position
        for batch in scan._record_batches_from_scan_tasks_and_deletes([task], deletes):
            for keys in deleted:
                batch = keys.keep(batch)
            skipped = min(left, batch.num_rows)
            left -= skipped
            if skipped < batch.num_rows:
                yield self._output(batch.slice(skipped))

    def _with_schema(self, schema_id: int) -> Table:
        if self._table is None or schema_id not in self._table.schemas():
            if self._catalog is None:
                self._catalog = self._scanned.loader.catalog.load_catalog()
            self._table = self._scanned.loader.load_table(self._catalog)
        return self._table

    def _projected(self, schema: Schema, more: Iterable[str]) -> Schema:
        names = dict.fromkeys([*(column.name for column in self._scanned.columns), *more])
        check_columns(self._scanned, schema)
        return schema.select(*names)

    def _output(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = []
        for column in self._scanned.columns:
            array = batch.column(column.name)
            try:
                arrays.append(read_column(array, column.type))
            except pa.ArrowException as error:
                raise UnsupportedError(
                    f"column '{column.name}' of table {self._scanned.loader.title} is {array.type}, and not all its "
                    f"values are {column.type}, as it is declared: {error}"
                ) from error
        return pa.RecordBatch.from_arrays(arrays, [column.output for column in self._scanned.columns])

    def close(self) -> None:
        """Close the catalog."""
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None


class IcebergReader(ReadAheadReader[IcebergSplit, pa.RecordBatch]):
    """Reads its splits one after the other, up to the limit."""

    def __init__(self, context: SourceReaderContext, scanned: Scanned) -> None:
        super().__init__(context)
        self._table = OpenTable(scanned)
        self._left = scanned.limit

    def read(self, split: IcebergSplit, max_records: int) -> tuple[Batch, IcebergSplit] | InputStatus | None:
        """See `PositionedReader`."""
        if self._left == 0:
            self.close_split()
            return None
        return super().read(split, max_records)

    def begin(self, split: IcebergSplit) -> Background[pa.RecordBatch]:
        """See `ReadAheadReader`."""
        return Background(lambda: self._table.rows(split), lambda: None)

    def part(self, split: IcebergSplit, rows: pa.RecordBatch, max_records: int) -> tuple[Batch, IcebergSplit]:
        """See `ReadAheadReader`."""
        count = min(max_records, rows.num_rows, max_records if self._left is None else self._left)
        self._rows = rows.slice(count) if count < rows.num_rows else None
        if self._left is not None:
            self._left -= count
        return ColumnBatch(rows.slice(0, count)), replace(split, position=split.position + count)

    def close(self) -> None:
        """Stop reading ahead, and close the catalog."""
        super().close()
        self._table.close()
