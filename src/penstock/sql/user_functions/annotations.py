"""Types from the annotations of functions, and declared types given as such or as text.

`-> int` is BIGINT, `-> list[str]` ARRAY<STRING>, and so on.
"""

from __future__ import annotations

import collections.abc
import datetime
import decimal
import functools
import types as python_types
import typing
from collections.abc import Callable, Iterable
from typing import Any, Final

from penstock.base.errors import WrongTypeError
from penstock.sql.data import types
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType, RowField, RowType
from penstock.sql.parser.types import TypeParser

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
MANY: Final = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncGenerator,
    collections.abc.Sequence,
    list,
)
_UNIONS: Final = (typing.Union, python_types.UnionType)


def infer_result_type(function: Callable[..., Any], name: str) -> DataType:
    """Return a function's annotated result type. Raises `ValidationError` if the annotations do not determine it."""
    data_type = infer_type(_returned(function, name, "result_type"))
    if data_type is None:
        raise _unknown(function, name, "result_type")
    return data_type


def infer_row_type(function: Callable[..., Any], name: str) -> RowType:
    """Return a table function's annotated columns: `Iterator[tuple[int, str]]`, or `list[int]` for one column.

    Raises `ValidationError` if the annotations do not determine them.
    """
    hint = not_none(_returned(function, name, "result_types"))
    if typing.get_origin(hint) in MANY:
        hint = typing.get_args(hint)[0]
    parts = list(typing.get_args(hint)) if typing.get_origin(hint) is tuple else [hint]
    field_types = [data_type for data_type in map(infer_type, parts) if data_type is not None]
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


def not_none(hint: Any) -> Any:
    """Strip `Optional` from `Optional[T]`."""
    if typing.get_origin(hint) in _UNIONS:
        parts = [argument for argument in typing.get_args(hint) if argument is not type(None)]
        return parts[0] if len(parts) == 1 else hint
    return hint


def infer_type(hint: Any) -> DataType | None:
    """Return the type that an annotation stands for, or None if it stands for none."""
    hint = not_none(hint)
    if typing.get_origin(hint) is typing.Annotated:
        return infer_type(typing.get_args(hint)[0])
    plain = _PLAIN.get(hint) if isinstance(hint, type) and typing.get_origin(hint) is None else None
    if plain is not None:
        return plain
    parts = [infer_type(argument) for argument in typing.get_args(hint)]
    match typing.get_origin(hint), parts:
        case origin, [DataType() as element] if origin in (list, collections.abc.Sequence):
            return types.ArrayType(element)
        case origin, [DataType() as key, DataType() as item] if origin in (dict, collections.abc.Mapping):
            return types.MapType(key, item)
        case _:
            return None


def parse_declared_type(declared: object, parameter: str) -> DataType:
    """Return a type given as such or as text. Raises `TypeError` for anything else."""
    if isinstance(declared, DataType):
        return declared
    if isinstance(declared, str):
        parser = TypeParser(declared)
        kind = parser.data_type()
        parser.finish()
        return kind
    raise WrongTypeError(f"Invalid {parameter}: {parameter} should be DataType or str but is {declared!r}")


def parse_declared_types(declared: object, parameter: str) -> tuple[DataType, ...] | None:
    """Return operand types given as one or several; None if they are not declared."""
    if declared is None:
        return None
    many = declared if isinstance(declared, list | tuple) else [declared]
    return tuple(parse_declared_type(item, parameter) for item in many)


def to_row_type(result_types: object) -> RowType:
    """Return a table function's columns, given one type for each, a ROW of all, or one type for the only column."""
    if isinstance(result_types, Iterable) and not isinstance(result_types, str | DataType):
        kinds = [parse_declared_type(declared, "result_type") for declared in result_types]
    else:
        data_type = parse_declared_type(result_types, "result_type")
        if isinstance(data_type, RowType):
            return data_type
        kinds = [data_type]
    return RowType([RowField(f"f{index}", kind) for index, kind in enumerate(kinds)], False)
