"""Enforces constraints on values: NULL in NOT NULL columns, and strings and bytes that are too long or too short.

The constraints that a table's types put on the values of its columns, also within rows and collections.

A constraint is named by a path: the name of the column, followed by field names. Elements of collections have no names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.arrow_columns import get_map_keys
from penstock.runtime.columns.batch import ColumnBatch, as_columns
from penstock.runtime.operators.base import StreamOperator, UserCodeError
from penstock.runtime.records import Batch
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import (
    LENGTH_MAX,
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    VarBinaryType,
    VarCharType,
)
from penstock.sql.logical.nodes import RowSchema
from penstock.sql.stream.planning.options import LENGTH, NOT_NULL

#: steps of a path that are not fields
ELEMENT, KEY, VALUE = -1, -2, -3
_WORDS = {ELEMENT: "[element]", KEY: "[key]", VALUE: "[value]"}


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint on a column or on a part of it.

    `path`: the index of the column, followed by indexes of fields or by parts of collections. `type`: NOT NULL or a
    length.
    """

    path: tuple[int, ...]
    name: str
    type: DataType
    is_length: bool


def collect_constraints(schema: RowSchema, nested: str, length: str) -> tuple[Constraint, ...]:
    """Return the constraints of a table: NOT NULL first, then lengths.

    `nested`: IGNORE for constraints on columns alone, ROWS to include fields of rows, ROWS_AND_COLLECTIONS for all.
    `length`: IGNORE to omit constraints on lengths. Raises `ValidationError` for constraints that cannot be enforced.
    """
    constraints: list[Constraint] = []
    for index, column in enumerate(schema):
        constraints += _constraints((index,), column.name, column.type, nested, length)
    refused = [constraint for constraint in constraints if constraint.is_length and min(constraint.path) < 0]
    if refused and length == "TRIM_PAD":
        raise ValidationError(
            f"Values within collections are neither trimmed nor padded, and '{refused[0].name}' is "
            f"{refused[0].type.nullable()}. Set '{LENGTH}' to 'ERROR' to fail on values of another length."
        )
    return tuple(sorted(constraints, key=lambda constraint: constraint.is_length))


def _constraints(path: tuple[int, ...], name: str, kind: DataType, nested: str, length: str) -> Iterator[Constraint]:
    if not kind.is_nullable:
        yield Constraint(path, name, kind, False)
    has_length = isinstance(kind, CharType | VarCharType | BinaryType | VarBinaryType) and kind.length != LENGTH_MAX
    if has_length and length != "IGNORE":
        yield Constraint(path, name, kind, True)
    for step, word, inner in _parts(kind, nested):
        more = name + _WORDS[step] if step < 0 else f"{name}.{word}"
        yield from _constraints((*path, step), more, inner, nested, length)


def _parts(kind: DataType, nested: str) -> list[tuple[int, str, DataType]]:
    """Return the parts of a type whose constraints are enforced."""
    if isinstance(kind, RowType) and nested != "IGNORE":
        return [(index, field.name, field.data_type) for index, field in enumerate(kind.fields)]
    if nested != "ROWS_AND_COLLECTIONS":
        return []
    if isinstance(kind, MapType):
        return [(KEY, "", kind.key_type), (VALUE, "", kind.value_type)]
    if isinstance(kind, MultisetType):
        return [(KEY, "", kind.element_type)]
    return [(ELEMENT, "", kind.element_type)] if isinstance(kind, ArrayType) else []


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
