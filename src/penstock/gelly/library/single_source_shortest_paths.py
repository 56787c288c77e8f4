"""How far it is from one vertex to each other one, along edges with lengths."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.base.errors import WrongValueError
from penstock.datastream.data_stream import DataStream
from penstock.gelly.asm.checks import whole
from penstock.gelly.base.algorithm import GraphAlgorithm
from penstock.gelly.base.elements import Vertex
from penstock.gelly.columnar import Combine, GraphArrays, Inbox, Kernel, run_kernel
from penstock.gelly.columnar.ids import ids_of, places_in


class SingleSourceShortestPaths(GraphAlgorithm[DataStream]):
    """The length of the shortest path from one vertex to each vertex, along the values of edges, which are numbers.

    A negative length does no harm unless edges of a negative sum lead in a circle. The distance to a vertex that cannot
    be reached is `math.inf`.

    Args:
        source_vertex_id: where to begin; if it is no vertex, none can be reached.
        max_iterations: how many supersteps there are at most: the number of edges that a path may have.
    """

    def __init__(self, source_vertex_id: Any, max_iterations: int) -> None:
        self._source = source_vertex_id
        self._max_iterations = whole(self, "max_iterations", max_iterations, 0)

    def run(self, graph: Any) -> DataStream:
        """A stream of `Vertex`s (id, distance)."""
        return run_kernel(graph, DistancesKernel(self._source), self._max_iterations, type(self).__name__, Vertex)


class GSASingleSourceShortestPaths(SingleSourceShortestPaths):
    """Another name of `SingleSourceShortestPaths`: both gather values along edges, take the least, and apply it."""


class DistancesKernel(Kernel):
    """One superstep: vertices that have come nearer tell how far it is by way of them."""

    combine = Combine.MIN

    def __init__(self, source: Any) -> None:
        self._source = source

    def begin(self, graph: GraphArrays) -> None:
        """Only the source has been reached."""
        is_source = np.zeros(len(graph), bool)
        place = int(places_in(graph.ids, ids_of([self._source]))[0]) if len(graph) else -1
        if place >= 0:
            is_source[place] = True
        self._distances = np.where(is_source, 0.0, np.inf)
        self._is_nearer = is_source

    def send(self, graph: GraphArrays) -> Any:
        """The distances that have changed."""
        return self._distances, self._is_nearer

    def along_edges(self, values: Any, edge_values: Any) -> Any:
        """The distance by way of an edge.

        Raises:
            ValueError: if the values of edges are no numbers.
        """
        if not isinstance(edge_values, np.ndarray):
            raise WrongValueError(
                "the shortest path needs edges whose values are numbers, their lengths: set them with map_edges"
            )
        return values + edge_values

    def receive(self, graph: GraphArrays, inbox: Inbox) -> int:
        """Take what is nearer."""
        self._is_nearer = inbox.has & (inbox.values < self._distances)
        self._distances = np.where(self._is_nearer, inbox.values, self._distances)
        return int(self._is_nearer.sum())

    def results(self, graph: GraphArrays) -> list[Any]:
        """The distances."""
        return [self._distances]
