"""The base of operators that evaluate expressions: it opens and closes the user-defined functions in them.

The settings of the session that operators need, in a form that can be sent to workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Final

from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.function_context import RuntimeContext
from penstock.sql.functions.definition import Session
from penstock.sql.user_functions.classes import FunctionContext
from penstock.sql.user_functions.definition import AsyncSettings, OpenFunctions

_MILLISECOND_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class StreamSession:
    """The time zone, the behaviour of casts, and how asynchronous functions are called."""

    zone: tzinfo = UTC
    legacy_cast: bool = False
    async_settings: AsyncSettings = field(default_factory=AsyncSettings)

    def open(
        self,
        now_ms: Callable[[], int],
        watermark: Callable[[], int | None] = lambda: None,
        functions: OpenFunctions | None = None,
    ) -> Session:
        """Return the session of a running operator. Its clock and its watermark are in milliseconds since 1970."""
        return Session(self.zone, lambda: now_ms() * _MILLISECOND_NS, watermark, self.legacy_cast, functions=functions)


class EvaluatingOperator(StreamOperator):
    """An operator with evaluators, which it creates in `open` with the session that `running` returns.

    Creating an evaluator opens the functions of its expressions. A function in several expressions of one operator is
    opened once.
    """

    _functions: OpenFunctions | None = None

    def running(self, session: StreamSession, watermark: Callable[[], int | None] = lambda: None) -> Session:
        """Return the session for the expressions of this subtask."""
        if self._functions is None:
            name = self.context.operator_name
            self._functions = OpenFunctions(name, self._function_context(), session.zone, session.async_settings)
        return session.open(self.context.now_ms, watermark, self._functions)

    def _function_context(self) -> FunctionContext:
        runtime = RuntimeContext(self.context)
        return FunctionContext(
            runtime.get_metrics_group(),
            self.context.job_parameters,
            runtime.get_task_name(),
            runtime.get_task_name_with_subtasks(),
            runtime.get_number_of_parallel_subtasks(),
            runtime.get_max_number_of_parallel_subtasks(),
            runtime.get_index_of_this_subtask(),
            runtime.get_attempt_number(),
        )

    def close(self) -> None:
        """Close the user-defined functions that were opened."""
        functions, self._functions = self._functions, None
        if functions is not None:
            functions.close()
        super().close()
