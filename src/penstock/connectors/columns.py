"""A source of in-memory columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.base.errors import ConfigurationError
from penstock.connectors.collection import CollectionSplit
from penstock.connectors.split_queue import SplitQueue
from penstock.connectors.split_reader import PositionedReader
from penstock.core.columns.batch import ColumnBatch
from penstock.core.connector import (
    Boundedness,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)


class ColumnsSource(Source[Any, CollectionSplit]):
    """Emits the rows of an Arrow batch in order, in one subtask (G8: the position is an index).

    Args:
        columns: the rows; they are shipped with the job.
        kinds: the row kind of each row, one byte each (the value of its `RowKind`); None if all are inserts.
        rows_at_once: the maximum number of rows per batch; None for as many as the task requests.

    Raises:
        ConfigurationError: if the numbers of kinds and rows differ.
    """

    def __init__(self, columns: pa.RecordBatch, kinds: bytes | None = None, rows_at_once: int | None = None) -> None:
        if kinds is not None and len(kinds) != columns.num_rows:
            raise ConfigurationError(f"{len(kinds)} kinds for {columns.num_rows} rows")
        self._columns = columns
        self._kinds = kinds
        self._rows_at_once = rows_at_once

    @property
    def boundedness(self) -> Boundedness:
        """Bounded."""
        return Boundedness.BOUNDED

    def max_parallelism(self) -> int | None:
        """Return 1, because one subtask reads the columns."""
        return 1

    def create_enumerator(
        self, context: SplitEnumeratorContext[CollectionSplit], restored: Any | None
    ) -> SplitEnumerator[CollectionSplit]:
        """Create the enumerator, which hands out the single split."""
        return SplitQueue(context, [CollectionSplit()], restored)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, CollectionSplit]:
        """Create a reader."""
        return _ColumnsReader(context, ColumnBatch(self._columns, None, self._kinds), self._rows_at_once)


class _ColumnsReader(PositionedReader[CollectionSplit]):
    def __init__(self, context: SourceReaderContext, records: ColumnBatch, rows_at_once: int | None) -> None:
        super().__init__(context)
        self._records = records
        self._rows_at_once = rows_at_once

    def read(self, split: CollectionSplit, max_records: int) -> tuple[ColumnBatch, CollectionSplit] | None:
        if self._rows_at_once is not None:
            max_records = min(max_records, self._rows_at_once)
        stop = min(split.position + max_records, len(self._records))
        if stop <= split.position:
            return None
        return self._records.slice(split.position, stop), replace(split, position=stop)
