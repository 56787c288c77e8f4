"""Base of all parts of `Graph`: two streams, and how to make another graph from others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from penstock.datastream.data_stream import DataStream, StreamExecutionEnvironment
from penstock.gelly.base.elements import Triplet
from penstock.gelly.base.streams import FIRST, SECOND, co_grouped, count, lazy


@dataclass(frozen=True)
class Origin:
    """The sources of a graph's records: streams whose records may be of other kinds, such as columns of a file.

    Attributes:
        edges: records of source, target, and value if there are values.
        vertices: records of id, and value if there are values; None if the edges determine the vertices.
        initializer: returns the values of the edges' vertices by their ids; None for no values.
    """

    edges: DataStream
    vertices: DataStream | None = None
    initializer: Any = None


class GraphBase:
    """A graph: a bounded stream of vertices and one of edges. Methods return new graphs; nothing runs before a job."""

    def __init__(
        self,
        vertices: DataStream,
        edges: DataStream,
        context: StreamExecutionEnvironment,
        origin: Origin | None = None,
    ) -> None:
        self._vertices = lazy(vertices)
        self._edges = lazy(edges)
        self._context = context
        self._origin = origin or Origin(edges, vertices)

    @property
    def origin(self) -> Origin:
        """The source streams of the graph, for algorithms that do not need them as records."""
        return self._origin

    def _replace_streams(self, vertices: DataStream | None = None, edges: DataStream | None = None) -> Self:
        """Return a graph with other vertices or edges."""
        current_vertices = self._origin.vertices or self._vertices
        origin = Origin(
            self._origin.edges if edges is None else edges,
            current_vertices if vertices is None else vertices,
        )
        return type(self)(
            self._vertices if vertices is None else vertices,
            self._edges if edges is None else edges,
            self._context,
            origin,
        )

    # --- what it consists of -----------------------------------------------------------------------------------------

    def get_context(self) -> StreamExecutionEnvironment:
        """Return the environment of the streams."""
        return self._context

    def get_vertices(self) -> DataStream:
        """Return the vertices, as `Vertex`."""
        return self._vertices

    def get_edges(self) -> DataStream:
        """Return the edges, as `Edge`."""
        return self._edges

    def get_vertices_as_tuple2(self) -> DataStream:
        """Return the vertices as plain tuples (id, value)."""
        return lazy(self._vertices.map(tuple).name("Vertices As Tuples"))

    def get_edges_as_tuple3(self) -> DataStream:
        """Return the edges as plain tuples (source, target, value)."""
        return lazy(self._edges.map(tuple).name("Edges As Tuples"))

    def get_vertex_ids(self) -> DataStream:
        """Return the ids of all vertices."""
        return lazy(self._vertices.map(FIRST).name("Vertex Ids"))

    def get_edge_ids(self) -> DataStream:
        """Return a tuple (source, target) for each edge."""
        return lazy(self._edges.map(_ends).name("Edge Ids"))

    def get_triplets(self) -> DataStream:
        """Return each edge with the values of both its vertices, as `Triplet`; edges that lack a vertex are omitted."""
        with_source = co_grouped(self._edges, self._vertices, (FIRST, FIRST), _edges_with_value).name("Source Values")
        keys = (_second_of_first, FIRST)
        return co_grouped(with_source, self._vertices, keys, _triplets).name("Triplets")

    def number_of_vertices(self) -> int:
        """Return the number of vertices; runs a job."""
        return count(self._vertices, "Number of vertices")

    def number_of_edges(self) -> int:
        """Return the number of edges; runs a job."""
        return count(self._edges, "Number of edges")


def _ends(edge: Any) -> tuple[Any, Any]:
    return edge[0], edge[1]


def _second_of_first(pair: Any) -> Any:
    return SECOND(pair[0])


def _edges_with_value(_: Any, edges: Any, vertices: Any) -> Any:
    return [(edge, vertex[1]) for vertex in vertices for edge in edges]


def _triplets(_: Any, edges_with_value: Any, vertices: Any) -> Any:
    return [
        Triplet(edge[0], edge[1], source_value, vertex[1], edge[2])
        for vertex in vertices
        for edge, source_value in edges_with_value
    ]
