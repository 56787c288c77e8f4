"""A graph of groups: vertices of equal value become one, and edges between the same groups with equal values, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from penstock.gelly.base.algorithm import GraphAlgorithm
from penstock.gelly.base.elements import Edge, Vertex
from penstock.gelly.base.streams import FIRST, SECOND, co_grouped, of_groups


class VertexValue(NamedTuple):
    """The value of a vertex that stands for a group.

    Attributes:
        vertex_group_value: the value that the vertices of the group have.
        vertex_group_count: how many they are.
    """

    vertex_group_value: Any
    vertex_group_count: int

    def get_vertex_group_value(self) -> Any:
        """The value that the vertices of the group have."""
        return self.vertex_group_value

    def get_vertex_group_count(self) -> int:
        """How many they are."""
        return self.vertex_group_count


class EdgeValue(NamedTuple):
    """The value of an edge that stands for a group.

    Attributes:
        edge_group_value: the value that the edges of the group have.
        edge_group_count: how many they are.
    """

    edge_group_value: Any
    edge_group_count: int

    def get_edge_group_value(self) -> Any:
        """The value that the edges of the group have."""
        return self.edge_group_value

    def get_edge_group_count(self) -> int:
        """How many they are."""
        return self.edge_group_count


class Summarization(GraphAlgorithm[Any]):
    """Condenses a graph by its values, which are such as may be keys.

    The vertices of a value become one, whose id is the least of theirs; so ids have to be comparable. The edges of a
    value from one group to another, or within one, become one.
    """

    def run(self, graph: Any) -> Any:
        """The graph of groups: values are `VertexValue`s and `EdgeValue`s."""
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
    return [(one, ids[0]) for one in ids]


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
