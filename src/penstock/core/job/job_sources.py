"""The sources of a job, as its job master hosts them: one split enumerator each (A1)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from penstock.core.checkpoint.coordinator import enumerator_state
from penstock.core.effects import Effects
from penstock.core.graph.execution_graph import ExecutionGraph
from penstock.core.graph.regions import Subtask
from penstock.core.healing import with_prospects
from penstock.core.job.news import AttemptFailed
from penstock.core.job.source_coordinator import SourceCoordinator
from penstock.core.protocol import AssignSplits, Failure, RequestSplit
from penstock.storage.metadata import CheckpointMetadata


class JobSources:
    """The source coordinators of a job, by operator id."""

    def __init__(
        self,
        graph: ExecutionGraph,
        job_id: str,
        effects: Effects,
        call_later: Callable[[int, Callable[[], None]], None],
        tell: Callable[[AttemptFailed], None],
    ) -> None:
        self._graph = graph
        self._job_id = job_id
        self._effects = effects
        self._tell = tell
        self.coordinators = {
            operator_id: SourceCoordinator(
                operator_id,
                source,
                vertex.parallelism,
                effects,
                partial(self._assign_splits, vertex.index),
                call_later,
                self._on_error,
                remembers=len(graph.regions) > 1,
            )
            for vertex in graph.job_graph.vertices
            for operator_id, source in vertex.sources.items()
        }

    def start(self, restored: CheckpointMetadata | None) -> None:
        """Begin to assign splits; the readers' tasks are already on their way, so messages reach them after that."""
        for operator_id, source in self.coordinators.items():
            try:
                file = None if restored is None else enumerator_state(restored, operator_id)
                source.reset(None if file is None else file.data, self._own_id(restored))
            except Exception as error:  # noqa: BLE001 - a connector's error fails the job, not the job master
                reason = f"a source's split enumerator could not start: {type(error).__name__}: {error}"
                self._tell(AttemptFailed(Failure(reason)))
                return

    def rescale(self) -> None:
        """Change the number of readers; the new readers begin with `start`."""
        for vertex in self._graph.job_graph.vertices:
            for operator_id in vertex.sources:
                self.coordinators[operator_id].rescale(vertex.parallelism, remembers=len(self._graph.regions) > 1)

    def restart(self, part: Collection[Subtask], restored: CheckpointMetadata | None) -> None:
        """Restart readers in a part of the job from a checkpoint; messages reach them after their deployment."""
        for vertex, subtask in sorted(part):
            for operator_id in self._graph.job_graph.vertices[vertex].sources:
                self.coordinators[operator_id].reset_reader(subtask, self._own_id(restored))

    def _own_id(self, restored: CheckpointMetadata | None) -> int:
        """Return the id of the checkpoint if it belongs to this job, whose ids only grow, else 0."""
        return 0 if restored is None or restored.job_id != self._job_id else restored.checkpoint_id

    def on_request(self, message: RequestSplit) -> None:
        """Handle a reader's request for a split."""
        if self._graph.find(message.execution) is not None and message.operator_id in self.coordinators:
            self.coordinators[message.operator_id].handle_request(message.execution.subtask)

    def close(self) -> None:
        """Close all enumerators."""
        for source in self.coordinators.values():
            source.close()

    def _on_error(self, error: BaseException) -> None:
        failure = Failure(f"a source's split enumerator: {type(error).__name__}: {error}")
        self._tell(AttemptFailed(with_prospects(failure, error)))

    def _assign_splits(
        self, vertex: int, subtask: int, operator_id: str, splits: tuple[bytes, ...], no_more: bool
    ) -> None:
        execution = self._graph.vertices[vertex].subtasks[subtask].current
        if not execution.state.is_terminal:
            self._effects.send(execution.worker_id, AssignSplits(execution.id, operator_id, splits, no_more))
