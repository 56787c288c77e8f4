"""Graphs defined only by distances between vertices: circles, stars, pairs, complete and empty graphs."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

from penstock.base.errors import WrongValueError
from penstock.datastream.data_stream import StreamExecutionEnvironment
from penstock.gelly.asm.checks import whole
from penstock.gelly.base.elements import Edge
from penstock.gelly.generator.base import CountedGenerator, GraphGenerator, build_edges
from penstock.gelly.graph import Graph


class CirculantGraph(CountedGenerator):
    """Vertices in a circle, connected in both directions to the vertices at given distances.

    Args:
        env: the environment of the graph.
        vertex_count: the number of vertices, 2 or more.
    """

    def __init__(self, env: StreamExecutionEnvironment, vertex_count: int) -> None:
        super().__init__(env, vertex_count)
        self._ranges: list[range] = []

    def add_range(self, offset: int, length: int) -> Self:
        """Connect each vertex to the vertices `offset` to `offset + length - 1` steps away.

        Raises:
            ValueError: if the range goes round the whole circle or overlaps another range.
        """
        first = whole(self, "offset", offset, 1)
        steps = range(first, first + whole(self, "length", length, 1))
        if steps.stop > self._count:
            raise WrongValueError(
                f"CirculantGraph: offset {offset} and length {length} go further than the {self._count - 1} steps of "
                f"{self._count} vertices: their sum must be {self._count} or less"
            )
        for other in self._ranges:
            if steps.start < other.stop and other.start < steps.stop:
                raise WrongValueError(
                    f"CirculantGraph: the range of offset {offset} and length {length} overlaps that of offset "
                    f"{other.start} and length {len(other)}"
                )
        self._ranges.append(steps)
        return self

    def generate(self) -> Graph:
        """Return the graph. It has no edges unless ranges were added."""
        ahead = {step for steps in self._ranges for step in steps}
        both = sorted(ahead | {self._count - step for step in ahead})
        return self._graph(self._count, partial(_circulant, self._count, both))


class CompleteGraph(CountedGenerator):
    """A graph in which all vertices are neighbours.

    Args:
        env: the environment of the graph.
        vertex_count: the number of vertices, 2 or more.
    """

    def generate(self) -> Graph:
        """Return the graph."""
        return self._graph(self._count, partial(_all_others, self._count))


class EchoGraph(CountedGenerator):
    """A circulant graph that connects each vertex to the vertices furthest away.

    Args:
        env: the environment of the graph.
        vertex_count: the number of vertices, 2 or more.
        vertex_degree: the number of neighbours of each vertex, 1 or more and less than `vertex_count`. One of the two
            numbers must be even, the other odd.
    """

    def __init__(self, env: StreamExecutionEnvironment, vertex_count: int, vertex_degree: int) -> None:
        super().__init__(env, vertex_count)
        self._degree = whole(self, "vertex_degree", vertex_degree, 1)
        if self._degree >= self._count:
            raise WrongValueError(f"EchoGraph: each of {self._count} vertices has {self._count - 1} neighbours at most")
        if self._count % 2 == self._degree % 2:
            raise WrongValueError(
                f"EchoGraph: of vertex_count {self._count} and vertex_degree {self._degree} one must be even, one odd"
            )

    def generate(self) -> Graph:
        """Return the graph."""
        first = (self._count - self._degree + 1) // 2
        return self._graph(self._count, partial(_circulant, self._count, range(first, first + self._degree)))


class EmptyGraph(CountedGenerator):
    """Vertices without edges.

    Args:
        env: the environment of the graph.
        vertex_count: the number of vertices, 0 or more.
    """

    count_min = 0

    def generate(self) -> Graph:
        """Return the graph."""
        return self._graph(self._count, _none)


class SingletonEdgeGraph(GraphGenerator):
    """Pairs of vertices, each connected by an edge.

    Args:
        env: the environment of the graph.
        vertex_pair_count: the number of pairs, 1 or more.
    """

    def __init__(self, env: StreamExecutionEnvironment, vertex_pair_count: int) -> None:
        super().__init__(env)
        self._pairs = whole(self, "vertex_pair_count", vertex_pair_count, 1)

    def generate(self) -> Graph:
        """Return the graph."""
        return self._graph(2 * self._pairs, _partner)


class StarGraph(CountedGenerator):
    """A central vertex, 0, that is the only neighbour of all others.

    Args:
        env: the environment of the graph.
        vertex_count: the number of vertices, 2 or more.
    """

    def generate(self) -> Graph:
        """Return the graph."""
        return self._graph(self._count, partial(_star, self._count))


def _circulant(count: int, steps: Any, source: int) -> list[Edge]:
    return build_edges(source, ((source + step) % count for step in steps))


def _all_others(count: int, source: int) -> list[Edge]:
    return [Edge(source, target, None) for target in range(count) if target != source]


def _none(source: int) -> list[Edge]:
    return []


def _partner(source: int) -> list[Edge]:
    return [Edge(source, source ^ 1, None)]


def _star(count: int, source: int) -> list[Edge]:
    return build_edges(source, [0] if source else range(1, count))
