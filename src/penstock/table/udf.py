"""User-defined functions for tables, under the names of `pyflink.table.udf`.

Create a function with `udf`, `udtf`, `udaf` or `udtaf`, as a call or as a decorator. Call it on columns in the Table
API, or register it with `create_temporary_function` and call it by name in SQL. Process table functions take whole
tables: derive from `ProcessTableFunction`, and call the class, or what `udptf` makes of it, by `Table.process`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Self, overload

from penstock.base.errors import WrongTypeError
from penstock.sql.analyzer.calls import inline_call
from penstock.sql.expressions.builder import to_node
from penstock.sql.user_functions.classes import (
    AggregateFunction,
    AsyncScalarFunction,
    AsyncTableFunction,
    FunctionContext,
    ImperativeAggregateFunction,
    ScalarFunction,
    TableAggregateFunction,
    TableFunction,
    UserDefinedFunction,
)
from penstock.sql.user_functions.declare import define_aggregate, define_scalar, define_table
from penstock.sql.user_functions.definition import UserFunction
from penstock.sql.user_functions.process import (
    ArgumentHint,
    ArgumentTrait,
    CallContext,
    ChangelogContext,
    ColumnList,
    Context,
    OnTimerContext,
    ProcessTableFunction,
    SortDirection,
    StateHint,
    TableSemantics,
    TimeContext,
)
from penstock.sql.user_functions.signature import (
    ProcessFunction,
    ProcessTableFunctionArgument,
    ProcessTableFunctionState,
    define_process,
)
from penstock.table.expression import Expression

#: the name of a proposal for PyFlink
ProcessTableFunctionArgumentTrait = ArgumentTrait

__all__ = [
    "AggregateFunction",
    "ArgumentHint",
    "ArgumentTrait",
    "AsyncScalarFunction",
    "AsyncTableFunction",
    "CallContext",
    "ChangelogContext",
    "ColumnList",
    "Context",
    "FunctionContext",
    "ImperativeAggregateFunction",
    "OnTimerContext",
    "ProcessTableFunction",
    "ProcessTableFunctionArgument",
    "ProcessTableFunctionArgumentTrait",
    "ProcessTableFunctionState",
    "ScalarFunction",
    "SortDirection",
    "StateHint",
    "TableAggregateFunction",
    "TableFunction",
    "TableSemantics",
    "TimeContext",
    "UserDefinedAggregateFunctionWrapper",
    "UserDefinedFunction",
    "UserDefinedFunctionWrapper",
    "UserDefinedProcessTableFunctionWrapper",
    "UserDefinedScalarFunctionWrapper",
    "UserDefinedTableFunctionWrapper",
    "udaf",
    "udf",
    "udptf",
    "udtaf",
    "udtf",
]


class UserDefinedFunctionWrapper:
    """A function that can be called on columns and registered under a name."""

    def __init__(self, definition: UserFunction) -> None:
        self.definition = definition
        self._aliases: tuple[str, ...] = ()
        self.__name__ = definition.name
        runs = definition.function
        self.__doc__ = runs.eval.__doc__ if hasattr(runs, "eval") else type(runs).__doc__

    def __call__(self, *args: object) -> Expression:
        """Build a call of the function: `add(col("a"), 1)`. Python values become literals."""
        call = inline_call(self.definition, tuple(map(to_node, args)))
        return Expression(call, self._aliases)

    def alias(self, *alias_names: str) -> Self:
        """Return the function with names for its result columns."""
        copied = type(self)(self.definition)
        copied._aliases = alias_names
        return copied

    def __repr__(self) -> str:
        return f"<{self.definition}>"


class UserDefinedScalarFunctionWrapper(UserDefinedFunctionWrapper):
    """A scalar function, created by `udf`."""


class UserDefinedTableFunctionWrapper(UserDefinedFunctionWrapper):
    """A table function, created by `udtf`."""


class UserDefinedProcessTableFunctionWrapper(UserDefinedFunctionWrapper):
    """A process table function, created by `udptf`."""

    definition: ProcessFunction

    def __call__(self, *args: object) -> Expression:
        """Raise `TypeError`: it takes tables, so it is called by `Table.process` or `TableEnvironment.from_call`."""
        raise WrongTypeError(f"{self.definition} takes tables: call it by table.process(…) or t_env.from_call(…)")


class UserDefinedAggregateFunctionWrapper(UserDefinedFunctionWrapper):
    """An aggregate or table aggregate function, created by `udaf` or `udtaf`."""


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
    """Create a scalar function, which returns one value for each row. Without `f` it is a decorator.

    Args:
        f: a function, a lambda, a `functools.partial`, or an instance of a subclass of `ScalarFunction` or
            `AsyncScalarFunction`. With `async def`, the calls of a batch run concurrently.
        input_types: the types that operands are cast to: one type, or one for each; None to pass operands uncast.
        result_type: the type of the value, one of `DataTypes` or its text (`"BIGINT"`); None for the annotated type.
        deterministic: whether the same operands always give the same value; True by default.
        name: the name in messages and plans; None for the function's own name.
        func_type: `general` for values row by row, `pandas` for a `pandas.Series` of each operand, `arrow` for a
            `pyarrow.Array` of each (specific to Penstock); the last two return one of the same length.

    Raises:
        TypeError: if `f` is not a function, or a type is invalid.
        ValueError: for an unknown `func_type`.
        ValidationError: if the result type is neither given nor annotated.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import col
        >>> from penstock.table.udf import udf
        >>> @udf(result_type="BIGINT")
        ... def plus_one(number):
        ...     return number + 1
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> list(t_env.from_elements([(1,), (2,)], ["n"]).select(plus_one(col("n"))).execute().collect())
        [<Row(2)>, <Row(3)>]
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
    f: Callable[..., Any] | TableFunction | AsyncTableFunction,
    input_types: object = None,
    result_types: object = None,
    deterministic: bool | None = None,
    name: str | None = None,
) -> UserDefinedTableFunctionWrapper: ...
def udtf(
    f: Callable[..., Any] | TableFunction | AsyncTableFunction | None = None,
    input_types: object = None,
    result_types: object = None,
    deterministic: bool | None = None,
    name: str | None = None,
) -> Any:
    """Create a table function, which returns any number of rows for each row. Without `f` it is a decorator.

    It returns a list, a range or an iterator of rows, or a single row, or None for no rows. A row is a tuple or a
    `Row`; with one column it may be the value itself.

    Args:
        f: a function, a lambda, a `functools.partial`, or an instance of a subclass of `TableFunction` or
            `AsyncTableFunction`. With `async def`, the calls of a batch run concurrently.
        input_types: the types that operands are cast to: one type, or one for each; None to pass operands uncast.
        result_types: the column types: a type for each, or a ROW, or one type for the only column, as `DataTypes` or
            text; None for the annotated types, such as `Iterator[tuple[int, str]]`. Columns without a name are `f0`,
            `f1` and so on.
        deterministic: whether the same operands always give the same rows; True by default.
        name: the name in messages and plans; None for the function's own name.

    Raises:
        TypeError: if `f` is not a function, or a type is invalid.
        ValidationError: if the column types are neither given nor annotated.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import col
        >>> from penstock.table.udf import udtf
        >>> @udtf(result_types=["STRING", "INT"])
        ... def words(line):
        ...     for word in line.split():
        ...         yield word, len(word)
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> lines = t_env.from_elements([("hot tea",)], ["line"])
        >>> lines.join_lateral(words(col("line")).alias("word", "length")).to_pandas()["word"].tolist()
        ['hot', 'tea']
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
    """Create an aggregate function, which returns one value for all rows of a group. Without `f` it is a decorator.

    Args:
        f: an instance of a subclass of `AggregateFunction`; if `func_type` is not `general`, also a function, a lambda
            or a `functools.partial`, which gets all rows at once.
        input_types: the types that operands are cast to: one type, or one for each; None to pass operands uncast.
        result_type: the type of the value, one of `DataTypes` or its text (`"BIGINT"`); None for the type from
            `get_result_type` or the annotation.
        accumulator_type: the type of the accumulator; optional, because accumulators are pickled.
        deterministic: whether the same rows always give the same value; True by default.
        name: the name in messages and plans; None for the function's own name.
        func_type: `general` for accumulators updated row by row, `pandas` for a `pandas.Series` of all values of each
            operand, `arrow` for a `pyarrow.Array` of each (specific to Penstock). In streams the last two support
            windows only.

    Raises:
        TypeError: if `f` is not an aggregate function, or a type is invalid.
        ValueError: for an unknown `func_type`.
        ValidationError: if the result type is neither given nor annotated.

    Examples:
        >>> from penstock.table import AggregateFunction, EnvironmentSettings, TableEnvironment
        >>> from penstock.table.expressions import col
        >>> from penstock.table.udf import udaf
        >>> class Last(AggregateFunction):
        ...     def create_accumulator(self):
        ...         return [None]
        ...     def accumulate(self, accumulator, word):
        ...         accumulator[0] = word
        ...     def get_value(self, accumulator):
        ...         return accumulator[0]
        >>> last = udaf(Last(), result_type="STRING")
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> words = t_env.from_elements([("tea",), ("milk",)], ["word"])
        >>> words.select(last(col("word")).alias("last")).to_pandas()["last"].tolist()
        ['milk']
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
    """Create a table aggregate function, which returns any number of rows for all rows of a group.

    Args:
        f: an instance of a subclass of `TableAggregateFunction`.
        input_types: the types that operands are cast to: one type, or one for each; None to pass operands uncast.
        result_type: the column types: a ROW, a type for each, or one type for the only column, as `DataTypes` or text;
            None for the types from `get_result_type` or the annotation of `emit_value`. Columns without a name are
            `f0`, `f1` and so on.
        accumulator_type: the type of the accumulator; optional, because accumulators are pickled.
        deterministic: whether the same rows always give the same rows; True by default.
        name: the name in messages and plans; None for the function's own name.
        func_type: only `general` is supported.

    Raises:
        TypeError: if `f` is not a table aggregate function, or a type is invalid.
        ValueError: for another `func_type`.
        ValidationError: if the column types are neither given nor annotated.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableAggregateFunction, TableEnvironment
        >>> from penstock.table.expressions import col
        >>> from penstock.table.udf import udtaf
        >>> class Ends(TableAggregateFunction):
        ...     def create_accumulator(self):
        ...         return []
        ...     def accumulate(self, accumulator, number):
        ...         accumulator[:] = sorted([*accumulator, number])
        ...     def emit_value(self, accumulator):
        ...         yield from {accumulator[0], accumulator[-1]}
        >>> ends = udtaf(Ends(), result_type="BIGINT")
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> numbers = t_env.from_elements([(1,), (3,), (2,)], ["n"])
        >>> sorted(numbers.flat_aggregate(ends(col("n")).alias("end")).select(col("end")).to_pandas()["end"])
        [1, 3]
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


def udptf(
    f: Any = None,
    arguments: Sequence[ProcessTableFunctionArgument] | None = None,
    states: Sequence[ProcessTableFunctionState] | None = None,
    result_type: object = None,
    changelog_mode: Any = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> Any:
    """Create a process table function, which maps tables to a table. Without `f` it is a decorator of a class.

    Args:
        f: a subclass of `ProcessTableFunction`, or an object of one.
        arguments: the arguments of calls, if they are not annotated; their names and order are those of `eval`.
        states: the state entries, if they are not annotated; `eval` takes them before the arguments.
        result_type: the type of the result: a ROW, or a type for each column in a list, or the type of the only column;
            None for the annotation of `eval`, or what `get_result_type` returns.
        changelog_mode: the kinds of changes that it emits; None for inserts, or what `get_changelog_mode` returns.
        deterministic: whether the same rows always give the same rows; True by default.
        name: the name in messages and plans, and the `uid` of calls without one; None for the name of the class.
        func_type: `general` for rows, `pandas` for data frames of many rows, `arrow` for Arrow tables (specific to
            Penstock).

    Raises:
        TypeError: if `f` is not a process table function, or a type is invalid.
        ValueError: for an unknown `func_type`.
        ValidationError: for declarations that make no sense.

    Examples:
        >>> from penstock.table import EnvironmentSettings, TableEnvironment
        >>> from penstock.table.udf import ProcessTableFunction, ProcessTableFunctionArgument, udptf
        >>> class Repeat(ProcessTableFunction):
        ...     def eval(self, line, times):
        ...         for _ in range(times):
        ...             yield line.word
        >>> line = ProcessTableFunctionArgument.table("line")
        >>> times = ProcessTableFunctionArgument.scalar("times", "INT")
        >>> repeat = udptf(Repeat(), arguments=[line, times], result_type="STRING")
        >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        >>> words = t_env.from_elements([("tea",)], ["word"])
        >>> list(words.process(repeat, 2).execute().collect())
        [<Row('tea')>, <Row('tea')>]
    """
    if f is None:
        return functools.partial(
            udptf,
            arguments=arguments,
            states=states,
            result_type=result_type,
            changelog_mode=changelog_mode,
            deterministic=deterministic,
            name=name,
            func_type=func_type,
        )
    return UserDefinedProcessTableFunctionWrapper(
        define_process(f, arguments, states, result_type, changelog_mode, deterministic, name, func_type)
    )


def check_wrapper(function: object) -> UserDefinedFunctionWrapper:
    """Return the wrapper that `udf`, `udtf`, `udaf` or `udtaf` created. Raises `TypeError` for any other object."""
    if not isinstance(function, UserDefinedFunctionWrapper):
        raise WrongTypeError(f"a function is one that udf, udtf, udaf or udtaf made, not {function!r}")
    return function
