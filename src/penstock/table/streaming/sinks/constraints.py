"""Which constraints the types of a table put on the values of its columns, also within rows and collections.

A constraint is told by a path: the name of the column, then those of fields. Elements of collections have no names.
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

#: steps of a path that are no fields
ELEMENT, KEY, VALUE = -1, -2, -3
_WORDS = {ELEMENT: "[element]", KEY: "[key]", VALUE: "[value]"}


@dataclass(frozen=True, slots=True)
class Constraint:
    """What a column, or what is within it, must be.

    `path`: the place of the column, then of fields, or what part of a collection. `type`: NOT NULL or a length.
    """

    path: tuple[int, ...]
    name: str
    type: DataType
    is_length: bool


def constraints_of(schema: RowSchema, nested: str, length: str) -> tuple[Constraint, ...]:
    """Those of a table: first what is NOT NULL, then lengths. Raises `ValidationError` for those not to be enforced.

    `nested`: IGNORE for those of columns alone, ROWS for those within rows, ROWS_AND_COLLECTIONS for all. `length`:
    IGNORE for none of lengths.
    """
    found: list[Constraint] = []
    for place, column in enumerate(schema):
        found += _constraints((place,), column.name, column.type, nested, length)
    refused = [one for one in found if one.is_length and min(one.path) < 0]
    if refused and length == "TRIM_PAD":
        raise ValidationError(
            f"Values within collections are neither trimmed nor padded, and '{refused[0].name}' is "
            f"{refused[0].type.nullable()}. Set '{LENGTH}' to 'ERROR' to fail on values of another length."
        )
    return tuple(sorted(found, key=lambda one: one.is_length))


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
    """What a type consists of, as far as it is looked at."""
    if isinstance(kind, RowType) and nested != "IGNORE":
        return [(place, field.name, field.data_type) for place, field in enumerate(kind.fields)]
    if nested != "ROWS_AND_COLLECTIONS":
        return []
    if isinstance(kind, MapType):
        return [(KEY, "", kind.key_type), (VALUE, "", kind.value_type)]
    if isinstance(kind, MultisetType):
        return [(KEY, "", kind.element_type)]
    return [(ELEMENT, "", kind.element_type)] if isinstance(kind, ArrayType) else []
