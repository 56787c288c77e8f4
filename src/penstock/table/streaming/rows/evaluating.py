"""What operators that work out expressions share: functions of the program are opened with them, and closed."""

from __future__ import annotations

from collections.abc import Callable

from penstock.core.operators.base import StreamOperator
from penstock.core.operators.runtime_context import RuntimeContext
from penstock.table.functions.definition import Session
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.user_functions.classes import FunctionContext
from penstock.table.user_functions.opened import OpenFunctions


class EvaluatingOperator(StreamOperator):
    """An operator with evaluators, which it makes in `open` with the session that `running` gives.

    An evaluator opens the functions of its expressions when it is made. A function that stands in several expressions
    of one operator is opened once.
    """

    _functions: OpenFunctions | None = None

    def running(self, session: StreamSession, watermark: Callable[[], int | None] = lambda: None) -> Session:
        """The session as expressions see it in this subtask."""
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
        """Close the functions of the program that were opened."""
        functions, self._functions = self._functions, None
        if functions is not None:
            functions.close()
        super().close()
