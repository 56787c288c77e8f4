"""Communities by labels: each vertex takes the most frequent label among its in-neighbours (Raghavan and others).

Communities by labels with scores that fade with each step (Leung and others).

A graph of groups: vertices of equal value become one, and so do edges of equal value between the same groups.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from penstock.datastream.data_stream import DataStream
from penstock.gelly.base.elements import Edge, GraphAlgorithm, Vertex, number, whole
from penstock.gelly.base.streams import FIRST, SECOND, co_grouped, of_groups
from penstock.gelly.columnar import Combine, GraphArrays, Inbox, Kernel, run_kernel
from penstock.gelly.library.connected_components import get_vertex_values
from penstock.gelly.spargel import GatherFunction, ScatterFunction


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


class CommunityDetection(GraphAlgorithm[Any]):
    """Gives each vertex the label of its community, ignoring directions.

    A vertex has a label, initially its value, and a score, initially 1. It sends its neighbours the label, and the
    score times the value of the edge. A vertex takes the label with the highest sum of scores (the smallest label on a
    tie) and the highest of its scores. If the label is new, the score falls by `delta / superstep`.

    Args:
        max_iterations: the maximum number of supersteps.
        delta: how much scores fade with each step to another vertex; 0.5 is usual.
    """

    def __init__(self, max_iterations: int, delta: float) -> None:
        self._max_iterations = whole(self, "max_iterations", max_iterations, 0)
        self._delta = number(self, "delta", delta)

    def run(self, graph: Any) -> Any:
        """Return the graph, made undirected, with labels as vertex values.

        The input has ints as vertex values and floats as edge values.
        """
        scored = graph.map_vertices(_scored).get_undirected()
        result = scored.run_scatter_gather_iteration(_TellLabel(), _BestLabel(self._delta), self._max_iterations)
        return result.map_vertices(_label)


def _scored(vertex: Vertex) -> tuple[Any, float]:
    return vertex.value, 1.0


def _label(vertex: Vertex) -> Any:
    return vertex.value[0]


class _TellLabel(ScatterFunction):
    def send_messages(self, vertex: Vertex) -> None:
        label, score = vertex.value
        for edge in self.get_edges():
            self.send_message_to(edge.target, (label, score * edge.value))


class _BestLabel(GatherFunction):
    def __init__(self, delta: float) -> None:
        self._delta = delta

    def update_vertex(self, vertex: Vertex, in_messages: Any) -> None:
        scores: defaultdict[Any, list[float]] = defaultdict(list)
        for label, score in in_messages:
            scores[label].append(score)
        if not scores:
            return
        # Exact sums: the order of messages must not decide between labels.
        sums = {label: math.fsum(of_label) for label, of_label in scores.items()}
        best = min(sums, key=lambda label: (-sums[label], label))
        score = max(scores[best])
        if best != vertex.value[0]:
            score -= self._delta / self.get_superstep_number()
        self.set_new_vertex_value((best, score))


class VertexValue(NamedTuple):
    """The value of a vertex that represents a group.

    Attributes:
        vertex_group_value: the value of the vertices in the group.
        vertex_group_count: the number of vertices in the group.
    """

    vertex_group_value: Any
    vertex_group_count: int

    def get_vertex_group_value(self) -> Any:
        """Return the value of the vertices in the group."""
        return self.vertex_group_value

    def get_vertex_group_count(self) -> int:
        """Return the number of vertices in the group."""
        return self.vertex_group_count


class EdgeValue(NamedTuple):
    """The value of an edge that represents a group.

    Attributes:
        edge_group_value: the value of the edges in the group.
        edge_group_count: the number of edges in the group.
    """

    edge_group_value: Any
    edge_group_count: int

    def get_edge_group_value(self) -> Any:
        """Return the value of the edges in the group."""
        return self.edge_group_value

    def get_edge_group_count(self) -> int:
        """Return the number of edges in the group."""
        return self.edge_group_count


class Summarization(GraphAlgorithm[Any]):
    """Condenses a graph by its values, which must be valid keys.

    The vertices of a value become one, whose id is the smallest of theirs, so ids must be comparable. The edges of a
    value from one group to another, or within one, become one.
    """

    def run(self, graph: Any) -> Any:
        """Return the graph of groups. Its values are `VertexValue`s and `EdgeValue`s."""
        groups = of_groups(graph.get_vertices(), SECOND, _group).name("Groups Of Vertices")
        vertices = groups.map(_vertex).name("Summarized Vertices")
        members = groups.flat_map(_members).name("Members")
        edges = co_grouped(graph.get_edges(), members, (FIRST, FIRST), _with_source).name("Groups Of Sources")
        edges = co_grouped(edges, members, (SECOND, FIRST), _with_target).name("Groups Of Targets")
        counted = of_groups(edges, tuple, _count).name("Summarized Edges")
        return type(graph).from_data_stream(counted, vertices)


def _group(_: Any, value: Any, vertices: Iterable[Any]) -> list[tuple[list[Any], Any]]:
    return [(sorted(vertex_id for vertex_id, _ in vertices), value)]


def _vertex(group: tuple[list[Any], Any]) -> Vertex:
    ids, value = group
    return Vertex(ids[0], VertexValue(value, len(ids)))


def _members(group: tuple[list[Any], Any]) -> list[tuple[Any, Any]]:
    ids, _ = group
    return [(vertex_id, ids[0]) for vertex_id in ids]


def _with_source(_: Any, edges: Iterable[Any], members: Iterable[Any]) -> Iterator[Edge]:
    for _, group in members:
        for _, target, value in edges:
            yield Edge(group, target, value)


def _with_target(_: Any, edges: Iterable[Any], members: Iterable[Any]) -> Iterator[Edge]:
    for _, group in members:
        for source, _, value in edges:
            yield Edge(source, group, value)


def _count(_: Any, key: Any, edges: Iterable[Any]) -> list[Edge]:
    source, target, value = key
    return [Edge(source, target, EdgeValue(value, len(list(edges))))]
