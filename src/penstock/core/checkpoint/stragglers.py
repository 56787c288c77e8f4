"""Which tasks a checkpoint waits for: those that have its barriers and have not acknowledged it. Pure.

A task that waits for the barrier of another one cannot acknowledge, and is not what holds the checkpoint up. So of the
tasks that are missing, the checkpoint waits for those that read from none that is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.core.checkpoint.pending import PendingCheckpoint
from penstock.core.graph.execution_graph import Execution, ExecutionGraph

#: Stragglers are few: at most one in so many of the tasks that could have acknowledged, or one.
SHARE: Final = 4
#: And late: they take that many times as long as all others together.
TIMES: Final = 3


@dataclass(frozen=True)
class Stragglers:
    """Those of a checkpoint.

    Attributes:
        checkpoint_id: the checkpoint.
        tasks: the stragglers.
        acknowledged: how many others have acknowledged.
        acknowledged_after_ms: after how long the last of them had.
        waited_ms: for how long the checkpoint has waited since then.
    """

    checkpoint_id: int
    tasks: list[Execution]
    acknowledged: int
    acknowledged_after_ms: int
    waited_ms: int


def waited_for(graph: ExecutionGraph, pending: PendingCheckpoint) -> list[Execution]:
    """The tasks that a checkpoint waits for."""
    missing = pending.missing
    return [
        vertex.current
        for vertex in graph
        if vertex.current.id in missing and not any(e.id in missing for e in graph.producers_of(vertex))
    ]


def stragglers(graph: ExecutionGraph, pending: PendingCheckpoint, now_ms: int, patience_ms: int) -> Stragglers | None:
    """The few that it waits for, when the others have acknowledged for long; None when it is not so."""
    last_ms, count = pending.acknowledged_ms, pending.acknowledged
    if pending.is_completing or last_ms is None:
        return None
    after_ms, waited_ms = last_ms - pending.begun_ms, now_ms - last_ms
    if waited_ms < max(patience_ms, TIMES * after_ms):
        return None
    tasks = waited_for(graph, pending)
    if len(tasks) > max(1, (count + len(tasks)) // SHARE):
        return None
    return Stragglers(pending.checkpoint_id, tasks, count, after_ms, waited_ms)
