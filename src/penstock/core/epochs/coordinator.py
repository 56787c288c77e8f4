"""From one checkpoint to the next: what every task does in an epoch, and what its answers amount to."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from penstock.core.batch.edges import consumers_of_vertex, is_keyed
from penstock.core.batch.splits import SplitDealer
from penstock.core.checkpoint.coordinator import enumerator_state
from penstock.core.epochs.event_time import Watermarks, restored_watermarks, watermarks_in_checkpoint
from penstock.core.epochs.idleness import watermarks_behind
from penstock.core.epochs.work import EpochAnswer, EpochVertex, EpochWork
from penstock.core.job.job_graph import BACK_FILL, JobGraph
from penstock.core.job.scheduler import state_of_subtask
from penstock.state.operator_state import COMMITTABLE_MODE
from penstock.storage.metadata import CheckpointMetadata, OperatorSubtaskState

Task = tuple[int, int]


def epoch_vertices(job_graph: JobGraph, job_id: str) -> list[EpochVertex]:
    """The vertices of a job, upstream before downstream."""
    sorts = job_graph.mode == BACK_FILL
    keyed = [sorts and is_keyed(vertex) for vertex in job_graph.vertices]
    return [
        EpochVertex(
            vertex.index,
            job_id,
            vertex.name,
            vertex.parallelism,
            vertex.max_parallelism,
            vertex.program,
            {edge.index: edge.input_index for edge in job_graph.inputs_of(vertex.index)},
            consumers_of_vertex(job_graph, vertex, keyed),
            keyed[vertex.index],
            sorts,
        )
        for vertex in job_graph.vertices
    ]


class EpochCoordinator:
    """Call `works`, run them all, `complete` with their answers; after a failure `roll_back`, and `works` again."""

    def __init__(self, job_graph: JobGraph, job_id: str, begin_from: CheckpointMetadata | None) -> None:
        self.latest = begin_from
        self._job_graph = job_graph
        self._job_id = job_id
        self._epoch = 0 if begin_from is None else begin_from.checkpoint_id
        self._watermarks: Mapping[Task, Watermarks] = restored_watermarks(begin_from, job_graph)
        self._ended: set[Task] = set()
        self._is_delivered = False
        self._sources: dict[str, SplitDealer] = {}
        self.roll_back()

    @property
    def epoch(self) -> int:
        """The epoch that was begun last, which is the number of its checkpoint."""
        return self._epoch

    @property
    def has_ended(self) -> bool:
        """Whether no source has anything more to read, ever."""
        readers = {
            (vertex.index, subtask)
            for vertex in self._job_graph.vertices
            if vertex.sources
            for subtask in range(vertex.parallelism)
        }
        return readers <= self._ended

    def roll_back(self) -> None:
        """Let the sources deal out from the last checkpoint again."""
        self.close()
        for vertex in self._job_graph.vertices:
            for operator_id, source in vertex.sources.items():
                restored = None if self.latest is None else enumerator_state(self.latest, operator_id)
                self._sources[operator_id] = SplitDealer(source, vertex.parallelism, restored)

    def close(self) -> None:
        """Let the sources go."""
        for source in self._sources.values():
            source.close()
        self._sources.clear()

    def works(
        self, records_max: int | None = None, ends: bool = False, savepoint_path: str | None = None
    ) -> dict[Task, EpochWork]:
        """Begin an epoch. One that `ends` the job reads nothing, nor one that is a savepoint, but of a back-fill."""
        self._epoch += 1
        latest = self.latest
        reads = not ends and (savepoint_path is None or self._job_graph.mode == BACK_FILL)
        states = {} if latest is None else {o.operator_id: o for o in latest.operators}
        works = {}
        for vertex in self._job_graph.vertices:
            source = next((self._sources[operator_id] for operator_id in vertex.sources), None)
            dealt = source.deal() if source is not None and reads else None
            known = [states[o.operator_id] for o in vertex.operators if o.operator_id in states]
            for subtask in range(vertex.parallelism):
                works[vertex.index, subtask] = EpochWork(
                    self._epoch,
                    None if latest is None else latest.checkpoint_id,
                    {
                        o.operator_id: self._owed(
                            state_of_subtask(o, subtask, vertex.parallelism, vertex.max_parallelism)
                        )
                        for o in known
                    },
                    latest is not None and latest.job_id == self._job_id and not latest.is_savepoint,
                    dict(self._watermarks.get((vertex.index, subtask), {})),
                    () if dealt is None else dealt[subtask],
                    source is not None and source.no_more[subtask],
                    records_max if reads else 0,
                    ends,
                    savepoint_path,
                )
        return works

    def _owed(self, state: OperatorSubtaskState) -> OperatorSubtaskState:
        """Without what sinks have prepared for the last epoch, when this run of the job has delivered that."""
        if not self._is_delivered:
            return state
        kept = {
            name: handles
            for name, handles in state.operator.items()
            if any(handle.mode != COMMITTABLE_MODE for handle in handles)
        }
        return replace(state, operator=kept)

    def metadata(self, answers: Mapping[Task, EpochAnswer], timestamp_ms: int, ends: bool) -> CheckpointMetadata:
        """The checkpoint that the answers make; with a savepoint's path, which it does not have here, a savepoint."""
        operators = []
        # A job that is drained has come to the end of time, which is nowhere to go on from.
        reached = {} if ends else watermarks_behind(answers)
        for vertex in self._job_graph.vertices:
            for place, operator in enumerate(vertex.operators):
                subtasks = {
                    subtask: state
                    for subtask in range(vertex.parallelism)
                    if (state := answers[vertex.index, subtask].operators.get(operator.operator_id))
                }
                source = self._sources.get(operator.operator_id)
                operators.append(
                    vertex.state_of(
                        operator,
                        subtasks,
                        tuple(range(vertex.parallelism)) if ends else (),
                        None if source is None else source.snapshot(self._epoch),
                        watermarks_in_checkpoint(vertex, place, reached),
                    )
                )
        edges = self._job_graph.edge_names()
        job_name = self._job_graph.name
        return CheckpointMetadata(
            self._epoch, self._job_id, job_name, timestamp_ms, False, tuple(operators), None, False, edges
        )

    def complete(self, metadata: CheckpointMetadata, answers: Mapping[Task, EpochAnswer]) -> None:
        """The checkpoint is visible: the next epoch goes on from it, when all that this one has left is delivered."""
        self.latest = metadata
        self._is_delivered = True
        self._watermarks = watermarks_behind(answers)
        self._ended |= {task for task, answer in answers.items() if answer.has_ended}
