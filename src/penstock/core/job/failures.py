"""What a failure is to the user who reads of it: an error with its place."""

from __future__ import annotations

from penstock.common.errors import JobExecutionError, PenstockError, UserFunctionError
from penstock.core.job.execution_graph import Execution, ExecutionGraph
from penstock.core.protocol import Failure


def error_of(failure: Failure, graph: ExecutionGraph, execution: Execution | None) -> PenstockError:
    """The error with which the job fails; `execution` is the task that failed, if it was one."""
    name = graph.job_graph.name
    if failure.user_code and execution is not None and failure.operator_name is not None:
        vertex = graph.job_graph.vertices[execution.id.vertex]
        return UserFunctionError(
            name,
            failure.operator_name,
            execution.id.subtask,
            vertex.parallelism,
            failure.record or "",
            failure.traceback or failure.reason,
        )
    where = "" if execution is None else f"task {graph.name_of(execution)}: "
    details = f"\n{failure.traceback}" if failure.traceback else ""
    return JobExecutionError(name, f"{where}{failure.reason}{details}")
