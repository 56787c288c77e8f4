"""The distance from one vertex to each other one, along edges with lengths."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.base.errors import WrongValueError
from penstock.datastream.data_stream import DataStream
from penstock.gelly.asm.checks import whole
from penstock.gelly.base.algorithm import GraphAlgorithm
from penstock.gelly.base.elements import Vertex
from penstock.gelly.columnar import Combine, GraphArrays, Inbox, Kernel, run_kernel
from penstock.gelly.columnar.ids import find_positions, to_id_column


class SingleSourceShortestPaths(GraphAlgorithm[DataStream]):
    """Computes the length of the shortest path from one vertex to each vertex. Edge values are numbers, the lengths.

    Negative lengths are allowed unless a cycle of edges has a negative sum. The distance to an unreachable vertex is
    `math.inf`.

    Args:
        source_vertex_id: the vertex to start from. If it is not in the graph, no vertex is reachable.
        max_iterations: the maximum number of supersteps, which is the maximum number of edges of a path.
    """

    def __init__(self, source_vertex_id: Any, max_iterations: int) -> None:
        self._source = source_vertex_id
        self._max_iterations = whole(self, "max_iterations", max_iterations, 0)

    def run(self, graph: Any) -> DataStream:
        """Return a stream of `Vertex`s (id, distance)."""
        return run_kernel(graph, DistancesKernel(self._source), self._max_iterations, type(self).__name__, Vertex)


class GSASingleSourceShortestPaths(SingleSourceShortestPaths):
    """Another name for `SingleSourceShortestPaths`: both gather values along edges, take the smallest, and apply it."""


class DistancesKernel(Kernel):
    """One superstep: vertices whose distance has decreased send the distances through them."""

    combine = Combine.MIN

    def __init__(self, source: Any) -> None:
        self._source = source

    def begin(self, graph: GraphArrays) -> None:
        """Start with only the source reached."""
        is_source = np.zeros(len(graph), bool)
        position = int(find_positions(graph.ids, to_id_column([self._source]))[0]) if len(graph) else -1
        if position >= 0:
            is_source[position] = True
        self._distances = np.where(is_source, 0.0, np.inf)
        self._is_nearer = is_source

    def send(self, graph: GraphArrays) -> Any:
        """Return the changed distances."""
        return self._distances, self._is_nearer

    def along_edges(self, values: Any, edge_values: Any) -> Any:
        """Return the distances through the edges.

        Raises:
            ValueError: if the edge values are not numbers.
        """
        if not isinstance(edge_values, np.ndarray):
            raise WrongValueError(
                "the shortest path needs edges whose values are numbers, their lengths: set them with map_edges"
            )
        return values + edge_values

    def receive(self, graph: GraphArrays, inbox: Inbox) -> int:
        """Take shorter distances."""
        self._is_nearer = inbox.has & (inbox.values < self._distances)
        self._distances = np.where(self._is_nearer, inbox.values, self._distances)
        return int(self._is_nearer.sum())

    def results(self, graph: GraphArrays) -> list[Any]:
        """Return the distances."""
        return [self._distances]
