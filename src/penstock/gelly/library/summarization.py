"""A graph of groups: vertices of equal value become one, and so do edges of equal value between the same groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from penstock.gelly.base.algorithm import GraphAlgorithm
from penstock.gelly.base.elements import Edge, Vertex
from penstock.gelly.base.streams import FIRST, SECOND, co_grouped, of_groups


class VertexValue(NamedTuple):
    """The value of a vertex that represents a group.

    Attributes:
        vertex_group_value: the value of the vertices in the group.
        vertex_group_count: the number of vertices in the group.
    """

    vertex_group_value: Any
    vertex_group_count: int

    def get_vertex_group_value(self) -> Any:
        """Return the value of the vertices in the group."""
        return self.vertex_group_value

    def get_vertex_group_count(self) -> int:
        """Return the number of vertices in the group."""
        return self.vertex_group_count


class EdgeValue(NamedTuple):
    """The value of an edge that represents a group.

    Attributes:
        edge_group_value: the value of the edges in the group.
        edge_group_count: the number of edges in the group.
    """

    edge_group_value: Any
    edge_group_count: int

    def get_edge_group_value(self) -> Any:
        """Return the value of the edges in the group."""
        return self.edge_group_value

    def get_edge_group_count(self) -> int:
        """Return the number of edges in the group."""
        return self.edge_group_count


class Summarization(GraphAlgorithm[Any]):
    """Condenses a graph by its values, which must be valid keys.

    The vertices of a value become one, whose id is the smallest of theirs, so ids must be comparable. The edges of a
    value from one group to another, or within one, become one.
    """

    def run(self, graph: Any) -> Any:
        """Return the graph of groups. Its values are `VertexValue`s and `EdgeValue`s."""
        groups = of_groups(graph.get_vertices(), SECOND, _group).name("Groups Of Vertices")
        vertices = groups.map(_vertex).name("Summarized Vertices")
        members = groups.flat_map(_members).name("Members")
        edges = co_grouped(graph.get_edges(), members, (FIRST, FIRST), _with_source).name("Groups Of Sources")
        edges = co_grouped(edges, members, (SECOND, FIRST), _with_target).name("Groups Of Targets")
        counted = of_groups(edges, tuple, _count).name("Summarized Edges")
        return type(graph).from_data_stream(counted, vertices)


def _group(_: Any, value: Any, vertices: Iterable[Any]) -> list[tuple[list[Any], Any]]:
    return [(sorted(vertex_id for vertex_id, _ in vertices), value)]


def _vertex(group: tuple[list[Any], Any]) -> Vertex:
    ids, value = group
    return Vertex(ids[0], VertexValue(value, len(ids)))


def _members(group: tuple[list[Any], Any]) -> list[tuple[Any, Any]]:
    ids, _ = group
    return [(vertex_id, ids[0]) for vertex_id in ids]


def _with_source(_: Any, edges: Iterable[Any], members: Iterable[Any]) -> Iterator[Edge]:
    for _, group in members:
        for _, target, value in edges:
            yield Edge(group, target, value)


def _with_target(_: Any, edges: Iterable[Any], members: Iterable[Any]) -> Iterator[Edge]:
    for _, group in members:
        for source, _, value in edges:
            yield Edge(source, group, value)


def _count(_: Any, key: Any, edges: Iterable[Any]) -> list[Edge]:
    source, target, value = key
    return [Edge(source, target, EdgeValue(value, len(list(edges))))]
