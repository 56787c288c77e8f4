"""Metrics of a graph, which derive from the degrees of its vertices or of both ends of its edges, and a checksum.

`Analytic` is their base: the result for a graph is computed once, on first request. `Checksum` is a fingerprint, to
compare graphs.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, Generic, NamedTuple, Self, TypeVar

import xxhash

from penstock.base.errors import WrongTimeError
from penstock.gelly.asm import Higher, Partial, VertexDegree, VertexDegrees, higher_neighbours, partials
from penstock.gelly.base import GraphAnalytic, collected, flag
from penstock.state.keys import key_bytes

T = TypeVar("T")


class Analytic(GraphAnalytic[T], Generic[T]):
    """An analytic that computes its result in one job."""

    _graph: Any = None
    _result: T | None = None

    def run(self, graph: Any) -> Self:
        """Set the graph, and return the analytic itself."""
        self.graph = self._graph = graph
        self._result = None
        return self

    def get_result(self) -> T:
        """Return the result. Runs a job if it has not been computed yet.

        Raises:
            RuntimeError: before `run`.
        """
        return self.execute() if self._result is None else self._result

    def execute(self, job_name: str | None = None) -> T:
        """Run the job and return the result.

        Raises:
            RuntimeError: before `run`.
        """
        if self._graph is None:
            raise WrongTimeError(f"{type(self).__name__} has no graph yet: call graph.run(analytic) first")
        self._result = self.compute(self._graph, job_name or type(self).__name__)
        return self._result

    @abstractmethod
    def compute(self, graph: Any, job_name: str) -> T:
        """Compute the result of a graph in a job of this name."""


class UndirectedVertexFigures(NamedTuple):
    """Metrics of an undirected graph.

    Attributes:
        number_of_vertices: the number of vertices.
        number_of_edges: the number of edges; an edge in both directions counts once.
        number_of_triplets: the number of pairs of neighbours, over all vertices.
        maximum_degree: the highest degree.
        maximum_triplets: the number of pairs of neighbours of the vertex with the highest degree.
    """

    number_of_vertices: int
    number_of_edges: int
    number_of_triplets: int
    maximum_degree: int
    maximum_triplets: int

    def get_number_of_vertices(self) -> int:
        """Return the number of vertices."""
        return self.number_of_vertices

    def get_number_of_edges(self) -> int:
        """Return the number of edges."""
        return self.number_of_edges

    def get_number_of_triplets(self) -> int:
        """Return the number of pairs of neighbours, over all vertices."""
        return self.number_of_triplets

    def get_maximum_degree(self) -> int:
        """Return the highest degree."""
        return self.maximum_degree

    def get_maximum_triplets(self) -> int:
        """Return the number of pairs of neighbours of the vertex with the highest degree."""
        return self.maximum_triplets

    @property
    def average_degree(self) -> float:
        """The average number of neighbours; NaN for a graph without vertices."""
        return 2 * self.number_of_edges / self.number_of_vertices if self.number_of_vertices else math.nan

    def get_average_degree(self) -> float:
        """Return the average number of neighbours; NaN for a graph without vertices."""
        return self.average_degree

    @property
    def density(self) -> float:
        """The fraction of possible edges that exist; NaN for fewer than two vertices."""
        possible = self.number_of_vertices * (self.number_of_vertices - 1) // 2
        return self.number_of_edges / possible if possible else math.nan

    def get_density(self) -> float:
        """Return the fraction of possible edges that exist; NaN for fewer than two vertices."""
        return self.density


class DirectedVertexFigures(NamedTuple):
    """Metrics of a directed graph. The degree of a vertex counts its neighbours in any direction.

    Attributes:
        number_of_vertices: the number of vertices.
        number_of_edges: the number of edges.
        number_of_directed_edges: the number of vertex pairs with an edge in one direction.
        number_of_undirected_edges: the number of vertex pairs with an edge in both directions.
        number_of_triplets: the number of pairs of neighbours, over all vertices.
        maximum_degree: the highest degree.
        maximum_out_degree: the highest number of outgoing edges of a vertex.
        maximum_in_degree: the highest number of incoming edges of a vertex.
        maximum_triplets: the number of pairs of neighbours of the vertex with the highest degree.
    """

    number_of_vertices: int
    number_of_edges: int
    number_of_directed_edges: int
    number_of_undirected_edges: int
    number_of_triplets: int
    maximum_degree: int
    maximum_out_degree: int
    maximum_in_degree: int
    maximum_triplets: int

    def get_number_of_vertices(self) -> int:
        """Return the number of vertices."""
        return self.number_of_vertices

    def get_number_of_edges(self) -> int:
        """Return the number of edges."""
        return self.number_of_edges

    def get_number_of_directed_edges(self) -> int:
        """Return the number of vertex pairs with an edge in one direction."""
        return self.number_of_directed_edges

    def get_number_of_undirected_edges(self) -> int:
        """Return the number of vertex pairs with an edge in both directions."""
        return self.number_of_undirected_edges

    def get_number_of_triplets(self) -> int:
        """Return the number of pairs of neighbours, over all vertices."""
        return self.number_of_triplets

    def get_maximum_degree(self) -> int:
        """Return the highest degree."""
        return self.maximum_degree

    def get_maximum_out_degree(self) -> int:
        """Return the highest number of outgoing edges of a vertex."""
        return self.maximum_out_degree

    def get_maximum_in_degree(self) -> int:
        """Return the highest number of incoming edges of a vertex."""
        return self.maximum_in_degree

    def get_maximum_triplets(self) -> int:
        """Return the number of pairs of neighbours of the vertex with the highest degree."""
        return self.maximum_triplets

    @property
    def average_degree(self) -> float:
        """The average number of edges of a vertex, each counted at its source; NaN for a graph without vertices."""
        return self.number_of_edges / self.number_of_vertices if self.number_of_vertices else math.nan

    def get_average_degree(self) -> float:
        """Return the average number of edges of a vertex, each counted at its source; NaN without vertices."""
        return self.average_degree

    @property
    def density(self) -> float:
        """The fraction of possible edges that exist; NaN for fewer than two vertices."""
        possible = self.number_of_vertices * (self.number_of_vertices - 1)
        return self.number_of_edges / possible if possible else math.nan

    def get_density(self) -> float:
        """Return the fraction of possible edges that exist; NaN for fewer than two vertices."""
        return self.density


class _VertexMetrics(Analytic[Any]):
    """The common base of the metrics for directed and undirected graphs."""

    degrees: ClassVar[type[Any]]
    #: The number of figures that are sums; the others are maxima.
    sums: ClassVar[int]
    figures: ClassVar[Callable[[Any], tuple[int, ...]]]
    _includes_zero = False

    def set_include_zero_degree_vertices(self, include_zero_degree_vertices: bool) -> Self:
        """Set whether vertices without edges count (default: False)."""
        self._includes_zero = flag(self, "set_include_zero_degree_vertices", include_zero_degree_vertices)
        return self

    def compute(self, graph: Any, job_name: str) -> Any:
        degrees = self.degrees().set_include_zero_degree_vertices(self._includes_zero).run(graph)
        make = partial(_SumsAndMaxima, type(self).figures, self.sums)
        records = collected(partials(degrees, make, "Vertex Metrics"), job_name)
        return self.result(merged(records, self.sums) or list(type(self).figures(None)))

    def result(self, figures: list[int]) -> Any:
        """Return the result for the merged figures."""
        raise NotImplementedError


def merged(rows: Sequence[tuple[int, ...]], sums: int) -> list[int]:
    """Return the sums of the first columns and the maxima of the others; an empty list for no rows."""
    columns = list(zip(*rows, strict=True))
    return [*map(sum, columns[:sums]), *map(max, columns[sums:])]


class _SumsAndMaxima(Partial):
    """Sums and maxima of figures of records (id, degree)."""

    def __init__(self, figures: Callable[[Any], tuple[int, ...]], sums: int) -> None:
        self._figures = figures
        self._sums = sums
        self._held: list[int] = []

    def add(self, records: Sequence[Any]) -> None:
        rows = [self._figures(degree) for _, degree in records]
        if self._held:
            rows.append(tuple(self._held))
        self._held = merged(rows, self._sums)

    def take(self) -> list[Any]:
        records = [tuple(self._held)] if self._held else []
        self._held = []
        return records


def _of_degree(degree: int | None) -> tuple[int, ...]:
    """Return the sums (vertices, edge ends, triplets) and maxima (degree, triplets)."""
    if degree is None:
        return (0,) * 5
    triplets = degree * (degree - 1) // 2
    return 1, degree, triplets, degree, triplets


def _of_degrees(degrees: tuple[int, int, int] | None) -> tuple[int, ...]:
    """Return the sums (vertices, one-way and two-way edge ends, triplets) and maxima (three degrees, triplets)."""
    if degrees is None:
        return (0,) * 8
    degree, out_degree, in_degree = degrees
    both = out_degree + in_degree - degree
    triplets = degree * (degree - 1) // 2
    return 1, degree - both, both, triplets, degree, out_degree, in_degree, triplets


class UndirectedVertexMetrics(_VertexMetrics):
    """Counts vertices, edges and triplets of a simple undirected graph with each edge in both directions."""

    degrees = VertexDegree
    sums = 3
    figures = _of_degree

    def result(self, figures: list[int]) -> UndirectedVertexFigures:
        vertices, ends, *rest = figures
        return UndirectedVertexFigures(vertices, ends // 2, *rest)


class DirectedVertexMetrics(_VertexMetrics):
    """Counts vertices, edges and triplets of a directed graph without self-loops and duplicate edges."""

    degrees = VertexDegrees
    sums = 4
    figures = _of_degrees

    def result(self, figures: list[int]) -> DirectedVertexFigures:
        vertices, ends_one_way, ends_both_ways, *rest = figures
        one_way, both_ways = ends_one_way // 2, ends_both_ways // 2
        return DirectedVertexFigures(vertices, one_way + 2 * both_ways, one_way, both_ways, *rest)


_SUMS = 2


class EdgeFigures(NamedTuple):
    """The number of edge pairs examined by algorithms that work from vertices of low degree to vertices of high degree.

    Attributes:
        number_of_triangle_triplets: the number of pairs of edges from a vertex to two of higher degree, which triangle
            listing examines.
        number_of_rectangle_triplets: the same, plus the pairs of an edge to a vertex of higher degree and one from a
            vertex of lower degree.
        maximum_triangle_triplets: the highest number of triangle triplets of a vertex.
        maximum_rectangle_triplets: the highest number of rectangle triplets of a vertex.
    """

    number_of_triangle_triplets: int
    number_of_rectangle_triplets: int
    maximum_triangle_triplets: int
    maximum_rectangle_triplets: int

    def get_number_of_triangle_triplets(self) -> int:
        """Return the number of pairs of edges from a vertex to two of higher degree."""
        return self.number_of_triangle_triplets

    def get_number_of_rectangle_triplets(self) -> int:
        """Return the same, plus pairs of an edge to a vertex of higher and one from a vertex of lower degree."""
        return self.number_of_rectangle_triplets

    def get_maximum_triangle_triplets(self) -> int:
        """Return the highest number of triangle triplets of a vertex."""
        return self.maximum_triangle_triplets

    def get_maximum_rectangle_triplets(self) -> int:
        """Return the highest number of rectangle triplets of a vertex."""
        return self.maximum_rectangle_triplets


class _EdgeMetrics(Analytic[EdgeFigures]):
    """The common base of the metrics for directed and undirected graphs."""

    is_directed: ClassVar[bool]

    def compute(self, graph: Any, job_name: str) -> EdgeFigures:
        higher = higher_neighbours(graph.get_edges(), self.is_directed)
        records = collected(partials(higher, _Triplets, "Edge Metrics"), job_name)
        return EdgeFigures(*(merged(records, _SUMS) or (0,) * 4))


class UndirectedEdgeMetrics(_EdgeMetrics):
    """Counts triplets of a simple undirected graph with each edge in both directions."""

    is_directed = False


class DirectedEdgeMetrics(_EdgeMetrics):
    """Counts triplets of a directed graph without self-loops and duplicate edges, ignoring directions."""

    is_directed = True


class _Triplets(Partial):
    def __init__(self) -> None:
        self._held: list[int] = []

    def add(self, records: Sequence[Higher]) -> None:
        rows = [_triplets(vertex.degree, len(vertex.neighbours)) for vertex in records]
        if self._held:
            rows.append(tuple(self._held))
        self._held = merged(rows, _SUMS)

    def take(self) -> list[Any]:
        records = [tuple(self._held)] if self._held else []
        self._held = []
        return records


def _triplets(degree: int, higher: int) -> tuple[int, ...]:
    triangle = higher * (higher - 1) // 2
    rectangle = triangle + higher * (degree - higher)
    return triangle, rectangle, triangle, rectangle


_BITS: Final = 0xFFFF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class Checksum:
    """The fingerprint of a graph. Unpacks into both numbers.

    Attributes:
        count: the number of vertices and edges together.
        checksum: the sum of their hashes, as 64 bits. The hashes differ from Java's.
    """

    count: int
    checksum: int

    def get_count(self) -> int:
        """Return the number of vertices and edges together."""
        return self.count

    def get_checksum(self) -> int:
        """Return the sum of their hashes."""
        return self.checksum

    def __iter__(self) -> Iterator[int]:
        return iter((self.count, self.checksum))

    def __str__(self) -> str:
        return f"ChecksumHashCode 0x{self.checksum:016x}, count {self.count}"


class ChecksumHashCode(Analytic[Checksum]):
    """Counts vertices and edges and adds up their hashes, in any order.

    Ids and values must be valid keys: numbers, text, bytes, times, None, and tuples of these. The result is the same in
    every process.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.library import ChecksumHashCode
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (2, 3)], env)
        >>> checksum = graph.run(ChecksumHashCode()).execute()
        >>> checksum == graph.run(ChecksumHashCode()).execute()
        True
    """

    def compute(self, graph: Any, job_name: str) -> Checksum:
        everything = graph.get_vertices().union(graph.get_edges())
        records = collected(partials(everything, _Hashes, "Checksum"), job_name)
        return Checksum(sum(count for count, _ in records), sum(hashes for _, hashes in records) & _BITS)


class _Hashes(Partial):
    def __init__(self) -> None:
        self._count = self._sum = 0

    def add(self, records: Sequence[Any]) -> None:
        self._count += len(records)
        self._sum += sum(xxhash.xxh3_64_intdigest(key_bytes(tuple(record))) for record in records)

    def take(self) -> list[Any]:
        records = [(self._count, self._sum & _BITS)] if self._count else []
        self._count = self._sum = 0
        return records
