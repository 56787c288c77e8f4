"""Reads the files of a Delta Lake table as columns, and finds the rows that a version actually changes.

`OpenFile` is an open data file with the columns to read from it. `DeltaReader` reads one file after another.

`find_changed_rows` finds the rows that a version removes and adds when it replaces files and has no change file. A
writer that updates one row replaces that row's whole file, and some writers do so even if no row changes. Rows that one
version both removes and adds did not change, so a change feed must not emit them. Rows are compared by the columns that
are read. The comparison is exact: floats are compared by their bits, and NULL equals NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.base.types import RowKind
from penstock.codecs.arrow_columns import exact_cast
from penstock.codecs.column_data import COLUMN_BATCH_ROWS
from penstock.connectors.delta import log
from penstock.connectors.delta.table import MissingTableError, VersionError, parse_value
from penstock.connectors.split_reader import PositionedReader
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.connector import SourceReaderContext

if TYPE_CHECKING:
    import pyarrow.fs as pafs


class OpenFile:
    """An open data file. A column comes from the file, from the log's partition value, or is NULL if the file is older.

    Args:
        files: the file system of the table.
        title: the path of the table, for errors.
        version: the version that the file belongs to, for errors.
        file: the file to open.
        columns: the columns to read.

    Raises:
        MissingTableError: if the file has been removed.
    """

    def __init__(
        self,
        files: pafs.FileSystem,
        title: str,
        version: int,
        file: log.LoggedFile,
        columns: Sequence[log.WantedColumn],
    ) -> None:
        try:
            self._stream = files.open_input_file(file.path)
        except FileNotFoundError as error:
            raise MissingTableError(
                f"{file.path} of version {version} of the Delta table {title} is gone: VACUUM has removed it before it "
                "was read. Let VACUUM keep files for longer than the job may stand still"
            ) from error
        self.parquet: Final = pq.ParquetFile(self._stream, coerce_int96_timestamp_unit="us")
        partition = dict(file.partition)
        self._constants = {
            column.name: parse_value(partition[column.name], column.type, column.name)
            for column in columns
            if column.name in partition
        }
        file_columns = set(self.parquet.schema_arrow.names)
        #: the names of the columns to read that are stored in the file
        self.stored: Final = [
            name
            for name in dict.fromkeys(column.name for column in columns)
            if name in file_columns and name not in self._constants
        ]

    def column(self, part: pa.RecordBatch, column: log.WantedColumn) -> pa.Array:
        """Return a column of some rows in the wanted type. `part` holds the `stored` columns of those rows."""
        constant = self._constants.get(column.name)
        if constant is not None:
            return pa.repeat(constant, part.num_rows)
        if column.name not in self.stored:
            return pa.nulls(part.num_rows, column.type)
        return exact_cast(part.column(column.name), column.type)

    def close(self) -> None:
        """Close the file."""
        self.parquet.close()
        self._stream.close()


#: Maps each file path to a Boolean array that marks the changed rows.
ChangedRows = Mapping[str, Any]


def find_changed_rows(scanned: log.Scanned, files: pafs.FileSystem, version: int) -> ChangedRows:
    """Find the rows in a version's removed and added files that are not on both sides.

    Reads the files column by column and keeps 8 bytes per row. If a row occurs more often on one side than on the
    other, its last occurrences count as changed.

    Args:
        scanned: the table and the columns that are read.
        files: the file system of the table.
        version: the version number.

    Raises:
        VersionError: if the log has dropped the version.
        MissingTableError: if a file has been removed.
    """
    title = scanned.place.path
    replaced = log.read_version(scanned.place, files, version)
    if replaced is None:
        raise VersionError(
            f"version {version} of the Delta table {title} is no longer in its log: the job stood still for longer "
            "than delta.logRetentionDuration. Start it without its state"
        )
    both = [*replaced.removed, *replaced.added]
    lengths = [_count_rows(files, title, version, file) for file in both]
    numbers = np.zeros(sum(lengths), np.int64)
    for column in scanned.columns:
        values = pa.chunked_array(
            [chunk for file in both for chunk in _read_column(files, title, version, file, column)],
            _comparable_type(column.type),
        )
        numbers = _combine(numbers, values)
    begin_of_added = sum(lengths[: len(replaced.removed)])
    changed = np.concatenate(_find_surplus(numbers[:begin_of_added], numbers[begin_of_added:]))
    parts = np.split(changed, np.cumsum(lengths)[:-1])
    return {file.path: part for file, part in zip(both, parts, strict=True)}


def _count_rows(files: pafs.FileSystem, title: str, version: int, file: log.LoggedFile) -> int:
    opened = OpenFile(files, title, version, file, ())
    try:
        return int(opened.parquet.metadata.num_rows)
    finally:
        opened.close()


def _read_column(
    files: pafs.FileSystem, title: str, version: int, file: log.LoggedFile, column: log.WantedColumn
) -> Iterator[pa.Array]:
    opened = OpenFile(files, title, version, file, (column,))
    try:
        for batch in opened.parquet.iter_batches(columns=opened.stored, use_threads=False):
            yield _to_comparable(opened.column(batch, column))
    finally:
        opened.close()


def _comparable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_nested(kind):
        return pa.string()
    return {pa.float64(): pa.int64(), pa.float32(): pa.int32()}.get(kind, kind)


def _to_comparable(values: pa.Array) -> pa.Array:
    """Convert values to a type that Arrow compares bit by bit."""
    if pa.types.is_nested(values.type):
        texts = [None if value is None else repr(value) for value in values.to_pylist()]
        return pa.array(texts, pa.string())
    return values.view(_comparable_type(values.type)) if pa.types.is_floating(values.type) else values


def _combine(numbers: Any, values: pa.ChunkedArray) -> Any:
    """Number the rows so that two are equal if and only if both their previous numbers and their values are."""
    encoded = values.combine_chunks().dictionary_encode(null_encoding="encode")
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    _, combined = np.unique(numbers * len(encoded.dictionary) + codes, return_inverse=True)
    return combined.astype(np.int64)


def _find_surplus(removed: Any, added: Any) -> Sequence[Any]:
    """Return two Boolean arrays that mark the numbers on each side without a counterpart on the other."""
    size = int(max(removed.max(initial=-1), added.max(initial=-1))) + 1
    cancelled = np.minimum(np.bincount(removed, minlength=size), np.bincount(added, minlength=size))
    return [_count_occurrences(side) >= cancelled[side] for side in (removed, added)]


def _count_occurrences(numbers: Any) -> Any:
    """Count, for each index, the earlier occurrences of its number."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    is_first = np.r_[True, ordered[1:] != ordered[:-1]] if len(ordered) else np.zeros(0, bool)
    begins = np.flatnonzero(is_first)
    counts = np.arange(len(ordered)) - np.repeat(begins, np.diff(np.r_[begins, len(ordered)]))
    occurrences = np.empty(len(numbers), np.int64)
    occurrences[order] = counts
    return occurrences


_OLD: Final = {"delete": RowKind.DELETE, "update_preimage": RowKind.UPDATE_BEFORE}
_NEW: Final = {"insert": RowKind.INSERT, "update_postimage": RowKind.UPDATE_AFTER}


class DeltaReader(PositionedReader[log.DeltaSplit]):
    """Reads one file after another. A position counts the rows of the file, including rows that are filtered out."""

    def __init__(self, context: SourceReaderContext, scanned: log.Scanned) -> None:
        super().__init__(context)
        self._scanned = scanned
        self._files = scanned.place.files()
        self._open: _OpenSplit | None = None
        #: a version that replaces files, and its changed rows
        self._replaced: tuple[int, ChangedRows] | None = None
        #: a version, and the deletion vectors of its files
        self._vectors: tuple[int, ChangedRows] | None = None
        self._left = scanned.limit

    def read(self, split: log.DeltaSplit, max_records: int) -> tuple[ColumnBatch, log.DeltaSplit] | None:
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

    def _find_changed_mask(self, split: log.DeltaSplit) -> Any | None:
        """Return the mask of the rows that count in a file; None if all do."""
        if split.meaning is log.Meaning.REMAINING:
            return self._find_remaining_mask(split)
        if split.meaning not in (log.Meaning.REPLACED_OLD, log.Meaning.REPLACED_NEW):
            return None
        if self._replaced is None or self._replaced[0] != split.version:
            self._replaced = split.version, find_changed_rows(self._scanned, self._files, split.version)
        return self._replaced[1][split.file.path]

    def _find_remaining_mask(self, split: log.DeltaSplit) -> Any:
        """Return the mask of the rows that a deletion vector keeps; rows after its end remain."""
        if self._vectors is None or self._vectors[0] != split.version:
            table = self._scanned.place.open(split.version)
            self._vectors = split.version, log.read_vectors(table)
        remaining = self._vectors[1][split.file.path].to_numpy(zero_copy_only=False)
        rows = _count_rows(self._files, self._scanned.place.path, split.version, split.file)
        return np.r_[remaining, np.ones(rows - len(remaining), bool)]

    def close(self) -> None:
        """Close the file."""
        file, self._open = self._open, None
        if file is not None:
            file.close()


class _OpenSplit:
    """A file open at a position, which `split` tracks. `changed` marks the wanted rows; None for all."""

    def __init__(self, files: Any, scanned: log.Scanned, split: log.DeltaSplit, changed: Any) -> None:
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
        is_changes = self.split.meaning in (log.Meaning.CHANGES_OLD, log.Meaning.CHANGES_NEW)
        columns = [*self._file.stored, *([log.CHANGE_TYPE] if is_changes else [])]
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
        if meaning in (log.Meaning.DELETED, log.Meaning.REPLACED_OLD):
            kinds = bytes([RowKind.DELETE.value]) * columns.num_rows
        elif meaning in (log.Meaning.CHANGES_OLD, log.Meaning.CHANGES_NEW):
            known = _OLD if meaning is log.Meaning.CHANGES_OLD else _NEW
            types = part.column(log.CHANGE_TYPE).cast(pa.string())
            indices = pc.index_in(types, value_set=pa.array(list(known)))
            columns = columns.filter(indices.is_valid())
            values = np.array([kind.value for kind in known.values()], np.uint8)
            kinds = values[indices.drop_null().to_numpy()].tobytes()
        return ColumnBatch(columns, None, kinds)

    def close(self) -> None:
        self._file.close()


def _moved(split: log.DeltaSplit, position: int) -> log.DeltaSplit:
    return replace(split, position=position)
