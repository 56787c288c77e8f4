"""Components, distances and communities, by values that spread from vertex to vertex; and summarization by groups.

`ConnectedComponents`: connected vertices share the smallest of their values.

`SingleSourceShortestPaths`: the distance from one vertex to each other one, along edges with lengths.

`LabelPropagation`: each vertex takes the most frequent label among its in-neighbours (Raghavan and others).

`CommunityDetection`: labels with scores that fade with each step (Leung and others).

`Summarization`: a graph of groups: vertices of equal value become one, and so do edges of equal value between the same
groups.

Classes with the prefix `GSA` are aliases, under Gelly's names for the gather-sum-apply variants.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from penstock.base.errors import WrongValueError
from penstock.datastream.data_stream import DataStream
from penstock.gelly import base
from penstock.gelly.columnar import Combine, GraphArrays, Inbox, Kernel, find_positions, run_kernel, to_id_column
from penstock.gelly.spargel import GatherFunction, ScatterFunction


class ConnectedComponents(base.GraphAlgorithm[DataStream]):
    """Computes a stream of `Vertex(id, component)`. A component is the smallest initial value of its vertices.

    Edges connect in both directions. Vertices need comparable values, such as their own ids
    (`vertex_value_initializer=lambda vertex_id: vertex_id`).

    Args:
        max_iterations: the maximum number of supersteps. A value advances by one edge in each, so with too few
            supersteps a component may be split.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.library import ConnectedComponents
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (8, 9)], env, vertex_value_initializer=int)
        >>> components = graph.run(ConnectedComponents(max_iterations=10))
        >>> sorted(map(tuple, components.collect()))
        [(1, 1), (2, 1), (8, 8), (9, 8)]
    """

    def __init__(self, max_iterations: int) -> None:
        self._max_iterations = max_iterations

    def run(self, graph: base.GraphBase) -> DataStream:
        """Return the components."""
        return run_kernel(graph, ComponentsKernel(), self._max_iterations, "Connected Components", base.Vertex)


class ComponentsKernel(Kernel):
    """One superstep: changed vertices send their value, and each vertex takes the smallest."""

    direction = base.EdgeDirection.ALL
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
    """Another name for `ConnectedComponents`: both gather values along edges, take the smallest, and apply it.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.library import GSAConnectedComponents
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (8, 9)], env, vertex_value_initializer=int)
        >>> components = graph.run(GSAConnectedComponents(10))
        >>> sorted(map(tuple, components.collect()))
        [(1, 1), (2, 1), (8, 8), (9, 8)]
    """


class SingleSourceShortestPaths(base.GraphAlgorithm[DataStream]):
    """Computes the length of the shortest path from one vertex to each vertex. Edge values are numbers, the lengths.

    Negative lengths are allowed unless a cycle of edges has a negative sum. The distance to an unreachable vertex is
    `math.inf`.

    Args:
        source_vertex_id: the vertex to start from. If it is not in the graph, no vertex is reachable.
        max_iterations: the maximum number of supersteps, which is the maximum number of edges of a path.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.library import SingleSourceShortestPaths
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([("A", "B", 4.0), ("B", "C", 1.0)], env)
        >>> distances = graph.run(SingleSourceShortestPaths("A", 10))
        >>> sorted(map(tuple, distances.collect()))
        [('A', 0.0), ('B', 4.0), ('C', 5.0)]
    """

    def __init__(self, source_vertex_id: Any, max_iterations: int) -> None:
        self._source = source_vertex_id
        self._max_iterations = base.whole(self, "max_iterations", max_iterations, 0)

    def run(self, graph: Any) -> DataStream:
        """Return a stream of `Vertex`s (id, distance)."""
        return run_kernel(graph, DistancesKernel(self._source), self._max_iterations, type(self).__name__, base.Vertex)


class GSASingleSourceShortestPaths(SingleSourceShortestPaths):
    """Another name for `SingleSourceShortestPaths`: both gather values along edges, take the smallest, and apply it.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.library import GSASingleSourceShortestPaths
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([("A", "B", 4.0), ("B", "C", 1.0)], env)
        >>> distances = graph.run(GSASingleSourceShortestPaths("A", 10))
        >>> sorted(map(tuple, distances.collect()))
        [('A', 0.0), ('B', 4.0), ('C', 5.0)]
    """


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


class LabelPropagation(base.GraphAlgorithm[DataStream]):
    """Gives each vertex a label, initially its value. Densely connected vertices end up with the same label.

    In a superstep a vertex takes the most frequent label among the sources of its incoming edges, the greatest on a
    tie. If no label occurs twice, its own label also counts. A vertex without incoming edges keeps its label and sends
    it in the first superstep only.

    Args:
        max_iterations: the maximum number of supersteps. Labels may never converge.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.library import LabelPropagation
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> edges = [(1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)]
        >>> graph = Graph.from_collection(edges, env, vertex_value_initializer=int)
        >>> sorted(map(tuple, graph.run(LabelPropagation(10)).collect()))
        [(1, 3), (2, 3), (3, 3)]
    """

    def __init__(self, max_iterations: int) -> None:
        self._max_iterations = base.whole(self, "max_iterations", max_iterations, 0)

    def run(self, graph: Any) -> DataStream:
        """Return a stream of `Vertex`s (id, label). The values of the graph must be comparable."""
        return run_kernel(graph, LabelsKernel(), self._max_iterations, "Label Propagation", base.Vertex)


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


class CommunityDetection(base.GraphAlgorithm[Any]):
    """Gives each vertex the label of its community, ignoring directions.

    A vertex has a label, initially its value, and a score, initially 1. It sends its neighbours the label, and the
    score times the value of the edge. A vertex takes the label with the highest sum of scores (the smallest label on a
    tie) and the highest of its scores. If the label is new, the score falls by `delta / superstep`.

    Args:
        max_iterations: the maximum number of supersteps.
        delta: how much scores fade with each step to another vertex; 0.5 is usual.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.library import CommunityDetection
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> edges = [(1, 2, 1.0), (2, 3, 1.0), (1, 3, 1.0)]
        >>> graph = Graph.from_collection(edges, env, vertex_value_initializer=int)
        >>> communities = graph.run(CommunityDetection(10, delta=0.5))
        >>> len({vertex.value for vertex in communities.get_vertices().collect()})
        1
    """

    def __init__(self, max_iterations: int, delta: float) -> None:
        self._max_iterations = base.whole(self, "max_iterations", max_iterations, 0)
        self._delta = base.number(self, "delta", delta)

    def run(self, graph: Any) -> Any:
        """Return the graph, made undirected, with labels as vertex values.

        The input has ints as vertex values and floats as edge values.
        """
        scored = graph.map_vertices(_scored).get_undirected()
        result = scored.run_scatter_gather_iteration(_TellLabel(), _BestLabel(self._delta), self._max_iterations)
        return result.map_vertices(_label)


def _scored(vertex: base.Vertex) -> tuple[Any, float]:
    return vertex.value, 1.0


def _label(vertex: base.Vertex) -> Any:
    return vertex.value[0]


class _TellLabel(ScatterFunction):
    def send_messages(self, vertex: base.Vertex) -> None:
        label, score = vertex.value
        for edge in self.get_edges():
            self.send_message_to(edge.target, (label, score * edge.value))


class _BestLabel(GatherFunction):
    def __init__(self, delta: float) -> None:
        self._delta = delta

    def update_vertex(self, vertex: base.Vertex, in_messages: Any) -> None:
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


class Summarization(base.GraphAlgorithm[Any]):
    """Condenses a graph by its values, which must be valid keys.

    The vertices of a value become one, whose id is the smallest of theirs, so ids must be comparable. The edges of a
    value from one group to another, or within one, become one.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.library import Summarization
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> people = [(1, "Bern"), (2, "Rome"), (3, "Rome")]
        >>> graph = Graph.from_collection([(1, 2, "knows"), (2, 3, "knows")], env, vertices=people)
        >>> summary = graph.run(Summarization())
        >>> summary.number_of_vertices()
        2
    """

    def run(self, graph: Any) -> Any:
        """Return the graph of groups. Its values are `VertexValue`s and `EdgeValue`s."""
        groups = base.of_groups(graph.get_vertices(), base.SECOND, _group).name("Groups Of Vertices")
        vertices = groups.map(_vertex).name("Summarized Vertices")
        members = groups.flat_map(_members).name("Members")
        edges = base.co_grouped(graph.get_edges(), members, (base.FIRST, base.FIRST), _with_source).name(
            "Groups Of Sources"
        )
        edges = base.co_grouped(edges, members, (base.SECOND, base.FIRST), _with_target).name("Groups Of Targets")
        counted = base.of_groups(edges, tuple, _count).name("Summarized Edges")
        return type(graph).from_data_stream(counted, vertices)


def _group(_: Any, value: Any, vertices: Iterable[Any]) -> list[tuple[list[Any], Any]]:
    return [(sorted(vertex_id for vertex_id, _ in vertices), value)]


def _vertex(group: tuple[list[Any], Any]) -> base.Vertex:
    ids, value = group
    return base.Vertex(ids[0], VertexValue(value, len(ids)))


def _members(group: tuple[list[Any], Any]) -> list[tuple[Any, Any]]:
    ids, _ = group
    return [(vertex_id, ids[0]) for vertex_id in ids]


def _with_source(_: Any, edges: Iterable[Any], members: Iterable[Any]) -> Iterator[base.Edge]:
    for _, group in members:
        for _, target, value in edges:
            yield base.Edge(group, target, value)


def _with_target(_: Any, edges: Iterable[Any], members: Iterable[Any]) -> Iterator[base.Edge]:
    for _, group in members:
        for source, _, value in edges:
            yield base.Edge(source, group, value)


def _count(_: Any, key: Any, edges: Iterable[Any]) -> list[base.Edge]:
    source, target, value = key
    return [base.Edge(source, target, EdgeValue(value, len(list(edges))))]
