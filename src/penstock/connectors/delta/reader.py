"""Reads files of a table as columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.base.types import RowKind
from penstock.codecs.column_data import COLUMN_BATCH_ROWS
from penstock.codecs.exact_cast import exact_cast
from penstock.connectors.delta.errors import MissingTableError
from penstock.connectors.delta.partitions import value_of
from penstock.connectors.delta.split import CHANGE_TYPE, DeltaSplit, Meaning, Scanned, WantedColumn
from penstock.connectors.split_reader import PositionedReader
from penstock.core.columns.batch import ColumnBatch
from penstock.core.connector import SourceReaderContext

_OLD: Final = {"delete": RowKind.DELETE, "update_preimage": RowKind.UPDATE_BEFORE}
_NEW: Final = {"insert": RowKind.INSERT, "update_postimage": RowKind.UPDATE_AFTER}


class DeltaReader(PositionedReader[DeltaSplit]):
    """Reads one file after another. A position is a number of rows of the file, whatever is left out of them."""

    def __init__(self, context: SourceReaderContext, scanned: Scanned) -> None:
        super().__init__(context)
        self._scanned = scanned
        self._files = scanned.place.files()
        self._open: _OpenSplit | None = None
        self._left = scanned.limit

    def read(self, split: DeltaSplit, max_records: int) -> tuple[ColumnBatch, DeltaSplit] | None:
        """See `PositionedReader`."""
        if self._left == 0:
            return None
        if self._open is None or self._open.split != split:
            self.close()
            self._open = _OpenSplit(self._files, self._scanned, split)
        if self._left is not None:
            max_records = min(max_records, self._left)
        batch = self._open.next(max_records)
        if batch is None:
            self.close()
            return None
        if self._left is not None:
            self._left -= len(batch)
        return batch, self._open.split

    def close(self) -> None:
        """Close the file."""
        found, self._open = self._open, None
        if found is not None:
            found.close()


class _OpenSplit:
    """A file that is open at a position; `split` follows it."""

    def __init__(self, files: Any, scanned: Scanned, split: DeltaSplit) -> None:
        self.split = split
        path = split.file.path
        try:
            self._stream = files.open_input_file(path)
        except FileNotFoundError as error:
            raise MissingTableError(
                f"{path} of version {split.version} of the Delta table {scanned.place.path} is gone: VACUUM has "
                "removed it before it was read. Let VACUUM keep files for longer than the job may stand still"
            ) from error
        self._file = pq.ParquetFile(self._stream, coerce_int96_timestamp_unit="us")
        partition = dict(split.file.partition)
        self._columns = scanned.columns
        self._constants = {
            one.name: value_of(partition[one.name], one.type, one.name)
            for one in scanned.columns
            if one.name in partition
        }
        there = set(self._file.schema_arrow.names)
        self._read = [
            name
            for name in dict.fromkeys(one.name for one in scanned.columns)
            if name in there and name not in self._constants
        ]
        self._pruning = scanned.pruning
        self._batches = self._raw()
        self._batch: pa.RecordBatch | None = None
        self._place = 0

    def _raw(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Rows from the position on, and behind how many of the file they are."""
        metadata, begin = self._file.metadata, 0
        wanted = None if self._pruning is None else self._pruning.groups_of(self._file)
        is_changes = self.split.meaning in (Meaning.CHANGES_OLD, Meaning.CHANGES_NEW)
        columns = [*self._read, *([CHANGE_TYPE] if is_changes else [])]
        for group in range(metadata.num_row_groups):
            end = begin + metadata.row_group(group).num_rows
            if end > self.split.position and (wanted is None or group in wanted):
                start = begin
                for batch in self._file.iter_batches(COLUMN_BATCH_ROWS, [group], columns, use_threads=False):
                    behind = start + batch.num_rows
                    if behind > self.split.position:
                        skipped = max(0, self.split.position - start)
                        yield start + skipped, batch.slice(skipped)
                    start = behind
            begin = end

    def next(self, max_records: int) -> ColumnBatch | None:
        """The next rows that are wanted, at least one; None at the end."""
        while True:
            if self._batch is None:
                found = next(self._batches, None)
                if found is None:
                    return None
                self._place, self._batch = found
            part = self._batch.slice(0, max_records)
            self._place += part.num_rows
            self._batch = self._batch.slice(max_records) if part.num_rows < self._batch.num_rows else None
            self.split = _moved(self.split, self._place)
            made = self._made(part)
            if len(made):
                return made

    def _made(self, part: pa.RecordBatch) -> ColumnBatch:
        meaning, kinds = self.split.meaning, None
        arrays = [self._column(part, one) for one in self._columns]
        columns = pa.RecordBatch.from_arrays(arrays, [one.output for one in self._columns])
        if meaning is Meaning.DELETED:
            kinds = bytes([RowKind.DELETE.value]) * part.num_rows
        elif meaning is not Meaning.INSERTED:
            known = _OLD if meaning is Meaning.CHANGES_OLD else _NEW
            types = part.column(CHANGE_TYPE).cast(pa.string())
            places = pc.index_in(types, value_set=pa.array(list(known)))
            columns = columns.filter(places.is_valid())
            values = np.array([one.value for one in known.values()], np.uint8)
            kinds = values[places.drop_null().to_numpy()].tobytes()
        return ColumnBatch(columns, None, kinds)

    def _column(self, part: pa.RecordBatch, wanted: WantedColumn) -> pa.Array:
        constant = self._constants.get(wanted.name)
        if constant is not None:
            return pa.repeat(constant, part.num_rows)
        if wanted.name not in self._read:
            return pa.nulls(part.num_rows, wanted.type)
        return cast_column(part.column(wanted.name), wanted.type)

    def close(self) -> None:
        self._file.close()
        self._stream.close()


def _moved(split: DeltaSplit, position: int) -> DeltaSplit:
    return DeltaSplit(split.version, split.number, split.file, split.meaning, position)


def cast_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in the type that is wanted: points in time may lose digits, and nothing else."""
    return exact_cast(column, kind)
