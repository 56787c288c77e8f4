"""Finds the rows that a version actually removes and adds when it replaces files and has no change file.

A writer that updates one row replaces that row's whole file, and some writers do so even if no row changes. Rows that
one version both removes and adds did not change, so a change feed must not emit them. Rows are compared by the columns
that are read. The comparison is exact: floats are compared by their bits, and NULL equals NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.connectors.delta.errors import VersionError
from penstock.connectors.delta.log import LoggedFile, read_version
from penstock.connectors.delta.open_file import OpenFile
from penstock.connectors.delta.split import Scanned, WantedColumn

if TYPE_CHECKING:
    import pyarrow.fs as pafs

#: Maps each file path to a Boolean array that marks the changed rows.
ChangedRows = Mapping[str, Any]


def find_changed_rows(scanned: Scanned, files: pafs.FileSystem, version: int) -> ChangedRows:
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
    replaced = read_version(scanned.place, files, version)
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


def _count_rows(files: pafs.FileSystem, title: str, version: int, file: LoggedFile) -> int:
    opened = OpenFile(files, title, version, file, ())
    try:
        return int(opened.parquet.metadata.num_rows)
    finally:
        opened.close()


def _read_column(
    files: pafs.FileSystem, title: str, version: int, file: LoggedFile, column: WantedColumn
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
