"""`BipartiteGraph`: vertices of two kinds, top and bottom; all edges lead from one kind to the other.

    graph = BipartiteGraph.from_data_stream(people, films, seen)
    graph.projection_top_simple()  # people with an edge for each film that both have seen

A projection is a graph on the vertices of one kind.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from penstock.datastream.data_stream import DataStream, StreamExecutionEnvironment
from penstock.gelly.base import FIRST, SECOND, Edge, Key, Vertex, check_stream, co_grouped, lazy, of_groups
from penstock.gelly.graph import Graph


class BipartiteEdge(NamedTuple):
    """An edge from a top vertex to a bottom vertex, by their ids; equal ids still denote two vertices.

    Examples:
        >>> from penstock.gelly.bipartite import BipartiteEdge
        >>> edge = BipartiteEdge("ann", "chess", "since May")
        >>> edge.get_top_id(), edge.get_bottom_id(), edge.get_value()
        ('ann', 'chess', 'since May')
    """

    top_id: Any
    bottom_id: Any
    value: Any = None

    def get_top_id(self) -> Any:
        """Return the id of the top vertex."""
        return self.top_id

    def get_bottom_id(self) -> Any:
        """Return the id of the bottom vertex."""
        return self.bottom_id

    def get_value(self) -> Any:
        """Return the value."""
        return self.value


class Projection(NamedTuple):
    """The connection of two vertices in a full projection: the vertex between them, and all values along the path.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Vertex
        >>> from penstock.gelly.bipartite import BipartiteEdge, BipartiteGraph
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> people = env.from_elements(Vertex(1, "ann"), Vertex(2, "bob"))
        >>> clubs = env.from_elements(Vertex(7, "chess"))
        >>> members = env.from_elements(BipartiteEdge(1, 7, "since May"), BipartiteEdge(2, 7, "since June"))
        >>> graph = BipartiteGraph.from_data_stream(people, clubs, members)
        >>> projection = min(graph.projection_top_full().get_edges().collect()).value
        >>> projection.intermediate_vertex_value, projection.source_vertex_value
        ('chess', 'ann')
    """

    intermediate_vertex_id: Any
    intermediate_vertex_value: Any
    source_vertex_value: Any
    target_vertex_value: Any
    source_edge_value: Any
    target_edge_value: Any

    def get_intermediate_vertex_id(self) -> Any:
        """Return the id of the vertex between the two."""
        return self.intermediate_vertex_id

    def get_intermediate_vertex_value(self) -> Any:
        """Return the value of the vertex between the two."""
        return self.intermediate_vertex_value

    def get_source_vertex_value(self) -> Any:
        """Return the value of the source vertex."""
        return self.source_vertex_value

    def get_target_vertex_value(self) -> Any:
        """Return the value of the target vertex."""
        return self.target_vertex_value

    def get_source_edge_value(self) -> Any:
        """Return the value of the edge between the source and the vertex in the middle."""
        return self.source_edge_value

    def get_target_edge_value(self) -> Any:
        """Return the value of the edge between the target and the vertex in the middle."""
        return self.target_edge_value


class BipartiteGraph:
    """A graph of top and bottom vertices. A projection has the vertices of one kind.

    In a projection, an edge leads from a vertex to each other vertex that shares a neighbour with it; several edges, if
    they share several. So each pair is connected both ways.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Vertex
        >>> from penstock.gelly.bipartite import BipartiteEdge, BipartiteGraph
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> people = env.from_elements(Vertex(1, "ann"), Vertex(2, "bob"))
        >>> clubs = env.from_elements(Vertex(7, "chess"))
        >>> members = env.from_elements(BipartiteEdge(1, 7, "since May"), BipartiteEdge(2, 7, "since June"))
        >>> graph = BipartiteGraph.from_data_stream(people, clubs, members)
        >>> sorted(graph.projection_top_simple().get_edges_as_tuple3().collect())
        [(1, 2, ('since May', 'since June')), (2, 1, ('since June', 'since May'))]
    """

    def __init__(
        self,
        top_vertices: DataStream,
        bottom_vertices: DataStream,
        edges: DataStream,
        context: StreamExecutionEnvironment,
    ) -> None:
        self._top = lazy(top_vertices)
        self._bottom = lazy(bottom_vertices)
        self._edges = lazy(edges)
        self._context = context

    @staticmethod
    def from_data_stream(
        top_vertices: DataStream,
        bottom_vertices: DataStream,
        edges: DataStream,
        context: StreamExecutionEnvironment | None = None,
    ) -> "BipartiteGraph":
        """Create a graph from streams of `Vertex`, `Vertex` and `BipartiteEdge`."""
        check_stream(top_vertices, "the top vertices")
        check_stream(bottom_vertices, "the bottom vertices")
        environment = check_stream(edges, "the edges").get_execution_environment()
        return BipartiteGraph(top_vertices, bottom_vertices, edges, context or environment)

    def get_context(self) -> StreamExecutionEnvironment:
        """Return the environment of the streams."""
        return self._context

    def get_top_vertices(self) -> DataStream:
        """Return the top vertices, as `Vertex`."""
        return self._top

    def get_bottom_vertices(self) -> DataStream:
        """Return the bottom vertices, as `Vertex`."""
        return self._bottom

    def get_edges(self) -> DataStream:
        """Return the edges, as `BipartiteEdge`."""
        return self._edges

    def projection_top_simple(self) -> Graph:
        """Project on the top vertices; an edge's value is a tuple of the values of the two edges that it replaces."""
        edges = of_groups(self._edges, SECOND, _tops_of_one).name("Simple Top Projection")
        return Graph.from_data_stream(edges, self._top)

    def projection_bottom_simple(self) -> Graph:
        """Project on the bottom vertices.

        An edge's value is a tuple of the values of the two edges that it replaces.
        """
        edges = of_groups(self._edges, FIRST, _bottoms_of_one).name("Simple Bottom Projection")
        return Graph.from_data_stream(edges, self._bottom)

    def projection_top_full(self) -> Graph:
        """Project on the top vertices; the value of an edge is a `Projection`."""
        edges = self._full(self._top, FIRST, self._bottom, SECOND)
        return Graph.from_data_stream(edges.name("Full Top Projection"), self._top)

    def projection_bottom_full(self) -> Graph:
        """Project on the bottom vertices; the value of an edge is a `Projection`."""
        edges = self._full(self._bottom, SECOND, self._top, FIRST)
        return Graph.from_data_stream(edges.name("Full Bottom Projection"), self._bottom)

    def _full(self, ends: DataStream, end: Key, between: DataStream, middle: Key) -> DataStream:
        with_value = co_grouped(self._edges, ends, (end, FIRST), _EdgesWithValue(end, middle)).name("Values Of Ends")
        return co_grouped(with_value, between, (FIRST, FIRST), _projected)


def _tops_of_one(_: Any, key: Any, edges: Iterable[Any]) -> Iterator[Edge]:
    return _pairs([(edge[0], edge[2]) for edge in edges])


def _bottoms_of_one(_: Any, key: Any, edges: Iterable[Any]) -> Iterator[Edge]:
    return _pairs([(edge[1], edge[2]) for edge in edges])


def _pairs(ends: list[tuple[Any, Any]]) -> Iterator[Edge]:
    for source, source_value in ends:
        for target, target_value in ends:
            if source != target:
                yield Edge(source, target, (source_value, target_value))


class _EdgesWithValue:
    """Yields (id of the vertex in the middle, id of an end, the end's value, the edge's value)."""

    def __init__(self, end: Key, middle: Key) -> None:
        self._end = end
        self._middle = middle

    def __call__(self, _: Any, edges: Iterable[Any], vertices: Iterable[Vertex]) -> Iterator[tuple[Any, ...]]:
        for vertex in vertices:
            for edge in edges:
                yield self._middle(edge), self._end(edge), vertex[1], edge[2]


def _projected(_: Any, ends: Iterable[Any], middles: Iterable[Vertex]) -> Iterator[Edge]:
    for middle_id, middle_value in middles:
        for _, source, source_value, source_edge in ends:
            for _, target, target_value, target_edge in ends:
                if source != target:
                    values = (source_value, target_value, source_edge, target_edge)
                    yield Edge(source, target, Projection(middle_id, middle_value, *values))


__all__ = ["BipartiteEdge", "BipartiteGraph", "Projection"]
