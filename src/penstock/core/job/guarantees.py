"""The delivery guarantees of a job, stated plainly when it starts (J)."""

from __future__ import annotations

from penstock.core.checkpoint.settings import CheckpointSettings
from penstock.core.graph.job_graph import JobGraph


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
