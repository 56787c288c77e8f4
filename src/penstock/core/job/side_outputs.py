"""Reports side outputs that are read but never written, most likely due to a misspelt tag, when a job has finished.

A task counts the records of each side output that is read, in a counter that does not exist before the first record.
Side outputs for late records have a counter from the start, because they are usually empty.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.graph.job_graph import JobGraph
from penstock.core.protocol import TaskMetrics
from penstock.core.task.metrics import side_output_counter


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
