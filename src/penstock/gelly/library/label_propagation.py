"""Communities by labels: each vertex takes the label that most of those have that lead to it (Raghavan and others)."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.datastream.data_stream import DataStream
from penstock.gelly.asm.checks import whole
from penstock.gelly.base.algorithm import GraphAlgorithm
from penstock.gelly.base.elements import Vertex
from penstock.gelly.columnar import Combine, GraphArrays, Inbox, Kernel, run_kernel
from penstock.gelly.library.connected_components import values_of


class LabelPropagation(GraphAlgorithm[DataStream]):
    """Gives each vertex a label, at first its value; densely connected vertices come to have the same.

    In a superstep a vertex takes the label that most of the vertices have from which an edge leads to it; of several
    the greatest. If no label comes twice, its own label counts, too. A vertex to which no edge leads keeps its label,
    and tells it in the first superstep only.

    Args:
        max_iterations: how many supersteps there are at most; labels may go on changing for ever.
    """

    def __init__(self, max_iterations: int) -> None:
        self._max_iterations = whole(self, "max_iterations", max_iterations, 0)

    def run(self, graph: Any) -> DataStream:
        """A stream of `Vertex`s (id, label); the values of the graph can be compared."""
        return run_kernel(graph, LabelsKernel(), self._max_iterations, "Label Propagation", Vertex)


class LabelsKernel(Kernel):
    """One superstep: all that got labels before send theirs, and each takes one of those that come."""

    combine = Combine.NONE

    def begin(self, graph: GraphArrays) -> None:
        """All send at first."""
        self._labels = values_of(graph)
        self._sends = np.ones(len(graph), bool)

    def send(self, graph: GraphArrays) -> Any:
        """The labels."""
        return self._labels, self._sends

    def receive(self, graph: GraphArrays, inbox: Inbox) -> int:
        """Take the label that came most often."""
        self._sends = inbox.has
        if len(inbox.values):
            vertices, labels, counts = most_frequent(inbox)
            own = self._labels[vertices]
            taken = np.where(counts == 1, np.maximum(own, labels), labels)
            self._labels = self._labels.copy()
            self._labels[vertices] = taken
        return int(inbox.has.sum())

    def results(self, graph: GraphArrays) -> list[Any]:
        """The labels."""
        return [self._labels]


def most_frequent(inbox: Inbox) -> tuple[Any, Any, Any]:
    """The vertices to which something came, of each the most frequent value (of several the greatest) and how often."""
    different, codes = np.unique(inbox.values, return_inverse=True)
    vertices = np.repeat(np.arange(len(inbox.has)), np.diff(inbox.offsets))
    pairs, counts = np.unique(vertices * len(different) + codes, return_counts=True)
    vertices, codes = np.divmod(pairs, len(different))
    order = np.lexsort((codes, counts, vertices))
    is_last = np.append(np.diff(vertices[order]) > 0, True)
    chosen = order[is_last]
    return vertices[chosen], different[codes[chosen]], counts[chosen]
