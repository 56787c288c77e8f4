"""Renders records of a declared type as text like Java's `toString`, for print and for files of lines."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from penstock.base.basic_types import (
    BasicType,
    BasicTypeInfo,
    PickledBytesTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
)
from penstock.base.composite_types import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
)
from penstock.base.typeinfo import TypeInformation
from penstock.base.types import Row, values_by_names

Renderer = Callable[[Any], str]

_ELEMENTS = (BasicArrayTypeInfo, ListTypeInfo, ObjectArrayTypeInfo, PrimitiveArrayTypeInfo)


def renderer(type_info: TypeInformation | None) -> Renderer:
    """Return the function that renders a record of this type; `str` if no type is declared.

    A ROW is `+I[1, a]`, a TUPLE `(1,a)`, a list `[1, 2]`, a MAP `{a=1}`; None is `null`, True is `true`, 1e10 as a
    DOUBLE or FLOAT `1.0E10`, a TIMESTAMP `2026-01-31 12:00:00.0`, a TIME `12:00:00`. Arrays look like lists.
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
    return str if type_info is None or isinstance(type_info, PickledBytesTypeInfo) else _or_null(type_info)


def _row(type_info: RowTypeInfo) -> Renderer:
    fields = [_or_null(field) for field in type_info.get_field_types()]
    names = tuple(type_info.get_field_names())

    def render(value: Any) -> str:
        kind, values = "+I", value
        if isinstance(value, Row):
            kind, values = value.get_row_kind().short_string, values_by_names(value, names)
        return f"{kind}[{', '.join([render_field(item) for render_field, item in zip(fields, values, strict=True)])}]"

    return render


def _or_null(type_info: TypeInformation | None) -> Renderer:
    """Return the function that renders values within a record, and values of basic types."""
    inner = _inner(type_info)

    def render(value: Any) -> str:
        if value is None:
            return "null"
        if value is True or value is False:
            return "true" if value else "false"
        return inner(value)

    return render


def _inner(type_info: TypeInformation | None) -> Renderer:
    if isinstance(type_info, BasicTypeInfo):
        return {BasicType.DOUBLE: java_double, BasicType.FLOAT: java_float}.get(type_info.basic_type, str)
    if isinstance(type_info, TimestampTypeInfo):
        return _timestamp
    if isinstance(type_info, TimeTypeInfo):
        return _time
    if isinstance(type_info, (RowTypeInfo, TupleTypeInfo, MapTypeInfo, *_ELEMENTS)):
        return renderer(type_info)
    return str


def java_double(value: Any) -> str:
    """Format a number like Java's `Double.toString`."""
    return _java(float(value), repr(float(value)))


def java_float(value: Any) -> str:
    """Format a number in single precision like Java's `Float.toString`."""
    single = np.float32(value)
    return _java(float(single), str(single))


def _java(value: float, shortest: str) -> str:
    """Format the digits of `shortest`; use scientific notation below 0.001 and from 10,000,000 on."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return f"{Decimal(shortest):f}" if "e" in shortest else shortest
    sign, digits, exponent = Decimal(shortest).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") or "0"
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{exponent + len(digits) - 1}"


def _timestamp(value: Any) -> str:
    if not isinstance(value, datetime.datetime):
        return str(value)
    fraction = f"{value.microsecond:06d}".rstrip("0") or "0"
    return f"{value:%Y-%m-%d %H:%M:%S}.{fraction}"


def _time(value: Any) -> str:
    return f"{value:%H:%M:%S}" if isinstance(value, datetime.time) else str(value)
