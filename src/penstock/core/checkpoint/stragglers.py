"""The tasks that hold up a checkpoint: they have its barriers but have not acknowledged it. Pure.

A task that waits for the barrier of another task cannot acknowledge, and is not the one that holds the checkpoint up.
So the checkpoint waits for the missing tasks that do not read from another missing task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.core.checkpoint.pending import PendingCheckpoint
from penstock.core.graph.execution_graph import Execution, ExecutionGraph

#: Stragglers are few: at most one in this many of the tasks that could have acknowledged, or a single task.
SHARE: Final = 4
#: Stragglers are late: the wait for them is at least this many times as long as all the others took.
TIMES: Final = 3


@dataclass(frozen=True)
class Stragglers:
    """The stragglers of a checkpoint.

    Attributes:
        checkpoint_id: the checkpoint.
        tasks: the stragglers.
        acknowledged: how many other tasks have acknowledged.
        acknowledged_after_ms: how long the last of these took.
        waited_ms: how long the checkpoint has waited since then.
    """

    checkpoint_id: int
    tasks: list[Execution]
    acknowledged: int
    acknowledged_after_ms: int
    waited_ms: int


def find_stragglers(graph: ExecutionGraph, pending: PendingCheckpoint) -> list[Execution]:
    """Return the tasks that a checkpoint waits for."""
    missing = pending.missing
    return [
        vertex.current
        for vertex in graph
        if vertex.current.id in missing and not any(e.id in missing for e in graph.find_producers(vertex))
    ]


def stragglers(graph: ExecutionGraph, pending: PendingCheckpoint, now_ms: int, patience_ms: int) -> Stragglers | None:
    """Return the few tasks that a checkpoint still waits for long after the others acknowledged it, or None."""
    last_ms, count = pending.acknowledged_ms, pending.acknowledged
    if pending.is_completing or last_ms is None:
        return None
    after_ms, waited_ms = last_ms - pending.begun_ms, now_ms - last_ms
    if waited_ms < max(patience_ms, TIMES * after_ms):
        return None
    tasks = find_stragglers(graph, pending)
    if len(tasks) > max(1, (count + len(tasks)) // SHARE):
        return None
    return Stragglers(pending.checkpoint_id, tasks, count, after_ms, waited_ms)
