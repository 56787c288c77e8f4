"""The step from one checkpoint to the next: the tasks' work in an epoch, and the checkpoint of their answers. Pure.

`EpochWork` is a task's work in an epoch, and `EpochAnswer` its answer.

`InputWatermarks` and `watermarks_behind` compute event time, also if some tasks had nothing to read in an epoch; see
the docstring of `runtime.epochs`.

**Tokens** distinguish the runs of a task, because the next run may not send what the previous run did. In an epoch a
token is random, so that every run has its own. In a sorting run, which may be long, it is a digest of everything that
the task has sent. A task that Spark runs again from sorted rows sends the same output, as long as its functions are
deterministic. It then has the same token, and output of the first run that others have used stays valid. `OutputDigest`
computes the digest.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Final, NamedTuple

import xxhash
from msgspec.structs import replace

from penstock.runtime.batch.exchange import Consumer, Rows, consumers_of_vertex, is_keyed
from penstock.runtime.checkpoint.coordinator import enumerator_state
from penstock.runtime.checkpoint.statistics import Watermarks, not_over, restored_watermarks, watermarks_in_checkpoint
from penstock.runtime.graph import BACK_FILL, JobGraph
from penstock.runtime.records import MAX_WATERMARK
from penstock.state.operator_state import COMMITTABLE_MODE
from penstock.storage.metadata import CheckpointMetadata, OperatorSubtaskState, StateFile, state_of_subtask

#: The indices of a vertex and a subtask.
Task = tuple[int, int]


class Dealt(NamedTuple):
    """One source's new splits for each subtask, pickled, and whether each subtask gets no more."""

    splits: tuple[tuple[bytes, ...], ...]
    no_more: tuple[bool, ...]


@dataclass(frozen=True)
class EpochVertex:
    """A vertex as its tasks need it in every epoch; it is sent to them.

    `inputs`: the input index of each edge; `consumers`: the consumer of each edge. A run that `sorts` is the only one
    of its job and reads the whole input. In it, `is_keyed` vertices get a row for each record, ordered by key and time.
    """

    index: int
    job_id: str
    name: str
    parallelism: int
    max_parallelism: int
    program: bytes
    inputs: dict[int, int]
    consumers: dict[int, Consumer]
    is_keyed: bool = False
    sorts: bool = False


@dataclass(frozen=True)
class EpochWork:
    """One subtask's work in one epoch.

    `watermarks`: the watermark of each operator, by its place in the chain, and of the chain's input under -1.
    `splits`: new splits for a source, which reads at most `records_max` records. With `ends` the job comes to its end:
    everything is drained and finished. A `savepoint_path` makes the checkpoint a savepoint.

    `restored_ms`: when the checkpoint that the epoch continues from was taken (ms since the epoch, processing time).

    `forerunners`: the jobs that this one continues, until it has a checkpoint of its own.
    """

    epoch: int
    restored_id: int | None
    restored: dict[str, OperatorSubtaskState]
    builds_on_restored: bool
    watermarks: dict[int, int] = field(default_factory=dict)
    splits: tuple[bytes, ...] = ()
    no_more_splits: bool = False
    records_max: int | None = None
    ends: bool = False
    savepoint_path: str | None = None
    forerunners: tuple[str, ...] = ()
    restored_ms: int | None = None


@dataclass(frozen=True)
class EpochAnswer:
    """A subtask's part of the epoch's checkpoint. `has_ended`: its source has reached its end.

    A task that runs twice may read more the second time. So each run has a `token`, its rows carry the token, and an
    answer names the tokens of the runs whose rows it `used`. `is_idle`: the subtask had nothing to read, while others
    of its vertex may have had, so event time does not wait for it.
    """

    operators: dict[str, OperatorSubtaskState]
    watermarks: dict[int, int]
    has_ended: bool
    records_read: int
    token: bytes = b""
    used: frozenset[bytes] = frozenset()
    is_idle: bool = False


class InputWatermarks:
    """The producers' progress: for each edge the lowest watermark of active producers, or of all if all are idle.

    A producer that has ended (MAX_WATERMARK) counts as neither: the others alone determine their edge's watermark. A
    silent producer, which had no record and whose strategy asks for idleness, counts only if all others are silent or
    have ended.

    Attributes:
        watermark: the lowest of all edges; None if no producer has reported.
    """

    def __init__(self) -> None:
        self.watermark: int | None = None
        self._active: dict[int, int] = {}
        self._idle: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        self._silent: dict[int, int] = {}

    def add(self, edge: int, watermark: int, is_idle: bool, is_silent: bool = False) -> None:
        """Add a producer's report."""
        known = self._silent if is_silent else self._idle if is_idle else self._active
        if watermark == MAX_WATERMARK:
            known = self._ended
        known[edge] = min(watermark, known.get(edge, watermark))
        speaking = {**self._idle, **self._active}
        self.watermark = min({**self._ended, **(speaking or self._silent), **speaking}.values())

    @property
    def are_idle(self) -> bool:
        """Whether some producers are idle, and all other known ones have ended."""
        return bool(self._idle) and not self._active

    @property
    def are_silent(self) -> bool:
        """Whether some producers are silent, and all other known ones have ended."""
        return bool(self._silent) and not self._active and not self._idle


def watermarks_behind(answers: Mapping[tuple[int, int], EpochAnswer]) -> dict[tuple[int, int], dict[int, int]]:
    """Return the watermarks of all tasks after an epoch, by vertex and subtask.

    An idle task takes over the lowest watermark of the active, unended tasks of its vertex, unless its own is higher.
    """
    reached: dict[int, dict[int, int]] = {}
    for (vertex, _), answer in answers.items():
        if not answer.is_idle:
            known = reached.setdefault(vertex, {})
            open_ones = {position: mark for position, mark in answer.watermarks.items() if mark != MAX_WATERMARK}
            known.update({position: min(mark, known.get(position, mark)) for position, mark in open_ones.items()})
    return {
        (vertex, subtask): {
            position: max(mark, reached.get(vertex, {}).get(position, mark)) if answer.is_idle else mark
            for position, mark in answer.watermarks.items()
        }
        for (vertex, subtask), answer in answers.items()
    }


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


#: A version without references between equal objects, so the bytes depend on the values alone.
_MARSHAL_VERSION: Final = 2


class OutputDigest:
    """Digests the rows that one task sends to other tasks, and the values that accompany them."""

    def __init__(self, *whose: Any) -> None:
        self._digest = xxhash.xxh3_128(repr(whose).encode())

    def add(self, rows: Rows) -> None:
        """Add the next rows, except rows for the client."""
        columns = rows.edges, rows.targets, rows.places, rows.timestamps, rows.payloads
        if rows.edges and min(rows.edges) < 0:
            mine = [edge >= 0 for edge in rows.edges]
            columns = tuple(list(compress(column, mine)) for column in columns)  # type: ignore[assignment]
        payloads = columns[-1]
        if payloads:
            self.say((*columns[:-1], list(map(len, payloads))))
            self._digest.update(b"".join(payloads))

    def say(self, value: Any) -> None:
        """Add numbers, in tuples, lists and dictionaries."""
        self._digest.update(marshal.dumps(value, _MARSHAL_VERSION))

    def token(self) -> bytes:
        """Return the digest so far."""
        return self._digest.digest()
