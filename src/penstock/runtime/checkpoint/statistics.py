"""Checkpointing options and statistics, and event time restored from checkpoints.

`CheckpointSettings` are the checkpointing options, as the coordinator uses them.

**Event time** is restored from checkpoints, from one attempt of a job to the next and from one job to the next. For
each operator and subtask, a checkpoint stores how far event time had advanced at its input and at its output. An
operator within a chain reports only its output, so its input is assumed to be there as well. With another parallelism,
the lowest value of all subtasks counts. A finished subtask holds nothing back.

Without this, event time would start over after each restart, and a very late record could reopen a window that has
fired, and overwrite its result.

Event time starts over for an operator after a source that the checkpoint does not contain, because that source has not
produced anything yet. An operator that reads from another one for the first time continues no further than that one had
advanced.

`CheckpointStatistics` are the statistics of a job's checkpoints, and the history of the most recent ones.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.runtime.graph import JobGraph, JobVertex
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
        if configuration.read(options.UNALIGNED_ENABLED):
            if configuration.read(options.CHECKPOINTING_MODE) != "EXACTLY_ONCE":
                raise ConfigurationError(
                    "execution.checkpointing.unaligned.enabled needs execution.checkpointing.mode EXACTLY_ONCE"
                )
            if configuration.read(options.CHECKPOINTING_MAX_CONCURRENT) != 1:
                raise ConfigurationError(
                    "unaligned checkpoints run one at a time: set execution.checkpointing.max-concurrent-checkpoints "
                    "to 1"
                )
        if configuration.read(options.RECOVERY_FROM_LATEST) and configuration.read(options.CHECKPOINTING_DIR) is None:
            raise ConfigurationError(
                f"{options.RECOVERY_FROM_LATEST.key()} searches {options.CHECKPOINTING_DIR.key()}: set that too"
            )
        return cls(
            configuration.read(options.CHECKPOINTING_INTERVAL_MS),
            configuration.read(options.CHECKPOINTING_TIMEOUT_MS),
            configuration.read(options.CHECKPOINTING_MIN_PAUSE_MS),
            configuration.read(options.CHECKPOINTING_MAX_CONCURRENT),
            configuration.read(options.CHECKPOINTING_TOLERABLE_FAILURES),
            configuration.read(options.CHECKPOINTING_NUM_RETAINED),
            configuration.read(options.CHECKPOINT_RETENTION) == "RETAIN_ON_CANCELLATION",
            configuration.read(options.CHECKPOINTING_MODE) == "EXACTLY_ONCE",
            configuration.read(options.RECOVERY_CLAIM_MODE) == "CLAIM",
            configuration.read(options.CHECKPOINT_RETENTION) != "NO_EXTERNALIZED_CHECKPOINTS",
            configuration.read(options.UNALIGNED_ENABLED),
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


#: The number of completed or failed checkpoints in the history (Flink's `web.checkpoints.history`).
HISTORY_MAX: Final = 10
#: The number of checkpoint outcomes kept to answer requests that triggered a checkpoint.
OUTCOMES_MAX: Final = 500


class CheckpointStatus(enum.Enum):
    """The status of a checkpoint."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(frozen=True)
class SubtaskCheckpoint:
    """A subtask's part of a checkpoint: durations in ms, sizes in bytes.

    Attributes:
        vertex: the index of its vertex.
        subtask: its index, from 0.
        acknowledged_ms: when its part was stored (ms since the epoch).
        duration_ms: from the trigger of the checkpoint until then.
        state_bytes: the size of the state that it refers to.
        stored_bytes: the bytes written for this checkpoint.
        start_delay_ms: from the trigger until the first barrier arrived.
        alignment_ms: the duration of its alignment.
        held_back_bytes: the bytes held back during alignment.
        sync_ms: how long it stood still to take the snapshot.
        async_ms: how long it wrote the snapshot afterwards.
        processed_bytes: the bytes processed during alignment.
        persisted_bytes: the size of the stored in-flight records.
    """

    vertex: int
    subtask: int
    acknowledged_ms: int
    duration_ms: int = 0
    state_bytes: int = 0
    stored_bytes: int = 0
    start_delay_ms: int = 0
    alignment_ms: int = 0
    held_back_bytes: int = 0
    sync_ms: int = 0
    async_ms: int = 0
    processed_bytes: int = 0
    persisted_bytes: int = 0


@dataclass(frozen=True)
class RestoredRecord:
    """The checkpoint or savepoint that the job was last restored from.

    Attributes:
        checkpoint_id: its id.
        at_ms: when the job was restored (ms since the epoch).
        is_savepoint: whether a user requested it.
        path: its path; None if the job master holds it.
    """

    checkpoint_id: int
    at_ms: int
    is_savepoint: bool = False
    path: str | None = None


@dataclass(frozen=True)
class CheckpointRecord:
    """One checkpoint or savepoint: durations in ms, sizes in bytes.

    Attributes:
        checkpoint_id: its id.
        status: its status.
        triggered_ms: when it began (ms since the epoch).
        is_savepoint: whether a user requested it.
        duration_ms: from its beginning to its end, or to now.
        state_bytes: the size of its files.
        alignment_ms: how long the slowest task aligned.
        held_back_bytes: the bytes that all tasks held back during alignment.
        sync_ms: how long the slowest task stood still for it.
        async_ms: how long the slowest task wrote afterwards.
        subtasks: how many subtasks take part.
        acknowledged: how many of them have stored their part.
        path: its path, which a savepoint has from the start.
        failure: why it failed.
        is_unaligned: whether barriers may overtake records for it.
        stops: whether the job ends with it.
        stored_bytes: the bytes written for it, without those shared with earlier checkpoints.
        parts: the parts stored by subtasks.
        metadata_bytes: the size of its metadata, once it is complete.
    """

    checkpoint_id: int
    status: CheckpointStatus
    triggered_ms: int
    is_savepoint: bool = False
    duration_ms: int = 0
    state_bytes: int = 0
    alignment_ms: int = 0
    held_back_bytes: int = 0
    sync_ms: int = 0
    async_ms: int = 0
    subtasks: int = 0
    acknowledged: int = 0
    path: str | None = None
    failure: str | None = None
    is_unaligned: bool = False
    stops: bool = False
    stored_bytes: int = 0
    parts: tuple[SubtaskCheckpoint, ...] = ()
    metadata_bytes: int = 0

    @property
    def processed_bytes(self) -> int:
        """The bytes that all subtasks together processed during alignment."""
        return sum(part.processed_bytes for part in self.parts)

    @property
    def persisted_bytes(self) -> int:
        """The size of all stored in-flight records."""
        return sum(part.persisted_bytes for part in self.parts)


@dataclass(frozen=True)
class CheckpointStatistics:
    """Counts since the job began. Immutable: each change creates a new value, so any thread may read one.

    Attributes:
        triggered: the number of checkpoints and savepoints begun.
        completed: the number of completed checkpoints.
        failed: the number of failed checkpoints, without those in `given_up`.
        given_up: checkpoints aborted for another reason, such as the end of an attempt, and failed savepoints.
        savepoints: the number of completed savepoints.
        last: the last completed checkpoint.
        history: the last completed or failed checkpoints and savepoints, newest first.
        last_savepoint: the last completed savepoint.
        last_failed: the last failed or given-up checkpoint or savepoint.
        restored: where the job was last restored from; None if it started from the beginning.
        restores: how often it was restored from a checkpoint.
        outcomes: the ids of the last completed or failed checkpoints, each with the reason of a failure, newest first.
    """

    triggered: int = 0
    completed: int = 0
    failed: int = 0
    savepoints: int = 0
    last: CheckpointRecord | None = None
    history: tuple[CheckpointRecord, ...] = ()
    last_savepoint: CheckpointRecord | None = None
    last_failed: CheckpointRecord | None = None
    restored: RestoredRecord | None = None
    restores: int = 0
    outcomes: tuple[tuple[int, str | None], ...] = ()
    given_up: int = 0

    def with_triggered(self) -> CheckpointStatistics:
        """Return the statistics with one more triggered checkpoint."""
        return replace(self, triggered=self.triggered + 1)

    def with_completed(self, record: CheckpointRecord) -> CheckpointStatistics:
        """Return the statistics with one more completed checkpoint."""
        counted = (
            replace(self, savepoints=self.savepoints + 1, last_savepoint=record)
            if record.is_savepoint
            else replace(self, completed=self.completed + 1, last=record)
        )
        return counted._remembering(record)

    def with_failed(self, record: CheckpointRecord, *, counts: bool = True) -> CheckpointStatistics:
        """Return the statistics with one more failed checkpoint, or a given-up one if something else was at fault."""
        failed, given_up = self.failed + counts, self.given_up + (not counts)
        return replace(self, failed=failed, given_up=given_up, last_failed=record)._remembering(record)

    def with_restored(self, restored: RestoredRecord) -> CheckpointStatistics:
        """Return the statistics with one more restore from a checkpoint."""
        return replace(self, restored=restored, restores=self.restores + 1)

    def _remembering(self, record: CheckpointRecord) -> CheckpointStatistics:
        failure = (record.failure or "it was given up") if record.status is CheckpointStatus.FAILED else None
        outcome = record.checkpoint_id, failure
        return replace(
            self,
            history=(record, *self.history)[:HISTORY_MAX],
            outcomes=(outcome, *self.outcomes)[:OUTCOMES_MAX],
        )
