"""The job graph: what the job master is given to run (E4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from penstock.base.watermark_strategy import WatermarkAlignment
from penstock.core.connector import Boundedness, Source
from penstock.core.graph import pointwise
from penstock.core.supersteps import Superstep
from penstock.storage.metadata import OperatorState, OperatorSubtaskState, StateFile

#: The name of a slot sharing group, and the index of one of its slots.
Slot: TypeAlias = tuple[str, int]

#: `JobEdge.partitioning` of an edge whose records go to every consumer.
BROADCAST: Final = "BROADCAST"
#: The same of one between equal parallelisms: subtask i feeds subtask i.
FORWARD: Final = "FORWARD"
#: The mode of a batch that leaves its state as a savepoint.
BACK_FILL: Final = "BACK_FILL"


@dataclass(frozen=True)
class OperatorInfo:
    """One operator of a vertex, for checkpoints and plans."""

    operator_id: str
    name: str
    uid: str | None
    is_stateful: bool
    #: what the operator is, such as "Keyed Process"; its name, where the program gave none
    kind: str = ""
    #: the user's function, source or sink by the name of its class, or of the function; "" when it has none to tell
    function: str = ""
    #: the declared type of its keys in Flink's notation, "" when none was
    key_type: str = ""
    #: whether its id was made from its place in the program, because it has no uid
    has_placed_id: bool = False
    #: whether it is a sink that commits: what it writes is seen only then, and cannot be taken back any more
    commits: bool = False
    #: what it does, as the program or a query says; "" where they do not
    description: str = ""


@dataclass(frozen=True)
class JobEdge:
    """One edge between vertices; a pointwise one connects neighbours only, see `penstock.core.graph.pointwise`."""

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
    #: Subtasks of vertices of one group share slots (E3).
    slot_sharing_group: str = "default"
    #: operator id of a source -> the group that it keeps close to
    alignments: Mapping[str, WatermarkAlignment] = field(default_factory=dict)
    #: (operator's name, tag) of each side output that is read, of an operator other than a source
    side_outputs: tuple[tuple[str, str], ...] = ()
    #: what an operator can be at most, such as 1 for windows over all records; None for those that any number can be
    parallelism_limit: int | None = None

    @property
    def parallelism_max(self) -> int:
        """The highest parallelism that it can run at."""
        return self.max_parallelism if self.parallelism_limit is None else self.parallelism_limit

    def state_of(
        self,
        operator: OperatorInfo,
        subtasks: dict[int, OperatorSubtaskState],
        finished: tuple[int, ...],
        coordinator: StateFile | None,
        watermarks: dict[int, tuple[int, int]] | None = None,
    ) -> OperatorState:
        """One of the vertex' operators in a checkpoint."""
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
    #: operator id -> what the client does with the bytes that the operator's sink emits to it
    client_handlers: Mapping[str, Callable[[int, bytes], None]] = field(default_factory=dict)
    #: STREAMING, BATCH (`core.batch`), MICRO_BATCH (`core.epochs`) or BACK_FILL (one epoch, its input sorted)
    mode: str = "STREAMING"
    #: of a job that is part of an iteration
    superstep: Superstep | None = None
    #: what the user's script defines, for workers in other processes (`codecs.script`)
    script: bytes = b""

    @property
    def slots_required(self) -> int:
        """The slots that a job needs: as many as the highest parallelism in each slot sharing group, added up (E3)."""
        return sum(self.slots_of_groups().values())

    @property
    def commits(self) -> bool:
        """Whether a sink of the job commits."""
        return any(operator.commits for vertex in self.vertices for operator in vertex.operators)

    def at_parallelism(self, parallelism: Mapping[int, int]) -> JobGraph:
        """The same job with other parallelisms, by the index of the vertex; those not named keep theirs."""
        vertices = (replace(v, parallelism=parallelism.get(v.index, v.parallelism)) for v in self.vertices)
        return replace(self, vertices=tuple(vertices))

    def slots_of_groups(self) -> dict[str, int]:
        """How many slots each slot sharing group needs, in the order of the vertices."""
        slots: dict[str, int] = {}
        for vertex in self.vertices:
            group = vertex.slot_sharing_group
            slots[group] = max(slots.get(group, 0), vertex.parallelism)
        return slots

    def first_slots(self) -> dict[str, int]:
        """The first of each group's slots: subtask i of every vertex of the group shares the i-th from there (E3).

        So forward edges stay within a slot, except those between groups.
        """
        first, taken = dict[str, int](), 0
        for group, slots in self.slots_of_groups().items():
            first[group], taken = taken, taken + slots
        return first

    def slots(self) -> list[Slot]:
        """All slots, in the order that `first_slots` says."""
        return [(group, i) for group, slots in self.slots_of_groups().items() for i in range(slots)]

    def producers(self, edge: JobEdge, consumer: int) -> range:
        """The producing subtasks of which a consuming subtask of the edge reads."""
        producers = self.vertices[edge.source].parallelism
        if not edge.is_pointwise:
            return range(producers)
        return pointwise.producers_of(consumer, producers, self.vertices[edge.target].parallelism)

    def consumers(self, edge: JobEdge, producer: int) -> range:
        """The consuming subtasks that a producing subtask of the edge feeds."""
        consumers = self.vertices[edge.target].parallelism
        if not edge.is_pointwise:
            return range(consumers)
        return pointwise.consumers_of(producer, self.vertices[edge.source].parallelism, consumers)

    def edge_names(self) -> tuple[str, ...]:
        """For each edge, which operators it is between: the same in every job in which it is the same edge."""
        heads = [vertex.operators[0].operator_id for vertex in self.vertices]
        return tuple(f"{heads[e.source]}>{heads[e.target]}:{e.input_index}" for e in self.edges)

    def inputs_of(self, vertex: int) -> list[JobEdge]:
        """Edges into a vertex."""
        return [e for e in self.edges if e.target == vertex]

    def vertices_forced_aligned(self) -> set[int]:
        """The vertices that align barriers on all inputs in unaligned modes too (G5).

        Those with a broadcast input: an unaligned checkpoint would hold different records of a broadcast for each
        consumer. Their states would differ by what they have made of the others, so none of them, nor of the records,
        could go to another subtask. And those with a pointwise input: its records are where they are because of a key
        further up, which nobody knows here, so at another parallelism they could not follow that key.
        """
        return {edge.target for edge in self.edges if edge.is_pointwise or edge.partitioning == BROADCAST}

    def vertices_without_end(self) -> set[int]:
        """The vertices that read, directly or not, a source that never ends."""
        endless: set[int] = set()
        for vertex in self.vertices:
            sources = vertex.sources.values()
            if any(source.boundedness is not Boundedness.BOUNDED for source in sources) or any(
                edge.source in endless for edge in self.inputs_of(vertex.index)
            ):
                endless.add(vertex.index)
        return endless

    def outputs_of(self, vertex: int) -> list[JobEdge]:
        """Edges out of a vertex."""
        return [e for e in self.edges if e.source == vertex]
