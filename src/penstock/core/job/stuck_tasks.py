"""Cancelled tasks that have not ended, with their workers and the user functions that have not returned."""

from __future__ import annotations

from penstock.core.graph.execution_graph import Execution, ExecutionGraph
from penstock.core.graph.states import ExecutionState
from penstock.core.job.cancellation import TaskCancellation
from penstock.core.job.slot_pool import SlotPool


def stuck_workers(graph: ExecutionGraph) -> dict[str, list[Execution]]:
    """Return the workers with cancelled tasks that have not ended, and those tasks."""
    stuck: dict[str, list[Execution]] = {}
    for execution in graph.executions():
        if execution.state is ExecutionState.CANCELING and execution.worker_id is not None:
            stuck.setdefault(execution.worker_id, []).append(execution)
    return dict(sorted(stuck.items()))


def stuck_tasks(graph: ExecutionGraph, slot_pool: SlotPool, cancellation: TaskCancellation, now_ms: int) -> str:
    """Describe the stuck tasks for the log."""
    workers = []
    for worker_id, executions in stuck_workers(graph).items():
        names = ", ".join(graph.get_subtask_name(execution) for execution in executions)
        at = slot_pool.whereabouts(worker_id)
        workers.append(f"{names} on worker {worker_id}" + (f", which does not return from {at}" if at else ""))
    limit_ms = cancellation.timeout_ms
    force = f"after {limit_ms} ms (task.cancellation.timeout), or " if limit_ms else ""
    return (
        f"tasks cancelled {cancellation.waited_ms(now_ms)} ms ago have not ended: "
        f"{'; '.join(workers)}. Their workers are killed {force}when the job is cancelled again"
    )
