"""What all generators share: vertices are whole numbers from 0 on, and each subtask makes its part of the edges."""

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
    """Makes a graph of whole numbers as ids, from 0 on, with values None.

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
        """How many subtasks make the graph; by default as many as the environment says. The graph is the same."""
        self._parallelism = whole(self, "parallelism", parallelism, 1)
        return self

    @abstractmethod
    def generate(self) -> Graph:
        """The graph; nothing runs before a job reads it.

        Raises:
            ValueError: if what the generator has been told makes no graph.
        """

    def _graph(self, vertices: int, edges_of: Callable[[int], Iterable[Edge]]) -> Graph:
        """The graph of so many vertices, each with the edges that leave it."""
        name = type(self).__name__
        made = self._own(self._numbers(vertices, f"{name} Ids").map(_vertex)).name(f"{name} Vertices")
        edges = self._own(self._numbers(vertices, f"{name} Sources").flat_map(edges_of)).name(f"{name} Edges")
        return Graph.from_data_stream(edges, made)

    def _numbers(self, count: int, name: str) -> DataStream:
        """The whole numbers below this one."""
        if not count:
            return self._env.from_collection([])
        source = NumberSequenceSource(0, count - 1)
        return self._own(self._env.from_source(source, WatermarkStrategy.no_watermarks(), name))

    def _own(self, stream: DataStream) -> DataStream:
        return stream if self._parallelism is None else stream.set_parallelism(self._parallelism)


class CountedGenerator(GraphGenerator):
    """A generator that is told how many vertices there are.

    Args:
        env: the environment of the graph.
        vertex_count: how many, `count_min` or more.
    """

    count_min = 2

    def __init__(self, env: StreamExecutionEnvironment, vertex_count: int) -> None:
        super().__init__(env)
        self._count = whole(self, "vertex_count", vertex_count, self.count_min)


def _vertex(number: int) -> Vertex:
    return Vertex(number, None)


def edges_to(source: int, targets: Iterable[int]) -> list[Any]:
    """Edges without values from a vertex to each of these, in ascending order, and to none twice."""
    return [Edge(source, target, None) for target in sorted(set(targets))]
