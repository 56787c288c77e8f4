"""The step from one checkpoint to the next: the tasks' work in an epoch, and the checkpoint of their answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from penstock.core.batch.edges import consumers_of_vertex, is_keyed
from penstock.core.checkpoint.coordinator import enumerator_state
from penstock.core.checkpoint.event_time import Watermarks, not_over, restored_watermarks, watermarks_in_checkpoint
from penstock.core.epochs.idleness import watermarks_behind
from penstock.core.epochs.work import Dealt, EpochAnswer, EpochVertex, EpochWork, Task
from penstock.core.graph.job_graph import BACK_FILL, JobGraph
from penstock.core.job.scheduler import state_of_subtask
from penstock.state.operator_state import COMMITTABLE_MODE
from penstock.storage.metadata import CheckpointMetadata, OperatorSubtaskState, StateFile


def epoch_vertices(job_graph: JobGraph, job_id: str) -> list[EpochVertex]:
    """Return the vertices of a job, upstream before downstream."""
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
            {edge.index: edge.input_index for edge in job_graph.get_inputs(vertex.index)},
            consumers_of_vertex(job_graph, vertex, keyed),
            keyed[vertex.index],
            sorts,
        )
        for vertex in job_graph.vertices
    ]


class EpochCoordinator:
    """Call `works`, run them all, and `complete` with their answers; after a failure `roll_back`, and `works` again."""

    def __init__(
        self,
        job_graph: JobGraph,
        job_id: str,
        begin_from: CheckpointMetadata | None,
        forerunners: tuple[str, ...] = (),
    ) -> None:
        self.latest = self._initial = begin_from
        self._forerunners = forerunners
        self._job_graph = job_graph
        self._job_id = job_id
        self._epoch = 0 if begin_from is None else begin_from.checkpoint_id
        self._watermarks: Mapping[Task, Watermarks] = restored_watermarks(begin_from, job_graph)
        self._ended: set[Task] = set()
        self._is_delivered = False
        #: by operator id, which of a source's subtasks get no more splits
        self._no_more: dict[str, tuple[bool, ...]] = {}

    def validate(self) -> None:
        """Assert the invariants that hold between any two epochs, and while one runs."""
        sources = {operator_id for vertex in self._job_graph.vertices for operator_id in vertex.sources}
        assert self._no_more.keys() <= sources, "only sources have splits"
        if self.latest is None:
            assert not self._is_delivered, "nothing was delivered before the first checkpoint"
            assert not self._ended, "no reader has ended before the first checkpoint"
        else:
            assert self.latest.checkpoint_id <= self._epoch, "an epoch follows the checkpoint that it begins from"

    @property
    def epoch(self) -> int:
        """The number of the epoch begun last, which is also the id of its checkpoint."""
        return self._epoch

    @property
    def has_ended(self) -> bool:
        """Whether all sources have reached their end."""
        readers = {
            (vertex.index, subtask)
            for vertex in self._job_graph.vertices
            if vertex.sources
            for subtask in range(vertex.parallelism)
        }
        return readers <= self._ended

    def kept_of_sources(self) -> dict[str, StateFile | None]:
        """Return the state of each split enumerator in the last checkpoint, by operator id."""
        return {
            operator_id: None if self.latest is None else enumerator_state(self.latest, operator_id)
            for vertex in self._job_graph.vertices
            for operator_id in vertex.sources
        }

    def roll_back(self) -> None:
        """Return to the last checkpoint, where the next epoch begins; its splits are assigned again.

        The new enumerators do not know which readers already got the end signal, so a reader has ended when it gets the
        signal again.
        """
        self._no_more.clear()
        self._ended.clear()
        self._watermarks = {
            task: {position: not_over(mark) for position, mark in marks.items()}
            for task, marks in self._watermarks.items()
        }

    def fall_back(self, before: CheckpointMetadata) -> None:
        """Continue from an earlier checkpoint, whose output was also delivered, because the last one is damaged."""
        self.latest = before
        self._watermarks = restored_watermarks(before, self._job_graph)
        self._ended.clear()

    def works(
        self,
        dealt: Mapping[str, Dealt],
        records_max: int | None = None,
        ends: bool = False,
        savepoint_path: str | None = None,
    ) -> dict[Task, EpochWork]:
        """Begin an epoch, and return its work by task.

        Args:
            dealt: new splits, by the operator ids of the sources that get any.
            records_max: how many records each reader reads; 0 for none, None for all available ones.
            ends: whether everything is drained and finished.
            savepoint_path: where a savepoint is to be written.
        """
        self._epoch += 1
        latest = self.latest
        states = {} if latest is None else {o.operator_id: o for o in latest.operators}
        works = {}
        for vertex in self._job_graph.vertices:
            source = next(iter(vertex.sources), None)
            new = None if source is None else dealt.get(source)
            if source is not None and new is not None:
                self._no_more[source] = new.no_more
            no_more = self._no_more.get(source or "", (False,) * vertex.parallelism)
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
                    () if new is None else new.splits[subtask],
                    source is not None and no_more[subtask],
                    records_max,
                    ends,
                    savepoint_path,
                    self._forerunners if latest is self._initial else (),
                    None if latest is None else latest.timestamp_ms,
                )
        return works

    def _owed(self, state: OperatorSubtaskState) -> OperatorSubtaskState:
        """Return the state without the committables of the last epoch, if this run of the job has delivered them."""
        if not self._is_delivered:
            return state
        operator_state = {
            name: handles
            for name, handles in state.operator.items()
            if any(handle.mode != COMMITTABLE_MODE for handle in handles)
        }
        return replace(state, operator=operator_state)

    def metadata(
        self,
        answers: Mapping[Task, EpochAnswer],
        enumerator_states: Mapping[str, StateFile],
        timestamp_ms: int,
        ends: bool,
    ) -> CheckpointMetadata:
        """Return the checkpoint made of the answers and the state of the split enumerators."""
        operators = []
        # A drained job has reached the end of time, from which nothing can continue.
        reached = {} if ends else watermarks_behind(answers)
        for vertex in self._job_graph.vertices:
            for position, operator in enumerate(vertex.operators):
                subtasks = {
                    subtask: state
                    for subtask in range(vertex.parallelism)
                    if (state := answers[vertex.index, subtask].operators.get(operator.operator_id))
                }
                operators.append(
                    vertex.build_operator_state(
                        operator,
                        subtasks,
                        tuple(range(vertex.parallelism)) if ends else (),
                        enumerator_states.get(operator.operator_id),
                        watermarks_in_checkpoint(vertex, position, reached),
                    )
                )
        edges = self._job_graph.edge_names()
        job_name = self._job_graph.name
        return CheckpointMetadata(
            self._epoch, self._job_id, job_name, timestamp_ms, False, tuple(operators), None, ends, edges
        )

    def complete(self, metadata: CheckpointMetadata, answers: Mapping[Task, EpochAnswer]) -> None:
        """Handle a visible checkpoint: the next epoch continues from it once this epoch's output is delivered."""
        self.latest = metadata
        self._is_delivered = True
        self._watermarks = watermarks_behind(answers)
        # A reader that had ended continues if it was assigned splits after a failure.
        self._ended -= {task for task, answer in answers.items() if answer.records_read}
        self._ended |= {task for task, answer in answers.items() if answer.has_ended}
