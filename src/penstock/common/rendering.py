"""How a record of a declared type looks in print: as Flink prints it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.common.basic_types import BasicTypeInfo, PickledBytesTypeInfo
from penstock.common.composite_types import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
)
from penstock.common.typeinfo import TypeInformation
from penstock.common.types import Row

Renderer = Callable[[Any], str]

_ELEMENTS = (BasicArrayTypeInfo, ListTypeInfo, ObjectArrayTypeInfo, PrimitiveArrayTypeInfo)


def renderer(type_info: TypeInformation | None) -> Renderer:
    """The function that turns a record of this type into text; `str` where no type is declared.

    A ROW is `+I[1, a]`, a TUPLE `(1,a)`, a list `[1, 2]`, a MAP `{a=1}`; within them None is `null`, True is `true`.
    """
    if isinstance(type_info, RowTypeInfo):
        return _row(type_info)
    if isinstance(type_info, TupleTypeInfo):
        fields = [_or_null(field) for field in type_info.get_field_types()]
        return lambda value: f"({','.join([render(item) for render, item in zip(fields, value, strict=True)])})"
    if isinstance(type_info, _ELEMENTS):
        element = _or_null(type_info.element_type)
        return lambda value: f"[{', '.join(map(element, value))}]"
    if isinstance(type_info, MapTypeInfo):
        key, item = _or_null(type_info.key_type_info), _or_null(type_info.value_type_info)
        return lambda value: f"{{{', '.join([f'{key(k)}={item(v)}' for k, v in value.items()])}}}"
    return str if type_info is None or isinstance(type_info, PickledBytesTypeInfo) else _or_null(None)


def _row(type_info: RowTypeInfo) -> Renderer:
    fields = [_or_null(field) for field in type_info.get_field_types()]

    def render(value: Any) -> str:
        kind = value.get_row_kind().short_string if isinstance(value, Row) else "+I"
        return f"{kind}[{', '.join([one(item) for one, item in zip(fields, value, strict=True)])}]"

    return render


def _or_null(type_info: TypeInformation | None) -> Renderer:
    """For what lies within a record, and for values of basic types."""
    inner = str if type_info is None or isinstance(type_info, BasicTypeInfo) else renderer(type_info)

    def render(value: Any) -> str:
        if value is None:
            return "null"
        if value is True or value is False:
            return "true" if value else "false"
        return inner(value)

    return render
