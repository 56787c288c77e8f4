"""TYPEOF: the type of an expression, as text."""

from __future__ import annotations

import pyarrow as pa

from penstock.sql.data import types
from penstock.sql.data.arrow import Datum, Kernel
from penstock.sql.data.types import literal as text_literal
from penstock.sql.functions import definition


def full_text(data_type: types.DataType) -> str | None:
    """Return a type in standard SQL syntax, which can be parsed again; None for the type of a bare NULL."""
    inner = _inner(data_type)
    return inner if inner is None or data_type.is_nullable else f"{inner} NOT NULL"


def _inner(data_type: types.DataType) -> str | None:
    match data_type:
        case types.NullType():
            return None
        case types.VarCharType(length=length) | types.VarBinaryType(length=length):
            return f"{data_type.root}({length})"
        case types.LocalZonedTimestampType(precision=precision):
            return f"TIMESTAMP({precision}) WITH LOCAL TIME ZONE"
        case types.ArrayType() | types.MapType() | types.MultisetType() | types.RowType():
            return _nested(data_type)
        case _:
            return str(data_type.nullable())


def _nested(data_type: types.DataType) -> str | None:
    parts = [full_text(part) for part in data_type.children()]
    if None in parts:
        return None
    if isinstance(data_type, types.RowType):
        parts = [f"{types.quoted(field.name)} {part}" for field, part in zip(data_type.fields, parts, strict=True)]
    if isinstance(data_type, types.StructuredType):
        parts = [text_literal(data_type.class_name), *parts]
    return f"{data_type.root}<{', '.join(map(str, parts))}>"


def _build_typeof_kernel(call: definition.Call) -> Kernel:
    (data_type, *_), is_full = call.types, call.value(1) is True
    text = pa.scalar(full_text(data_type) if is_full else str(data_type), pa.string())

    def kernel(*columns: Datum) -> Datum:
        return text

    return kernel


FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "TYPEOF",
        definition.takes(definition.ANY, definition.literal(definition.BOOLEAN), optional=1),
        definition.returns_nullable(definition.STRING),
        _build_typeof_kernel,
        "Returns the type of an expression as a string; with TRUE, in standard SQL, which can be parsed again.",
        usage="TYPEOF(input[, force_serializable])",
        section="type conversion",
    ),
)
