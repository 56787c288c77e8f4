"""Event time from one run of a job to the next: what checkpoints hold of it, and what a job takes from there.

A checkpoint holds for each operator and subtask how far event time had come at its input and at its output. An operator
within a chain reports its output alone, so its input is taken to be there too. With another parallelism the lowest of
all subtasks counts. An operator after a source that the checkpoint does not know begins at the beginning of time,
because nothing has come from that source yet.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.graph.job_graph import JobGraph, JobVertex
from penstock.core.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.storage.metadata import CheckpointMetadata, OperatorState

#: By the operator's place in its chain, and the chain's input under INPUT_PLACE.
Watermarks = Mapping[int, int]
INPUT_PLACE = -1


def watermarks_in_checkpoint(
    vertex: JobVertex, place: int, reached: Mapping[tuple[int, int], Watermarks]
) -> dict[int, tuple[int, int]]:
    """Of the operator at that place, by subtask: input and output; nothing where time has not begun."""
    found = {}
    for subtask in range(vertex.parallelism):
        of_task = reached.get((vertex.index, subtask), {})
        output = of_task.get(place, MIN_TIMESTAMP)
        before = of_task.get(INPUT_PLACE, MIN_TIMESTAMP) if place == 0 and not vertex.sources else output
        if max(before, output) > MIN_TIMESTAMP:
            found[subtask] = before, output
    return found


def restored_watermarks(metadata: CheckpointMetadata | None, job_graph: JobGraph) -> dict[tuple[int, int], Watermarks]:
    """Where the tasks begin when a job continues from a checkpoint; streaming leaves none."""
    if metadata is None:
        return {}
    states = {state.operator_id: state for state in metadata.operators}
    begins_anew: set[int] = set()
    restored: dict[tuple[int, int], Watermarks] = {}
    for vertex in job_graph.vertices:
        is_new = any(operator_id not in states for operator_id in vertex.sources)
        if is_new or any(edge.source in begins_anew for edge in job_graph.inputs_of(vertex.index)):
            begins_anew.add(vertex.index)
            continue
        for subtask in range(vertex.parallelism):
            of_task = {}
            for place, operator in enumerate(vertex.operators):
                marks = _of_subtask(states.get(operator.operator_id), subtask, vertex.parallelism)
                before, output = map(not_over, marks)
                if place == 0:
                    of_task[INPUT_PLACE] = before
                of_task[place] = output
            restored[vertex.index, subtask] = of_task
    return restored


def not_over(watermark: int) -> int:
    """Event time as an attempt begins with it: where it was over, for want of more to read, it begins again.

    A reader that was told that there is nothing more may be dealt splits now, and what it reads is not late.
    """
    return MIN_TIMESTAMP if watermark == MAX_WATERMARK else watermark


def _of_subtask(state: OperatorState | None, subtask: int, parallelism: int) -> tuple[int, int]:
    nothing = MIN_TIMESTAMP, MIN_TIMESTAMP
    if state is None:
        return nothing
    if state.parallelism == parallelism:
        return state.watermarks.get(subtask, nothing)
    all_of_them = [state.watermarks.get(other, nothing) for other in range(state.parallelism)]
    return min(before for before, _ in all_of_them), min(output for _, output in all_of_them)
