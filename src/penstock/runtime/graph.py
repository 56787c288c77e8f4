"""The job graph, and the execution graph: subtasks, their attempts, and the legal transitions of their states.

`find_producers` and `find_consumers` return the subtasks that a pointwise edge connects: neighbours only (B3). Pure.
Between equal parallelisms subtask i feeds subtask i. Otherwise the side with fewer subtasks divides the other side into
groups of neighbours, whose sizes differ by at most one. Each subtask of the smaller side is connected to its group
alone.

The job master runs a `JobGraph` (E4).

**States** of jobs and executions have tables of their legal transitions (E5, E6).

`Regions` are the parts of a job that can restart alone: its failover regions (E6, G8). Pure. Subtasks that exchange
records depend on each other: when one restarts from a checkpoint, its producers have to send again, and its consumers
have to forget. So a region contains all subtasks that channels connect. No record passes between regions, and each
region may have advanced differently since the last checkpoint.

Readers of one source share its split enumerator. A reader that restarts alone is assigned its splits again. If a source
does not support that (`Source.restarts_by_reader`), all of its readers are in one region.

`ExecutionGraph` is the parallel form of the job graph, with the state of every subtask's attempts (E4, E6).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from penstock.base.job import JobStatus
from penstock.base.lineage import LineageDataset
from penstock.base.watermark_strategy import WatermarkAlignment
from penstock.runtime.connector import Boundedness, Source
from penstock.runtime.ports import Clock
from penstock.runtime.protocol import ExecutionId, Failure
from penstock.runtime.supersteps import Superstep
from penstock.storage.metadata import OperatorState, OperatorSubtaskState, StateFile


def find_producers(consumer: int, producers: int, consumers: int) -> range:
    """Return the producing subtasks that a consuming one reads from, given the number of each."""
    first = consumer * producers // consumers
    return range(first, max(first + 1, (consumer + 1) * producers // consumers))


def find_consumers(producer: int, producers: int, consumers: int) -> range:
    """Return the consuming subtasks that a producing one feeds: the inverse of `find_producers`."""
    if producers >= consumers:
        first = ((producer + 1) * consumers - 1) // producers
        return range(first, first + 1)
    return range(-(-producer * consumers // producers), -(-(producer + 1) * consumers // producers))


#: The name of a slot sharing group, and the index of one of its slots.
Slot: TypeAlias = tuple[str, int]

#: `JobEdge.partitioning` of an edge whose records go to every consumer.
BROADCAST: Final = "BROADCAST"
#: `JobEdge.partitioning` of an edge between equal parallelisms: subtask i feeds subtask i.
FORWARD: Final = "FORWARD"
#: The execution mode of a batch that leaves its state as a savepoint.
BACK_FILL: Final = "BACK_FILL"


@dataclass(frozen=True)
class OperatorInfo:
    """One operator of a vertex, for checkpoints and plans."""

    operator_id: str
    name: str
    uid: str | None
    is_stateful: bool
    #: the kind of operator, such as "Keyed Process", which is also its default name
    kind: str = ""
    #: the class name of the user's function, source or sink, or the function's own name; "" without one
    function: str = ""
    #: the declared type of its keys in Flink's notation; "" if undeclared
    key_type: str = ""
    #: whether its id was derived from its place in the program, because it has no uid
    has_placed_id: bool = False
    #: whether it is a sink that commits: its output becomes visible only then, and cannot be withdrawn any more
    commits: bool = False
    #: its description from the program or a query; "" without one
    description: str = ""


@dataclass(frozen=True)
class JobEdge:
    """One edge between vertices; a pointwise edge connects neighbours only, see `penstock.runtime.graph`."""

    index: int
    source: int
    target: int
    input_index: int
    partitioning: str
    is_pointwise: bool


@dataclass(frozen=True)
class JobVertex:
    """One chain of operators. `program` is the pickled `VertexProgram` that its tasks run."""

    index: int
    name: str
    parallelism: int
    max_parallelism: int
    operators: tuple[OperatorInfo, ...]
    program: bytes
    sources: Mapping[str, Source[Any, Any]] = field(default_factory=dict)
    #: Subtasks of vertices in the same group share slots (E3).
    slot_sharing_group: str = "default"
    #: operator id of a source -> its watermark alignment group
    alignments: Mapping[str, WatermarkAlignment] = field(default_factory=dict)
    #: (operator's name, tag) of each side output that is read, except side outputs of sources
    side_outputs: tuple[tuple[str, str], ...] = ()
    #: the highest parallelism that the operators allow, such as 1 for windows over all records; None without a limit
    parallelism_limit: int | None = None

    @property
    def parallelism_max(self) -> int:
        """The highest possible parallelism."""
        return self.max_parallelism if self.parallelism_limit is None else self.parallelism_limit

    def build_operator_state(
        self,
        operator: OperatorInfo,
        subtasks: dict[int, OperatorSubtaskState],
        finished: tuple[int, ...],
        coordinator: StateFile | None,
        watermarks: dict[int, tuple[int, int]] | None = None,
    ) -> OperatorState:
        """Return the state of one of the vertex's operators in a checkpoint."""
        return OperatorState(
            operator.operator_id,
            operator.uid,
            operator.name,
            self.parallelism,
            self.max_parallelism,
            subtasks,
            finished,
            coordinator,
            operator.kind,
            operator.function,
            operator.key_type,
            operator.has_placed_id,
            watermarks or {},
            operator.description,
        )


@dataclass(frozen=True)
class JobGraph:
    """Vertices, upstream before downstream, and the edges between them."""

    name: str
    vertices: tuple[JobVertex, ...]
    edges: tuple[JobEdge, ...]
    #: operator id -> the client's handler for the bytes that the operator's sink emits
    client_handlers: Mapping[str, Callable[[int, bytes], None]] = field(default_factory=dict)
    #: STREAMING, BATCH (`runtime.batch`), MICRO_BATCH (`runtime.epochs`) or BACK_FILL (one epoch, its input sorted)
    mode: str = "STREAMING"
    #: the superstep of a job that is part of an iteration
    superstep: Superstep | None = None
    #: the definitions in the user's script, for workers in other processes (`codecs.cloud`)
    script: bytes = b""
    #: the datasets that the job reads and those that it writes, as sources and sinks describe them
    inputs: tuple[LineageDataset, ...] = ()
    outputs: tuple[LineageDataset, ...] = ()

    @property
    def slots_required(self) -> int:
        """The number of slots that the job needs: the highest parallelism in each slot sharing group, added up (E3)."""
        return sum(self.slots_of_groups().values())

    @property
    def commits(self) -> bool:
        """Whether a sink of the job commits."""
        return any(operator.commits for vertex in self.vertices for operator in vertex.operators)

    def at_parallelism(self, parallelism: Mapping[int, int]) -> JobGraph:
        """Return the same job with other parallelisms, by vertex index; the other vertices keep theirs."""
        vertices = (replace(v, parallelism=parallelism.get(v.index, v.parallelism)) for v in self.vertices)
        return replace(self, vertices=tuple(vertices))

    def slots_of_groups(self) -> dict[str, int]:
        """Return the number of slots that each slot sharing group needs, in the order of the vertices."""
        slots: dict[str, int] = {}
        for vertex in self.vertices:
            group = vertex.slot_sharing_group
            slots[group] = max(slots.get(group, 0), vertex.parallelism)
        return slots

    def first_slots(self) -> dict[str, int]:
        """Return each group's first slot: subtask i of every vertex of the group shares the i-th slot from there (E3).

        So forward edges stay within a slot, except between groups.
        """
        first, offset = dict[str, int](), 0
        for group, slots in self.slots_of_groups().items():
            first[group], offset = offset, offset + slots
        return first

    def slots(self) -> list[Slot]:
        """Return all slots, in the order of `first_slots`."""
        return [(group, i) for group, slots in self.slots_of_groups().items() for i in range(slots)]

    def producers(self, edge: JobEdge, consumer: int) -> range:
        """Return the producing subtasks that a consuming subtask of the edge reads from."""
        producers = self.vertices[edge.source].parallelism
        if not edge.is_pointwise:
            return range(producers)
        return find_producers(consumer, producers, self.vertices[edge.target].parallelism)

    def consumers(self, edge: JobEdge, producer: int) -> range:
        """Return the consuming subtasks that a producing subtask of the edge feeds."""
        consumers = self.vertices[edge.target].parallelism
        if not edge.is_pointwise:
            return range(consumers)
        return find_consumers(producer, self.vertices[edge.source].parallelism, consumers)

    def edge_names(self) -> tuple[str, ...]:
        """Return a name for each edge from its operators; the same edge has the same name in every job."""
        heads = [vertex.operators[0].operator_id for vertex in self.vertices]
        return tuple(f"{heads[e.source]}>{heads[e.target]}:{e.input_index}" for e in self.edges)

    def get_inputs(self, vertex: int) -> list[JobEdge]:
        """Return the edges into a vertex."""
        return [e for e in self.edges if e.target == vertex]

    def vertices_forced_aligned(self) -> set[int]:
        """Return the vertices that align barriers on all inputs even in unaligned modes (G5).

        These are vertices with a broadcast input: an unaligned checkpoint would hold different broadcast records for
        each consumer. Their states would differ because they have processed different records, so neither the states
        nor the records could move to another subtask. They are also vertices with a pointwise input: its records are
        distributed by a key further upstream, which is unknown here, so at another parallelism they could not follow
        that key.
        """
        return {edge.target for edge in self.edges if edge.is_pointwise or edge.partitioning == BROADCAST}

    def vertices_without_end(self) -> set[int]:
        """Return the vertices that read, directly or indirectly, from a source that never ends."""
        endless: set[int] = set()
        for vertex in self.vertices:
            sources = vertex.sources.values()
            if any(source.boundedness is not Boundedness.BOUNDED for source in sources) or any(
                edge.source in endless for edge in self.get_inputs(vertex.index)
            ):
                endless.add(vertex.index)
        return endless

    def get_outputs(self, vertex: int) -> list[JobEdge]:
        """Return the edges out of a vertex."""
        return [e for e in self.edges if e.source == vertex]


class ExecutionState(enum.Enum):
    """The state of one attempt of one subtask."""

    CREATED = "CREATED"
    SCHEDULED = "SCHEDULED"
    DEPLOYING = "DEPLOYING"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FAILED = "FAILED"

    @property
    def is_terminal(self) -> bool:
        return self in _TERMINAL


_E = ExecutionState
_TERMINAL: Final = (_E.FINISHED, _E.CANCELED, _E.FAILED)  # searching a tuple is faster than hashing an enum

EXECUTION_MOVES: Final[dict[ExecutionState, frozenset[ExecutionState]]] = {
    _E.CREATED: frozenset({_E.SCHEDULED, _E.CANCELED, _E.FAILED}),
    _E.SCHEDULED: frozenset({_E.DEPLOYING, _E.CANCELED, _E.FAILED}),
    _E.DEPLOYING: frozenset({_E.INITIALIZING, _E.CANCELING, _E.CANCELED, _E.FAILED}),
    _E.INITIALIZING: frozenset({_E.RUNNING, _E.CANCELING, _E.CANCELED, _E.FAILED}),
    _E.RUNNING: frozenset({_E.FINISHED, _E.CANCELING, _E.CANCELED, _E.FAILED}),
    _E.CANCELING: frozenset({_E.CANCELED, _E.FINISHED, _E.FAILED}),
    _E.FINISHED: frozenset(),
    _E.CANCELED: frozenset(),
    _E.FAILED: frozenset(),
}

_J = JobStatus
JOB_MOVES: Final[dict[JobStatus, frozenset[JobStatus]]] = {
    _J.CREATED: frozenset({_J.RUNNING, _J.FAILING, _J.CANCELLING, _J.SUSPENDED, _J.FINISHED}),
    # From RUNNING to RESTARTING and back: only a part of the job restarts.
    _J.RUNNING: frozenset({_J.FINISHED, _J.RESTARTING, _J.FAILING, _J.CANCELLING, _J.SUSPENDED}),
    _J.FAILING: frozenset({_J.FAILED, _J.RESTARTING, _J.CANCELLING, _J.SUSPENDED}),
    _J.RESTARTING: frozenset({_J.CREATED, _J.RUNNING, _J.FAILING, _J.CANCELLING, _J.SUSPENDED}),
    _J.CANCELLING: frozenset({_J.CANCELED, _J.SUSPENDED}),
    _J.FINISHED: frozenset(),
    _J.FAILED: frozenset(),
    _J.CANCELED: frozenset(),
    _J.SUSPENDED: frozenset(),
}


#: The index of a vertex, and the index of one of its subtasks.
Subtask: TypeAlias = tuple[int, int]


class Regions:
    """The regions of a job."""

    def __init__(self, job_graph: JobGraph) -> None:
        parents = {(v.index, i): (v.index, i) for v in job_graph.vertices for i in range(v.parallelism)}

        def root(subtask: Subtask) -> Subtask:
            while parents[subtask] != subtask:
                parents[subtask] = parents[parents[subtask]]
                subtask = parents[subtask]
            return subtask

        def join(subtask: Subtask, other: Subtask) -> None:
            parents[root(subtask)] = root(other)

        for vertex in job_graph.vertices:
            if not all(source.restarts_by_reader for source in vertex.sources.values()):
                for reader in range(1, vertex.parallelism):
                    join((vertex.index, reader), (vertex.index, 0))
        for edge in job_graph.edges:
            for consumer in range(job_graph.vertices[edge.target].parallelism):
                producers = job_graph.producers(edge, consumer)
                # If each consumer reads from all producers, one consumer is enough to connect them.
                for producer in producers if edge.is_pointwise or consumer == 0 else producers[:1]:
                    join((edge.source, producer), (edge.target, consumer))

        members: dict[Subtask, list[Subtask]] = {}
        for subtask in parents:
            members.setdefault(root(subtask), []).append(subtask)
        self._regions = {subtask: region for region in map(frozenset, members.values()) for subtask in region}
        self._count = len(members)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, subtask: Subtask) -> frozenset[Subtask]:
        """Return the region of a subtask."""
        return self._regions[subtask]

    def of(self, subtasks: Iterable[Subtask]) -> frozenset[Subtask]:
        """Return all subtasks of the regions that contain these subtasks."""
        return frozenset[Subtask]().union(*(self._regions[subtask] for subtask in subtasks))


class Execution:
    """One attempt of one subtask."""

    def __init__(self, execution_id: ExecutionId, clock: Clock) -> None:
        self.id = execution_id
        self.state = ExecutionState.CREATED
        #: when (ms) it entered each state
        self.since_ms = {self.state: clock.now_ms()}
        self._clock = clock
        self.worker_id: str | None = None
        self.failure: Failure | None = None
        #: Whether all its data is processed and finished, so that only its last checkpoint is missing.
        self.end_of_data = False
        #: Whether in-flight records of the restored checkpoint are on their way to it, or being processed.
        self.awaits_channel_state = False

    def move(self, state: ExecutionState) -> None:
        """Change state; raise if the table does not allow the transition."""
        if state not in EXECUTION_MOVES[self.state]:
            raise AssertionError(f"execution {self.id}: {self.state.value} cannot become {state.value}")
        self.state = state
        self.since_ms[state] = self._clock.now_ms()


class ExecutionVertex:
    """One subtask: its current attempt, and the previous one, which only `validate` reads."""

    def __init__(self, vertex: JobVertex, subtask: int, clock: Clock, attempt: int = 0) -> None:
        self.vertex = vertex
        self.subtask = subtask
        self._clock = clock
        self.current = Execution(ExecutionId(vertex.index, subtask, attempt), clock)
        self.prior: Execution | None = None

    def reset(self, attempt: int) -> None:
        """Begin a new attempt."""
        self.prior = self.current
        self.current = Execution(ExecutionId(self.vertex.index, self.subtask, attempt), self._clock)

    @property
    def id(self) -> Subtask:
        return self.vertex.index, self.subtask

    @property
    def name(self) -> str:
        """The name, as in `Map -> Filter (2/4)`."""
        return f"{self.vertex.name} ({self.subtask + 1}/{self.vertex.parallelism})"


class ExecutionJobVertex:
    """All subtasks of a vertex."""

    def __init__(self, vertex: JobVertex, clock: Clock) -> None:
        self.vertex = vertex
        self._clock = clock
        self.subtasks = [ExecutionVertex(vertex, i, clock) for i in range(vertex.parallelism)]

    def rescale(self, vertex: JobVertex, attempt: int) -> None:
        """Adopt the vertex's number of subtasks; new subtasks begin with that attempt."""
        self.vertex = vertex
        for subtask in self.subtasks:
            subtask.vertex = vertex
        del self.subtasks[vertex.parallelism :]
        new = range(len(self.subtasks), vertex.parallelism)
        self.subtasks += [ExecutionVertex(vertex, i, self._clock, attempt) for i in new]


class ExecutionGraph:
    """All subtasks of a job, upstream before downstream."""

    def __init__(self, job_graph: JobGraph, clock: Clock) -> None:
        self.job_graph = job_graph
        self.vertices = [ExecutionJobVertex(v, clock) for v in job_graph.vertices]
        self.regions = Regions(job_graph)
        #: the number of the newest attempt; after regions restarted alone, the others are in older attempts
        self.attempt = 0

    def validate(self) -> None:
        """Assert the invariants that hold between any two turns. Only the simulator calls this, not a running job."""
        attempts: dict[frozenset[Subtask], int] = {}
        for vertex in self:
            current = vertex.current
            assert current.id.attempt <= self.attempt, f"{vertex.name} is in an attempt of the job"
            of_region = attempts.setdefault(self.regions[vertex.id], current.id.attempt)
            assert current.id.attempt == of_region, f"the region of {vertex.name} is in one attempt"
            prior = vertex.prior
            has_ended = prior is None or prior.worker_id is None or prior.state.is_terminal
            assert has_ended, f"one {vertex.name} runs at a time"
            if not current.state.is_terminal:
                is_placed = current.state not in (ExecutionState.CREATED, ExecutionState.SCHEDULED)
                is_somewhere = current.worker_id is not None
                assert is_placed is is_somewhere, f"{vertex.name} has a worker once it is deployed"

    def __iter__(self) -> Iterator[ExecutionVertex]:
        for vertex in self.vertices:
            yield from vertex.subtasks

    def find(self, execution_id: ExecutionId) -> Execution | None:
        """Return the current execution with that id; None for an id of an earlier attempt or an unknown id."""
        if not 0 <= execution_id.vertex < len(self.vertices):
            return None
        subtasks = self.vertices[execution_id.vertex].subtasks
        if not 0 <= execution_id.subtask < len(subtasks):
            return None
        current = subtasks[execution_id.subtask].current
        return current if current.id == execution_id else None

    def get_subtask_name(self, execution: Execution) -> str:
        """Return the subtask's name as shown to users."""
        return self.vertices[execution.id.vertex].subtasks[execution.id.subtask].name

    def executions(self, part: Collection[Subtask] | None = None) -> list[Execution]:
        """Return the current execution of every subtask, or of every subtask in a part."""
        return [v.current for v in self if part is None or v.id in part]

    def reset(self, attempt: int | None = None, part: Collection[Subtask] | None = None) -> None:
        """Begin a new attempt of everything, or of a part, with the given number or the next one."""
        self.attempt = self.attempt + 1 if attempt is None else attempt
        for vertex in self:
            if part is None or vertex.id in part:
                vertex.reset(self.attempt)

    def rescale(self, parallelism: Mapping[int, int]) -> None:
        """Change the numbers of subtasks, by vertex index, while none of them is deployed."""
        self.job_graph = self.job_graph.at_parallelism(parallelism)
        for job_vertex, vertex in zip(self.vertices, self.job_graph.vertices, strict=True):
            job_vertex.rescale(vertex, self.attempt)
        self.regions = Regions(self.job_graph)

    @property
    def parallelism(self) -> dict[int, int]:
        """The number of subtasks of each vertex, by vertex index."""
        return {vertex.index: vertex.parallelism for vertex in self.job_graph.vertices}

    @property
    def attempts(self) -> tuple[int, ...]:
        """The attempts that subtasks are currently in."""
        return tuple(sorted({e.id.attempt for e in self.executions()}))

    @property
    def all_terminal(self) -> bool:
        return all(e.state.is_terminal for e in self.executions())

    @property
    def all_finished(self) -> bool:
        return all(e.state is ExecutionState.FINISHED for e in self.executions())

    @property
    def all_open(self) -> bool:
        return all(e.state in (ExecutionState.RUNNING, ExecutionState.FINISHED) for e in self.executions())

    @property
    def is_ready_for_checkpoints(self) -> bool:
        """Whether all tasks are open, and have processed the in-flight records of the restored checkpoint."""
        return self.all_open and not any(e.awaits_channel_state for e in self.executions())

    @property
    def is_at_its_end(self) -> bool:
        """Whether all data is processed and only the last checkpoint is missing."""
        return all(e.end_of_data or e.state is ExecutionState.FINISHED for e in self.executions())

    def has_running_consumer(self, execution: Execution) -> bool:
        """Return whether a subtask that reads this one's output has not ended."""
        return any(not consumer.current.state.is_terminal for consumer in self.find_consumers(execution))

    def find_consumers(self, execution: Execution) -> Iterator[ExecutionVertex]:
        """Yield the subtasks that read a subtask's output, each once, however many edges connect them."""
        graph, producer = self.job_graph, execution.id
        consumers = {
            (edge.target, consumer)
            for edge in graph.get_outputs(producer.vertex)
            for consumer in graph.consumers(edge, producer.subtask)
        }
        for vertex, consumer in sorted(consumers):
            yield self.vertices[vertex].subtasks[consumer]

    def find_producers(self, consumer: ExecutionVertex) -> list[Execution]:
        """Return the current executions of all subtasks whose output a subtask reads."""
        return [
            self.vertices[vertex].subtasks[producer].current
            for vertex, producers in self.get_inputs(consumer)
            for producer in producers
        ]

    def get_inputs(self, consumer: ExecutionVertex) -> list[tuple[int, range]]:
        """Return a subtask's producers by index: for each edge, a vertex and a range of its subtasks."""
        graph = self.job_graph
        edges = graph.get_inputs(consumer.vertex.index)
        return [(edge.source, graph.producers(edge, consumer.subtask)) for edge in edges]

    def injection_points(self) -> list[Execution]:
        """Return where a checkpoint's barriers begin: unfinished subtasks with only finished predecessors (G10)."""
        finished = ExecutionState.FINISHED
        points = []
        for job_vertex in self.vertices:
            for subtask in job_vertex.subtasks:
                if subtask.current.state is finished:
                    continue
                if all(e.state is finished for e in self.find_producers(subtask)):
                    points.append(subtask.current)
        return points
