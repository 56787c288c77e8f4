"""Reads the files of a table as columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.types import RowKind
from penstock.codecs.column_data import COLUMN_BATCH_ROWS
from penstock.connectors.delta.open_file import OpenFile
from penstock.connectors.delta.rewrites import ChangedRows, find_changed_rows
from penstock.connectors.delta.split import CHANGE_TYPE, DeltaSplit, Meaning, Scanned
from penstock.connectors.split_reader import PositionedReader
from penstock.core.columns.batch import ColumnBatch
from penstock.core.connector import SourceReaderContext

_OLD: Final = {"delete": RowKind.DELETE, "update_preimage": RowKind.UPDATE_BEFORE}
_NEW: Final = {"insert": RowKind.INSERT, "update_postimage": RowKind.UPDATE_AFTER}


class DeltaReader(PositionedReader[DeltaSplit]):
    """Reads one file after another. A position counts the rows of the file, including rows that are filtered out."""

    def __init__(self, context: SourceReaderContext, scanned: Scanned) -> None:
        super().__init__(context)
        self._scanned = scanned
        self._files = scanned.place.files()
        self._open: _OpenSplit | None = None
        #: a version that replaces files, and its changed rows
        self._replaced: tuple[int, ChangedRows] | None = None
        self._left = scanned.limit

    def read(self, split: DeltaSplit, max_records: int) -> tuple[ColumnBatch, DeltaSplit] | None:
        """See `PositionedReader`."""
        if self._left == 0:
            return None
        if self._open is None or self._open.split != split:
            self.close()
            self._open = _OpenSplit(self._files, self._scanned, split, self._find_changed_mask(split))
        if self._left is not None:
            max_records = min(max_records, self._left)
        batch = self._open.next(max_records)
        if batch is None:
            self.close()
            return None
        if self._left is not None:
            self._left -= len(batch)
        return batch, self._open.split

    def _find_changed_mask(self, split: DeltaSplit) -> Any | None:
        """Return the mask of changed rows in a replaced file; None for other files, because all their rows count."""
        if split.meaning not in (Meaning.REPLACED_OLD, Meaning.REPLACED_NEW):
            return None
        if self._replaced is None or self._replaced[0] != split.version:
            self._replaced = split.version, find_changed_rows(self._scanned, self._files, split.version)
        return self._replaced[1][split.file.path]

    def close(self) -> None:
        """Close the file."""
        file, self._open = self._open, None
        if file is not None:
            file.close()


class _OpenSplit:
    """A file open at a position, which `split` tracks. `changed` marks the wanted rows; None for all."""

    def __init__(self, files: Any, scanned: Scanned, split: DeltaSplit, changed: Any) -> None:
        self.split = split
        self._file = OpenFile(files, scanned.place.path, split.version, split.file, scanned.columns)
        self._columns = scanned.columns
        self._changed = changed
        self._pruning = scanned.pruning
        self._batches = self._raw()
        self._batch: pa.RecordBatch | None = None
        self._place = 0

    def _raw(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield batches of rows from the position on, each with the index of its first row in the file."""
        parquet, begin = self._file.parquet, 0
        groups = None if self._pruning is None else self._pruning.select_row_groups(parquet)
        is_changes = self.split.meaning in (Meaning.CHANGES_OLD, Meaning.CHANGES_NEW)
        columns = [*self._file.stored, *([CHANGE_TYPE] if is_changes else [])]
        for group in range(parquet.metadata.num_row_groups):
            end = begin + parquet.metadata.row_group(group).num_rows
            if end > self.split.position and (groups is None or group in groups):
                start = begin
                for batch in parquet.iter_batches(COLUMN_BATCH_ROWS, [group], columns, use_threads=False):
                    behind = start + batch.num_rows
                    if behind > self.split.position:
                        skipped = max(0, self.split.position - start)
                        yield start + skipped, batch.slice(skipped)
                    start = behind
            begin = end

    def next(self, max_records: int) -> ColumnBatch | None:
        """Return the next wanted rows, at least one; None at the end."""
        while True:
            if self._batch is None:
                item = next(self._batches, None)
                if item is None:
                    return None
                self._place, self._batch = item
            part = self._batch.slice(0, max_records)
            self._place += part.num_rows
            self._batch = self._batch.slice(max_records) if part.num_rows < self._batch.num_rows else None
            self.split = _moved(self.split, self._place)
            batch = self._made(part)
            if len(batch):
                return batch

    def _made(self, part: pa.RecordBatch) -> ColumnBatch:
        meaning, kinds = self.split.meaning, None
        arrays = [self._file.column(part, column) for column in self._columns]
        columns = pa.RecordBatch.from_arrays(arrays, [column.output for column in self._columns])
        if self._changed is not None:
            columns = columns.filter(pa.array(self._changed[self._place - part.num_rows : self._place]))
        if meaning in (Meaning.DELETED, Meaning.REPLACED_OLD):
            kinds = bytes([RowKind.DELETE.value]) * columns.num_rows
        elif meaning not in (Meaning.INSERTED, Meaning.REPLACED_NEW):
            known = _OLD if meaning is Meaning.CHANGES_OLD else _NEW
            types = part.column(CHANGE_TYPE).cast(pa.string())
            indices = pc.index_in(types, value_set=pa.array(list(known)))
            columns = columns.filter(indices.is_valid())
            values = np.array([kind.value for kind in known.values()], np.uint8)
            kinds = values[indices.drop_null().to_numpy()].tobytes()
        return ColumnBatch(columns, None, kinds)

    def close(self) -> None:
        self._file.close()


def _moved(split: DeltaSplit, position: int) -> DeltaSplit:
    return replace(split, position=position)
