"""The constraints that a table's types put on the values of its columns, also within rows and collections.

A constraint is named by a path: the name of the column, followed by field names. Elements of collections have no names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import (
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
from penstock.table.plan.row_schema import RowSchema
from penstock.table.streaming.sinks.sink_options import LENGTH

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
