"""Sources of in-memory data: the values of a collection (`CollectionSource`) and Arrow columns (`ColumnsSource`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa

from penstock.base.copies import separated
from penstock.base.errors import ConfigurationError
from penstock.connectors.split_reader import PositionedReader, SplitQueue
from penstock.runtime import connector
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.records import Batch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CollectionSplit:
    """The whole collection, read up to `position`."""

    position: int = 0


class CollectionSource(connector.Source[T, CollectionSplit]):
    """Emits the values of a collection in order, in one subtask (G8: the position is an index).

    Args:
        values: the values. They are shipped with the job, so they must be picklable and should not number many
            millions. Mutable values are copied: an object that occurs several times becomes several records.
        timestamps: the event time (ms) of each value; None for no timestamps.

    Raises:
        ConfigurationError: if the numbers of timestamps and values differ.
    """

    def __init__(self, values: Iterable[T], timestamps: Iterable[int] | None = None) -> None:
        self._values = separated(list(values))
        self._timestamps = None if timestamps is None else list(timestamps)
        if self._timestamps is not None and len(self._timestamps) != len(self._values):
            raise ConfigurationError(f"{len(self._timestamps)} timestamps for {len(self._values)} values")

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded."""
        return connector.Boundedness.BOUNDED

    def max_parallelism(self) -> int | None:
        """Return 1, because one subtask reads the collection."""
        return 1

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[CollectionSplit], restored: Any | None
    ) -> connector.SplitEnumerator[CollectionSplit]:
        """Create the enumerator, which hands out the single split."""
        return SplitQueue(context, [CollectionSplit()], restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[T, CollectionSplit]:
        """Create a reader."""
        return _CollectionReader(context, self._values, self._timestamps)


class _CollectionReader(PositionedReader[CollectionSplit]):
    def __init__(self, context: connector.SourceReaderContext, values: list[Any], timestamps: list[int] | None) -> None:
        super().__init__(context)
        self._records = Batch(values, timestamps)

    def read(self, split: CollectionSplit, max_records: int) -> tuple[Batch, CollectionSplit] | None:
        stop = min(split.position + max_records, len(self._records))
        if stop <= split.position:
            return None
        return self._records.slice(split.position, stop), replace(split, position=stop)


class ColumnsSource(connector.Source[Any, CollectionSplit]):
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
    def boundedness(self) -> connector.Boundedness:
        """Bounded."""
        return connector.Boundedness.BOUNDED

    def max_parallelism(self) -> int | None:
        """Return 1, because one subtask reads the columns."""
        return 1

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[CollectionSplit], restored: Any | None
    ) -> connector.SplitEnumerator[CollectionSplit]:
        """Create the enumerator, which hands out the single split."""
        return SplitQueue(context, [CollectionSplit()], restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, CollectionSplit]:
        """Create a reader."""
        return _ColumnsReader(context, ColumnBatch(self._columns, None, self._kinds), self._rows_at_once)


class _ColumnsReader(PositionedReader[CollectionSplit]):
    def __init__(self, context: connector.SourceReaderContext, records: ColumnBatch, rows_at_once: int | None) -> None:
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
