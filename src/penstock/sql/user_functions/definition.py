"""The definition of a user-defined function (the object that runs, and its declared properties), and its running form.

`CallSettings` are Flink's options for asynchronous and vectorised functions. `OpenFunctions` are the user-defined
functions of a running subtask: opened on first use, closed together.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from enum import Enum
from typing import Any, Final, NoReturn

from penstock.base.config_options import POSITIVE, TIME_MS, ConfigOption, ValueType, choice
from penstock.base.configuration import Configuration
from penstock.base.errors import MisuseError, short_repr
from penstock.base.options import ARROW_BATCH_SIZE
from penstock.runtime.operators.base import UserCodeError
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.user_functions.classes import FunctionContext


class FunctionKind(Enum):
    """The kind of a user-defined function."""

    SCALAR = "scalar function"
    ASYNC_SCALAR = "asynchronous scalar function"
    TABLE = "table function"
    ASYNC_TABLE = "asynchronous table function"
    AGGREGATE = "aggregate function"
    TABLE_AGGREGATE = "table aggregate function"
    PROCESS_TABLE = "process table function"


AGGREGATES: Final = (FunctionKind.AGGREGATE, FunctionKind.TABLE_AGGREGATE)
#: functions that are called as LATERAL TABLE(…)
TABLES: Final = (FunctionKind.TABLE, FunctionKind.ASYNC_TABLE)
#: values row by row; columns as pandas objects; columns as Arrow arrays
GENERAL, PANDAS, ARROW = "general", "pandas", "arrow"
FUNC_TYPES: Final = (GENERAL, PANDAS, ARROW)


class UserFunction:
    """The definition of a user-defined function, which is sent to workers with the expressions that call it.

    Not a dataclass: functions compare by identity, and their contents are never inspected.

    Args:
        name: the name in messages and plans.
        kind: the kind of function.
        function: has `eval`, or the methods of aggregate functions, and optionally `open` and `close`.
        result_type: the type of its values; for functions that return rows, a ROW of their columns.
        input_types: the types that its operands are cast to; None to pass them uncast.
        func_type: `general`, `pandas` or `arrow`.
        is_deterministic: whether the same operands always give the same result.
        accumulator_type: the type of an aggregate function's accumulator; None for other functions.
    """

    def __init__(
        self,
        name: str,
        kind: FunctionKind,
        function: Any,
        result_type: DataType,
        input_types: tuple[DataType, ...] | None = None,
        func_type: str = GENERAL,
        is_deterministic: bool = True,
        accumulator_type: DataType | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.function = function
        self.result_type = result_type
        self.input_types = input_types
        self.func_type = func_type
        self.is_deterministic = is_deterministic
        self.accumulator_type = accumulator_type

    def called(self, name: str) -> UserFunction:
        """Return the same function under the name that queries use."""
        return UserFunction(
            name,
            self.kind,
            self.function,
            self.result_type,
            self.input_types,
            self.func_type,
            self.is_deterministic,
            self.accumulator_type,
        )

    @property
    def is_async(self) -> bool:
        """Whether its `eval` is asynchronous."""
        return self.kind in (FunctionKind.ASYNC_SCALAR, FunctionKind.ASYNC_TABLE)

    def check_count(self, count: int) -> None:
        """Raise `ValidationError` if the function does not accept `count` operands."""
        if self.input_types is not None and count != len(self.input_types):
            types = ", ".join(map(str, self.input_types))
            raise ValidationError(f"{self} takes {len(self.input_types)} operands ({types}), and gets {count}")
        # Aggregate functions that work row by row take the accumulator first.
        is_row_by_row = not hasattr(self.function, "eval")
        signature = inspect_signature(self.function.accumulate if is_row_by_row else self.function.eval)
        if signature is None:
            return
        try:
            signature.bind(*[None] * (count + is_row_by_row))
        except TypeError as error:
            raise ValidationError(f"{self} takes the operands {signature}, and gets {count}: {error}") from error
        if not count and self.func_type != GENERAL:
            raise ValidationError(f"{self} works on columns ({self.func_type}), so it needs an operand at least")

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name!r}"


def inspect_signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the parameters of a function; None for a C function without a signature."""
    try:
        return inspect.signature(function).replace(return_annotation=inspect.Signature.empty)
    except (TypeError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class AsyncSettings:
    """How one kind of asynchronous functions is called. `prefix`: of Flink's options for it.

    `timeout_ms`: for a call with its retries; 0 for no limit. `retries_max`: how often a call that fails is repeated.
    """

    prefix: str
    concurrent_max: int = 10
    timeout_ms: int = 180_000
    retries_max: int = 3
    retry_delay_ms: int = 100


_SCALAR_PREFIX: Final = "table.exec.async-scalar."
_TABLE_PREFIX: Final = "table.exec.async-table."


@dataclass(frozen=True, slots=True)
class CallSettings:
    """How functions are called.

    `scalar`, `table`: asynchronous functions of these kinds. `vector_rows`: the most rows in a call of a function that
    works on columns; None if the option is not set.
    """

    scalar: AsyncSettings = AsyncSettings(_SCALAR_PREFIX)
    table: AsyncSettings = AsyncSettings(_TABLE_PREFIX)
    vector_rows: int | None = None


class OpenFunctions:
    """The functions of one subtask.

    Args:
        operator_name: the operator's name in errors.
        context: the context passed to the functions.
        zone: the session's time zone, used for the points in time that functions see.
        settings: how the functions are called.
    """

    def __init__(
        self, operator_name: str, context: FunctionContext, zone: tzinfo, settings: CallSettings | None = None
    ) -> None:
        self.operator_name = operator_name
        self.zone = zone
        self.settings = settings or CallSettings()
        self.context = context
        #: by id; holds a reference to the function, because ids of deleted objects are reused
        self._opened: dict[int, UserFunction] = {}
        self._runner: asyncio.Runner | None = None

    def open(self, function: UserFunction) -> Any:
        """Return the object that runs, opening it on first use."""
        runs = function.function
        if id(runs) not in self._opened:
            # Registered before it is opened, so that `close` releases its resources even if `open` fails.
            self._opened[id(runs)] = function
            self._call(function, "open", self.context)
        return runs

    def close(self) -> None:
        """Close all opened functions. The first error is raised after all have been closed."""
        opened, self._opened = list(self._opened.values()), {}
        errors: list[UserCodeError] = []
        for function in opened:
            try:
                self._call(function, "close")
            except UserCodeError as error:
                errors.append(error)
        if self._runner is not None:
            self._runner.close()
            self._runner = None
        if errors:
            raise errors[0]

    def wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to completion in an event loop that the subtask's asynchronous functions share."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(coroutine)

    def _call(self, function: UserFunction, method: str, *arguments: Any) -> None:
        callback = getattr(function.function, method, None)
        if callback is None:
            return
        try:
            returned = callback(*arguments)
            if inspect.iscoroutine(returned):
                self.wait(returned)
        except Exception as error:
            raise UserCodeError(self.operator_name, None, f"{method}() of {function}") from error

    def failed(self, function: UserFunction, operands: Any) -> UserCodeError:
        """Return the error to raise if a function fails for these operands."""
        return UserCodeError(self.operator_name, operands, str(function))

    def refuse(self, function: UserFunction, operands: Any, result: object, expected: object) -> NoReturn:
        """Raise an error for a result that does not have the function's result type."""
        text = f"it returned {short_repr(result)} ({type(result).__name__}), which is no {expected}"
        raise self.failed(function, operands) from MisuseError(text)


#: the earlier name in Flink of the option for concurrent calls
_BUFFER_CAPACITY: Final = f"{_SCALAR_PREFIX}buffer-capacity"
_STRATEGY: Final = choice("FIXED_DELAY", "NO_RETRY")


def call_settings(options: Mapping[str, str]) -> CallSettings:
    """Read the settings from options. Raises `ConfigurationError` for invalid values."""
    configuration = Configuration()
    for key, value in options.items():
        if key.startswith((_SCALAR_PREFIX, _TABLE_PREFIX)) or key == ARROW_BATCH_SIZE.key():
            configuration.set_string(key, value)
    capacity = f"{_SCALAR_PREFIX}max-concurrent-operations"
    if not configuration.contains_key(capacity):
        capacity = _BUFFER_CAPACITY
    # `max-attempts` does not count the first call: Flink's name for retries of scalar functions.
    scalar = _read(configuration, _SCALAR_PREFIX, capacity, f"{_SCALAR_PREFIX}max-attempts")
    capacity, retries = f"{_TABLE_PREFIX}max-concurrent-operations", f"{_TABLE_PREFIX}max-retries"
    table = _read(configuration, _TABLE_PREFIX, capacity, retries)
    return CallSettings(scalar, table, configuration.read(ARROW_BATCH_SIZE))


def _read(configuration: Configuration, prefix: str, capacity: str, retries: str) -> AsyncSettings:
    default = AsyncSettings(prefix)

    def read(key: str, value_type: ValueType[Any], value: Any) -> Any:
        return configuration.read(ConfigOption(key, value_type, value))

    retries_max = read(retries, POSITIVE, default.retries_max)
    return AsyncSettings(
        prefix,
        read(capacity, POSITIVE, default.concurrent_max),
        read(f"{prefix}timeout", TIME_MS, default.timeout_ms),
        0 if read(f"{prefix}retry-strategy", _STRATEGY, "FIXED_DELAY") == "NO_RETRY" else retries_max,
        read(f"{prefix}retry-delay", TIME_MS, default.retry_delay_ms),
    )
