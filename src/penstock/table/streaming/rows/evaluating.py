"""The base of operators that evaluate expressions: it opens and closes the user-defined functions in them."""

from __future__ import annotations

from collections.abc import Callable

from penstock.core.operators.base import StreamOperator
from penstock.core.operators.runtime_context import RuntimeContext
from penstock.table.functions.definition import Session
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.user_functions.classes import FunctionContext
from penstock.table.user_functions.opened import OpenFunctions


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
