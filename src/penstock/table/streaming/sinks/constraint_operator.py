"""Enforces constraints on values: NULL in NOT NULL columns, and strings and bytes that are too long or too short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.map_columns import get_map_keys
from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import StreamOperator, UserCodeError
from penstock.core.records import Batch
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import BinaryType, CharType
from penstock.table.streaming.sinks.constraints import KEY, VALUE, Constraint
from penstock.table.streaming.sinks.sink_options import LENGTH, NOT_NULL


class ConstraintOperator(StreamOperator):
    """Enforces constraints. `drops`: whether rows with NULL are dropped; otherwise they fail the job.

    `length`: TRIM_PAD gives values the right length, ERROR fails the job on values of another length.
    """

    def __init__(self, constraints: Sequence[Constraint], drops: bool, length: str) -> None:
        self._constraints = tuple(constraints)
        self._drops = drops
        self._trims = length == "TRIM_PAD"

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Emit the rows that satisfy the constraints."""
        records = as_columns(batch, self.context.operator_name)
        for constraint in self._constraints:
            column = records.columns.column(constraint.path[0])
            if constraint.is_length:
                records = self._of_length(constraint, records, column)
                continue
            part, rows = reached(column, constraint.path[1:])
            if not part.null_count:
                continue
            bad = part.is_null().to_numpy(zero_copy_only=False)
            if not self._drops:
                self._fail(
                    f"Column '{constraint.name}' is NOT NULL, however, a null value is being written into it. You can "
                    "set job "
                    f"configuration '{NOT_NULL}'='DROP' to suppress this exception and drop such records silently."
                )
            keeps = np.ones(len(records), np.bool_)
            keeps[rows[bad]] = False
            records = records.where(keeps)
        if len(records):
            self.output.collect(records)

    def _of_length(self, constraint: Constraint, records: ColumnBatch, column: pa.Array) -> ColumnBatch:
        part, _ = reached(column, constraint.path[1:])
        lengths = compute_lengths(part)
        declared_length: int = constraint.type.length  # type: ignore[attr-defined]
        is_exact = isinstance(constraint.type, CharType | BinaryType)
        bad = pc.fill_null((pc.not_equal if is_exact else pc.greater)(lengths, declared_length), False)
        if not bad.true_count:
            return records
        if self._trims:
            index = constraint.path[0]
            fitted = _fitted_within(column, constraint.path[1:], declared_length, is_exact)
            return ColumnBatch(
                records.columns.set_column(index, records.columns.schema.names[index], fitted),
                records.rowtimes,
                records.kinds,
            )
        actual_length = lengths.filter(bad)[0].as_py()
        self._fail(
            f"Column '{constraint.name}' is {constraint.type.nullable()}, however, a string of length {actual_length} "
            "is being written into "
            f"it. You can set job configuration '{LENGTH}' to control this behaviour."
        )
        return records

    def _fail(self, message: str) -> None:
        raise UserCodeError(self.context.operator_name, None) from TableRuntimeError(message)


def reached(column: pa.Array, path: Sequence[int]) -> tuple[pa.Array, Any]:
    """Return the values at a path, without the ones whose parent is NULL, and the row of each as a NumPy array."""
    rows = np.arange(len(column))
    for step in path:
        if column.null_count:
            valid = column.is_valid()
            rows = rows[valid.to_numpy(zero_copy_only=False)]
            column = column.filter(valid)
        if step >= 0:
            column = column.field(step) if column.offset == 0 else column.flatten()[step]
            continue
        offsets = column.offsets.to_numpy()
        rows = np.repeat(rows, np.diff(offsets))
        inner = get_map_keys(column) if step == KEY else column.items if step == VALUE else column.values
        column = inner.slice(offsets[0], offsets[-1] - offsets[0])
    return column, rows


def compute_lengths(column: pa.Array) -> pa.Array:
    """Return the number of characters or bytes of each value."""
    return (pc.utf8_length if pa.types.is_string(column.type) else pc.binary_length)(column)


def _fitted_within(column: pa.Array, path: Sequence[int], length: int, is_padded: bool) -> pa.Array:
    """Trim and pad the field at a path in a column, or the column itself if the path is empty."""
    if not path:
        return _fitted(column, length, is_padded)
    fields = column.flatten()
    fields[path[0]] = _fitted_within(fields[path[0]], path[1:], length, is_padded)
    return pa.StructArray.from_arrays(fields, fields=list(column.type), mask=column.is_null())


def _fitted(column: pa.Array, length: int, is_padded: bool) -> pa.Array:
    """Trim values to a length. If `is_padded`, pad them to it with blanks or zeros."""
    if pa.types.is_string(column.type):
        cut = pc.utf8_slice_codeunits(column, 0, length)
        return pc.utf8_rpad(cut, length, " ") if is_padded else cut
    cut = pc.binary_slice(column, 0, length)
    if not is_padded:
        return cut
    return pa.array([None if value is None else value.ljust(length, b"\0") for value in cut.to_pylist()], column.type)
