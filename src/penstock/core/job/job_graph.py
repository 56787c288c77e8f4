"""The job graph: what the job master is given to run (E4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.core.connector import Source


@dataclass(frozen=True)
class OperatorInfo:
    """One operator of a vertex, for checkpoints and plans."""

    operator_id: str
    name: str
    uid: str | None
    is_stateful: bool


@dataclass(frozen=True)
class JobEdge:
    """One edge between vertices; a pointwise one connects equal subtask indices only."""

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


@dataclass(frozen=True)
class JobGraph:
    """Vertices, upstream before downstream, and the edges between them."""

    name: str
    vertices: tuple[JobVertex, ...]
    edges: tuple[JobEdge, ...]
    #: operator id -> what the client does with the bytes that the operator's sink emits to it
    client_handlers: Mapping[str, Callable[[int, bytes], None]] = field(default_factory=dict)
    #: STREAMING, BATCH (`core.batch`) or MICRO_BATCH (`core.epochs`)
    mode: str = "STREAMING"

    @property
    def slots_required(self) -> int:
        """With slot sharing a job needs as many slots as its highest parallelism (E3)."""
        return max((v.parallelism for v in self.vertices), default=0)

    def edge_names(self) -> tuple[str, ...]:
        """For each edge, which operators it is between: the same in every job in which it is the same edge."""
        heads = [vertex.operators[0].operator_id for vertex in self.vertices]
        return tuple(f"{heads[e.source]}>{heads[e.target]}:{e.input_index}" for e in self.edges)

    def inputs_of(self, vertex: int) -> list[JobEdge]:
        """Edges into a vertex."""
        return [e for e in self.edges if e.target == vertex]

    def outputs_of(self, vertex: int) -> list[JobEdge]:
        """Edges out of a vertex."""
        return [e for e in self.edges if e.source == vertex]
