"""Degrees of vertices.

Edges with the degrees of the vertices at their ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

from penstock.datastream.data_stream import DataStream
from penstock.gelly.asm.neighbours import FORWARD, REVERSE, Counts, both_ways, combine_masks, partials
from penstock.gelly.base.elements import Edge, GraphAlgorithm, Vertex, flag
from penstock.gelly.base.streams import FIRST, SECOND, co_grouped, of_groups


class Degrees(NamedTuple):
    """The degrees of a vertex of a directed graph.

    Attributes:
        degree: how many neighbours it has, whichever way the edges lead.
        out_degree: how many of them its edges lead to.
        in_degree: how many of them have edges to it.
    """

    degree: int
    out_degree: int
    in_degree: int

    def get_degree(self) -> int:
        """Return how many neighbours the vertex has, whichever way the edges lead."""
        return self.degree

    def get_out_degree(self) -> int:
        """Return how many neighbours the vertex has edges to."""
        return self.out_degree

    def get_in_degree(self) -> int:
        """Return how many neighbours have edges to the vertex."""
        return self.in_degree


class _VertexDegrees(GraphAlgorithm[DataStream]):
    """Base class of the algorithms for vertex degrees."""

    #: The value of a vertex without edges.
    zero: ClassVar[Any] = 0
    _includes_zero = False

    def set_include_zero_degree_vertices(self, include_zero_degree_vertices: bool) -> Self:
        """Set whether to include vertices of degree zero. False by default, which saves a join."""
        self._includes_zero = flag(self, "set_include_zero_degree_vertices", include_zero_degree_vertices)
        return self

    def run(self, graph: Any) -> DataStream:
        """Return a stream of `Vertex`s (id, degree)."""
        degrees = self.degrees(graph.get_edges())
        if not self._includes_zero:
            return degrees
        make = partial(_with_zero, self.zero)
        return co_grouped(graph.get_vertices(), degrees, (FIRST, FIRST), make).name(f"{degrees.get_name()} With Zero")

    def degrees(self, edges: DataStream) -> DataStream:
        """Return the degrees of the vertices that have edges."""
        raise NotImplementedError


class _CountedEnds(_VertexDegrees):
    """Counts the edges that have a vertex at one end."""

    end: ClassVar[int]

    def degrees(self, edges: DataStream) -> DataStream:
        """Count in each subtask, then add up the counts."""
        name = type(self).__name__
        counts = partials(edges, partial(Counts, partial(_ends, self.end)), f"{name} Counts")
        return of_groups(counts, FIRST, _added).name(name)


class VertexOutDegree(_CountedEnds):
    """Counts the outgoing edges of each vertex of a directed graph."""

    end = 0


class VertexInDegree(_CountedEnds):
    """Counts the incoming edges of each vertex of a directed graph."""

    end = 1


class VertexDegree(_CountedEnds):
    """Counts the edges of each vertex of an undirected graph, which has each edge in both directions."""

    end = 0

    def set_reduce_on_target_id(self, reduce_on_target_id: bool) -> Self:
        """Set whether to count edges at their targets; the result is the same. False by default."""
        self.end = int(flag(self, "set_reduce_on_target_id", reduce_on_target_id))  # type: ignore[misc]
        return self


class VertexDegrees(_VertexDegrees):
    """Counts the neighbours of each vertex of a directed graph as `Degrees`: all, along out-edges, along in-edges."""

    zero = Degrees(0, 0, 0)

    def degrees(self, edges: DataStream) -> DataStream:
        """Find the degrees from the neighbours of each vertex."""
        return of_groups(both_ways(edges), FIRST, _degrees).name("Vertex Degrees")


def _ends(end: int, edges: Sequence[Any]) -> Iterable[Any]:
    return [edge[end] for edge in edges]


def _added(_: Any, key: Any, counts: Iterable[tuple[Any, int]]) -> list[Vertex]:
    return [Vertex(key, sum(count for _, count in counts))]


def _degrees(_: Any, key: Any, ends: Iterable[Any]) -> list[Vertex]:
    masks = combine_masks(ends).values()
    out_degree = sum(mask != REVERSE for mask in masks)
    in_degree = sum(mask != FORWARD for mask in masks)
    return [Vertex(key, Degrees(len(masks), out_degree, in_degree))]


def _with_zero(zero: Any, _: Any, vertices: Iterable[Any], degrees: Iterable[Any]) -> Iterator[Vertex]:
    matches = list(degrees)
    for vertex_id, _ in vertices:
        yield matches[0] if matches else Vertex(vertex_id, zero)


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
