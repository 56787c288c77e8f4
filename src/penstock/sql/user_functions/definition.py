"""The definition of a user-defined function (the object that runs, and its declared properties), and its running form.

`AsyncSettings` are Flink's options for asynchronous scalar functions. `OpenFunctions` are the user-defined functions of
a running subtask: opened on first use, closed together.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from enum import Enum
from typing import Any, Final, NoReturn

from penstock.base.config_options import DURATION_MS, INTEGER, ConfigOption, choice
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, MisuseError, short_repr
from penstock.runtime.operators.base import UserCodeError
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.user_functions.classes import FunctionContext


class FunctionKind(Enum):
    """The kind of a user-defined function."""

    SCALAR = "scalar function"
    ASYNC_SCALAR = "asynchronous scalar function"
    TABLE = "table function"
    AGGREGATE = "aggregate function"
    TABLE_AGGREGATE = "table aggregate function"
    PROCESS_TABLE = "process table function"


AGGREGATES: Final = (FunctionKind.AGGREGATE, FunctionKind.TABLE_AGGREGATE)
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
    """Settings for asynchronous functions, from Flink's options `table.exec.async-scalar.*`.

    `attempts_max`: the number of times that a call is tried before it fails the job, including the first.
    """

    concurrent_max: int = 10
    timeout_ms: int = 180_000
    attempts_max: int = 3
    retry_delay_ms: int = 100


class OpenFunctions:
    """The functions of one subtask.

    Args:
        operator_name: the operator's name in errors.
        context: the context passed to the functions.
        zone: the session's time zone, used for the points in time that functions see.
        settings: for asynchronous functions.
    """

    def __init__(
        self, operator_name: str, context: FunctionContext, zone: tzinfo, settings: AsyncSettings | None = None
    ) -> None:
        self.operator_name = operator_name
        self.zone = zone
        self.settings = settings or AsyncSettings()
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
            callback(*arguments)
        except Exception as error:
            raise UserCodeError(self.operator_name, None, f"{method}() of {function}") from error

    def failed(self, function: UserFunction, operands: Any) -> UserCodeError:
        """Return the error to raise if a function fails for these operands."""
        return UserCodeError(self.operator_name, operands, str(function))

    def refuse(self, function: UserFunction, operands: Any, result: object, expected: object) -> NoReturn:
        """Raise an error for a result that does not have the function's result type."""
        text = f"it returned {short_repr(result)} ({type(result).__name__}), which is no {expected}"
        raise self.failed(function, operands) from MisuseError(text)


_PREFIX: Final = "table.exec.async-scalar."
CONCURRENT_MAX: Final = ConfigOption(f"{_PREFIX}max-concurrent-operations", INTEGER, 10)
#: the option's earlier name in Flink
BUFFER_CAPACITY: Final = ConfigOption(f"{_PREFIX}buffer-capacity", INTEGER, 10)
TIMEOUT_MS: Final = ConfigOption(f"{_PREFIX}timeout", DURATION_MS, 180_000)
RETRY_STRATEGY: Final = ConfigOption(f"{_PREFIX}retry-strategy", choice("FIXED_DELAY", "NO_RETRY"), "FIXED_DELAY")
RETRY_DELAY_MS: Final = ConfigOption(f"{_PREFIX}retry-delay", DURATION_MS, 100)
ATTEMPTS_MAX: Final = ConfigOption(f"{_PREFIX}max-attempts", INTEGER, 3)


def async_settings(options: Mapping[str, str]) -> AsyncSettings:
    """Read the settings from options. Raises `ConfigurationError` for invalid values."""
    configuration = Configuration()
    for key, value in options.items():
        if key.startswith(_PREFIX):
            configuration.set_string(key, value)
    capacity = CONCURRENT_MAX if configuration.contains_key(CONCURRENT_MAX.key()) else BUFFER_CAPACITY
    concurrent: int = configuration.read(capacity)
    attempts: int = configuration.read(ATTEMPTS_MAX)
    for option, count in ((capacity, concurrent), (ATTEMPTS_MAX, attempts)):
        if count < 1:
            raise ConfigurationError(f"{option.key()} must be at least 1, not {count}")
    if configuration.read(RETRY_STRATEGY) == "NO_RETRY":
        attempts = 1
    return AsyncSettings(concurrent, configuration.read(TIMEOUT_MS), attempts, configuration.read(RETRY_DELAY_MS))
