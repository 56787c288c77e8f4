"""Edges with the degrees of the vertices at their ends."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

from penstock.datastream.data_stream import DataStream
from penstock.gelly.asm.vertex_degrees import VertexDegree, VertexDegrees
from penstock.gelly.base.algorithm import GraphAlgorithm
from penstock.gelly.base.elements import Edge
from penstock.gelly.base.streams import FIRST, SECOND, co_grouped


class _EdgeDegrees(GraphAlgorithm[DataStream]):
    """Base class of the algorithms for edges with degrees."""

    vertex_degrees: ClassVar[type[Any]]
    #: The ends whose degrees are added: 0 is the source, 1 the target.
    ends: ClassVar[tuple[int, ...]]

    def run(self, graph: Any) -> DataStream:
        """Return a stream of `Edge`s whose values are tuples of the edge's value and the degrees."""
        degrees = self.vertex_degrees().run(graph)
        edges: DataStream = graph.get_edges()
        for end in self.ends:
            make = partial(_annotated, end == self.ends[0])
            key = SECOND if end else FIRST
            edges = co_grouped(edges, degrees, (key, FIRST), make).name(type(self).__name__)
        return edges


class EdgeSourceDegrees(_EdgeDegrees):
    """Each edge of a directed graph with the `Degrees` of its source: value (value, degrees)."""

    vertex_degrees = VertexDegrees
    ends = (0,)


class EdgeTargetDegrees(_EdgeDegrees):
    """Each edge of a directed graph with the `Degrees` of its target: value (value, degrees)."""

    vertex_degrees = VertexDegrees
    ends = (1,)


class EdgeDegreesPair(_EdgeDegrees):
    """Each edge of a directed graph with the `Degrees` of both ends: value (value, source's, target's)."""

    vertex_degrees = VertexDegrees
    ends = (0, 1)


class EdgeSourceDegree(_EdgeDegrees):
    """Each edge of an undirected graph with the degree of its source: value (value, degree)."""

    vertex_degrees = VertexDegree
    ends = (0,)


class EdgeTargetDegree(_EdgeDegrees):
    """Each edge of an undirected graph with the degree of its target: value (value, degree)."""

    vertex_degrees = VertexDegree
    ends = (1,)


class EdgeDegreePair(_EdgeDegrees):
    """Each edge of an undirected graph with the degrees of both ends: value (value, source's, target's)."""

    vertex_degrees = VertexDegree
    ends = (0, 1)


def _annotated(is_first: bool, _: Any, edges: Iterable[Any], degrees: Iterable[Any]) -> list[Edge]:
    degree_values = [degree for _, degree in degrees]
    if is_first:
        return [Edge(source, target, (value, *degree_values)) for source, target, value in edges]
    return [Edge(source, target, (*values, *degree_values)) for source, target, values in edges]
