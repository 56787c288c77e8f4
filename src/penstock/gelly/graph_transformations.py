"""Methods of `Graph` that transform it, by topic: values, added and removed elements, neighbourhoods.

`GraphValues` changes the values of vertices and edges or their ids, or selects a part of the graph. `GraphChanges` adds
or removes vertices and edges, and has the set operations on graphs. `Neighbourhoods` handles each vertex with its edges
or neighbours: reductions and degrees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

from penstock.base.errors import WrongTypeError
from penstock.base.typeinfo import TypeInformation
from penstock.datastream.data_stream import DataStream
from penstock.gelly import base, functions
from penstock.runtime.operators.record.stateless import method

Function = Any


class GraphValues(base.GraphBase):
    """See the module docstring."""

    # --- one by one --------------------------------------------------------------------------------------------------

    def map_vertices(self, mapper: Function, return_type: TypeInformation | None = None) -> Self:
        """Set the value of each vertex to the result of a function, or a `MapFunction`, of the vertex."""
        return self._replace_streams(
            vertices=self._vertices.map(base.WrappedMap(_vertex_by_vertex, mapper)).name("Map Vertices")
        )

    def map_edges(self, mapper: Function, return_type: TypeInformation | None = None) -> Self:
        """Set the value of each edge to the result of a function, or a `MapFunction`, of the edge."""
        return self._replace_streams(edges=self._edges.map(base.WrappedMap(_edge_by_edge, mapper)).name("Map Edges"))

    def translate_graph_ids(self, translator: Function) -> Self:
        """Replace each id in vertices and edges by a function of it. Different ids must stay different.

        The function may be an object with a method `translate`.
        """
        return self._replace_streams(
            self._vertices.map(base.WrappedMap(_vertex_of_id, translator, "translate")).name("Translate Vertex Ids"),
            self._edges.map(base.WrappedMap(_edge_of_ids, translator, "translate")).name("Translate Edge Ids"),
        )

    def translate_vertex_values(self, translator: Function) -> Self:
        """Replace the value of each vertex by a function of it."""
        vertices = self._vertices.map(base.WrappedMap(_vertex_by_value, translator, "translate"))
        return self._replace_streams(vertices=vertices.name("Translate Vertex Values"))

    def translate_edge_values(self, translator: Function) -> Self:
        """Replace the value of each edge by a function of it."""
        edges = self._edges.map(base.WrappedMap(_edge_by_value, translator, "translate"))
        return self._replace_streams(edges=edges.name("Translate Edge Values"))

    # --- with other data ---------------------------------------------------------------------------------------------

    def join_with_vertices(self, input_data_stream: DataStream, vertex_join_function: Function) -> Self:
        """Set the value of each vertex that has an input record to `f(value, input)`. Other vertices stay unchanged.

        Args:
            input_data_stream: tuples (id, input). If an id has several records, one of them counts.
            vertex_join_function: the function, or an object with a method `vertex_join`.
        """
        data = base.check_stream(input_data_stream, "the input")
        joined = base.co_grouped(
            self._vertices, data, (base.FIRST, base.FIRST), _joined_vertices, vertex_join_function, "vertex_join"
        )
        return self._replace_streams(vertices=joined.name("Join With Vertices"))

    def join_with_edges(self, input_data_stream: DataStream, edge_join_function: Function) -> Self:
        """Join edges, like `join_with_vertices`, with tuples (source, target, input). The method is `edge_join`."""
        return self._join_edges(input_data_stream, edge_join_function, base.BOTH, base.BOTH, "Join With Edges")

    def join_with_edges_on_source(self, input_data_stream: DataStream, edge_join_function: Function) -> Self:
        """Join edges by their source, like `join_with_edges`. The input is tuples (source, input)."""
        return self._join_edges(
            input_data_stream, edge_join_function, base.FIRST, base.FIRST, "Join With Edges On Source"
        )

    def join_with_edges_on_target(self, input_data_stream: DataStream, edge_join_function: Function) -> Self:
        """Join edges by their target, like `join_with_edges`. The input is tuples (target, input)."""
        return self._join_edges(
            input_data_stream, edge_join_function, base.SECOND, base.FIRST, "Join With Edges On Target"
        )

    def _join_edges(self, data: DataStream, function: Function, key: Any, input_key: Any, name: str) -> Self:
        keys = (key, input_key)
        joined = base.co_grouped(
            self._edges, base.check_stream(data, "the input"), keys, _joined_edges, function, "edge_join"
        )
        return self._replace_streams(edges=joined.name(name))

    # --- a part ------------------------------------------------------------------------------------------------------

    def subgraph(self, vertex_filter: Function, edge_filter: Function) -> Self:
        """Return the vertices and edges that pass the filters, without edges that have lost a vertex."""
        vertices = self._vertices.filter(vertex_filter).name("Filter On Vertices")
        edges = self._edges.filter(edge_filter).name("Filter On Edges")
        return self._replace_streams(vertices, find_edges(edges, vertices))

    def filter_on_vertices(self, vertex_filter: Function) -> Self:
        """Return the vertices that pass a filter, and the edges between them."""
        vertices = self._vertices.filter(vertex_filter).name("Filter On Vertices")
        return self._replace_streams(vertices, find_edges(self._edges, vertices))

    def filter_on_edges(self, edge_filter: Function) -> Self:
        """Return all vertices, and the edges that pass a filter."""
        return self._replace_streams(edges=self._edges.filter(edge_filter).name("Filter On Edges"))


def find_edges(edges: DataStream, vertices: DataStream) -> DataStream:
    """Return the edges that have both their ends among these vertices."""
    with_source = base.semi_join(edges, vertices, base.FIRST, base.FIRST).name("Edges With Source")
    return base.semi_join(with_source, vertices, base.SECOND, base.FIRST).name("Edges With Both Ends")


def _vertex_by_vertex(mapper: Callable[[Any], Any], vertex: Any) -> base.Vertex:
    return base.Vertex(vertex[0], mapper(vertex))


def _edge_by_edge(mapper: Callable[[Any], Any], edge: Any) -> base.Edge:
    return base.Edge(edge[0], edge[1], mapper(edge))


def _vertex_of_id(translator: Callable[[Any], Any], vertex: Any) -> base.Vertex:
    return base.Vertex(translator(vertex[0]), vertex[1])


def _edge_of_ids(translator: Callable[[Any], Any], edge: Any) -> base.Edge:
    return base.Edge(translator(edge[0]), translator(edge[1]), edge[2])


def _vertex_by_value(translator: Callable[[Any], Any], vertex: Any) -> base.Vertex:
    return base.Vertex(vertex[0], translator(vertex[1]))


def _edge_by_value(translator: Callable[[Any], Any], edge: Any) -> base.Edge:
    return base.Edge(edge[0], edge[1], translator(edge[2]))


def _joined_vertices(function: Callable[[Any, Any], Any], vertices: Any, inputs: Any) -> Iterable[base.Vertex]:
    for data in inputs:
        return [base.Vertex(vertex[0], function(vertex[1], data[-1])) for vertex in vertices]
    return list(vertices)


def _joined_edges(function: Callable[[Any, Any], Any], edges: Any, inputs: Any) -> Iterable[base.Edge]:
    for data in inputs:
        return [base.Edge(edge[0], edge[1], function(edge[2], data[-1])) for edge in edges]
    return list(edges)


class GraphChanges(base.GraphBase):
    """See the module docstring."""

    # --- adding ------------------------------------------------------------------------------------------------------

    def add_vertex(self, vertex: base.Vertex) -> Self:
        """Return this graph with one more vertex. If its id exists, nothing changes."""
        return self.add_vertices([vertex])

    def add_vertices(self, vertices_to_add: Iterable[base.Vertex]) -> Self:
        """Return this graph with more vertices. Vertices with existing ids are left out."""
        added = self._context.from_collection([base.Vertex(*vertex) for vertex in vertices_to_add])
        vertices = base.co_grouped(self._vertices, added, (base.FIRST, base.FIRST), _first_of_both)
        return self._replace_streams(vertices=vertices.name("Add Vertices"))

    def add_edge(self, source: base.Vertex, target: base.Vertex, edge_value: Any = None) -> Self:
        """Return this graph with one more edge, and with its vertices unless equal ones exist."""
        vertices = self._context.from_collection([base.Vertex(*source), base.Vertex(*target)])
        edges = self._context.from_collection([base.Edge(source[0], target[0], edge_value)])
        return self.union(self._replace_streams(vertices, edges))

    def add_edges(self, new_edges: Iterable[base.Edge]) -> Self:
        """Return this graph with more edges. Edges whose source or target is missing are left out."""
        added = find_edges(self._context.from_collection([base.Edge(*edge) for edge in new_edges]), self._vertices)
        return self._replace_streams(edges=self._edges.union(added))

    # --- removing ----------------------------------------------------------------------------------------------------

    def remove_vertex(self, vertex: base.Vertex) -> Self:
        """Return this graph without the vertex of this id and its edges."""
        return self.remove_vertices([vertex])

    def remove_vertices(self, vertices_to_be_removed: Iterable[base.Vertex] | DataStream) -> Self:
        """Return this graph without the vertices of these ids and their edges. A stream of vertices also works."""
        if isinstance(vertices_to_be_removed, DataStream):
            removed = vertices_to_be_removed
        else:
            removed = self._context.from_collection([base.Vertex(*vertex) for vertex in vertices_to_be_removed])
        vertices = base.without(self._vertices, removed, base.FIRST, base.FIRST).name("Remove Vertices")
        return self._replace_streams(vertices, find_edges(self._edges, vertices))

    def remove_edge(self, edge: base.Edge) -> Self:
        """Return this graph without the edges from the same source to the same target."""
        return self._replace_streams(edges=self._edges.filter(_IsOther((edge[0], edge[1]))).name("Remove Edge"))

    def remove_edges(self, edges_to_be_removed: Sequence[base.Edge]) -> Self:
        """Return this graph without the edges that have the source and target of one of these."""
        removed = self._context.from_collection([base.Edge(*edge) for edge in edges_to_be_removed])
        return self._replace_streams(
            edges=base.without(self._edges, removed, base.BOTH, base.BOTH).name("Remove Edges")
        )

    # --- two graphs --------------------------------------------------------------------------------------------------

    def union(self, graph: base.GraphBase) -> Self:
        """Return the vertices of both graphs without duplicates, and all edges of both."""
        vertices = base.distinct(self._vertices.union(graph.get_vertices()), base.FIRST)
        return self._replace_streams(vertices.name("Union Of Vertices"), self._edges.union(graph.get_edges()))

    def difference(self, graph: base.GraphBase) -> Self:
        """Return this graph without the vertices whose ids the other graph has, and without their edges."""
        return self.remove_vertices(graph.get_vertices())

    def intersect(self, graph: base.GraphBase, distinct_edges: bool) -> Self:
        """Return the edges in both graphs, equal in source, target and value, and their vertices, without values.

        Args:
            graph: the other graph.
            distinct_edges: whether equal edges appear once. Otherwise they appear in pairs, one from each graph, as
                often as in the graph with fewer of them.
        """
        make = _distinct_in_both if distinct_edges else _pairs_in_both
        edges = base.co_grouped(self._edges, graph.get_edges(), (base.BOTH, base.BOTH), make).name("Intersect Edges")
        return self._replace_streams(extract_vertices(edges), edges)


def extract_vertices(edges: DataStream, initializer: Callable[[Any], Any] | None = None) -> DataStream:
    """Return the vertices of the edges. The initializer computes their values from their ids (default: None)."""
    ids = base.distinct(edges.flat_map(_get_endpoint_ids).name("Vertex Ids"), _itself).name("Distinct Ids")
    return ids.map(VertexOfId(initializer)).name("Vertices Of Edges")


class VertexOfId:
    """Turns ids into vertices."""

    def __init__(self, initializer: Any) -> None:
        self._value = None if initializer is None else method(initializer, "map")

    def __call__(self, vertex_id: Any) -> base.Vertex:
        return base.Vertex(vertex_id, None if self._value is None else self._value(vertex_id))


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


def _distinct_in_both(_: Any, ones: Iterable[base.Edge], others: Iterable[base.Edge]) -> list[base.Edge]:
    other_edges = list(others)
    return [edge for edge in base.distinct_values(list(ones)) if edge in other_edges]


def _pairs_in_both(_: Any, ones: Iterable[base.Edge], others: Iterable[base.Edge]) -> Iterator[base.Edge]:
    left = list(others)
    for edge in ones:
        if edge in left:
            left.remove(edge)
            yield edge
            yield edge


class Neighbourhoods(base.GraphBase):
    """See the module docstring."""

    # --- edges -------------------------------------------------------------------------------------------------------

    def group_reduce_on_edges(self, edges_function: Function, direction: base.EdgeDirection) -> DataStream:
        """Return the results of a function of each vertex's edges.

        See `EdgesFunction` and `EdgesFunctionWithVertexValue`.
        """
        edges = self._edges_by_id(direction)
        if functions.takes_vertex(edges_function, functions.EdgesFunctionWithVertexValue, functions.EdgesFunction):
            result = base.co_grouped(
                self._vertices, edges, (base.FIRST, base.FIRST), _with_vertex, edges_function, "iterate_edges"
            )
        else:
            result = base.of_groups(edges, base.FIRST, _of_group, edges_function, "iterate_edges")
        return result.name("Group Reduce On Edges")

    def reduce_on_edges(self, reduce_edges_function: Function, direction: base.EdgeDirection) -> DataStream:
        """Return (id, value) for each vertex with edges: `f(value, value)` reduces the values of its edges.

        The function may be an object with a method `reduce_edges`.
        """
        values = self._edges_by_id(direction).map(_id_and_edge_value).name("Edge Values")
        result = base.of_groups(values, base.FIRST, _reduced, reduce_edges_function, "reduce_edges")
        return result.name("Reduce On Edges")

    # --- neighbours --------------------------------------------------------------------------------------------------

    def group_reduce_on_neighbors(self, neighbors_function: Function, direction: base.EdgeDirection) -> DataStream:
        """Return the results of a function of each vertex's neighbours.

        See `NeighborsFunction` and `NeighborsFunctionWithVertexValue`.
        """
        neighbours = self._neighbours(direction)
        if functions.takes_vertex(
            neighbors_function, functions.NeighborsFunctionWithVertexValue, functions.NeighborsFunction
        ):
            keys = (base.FIRST, base.FIRST)
            result = base.co_grouped(
                self._vertices, neighbours, keys, _with_vertex_and_neighbours, neighbors_function, "iterate_neighbors"
            )
        else:
            result = base.of_groups(neighbours, base.FIRST, _of_group, neighbors_function, "iterate_neighbors")
        return result.name("Group Reduce On Neighbors")

    def reduce_on_neighbors(self, reduce_neighbors_function: Function, direction: base.EdgeDirection) -> DataStream:
        """Return (id, value) for each vertex with neighbours: `f(value, value)` reduces the values of its neighbours.

        The function may be an object with a method `reduce_neighbors`.
        """
        values = self._neighbours(direction).map(_id_and_neighbour_value).name("Neighbor Values")
        result = base.of_groups(values, base.FIRST, _reduced, reduce_neighbors_function, "reduce_neighbors")
        return result.name("Reduce On Neighbors")

    # --- degrees -----------------------------------------------------------------------------------------------------

    def out_degrees(self) -> DataStream:
        """Return (id, number of outgoing edges) for each vertex."""
        return self._degrees(base.EdgeDirection.OUT).name("Out-degrees")

    def in_degrees(self) -> DataStream:
        """Return (id, number of incoming edges) for each vertex."""
        return self._degrees(base.EdgeDirection.IN).name("In-degrees")

    def get_degrees(self) -> DataStream:
        """Return (id, number of outgoing and incoming edges) for each vertex."""
        return self._degrees(base.EdgeDirection.ALL).name("Degrees")

    def get_undirected(self) -> Self:
        """Return this graph with each edge also in the other direction, with the same value."""
        return self._replace_streams(edges=self._edges.flat_map(_both_ways).name("To Undirected Graph"))

    def reverse(self) -> Self:
        """Return this graph with each edge reversed."""
        return self._replace_streams(edges=self._edges.map(_reversed).name("Reverse Edges"))

    def _degrees(self, direction: base.EdgeDirection) -> DataStream:
        ids = self._edges.flat_map(_IDS[_check(direction)])
        return base.co_grouped(self._vertices, ids, (base.FIRST, _itself), _counted)

    def _edges_by_id(self, direction: base.EdgeDirection) -> DataStream:
        """Return (id of the vertex that an edge counts for, edge)."""
        return self._edges.flat_map(_BY_ID[_check(direction)]).name("Edges By Vertex")

    def _neighbours(self, direction: base.EdgeDirection) -> DataStream:
        """Return (id of a vertex, edge, the vertex at the edge's other end)."""
        if _check(direction) is base.EdgeDirection.ALL:
            by_other = self._edges.flat_map(_by_both_others)
        else:
            by_other = self._edges.map(_by_target if direction is base.EdgeDirection.OUT else _by_source)
        joined = base.co_grouped(by_other, self._vertices, (base.FIRST, base.FIRST), _with_neighbour)
        return joined.name("Neighbors")


def _check(direction: Any) -> base.EdgeDirection:
    if not isinstance(direction, base.EdgeDirection):
        raise WrongTypeError(f"the direction must be EdgeDirection.IN, OUT or ALL, not {direction!r}")
    return direction


_BY_ID: dict[base.EdgeDirection, Callable[[base.Edge], list[Any]]] = {
    base.EdgeDirection.IN: lambda edge: [(edge[1], edge)],
    base.EdgeDirection.OUT: lambda edge: [(edge[0], edge)],
    base.EdgeDirection.ALL: lambda edge: [(edge[0], edge), (edge[1], edge)],
}
_IDS: dict[base.EdgeDirection, Callable[[base.Edge], list[Any]]] = {
    base.EdgeDirection.IN: lambda edge: [edge[1]],
    base.EdgeDirection.OUT: lambda edge: [edge[0]],
    base.EdgeDirection.ALL: lambda edge: [edge[0], edge[1]],
}


def _by_target(edge: base.Edge) -> tuple[Any, Any, base.Edge]:
    return edge[1], edge[0], edge


def _by_source(edge: base.Edge) -> tuple[Any, Any, base.Edge]:
    return edge[0], edge[1], edge


def _by_both_others(edge: base.Edge) -> list[tuple[Any, Any, base.Edge]]:
    return [_by_target(edge), _by_source(edge)]


def _with_neighbour(_: Any, by_other: Any, vertices: Any) -> Iterator[tuple[Any, base.Edge, base.Vertex]]:
    for vertex in vertices:
        for _other, vertex_id, edge in by_other:
            yield vertex_id, edge, vertex


def _with_vertex(function: Callable[..., Any], vertices: Any, edges: Any) -> Iterable[Any]:
    for vertex in vertices:
        yield from function(vertex, [base.SECOND(pair) for pair in edges]) or ()


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


def _both_ways(edge: base.Edge) -> list[base.Edge]:
    return [base.Edge(*edge), base.Edge(edge[1], edge[0], edge[2])]


def _reversed(edge: base.Edge) -> base.Edge:
    return base.Edge(edge[1], edge[0], edge[2])
