"""`Graph`: vertices and edges as bounded streams, with their operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from penstock.base.errors import WrongValueError
from penstock.datastream.data_stream import DataStream, StreamExecutionEnvironment
from penstock.gelly.base.algorithm import GraphAlgorithm, GraphAnalytic, GraphValidator, run_algorithm
from penstock.gelly.base.elements import Edge, Vertex
from penstock.gelly.base.graph_base import Origin
from penstock.gelly.base.streams import check_stream
from penstock.gelly.csv_reader import GraphCsvReader
from penstock.gelly.graph_changes import GraphChanges, extract_vertices
from penstock.gelly.graph_iterations import GraphIterations
from penstock.gelly.graph_values import GraphValues
from penstock.gelly.neighbourhoods import Neighbourhoods

T = TypeVar("T")


class Graph(GraphIterations, Neighbourhoods, GraphChanges, GraphValues):
    """A directed graph with values at vertices and edges.

    Each method returns a new graph or a stream, and nothing runs until a job reads it. Methods that return a number or
    a bool run a job. An undirected graph has each edge in both directions, see `get_undirected`.
    """

    @staticmethod
    def from_collection(
        edges: Iterable[Any],
        context: StreamExecutionEnvironment,
        vertices: Iterable[Any] | None = None,
        vertex_value_initializer: Any = None,
    ) -> Graph:
        """Create a graph from collections.

        Args:
            edges: `Edge`s, or tuples (source, target, value) or (source, target).
            context: the environment.
            vertices: `Vertex`s, or tuples (id, value). By default the vertices of the edges, with value None.
            vertex_value_initializer: computes the values of the edges' vertices from their ids.

        Raises:
            ValueError: if both vertices and an initializer are given.
        """
        vertex_stream = None if vertices is None else context.from_collection([Vertex(*vertex) for vertex in vertices])
        edge_stream = context.from_collection([Edge(*edge) for edge in edges])
        return _build_graph(edge_stream, vertex_stream, vertex_value_initializer)

    @staticmethod
    def from_data_stream(
        edges: DataStream, vertices: DataStream | None = None, vertex_value_initializer: Any = None
    ) -> Graph:
        """Create a graph from streams of `Edge`s and `Vertex`s; see `from_collection`."""
        return _build_graph(edges, vertices, vertex_value_initializer)

    @staticmethod
    def from_tuple_data_stream(
        edges: DataStream, vertices: DataStream | None = None, vertex_value_initializer: Any = None
    ) -> Graph:
        """Create a graph from streams of tuples (source, target, value) and (id, value). Rows also work."""
        return _graph_of_tuples(edges, vertices, vertex_value_initializer, _edge)

    @staticmethod
    def from_tuple2_data_stream(
        edges: DataStream, vertices: DataStream | None = None, vertex_value_initializer: Any = None
    ) -> Graph:
        """Create a graph from streams of tuples (source, target) and (id, value). Its edges have no values."""
        return _graph_of_tuples(edges, vertices, vertex_value_initializer, _edge_without_value)

    @staticmethod
    def from_csv_reader(
        edges_path: str,
        context: StreamExecutionEnvironment,
        vertices_path: str | None = None,
        vertex_value_initializer: Any = None,
    ) -> GraphCsvReader:
        """Return a reader of text files. Set types with `types`, `edge_types`, `vertex_types` or `key_type`.

        Args:
            edges_path: a file, or a directory of files.
            context: the environment.
            vertices_path: the file or directory of the vertices. By default they are the vertices of the edges.
            vertex_value_initializer: computes the values of the edges' vertices from their ids.
        """
        return GraphCsvReader(edges_path, context, vertices_path, vertex_value_initializer, _build_graph)

    # --- algorithms --------------------------------------------------------------------------------------------------

    def run(self, algorithm: GraphAlgorithm[T] | GraphAnalytic[T]) -> Any:
        """Run an algorithm and return its result, a graph or a stream. Return an analytic itself, to `execute`."""
        return run_algorithm(algorithm, self)

    def validate(self, validator: GraphValidator) -> bool:
        """Return whether the graph passes a validator. Runs a job."""
        return validator.validate(self)

    def __repr__(self) -> str:
        return f"Graph({self._vertices.get_name()!r}, {self._edges.get_name()!r})"


def _build_graph(
    edges: DataStream, vertices: DataStream | None, initializer: Any, origin: Origin | None = None
) -> Graph:
    check_stream(edges, "the edges")
    if vertices is None:
        vertices = extract_vertices(edges, initializer)
        origin = origin or Origin(edges, None, initializer)
    elif initializer is not None:
        raise WrongValueError("vertex_value_initializer: the vertices are given, and have values; use map_vertices")
    else:
        check_stream(vertices, "the vertices")
    return Graph(vertices, edges, edges.get_execution_environment(), origin)


def _graph_of_tuples(
    edges: DataStream, vertices: DataStream | None, initializer: Any, edge_of: Callable[[Any], Edge]
) -> Graph:
    origin = Origin(check_stream(edges, "the edges"), vertices, initializer)
    vertex_stream = None if vertices is None else check_stream(vertices, "the vertices").map(_vertex).name("Vertices")
    return _build_graph(edges.map(edge_of).name("Edges"), vertex_stream, initializer, origin)


def _vertex(record: Any) -> Vertex:
    return Vertex(*record)


def _edge(record: Any) -> Edge:
    return Edge(*record)


def _edge_without_value(record: Any) -> Edge:
    return Edge(record[0], record[1], None)
