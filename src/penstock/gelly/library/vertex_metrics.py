"""Metrics of a graph that derive from the degrees of its vertices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

from penstock.gelly.asm.checks import flag
from penstock.gelly.asm.partials import Partial, partials
from penstock.gelly.asm.vertex_degrees import VertexDegree, VertexDegrees
from penstock.gelly.base.streams import collected
from penstock.gelly.library.analytic import Analytic


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
