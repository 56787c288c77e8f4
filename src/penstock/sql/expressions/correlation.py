"""Joins each row of a batch with the rows that a table function or UNNEST produces from it.

UNNEST: the elements of arrays and multisets, and the entries of maps, as rows, computed on whole columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError, WrongTimeError
from penstock.codecs.arrow_columns import get_map_keys
from penstock.sql.data.arrow import Datum, arrow_type, to_full_array
from penstock.sql.data.types import DataType, MapType, MultisetType, RowType
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.functions.definition import Session
from penstock.sql.logical.nodes import Correlate
from penstock.sql.user_functions.calls import Made, TableKernel, table_kernel


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


class Correlation:
    """Runs a `Correlate` on columns, with functions opened by `session`."""

    def __init__(self, node: Correlate, session: Session) -> None:
        self._operands = Evaluator(node.operands, session)
        self._kernel = _kernel(node, session)
        self._where = None if node.condition is None else Evaluator([node.condition], session)
        self._keeps = node.keeps
        self._types = [arrow_type(data_type) for data_type in node.schema.types[len(node.input.schema) :]]

    def __call__(self, columns: Columns) -> tuple[Any, list[pa.Array]]:
        """Return, for each result row, the index of its input row (an ascending NumPy array), and the new columns."""
        parents, arrays = self._kernel(columns.rows, *self._operands(columns))
        arrays = [
            array if array.type == kind else array.cast(kind) for array, kind in zip(arrays, self._types, strict=True)
        ]
        if self._where is not None:
            parents, arrays = self._kept(columns, parents, arrays)
        if self._keeps:
            return _with_lonely(columns.rows, parents, arrays)
        return parents, arrays

    def _kept(self, columns: Columns, parents: Any, arrays: list[pa.Array]) -> tuple[Any, list[pa.Array]]:
        """Keep the pairs that satisfy the condition."""
        assert self._where is not None
        rows = columns.take(pa.array(parents, pa.int64()))
        (answers,) = self._where(Columns([*rows.arrays(), *arrays], rows.rows))
        indices = np.flatnonzero(pc.fill_null(answers, False).to_numpy(zero_copy_only=False))
        return parents[indices], [array.take(pa.array(indices)) for array in arrays]


def _kernel(node: Correlate, session: Session) -> TableKernel:
    types = [operand.type for operand in node.operands]
    if node.user is None:
        if node.function != "UNNEST":
            raise UnsupportedError(f"table function {node.function} is not supported")
        return unnest_kernel(types[0], "WITH ORDINALITY" in node.options)
    if session.functions is None:
        raise WrongTimeError(f"{node.user} runs in jobs alone, and not while a query is planned")
    return table_kernel(node.user, types, session.functions)


def _with_lonely(rows: int, parents: Any, arrays: list[pa.Array]) -> tuple[Any, list[pa.Array]]:
    """Add the rows without results, padded with NULL."""
    lonely = np.ones(rows, bool)
    lonely[parents] = False
    indices = np.flatnonzero(lonely)
    if not len(indices):
        return parents, arrays
    both = np.concatenate([parents, indices])
    order = np.argsort(both, kind="stable")
    # An index past the produced rows means NULL.
    chosen = pa.array(order, pa.int64(), mask=order >= len(parents))
    return both[order], [array.take(chosen) for array in arrays]
