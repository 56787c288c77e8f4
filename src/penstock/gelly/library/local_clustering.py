"""The local clustering coefficient: how many of a vertex's neighbours are neighbours of each other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

from penstock.datastream.data_stream import DataStream
from penstock.gelly.asm.checks import flag
from penstock.gelly.asm.neighbours import MUTUAL
from penstock.gelly.asm.partials import Weights, partials
from penstock.gelly.asm.vertex_degrees import VertexDegree, VertexDegrees
from penstock.gelly.base.algorithm import GraphAlgorithm
from penstock.gelly.base.streams import FIRST, co_grouped
from penstock.gelly.library.triangles import triangles


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
        degrees = VertexDegrees() if self.is_directed else VertexDegree()
        with_degree = degrees.set_include_zero_degree_vertices(self._includes_zero).run(graph)
        corners = partial(Weights, _directed_corners if self.is_directed else _corners)
        counts = partials(triangles(graph.get_edges(), self.is_directed), corners, "Corners Of Triangles")
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
    return 2 if mask & MUTUAL == MUTUAL else 1


def _clustering(
    result: type[Any], is_directed: bool, _: Any, vertices: Iterable[Any], counts: Iterable[Any]
) -> Iterator[Any]:
    triangle_count = sum(count for _, count in counts)
    for vertex_id, degree in vertices:
        yield result(vertex_id, degree[0] if is_directed else degree, triangle_count)
