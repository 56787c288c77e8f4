"""Elements of graphs: vertices, edges, and both together.

Base of all parts of `Graph`: two streams, and how to make another graph from others.

Arguments of `Graph.run`: algorithms, which return a graph or a stream, and analytics, which return one result.

`Graph` belongs to a higher layer than this module, so it is `Any` here; implementations say `Graph`.

Checks of the arguments of algorithms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, Self, TypeVar

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.datastream.data_stream import DataStream, StreamExecutionEnvironment
from penstock.gelly.base.streams import FIRST, SECOND, co_grouped, count, lazy


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

    def reverse(self) -> Edge:
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


T = TypeVar("T")


class GraphAlgorithm(ABC, Generic[T]):
    """Transforms a graph into another graph or a stream of results."""

    @abstractmethod
    def run(self, graph: Any) -> T:
        """Return a stream of results, or a graph."""


class GraphAnalytic(ABC, Generic[T]):
    """Computes one result from a graph, which takes a job: `run` takes the graph, and `execute` runs the job."""

    graph: Any

    def run(self, graph: Any) -> Self:
        """Take the graph; return the analytic itself."""
        self.graph = graph
        return self

    @abstractmethod
    def get_result(self) -> T:
        """Return the result; its input is computed on the first call."""

    def execute(self, job_name: str | None = None) -> T:
        """Run the job and return the result."""
        return self.get_result()


class GraphValidator(ABC):
    """Checks whether a graph is valid."""

    @abstractmethod
    def validate(self, graph: Any) -> bool:
        """Return whether the graph is valid; runs a job."""


def run_algorithm(algorithm: Any, graph: Any) -> Any:
    """Return the result of `run(graph)` of an algorithm or an analytic."""
    return algorithm.run(graph)


def whole(owner: Any, name: str, value: Any, at_least: int) -> int:
    """Return an integer after checking its type and its minimum.

    Raises:
        TypeError: if it is not an integer.
        ValueError: if it is too small.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongTypeError(f"{_name(owner)}: {name} must be a whole number, not {value!r}")
    if value < at_least:
        raise WrongValueError(f"{_name(owner)}: {name} must be {at_least} or more, not {value}")
    return value


def number(owner: Any, name: str, value: Any, above: float | None = None, at_least: float | None = None) -> float:
    """Return a number after checking its type and its lower bounds.

    Raises:
        TypeError: if it is not a number.
        ValueError: if it is too small, or NaN.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise WrongTypeError(f"{_name(owner)}: {name} must be a number, not {value!r}")
    if above is not None and not value > above:
        raise WrongValueError(f"{_name(owner)}: {name} must be greater than {above:g}, not {value}")
    if at_least is not None and not value >= at_least:
        raise WrongValueError(f"{_name(owner)}: {name} must be {at_least:g} or more, not {value}")
    return value


def flag(owner: Any, name: str, value: Any) -> bool:
    """Return a boolean after checking its type.

    Raises:
        TypeError: if it is anything else.
    """
    if not isinstance(value, bool):
        raise WrongTypeError(f"{_name(owner)}: {name} takes True or False, not {value!r}")
    return value


def _name(owner: Any) -> str:
    return owner if isinstance(owner, str) else type(owner).__name__
