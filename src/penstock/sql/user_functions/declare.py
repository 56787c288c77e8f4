"""Defines functions from classes, plain functions, and import paths such as `module.name`.

Types come from a function's annotations: `-> int` is BIGINT, `-> list[str]` ARRAY<STRING>, and so on.
"""

from __future__ import annotations

import collections.abc
import datetime
import decimal
import functools
import importlib
import inspect
import types as python_types
import typing
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, runtime_checkable

from penstock.base.errors import UnsupportedError, WrongTypeError, WrongValueError
from penstock.sql.data import types
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType, RowField, RowType
from penstock.sql.parser.types import TypeParser
from penstock.sql.user_functions.classes import (
    AggregateFunction,
    AsyncScalarFunction,
    Delegating,
    ImperativeAggregateFunction,
    ScalarFunction,
    TableAggregateFunction,
    TableFunction,
    UserDefinedFunction,
    implements,
)
from penstock.sql.user_functions.definition import FUNC_TYPES, GENERAL, FunctionKind, UserFunction

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


@runtime_checkable
class Defined(Protocol):
    """The result of `udf`, `udtf`, `udaf` or `udtaf`."""

    @property
    def definition(self) -> UserFunction:
        """The function."""


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


def define_scalar(
    function: Any,
    input_types: object = None,
    result_type: object = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = GENERAL,
) -> UserFunction:
    """Define a scalar function, asynchronous if its `eval` is. See `penstock.table.udf.udf`."""
    if func_type not in FUNC_TYPES:
        raise WrongValueError(f"The func_type must be one of '{', '.join(FUNC_TYPES)}', got {func_type}.")
    runs = _to_function_object(function, (ScalarFunction, AsyncScalarFunction), "ScalarFunction")
    title = name or get_function_name(function)
    is_async = inspect.iscoroutinefunction(_plain(runs.eval)) or isinstance(function, AsyncScalarFunction)
    if is_async and func_type != GENERAL:
        raise WrongValueError(f"function {title!r} is asynchronous: its func_type is general, not {func_type}")
    return_type = (
        infer_result_type(runs.eval, title) if result_type is None else parse_declared_type(result_type, "returnType")
    )
    return UserFunction(
        title,
        FunctionKind.ASYNC_SCALAR if is_async else FunctionKind.SCALAR,
        runs,
        return_type,
        parse_declared_types(input_types, "input_type"),
        func_type,
        _determined(function, deterministic),
    )


def define_table(
    function: Any,
    input_types: object = None,
    result_types: object = None,
    deterministic: bool | None = None,
    name: str | None = None,
) -> UserFunction:
    """Define a table function. See `penstock.table.udf.udtf`."""
    runs = _to_function_object(function, (TableFunction,), "TableFunction")
    title = name or get_function_name(function)
    plain = _plain(runs.eval)
    if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
        raise UnsupportedError(
            f"table function {title!r} is asynchronous, which is not supported: make it a plain function, or take an "
            "asynchronous scalar function that gives an array, and UNNEST"
        )
    rows = infer_row_type(runs.eval, title) if result_types is None else _row_type(result_types)
    given = parse_declared_types(input_types, "input_type")
    return UserFunction(title, FunctionKind.TABLE, runs, rows, given, GENERAL, _determined(function, deterministic))


def define_aggregate(
    function: Any,
    input_types: object = None,
    result_type: object = None,
    accumulator_type: object = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = GENERAL,
    gives_rows: bool = False,
) -> UserFunction:
    """Define an aggregate function, or a table aggregate function (`gives_rows`). See `penstock.table.udf`."""
    types = (GENERAL,) if gives_rows else FUNC_TYPES
    if func_type not in types:
        raise WrongValueError(f"The func_type must be one of '{', '.join(types)}', got {func_type}.")
    base_class = TableAggregateFunction if gives_rows else AggregateFunction
    runs = _to_function_object(function, (base_class,), base_class.__name__)
    title = name or get_function_name(function)
    if func_type == GENERAL and isinstance(runs, Delegating):
        raise WrongTypeError(
            f"Invalid function: {title!r} is a plain function; one of func_type 'general' is an object of a class that "
            f"derives from {base_class.__name__}" + ("" if gives_rows else ", and plain ones are of func_type 'pandas'")
        )
    if result_type is None and implements(runs, "get_result_type"):
        result_type = runs.get_result_type()
    if accumulator_type is None and implements(runs, "get_accumulator_type"):
        accumulator_type = runs.get_accumulator_type()
    return_type: DataType
    if gives_rows:
        return_type = infer_row_type(runs.emit_value, title) if result_type is None else _row_type(result_type)
    else:
        gives = runs.eval if isinstance(runs, Delegating) else runs.get_value
        return_type = (
            infer_result_type(gives, title) if result_type is None else parse_declared_type(result_type, "returnType")
        )
    return UserFunction(
        title,
        FunctionKind.TABLE_AGGREGATE if gives_rows else FunctionKind.AGGREGATE,
        runs,
        return_type,
        parse_declared_types(input_types, "input_type"),
        func_type,
        _determined(function, deterministic),
        None if accumulator_type is None else parse_declared_type(accumulator_type, "accumulator_type"),
    )


def define(function: Any, name: str) -> UserFunction:
    """Define a function from an object that a program registers or names in SQL.

    Raises:
        TypeError: if it is not a function.
    """
    if isinstance(function, Defined) and not isinstance(function, type):
        return function.definition.called(name)
    if isinstance(function, type) and issubclass(function, UserDefinedFunction):
        function = function()
    if isinstance(function, TableFunction):
        return define_table(function, name=name)
    if isinstance(function, ImperativeAggregateFunction):
        return define_aggregate(function, name=name, gives_rows=isinstance(function, TableAggregateFunction))
    if isinstance(function, ScalarFunction | AsyncScalarFunction) or (
        callable(function) and not isinstance(function, type | UserDefinedFunction)
    ):
        return define_scalar(function, name=name)
    raise WrongTypeError(f"Invalid function {name!r}: {function!r} is not what udf, udtf, udaf or udtaf make")


def load(target: str, name: str) -> UserFunction:
    """Import the function at `module.name`. Raises `ValidationError` if it does not exist."""
    module, _, attribute = target.rpartition(".")
    if not module:
        raise ValidationError(f"function {name}: the path of a function in Python is module.name, not {target!r}")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ValidationError(
            f"function {name}: cannot import {target!r}: {error}; ship the module with add_python_file"
        ) from error
    except AttributeError as error:
        raise ValidationError(f"function {name}: there is no {attribute!r} in module {module!r}") from error
    return define(function, name)


def get_function_name(function: Any) -> str:
    """Return the name of a function, or of its class."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _to_function_object(function: Any, classes: tuple[type, ...], expected: str) -> Any:
    """Return the object that evaluates the function; a plain function is wrapped."""
    if isinstance(function, classes):
        return function
    if isinstance(function, type) and issubclass(function, UserDefinedFunction):
        raise WrongTypeError(f"Invalid function: {function.__name__} is a class; give an object: {function.__name__}()")
    if isinstance(function, UserDefinedFunction):
        raise WrongTypeError(f"Invalid function: a {expected} is expected, not {type(function).__name__}")
    if not callable(function):
        raise WrongTypeError(
            f"Invalid function: not a function or callable (__call__ is not defined): {type(function)}"
        )
    return Delegating(function)


def _plain(function: Callable[..., Any]) -> Any:
    """Unwrap partials and callable objects to the underlying function."""
    while isinstance(function, functools.partial):
        function = function.func
    is_code = inspect.isfunction(function) or inspect.ismethod(function) or inspect.isbuiltin(function)
    return function if is_code else getattr(function, "__call__", function)  # noqa: B004 - its own is wanted


def _determined(function: Any, deterministic: bool | None) -> bool:
    if not isinstance(function, UserDefinedFunction):
        return deterministic is not False
    own = function.is_deterministic()
    if deterministic is not None and deterministic != own:
        raise WrongValueError(f"Inconsistent deterministic: {deterministic} and {own}")
    return own


def _row_type(result_types: object) -> RowType:
    """Return a table function's columns, given one type for each, a ROW of all, or one type for the only column."""
    if isinstance(result_types, Iterable) and not isinstance(result_types, str | DataType):
        kinds = [parse_declared_type(declared, "result_type") for declared in result_types]
    else:
        data_type = parse_declared_type(result_types, "result_type")
        if isinstance(data_type, RowType):
            return data_type
        kinds = [data_type]
    return RowType([RowField(f"f{index}", kind) for index, kind in enumerate(kinds)], False)
