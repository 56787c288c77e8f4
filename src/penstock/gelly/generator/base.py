"""The base of all generators: vertices are integers from 0, and each subtask generates a part of the edges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Self

from penstock.base.errors import WrongTypeError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.number_sequence import NumberSequenceSource
from penstock.datastream.data_stream import DataStream, StreamExecutionEnvironment
from penstock.gelly.asm.checks import whole
from penstock.gelly.base.elements import Edge, Vertex
from penstock.gelly.graph import Graph


class GraphGenerator(ABC):
    """Generates a graph whose vertex ids are integers from 0. All values are None.

    Args:
        env: the environment of the graph.
    """

    _parallelism: int | None = None

    def __init__(self, env: StreamExecutionEnvironment) -> None:
        if not isinstance(env, StreamExecutionEnvironment):
            raise WrongTypeError(
                f"{type(self).__name__} takes a StreamExecutionEnvironment first, not {type(env).__name__}"
            )
        self._env = env

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of subtasks that generate the graph (default: the environment's). The graph is the same."""
        self._parallelism = whole(self, "parallelism", parallelism, 1)
        return self

    @abstractmethod
    def generate(self) -> Graph:
        """Return the graph. Nothing runs until a job reads it.

        Raises:
            ValueError: if the generator's settings do not define a graph.
        """

    def _graph(self, vertices: int, edges_of: Callable[[int], Iterable[Edge]]) -> Graph:
        """Return the graph with this number of vertices. `edges_of` returns the outgoing edges of a vertex."""
        name = type(self).__name__
        vertex_stream = self._own(self._numbers(vertices, f"{name} Ids").map(_vertex)).name(f"{name} Vertices")
        edges = self._own(self._numbers(vertices, f"{name} Sources").flat_map(edges_of)).name(f"{name} Edges")
        return Graph.from_data_stream(edges, vertex_stream)

    def _numbers(self, count: int, name: str) -> DataStream:
        """Return a stream of the integers from 0 to `count - 1`."""
        if not count:
            return self._env.from_collection([])
        source = NumberSequenceSource(0, count - 1)
        return self._own(self._env.from_source(source, WatermarkStrategy.no_watermarks(), name))

    def _own(self, stream: DataStream) -> DataStream:
        return stream if self._parallelism is None else stream.set_parallelism(self._parallelism)


class CountedGenerator(GraphGenerator):
    """A generator with a given number of vertices.

    Args:
        env: the environment of the graph.
        vertex_count: the number of vertices, `count_min` or more.
    """

    count_min = 2

    def __init__(self, env: StreamExecutionEnvironment, vertex_count: int) -> None:
        super().__init__(env)
        self._count = whole(self, "vertex_count", vertex_count, self.count_min)


def _vertex(number: int) -> Vertex:
    return Vertex(number, None)


def build_edges(source: int, targets: Iterable[int]) -> list[Any]:
    """Return edges without values from a vertex to the targets, in ascending order and without duplicates."""
    return [Edge(source, target, None) for target in sorted(set(targets))]
