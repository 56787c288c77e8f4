"""What graphs consist of: vertices, edges, and both together."""

from enum import Enum
from typing import Any, NamedTuple


class Vertex(NamedTuple):
    """A vertex; ids are unique in a graph and may be anything that can be a key."""

    id: Any
    value: Any = None

    def get_id(self) -> Any:
        """The id."""
        return self.id

    def get_value(self) -> Any:
        """The value."""
        return self.value


class Edge(NamedTuple):
    """An edge from a source to a target, by the ids of the vertices; there may be several of the same two."""

    source: Any
    target: Any
    value: Any = None

    def get_source(self) -> Any:
        """The id of the vertex that it comes from."""
        return self.source

    def get_target(self) -> Any:
        """The id of the vertex that it leads to."""
        return self.target

    def get_value(self) -> Any:
        """The value."""
        return self.value

    def reverse(self) -> "Edge":
        """The edge the other way round, with the same value."""
        return Edge(self.target, self.source, self.value)


class Triplet(NamedTuple):
    """An edge with the values of both its vertices."""

    source_id: Any
    target_id: Any
    source_value: Any
    target_value: Any
    edge_value: Any

    def get_src_vertex(self) -> Vertex:
        """The vertex that the edge comes from."""
        return Vertex(self.source_id, self.source_value)

    def get_trg_vertex(self) -> Vertex:
        """The vertex that the edge leads to."""
        return Vertex(self.target_id, self.target_value)

    def get_edge(self) -> Edge:
        """The edge."""
        return Edge(self.source_id, self.target_id, self.edge_value)


class EdgeDirection(Enum):
    """Which edges of a vertex are meant: those that lead to it, those that leave it, or all."""

    IN = "in"
    OUT = "out"
    ALL = "all"
