"""UNNEST: the elements of arrays and multisets, and the entries of maps, as rows, computed on whole columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.codecs.map_columns import get_map_keys
from penstock.table.data.logical_types import DataType, MapType, MultisetType, RowType
from penstock.table.data.values import Datum, to_full_array
from penstock.table.user_functions.tables import Made, TableKernel


def unnest_kernel(collection: DataType, with_ordinality: bool) -> TableKernel:
    """Return the kernel of UNNEST for a collection type. `with_ordinality`: add each element's position, from 1."""

    def kernel(rows: int, column: Datum) -> Made:
        full = to_full_array(column, rows)
        starts, lengths = _spans(full)
        parents = np.repeat(np.arange(rows), lengths)
        within = np.arange(len(parents)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        indices = np.repeat(starts, lengths) + within
        entries = [get_map_keys(full), full.items] if isinstance(collection, MapType | MultisetType) else [full.values]
        columns = [entry.take(pa.array(indices)) for entry in entries]
        if isinstance(collection, MultisetType):
            times = columns.pop().to_numpy(zero_copy_only=False).astype(np.int64)
            parents = np.repeat(parents, times)
            columns = [columns[0].take(pa.array(np.repeat(np.arange(len(times)), times)))]
        if not isinstance(collection, MapType):
            (element,) = collection.children()
            if isinstance(element, RowType):
                if columns[0].null_count and not with_ordinality:
                    # A NULL row produces no result, as in Flink; a row of NULLs does.
                    is_there = columns[0].is_valid()
                    parents, columns = parents[is_there.to_numpy(zero_copy_only=False)], [columns[0].filter(is_there)]
                columns = columns[0].flatten()
        if with_ordinality:
            columns.append(_numbered(parents))
        return parents, columns

    return kernel


def _spans(column: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the start and the number of each row's elements; zero elements for NULL."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    lengths = np.diff(offsets)
    if column.null_count:
        lengths = np.where(column.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    return offsets[:-1], lengths


def _numbered(parents: npt.NDArray[np.int64]) -> pa.Array:
    """Number the rows of each parent from 1; the rows of a parent are adjacent."""
    numbers = np.arange(len(parents))
    is_first = np.diff(parents, prepend=-1) != 0
    return pa.array(numbers - np.maximum.accumulate(np.where(is_first, numbers, 0)) + 1, pa.int32())
