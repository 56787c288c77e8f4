"""Connected components: connected vertices share the smallest of their values."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.base.errors import WrongValueError
from penstock.datastream.data_stream import DataStream
from penstock.gelly.base.algorithm import GraphAlgorithm
from penstock.gelly.base.elements import EdgeDirection, Vertex
from penstock.gelly.base.graph_base import GraphBase
from penstock.gelly.columnar import Combine, GraphArrays, Inbox, Kernel, run_kernel


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
