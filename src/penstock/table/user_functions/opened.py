"""The user-defined functions of a running subtask: opened on first use, closed together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, NoReturn

from penstock.base.errors import MisuseError, short_repr
from penstock.core.operators.base import UserCodeError
from penstock.table.user_functions.classes import FunctionContext
from penstock.table.user_functions.definition import UserFunction


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
        self._context = context
        #: by id; holds a reference to the function, because ids of deleted objects are reused
        self._opened: dict[int, UserFunction] = {}
        self._runner: asyncio.Runner | None = None

    def open(self, function: UserFunction) -> Any:
        """Return the object that runs, opening it on first use."""
        runs = function.function
        if id(runs) not in self._opened:
            # Registered before it is opened, so that `close` releases its resources even if `open` fails.
            self._opened[id(runs)] = function
            self._call(function, "open", self._context)
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
