"""Functions that queries find by their paths, and what was called of them in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from penstock.table.udf import AsyncTableFunction, FunctionContext, ScalarFunction, TableFunction, udf

CALLS: list[str] = []


@udf(result_type="BIGINT")
def add(one: int, other: int) -> Any:
    """The sum."""
    return one + other


def length(text: str | None) -> int:
    """A plain function, whose annotations say its type."""
    return len(text or "")


class Noted(ScalarFunction):
    """Notes what is called."""

    def open(self, function_context: FunctionContext) -> None:
        """Note it, and look around."""
        subtask = function_context.get_index_of_this_subtask()
        CALLS.append(f"open {subtask} {function_context.get_job_parameter('greeting', 'none')}")
        function_context.get_metric_group().counter("rows")
        self._sum = 0

    def eval(self, number: int) -> int:
        """The sum so far."""
        self._sum += number
        CALLS.append(f"eval {number}")
        return self._sum

    def close(self) -> None:
        """Note it."""
        CALLS.append("close")


class Letters(TableFunction):
    """A row for each letter."""

    def eval(self, text: str | None) -> Iterator[str]:
        """The letters."""
        yield from text or ""


class LaterLetters(AsyncTableFunction):
    """The same rows, asynchronously."""

    async def eval(self, text: str | None) -> AsyncIterator[str]:
        """The letters."""
        for letter in text or "":
            yield letter


number = 17
