"""Elements of graphs: vertices, edges, and both together."""

from enum import Enum
from typing import Any, NamedTuple


class Vertex(NamedTuple):
    """A vertex; ids are unique in a graph and may be anything that can be a key."""

    id: Any
    value: Any = None

    def get_id(self) -> Any:
        """Return the id."""
        return self.id

    def get_value(self) -> Any:
        """Return the value."""
        return self.value


class Edge(NamedTuple):
    """An edge from a source to a target, by the ids of the vertices; several edges may connect the same two."""

    source: Any
    target: Any
    value: Any = None

    def get_source(self) -> Any:
        """Return the id of the source."""
        return self.source

    def get_target(self) -> Any:
        """Return the id of the target."""
        return self.target

    def get_value(self) -> Any:
        """Return the value."""
        return self.value

    def reverse(self) -> "Edge":
        """Return the reversed edge, with the same value."""
        return Edge(self.target, self.source, self.value)


class Triplet(NamedTuple):
    """An edge with the values of both its vertices."""

    source_id: Any
    target_id: Any
    source_value: Any
    target_value: Any
    edge_value: Any

    def get_src_vertex(self) -> Vertex:
        """Return the source vertex."""
        return Vertex(self.source_id, self.source_value)

    def get_trg_vertex(self) -> Vertex:
        """Return the target vertex."""
        return Vertex(self.target_id, self.target_value)

    def get_edge(self) -> Edge:
        """Return the edge."""
        return Edge(self.source_id, self.target_id, self.edge_value)


class EdgeDirection(Enum):
    """The edges of a vertex to use: incoming, outgoing, or all."""

    IN = "in"
    OUT = "out"
    ALL = "all"
