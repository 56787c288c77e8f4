"""Figures of a graph that follow from the degrees of its vertices."""

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
    """Figures of an undirected graph.

    Attributes:
        number_of_vertices: how many vertices there are.
        number_of_edges: how many edges there are; one both ways counts once.
        number_of_triplets: how many pairs of neighbours the vertices have.
        maximum_degree: the highest degree.
        maximum_triplets: how many pairs of neighbours the vertex of the highest degree has.
    """

    number_of_vertices: int
    number_of_edges: int
    number_of_triplets: int
    maximum_degree: int
    maximum_triplets: int

    def get_number_of_vertices(self) -> int:
        """How many vertices there are."""
        return self.number_of_vertices

    def get_number_of_edges(self) -> int:
        """How many edges there are."""
        return self.number_of_edges

    def get_number_of_triplets(self) -> int:
        """How many pairs of neighbours the vertices have."""
        return self.number_of_triplets

    def get_maximum_degree(self) -> int:
        """The highest degree."""
        return self.maximum_degree

    def get_maximum_triplets(self) -> int:
        """How many pairs of neighbours the vertex of the highest degree has."""
        return self.maximum_triplets

    @property
    def average_degree(self) -> float:
        """The average number of neighbours; NaN for a graph without vertices."""
        return 2 * self.number_of_edges / self.number_of_vertices if self.number_of_vertices else math.nan

    def get_average_degree(self) -> float:
        """The average number of neighbours; NaN for a graph without vertices."""
        return self.average_degree

    @property
    def density(self) -> float:
        """The part of the possible edges that exist; NaN for fewer than two vertices."""
        possible = self.number_of_vertices * (self.number_of_vertices - 1) // 2
        return self.number_of_edges / possible if possible else math.nan

    def get_density(self) -> float:
        """The part of the possible edges that exist; NaN for fewer than two vertices."""
        return self.density


class DirectedVertexFigures(NamedTuple):
    """Figures of a directed graph. The degree of a vertex counts its neighbours, whichever way they are.

    Attributes:
        number_of_vertices: how many vertices there are.
        number_of_edges: how many edges there are.
        number_of_directed_edges: how many pairs of vertices have an edge one way.
        number_of_undirected_edges: how many pairs of vertices have an edge both ways.
        number_of_triplets: how many pairs of neighbours the vertices have.
        maximum_degree: the highest degree.
        maximum_out_degree: the highest number of edges that leave a vertex.
        maximum_in_degree: the highest number of edges that lead to a vertex.
        maximum_triplets: how many pairs of neighbours the vertex of the highest degree has.
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
        """How many vertices there are."""
        return self.number_of_vertices

    def get_number_of_edges(self) -> int:
        """How many edges there are."""
        return self.number_of_edges

    def get_number_of_directed_edges(self) -> int:
        """How many pairs of vertices have an edge one way."""
        return self.number_of_directed_edges

    def get_number_of_undirected_edges(self) -> int:
        """How many pairs of vertices have an edge both ways."""
        return self.number_of_undirected_edges

    def get_number_of_triplets(self) -> int:
        """How many pairs of neighbours the vertices have."""
        return self.number_of_triplets

    def get_maximum_degree(self) -> int:
        """The highest degree."""
        return self.maximum_degree

    def get_maximum_out_degree(self) -> int:
        """The highest number of edges that leave a vertex."""
        return self.maximum_out_degree

    def get_maximum_in_degree(self) -> int:
        """The highest number of edges that lead to a vertex."""
        return self.maximum_in_degree

    def get_maximum_triplets(self) -> int:
        """How many pairs of neighbours the vertex of the highest degree has."""
        return self.maximum_triplets

    @property
    def average_degree(self) -> float:
        """The average number of edges of a vertex, each counted at its source; NaN for a graph without vertices."""
        return self.number_of_edges / self.number_of_vertices if self.number_of_vertices else math.nan

    def get_average_degree(self) -> float:
        """The average number of edges of a vertex, each counted at its source; NaN for a graph without vertices."""
        return self.average_degree

    @property
    def density(self) -> float:
        """The part of the possible edges that exist; NaN for fewer than two vertices."""
        possible = self.number_of_vertices * (self.number_of_vertices - 1)
        return self.number_of_edges / possible if possible else math.nan

    def get_density(self) -> float:
        """The part of the possible edges that exist; NaN for fewer than two vertices."""
        return self.density


class _VertexMetrics(Analytic[Any]):
    """What the figures of directed and undirected graphs share."""

    degrees: ClassVar[type[Any]]
    #: How many of the figures are sums; the others are maxima.
    sums: ClassVar[int]
    figures: ClassVar[Callable[[Any], tuple[int, ...]]]
    _includes_zero = False

    def set_include_zero_degree_vertices(self, include_zero_degree_vertices: bool) -> Self:
        """Whether vertices without edges count. False by default."""
        self._includes_zero = flag(self, "set_include_zero_degree_vertices", include_zero_degree_vertices)
        return self

    def compute(self, graph: Any, job_name: str) -> Any:
        degrees = self.degrees().set_include_zero_degree_vertices(self._includes_zero).run(graph)
        make = partial(_SumsAndMaxima, type(self).figures, self.sums)
        found = collected(partials(degrees, make, "Vertex Metrics"), job_name)
        return self.result(merged(found, self.sums) or list(type(self).figures(None)))

    def result(self, figures: list[int]) -> Any:
        """The result for the merged figures."""
        raise NotImplementedError


def merged(rows: Sequence[tuple[int, ...]], sums: int) -> list[int]:
    """The sums of the first columns, and the maxima of the others; nothing for no rows."""
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
        taken = [tuple(self._held)] if self._held else []
        self._held = []
        return taken


def _of_degree(degree: int | None) -> tuple[int, ...]:
    """Vertices, ends of edges, triplets; degree, triplets."""
    if degree is None:
        return (0,) * 5
    triplets = degree * (degree - 1) // 2
    return 1, degree, triplets, degree, triplets


def _of_degrees(degrees: tuple[int, int, int] | None) -> tuple[int, ...]:
    """Vertices, ends of edges one way and of edges both ways, triplets; the three degrees, triplets."""
    if degrees is None:
        return (0,) * 8
    degree, out_degree, in_degree = degrees
    both = out_degree + in_degree - degree
    triplets = degree * (degree - 1) // 2
    return 1, degree - both, both, triplets, degree, out_degree, in_degree, triplets


class UndirectedVertexMetrics(_VertexMetrics):
    """Counts vertices, edges and triplets of an undirected graph, which is simple and has each edge both ways."""

    degrees = VertexDegree
    sums = 3
    figures = _of_degree

    def result(self, figures: list[int]) -> UndirectedVertexFigures:
        vertices, ends, *others = figures
        return UndirectedVertexFigures(vertices, ends // 2, *others)


class DirectedVertexMetrics(_VertexMetrics):
    """Counts vertices, edges and triplets of a directed graph without loops and repeated edges."""

    degrees = VertexDegrees
    sums = 4
    figures = _of_degrees

    def result(self, figures: list[int]) -> DirectedVertexFigures:
        vertices, ends_one_way, ends_both_ways, *others = figures
        one_way, both_ways = ends_one_way // 2, ends_both_ways // 2
        return DirectedVertexFigures(vertices, one_way + 2 * both_ways, one_way, both_ways, *others)
