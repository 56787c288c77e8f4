"""The job graph, which the job master runs (E4).

The subtasks that a pointwise edge connects: neighbours only (B3). Pure.

Between equal parallelisms subtask i feeds subtask i. Otherwise the side with fewer subtasks divides the other side into
groups of neighbours, whose sizes differ by at most one. Each subtask of the smaller side is connected to its group
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from penstock.base.watermark_strategy import WatermarkAlignment
from penstock.runtime.connector import Boundedness, Source
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
    """One edge between vertices; a pointwise edge connects neighbours only, see `penstock.runtime.graph.job_graph`."""

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
