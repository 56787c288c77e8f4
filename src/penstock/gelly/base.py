"""Foundations of graphs: stream operations, partitioning by id, operators in lockstep, graph elements, algorithms.

A graph (`GraphBase`) is two bounded streams, and its methods join and co-group them. The operations on bounded streams
give the same results in every execution mode.

Iterations over vertices are not made of batch jobs, because each superstep would read, shuffle and write data that
never changes. They run in lockstep: one operator holds the graph, each subtask a partition of it, and between
supersteps only messages move. `in_step` makes such an operator a bounded stream: it runs as a separate batch job, once
(I3).

- The operator (`penstock.runtime.operators.base`) has a generator, `rounds`, that begins when its input has ended. It
  yields what goes to each other subtask and a small report, and gets what arrived and all reports. So a loop of
  supersteps is written as a loop, without IO.
- The driver does the exchange. In the local driver the subtasks take turns and hand objects over. On Spark they
  are a barrier stage with sockets (`penstock.drivers.spark.lockstep`).
- The result of the loop is a cached stream, as after an iteration without supersteps.
- Edges and vertices are distributed once, to the owner of their id: a hash, the same for all streams of a graph
  (`assign_owner`).

Two operators are built on it. One calls users' functions for each active vertex, with its edges and messages
(`penstock.gelly.supersteps`). The other runs kernels over arrays (`penstock.gelly.columnar`).

A `GraphAlgorithm` returns a graph or a stream, and a `GraphAnalytic` one result; both are arguments of `Graph.run`.
`Graph` belongs to a higher layer than this module, so it is `Any` here; implementations say `Graph`. `whole`, `number`
and `flag` check the arguments of algorithms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

import numpy as np
import pyarrow as pa
import xxhash

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.datastream.data_stream import DataStream, StreamExecutionEnvironment
from penstock.datastream.function import Function
from penstock.datastream.functions import FlatMapFunction, MapFunction, RuntimeContext, WindowFunction
from penstock.plan.transformation import Transformation, Upstream, upstream_first
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.records import Batch
from penstock.runtime.task.channels.result_partition import BroadcastPartitioner, Partitioner, SelectingPartitioner
from penstock.runtime.windowing import EventTimeTrigger, GlobalWindows
from penstock.state.keys import key_bytes

Key = Callable[[Any], Any]

#: Key functions of vertices and edges.
FIRST: Key = itemgetter(0)
SECOND: Key = itemgetter(1)
BOTH: Key = itemgetter(0, 1)

_T = TypeVar("_T")


def lazy(stream: DataStream) -> DataStream:
    """Mark a stream to be computed only if a job reads it: many streams of a graph are never read. Return it."""
    environment = stream.get_execution_environment()
    environment.leave_out(upstream_first(upstream.transformation for upstream in stream.upstreams))
    return stream


class Wrapped(Function):
    """Wraps a user-defined function, which it opens and closes.

    Args:
        function: the user-defined function, or its object.
        name: the method of the object.
    """

    def __init__(self, function: Any, name: str = "") -> None:
        self.function = function
        has_method = name and not isinstance(function, type)
        self.call: Callable[..., Any] = getattr(function, name, function) if has_method else function

    def open(self, runtime_context: RuntimeContext) -> None:
        """Open the user-defined function."""
        if isinstance(self.function, Function):
            self.function.open(runtime_context)

    def close(self) -> None:
        """Close the user-defined function."""
        if isinstance(self.function, Function):
            self.function.close()


class WrappedMap(Wrapped, MapFunction):
    """A map function that wraps a user-defined function."""

    def __init__(self, make: Callable[[Callable[..., Any], Any], Any], function: Any, name: str = "map") -> None:
        super().__init__(function, name)
        self._make = make

    def map(self, value: Any) -> Any:
        """Return the result of `make(function, value)`."""
        return self._make(self.call, value)


class WrappedFlatMap(Wrapped, FlatMapFunction):
    """A flat-map function that wraps a user-defined function."""

    def __init__(self, make: Callable[[Callable[..., Any], Any], Any], function: Any, name: str = "flat_map") -> None:
        super().__init__(function, name)
        self._make = make

    def flat_map(self, value: Any) -> Any:
        """Return the results of `make(function, value)`."""
        return self._make(self.call, value)


class _Group(Wrapped, WindowFunction[Any, Any, Any, Any]):
    def __init__(self, make: Callable[..., Iterable[Any]], function: Any, name: str) -> None:
        super().__init__(function, name)
        self._make = make

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return self._make(self.call, key, inputs)


def of_groups(
    stream: DataStream, key: Key, make: Callable[..., Iterable[Any]], function: Any = None, name: str = ""
) -> DataStream:
    """Return the results of `make(function, key, records)` for all records of each key."""
    windows = stream.key_by(key).window(GlobalWindows.create()).trigger(EventTimeTrigger.create())
    return lazy(windows.apply(_Group(make, function, name)))


class _CoGroup(Wrapped):
    """Passes both sides to `make(function, ones, others)`."""

    def __init__(self, make: Callable[..., Iterable[Any]], function: Any, name: str) -> None:
        super().__init__(function, name)
        self._make = make

    def co_group(self, first: Iterable[Any], second: Iterable[Any]) -> Iterable[Any]:
        return list(self._make(self.call, first, second))


def co_grouped(
    ones: DataStream,
    others: DataStream,
    keys: tuple[Key, Key],
    make: Callable[..., Iterable[Any]],
    function: Any = None,
    name: str = "",
) -> DataStream:
    """Return the results of `make(function, ones, others)` for the records of each key of either stream."""
    return lazy(ones.co_group(others).where(keys[0]).equal_to(keys[1]).apply(_CoGroup(make, function, name)))


def _unmatched(_: Any, ones: Iterable[Any], others: Iterable[Any]) -> Iterator[Any]:
    return iter([] if list(others) else list(ones))


def _matched(_: Any, ones: Iterable[Any], others: Iterable[Any]) -> Iterator[Any]:
    return iter(list(ones) if list(others) else [])


def without(ones: DataStream, others: DataStream, key: Key, other_key: Key) -> DataStream:
    """Return the records of the first stream whose key the second one does not have."""
    return co_grouped(ones, others, (key, other_key), _unmatched)


def semi_join(ones: DataStream, others: DataStream, key: Key, other_key: Key) -> DataStream:
    """Return the records of the first stream whose key the second one has, once or several times."""
    return co_grouped(ones, others, (key, other_key), _matched)


def distinct_values(records: Iterable[_T]) -> list[_T]:
    """Return the distinct records in the order of their first appearance; they need not be hashable."""
    distinct: list[_T] = []
    try:
        return list(dict.fromkeys(records))
    except TypeError:
        for record in records:
            if record not in distinct:
                distinct.append(record)
        return distinct


def _distinct(_: Any, key: Any, records: Iterable[Any]) -> Iterable[Any]:
    return distinct_values(list(records))


def distinct(stream: DataStream, key: Key) -> DataStream:
    """Return the distinct records; equal ones must have equal keys."""
    return of_groups(stream, key, _distinct)


class _CountOperator(StreamOperator):
    """Emits the number of its subtask's records at the end."""

    def open(self) -> None:
        self._count = 0

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self._count += len(batch)

    def end_input(self, input_index: int = 0) -> None:
        self.output.collect(Batch([self._count]))


def count(stream: DataStream, job_name: str) -> int:
    """Return the number of records of a bounded stream; runs a job."""
    counts = stream._add("Count", partial(_CountOperator))
    return sum(collected(counts, job_name))


def collected(stream: DataStream, job_name: str) -> list[Any]:
    """Return all records of a bounded stream; runs a job."""
    results = stream.execute_and_collect(job_name)
    if isinstance(results, list):
        return results
    with results:
        return list(results)


def check_stream(stream: Any, label: str) -> DataStream:
    """Return the stream; raise `TypeError` for anything else."""
    if not isinstance(stream, DataStream):
        raise WrongTypeError(f"{label} must be a DataStream, not {type(stream).__name__}; see Graph.from_collection")
    return stream


_MIX: Final = 0x9E3779B97F4A7C15
_M64: Final = (1 << 64) - 1
_ID_MIN: Final = -(1 << 63)
_ID_MAX: Final = (1 << 63) - 1


def assign_integer_owners(ids: Any, partitions: int) -> Any:
    """Return the partition of each id of a numpy array of 64-bit integers."""
    mixed = ids.astype(np.int64, copy=False).view(np.uint64) * np.uint64(_MIX)
    mixed ^= mixed >> np.uint64(32)
    return (mixed % np.uint64(partitions)).astype(np.uint16)


def assign_owner(vertex_id: Any, partitions: int) -> int:
    """Return the partition of an id of any kind; equal ids have the same owner, such as the numbers 1 and 1.0."""
    is_whole = isinstance(vertex_id, int) or (isinstance(vertex_id, float) and vertex_id.is_integer())
    if is_whole and _ID_MIN <= vertex_id <= _ID_MAX:
        mixed = int(vertex_id) * _MIX & _M64
        return (mixed ^ mixed >> 32) % partitions
    return xxhash.xxh3_64_intdigest(key_bytes(vertex_id)) % partitions


class Owners(dict[Any, int]):
    """The owner of each id, computed on the first request."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self._partitions = partitions

    def __missing__(self, vertex_id: Any) -> int:
        owner = self[vertex_id] = assign_owner(vertex_id, self._partitions)
        return owner


class IdPartitioner(SelectingPartitioner):
    """Partitions by the owner of the id at a position of each record."""

    name = "HASH"

    def __init__(self, position: int) -> None:
        self._position = position

    def set_up(self, subtask_index: int, channels: int, max_parallelism: int, consumer: str = "") -> None:
        """Set up the partitioner, without known owners."""
        super().set_up(subtask_index, channels, max_parallelism, consumer)
        self._consumer = consumer
        self._owners = Owners(channels)

    def select_channels(self, values: list[Any]) -> Sequence[int]:
        """Return the owner of each record's id."""
        ids = [value[self._position] for value in values]
        try:
            if set(map(type, ids)) == {int}:
                return [int(owner) for owner in assign_integer_owners(np.array(ids, np.int64), self.channels)]
        except OverflowError:
            pass
        try:
            return list(map(self._owners.__getitem__, ids))
        except Exception as error:
            raise WrongValueError(f"{self._consumer}: an id of the graph cannot be a key: {error}") from error

    def channels_of_columns(self, batch: ColumnBatch) -> Any:
        """Return the owner of each record's id, as a numpy array."""
        column = batch.columns.column(self._position)
        if pa.types.is_integer(column.type) and column.type != pa.uint64() and not column.null_count:
            return assign_integer_owners(column.to_numpy(zero_copy_only=False), self.channels)
        encoded = column.dictionary_encode()
        of_each = [self._owners[vertex_id] for vertex_id in encoded.dictionary.to_pylist()]
        return np.array(of_each, np.uint16)[encoded.indices.to_numpy(zero_copy_only=False)]


@dataclass(frozen=True)
class Input:
    """An input stream of the operator, and its partitioner; `index` is the number of the input."""

    stream: DataStream
    partitioner: Partitioner
    index: int


def by_id(position: int) -> Partitioner:
    """Partition by the owner of the id at this position."""
    return IdPartitioner(position)


def to_all() -> Partitioner:
    """Broadcast to all partitions."""
    return BroadcastPartitioner()


def in_step(
    operator: Callable[[], StreamOperator], inputs: Sequence[Input], name: str, parallelism: int | None
) -> DataStream:
    """Return the operator's output. The loop runs once, when a job that reads it begins, in any execution mode.

    Args:
        operator: creates the operator.
        inputs: its inputs: bounded streams.
        name: its name in plans, logs and errors.
        parallelism: how many subtasks it has; None for the environment's number.

    Raises:
        ConfigurationError: if a stream comes from an unbounded source.
    """
    environment = inputs[0].stream.get_execution_environment()
    upstreams: list[Upstream] = []
    for stream_input in inputs:
        for upstream in _plain(stream_input).upstreams:
            upstreams.append(
                Upstream(upstream.transformation, stream_input.partitioner, upstream.side_tag, stream_input.index)
            )
    transformation = Transformation(
        "Lockstep", partial(operator), tuple(upstreams), name=name, parallelism=parallelism, is_stateful=True
    )
    environment.add(transformation)
    loop = environment.build_stream((Upstream(transformation),)).iterate(0).name(name)
    return lazy(loop.close_with(loop))


def _plain(stream_input: Input) -> DataStream:
    if isinstance(stream_input.partitioner, BroadcastPartitioner):
        return stream_input.stream
    return stream_input.stream._add("Plain Tuples", partial(_PlainTuplesOperator))


class _PlainTuplesOperator(StreamOperator):
    """Converts records to plain tuples, which are pickled in half the time of named ones; columns stay unchanged."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        if not isinstance(batch, ColumnBatch):
            batch = Batch(list(map(tuple, batch.values)))
        self.output.collect(batch)


class Vertex(NamedTuple):
    """A vertex; ids are unique in a graph and may be anything that can be a key.

    Examples:
        >>> from penstock.gelly import Vertex
        >>> vertex = Vertex("A", 1.0)
        >>> vertex.id, vertex.value, vertex.get_id()
        ('A', 1.0, 'A')
    """

    id: Any
    value: Any = None

    def get_id(self) -> Any:
        """Return the id."""
        return self.id

    def get_value(self) -> Any:
        """Return the value."""
        return self.value


class Edge(NamedTuple):
    """An edge from a source to a target, by the ids of the vertices; several edges may connect the same two.

    Examples:
        >>> from penstock.gelly import Edge
        >>> road = Edge("A", "B", 4.0)
        >>> road.target, road.reverse()
        ('B', Edge(source='B', target='A', value=4.0))
    """

    source: Any
    target: Any
    value: Any = None

    def get_source(self) -> Any:
        """Return the id of the source."""
        return self.source

    def get_target(self) -> Any:
        """Return the id of the target."""
        return self.target

    def get_value(self) -> Any:
        """Return the value."""
        return self.value

    def reverse(self) -> Edge:
        """Return the reversed edge, with the same value."""
        return Edge(self.target, self.source, self.value)


class Triplet(NamedTuple):
    """An edge with the values of both its vertices.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([("A", "B", 4.0)], env, vertices=[("A", 1), ("B", 2)])
        >>> graph.get_triplets().collect()[0].get_trg_vertex()
        Vertex(id='B', value=2)
    """

    source_id: Any
    target_id: Any
    source_value: Any
    target_value: Any
    edge_value: Any

    def get_src_vertex(self) -> Vertex:
        """Return the source vertex."""
        return Vertex(self.source_id, self.source_value)

    def get_trg_vertex(self) -> Vertex:
        """Return the target vertex."""
        return Vertex(self.target_id, self.target_value)

    def get_edge(self) -> Edge:
        """Return the edge."""
        return Edge(self.source_id, self.target_id, self.edge_value)


class EdgeDirection(Enum):
    """The edges of a vertex to use: incoming, outgoing, or all.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import EdgeDirection, Graph
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> roads = Graph.from_collection([("A", "B", 4.0), ("C", "B", 2.0)], env)
        >>> roads.reduce_on_edges(min, EdgeDirection.IN).collect()
        [('B', 2.0)]
    """

    IN = "in"
    OUT = "out"
    ALL = "all"


@dataclass(frozen=True)
class Origin:
    """The sources of a graph's records: streams whose records may be of other kinds, such as columns of a file.

    Attributes:
        edges: records of source, target, and value if there are values.
        vertices: records of id, and value if there are values; None if the edges determine the vertices.
        initializer: returns the values of the edges' vertices by their ids; None for no values.
    """

    edges: DataStream
    vertices: DataStream | None = None
    initializer: Any = None


class GraphBase:
    """A graph: a bounded stream of vertices and one of edges. Methods return new graphs; nothing runs before a job."""

    def __init__(
        self,
        vertices: DataStream,
        edges: DataStream,
        context: StreamExecutionEnvironment,
        origin: Origin | None = None,
    ) -> None:
        self._vertices = lazy(vertices)
        self._edges = lazy(edges)
        self._context = context
        self._origin = origin or Origin(edges, vertices)

    @property
    def origin(self) -> Origin:
        """The source streams of the graph, for algorithms that do not need them as records."""
        return self._origin

    def _replace_streams(self, vertices: DataStream | None = None, edges: DataStream | None = None) -> Self:
        """Return a graph with other vertices or edges."""
        current_vertices = self._origin.vertices or self._vertices
        origin = Origin(
            self._origin.edges if edges is None else edges,
            current_vertices if vertices is None else vertices,
        )
        return type(self)(
            self._vertices if vertices is None else vertices,
            self._edges if edges is None else edges,
            self._context,
            origin,
        )

    # --- what it consists of -----------------------------------------------------------------------------------------

    def get_context(self) -> StreamExecutionEnvironment:
        """Return the environment of the streams."""
        return self._context

    def get_vertices(self) -> DataStream:
        """Return the vertices, as `Vertex`."""
        return self._vertices

    def get_edges(self) -> DataStream:
        """Return the edges, as `Edge`."""
        return self._edges

    def get_vertices_as_tuple2(self) -> DataStream:
        """Return the vertices as plain tuples (id, value)."""
        return lazy(self._vertices.map(tuple).name("Vertices As Tuples"))

    def get_edges_as_tuple3(self) -> DataStream:
        """Return the edges as plain tuples (source, target, value)."""
        return lazy(self._edges.map(tuple).name("Edges As Tuples"))

    def get_vertex_ids(self) -> DataStream:
        """Return the ids of all vertices."""
        return lazy(self._vertices.map(FIRST).name("Vertex Ids"))

    def get_edge_ids(self) -> DataStream:
        """Return a tuple (source, target) for each edge."""
        return lazy(self._edges.map(_ends).name("Edge Ids"))

    def get_triplets(self) -> DataStream:
        """Return each edge with the values of both its vertices, as `Triplet`; edges that lack a vertex are omitted."""
        with_source = co_grouped(self._edges, self._vertices, (FIRST, FIRST), _edges_with_value).name("Source Values")
        keys = (_second_of_first, FIRST)
        return co_grouped(with_source, self._vertices, keys, _triplets).name("Triplets")

    def number_of_vertices(self) -> int:
        """Return the number of vertices; runs a job."""
        return count(self._vertices, "Number of vertices")

    def number_of_edges(self) -> int:
        """Return the number of edges; runs a job."""
        return count(self._edges, "Number of edges")


def _ends(edge: Any) -> tuple[Any, Any]:
    return edge[0], edge[1]


def _second_of_first(pair: Any) -> Any:
    return SECOND(pair[0])


def _edges_with_value(_: Any, edges: Any, vertices: Any) -> Any:
    return [(edge, vertex[1]) for vertex in vertices for edge in edges]


def _triplets(_: Any, edges_with_value: Any, vertices: Any) -> Any:
    return [
        Triplet(edge[0], edge[1], source_value, vertex[1], edge[2])
        for vertex in vertices
        for edge, source_value in edges_with_value
    ]


T = TypeVar("T")


class GraphAlgorithm(ABC, Generic[T]):
    """Transforms a graph into another graph or a stream of results.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph, GraphAlgorithm
        >>> class Loops(GraphAlgorithm):
        ...     def run(self, graph):
        ...         return graph.get_edges().filter(lambda edge: edge.source == edge.target)
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> Graph.from_collection([("A", "A", 1), ("A", "B", 2)], env).run(Loops()).collect()
        [Edge(source='A', target='A', value=1)]
    """

    @abstractmethod
    def run(self, graph: Any) -> T:
        """Return a stream of results, or a graph."""


class GraphAnalytic(ABC, Generic[T]):
    """Computes one result from a graph, which takes a job: `run` takes the graph, and `execute` runs the job.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph, GraphAnalytic
        >>> class Weight(GraphAnalytic):
        ...     def run(self, graph):
        ...         self.edges = graph.get_edges()
        ...         return self
        ...     def get_result(self):
        ...         return sum(edge.value for edge in self.edges.collect())
        ...     def execute(self, job_name=None):
        ...         return self.get_result()
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> Graph.from_collection([("A", "B", 1), ("B", "A", 2)], env).run(Weight()).execute()
        3
    """

    graph: Any

    def run(self, graph: Any) -> Self:
        """Take the graph; return the analytic itself."""
        self.graph = graph
        return self

    @abstractmethod
    def get_result(self) -> T:
        """Return the result; its input is computed on the first call."""

    def execute(self, job_name: str | None = None) -> T:
        """Run the job and return the result."""
        return self.get_result()


class GraphValidator(ABC):
    """Checks whether a graph is valid.

    Examples:
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph, GraphValidator
        >>> class NoLoops(GraphValidator):
        ...     def validate(self, graph):
        ...         return all(source != target for source, target in graph.get_edge_ids().collect())
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> Graph.from_collection([("A", "A")], env).validate(NoLoops())
        False
    """

    @abstractmethod
    def validate(self, graph: Any) -> bool:
        """Return whether the graph is valid; runs a job."""


def run_algorithm(algorithm: Any, graph: Any) -> Any:
    """Return the result of `run(graph)` of an algorithm or an analytic."""
    return algorithm.run(graph)


def whole(owner: Any, name: str, value: Any, at_least: int) -> int:
    """Return an integer after checking its type and its minimum.

    Raises:
        TypeError: if it is not an integer.
        ValueError: if it is too small.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongTypeError(f"{_name(owner)}: {name} must be a whole number, not {value!r}")
    if value < at_least:
        raise WrongValueError(f"{_name(owner)}: {name} must be {at_least} or more, not {value}")
    return value


def number(owner: Any, name: str, value: Any, above: float | None = None, at_least: float | None = None) -> float:
    """Return a number after checking its type and its lower bounds.

    Raises:
        TypeError: if it is not a number.
        ValueError: if it is too small, or NaN.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise WrongTypeError(f"{_name(owner)}: {name} must be a number, not {value!r}")
    if above is not None and not value > above:
        raise WrongValueError(f"{_name(owner)}: {name} must be greater than {above:g}, not {value}")
    if at_least is not None and not value >= at_least:
        raise WrongValueError(f"{_name(owner)}: {name} must be {at_least:g} or more, not {value}")
    return value


def flag(owner: Any, name: str, value: Any) -> bool:
    """Return a boolean after checking its type.

    Raises:
        TypeError: if it is anything else.
    """
    if not isinstance(value, bool):
        raise WrongTypeError(f"{_name(owner)}: {name} takes True or False, not {value!r}")
    return value


def _name(owner: Any) -> str:
    return owner if isinstance(owner, str) else type(owner).__name__
