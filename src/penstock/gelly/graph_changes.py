"""Graph methods that add or remove vertices and edges, and set operations on graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

from penstock.core.operators.record.stateless import method
from penstock.datastream.data_stream import DataStream
from penstock.gelly.base.elements import Edge, Vertex
from penstock.gelly.base.graph_base import GraphBase
from penstock.gelly.base.streams import BOTH, FIRST, co_grouped, distinct, distinct_values, without
from penstock.gelly.graph_values import edges_between


class GraphChanges(GraphBase):
    """See the module docstring."""

    # --- adding ------------------------------------------------------------------------------------------------------

    def add_vertex(self, vertex: Vertex) -> Self:
        """Return this graph with one more vertex. If its id exists, nothing changes."""
        return self.add_vertices([vertex])

    def add_vertices(self, vertices_to_add: Iterable[Vertex]) -> Self:
        """Return this graph with more vertices. Vertices with existing ids are left out."""
        added = self._context.from_collection([Vertex(*vertex) for vertex in vertices_to_add])
        vertices = co_grouped(self._vertices, added, (FIRST, FIRST), _first_of_both)
        return self._replace_streams(vertices=vertices.name("Add Vertices"))

    def add_edge(self, source: Vertex, target: Vertex, edge_value: Any = None) -> Self:
        """Return this graph with one more edge, and with its vertices unless equal ones exist."""
        vertices = self._context.from_collection([Vertex(*source), Vertex(*target)])
        edges = self._context.from_collection([Edge(source[0], target[0], edge_value)])
        return self.union(self._replace_streams(vertices, edges))

    def add_edges(self, new_edges: Iterable[Edge]) -> Self:
        """Return this graph with more edges. Edges whose source or target is missing are left out."""
        added = edges_between(self._context.from_collection([Edge(*edge) for edge in new_edges]), self._vertices)
        return self._replace_streams(edges=self._edges.union(added))

    # --- removing ----------------------------------------------------------------------------------------------------

    def remove_vertex(self, vertex: Vertex) -> Self:
        """Return this graph without the vertex of this id and its edges."""
        return self.remove_vertices([vertex])

    def remove_vertices(self, vertices_to_be_removed: Iterable[Vertex] | DataStream) -> Self:
        """Return this graph without the vertices of these ids and their edges. A stream of vertices also works."""
        if isinstance(vertices_to_be_removed, DataStream):
            removed = vertices_to_be_removed
        else:
            removed = self._context.from_collection([Vertex(*vertex) for vertex in vertices_to_be_removed])
        vertices = without(self._vertices, removed, FIRST, FIRST).name("Remove Vertices")
        return self._replace_streams(vertices, edges_between(self._edges, vertices))

    def remove_edge(self, edge: Edge) -> Self:
        """Return this graph without the edges from the same source to the same target."""
        return self._replace_streams(edges=self._edges.filter(_IsOther((edge[0], edge[1]))).name("Remove Edge"))

    def remove_edges(self, edges_to_be_removed: Sequence[Edge]) -> Self:
        """Return this graph without the edges that have the source and target of one of these."""
        removed = self._context.from_collection([Edge(*edge) for edge in edges_to_be_removed])
        return self._replace_streams(edges=without(self._edges, removed, BOTH, BOTH).name("Remove Edges"))

    # --- two graphs --------------------------------------------------------------------------------------------------

    def union(self, graph: GraphBase) -> Self:
        """Return the vertices of both graphs without duplicates, and all edges of both."""
        vertices = distinct(self._vertices.union(graph.get_vertices()), FIRST)
        return self._replace_streams(vertices.name("Union Of Vertices"), self._edges.union(graph.get_edges()))

    def difference(self, graph: GraphBase) -> Self:
        """Return this graph without the vertices whose ids the other graph has, and without their edges."""
        return self.remove_vertices(graph.get_vertices())

    def intersect(self, graph: GraphBase, distinct_edges: bool) -> Self:
        """Return the edges in both graphs, equal in source, target and value, and their vertices, without values.

        Args:
            graph: the other graph.
            distinct_edges: whether equal edges appear once. Otherwise they appear in pairs, one from each graph, as
                often as in the graph with fewer of them.
        """
        make = _distinct_in_both if distinct_edges else _pairs_in_both
        edges = co_grouped(self._edges, graph.get_edges(), (BOTH, BOTH), make).name("Intersect Edges")
        return self._replace_streams(extract_vertices(edges), edges)


def extract_vertices(edges: DataStream, initializer: Callable[[Any], Any] | None = None) -> DataStream:
    """Return the vertices of the edges. The initializer computes their values from their ids (default: None)."""
    ids = distinct(edges.flat_map(_get_endpoint_ids).name("Vertex Ids"), _itself).name("Distinct Ids")
    return ids.map(VertexOfId(initializer)).name("Vertices Of Edges")


class VertexOfId:
    """Turns ids into vertices."""

    def __init__(self, initializer: Any) -> None:
        self._value = None if initializer is None else method(initializer, "map")

    def __call__(self, vertex_id: Any) -> Vertex:
        return Vertex(vertex_id, None if self._value is None else self._value(vertex_id))


class _IsOther:
    def __init__(self, ends: tuple[Any, Any]) -> None:
        self._ends = ends

    def __call__(self, edge: Any) -> bool:
        return (edge[0], edge[1]) != self._ends


def _itself(value: Any) -> Any:
    return value


def _get_endpoint_ids(edge: Any) -> list[Any]:
    return [edge[0], edge[1]]


def _first_of_both(_: Any, ones: Iterable[Any], others: Iterable[Any]) -> Iterator[Any]:
    for records in (ones, others):
        for record in records:
            yield record
            return


def _distinct_in_both(_: Any, ones: Iterable[Edge], others: Iterable[Edge]) -> list[Edge]:
    other_edges = list(others)
    return [edge for edge in distinct_values(list(ones)) if edge in other_edges]


def _pairs_in_both(_: Any, ones: Iterable[Edge], others: Iterable[Edge]) -> Iterator[Edge]:
    left = list(others)
    for edge in ones:
        if edge in left:
            left.remove(edge)
            yield edge
            yield edge
