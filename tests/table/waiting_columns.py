"""A source of columns that gives way to others after each poll, and that may wait after its last row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.connectors.collection import CollectionSplit, ColumnsSource
from penstock.runtime.connector import Boundedness, InputStatus, SourceReader, SourceReaderContext
from penstock.runtime.records import Batch


class ColumnsThenWait(ColumnsSource):
    """As `ColumnsSource`; with `waits` it never ends, and with `stops` batches end at these places alone."""

    def __init__(
        self,
        columns: pa.RecordBatch,
        kinds: bytes | None,
        rows_at_once: int | None,
        waits: bool,
        stops: Sequence[int] | None = None,
    ) -> None:
        super().__init__(columns, kinds, rows_at_once if stops is None else None)
        self._waits = waits
        self._stops = stops

    @property
    def boundedness(self) -> Boundedness:
        """Unbounded while it waits."""
        return Boundedness.CONTINUOUS_UNBOUNDED if self._waits else Boundedness.BOUNDED

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, CollectionSplit]:
        """A new reader."""
        reader = super().create_reader(context)
        return _Waiting(reader, self._waits, self._stops)


class _Waiting(SourceReader[Any, CollectionSplit]):
    def __init__(
        self, reader: SourceReader[Any, CollectionSplit], waits: bool, stops: Sequence[int] | None = None
    ) -> None:
        self._reader = reader
        self._waits = waits
        self._stops = stops
        self._gives_way = False
        self._last: list[CollectionSplit] = []

    def start(self) -> None:
        self._reader.start()

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        self._gives_way = not self._gives_way
        if not self._gives_way:
            return InputStatus.NOTHING_AVAILABLE
        self._last = self._reader.snapshot_state(0) or self._last
        found = self._reader.poll_next(self._until_stop(max_records))
        self._last = self._reader.snapshot_state(0) or self._last
        return InputStatus.NOTHING_AVAILABLE if self._waits and found is InputStatus.END_OF_INPUT else found

    def _until_stop(self, max_records: int) -> int:
        """How many rows come before the next stop."""
        if self._stops is None or not self._last:
            return max_records
        position = self._last[0].position
        return min((stop - position for stop in self._stops if stop > position), default=max_records)

    def retry_after_ms(self) -> int:
        return 1

    def add_splits(self, splits: Any) -> None:
        self._reader.add_splits(splits)

    def no_more_splits(self) -> None:
        self._reader.no_more_splits()

    def snapshot_state(self, checkpoint_id: int) -> list[CollectionSplit]:
        return self._reader.snapshot_state(checkpoint_id) or self._last
