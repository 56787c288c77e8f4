"""Grid graphs: of any dimensions, a path, a circle, a hypercube."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Self

from penstock.base.errors import WrongValueError
from penstock.datastream.data_stream import StreamExecutionEnvironment
from penstock.gelly.asm.checks import flag, whole
from penstock.gelly.base.elements import Edge
from penstock.gelly.generator.base import CountedGenerator, GraphGenerator, build_edges
from penstock.gelly.graph import Graph


class GridGraph(GraphGenerator):
    """A grid of one or more dimensions, each optionally closed to a circle.

    Ids count along the last dimension first: in a 2 by 3 grid, 0 is a neighbour of 1 and of 3.

    Args:
        env: the environment of the graph.
    """

    def __init__(self, env: StreamExecutionEnvironment) -> None:
        super().__init__(env)
        self._dimensions: list[tuple[int, bool]] = []

    def add_dimension(self, size: int, wrap_endpoints: bool) -> Self:
        """Add a dimension.

        Args:
            size: the number of vertices, 2 or more.
            wrap_endpoints: whether the last vertex is a neighbour of the first.
        """
        closed = flag(self, "wrap_endpoints", wrap_endpoints)
        self._dimensions.append((whole(self, "size", size, 2), closed))
        return self

    def generate(self) -> Graph:
        """Return the graph.

        Raises:
            ValueError: if no dimension was added.
        """
        if not self._dimensions:
            raise WrongValueError("GridGraph has no dimensions: add them with add_dimension")
        dimensions = tuple(self._dimensions)
        return self._graph(prod(size for size, _ in dimensions), partial(_grid, dimensions))


class PathGraph(CountedGenerator):
    """Vertices in a row.

    Args:
        env: the environment of the graph.
        vertex_count: the number of vertices, 2 or more.
    """

    def generate(self) -> Graph:
        """Return the graph."""
        return self._graph(self._count, partial(_grid, ((self._count, False),)))


class CycleGraph(CountedGenerator):
    """Vertices in a circle.

    Args:
        env: the environment of the graph.
        vertex_count: the number of vertices, 3 or more.
    """

    count_min = 3

    def generate(self) -> Graph:
        """Return the graph."""
        return self._graph(self._count, partial(_grid, ((self._count, True),)))


class HypercubeGraph(GraphGenerator):
    """A cube of any dimension. The ids of neighbours differ in one bit.

    Args:
        env: the environment of the graph.
        dimensions: the number of dimensions, 1 or more; the graph has `2 ** dimensions` vertices.
    """

    def __init__(self, env: StreamExecutionEnvironment, dimensions: int) -> None:
        super().__init__(env)
        self._dimensions = whole(self, "dimensions", dimensions, 1)

    def generate(self) -> Graph:
        """Return the graph."""
        return self._graph(2**self._dimensions, partial(_grid, ((2, False),) * self._dimensions))


def _grid(dimensions: tuple[tuple[int, bool], ...], source: int) -> list[Edge]:
    return build_edges(source, _neighbours(dimensions, source))


def _neighbours(dimensions: tuple[tuple[int, bool], ...], source: int) -> Iterator[int]:
    stride = 1
    for size, is_closed in reversed(dimensions):
        coordinate = source // stride % size
        for other in (coordinate - 1, coordinate + 1):
            if is_closed or 0 <= other < size:
                yield source + (other % size - coordinate) * stride
        stride *= size
