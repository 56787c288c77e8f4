"""Building blocks of graph algorithms: neighbours by degree, partial aggregates, degrees, simple graphs, translations.

The algorithms are for `Graph.run`.

`higher_neighbours` finds the neighbours of each vertex, and directs each edge from its end of lower degree to the
other. Directions, loops and repeated edges do not affect who is a neighbour. An undirected graph has each edge in both
directions, so its edges need not be reversed. Edges go from low to high degree because triangles are found by pairing
the edges that leave a vertex. A vertex of high degree then has few outgoing edges, at most the square root of twice the
number of edges, so no vertex produces a quadratic number of pairs of its neighbours.

`PartialsOperator` aggregates within a subtask, so that few records leave it: counts, sums and maxima of its input. It
passes each batch to a `Partial`, and emits the contents when they have grown, and before every checkpoint and
watermark. So it has no state, its records are never late, and the reader merges the partial aggregates.

`Degrees` are the degrees of vertices; further algorithms return edges with the degrees of the vertices at their ends.
`Simplify` removes loops and repeated edges, and `MaximumDegree` vertices of high degree. `TranslateGraphIds` and its
like replace the ids or values of a graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, Self

from penstock.base.errors import WrongTypeError
from penstock.datastream.data_stream import DataStream
from penstock.gelly import base
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.records import Batch

#: Direction of an edge between two vertices: from the first to the second, back, or both ways.
FORWARD: Final = 1
REVERSE: Final = 2
MUTUAL: Final = 3
#: The same direction seen from the other vertex.
TURNED: Final = (0, REVERSE, FORWARD, MUTUAL)


class Neighbour(NamedTuple):
    """A neighbour of a vertex.

    Attributes:
        id: the vertex itself.
        neighbour: the neighbour.
        degree: how many neighbours the neighbour has.
        mask: the direction of the edge, from the vertex to the neighbour.
    """

    id: Any
    neighbour: Any
    degree: int
    mask: int


class Higher(NamedTuple):
    """A vertex with its neighbours of higher degree; equal degrees are ordered by id.

    Attributes:
        id: the vertex.
        degree: how many neighbours it has.
        neighbours: the neighbours of higher degree, lowest first, and the direction of the edge to each.
    """

    id: Any
    degree: int
    neighbours: tuple[tuple[Any, int], ...]


def with_degrees(edges: DataStream, is_directed: bool) -> DataStream:
    """Return a `Neighbour` for each pair of vertex and neighbour."""
    masked = both_ways(edges) if is_directed else edges.map(_one_way).name("Neighbours")
    return base.of_groups(masked, base.FIRST, _tell_neighbours).name("Neighbours' Degrees")


def higher_neighbours(edges: DataStream, is_directed: bool) -> DataStream:
    """Return a `Higher` for each vertex that has a neighbour."""
    return base.of_groups(with_degrees(edges, is_directed), base.FIRST, _higher).name("Neighbours Of Higher Degree")


def both_ways(edges: DataStream) -> DataStream:
    """Return each edge from both its ends: (id, other id, direction)."""
    return edges.flat_map(_both_ways).name("Both Ways")


def _one_way(edge: Any) -> tuple[Any, Any, int]:
    return edge[0], edge[1], MUTUAL


def _both_ways(edge: Any) -> list[tuple[Any, Any, int]]:
    return [(edge[0], edge[1], FORWARD), (edge[1], edge[0], REVERSE)]


def combine_masks(ends: Iterable[tuple[Any, Any, int]]) -> dict[Any, int]:
    """Return the neighbours of a vertex, and the direction of the edge to each."""
    masks: dict[Any, int] = {}
    for _, other, mask in ends:
        masks[other] = masks.get(other, 0) | mask
    return masks


def _tell_neighbours(_: Any, key: Any, ends: Iterable[Any]) -> Iterator[Neighbour]:
    masks = combine_masks(ends)
    masks.pop(key, None)
    degree = len(masks)
    for other, mask in masks.items():
        yield Neighbour(other, key, degree, TURNED[mask])


def _higher(_: Any, key: Any, neighbours: Iterable[Neighbour]) -> list[Higher]:
    neighbour_list = list(neighbours)
    own = (len(neighbour_list), key)
    # Ids are compared only if the degrees are equal, so only the ids of one graph must be comparable with each other.
    higher = sorted((n.degree, n.neighbour, n.mask) for n in neighbour_list if (n.degree, n.neighbour) > own)
    return [Higher(key, len(neighbour_list), tuple((other, mask) for _, other, mask in higher))]


#: Maximum number of entries in a partial aggregate before it is emitted.
ENTRIES_MAX: Final = 65_536


class Partial(ABC):
    """An aggregate of one subtask's records so far."""

    @abstractmethod
    def add(self, records: Sequence[Any]) -> None:
        """Add a batch of records."""

    @abstractmethod
    def take(self) -> list[Any]:
        """Return the contents as records, and clear them."""

    def size(self) -> int:
        """Return the number of entries; 1 for an aggregate of constant size."""
        return 1


class Counts(Partial):
    """Counts how often each key occurs; its records are (key, count).

    Args:
        keys_of: returns the keys of a batch of records.
    """

    def __init__(self, keys_of: Callable[[Sequence[Any]], Iterable[Any]]) -> None:
        self._keys_of = keys_of
        self._counts: Counter[Any] = Counter()

    def add(self, records: Sequence[Any]) -> None:
        self._counts.update(self._keys_of(records))

    def take(self) -> list[Any]:
        counts = list(self._counts.items())
        self._counts.clear()
        return counts

    def size(self) -> int:
        return len(self._counts)


class Weights(Counts):
    """Sums the weights of each key, from records that represent several (key, weight)."""

    def add(self, records: Sequence[Any]) -> None:
        counts = self._counts
        for key, weight in self._keys_of(records):
            counts[key] += weight


class PartialsOperator(StreamOperator):
    """Passes records to a `Partial`, and emits its contents."""

    def __init__(self, make: Callable[[], Partial]) -> None:
        self._partial = make()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self._partial.add(batch.values)
        if self._partial.size() > ENTRIES_MAX:
            self._emit()

    def process_watermark(self, timestamp: int) -> None:
        self._emit()
        super().process_watermark(timestamp)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._emit()

    def end_input(self, input_index: int = 0) -> None:
        self._emit()

    def _emit(self) -> None:
        records = self._partial.take()
        if records:
            self.output.collect(Batch(records))


def partials(stream: DataStream, make: Callable[[], Partial], name: str) -> DataStream:
    """Return the partial aggregates of a stream's records, a few for each subtask."""
    return stream._add(name, partial(PartialsOperator, make)).name(name)


class Degrees(NamedTuple):
    """The degrees of a vertex of a directed graph.

    Attributes:
        degree: how many neighbours it has, whichever way the edges lead.
        out_degree: how many of them its edges lead to.
        in_degree: how many of them have edges to it.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.asm import Degrees, VertexDegrees
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (1, 3)], env)
        >>> degrees = dict(graph.run(VertexDegrees()).collect())[1]
        >>> isinstance(degrees, Degrees), degrees.out_degree
        (True, 2)
    """

    degree: int
    out_degree: int
    in_degree: int

    def get_degree(self) -> int:
        """Return how many neighbours the vertex has, whichever way the edges lead."""
        return self.degree

    def get_out_degree(self) -> int:
        """Return how many neighbours the vertex has edges to."""
        return self.out_degree

    def get_in_degree(self) -> int:
        """Return how many neighbours have edges to the vertex."""
        return self.in_degree


class _VertexDegrees(base.GraphAlgorithm[DataStream]):
    """Base class of the algorithms for vertex degrees."""

    #: The value of a vertex without edges.
    zero: ClassVar[Any] = 0
    _includes_zero = False

    def set_include_zero_degree_vertices(self, include_zero_degree_vertices: bool) -> Self:
        """Set whether to include vertices of degree zero. False by default, which saves a join."""
        self._includes_zero = base.flag(self, "set_include_zero_degree_vertices", include_zero_degree_vertices)
        return self

    def run(self, graph: Any) -> DataStream:
        """Return a stream of `Vertex`s (id, degree)."""
        degrees = self.degrees(graph.get_edges())
        if not self._includes_zero:
            return degrees
        make = partial(_with_zero, self.zero)
        return base.co_grouped(graph.get_vertices(), degrees, (base.FIRST, base.FIRST), make).name(
            f"{degrees.get_name()} With Zero"
        )

    def degrees(self, edges: DataStream) -> DataStream:
        """Return the degrees of the vertices that have edges."""
        raise NotImplementedError


class _CountedEnds(_VertexDegrees):
    """Counts the edges that have a vertex at one end."""

    end: ClassVar[int]

    def degrees(self, edges: DataStream) -> DataStream:
        """Count in each subtask, then add up the counts."""
        name = type(self).__name__
        counts = partials(edges, partial(Counts, partial(_ends, self.end)), f"{name} Counts")
        return base.of_groups(counts, base.FIRST, _added).name(name)


class VertexOutDegree(_CountedEnds):
    """Counts the outgoing edges of each vertex of a directed graph.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.asm import VertexOutDegree
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (1, 3)], env)
        >>> sorted(graph.run(VertexOutDegree()).collect())
        [Vertex(id=1, value=2)]
    """

    end = 0


class VertexInDegree(_CountedEnds):
    """Counts the incoming edges of each vertex of a directed graph.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.asm import VertexInDegree
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (1, 3)], env)
        >>> sorted(graph.run(VertexInDegree()).collect())
        [Vertex(id=2, value=1), Vertex(id=3, value=1)]
    """

    end = 1


class VertexDegree(_CountedEnds):
    """Counts the edges of each vertex of an undirected graph, which has each edge in both directions.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.asm import VertexDegree
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (2, 1)], env)
        >>> sorted(graph.run(VertexDegree()).collect())
        [Vertex(id=1, value=1), Vertex(id=2, value=1)]
    """

    end = 0

    def set_reduce_on_target_id(self, reduce_on_target_id: bool) -> Self:
        """Set whether to count edges at their targets; the result is the same. False by default."""
        self.end = int(base.flag(self, "set_reduce_on_target_id", reduce_on_target_id))  # type: ignore[misc]
        return self


class VertexDegrees(_VertexDegrees):
    """Counts the neighbours of each vertex of a directed graph as `Degrees`: all, along out-edges, along in-edges.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.asm import VertexDegrees
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (1, 3)], env)
        >>> dict(graph.run(VertexDegrees()).collect())[1]
        Degrees(degree=2, out_degree=2, in_degree=0)
    """

    zero = Degrees(0, 0, 0)

    def degrees(self, edges: DataStream) -> DataStream:
        """Find the degrees from the neighbours of each vertex."""
        return base.of_groups(both_ways(edges), base.FIRST, _degrees).name("Vertex Degrees")


def _ends(end: int, edges: Sequence[Any]) -> Iterable[Any]:
    return [edge[end] for edge in edges]


def _added(_: Any, key: Any, counts: Iterable[tuple[Any, int]]) -> list[base.Vertex]:
    return [base.Vertex(key, sum(count for _, count in counts))]


def _degrees(_: Any, key: Any, ends: Iterable[Any]) -> list[base.Vertex]:
    masks = combine_masks(ends).values()
    out_degree = sum(mask != REVERSE for mask in masks)
    in_degree = sum(mask != FORWARD for mask in masks)
    return [base.Vertex(key, Degrees(len(masks), out_degree, in_degree))]


def _with_zero(zero: Any, _: Any, vertices: Iterable[Any], degrees: Iterable[Any]) -> Iterator[base.Vertex]:
    matches = list(degrees)
    for vertex_id, _ in vertices:
        yield matches[0] if matches else base.Vertex(vertex_id, zero)


class _EdgeDegrees(base.GraphAlgorithm[DataStream]):
    """Base class of the algorithms for edges with degrees."""

    vertex_degrees: ClassVar[type[Any]]
    #: The ends whose degrees are added: 0 is the source, 1 the target.
    ends: ClassVar[tuple[int, ...]]

    def run(self, graph: Any) -> DataStream:
        """Return a stream of `Edge`s whose values are tuples of the edge's value and the degrees."""
        degrees = self.vertex_degrees().run(graph)
        edges: DataStream = graph.get_edges()
        for end in self.ends:
            make = partial(_annotated, end == self.ends[0])
            key = base.SECOND if end else base.FIRST
            edges = base.co_grouped(edges, degrees, (key, base.FIRST), make).name(type(self).__name__)
        return edges


class EdgeSourceDegrees(_EdgeDegrees):
    """Each edge of a directed graph with the `Degrees` of its source: value (value, degrees).

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.asm import EdgeSourceDegrees
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2)], env)
        >>> graph.run(EdgeSourceDegrees()).collect()[0].value
        (None, Degrees(degree=1, out_degree=1, in_degree=0))
    """

    vertex_degrees = VertexDegrees
    ends = (0,)


class EdgeTargetDegrees(_EdgeDegrees):
    """Each edge of a directed graph with the `Degrees` of its target: value (value, degrees).

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.asm import EdgeTargetDegrees
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2)], env)
        >>> graph.run(EdgeTargetDegrees()).collect()[0].value
        (None, Degrees(degree=1, out_degree=0, in_degree=1))
    """

    vertex_degrees = VertexDegrees
    ends = (1,)


class EdgeDegreesPair(_EdgeDegrees):
    """Each edge of a directed graph with the `Degrees` of both ends: value (value, source's, target's).

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.asm import EdgeDegreesPair
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2)], env)
        >>> graph.run(EdgeDegreesPair()).collect()[0].value
        (None, Degrees(degree=1, out_degree=1, in_degree=0), Degrees(degree=1, out_degree=0, in_degree=1))
    """

    vertex_degrees = VertexDegrees
    ends = (0, 1)


class EdgeSourceDegree(_EdgeDegrees):
    """Each edge of an undirected graph with the degree of its source: value (value, degree).

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.asm import EdgeSourceDegree
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (2, 1)], env)
        >>> graph.run(EdgeSourceDegree()).collect()[0].value
        (None, 1)
    """

    vertex_degrees = VertexDegree
    ends = (0,)


class EdgeTargetDegree(_EdgeDegrees):
    """Each edge of an undirected graph with the degree of its target: value (value, degree).

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.asm import EdgeTargetDegree
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (2, 1)], env)
        >>> graph.run(EdgeTargetDegree()).collect()[0].value
        (None, 1)
    """

    vertex_degrees = VertexDegree
    ends = (1,)


class EdgeDegreePair(_EdgeDegrees):
    """Each edge of an undirected graph with the degrees of both ends: value (value, source's, target's).

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.asm import EdgeDegreePair
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (2, 1)], env)
        >>> graph.run(EdgeDegreePair()).collect()[0].value
        (None, 1, 1)
    """

    vertex_degrees = VertexDegree
    ends = (0, 1)


def _annotated(is_first: bool, _: Any, edges: Iterable[Any], degrees: Iterable[Any]) -> list[base.Edge]:
    degree_values = [degree for _, degree in degrees]
    if is_first:
        return [base.Edge(source, target, (value, *degree_values)) for source, target, value in edges]
    return [base.Edge(source, target, (*values, *degree_values)) for source, target, values in edges]


class Simplify(base.GraphAlgorithm[Any]):
    """Removes loops and repeated edges; one of several edges between the same two vertices remains, with its value.

    Args:
        clip_and_flip: None for a directed graph. For an undirected one, the result has edges in both directions: with
            False all edges of the graph, with True only edges with a source id greater than the target id; the others
            are dropped first.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.asm import Simplify
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 1), (1, 2), (1, 2)], env)
        >>> graph.run(Simplify()).get_edge_ids().collect()
        [(1, 2)]
    """

    def __init__(self, clip_and_flip: bool | None = None) -> None:
        if clip_and_flip is not None and not isinstance(clip_and_flip, bool):
            raise WrongTypeError(
                f"Simplify: clip_and_flip is None for a directed graph, or True or False, not {clip_and_flip!r}"
            )
        self._clip_and_flip = clip_and_flip

    def run(self, graph: Any) -> Any:
        """Return the simple graph, with the same vertices."""
        edges = graph.get_edges().flat_map(partial(_simple, self._clip_and_flip)).name("Remove Loops")
        simple = base.of_groups(edges, base.BOTH, _first_of_all).name("Remove Repeated Edges")
        return type(graph).from_data_stream(simple, graph.get_vertices())


class MaximumDegree(base.GraphAlgorithm[Any]):
    """Removes the vertices of an undirected graph that have more edges than a maximum, and their edges.

    Args:
        maximum_degree: the highest degree to keep, 1 or more; degrees are counted before anything is removed.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.asm import MaximumDegree
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (2, 1), (1, 3), (3, 1)], env)
        >>> sorted(graph.run(MaximumDegree(1)).get_vertex_ids().collect())
        [2, 3]
    """

    def __init__(self, maximum_degree: int) -> None:
        self._maximum = base.whole(self, "maximum_degree", maximum_degree, 1)

    def run(self, graph: Any) -> Any:
        """Return the graph without those vertices."""
        high = VertexDegree().run(graph).filter(partial(_is_above, self._maximum)).name("High Degree")
        vertices = base.without(graph.get_vertices(), high, base.FIRST, base.FIRST).name("Vertices Of Low Degree")
        edges = base.without(graph.get_edges(), high, base.FIRST, base.FIRST).name("Sources Of Low Degree")
        edges = base.without(edges, high, base.SECOND, base.FIRST).name("Targets Of Low Degree")
        return type(graph).from_data_stream(edges, vertices)


def _simple(clip_and_flip: bool | None, edge: base.Edge) -> list[base.Edge]:
    source, target, value = edge
    if source == target or (clip_and_flip and source < target):
        return []
    return [edge] if clip_and_flip is None else [edge, base.Edge(target, source, value)]


def _first_of_all(_: Any, key: Any, edges: Iterable[base.Edge]) -> list[base.Edge]:
    return [next(iter(edges))]


def _is_above(maximum: int, vertex: Any) -> bool:
    return bool(vertex[1] > maximum)


class _Translate(base.GraphAlgorithm[Any]):
    """Base class of translations.

    Args:
        translator: a function of the old id or value, or an object with a method `translate`.
    """

    method: ClassVar[str]

    def __init__(self, translator: Any) -> None:
        if not callable(getattr(translator, "translate", translator)):
            raise WrongTypeError(
                f"{type(self).__name__} takes a function, or an object with a method translate, not {translator!r}"
            )
        self._translator = translator

    def run(self, graph: Any) -> Any:
        """Return the graph with the new ids or values."""
        return getattr(graph, self.method)(self._translator)


class TranslateGraphIds(_Translate):
    """Replaces each id by the result of a function of the id; different ids must stay different.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.asm import TranslateGraphIds
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2)], env)
        >>> graph.run(TranslateGraphIds(str)).get_edge_ids().collect()
        [('1', '2')]
    """

    method = "translate_graph_ids"


class TranslateVertexValues(_Translate):
    """Replaces the value of each vertex by the result of a function of the value.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.asm import TranslateVertexValues
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2)], env, vertex_value_initializer=int)
        >>> sorted(graph.run(TranslateVertexValues(str)).get_vertices_as_tuple2().collect())
        [(1, '1'), (2, '2')]
    """

    method = "translate_vertex_values"


class TranslateEdgeValues(_Translate):
    """Replaces the value of each edge by the result of a function of the value.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> from penstock.gelly.asm import TranslateEdgeValues
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2, 4.5)], env)
        >>> graph.run(TranslateEdgeValues(int)).get_edges_as_tuple3().collect()
        [(1, 2, 4)]
    """

    method = "translate_edge_values"


__all__ = [
    "Degrees",
    "EdgeDegreePair",
    "EdgeDegreesPair",
    "EdgeSourceDegree",
    "EdgeSourceDegrees",
    "EdgeTargetDegree",
    "EdgeTargetDegrees",
    "MaximumDegree",
    "Simplify",
    "TranslateEdgeValues",
    "TranslateGraphIds",
    "TranslateVertexValues",
    "VertexDegree",
    "VertexDegrees",
    "VertexInDegree",
    "VertexOutDegree",
]
