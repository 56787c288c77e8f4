"""Descriptions of tasks and their workers, for people who look for the cause of a delay. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.core.graph.execution_graph import Execution, ExecutionGraph
from penstock.core.job.slot_pool import SlotPool

#: The maximum number of workers named, and of tasks named for each.
NAMED_MAX: Final = 4


def worker_name(slot_pool: SlotPool, worker_id: str | None) -> str:
    """Return a worker's description, such as `worker worker-3 (host h2, process 123)`."""
    registration = slot_pool.registration(worker_id)
    if registration is None:
        return f"worker {worker_id}, which is gone"
    return f"worker {worker_id} (host {registration.host}, process {registration.process_id})"


def tasks_by_worker(executions: Iterable[Execution]) -> dict[str | None, list[Execution]]:
    """Group tasks by worker, keeping their order."""
    by_worker: dict[str | None, list[Execution]] = {}
    for execution in executions:
        by_worker.setdefault(execution.worker_id, []).append(execution)
    return by_worker


def task_names(graph: ExecutionGraph, executions: list[Execution]) -> str:
    """Return the names of tasks, as in `'Map (2/4)' and 'Sink (2/4)'`."""
    names = [f"'{graph.get_subtask_name(execution)}'" for execution in executions]
    if len(names) > NAMED_MAX:
        names[NAMED_MAX - 1 :] = [f"{len(names) - NAMED_MAX + 1} more"]
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def unacknowledged(graph: ExecutionGraph, slot_pool: SlotPool, executions: Iterable[Execution]) -> str:
    """Describe the tasks that have not acknowledged a checkpoint, their workers, and their current user functions."""
    by_worker = tasks_by_worker(executions)
    parts = []
    for worker_id, of_worker in list(by_worker.items())[:NAMED_MAX]:
        verb = "has" if len(of_worker) == 1 else "have"
        at = slot_pool.whereabouts(worker_id) if worker_id is not None else ""
        where = f"{task_names(graph, of_worker)} on {worker_name(slot_pool, worker_id)}"
        parts.append(f"{where} {verb} not acknowledged" + (f"; it is at {at}" if at else ""))
    remaining = sum(len(of_worker) for of_worker in list(by_worker.values())[NAMED_MAX:])
    if remaining:
        parts.append(f"neither have {remaining} tasks of {len(by_worker) - NAMED_MAX} other workers")
    return "; ".join(parts)
