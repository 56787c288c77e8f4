"""Analytics for how densely a graph is connected: the average and the global clustering coefficient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from penstock.gelly.asm.partials import Partial, partials
from penstock.gelly.asm.vertex_degrees import VertexDegree, VertexDegrees
from penstock.gelly.base.streams import collected
from penstock.gelly.library.analytic import Analytic
from penstock.gelly.library.local_clustering import (
    DirectedLocalClusteringCoefficient,
    UndirectedLocalClusteringCoefficient,
)
from penstock.gelly.library.triangles import triangles


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
        records = collected(partials(self.local().run(graph), _ScoreSum, "Average Clustering Coefficient"), job_name)
        vertices = sum(count for count, _ in records)
        total = math.fsum(score for _, scores in records for score in scores)
        return AverageClustering(vertices, total / vertices if vertices else math.nan)


class UndirectedAverageClusteringCoefficient(_AverageClusteringCoefficient):
    """The average of the local clustering coefficients of an undirected graph."""

    local = UndirectedLocalClusteringCoefficient


class DirectedAverageClusteringCoefficient(_AverageClusteringCoefficient):
    """The average of the local clustering coefficients of a directed graph."""

    local = DirectedLocalClusteringCoefficient


class _ScoreSum(Partial):
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
        degrees = (VertexDegrees() if self.is_directed else VertexDegree()).run(graph)
        triplets = partials(degrees, _Triplets, "Triplets")
        closed = partials(triangles(graph.get_edges(), self.is_directed), _Triangles, "Closed Triplets")
        records = collected(triplets.union(closed), job_name)
        return GlobalClustering(*(sum(record[index] for record in records) for index in (0, 1)))


class UndirectedGlobalClusteringCoefficient(_GlobalClusteringCoefficient):
    """The fraction of pairs of neighbours in an undirected graph that are neighbours themselves."""

    is_directed = False


class DirectedGlobalClusteringCoefficient(_GlobalClusteringCoefficient):
    """The fraction of pairs of neighbours, in any direction, that are neighbours themselves."""

    is_directed = True


class _Sum(Partial):
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
