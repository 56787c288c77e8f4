"""Degrees of vertices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

from penstock.datastream.data_stream import DataStream
from penstock.gelly.asm.checks import flag
from penstock.gelly.asm.neighbours import FORWARD, REVERSE, both_ways, masks_of
from penstock.gelly.asm.partials import Counts, partials
from penstock.gelly.base.algorithm import GraphAlgorithm
from penstock.gelly.base.elements import Vertex
from penstock.gelly.base.streams import FIRST, co_grouped, of_groups


class Degrees(NamedTuple):
    """The degrees of a vertex of a directed graph.

    Attributes:
        degree: how many neighbours it has, whichever way the edges lead.
        out_degree: to how many of them edges lead.
        in_degree: from how many of them edges come.
    """

    degree: int
    out_degree: int
    in_degree: int

    def get_degree(self) -> int:
        """How many neighbours it has, whichever way the edges lead."""
        return self.degree

    def get_out_degree(self) -> int:
        """To how many of them edges lead."""
        return self.out_degree

    def get_in_degree(self) -> int:
        """From how many of them edges come."""
        return self.in_degree


class _VertexDegrees(GraphAlgorithm[DataStream]):
    """What the degrees of vertices share."""

    #: The value of a vertex without edges.
    zero: ClassVar[Any] = 0
    _includes_zero = False

    def set_include_zero_degree_vertices(self, include_zero_degree_vertices: bool) -> Self:
        """Whether there are results for vertices of degree zero. False by default, which saves a join."""
        self._includes_zero = flag(self, "set_include_zero_degree_vertices", include_zero_degree_vertices)
        return self

    def run(self, graph: Any) -> DataStream:
        """A stream of `Vertex`s (id, degree)."""
        found = self.degrees(graph.get_edges())
        if not self._includes_zero:
            return found
        make = partial(_with_zero, self.zero)
        return co_grouped(graph.get_vertices(), found, (FIRST, FIRST), make).name(f"{found.get_name()} With Zero")

    def degrees(self, edges: DataStream) -> DataStream:
        """The degrees of the vertices that edges have."""
        raise NotImplementedError


class _CountedEnds(_VertexDegrees):
    """How many edges have a vertex at one end."""

    end: ClassVar[int]

    def degrees(self, edges: DataStream) -> DataStream:
        """Counted in each subtask, then added up."""
        name = type(self).__name__
        counts = partials(edges, partial(Counts, partial(_ends, self.end)), f"{name} Counts")
        return of_groups(counts, FIRST, _added).name(name)


class VertexOutDegree(_CountedEnds):
    """For each vertex of a directed graph the number of edges that leave it."""

    end = 0


class VertexInDegree(_CountedEnds):
    """For each vertex of a directed graph the number of edges that lead to it."""

    end = 1


class VertexDegree(_CountedEnds):
    """For each vertex of an undirected graph, which has each edge both ways, the number of its edges."""

    end = 0

    def set_reduce_on_target_id(self, reduce_on_target_id: bool) -> Self:
        """Whether edges are counted at their targets; the result is the same. False by default."""
        self.end = int(flag(self, "set_reduce_on_target_id", reduce_on_target_id))  # type: ignore[misc]
        return self


class VertexDegrees(_VertexDegrees):
    """For each vertex of a directed graph a `Degrees`: how many neighbours it has, out-edges and in-edges."""

    zero = Degrees(0, 0, 0)

    def degrees(self, edges: DataStream) -> DataStream:
        """Of the neighbours of each vertex."""
        return of_groups(both_ways(edges), FIRST, _degrees).name("Vertex Degrees")


def _ends(end: int, edges: Sequence[Any]) -> Iterable[Any]:
    return [edge[end] for edge in edges]


def _added(_: Any, key: Any, counts: Iterable[tuple[Any, int]]) -> list[Vertex]:
    return [Vertex(key, sum(count for _, count in counts))]


def _degrees(_: Any, key: Any, ends: Iterable[Any]) -> list[Vertex]:
    masks = masks_of(ends).values()
    out_degree = sum(mask != REVERSE for mask in masks)
    in_degree = sum(mask != FORWARD for mask in masks)
    return [Vertex(key, Degrees(len(masks), out_degree, in_degree))]


def _with_zero(zero: Any, _: Any, vertices: Iterable[Any], degrees: Iterable[Any]) -> Iterator[Vertex]:
    found = list(degrees)
    for vertex_id, _ in vertices:
        yield found[0] if found else Vertex(vertex_id, zero)
