"""TYPEOF: the type of an expression, as text."""

from __future__ import annotations

import pyarrow as pa

from penstock.table.data.logical_types import (
    ArrayType,
    DataType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    NullType,
    RowType,
    StructuredType,
    VarBinaryType,
    VarCharType,
    quoted,
)
from penstock.table.data.logical_types import literal as text_literal
from penstock.table.data.values import Datum, Kernel
from penstock.table.functions.definition import Call, ScalarFunction, scalar
from penstock.table.functions.signatures import ANY, BOOLEAN, STRING, literal, returns_nullable, takes


def full_text(found: DataType) -> str | None:
    """Return a type in standard SQL syntax, which can be parsed again; None for the type of a bare NULL."""
    inner = _inner(found)
    return inner if inner is None or found.is_nullable else f"{inner} NOT NULL"


def _inner(found: DataType) -> str | None:
    match found:
        case NullType():
            return None
        case VarCharType(length=length) | VarBinaryType(length=length):
            return f"{found.root}({length})"
        case LocalZonedTimestampType(precision=precision):
            return f"TIMESTAMP({precision}) WITH LOCAL TIME ZONE"
        case ArrayType() | MapType() | MultisetType() | RowType():
            return _nested(found)
        case _:
            return str(found.nullable())


def _nested(found: DataType) -> str | None:
    parts = [full_text(part) for part in found.children()]
    if None in parts:
        return None
    if isinstance(found, RowType):
        parts = [f"{quoted(field.name)} {part}" for field, part in zip(found.fields, parts, strict=True)]
    if isinstance(found, StructuredType):
        parts = [text_literal(found.class_name), *parts]
    return f"{found.root}<{', '.join(map(str, parts))}>"


def _type_of(call: Call) -> Kernel:
    (found, *_), is_full = call.types, call.value(1) is True
    text = pa.scalar(full_text(found) if is_full else str(found), pa.string())

    def kernel(*columns: Datum) -> Datum:
        return text

    return kernel


FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "TYPEOF",
        takes(ANY, literal(BOOLEAN), optional=1),
        returns_nullable(STRING),
        _type_of,
        "The type of an expression as text; with TRUE in the words of standard SQL, from which it can be read again.",
        usage="TYPEOF(input[, force_serializable])",
        section="type conversion",
    ),
)
