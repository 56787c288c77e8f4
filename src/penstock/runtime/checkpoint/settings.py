"""The checkpointing options, as the coordinator uses them.

Restores event time from checkpoints, from one attempt of a job to the next and from one job to the next.

For each operator and subtask, a checkpoint stores how far event time had advanced at its input and at its output. An
operator within a chain reports only its output, so its input is assumed to be there as well. With another parallelism,
the lowest value of all subtasks counts. A finished subtask holds nothing back.

Without this, event time would start over after each restart, and a very late record could reopen a window that has
fired, and overwrite its result.

Event time starts over for an operator after a source that the checkpoint does not contain, because that source has not
produced anything yet. An operator that reads from another one for the first time continues no further than that one had
advanced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.options import (
    CHECKPOINT_RETENTION,
    CHECKPOINTING_DIR,
    CHECKPOINTING_INTERVAL_MS,
    CHECKPOINTING_MAX_CONCURRENT,
    CHECKPOINTING_MIN_PAUSE_MS,
    CHECKPOINTING_MODE,
    CHECKPOINTING_NUM_RETAINED,
    CHECKPOINTING_TIMEOUT_MS,
    CHECKPOINTING_TOLERABLE_FAILURES,
    RECOVERY_CLAIM_MODE,
    RECOVERY_FROM_LATEST,
    UNALIGNED_ENABLED,
)
from penstock.runtime.graph.job_graph import JobGraph, JobVertex
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.storage.metadata import CheckpointMetadata, OperatorState


@dataclass(frozen=True)
class CheckpointSettings:
    """Checkpointing settings; an `interval_ms` of None turns checkpointing off."""

    interval_ms: int | None
    timeout_ms: int
    min_pause_ms: int
    concurrent_max: int
    tolerable_failures: int
    retained: int
    retain_on_cancel: bool
    exactly_once: bool = True
    claims_initial: bool = False
    retain_on_failure: bool = True
    unaligned: bool = False

    @classmethod
    def of(cls, configuration: Configuration) -> CheckpointSettings:
        """Read the options; raise `ConfigurationError` if they contradict each other."""
        if configuration.read(UNALIGNED_ENABLED):
            if configuration.read(CHECKPOINTING_MODE) != "EXACTLY_ONCE":
                raise ConfigurationError(
                    "execution.checkpointing.unaligned.enabled needs execution.checkpointing.mode EXACTLY_ONCE"
                )
            if configuration.read(CHECKPOINTING_MAX_CONCURRENT) != 1:
                raise ConfigurationError(
                    "unaligned checkpoints run one at a time: set execution.checkpointing.max-concurrent-checkpoints "
                    "to 1"
                )
        if configuration.read(RECOVERY_FROM_LATEST) and configuration.read(CHECKPOINTING_DIR) is None:
            raise ConfigurationError(f"{RECOVERY_FROM_LATEST.key()} searches {CHECKPOINTING_DIR.key()}: set that too")
        return cls(
            configuration.read(CHECKPOINTING_INTERVAL_MS),
            configuration.read(CHECKPOINTING_TIMEOUT_MS),
            configuration.read(CHECKPOINTING_MIN_PAUSE_MS),
            configuration.read(CHECKPOINTING_MAX_CONCURRENT),
            configuration.read(CHECKPOINTING_TOLERABLE_FAILURES),
            configuration.read(CHECKPOINTING_NUM_RETAINED),
            configuration.read(CHECKPOINT_RETENTION) == "RETAIN_ON_CANCELLATION",
            configuration.read(CHECKPOINTING_MODE) == "EXACTLY_ONCE",
            configuration.read(RECOVERY_CLAIM_MODE) == "CLAIM",
            configuration.read(CHECKPOINT_RETENTION) != "NO_EXTERNALIZED_CHECKPOINTS",
            configuration.read(UNALIGNED_ENABLED),
        )


#: By the operator's place in its chain; the chain's input is under INPUT_PLACE.
Watermarks = Mapping[int, int]
INPUT_PLACE = -1


def watermarks_in_checkpoint(
    vertex: JobVertex, operator_index: int, reached: Mapping[tuple[int, int], Watermarks]
) -> dict[int, tuple[int, int]]:
    """Return an operator's input and output watermarks, for each subtask where time has begun."""
    watermarks = {}
    for subtask in range(vertex.parallelism):
        of_task = reached.get((vertex.index, subtask), {})
        output = of_task.get(operator_index, MIN_TIMESTAMP)
        before = of_task.get(INPUT_PLACE, MIN_TIMESTAMP) if operator_index == 0 and not vertex.sources else output
        if max(before, output) > MIN_TIMESTAMP:
            watermarks[subtask] = before, output
    return watermarks


def restored_watermarks(metadata: CheckpointMetadata | None, job_graph: JobGraph) -> dict[tuple[int, int], Watermarks]:
    """Return the watermarks that tasks start from when a job continues from a checkpoint."""
    if metadata is None:
        return {}
    states = {state.operator_id: state for state in metadata.operators}
    names = job_graph.edge_names()
    begins_anew: set[int] = set()
    restored: dict[tuple[int, int], Watermarks] = {}
    for vertex in job_graph.vertices:
        inputs = job_graph.get_inputs(vertex.index)
        is_new = any(operator_id not in states for operator_id in vertex.sources)
        if is_new or any(edge.source in begins_anew for edge in inputs):
            begins_anew.add(vertex.index)
            continue
        new_producers = [edge.source for edge in inputs if metadata.edges and names[edge.index] not in metadata.edges]
        limit = min(
            (_compute_output_watermark(restored, job_graph, producer) for producer in new_producers),
            default=MAX_WATERMARK,
        )
        for subtask in range(vertex.parallelism):
            of_task = {}
            for operator_index, operator in enumerate(vertex.operators):
                marks = watermarks_of_subtask(states.get(operator.operator_id), subtask, vertex.parallelism)
                before, output = (min(mark, limit) for mark in marks)
                if operator_index == 0:
                    of_task[INPUT_PLACE] = before
                of_task[operator_index] = output
            restored[vertex.index, subtask] = of_task
    return restored


def _compute_output_watermark(restored: Mapping[tuple[int, int], Watermarks], job_graph: JobGraph, vertex: int) -> int:
    """Return the lowest watermark of a vertex's outputs, an upper bound for everything that reads from it."""
    of_tasks = [restored[vertex, subtask] for subtask in range(job_graph.vertices[vertex].parallelism)]
    return min(
        mark for of_task in of_tasks for operator_index, mark in of_task.items() if operator_index != INPUT_PLACE
    )


def not_over(watermark: int) -> int:
    """Return the watermark that an attempt starts with: if time had ended for lack of data, it starts over.

    A reader that had run out of splits may be assigned new ones now, and their records are not late.
    """
    return MIN_TIMESTAMP if watermark == MAX_WATERMARK else watermark


def watermarks_of_subtask(state: OperatorState | None, subtask: int, parallelism: int) -> tuple[int, int]:
    """Return the watermarks that a subtask of an operator starts with, at its input and at its output."""
    before, output = _of_subtask(state, subtask, parallelism)
    return not_over(before), not_over(output)


def _of_subtask(state: OperatorState | None, subtask: int, parallelism: int) -> tuple[int, int]:
    nothing = MIN_TIMESTAMP, MIN_TIMESTAMP
    if state is None:
        return nothing
    if state.parallelism == parallelism:
        return state.watermarks.get(subtask, nothing)
    all_of_them = [state.watermarks.get(other, nothing) for other in range(state.parallelism)]
    return min(before for before, _ in all_of_them), min(output for _, output in all_of_them)
