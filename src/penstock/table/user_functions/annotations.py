"""Derives types from a function's annotations: `-> int` is BIGINT, `-> list[str]` ARRAY<STRING>, and so on."""

from __future__ import annotations

import collections.abc
import datetime
import decimal
import functools
import types as python_types
import typing
from collections.abc import Callable
from typing import Any, Final

from penstock.table.data import logical_types as types
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import DataType, RowField, RowType

_PLAIN: Final[dict[Any, DataType]] = {
    bool: types.BooleanType(),
    int: types.BigIntType(),
    float: types.DoubleType(),
    str: types.VarCharType(types.LENGTH_MAX),
    bytes: types.VarBinaryType(types.LENGTH_MAX),
    bytearray: types.VarBinaryType(types.LENGTH_MAX),
    decimal.Decimal: types.DecimalType(38, 18),
    datetime.date: types.DateType(),
    datetime.time: types.TimeType(),
    datetime.datetime: types.LocalZonedTimestampType(6),
    datetime.timedelta: types.DayTimeIntervalType(),
}
_MANY: Final = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.Sequence,
    list,
)
_UNIONS: Final = (typing.Union, python_types.UnionType)


def infer_result_type(function: Callable[..., Any], name: str) -> DataType:
    """Return a function's annotated result type. Raises `ValidationError` if the annotations do not determine it."""
    data_type = _infer_type(_returned(function, name, "result_type"))
    if data_type is None:
        raise _unknown(function, name, "result_type")
    return data_type


def infer_row_type(function: Callable[..., Any], name: str) -> RowType:
    """Return a table function's annotated columns: `Iterator[tuple[int, str]]`, or `list[int]` for one column.

    Raises `ValidationError` if the annotations do not determine them.
    """
    hint = _not_none(_returned(function, name, "result_types"))
    if typing.get_origin(hint) in _MANY:
        hint = typing.get_args(hint)[0]
    parts = list(typing.get_args(hint)) if typing.get_origin(hint) is tuple else [hint]
    field_types = [data_type for data_type in map(_infer_type, parts) if data_type is not None]
    if len(field_types) < len(parts):
        raise _unknown(function, name, "result_types")
    return RowType([RowField(f"f{index}", data_type) for index, data_type in enumerate(field_types)], False)


def _returned(function: Callable[..., Any], name: str, parameter: str) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "__annotations__") and hasattr(function, "__call__"):  # noqa: B004 - its own is wanted
        function = function.__call__
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError) as error:
        raise ValidationError(
            f"the annotations of function {name!r} cannot be read: {error}; give its {parameter}"
        ) from error
    if "return" not in hints:
        raise _unknown(function, name, parameter)
    return hints["return"]


def _unknown(function: Callable[..., Any], name: str, parameter: str) -> ValidationError:
    hint = getattr(function, "__annotations__", {}).get("return")
    says = "has no annotation of what it returns" if hint is None else f"is annotated with {hint}, which says no type"
    example = "DataTypes.BIGINT()" if parameter == "result_type" else '["BIGINT", "STRING"]'
    return ValidationError(
        f"function {name!r} {says}: write {parameter}={example}, or annotate it with one of "
        "int, str, float, bool, bytes, Decimal, date, time, datetime, timedelta, list[T], dict[K, V] and Optional[T]"
    )


def _not_none(hint: Any) -> Any:
    """Strip `Optional` from `Optional[T]`."""
    if typing.get_origin(hint) in _UNIONS:
        parts = [argument for argument in typing.get_args(hint) if argument is not type(None)]
        return parts[0] if len(parts) == 1 else hint
    return hint


def _infer_type(hint: Any) -> DataType | None:
    hint = _not_none(hint)
    if typing.get_origin(hint) is typing.Annotated:
        return _infer_type(typing.get_args(hint)[0])
    plain = _PLAIN.get(hint) if isinstance(hint, type) and typing.get_origin(hint) is None else None
    if plain is not None:
        return plain
    parts = [_infer_type(argument) for argument in typing.get_args(hint)]
    match typing.get_origin(hint), parts:
        case origin, [DataType() as element] if origin in (list, collections.abc.Sequence):
            return types.ArrayType(element)
        case origin, [DataType() as key, DataType() as item] if origin in (dict, collections.abc.Mapping):
            return types.MapType(key, item)
        case _:
            return None
