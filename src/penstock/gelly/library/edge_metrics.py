"""Figures of a graph that follow from the degrees at both ends of its edges."""

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
    """How many pairs of edges algorithms look at that work from vertices of low degree to those of high degree.

    Attributes:
        number_of_triangle_triplets: how many pairs of edges leave a vertex for two of higher degree, which is how many
            pairs are looked at to list triangles.
        number_of_rectangle_triplets: the same, and the pairs of an edge to a vertex of higher degree and one from a
            vertex of lower degree.
        maximum_triangle_triplets: the highest number of triangle triplets of a vertex.
        maximum_rectangle_triplets: the highest number of rectangle triplets of a vertex.
    """

    number_of_triangle_triplets: int
    number_of_rectangle_triplets: int
    maximum_triangle_triplets: int
    maximum_rectangle_triplets: int

    def get_number_of_triangle_triplets(self) -> int:
        """How many pairs of edges leave a vertex for two of higher degree."""
        return self.number_of_triangle_triplets

    def get_number_of_rectangle_triplets(self) -> int:
        """The same, and the pairs of an edge to a vertex of higher degree and one from a vertex of lower degree."""
        return self.number_of_rectangle_triplets

    def get_maximum_triangle_triplets(self) -> int:
        """The highest number of triangle triplets of a vertex."""
        return self.maximum_triangle_triplets

    def get_maximum_rectangle_triplets(self) -> int:
        """The highest number of rectangle triplets of a vertex."""
        return self.maximum_rectangle_triplets


class _EdgeMetrics(Analytic[EdgeFigures]):
    """What the figures of directed and undirected graphs share."""

    is_directed: ClassVar[bool]

    def compute(self, graph: Any, job_name: str) -> EdgeFigures:
        higher = higher_neighbours(graph.get_edges(), self.is_directed)
        found = collected(partials(higher, _Triplets, "Edge Metrics"), job_name)
        return EdgeFigures(*(merged(found, _SUMS) or (0,) * 4))


class UndirectedEdgeMetrics(_EdgeMetrics):
    """Counts triplets of an undirected graph, which is simple and has each edge both ways."""

    is_directed = False


class DirectedEdgeMetrics(_EdgeMetrics):
    """Counts triplets of a directed graph without loops and repeated edges; edges count whichever way they lead."""

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
        taken = [tuple(self._held)] if self._held else []
        self._held = []
        return taken


def _triplets(degree: int, higher: int) -> tuple[int, ...]:
    triangle = higher * (higher - 1) // 2
    rectangle = triangle + higher * (degree - higher)
    return triangle, rectangle, triangle, rectangle
