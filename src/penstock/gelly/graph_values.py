"""Graph methods that change the values of vertices and edges or their ids, or select a part of the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self

from penstock.base.typeinfo import TypeInformation
from penstock.datastream.data_stream import DataStream
from penstock.gelly.base.elements import Edge, Vertex
from penstock.gelly.base.graph_base import GraphBase
from penstock.gelly.base.streams import BOTH, FIRST, SECOND, WrappedMap, check_stream, co_grouped, semi_join

Function = Any


class GraphValues(GraphBase):
    """See the module docstring."""

    # --- one by one --------------------------------------------------------------------------------------------------

    def map_vertices(self, mapper: Function, return_type: TypeInformation | None = None) -> Self:
        """Set the value of each vertex to the result of a function, or a `MapFunction`, of the vertex."""
        return self._replace_streams(
            vertices=self._vertices.map(WrappedMap(_vertex_by_vertex, mapper)).name("Map Vertices")
        )

    def map_edges(self, mapper: Function, return_type: TypeInformation | None = None) -> Self:
        """Set the value of each edge to the result of a function, or a `MapFunction`, of the edge."""
        return self._replace_streams(edges=self._edges.map(WrappedMap(_edge_by_edge, mapper)).name("Map Edges"))

    def translate_graph_ids(self, translator: Function) -> Self:
        """Replace each id in vertices and edges by a function of it. Different ids must stay different.

        The function may be an object with a method `translate`.
        """
        return self._replace_streams(
            self._vertices.map(WrappedMap(_vertex_of_id, translator, "translate")).name("Translate Vertex Ids"),
            self._edges.map(WrappedMap(_edge_of_ids, translator, "translate")).name("Translate Edge Ids"),
        )

    def translate_vertex_values(self, translator: Function) -> Self:
        """Replace the value of each vertex by a function of it."""
        vertices = self._vertices.map(WrappedMap(_vertex_by_value, translator, "translate"))
        return self._replace_streams(vertices=vertices.name("Translate Vertex Values"))

    def translate_edge_values(self, translator: Function) -> Self:
        """Replace the value of each edge by a function of it."""
        edges = self._edges.map(WrappedMap(_edge_by_value, translator, "translate"))
        return self._replace_streams(edges=edges.name("Translate Edge Values"))

    # --- with other data ---------------------------------------------------------------------------------------------

    def join_with_vertices(self, input_data_stream: DataStream, vertex_join_function: Function) -> Self:
        """Set the value of each vertex that has an input record to `f(value, input)`. Other vertices stay unchanged.

        Args:
            input_data_stream: tuples (id, input). If an id has several records, one of them counts.
            vertex_join_function: the function, or an object with a method `vertex_join`.
        """
        data = check_stream(input_data_stream, "the input")
        joined = co_grouped(self._vertices, data, (FIRST, FIRST), _joined_vertices, vertex_join_function, "vertex_join")
        return self._replace_streams(vertices=joined.name("Join With Vertices"))

    def join_with_edges(self, input_data_stream: DataStream, edge_join_function: Function) -> Self:
        """Join edges, like `join_with_vertices`, with tuples (source, target, input). The method is `edge_join`."""
        return self._join_edges(input_data_stream, edge_join_function, BOTH, BOTH, "Join With Edges")

    def join_with_edges_on_source(self, input_data_stream: DataStream, edge_join_function: Function) -> Self:
        """Join edges by their source, like `join_with_edges`. The input is tuples (source, input)."""
        return self._join_edges(input_data_stream, edge_join_function, FIRST, FIRST, "Join With Edges On Source")

    def join_with_edges_on_target(self, input_data_stream: DataStream, edge_join_function: Function) -> Self:
        """Join edges by their target, like `join_with_edges`. The input is tuples (target, input)."""
        return self._join_edges(input_data_stream, edge_join_function, SECOND, FIRST, "Join With Edges On Target")

    def _join_edges(self, data: DataStream, function: Function, key: Any, input_key: Any, name: str) -> Self:
        keys = (key, input_key)
        joined = co_grouped(self._edges, check_stream(data, "the input"), keys, _joined_edges, function, "edge_join")
        return self._replace_streams(edges=joined.name(name))

    # --- a part ------------------------------------------------------------------------------------------------------

    def subgraph(self, vertex_filter: Function, edge_filter: Function) -> Self:
        """Return the vertices and edges that pass the filters, without edges that have lost a vertex."""
        vertices = self._vertices.filter(vertex_filter).name("Filter On Vertices")
        edges = self._edges.filter(edge_filter).name("Filter On Edges")
        return self._replace_streams(vertices, edges_between(edges, vertices))

    def filter_on_vertices(self, vertex_filter: Function) -> Self:
        """Return the vertices that pass a filter, and the edges between them."""
        vertices = self._vertices.filter(vertex_filter).name("Filter On Vertices")
        return self._replace_streams(vertices, edges_between(self._edges, vertices))

    def filter_on_edges(self, edge_filter: Function) -> Self:
        """Return all vertices, and the edges that pass a filter."""
        return self._replace_streams(edges=self._edges.filter(edge_filter).name("Filter On Edges"))


def edges_between(edges: DataStream, vertices: DataStream) -> DataStream:
    """Return the edges that have both their ends among these vertices."""
    with_source = semi_join(edges, vertices, FIRST, FIRST).name("Edges With Source")
    return semi_join(with_source, vertices, SECOND, FIRST).name("Edges With Both Ends")


def _vertex_by_vertex(mapper: Callable[[Any], Any], vertex: Any) -> Vertex:
    return Vertex(vertex[0], mapper(vertex))


def _edge_by_edge(mapper: Callable[[Any], Any], edge: Any) -> Edge:
    return Edge(edge[0], edge[1], mapper(edge))


def _vertex_of_id(translator: Callable[[Any], Any], vertex: Any) -> Vertex:
    return Vertex(translator(vertex[0]), vertex[1])


def _edge_of_ids(translator: Callable[[Any], Any], edge: Any) -> Edge:
    return Edge(translator(edge[0]), translator(edge[1]), edge[2])


def _vertex_by_value(translator: Callable[[Any], Any], vertex: Any) -> Vertex:
    return Vertex(vertex[0], translator(vertex[1]))


def _edge_by_value(translator: Callable[[Any], Any], edge: Any) -> Edge:
    return Edge(edge[0], edge[1], translator(edge[2]))


def _joined_vertices(function: Callable[[Any, Any], Any], vertices: Any, inputs: Any) -> Iterable[Vertex]:
    for data in inputs:
        return [Vertex(vertex[0], function(vertex[1], data[-1])) for vertex in vertices]
    return list(vertices)


def _joined_edges(function: Callable[[Any, Any], Any], edges: Any, inputs: Any) -> Iterable[Edge]:
    for data in inputs:
        return [Edge(edge[0], edge[1], function(edge[2], data[-1])) for edge in edges]
    return list(edges)
