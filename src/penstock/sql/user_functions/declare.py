"""Defines functions from classes, plain functions, and import paths such as `module.name`."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from penstock.base.errors import UnsupportedError, WrongTypeError, WrongValueError
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.user_functions.annotations import (
    infer_result_type,
    infer_row_type,
    parse_declared_type,
    parse_declared_types,
    to_row_type,
)
from penstock.sql.user_functions.classes import (
    AggregateFunction,
    AsyncScalarFunction,
    AsyncTableFunction,
    Delegating,
    ImperativeAggregateFunction,
    ScalarFunction,
    TableAggregateFunction,
    TableFunction,
    UserDefinedFunction,
    implements,
)
from penstock.sql.user_functions.definition import FUNC_TYPES, GENERAL, FunctionKind, UserFunction
from penstock.sql.user_functions.process import ProcessTableFunction
from penstock.sql.user_functions.signature import define_process


@runtime_checkable
class Defined(Protocol):
    """The result of `udf`, `udtf`, `udaf` or `udtaf`."""

    @property
    def definition(self) -> UserFunction:
        """The function."""


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
    plain = _plain(runs.eval)
    if inspect.isasyncgenfunction(plain):
        raise WrongTypeError(f"Invalid function: {title!r} yields rows, so it is no scalar function: pass it to udtf")
    is_async = inspect.iscoroutinefunction(plain) or isinstance(function, AsyncScalarFunction)
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
    """Define a table function, asynchronous if its `eval` is. See `penstock.table.udf.udtf`."""
    runs = _to_function_object(function, (TableFunction, AsyncTableFunction), "TableFunction")
    title = name or get_function_name(function)
    plain = _plain(runs.eval)
    is_async = inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain)
    kind = FunctionKind.ASYNC_TABLE if is_async or isinstance(function, AsyncTableFunction) else FunctionKind.TABLE
    rows = infer_row_type(runs.eval, title) if result_types is None else to_row_type(result_types)
    given = parse_declared_types(input_types, "input_type")
    return UserFunction(title, kind, runs, rows, given, GENERAL, _determined(function, deterministic))


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
    methods = [runs.eval] if isinstance(runs, Delegating) else [runs.accumulate]
    if any(inspect.iscoroutinefunction(_plain(method)) for method in methods):
        raise UnsupportedError(
            f"aggregate function {title!r} is asynchronous, which is not supported: call a service in an asynchronous "
            "scalar function first, and aggregate its results"
        )
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
        return_type = infer_row_type(runs.emit_value, title) if result_type is None else to_row_type(result_type)
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
    if isinstance(function, TableFunction | AsyncTableFunction):
        return define_table(function, name=name)
    if isinstance(function, ProcessTableFunction):
        return define_process(function, name=name)
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
