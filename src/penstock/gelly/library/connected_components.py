"""Connected components: connected vertices share the smallest of their values.

Connected components under Gelly's name for the gather-sum-apply variant.

The distance from one vertex to each other one, along edges with lengths.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.base.errors import WrongValueError
from penstock.datastream.data_stream import DataStream
from penstock.gelly.base.elements import EdgeDirection, GraphAlgorithm, GraphBase, Vertex, whole
from penstock.gelly.columnar import Combine, GraphArrays, Inbox, Kernel, run_kernel
from penstock.gelly.columnar.arrays import find_positions, to_id_column


class ConnectedComponents(GraphAlgorithm[DataStream]):
    """Computes a stream of `Vertex(id, component)`. A component is the smallest initial value of its vertices.

    Edges connect in both directions. Vertices need comparable values, such as their own ids
    (`vertex_value_initializer=lambda vertex_id: vertex_id`).

    Args:
        max_iterations: the maximum number of supersteps. A value advances by one edge in each, so with too few
            supersteps a component may be split.
    """

    def __init__(self, max_iterations: int) -> None:
        self._max_iterations = max_iterations

    def run(self, graph: GraphBase) -> DataStream:
        """Return the components."""
        return run_kernel(graph, ComponentsKernel(), self._max_iterations, "Connected Components", Vertex)


class ComponentsKernel(Kernel):
    """One superstep: changed vertices send their value, and each vertex takes the smallest."""

    direction = EdgeDirection.ALL
    combine = Combine.MIN

    def begin(self, graph: GraphArrays) -> None:
        """Let all vertices send at first."""
        self._values = get_vertex_values(graph)
        self._has_changed = np.ones(len(graph), bool)

    def send(self, graph: GraphArrays) -> Any:
        """Return the changed values."""
        return self._values, self._has_changed

    def receive(self, graph: GraphArrays, inbox: Inbox) -> int:
        """Take the smallest value."""
        changed = inbox.has.copy()
        changed[changed] = (inbox.values[inbox.has] < self._values[inbox.has]).astype(bool)
        self._values = np.where(changed, inbox.values, self._values)
        self._has_changed = changed
        return int(changed.sum())

    def results(self, graph: GraphArrays) -> list[Any]:
        """Return the components."""
        return [self._values]


def get_vertex_values(graph: GraphArrays) -> Any:
    """Return the values of the vertices as an array, of objects unless they are numbers.

    Raises:
        ValueError: if the vertices have no values.
    """
    values = graph.vertex_values
    if isinstance(values, np.ndarray):
        return values
    if values is None and len(graph):
        raise WrongValueError(
            "the vertices have no values: give them some with vertex_value_initializer or map_vertices, such as their "
            "ids"
        )
    array = np.empty(len(graph), object)
    array[:] = values or []
    return array


class GSAConnectedComponents(ConnectedComponents):
    """Another name for `ConnectedComponents`: both gather values along edges, take the smallest, and apply it."""


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
