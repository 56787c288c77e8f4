"""Graph methods on each vertex with its edges or neighbours: reductions and degrees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from penstock.base.errors import WrongTypeError
from penstock.datastream.data_stream import DataStream
from penstock.gelly.base.elements import Edge, EdgeDirection, Vertex
from penstock.gelly.base.graph_base import GraphBase
from penstock.gelly.base.streams import FIRST, SECOND, co_grouped, of_groups
from penstock.gelly.functions import (
    EdgesFunction,
    EdgesFunctionWithVertexValue,
    NeighborsFunction,
    NeighborsFunctionWithVertexValue,
    takes_vertex,
)

Function = Any


class Neighbourhoods(GraphBase):
    """See the module docstring."""

    # --- edges -------------------------------------------------------------------------------------------------------

    def group_reduce_on_edges(self, edges_function: Function, direction: EdgeDirection) -> DataStream:
        """Return the results of a function of each vertex's edges.

        See `EdgesFunction` and `EdgesFunctionWithVertexValue`.
        """
        edges = self._edges_by_id(direction)
        if takes_vertex(edges_function, EdgesFunctionWithVertexValue, EdgesFunction):
            result = co_grouped(self._vertices, edges, (FIRST, FIRST), _with_vertex, edges_function, "iterate_edges")
        else:
            result = of_groups(edges, FIRST, _of_group, edges_function, "iterate_edges")
        return result.name("Group Reduce On Edges")

    def reduce_on_edges(self, reduce_edges_function: Function, direction: EdgeDirection) -> DataStream:
        """Return (id, value) for each vertex with edges: `f(value, value)` reduces the values of its edges.

        The function may be an object with a method `reduce_edges`.
        """
        values = self._edges_by_id(direction).map(_id_and_edge_value).name("Edge Values")
        result = of_groups(values, FIRST, _reduced, reduce_edges_function, "reduce_edges")
        return result.name("Reduce On Edges")

    # --- neighbours --------------------------------------------------------------------------------------------------

    def group_reduce_on_neighbors(self, neighbors_function: Function, direction: EdgeDirection) -> DataStream:
        """Return the results of a function of each vertex's neighbours.

        See `NeighborsFunction` and `NeighborsFunctionWithVertexValue`.
        """
        neighbours = self._neighbours(direction)
        if takes_vertex(neighbors_function, NeighborsFunctionWithVertexValue, NeighborsFunction):
            keys = (FIRST, FIRST)
            result = co_grouped(
                self._vertices, neighbours, keys, _with_vertex_and_neighbours, neighbors_function, "iterate_neighbors"
            )
        else:
            result = of_groups(neighbours, FIRST, _of_group, neighbors_function, "iterate_neighbors")
        return result.name("Group Reduce On Neighbors")

    def reduce_on_neighbors(self, reduce_neighbors_function: Function, direction: EdgeDirection) -> DataStream:
        """Return (id, value) for each vertex with neighbours: `f(value, value)` reduces the values of its neighbours.

        The function may be an object with a method `reduce_neighbors`.
        """
        values = self._neighbours(direction).map(_id_and_neighbour_value).name("Neighbor Values")
        result = of_groups(values, FIRST, _reduced, reduce_neighbors_function, "reduce_neighbors")
        return result.name("Reduce On Neighbors")

    # --- degrees -----------------------------------------------------------------------------------------------------

    def out_degrees(self) -> DataStream:
        """Return (id, number of outgoing edges) for each vertex."""
        return self._degrees(EdgeDirection.OUT).name("Out-degrees")

    def in_degrees(self) -> DataStream:
        """Return (id, number of incoming edges) for each vertex."""
        return self._degrees(EdgeDirection.IN).name("In-degrees")

    def get_degrees(self) -> DataStream:
        """Return (id, number of outgoing and incoming edges) for each vertex."""
        return self._degrees(EdgeDirection.ALL).name("Degrees")

    def get_undirected(self) -> Self:
        """Return this graph with each edge also in the other direction, with the same value."""
        return self._replace_streams(edges=self._edges.flat_map(_both_ways).name("To Undirected Graph"))

    def reverse(self) -> Self:
        """Return this graph with each edge reversed."""
        return self._replace_streams(edges=self._edges.map(_reversed).name("Reverse Edges"))

    def _degrees(self, direction: EdgeDirection) -> DataStream:
        ids = self._edges.flat_map(_IDS[_check(direction)])
        return co_grouped(self._vertices, ids, (FIRST, _itself), _counted)

    def _edges_by_id(self, direction: EdgeDirection) -> DataStream:
        """Return (id of the vertex that an edge counts for, edge)."""
        return self._edges.flat_map(_BY_ID[_check(direction)]).name("Edges By Vertex")

    def _neighbours(self, direction: EdgeDirection) -> DataStream:
        """Return (id of a vertex, edge, the vertex at the edge's other end)."""
        if _check(direction) is EdgeDirection.ALL:
            by_other = self._edges.flat_map(_by_both_others)
        else:
            by_other = self._edges.map(_by_target if direction is EdgeDirection.OUT else _by_source)
        joined = co_grouped(by_other, self._vertices, (FIRST, FIRST), _with_neighbour)
        return joined.name("Neighbors")


def _check(direction: Any) -> EdgeDirection:
    if not isinstance(direction, EdgeDirection):
        raise WrongTypeError(f"the direction must be EdgeDirection.IN, OUT or ALL, not {direction!r}")
    return direction


def _itself(value: Any) -> Any:
    return value


_BY_ID: dict[EdgeDirection, Callable[[Edge], list[Any]]] = {
    EdgeDirection.IN: lambda edge: [(edge[1], edge)],
    EdgeDirection.OUT: lambda edge: [(edge[0], edge)],
    EdgeDirection.ALL: lambda edge: [(edge[0], edge), (edge[1], edge)],
}
_IDS: dict[EdgeDirection, Callable[[Edge], list[Any]]] = {
    EdgeDirection.IN: lambda edge: [edge[1]],
    EdgeDirection.OUT: lambda edge: [edge[0]],
    EdgeDirection.ALL: lambda edge: [edge[0], edge[1]],
}


def _by_target(edge: Edge) -> tuple[Any, Any, Edge]:
    return edge[1], edge[0], edge


def _by_source(edge: Edge) -> tuple[Any, Any, Edge]:
    return edge[0], edge[1], edge


def _by_both_others(edge: Edge) -> list[tuple[Any, Any, Edge]]:
    return [_by_target(edge), _by_source(edge)]


def _with_neighbour(_: Any, by_other: Any, vertices: Any) -> Iterator[tuple[Any, Edge, Vertex]]:
    for vertex in vertices:
        for _other, vertex_id, edge in by_other:
            yield vertex_id, edge, vertex


def _with_vertex(function: Callable[..., Any], vertices: Any, edges: Any) -> Iterable[Any]:
    for vertex in vertices:
        yield from function(vertex, [SECOND(pair) for pair in edges]) or ()


def _with_vertex_and_neighbours(function: Callable[..., Any], vertices: Any, neighbours: Any) -> Iterable[Any]:
    for vertex in vertices:
        yield from function(vertex, [(edge, neighbour) for _, edge, neighbour in neighbours]) or ()


def _of_group(function: Callable[..., Any], _: Any, records: Any) -> Iterable[Any]:
    return function(records) or ()


def _id_and_edge_value(pair: Any) -> tuple[Any, Any]:
    return pair[0], pair[1][2]


def _id_and_neighbour_value(neighbour: Any) -> tuple[Any, Any]:
    return neighbour[0], neighbour[2][1]


def _reduced(function: Callable[[Any, Any], Any], key: Any, pairs: Any) -> list[tuple[Any, Any]]:
    values = iter([value for _, value in pairs])
    result = next(values)
    for value in values:
        result = function(result, value)
    return [(key, result)]


def _counted(_: Any, vertices: Any, ids: Any) -> list[tuple[Any, int]]:
    number = len(list(ids))
    return [(vertex[0], number) for vertex in vertices]


def _both_ways(edge: Edge) -> list[Edge]:
    return [Edge(*edge), Edge(edge[1], edge[0], edge[2])]


def _reversed(edge: Edge) -> Edge:
    return Edge(edge[1], edge[0], edge[2])
