"""Joins each row of a batch with the rows that a table function or UNNEST produces from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError, WrongTimeError
from penstock.table.data.arrow_types import arrow_type
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.evaluator import Evaluator
from penstock.table.evaluation.unnesting import unnest_kernel
from penstock.table.functions.definition import Session
from penstock.table.plan.logical import Correlate
from penstock.table.user_functions.tables import TableKernel, table_kernel


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
