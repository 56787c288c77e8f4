"""Defines functions from classes, plain functions, and import paths such as `module.name`."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

from penstock.base.errors import UnsupportedError, WrongTypeError, WrongValueError
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import DataType, RowField, RowType
from penstock.table.sql.type_parser import TypeParser
from penstock.table.user_functions.aggregate_classes import (
    AggregateFunction,
    ImperativeAggregateFunction,
    TableAggregateFunction,
    implements,
)
from penstock.table.user_functions.annotations import result_of, rows_of
from penstock.table.user_functions.classes import (
    AsyncScalarFunction,
    Delegating,
    ScalarFunction,
    TableFunction,
    UserDefinedFunction,
)
from penstock.table.user_functions.definition import FUNC_TYPES, GENERAL, FunctionKind, UserFunction


@runtime_checkable
class Defined(Protocol):
    """The result of `udf`, `udtf`, `udaf` or `udtaf`."""

    @property
    def definition(self) -> UserFunction:
        """The function."""


def type_of(found: object, what: str) -> DataType:
    """Return a type given as such or as text. Raises `TypeError` for anything else."""
    if isinstance(found, DataType):
        return found
    if isinstance(found, str):
        parser = TypeParser(found)
        kind = parser.data_type()
        parser.finish()
        return kind
    raise WrongTypeError(f"Invalid {what}: {what} should be DataType or str but is {found!r}")


def types_of(found: object, what: str) -> tuple[DataType, ...] | None:
    """Return operand types given as one or several; None if they are not declared."""
    if found is None:
        return None
    many = found if isinstance(found, list | tuple) else [found]
    return tuple(type_of(one, what) for one in many)


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
    runs = _object_of(function, (ScalarFunction, AsyncScalarFunction), "ScalarFunction")
    title = name or name_of(function)
    is_async = inspect.iscoroutinefunction(_plain(runs.eval)) or isinstance(function, AsyncScalarFunction)
    if is_async and func_type != GENERAL:
        raise WrongValueError(f"function {title!r} is asynchronous: its func_type is general, not {func_type}")
    found = result_of(runs.eval, title) if result_type is None else type_of(result_type, "returnType")
    return UserFunction(
        title,
        FunctionKind.ASYNC_SCALAR if is_async else FunctionKind.SCALAR,
        runs,
        found,
        types_of(input_types, "input_type"),
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
    runs = _object_of(function, (TableFunction,), "TableFunction")
    title = name or name_of(function)
    plain = _plain(runs.eval)
    if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
        raise UnsupportedError(
            f"table function {title!r} is asynchronous, which is not supported: make it a plain function, or take an "
            "asynchronous scalar function that gives an array, and UNNEST"
        )
    rows = rows_of(runs.eval, title) if result_types is None else _row_type(result_types)
    given = types_of(input_types, "input_type")
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
    wanted = TableAggregateFunction if gives_rows else AggregateFunction
    runs = _object_of(function, (wanted,), wanted.__name__)
    title = name or name_of(function)
    if func_type == GENERAL and isinstance(runs, Delegating):
        raise WrongTypeError(
            f"Invalid function: {title!r} is a plain function; one of func_type 'general' is an object of a class that "
            f"derives from {wanted.__name__}" + ("" if gives_rows else ", and plain ones are of func_type 'pandas'")
        )
    if result_type is None and implements(runs, "get_result_type"):
        result_type = runs.get_result_type()
    if accumulator_type is None and implements(runs, "get_accumulator_type"):
        accumulator_type = runs.get_accumulator_type()
    found: DataType
    if gives_rows:
        found = rows_of(runs.emit_value, title) if result_type is None else _row_type(result_type)
    else:
        gives = runs.eval if isinstance(runs, Delegating) else runs.get_value
        found = result_of(gives, title) if result_type is None else type_of(result_type, "returnType")
    return UserFunction(
        title,
        FunctionKind.TABLE_AGGREGATE if gives_rows else FunctionKind.AGGREGATE,
        runs,
        found,
        types_of(input_types, "input_type"),
        func_type,
        _determined(function, deterministic),
        None if accumulator_type is None else type_of(accumulator_type, "accumulator_type"),
    )


def define(found: Any, name: str) -> UserFunction:
    """Define a function from an object that a program registers or names in SQL.

    Raises:
        TypeError: if it is not a function.
    """
    if isinstance(found, Defined) and not isinstance(found, type):
        return found.definition.called(name)
    if isinstance(found, type) and issubclass(found, UserDefinedFunction):
        found = found()
    if isinstance(found, TableFunction):
        return define_table(found, name=name)
    if isinstance(found, ImperativeAggregateFunction):
        return define_aggregate(found, name=name, gives_rows=isinstance(found, TableAggregateFunction))
    if isinstance(found, ScalarFunction | AsyncScalarFunction) or (
        callable(found) and not isinstance(found, type | UserDefinedFunction)
    ):
        return define_scalar(found, name=name)
    raise WrongTypeError(f"Invalid function {name!r}: {found!r} is not what udf, udtf, udaf or udtaf make")


def load(target: str, name: str) -> UserFunction:
    """Import the function at `module.name`. Raises `ValidationError` if it does not exist."""
    module, _, attribute = target.rpartition(".")
    if not module:
        raise ValidationError(f"function {name}: the path of a function in Python is module.name, not {target!r}")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ValidationError(
            f"function {name}: cannot import {target!r}: {error}; ship the module with add_python_file"
        ) from error
    except AttributeError as error:
        raise ValidationError(f"function {name}: there is no {attribute!r} in module {module!r}") from error
    return define(found, name)


def name_of(function: Any) -> str:
    """Return the name of a function, or of its class."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _object_of(function: Any, classes: tuple[type, ...], expected: str) -> Any:
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
        kinds = [type_of(one, "result_type") for one in result_types]
    else:
        found = type_of(result_types, "result_type")
        if isinstance(found, RowType):
            return found
        kinds = [found]
    return RowType([RowField(f"f{index}", kind) for index, kind in enumerate(kinds)], False)
