"""Communities by labels: each vertex takes the most frequent label among its in-neighbours (Raghavan and others)."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.datastream.data_stream import DataStream
from penstock.gelly.asm.checks import whole
from penstock.gelly.base.algorithm import GraphAlgorithm
from penstock.gelly.base.elements import Vertex
from penstock.gelly.columnar import Combine, GraphArrays, Inbox, Kernel, run_kernel
from penstock.gelly.library.connected_components import get_vertex_values


class LabelPropagation(GraphAlgorithm[DataStream]):
    """Gives each vertex a label, initially its value. Densely connected vertices end up with the same label.

    In a superstep a vertex takes the most frequent label among the sources of its incoming edges, the greatest on a
    tie. If no label occurs twice, its own label also counts. A vertex without incoming edges keeps its label and sends
    it in the first superstep only.

    Args:
        max_iterations: the maximum number of supersteps. Labels may never converge.
    """

    def __init__(self, max_iterations: int) -> None:
        self._max_iterations = whole(self, "max_iterations", max_iterations, 0)

    def run(self, graph: Any) -> DataStream:
        """Return a stream of `Vertex`s (id, label). The values of the graph must be comparable."""
        return run_kernel(graph, LabelsKernel(), self._max_iterations, "Label Propagation", Vertex)


class LabelsKernel(Kernel):
    """One superstep: vertices that received labels before send theirs, and each takes one of the labels that arrive."""

    combine = Combine.NONE

    def begin(self, graph: GraphArrays) -> None:
        """Let all vertices send at first."""
        self._labels = get_vertex_values(graph)
        self._sends = np.ones(len(graph), bool)

    def send(self, graph: GraphArrays) -> Any:
        """Return the labels."""
        return self._labels, self._sends

    def receive(self, graph: GraphArrays, inbox: Inbox) -> int:
        """Take the most frequent label."""
        self._sends = inbox.has
        if len(inbox.values):
            vertices, labels, counts = most_frequent(inbox)
            own = self._labels[vertices]
            new_labels = np.where(counts == 1, np.maximum(own, labels), labels)
            self._labels = self._labels.copy()
            self._labels[vertices] = new_labels
        return int(inbox.has.sum())

    def results(self, graph: GraphArrays) -> list[Any]:
        """Return the labels."""
        return [self._labels]


def most_frequent(inbox: Inbox) -> tuple[Any, Any, Any]:
    """Return the vertices that received values, with the most frequent value (greatest on a tie) and its count."""
    different, codes = np.unique(inbox.values, return_inverse=True)
    vertices = np.repeat(np.arange(len(inbox.has)), np.diff(inbox.offsets))
    pairs, counts = np.unique(vertices * len(different) + codes, return_counts=True)
    vertices, codes = np.divmod(pairs, len(different))
    order = np.lexsort((codes, counts, vertices))
    is_last = np.append(np.diff(vertices[order]) > 0, True)
    chosen = order[is_last]
    return vertices[chosen], different[codes[chosen]], counts[chosen]
