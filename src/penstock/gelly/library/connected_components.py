"""Connected components: the vertices that are connected share the least of their values."""

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
    """A stream of `Vertex(id, component)`; a component is the least value that any of its vertices has at first.

    Edges connect both ways. Vertices need values that can be compared, such as their own ids
    (`vertex_value_initializer=lambda vertex_id: vertex_id`).

    Args:
        max_iterations: how many supersteps there are at most. A value gets one edge farther in each, so with fewer
            than it takes, components may be in several parts.
    """

    def __init__(self, max_iterations: int) -> None:
        self._max_iterations = max_iterations

    def run(self, graph: GraphBase) -> DataStream:
        """The components."""
        return run_kernel(graph, ComponentsKernel(), self._max_iterations, "Connected Components", Vertex)


class ComponentsKernel(Kernel):
    """One superstep: vertices that have changed send their value, and each takes the least."""

    direction = EdgeDirection.ALL
    combine = Combine.MIN

    def begin(self, graph: GraphArrays) -> None:
        """All send at first."""
        self._values = values_of(graph)
        self._has_changed = np.ones(len(graph), bool)

    def send(self, graph: GraphArrays) -> Any:
        """The values that have changed."""
        return self._values, self._has_changed

    def receive(self, graph: GraphArrays, inbox: Inbox) -> int:
        """Take the least."""
        changed = inbox.has.copy()
        changed[changed] = (inbox.values[inbox.has] < self._values[inbox.has]).astype(bool)
        self._values = np.where(changed, inbox.values, self._values)
        self._has_changed = changed
        return int(changed.sum())

    def results(self, graph: GraphArrays) -> list[Any]:
        """The components."""
        return [self._values]


def values_of(graph: GraphArrays) -> Any:
    """The values of the vertices as an array, of objects where they are no numbers.

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
    made = np.empty(len(graph), object)
    made[:] = values or []
    return made
