"""Triangles of a graph, and clustering coefficients: local for each vertex, average and global for the graph.

`triangles` lists all triangles, each once, with the directions of its edges. The middle vertex of a triangle, in the
order of degrees and ids, finds the triangle: the lowest vertex sends each higher neighbour the neighbours above it, and
the middle vertex knows which of these are its own.

The local clustering coefficient is how many of a vertex's neighbours are neighbours of each other. The average and the
global clustering coefficient are analytics for how densely a graph is connected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import permutations
from typing import Any, ClassVar, Final, NamedTuple, Self

from penstock.datastream.data_stream import DataStream
from penstock.gelly import asm
from penstock.gelly.base import FIRST, GraphAlgorithm, co_grouped, collected, flag
from penstock.gelly.library.metrics import Analytic

#: The bit positions of the three pairs of a triangle's vertices: first and second, first and third, last two.
PAIRS = {(0, 1): 4, (0, 2): 2, (1, 2): 0}


def triangles(edges: DataStream, is_directed: bool) -> DataStream:
    """Return each triangle once, as (lowest degree, one, other, bit mask), with the last two ordered by id."""
    higher = asm.higher_neighbours(edges, is_directed)
    pairs = higher.flat_map(_tell_higher).name("Pairs Of Neighbours")
    return co_grouped(pairs, higher, (FIRST, FIRST), _closed).name("Triangles")


def _tell_higher(vertex: asm.Higher) -> Iterator[tuple[Any, Any, int, tuple[tuple[Any, int], ...]]]:
    """Yield for each neighbour except the highest: the vertex, their edge's directions, and the neighbours above."""
    neighbours = vertex.neighbours
    for position in range(len(neighbours) - 1):
        other, mask = neighbours[position]
        yield other, vertex.id, mask, neighbours[position + 1 :]


def _closed(_: Any, pairs: Iterable[Any], middles: Iterable[asm.Higher]) -> Iterator[tuple[Any, Any, Any, int]]:
    for middle in middles:
        own = dict(middle.neighbours)
        for _, lowest, mask, neighbours in pairs:
            masks = dict(neighbours)
            for highest in own.keys() & masks.keys():
                yield _triangle(lowest, middle.id, highest, mask, masks[highest], own[highest])


def _triangle(lowest: Any, middle: Any, highest: Any, to_middle: int, to_highest: int, between: int) -> Any:
    """Return the triangle with its last two vertices in the order of their ids."""
    if middle < highest:
        return lowest, middle, highest, to_middle << 4 | to_highest << 2 | between
    return lowest, highest, middle, to_highest << 4 | to_middle << 2 | asm.TURNED[between]


def permuted(triangle: tuple[Any, Any, Any, int], order: Sequence[int]) -> tuple[Any, Any, Any, int]:
    """Return the same triangle with another order of its vertices: the positions of the new first, second, third."""
    mask = triangle[3]
    turned = 0
    for (low, high), shift in PAIRS.items():
        first, second = order[low], order[high]
        if first < second:
            turned |= (mask >> PAIRS[first, second] & 3) << shift
        else:
            turned |= asm.TURNED[mask >> PAIRS[second, first] & 3] << shift
    return triangle[order[0]], triangle[order[1]], triangle[order[2]], turned


def by_id(triangle: tuple[Any, Any, Any, int]) -> tuple[Any, Any, Any, int]:
    """Return the triangle with its ids in ascending order. The last two already are."""
    first, second, third, _ = triangle
    if first < second:
        return triangle
    return permuted(triangle, (1, 0, 2) if first < third else (1, 2, 0))


#: All orders of three vertices.
ORDERS: Final = tuple(permutations((0, 1, 2), 3))
#: The text between two ids for the two bits of an edge.
ARROWS: Final = ("  ", "->", "<-", "<->")


class Triangle(NamedTuple):
    """Three vertices that are all neighbours.

    Attributes:
        vertex_id_0: the id of the first vertex.
        vertex_id_1: the id of the second vertex.
        vertex_id_2: the id of the third vertex.
    """

    vertex_id_0: Any
    vertex_id_1: Any
    vertex_id_2: Any

    def get_vertex_id_0(self) -> Any:
        """Return the id of the first vertex."""
        return self.vertex_id_0

    def get_vertex_id_1(self) -> Any:
        """Return the id of the second vertex."""
        return self.vertex_id_1

    def get_vertex_id_2(self) -> Any:
        """Return the id of the third vertex."""
        return self.vertex_id_2


class DirectedTriangle(NamedTuple):
    """Three vertices that are all neighbours, and the edges between them.

    Attributes:
        vertex_id_0: the id of the first vertex.
        vertex_id_1: the id of the second vertex.
        vertex_id_2: the id of the third vertex.
        bitmask: two bits for the first and second vertex (16 for the edge from the first to the second, 32 for the
            reverse), two for the first and third (4, 8), two for the second and third (1, 2).
    """

    vertex_id_0: Any
    vertex_id_1: Any
    vertex_id_2: Any
    bitmask: int

    def get_vertex_id_0(self) -> Any:
        """Return the id of the first vertex."""
        return self.vertex_id_0

    def get_vertex_id_1(self) -> Any:
        """Return the id of the second vertex."""
        return self.vertex_id_1

    def get_vertex_id_2(self) -> Any:
        """Return the id of the third vertex."""
        return self.vertex_id_2

    def get_bitmask(self) -> int:
        """Return which of the six possible edges exist: two bits for each pair of vertices."""
        return self.bitmask

    def to_printable_string(self) -> str:
        """Return the ids, with the edges between them as arrows."""
        first, second, third, mask = self
        arrows = [ARROWS[mask >> shift & 3] for shift in (4, 2, 0)]
        return f"{first}{arrows[0]}{second}, {first}{arrows[1]}{third}, {second}{arrows[2]}{third}"


class _TriangleListing(GraphAlgorithm[DataStream]):
    """The common base of the listings for directed and undirected graphs."""

    is_directed: ClassVar[bool]
    result: ClassVar[type[Any]]
    _sorts = False
    _permutes = False

    def set_sort_triangle_vertices(self, sort_triangle_vertices: bool) -> Self:
        """Set whether the ids of a triangle are in ascending order instead of any order (default: False)."""
        self._sorts = flag(self, "set_sort_triangle_vertices", sort_triangle_vertices)
        return self

    def set_permute_results(self, permute_results: bool) -> Self:
        """Set whether each triangle appears six times, once in each order of its vertices (default: False)."""
        self._permutes = flag(self, "set_permute_results", permute_results)
        return self

    def run(self, graph: Any) -> DataStream:
        """Return a stream of the triangles."""
        shape = _Shape(self.result, self._sorts, self._permutes)
        return triangles(graph.get_edges(), self.is_directed).flat_map(shape).name("Triangle Listing")


class UndirectedTriangleListing(_TriangleListing):
    """Lists the triangles of an undirected graph as (id, id, id), each once.

    The graph has each edge in both directions. Self-loops and duplicate edges form no triangles.
    """

    is_directed = False
    result = Triangle


class DirectedTriangleListing(_TriangleListing):
    """Lists the triangles of a directed graph, with edges in any direction, each once as (id, id, id, bit mask)."""

    is_directed = True
    result = DirectedTriangle


class TriangleEnumerator(GraphAlgorithm[DataStream]):
    """Lists the triangles of any graph as (id, id, id), each once, in ascending order, ignoring directions.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.library import TriangleEnumerator
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (2, 3), (3, 1), (3, 4)], env)
        >>> graph.run(TriangleEnumerator()).collect()
        [Triangle(vertex_id_0=1, vertex_id_1=2, vertex_id_2=3)]
    """

    def run(self, graph: Any) -> DataStream:
        """Return a stream of the triangles."""
        shape = _Shape(Triangle, sorts=True, permutes=False)
        return triangles(graph.get_edges(), is_directed=True).flat_map(shape).name("Triangle Enumerator")


class _Shape:
    """Turns triangles into results, in the requested order or orders."""

    def __init__(self, result: type[Any], sorts: bool, permutes: bool) -> None:
        self._result = result
        self._sorts = sorts
        self._permutes = permutes
        self._fields = len(result._fields)

    def __call__(self, triangle: tuple[Any, Any, Any, int]) -> Iterable[Any]:
        return [self._result(*permutation[: self._fields]) for permutation in self._orders(triangle)]

    def _orders(self, triangle: tuple[Any, Any, Any, int]) -> Iterator[tuple[Any, Any, Any, int]]:
        if self._permutes:
            for order in ORDERS:
                yield permuted(triangle, order)
        else:
            yield by_id(triangle) if self._sorts else triangle


class UndirectedClustering(NamedTuple):
    """The clustering of a vertex in an undirected graph.

    Attributes:
        vertex_id: the id of the vertex.
        degree: the number of neighbours.
        triangle_count: the number of triangles with this vertex, which is the number of edges among its neighbours.
    """

    vertex_id: Any
    degree: int
    triangle_count: int

    def get_vertex_id(self) -> Any:
        """Return the id of the vertex."""
        return self.vertex_id

    def get_degree(self) -> int:
        """Return the number of neighbours."""
        return self.degree

    def get_triangle_count(self) -> int:
        """Return the number of triangles with this vertex, which is the number of edges among its neighbours."""
        return self.triangle_count

    def get_local_clustering_coefficient_score(self) -> float:
        """Return the fraction of neighbour pairs with an edge, from 0 to 1; NaN for fewer than two neighbours."""
        return _score(self.triangle_count, self.degree * (self.degree - 1) // 2)


class DirectedClustering(NamedTuple):
    """The clustering of a vertex in a directed graph.

    Attributes:
        vertex_id: the id of the vertex.
        degree: the number of neighbours.
        triangle_count: the number of edges among its neighbours.
    """

    vertex_id: Any
    degree: int
    triangle_count: int

    def get_vertex_id(self) -> Any:
        """Return the id of the vertex."""
        return self.vertex_id

    def get_degree(self) -> int:
        """Return the number of neighbours."""
        return self.degree

    def get_triangle_count(self) -> int:
        """Return the number of edges among its neighbours."""
        return self.triangle_count

    def get_local_clustering_coefficient_score(self) -> float:
        """Return the existing fraction (0 to 1) of possible edges among neighbours; NaN for fewer than two."""
        return _score(self.triangle_count, self.degree * (self.degree - 1))


def _score(count: int, possible: int) -> float:
    return count / possible if possible else math.nan


class _LocalClusteringCoefficient(GraphAlgorithm[DataStream]):
    """The common base of the coefficients for directed and undirected graphs."""

    is_directed: ClassVar[bool]
    result: ClassVar[type[Any]]
    _includes_zero = True

    def set_include_zero_degree_vertices(self, include_zero_degree_vertices: bool) -> Self:
        """Set whether vertices without edges have results (default: True)."""
        self._includes_zero = flag(self, "set_include_zero_degree_vertices", include_zero_degree_vertices)
        return self

    def run(self, graph: Any) -> DataStream:
        """Return a stream with a result for each vertex."""
        degrees = asm.VertexDegrees() if self.is_directed else asm.VertexDegree()
        with_degree = degrees.set_include_zero_degree_vertices(self._includes_zero).run(graph)
        corners = partial(asm.Weights, _directed_corners if self.is_directed else _corners)
        counts = asm.partials(triangles(graph.get_edges(), self.is_directed), corners, "Corners Of Triangles")
        make = partial(_clustering, self.result, self.is_directed)
        return co_grouped(with_degree, counts, (FIRST, FIRST), make).name("Local Clustering Coefficient")


class UndirectedLocalClusteringCoefficient(_LocalClusteringCoefficient):
    """Measures how densely the neighbours of each vertex of an undirected graph are connected.

    The graph is simple, with each edge in both directions.
    """

    is_directed = False
    result = UndirectedClustering


class DirectedLocalClusteringCoefficient(_LocalClusteringCoefficient):
    """Measures how densely the neighbours of each vertex of a directed graph, in any direction, are connected."""

    is_directed = True
    result = DirectedClustering


def _corners(records: Sequence[Any]) -> Iterator[tuple[Any, int]]:
    for first, second, third, _ in records:
        yield first, 1
        yield second, 1
        yield third, 1


def _directed_corners(records: Sequence[Any]) -> Iterator[tuple[Any, int]]:
    """Yield the number of edges between the other two, for each vertex of a triangle."""
    for first, second, third, mask in records:
        yield first, _edges(mask)
        yield second, _edges(mask >> 2)
        yield third, _edges(mask >> 4)


def _edges(mask: int) -> int:
    return 2 if mask & asm.MUTUAL == asm.MUTUAL else 1


def _clustering(
    result: type[Any], is_directed: bool, _: Any, vertices: Iterable[Any], counts: Iterable[Any]
) -> Iterator[Any]:
    triangle_count = sum(count for _, count in counts)
    for vertex_id, degree in vertices:
        yield result(vertex_id, degree[0] if is_directed else degree, triangle_count)


class AverageClustering(NamedTuple):
    """The average of the local clustering coefficients.

    Attributes:
        number_of_vertices: the number of vertices.
        average_clustering_coefficient: the average. Vertices with fewer than two neighbours count as 0. It is NaN for a
            graph without vertices.
    """

    number_of_vertices: int
    average_clustering_coefficient: float

    def get_number_of_vertices(self) -> int:
        """Return the number of vertices."""
        return self.number_of_vertices

    def get_average_clustering_coefficient(self) -> float:
        """Return the average."""
        return self.average_clustering_coefficient


class GlobalClustering(NamedTuple):
    """The number of closed triplets.

    Attributes:
        number_of_triplets: the number of pairs of neighbours, over all vertices.
        number_of_triangles: the number of these pairs with an edge: three for each triangle.
    """

    number_of_triplets: int
    number_of_triangles: int

    def get_number_of_triplets(self) -> int:
        """Return the number of pairs of neighbours, over all vertices."""
        return self.number_of_triplets

    def get_number_of_triangles(self) -> int:
        """Return the number of these pairs with an edge."""
        return self.number_of_triangles

    @property
    def global_clustering_coefficient_score(self) -> float:
        """The fraction of triplets that are closed, from 0 to 1; NaN for a graph without triplets."""
        return self.number_of_triangles / self.number_of_triplets if self.number_of_triplets else math.nan

    def get_global_clustering_coefficient_score(self) -> float:
        """Return the fraction of triplets that are closed, from 0 to 1; NaN for a graph without triplets."""
        return self.global_clustering_coefficient_score


class _AverageClusteringCoefficient(Analytic[AverageClustering]):
    """The common base of the averages for directed and undirected graphs."""

    local: ClassVar[type[Any]]

    def compute(self, graph: Any, job_name: str) -> AverageClustering:
        records = collected(
            asm.partials(self.local().run(graph), _ScoreSum, "Average Clustering Coefficient"), job_name
        )
        vertices = sum(count for count, _ in records)
        total = math.fsum(score for _, scores in records for score in scores)
        return AverageClustering(vertices, total / vertices if vertices else math.nan)


class UndirectedAverageClusteringCoefficient(_AverageClusteringCoefficient):
    """The average of the local clustering coefficients of an undirected graph."""

    local = UndirectedLocalClusteringCoefficient


class DirectedAverageClusteringCoefficient(_AverageClusteringCoefficient):
    """The average of the local clustering coefficients of a directed graph."""

    local = DirectedLocalClusteringCoefficient


class _ScoreSum(asm.Partial):
    """The number of results and the sum of their scores, as parts to add up, without rounding errors."""

    def __init__(self) -> None:
        self._count = 0
        self._parts: list[float] = []

    def add(self, records: Sequence[Any]) -> None:
        self._count += len(records)
        scores = [record.get_local_clustering_coefficient_score() for record in records if record.degree > 1]
        self._parts = exact_parts([*self._parts, *scores])

    def take(self) -> list[Any]:
        records = [(self._count, self._parts)] if self._count else []
        self._count, self._parts = 0, []
        return records


def exact_parts(numbers: Sequence[float]) -> list[float]:
    """Return a few numbers with the same exact sum, so that the order of addition makes no difference."""
    parts: list[float] = []
    for number in numbers:
        remainders = []
        for part in parts:
            large, small = (number, part) if abs(number) >= abs(part) else (part, number)
            total = large + small
            rest = small - (total - large)
            if rest:
                remainders.append(rest)
            number = total
        parts = [*remainders, number]
    return parts


class _GlobalClusteringCoefficient(Analytic[GlobalClustering]):
    """The common base of the coefficients for directed and undirected graphs."""

    is_directed: ClassVar[bool]

    def compute(self, graph: Any, job_name: str) -> GlobalClustering:
        degrees = (asm.VertexDegrees() if self.is_directed else asm.VertexDegree()).run(graph)
        triplets = asm.partials(degrees, _Triplets, "Triplets")
        closed = asm.partials(triangles(graph.get_edges(), self.is_directed), _Triangles, "Closed Triplets")
        records = collected(triplets.union(closed), job_name)
        return GlobalClustering(*(sum(record[index] for record in records) for index in (0, 1)))


class UndirectedGlobalClusteringCoefficient(_GlobalClusteringCoefficient):
    """The fraction of pairs of neighbours in an undirected graph that are neighbours themselves."""

    is_directed = False


class DirectedGlobalClusteringCoefficient(_GlobalClusteringCoefficient):
    """The fraction of pairs of neighbours, in any direction, that are neighbours themselves."""

    is_directed = True


class _Sum(asm.Partial):
    """A sum, in one of the two positions of a record."""

    def __init__(self) -> None:
        self.sum = 0

    def take(self) -> list[Any]:
        records = [self.record()] if self.sum else []
        self.sum = 0
        return records

    def record(self) -> tuple[int, int]:
        raise NotImplementedError


class _Triplets(_Sum):
    def add(self, records: Sequence[Any]) -> None:
        numbers = [degree if isinstance(degree, int) else degree[0] for _, degree in records]
        self.sum += sum(number * (number - 1) // 2 for number in numbers)

    def record(self) -> tuple[int, int]:
        return self.sum, 0


class _Triangles(_Sum):
    def add(self, records: Sequence[Any]) -> None:
        self.sum += 3 * len(records)

    def record(self) -> tuple[int, int]:
        return 0, self.sum
