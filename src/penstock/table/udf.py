"""Functions of the program in tables, under the names of `pyflink.table.udf`.

Make a function with `udf`, `udtf`, `udaf` or `udtaf`, as a call or as a decorator. Call it in the Table API with
columns, or register it by `create_temporary_function` and call it in SQL by its name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Self, overload

from penstock.base.errors import WrongTypeError
from penstock.table.analyser.inline_calls import inline_call
from penstock.table.expression import Expression
from penstock.table.methods.operand import node_of
from penstock.table.user_functions.aggregate_classes import (
    AggregateFunction,
    ImperativeAggregateFunction,
    TableAggregateFunction,
)
from penstock.table.user_functions.classes import (
    AsyncScalarFunction,
    FunctionContext,
    ScalarFunction,
    TableFunction,
    UserDefinedFunction,
)
from penstock.table.user_functions.defining import define_aggregate, define_scalar, define_table
from penstock.table.user_functions.definition import UserFunction

__all__ = [
    "AggregateFunction",
    "AsyncScalarFunction",
    "FunctionContext",
    "ImperativeAggregateFunction",
    "ScalarFunction",
    "TableAggregateFunction",
    "TableFunction",
    "UserDefinedAggregateFunctionWrapper",
    "UserDefinedFunction",
    "UserDefinedFunctionWrapper",
    "UserDefinedScalarFunctionWrapper",
    "UserDefinedTableFunctionWrapper",
    "udaf",
    "udf",
    "udtaf",
    "udtf",
]


class UserDefinedFunctionWrapper:
    """A function that can be called with columns, and registered under a name."""

    def __init__(self, definition: UserFunction) -> None:
        self.definition = definition
        self._aliases: tuple[str, ...] = ()
        self.__name__ = definition.name
        runs = definition.function
        self.__doc__ = runs.eval.__doc__ if hasattr(runs, "eval") else type(runs).__doc__

    def __call__(self, *args: object) -> Expression:
        """A call of the function: `add(col("a"), 1)`. Values of Python become literals."""
        call = inline_call(self.definition, tuple(map(node_of, args)))
        return Expression(call, self._aliases)

    def alias(self, *alias_names: str) -> Self:
        """The function with names for the columns that it gives."""
        found = type(self)(self.definition)
        found._aliases = alias_names
        return found

    def __repr__(self) -> str:
        return f"<{self.definition}>"


class UserDefinedScalarFunctionWrapper(UserDefinedFunctionWrapper):
    """What `udf` makes."""


class UserDefinedTableFunctionWrapper(UserDefinedFunctionWrapper):
    """What `udtf` makes."""


class UserDefinedAggregateFunctionWrapper(UserDefinedFunctionWrapper):
    """What `udaf` and `udtaf` make."""


@overload
def udf(
    f: None = None,
    input_types: object = None,
    result_type: object = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> Callable[[Callable[..., Any]], UserDefinedScalarFunctionWrapper]: ...
@overload
def udf(
    f: Callable[..., Any] | ScalarFunction | AsyncScalarFunction,
    input_types: object = None,
    result_type: object = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> UserDefinedScalarFunctionWrapper: ...
def udf(
    f: Callable[..., Any] | ScalarFunction | AsyncScalarFunction | None = None,
    input_types: object = None,
    result_type: object = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> Any:
    """Make a scalar function, which gives one value for each row. Without `f` it is a decorator.

    Args:
        f: a function, a lambda, a `functools.partial`, or an object of a class that derives from `ScalarFunction` or
            `AsyncScalarFunction`. With `async def` the calls of a batch wait together.
        input_types: to which operands are cast: a type, or one for each; None to take all as they are.
        result_type: of the value, one of `DataTypes` or its text (`"BIGINT"`); None for the one that the annotations
            say.
        deterministic: whether the same operands give the same value each time; True unless it is said.
        name: what messages and plans call it; None for its own name.
        func_type: `general` for values row by row, `pandas` for a `pandas.Series` of each operand, `arrow` for a
            `pyarrow.Array` of each (Penstock's own); the last two return one of the same length.

    Raises:
        TypeError: if it is no function, or a type is none.
        ValueError: for an unknown `func_type`.
        ValidationError: if nothing says the type of its value.
    """
    if f is None:
        return functools.partial(
            udf,
            input_types=input_types,
            result_type=result_type,
            deterministic=deterministic,
            name=name,
            func_type=func_type,
        )
    return UserDefinedScalarFunctionWrapper(define_scalar(f, input_types, result_type, deterministic, name, func_type))


@overload
def udtf(
    f: None = None,
    input_types: object = None,
    result_types: object = None,
    deterministic: bool | None = None,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], UserDefinedTableFunctionWrapper]: ...
@overload
def udtf(
    f: Callable[..., Any] | TableFunction,
    input_types: object = None,
    result_types: object = None,
    deterministic: bool | None = None,
    name: str | None = None,
) -> UserDefinedTableFunctionWrapper: ...
def udtf(
    f: Callable[..., Any] | TableFunction | None = None,
    input_types: object = None,
    result_types: object = None,
    deterministic: bool | None = None,
    name: str | None = None,
) -> Any:
    """Make a table function, which gives any number of rows for each row. Without `f` it is a decorator.

    It gives a list, a range or an iterator of rows, or one row, or None for none. A row is a tuple or a `Row`; with one
    column it may be the value itself.

    Args:
        f: a function, a lambda, a `functools.partial`, or an object of a class that derives from `TableFunction`.
        input_types: to which operands are cast: a type, or one for each; None to take all as they are.
        result_types: of the columns: a type for each, or a ROW, or one type for the only column; as `DataTypes` or
            text; None for those that the annotations say, such as `Iterator[tuple[int, str]]`. Columns without a name
            are `f0`, `f1` and so on.
        deterministic: whether the same operands give the same rows each time; True unless it is said.
        name: what messages and plans call it; None for its own name.

    Raises:
        TypeError: if it is no function, or a type is none.
        ValidationError: if nothing says the types of its columns.
        NotImplementedError: if it is asynchronous.
    """
    if f is None:
        return functools.partial(
            udtf, input_types=input_types, result_types=result_types, deterministic=deterministic, name=name
        )
    return UserDefinedTableFunctionWrapper(define_table(f, input_types, result_types, deterministic, name))


@overload
def udaf(
    f: None = None,
    input_types: object = None,
    result_type: object = None,
    accumulator_type: object = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> Callable[[Callable[..., Any]], UserDefinedAggregateFunctionWrapper]: ...
@overload
def udaf(
    f: Callable[..., Any] | AggregateFunction[Any, Any],
    input_types: object = None,
    result_type: object = None,
    accumulator_type: object = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> UserDefinedAggregateFunctionWrapper: ...
def udaf(
    f: Callable[..., Any] | AggregateFunction[Any, Any] | None = None,
    input_types: object = None,
    result_type: object = None,
    accumulator_type: object = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> Any:
    """Make an aggregate function, which gives one value for all rows of a group. Without `f` it is a decorator.

    Args:
        f: an object of a class that derives from `AggregateFunction`; with another `func_type` than `general` also a
            function, a lambda or a `functools.partial`, which gets all rows at once.
        input_types: to which operands are cast: a type, or one for each; None to take all as they are.
        result_type: of the value, one of `DataTypes` or its text (`"BIGINT"`); None for what `get_result_type` or the
            annotation says.
        accumulator_type: of the accumulator; it may be left out, because accumulators are pickled.
        deterministic: whether the same rows give the same value each time; True unless it is said.
        name: what messages and plans call it; None for its own name.
        func_type: `general` for accumulators that are kept up row by row, `pandas` for a `pandas.Series` of all values
            of each operand, `arrow` for a `pyarrow.Array` of each (Penstock's own). In streams the last two go over
            windows alone.

    Raises:
        TypeError: if it is no aggregate function, or a type is none.
        ValueError: for an unknown `func_type`.
        ValidationError: if nothing says the type of its value.
    """
    if f is None:
        return functools.partial(
            udaf,
            input_types=input_types,
            result_type=result_type,
            accumulator_type=accumulator_type,
            deterministic=deterministic,
            name=name,
            func_type=func_type,
        )
    return UserDefinedAggregateFunctionWrapper(
        define_aggregate(f, input_types, result_type, accumulator_type, deterministic, name, func_type)
    )


def udtaf(
    f: TableAggregateFunction[Any, Any] | None = None,
    input_types: object = None,
    result_type: object = None,
    accumulator_type: object = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> Any:
    """Make a table aggregate function, which gives any number of rows for all rows of a group.

    Args:
        f: an object of a class that derives from `TableAggregateFunction`.
        input_types: to which operands are cast: a type, or one for each; None to take all as they are.
        result_type: of the columns: a ROW, a type for each, or one type for the only column, as `DataTypes` or text;
            None for what `get_result_type` or the annotation of `emit_value` says. Columns without a name are `f0`,
            `f1` and so on.
        accumulator_type: of the accumulator; it may be left out, because accumulators are pickled.
        deterministic: whether the same rows give the same rows each time; True unless it is said.
        name: what messages and plans call it; None for its own name.
        func_type: `general`, the only one there is.

    Raises:
        TypeError: if it is no table aggregate function, or a type is none.
        ValueError: for another `func_type`.
        ValidationError: if nothing says the types of its columns.
    """
    if f is None:
        return functools.partial(
            udtaf,
            input_types=input_types,
            result_type=result_type,
            accumulator_type=accumulator_type,
            deterministic=deterministic,
            name=name,
            func_type=func_type,
        )
    return UserDefinedAggregateFunctionWrapper(
        define_aggregate(f, input_types, result_type, accumulator_type, deterministic, name, func_type, gives_rows=True)
    )


def wrapper_of(function: object) -> UserDefinedFunctionWrapper:
    """What `udf` and its like have made. Raises `TypeError` for anything else."""
    if not isinstance(function, UserDefinedFunctionWrapper):
        raise WrongTypeError(f"a function is one that udf, udtf, udaf or udtaf made, not {function!r}")
    return function
