"""The delivery guarantees of a job, stated plainly when it starts (J).

Reports side outputs that are read but never written, most likely due to a misspelt tag, when a job has finished.

A task counts the records of each side output that is read, in a counter that does not exist before the first record.
Side outputs for late records have a counter from the start, because they are usually empty.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime.checkpoint.settings import CheckpointSettings
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.protocol import TaskMetrics
from penstock.runtime.task.operator_chain import side_output_counter


def guarantees(job_graph: JobGraph, settings: CheckpointSettings) -> list[str]:
    """Return the lines to show to the user."""
    lines = []
    if settings.interval_ms is None:
        lines.append("checkpointing is off: after a failure the job can only start over from the beginning")
        lines += _never_committing(job_graph)
    else:
        promise = (
            "state is exactly once, and so is two-phase output"
            if settings.exactly_once
            else "state is at least once: after a failure records may count twice"
        )
        lines.append(f"checkpoints every {settings.interval_ms} ms; {promise}")
        nameless = [o.name for v in job_graph.vertices for o in v.operators if o.is_stateful and o.has_placed_id]
        if nameless:
            lines.append(
                f"operators with state but without a uid: {', '.join(nameless)}: a changed program finds their state "
                "in a savepoint only by a uid; set one with .uid(...)"
            )
    for vertex in job_graph.vertices:
        for operator_id, source in vertex.sources.items():
            if not source.replayable:
                name = next(o.name for o in vertex.operators if o.operator_id == operator_id)
                lines.append(f"source {name!r} cannot be replayed: a failure loses the records in flight")
    return lines


def _never_committing(job_graph: JobGraph) -> list[str]:
    """Return a line for each sink that never commits: without checkpoints, it would commit at the end of input."""
    endless = job_graph.vertices_without_end()
    operators = [o for vertex in job_graph.vertices if vertex.index in endless for o in vertex.operators]
    return [
        f"sink {operator.name!r} never commits while the job runs, so its output never becomes visible: its input is "
        "unbounded, and it commits on checkpoints. Turn them on with env.enable_checkpointing(interval)"
        for operator in operators
        if operator.commits
    ]


def unwritten_side_outputs(job_graph: JobGraph, metrics: Iterable[TaskMetrics]) -> list[str]:
    """Return a line for each side output that no task has counted; all tasks of the job must have reported."""
    counters: dict[int, set[str]] = {}
    for task in metrics:
        counters.setdefault(task.execution.vertex, set()).update(task.counters)
    return [
        f"the program reads side output {tag_id!r} of operator {name!r}, but it received no records; does the function "
        "write to another tag?"
        for vertex in job_graph.vertices
        for name, tag_id in vertex.side_outputs
        if vertex.index in counters and side_output_counter(tag_id) not in counters[vertex.index]
    ]
