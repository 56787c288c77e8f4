"""Metrics of a graph that derive from the degrees at both ends of its edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from penstock.gelly.asm.neighbours import Higher, higher_neighbours
from penstock.gelly.asm.partials import Partial, partials
from penstock.gelly.base.streams import collected
from penstock.gelly.library.analytic import Analytic
from penstock.gelly.library.vertex_metrics import merged

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
