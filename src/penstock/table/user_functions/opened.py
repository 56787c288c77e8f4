"""Functions of the program while they run in a subtask: opened at their first need, closed together."""

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
    """How asynchronous functions are called: Flink's options `table.exec.async-scalar.*`.

    `attempts_max`: how often a call is tried before it fails the job, the first time counted.
    """

    concurrent_max: int = 10
    timeout_ms: int = 180_000
    attempts_max: int = 3
    retry_delay_ms: int = 100


class OpenFunctions:
    """The functions of one subtask.

    Args:
        operator_name: what errors call the operator.
        context: what the functions see of the subtask.
        zone: the session's, in which they see points in time.
        settings: of asynchronous functions.
    """

    def __init__(
        self, operator_name: str, context: FunctionContext, zone: tzinfo, settings: AsyncSettings | None = None
    ) -> None:
        self.operator_name = operator_name
        self.zone = zone
        self.settings = settings or AsyncSettings()
        self._context = context
        #: by id; the function is kept, because ids of objects that are gone come again
        self._opened: dict[int, UserFunction] = {}
        self._runner: asyncio.Runner | None = None

    def open(self, function: UserFunction) -> Any:
        """The object that runs, opened."""
        runs = function.function
        if id(runs) not in self._opened:
            # Known before it is opened: what it has got by then is closed, too.
            self._opened[id(runs)] = function
            self._call(function, "open", self._context)
        return runs

    def close(self) -> None:
        """Close all that were opened. The first error is raised, after all had their turn."""
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
        """Run a coroutine to its end, in a loop that all asynchronous functions of the subtask share."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(coroutine)

    def _call(self, function: UserFunction, method: str, *arguments: Any) -> None:
        found = getattr(function.function, method, None)
        if found is None:
            return
        try:
            found(*arguments)
        except Exception as error:
            raise UserCodeError(self.operator_name, None, f"{method}() of {function}") from error

    def failed(self, function: UserFunction, operands: Any) -> UserCodeError:
        """The error to raise from one that a function raised for these operands."""
        return UserCodeError(self.operator_name, operands, str(function))

    def refuse(self, function: UserFunction, operands: Any, result: object, expected: object) -> NoReturn:
        """Raise for a result that is not of the type that the function has."""
        text = f"it returned {short_repr(result)} ({type(result).__name__}), which is no {expected}"
        raise self.failed(function, operands) from MisuseError(text)
