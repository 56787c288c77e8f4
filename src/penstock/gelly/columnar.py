"""Graph algorithms that run in numpy: a superstep costs a few passes over arrays, and no call for each vertex.

A `Kernel` does the work of a partition in each superstep, and `KernelOperator` runs it superstep by superstep, in
lockstep with its other subtasks. `Combine` combines the values that arrive at one vertex. A column of vertex ids is an
Arrow array of integers or text, or a list of any other keys.

The arrays of a partition are `GraphArrays`: its vertices by number, 0 to n - 1, and their edges, sorted by target. A
partition has a *slot* for each vertex of any partition that its edges lead to; slots are ordered by the partitions that
own the vertices. At the beginning, it sends each owner the ids of the vertices in its slots, in order. From then on
only values travel, and an owner knows where they belong: neither ids nor hashes are needed again. A superstep is a
gather (`values[sources]`), a `reduceat` over the edges, one array for each other partition, and at the owner
`values[places] = combine(values[places], part)`.

A kernel keeps its own arrays of n values in attributes.

    class Components(Kernel):                              # the least number that reaches a vertex
        direction, combine = EdgeDirection.ALL, Combine.MIN

        def begin(self, graph):                            # once
            self.label = graph.vertex_values.copy()
            self.changed = np.ones(len(graph), bool)

        def send(self, graph):                             # a value for each vertex, sent along all its edges
            return self.label, self.changed                # … of the vertices that changed

        def receive(self, graph, inbox):                   # one value for each vertex: the least that arrived
            self.changed = inbox.has & (inbox.values < self.label)
            self.label[self.changed] = inbox.values[self.changed]
            return int(self.changed.sum())                 # how many vertices are active now

        def results(self, graph):
            return [self.label]

    run_kernel(graph, Components(), max_iterations=100, name="Components", record=Vertex)

One superstep is `send` in all partitions, the exchange, and `receive`. Values for one vertex are combined before they
leave a partition, so a partition sends at most one value for each vertex of the others that its edges lead to. The loop
ends at the maximum, or when no vertex is active, or when `is_converged` returns true.

Sums over all partitions: `graph.add("name", number)` in `begin`, `send` or `receive` adds to a sum. Numbers added in
`begin` are in `graph.sums` from the first `send` on. Numbers added in `receive` and the next `send` replace the
previous sums from the following `receive` on; `is_converged` sees them first.

An array that `send` has returned must not be modified: it may travel by reference. Make new ones in `receive`, or copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import WrongValueError
from penstock.codecs.column_data import COLUMN_BATCH_ROWS, RecordData
from penstock.datastream.data_stream import DataStream
from penstock.gelly.base import EdgeDirection, GraphBase, Input, Owners, assign_integer_owners, by_id, in_step
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.base import Answer, LockstepOperator, Round
from penstock.runtime.operators.record.stateless import method
from penstock.runtime.records import Batch


class Combine(Enum):
    """How several values for one vertex are combined.

    Examples:
        >>> from penstock.gelly.columnar import Combine
        >>> [combine.name for combine in Combine]
        ['SUM', 'MIN', 'MAX', 'NONE']
    """

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    #: Not at all: the vertex gets all of them.
    NONE = "none"


@dataclass(frozen=True)
class Inbox:
    """The values that arrived for the vertices of a partition.

    Attributes:
        values: if combined, one for each vertex, undefined where `has` is false (0 for `Combine.SUM`). Otherwise all
            values that arrived, in the order of the vertices.
        has: whether anything arrived for a vertex.
        offsets: with `Combine.NONE`, vertex i has `values[offsets[i] : offsets[i + 1]]`; otherwise None.

    Examples:
        >>> import numpy as np
        >>> from penstock.gelly.columnar import Inbox
        >>> inbox = Inbox(values=np.array([5, 0]), has=np.array([True, False]))
        >>> inbox.values[inbox.has].tolist()
        [5]
    """

    values: Any
    has: Any
    offsets: Any = None


def get_identity(combine: Combine, kind: Any) -> Any:
    """Return the identity of the combination for a type: combining it with a value leaves the value unchanged."""
    if combine is Combine.SUM:
        return kind.type(0)
    is_least = combine is Combine.MAX
    if kind.kind == "f":
        return kind.type(-np.inf if is_least else np.inf)
    if kind.kind == "b":
        return np.bool_(not is_least)
    limits = np.iinfo(kind)
    return kind.type(limits.min if is_least else limits.max)


#: The functions that combine values.
UFUNCS = {Combine.SUM: np.add, Combine.MIN: np.minimum, Combine.MAX: np.maximum}


#: An Arrow array, or a list.
Ids = Any


def to_id_column(values: Sequence[Any]) -> Ids:
    """Return a column of ids: an Arrow array if all are 64-bit integers, or all are text."""
    kinds = set(map(type, values))
    if kinds == {int}:
        try:
            return pa.array(values, pa.int64())
        except (OverflowError, pa.ArrowInvalid):
            return list(values)
    return pa.array(values, pa.string()) if kinds == {str} else list(values)


def ids_of_column(column: Any) -> Ids:
    """Return the same for an Arrow array."""
    if pa.types.is_integer(column.type) and column.type != pa.uint64() and not column.null_count:
        return column.cast(pa.int64())
    if column.type == pa.string() and not column.null_count:
        return column
    return to_id_column(column.to_pylist())


def joined(parts: Sequence[Ids]) -> Ids:
    """Join several columns into one."""
    types = {part.type if isinstance(part, pa.Array) else None for part in parts if len(part)}
    if not types:
        return pa.array([], pa.int64())
    if len(types) == 1 and None not in types:
        return pa.concat_arrays([part for part in parts if len(part)])
    return [vertex_id for part in parts for vertex_id in listed(part)]


def listed(ids: Ids) -> list[Any]:
    """Return the ids as a list."""
    values: list[Any] = ids.to_pylist() if isinstance(ids, pa.Array) else ids
    return values


def encoded(ids: Ids) -> tuple[Ids, Any]:
    """Return the distinct ids, and the index of each id among them."""
    if isinstance(ids, pa.Array):
        array = ids.dictionary_encode()
        return array.dictionary, array.indices.to_numpy(zero_copy_only=False)
    numbers: dict[Any, int] = {}
    codes = [numbers.setdefault(vertex_id, len(numbers)) for vertex_id in ids]
    return list(numbers), np.array(codes, np.int32)


def find_positions(known: Ids, ids: Ids) -> Any:
    """Return the index of each wanted id among the known ids, which are distinct; -1 if it is missing."""
    if isinstance(known, pa.Array) and isinstance(ids, pa.Array) and known.type == ids.type:
        indexes = pc.index_in(ids, value_set=known)
        return pc.fill_null(indexes, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    index = {vertex_id: number for number, vertex_id in enumerate(listed(known))}
    return np.array([index.get(vertex_id, -1) for vertex_id in listed(ids)], np.int64)


def taken(ids: Ids, positions: Any) -> Ids:
    """Return the ids at these indices."""
    if isinstance(ids, pa.Array):
        return ids.take(pa.array(positions))
    return [ids[position] for position in positions]


def assign_owners(ids: Ids, partitions: int) -> Any:
    """Return the partition of each id."""
    if isinstance(ids, pa.Array) and pa.types.is_integer(ids.type):
        return assign_integer_owners(ids.to_numpy(zero_copy_only=False), partitions)
    owners = Owners(partitions)
    return np.array([owners[vertex_id] for vertex_id in listed(ids)], np.uint16)


def radix_argsort(numbers: Any) -> Any:
    """Return a stable sort order of numbers from 0 to 2**32 - 1, by radix sort, which numpy uses for 16 bits."""
    order = np.argsort((numbers & 0xFFFF).astype(np.uint16), kind="stable")
    if len(numbers) and int(numbers.max()) > 0xFFFF:
        high = (numbers >> 16).astype(np.uint16)[order]
        order = order[np.argsort(high, kind="stable")]
    return order


class GraphArrays:
    """The arrays of one partition of a graph; its vertices are numbered from 0 to `len(graph) - 1`.

    Attributes:
        ids: the ids of the vertices: an Arrow array, or a list.
        vertex_values: an array of numbers, a list of anything else, or None if the graph has no vertices of its own.
        degrees: how many edges the value of each vertex is sent along.
        in_degrees: how many values each vertex receives if all are sent.
        number_of_vertices: the number of all partitions' vertices.
        number_of_edges: the number of all partitions' edges in the kernel's direction; with all directions each edge
            counts twice.
        sums: the sums over all partitions, by name.
        superstep: the number of the superstep, from 1.

    Examples:
        >>> import numpy as np
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph, Vertex
        >>> from penstock.gelly.columnar import Kernel, run_kernel
        >>> class Degrees(Kernel):
        ...     def begin(self, graph):
        ...         self.degrees = np.array(graph.degrees)
        ...     def send(self, graph):
        ...         return self.degrees
        ...     def receive(self, graph, inbox):
        ...         return 0
        ...     def results(self, graph):
        ...         return [self.degrees]
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (2, 3)], env, vertex_value_initializer=int)
        >>> degrees = run_kernel(graph, Degrees(), max_iterations=1, name="Degrees", record=Vertex)
        >>> sorted(map(tuple, degrees.collect()))
        [(1, 1), (2, 1), (3, 0)]
    """

    def __init__(self, subtask: int, partitions: int) -> None:
        self.subtask = subtask
        self.partitions = partitions
        self.ids: Ids = []
        self.vertex_values: Any = None
        self.number_of_vertices = 0
        self.number_of_edges = 0
        self.superstep = 0
        self.sums: dict[str, float] = {}
        self._added: dict[str, float] = {}
        self._vertices: list[tuple[Ids, Any]] = []
        self._has_vertices = False
        self._edges: list[tuple[Ids, Ids, Any]] = []

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, name: str, number: float) -> None:
        """Add to a sum over all partitions."""
        self._added[name] = self._added.get(name, 0) + number

    def take_added(self) -> dict[str, float]:
        """Return the numbers added since the last call."""
        added, self._added = self._added, {}
        return added

    # --- loading -----------------------------------------------------------------------------------------------------

    def expect_vertices(self) -> None:
        """Expect an input of vertices; otherwise the edges determine the vertices."""
        self._has_vertices = True

    def load_vertices(self, batch: Batch) -> None:
        """Load records (id, value)."""
        ids, values = _columns(batch, 2)[:2]
        self._vertices.append((ids, values))

    def load_edges(self, batch: Batch, end: int) -> None:
        """Load records (source, target, value) that carry values from the source (end 0) or from the target (1)."""
        source, target, values = _columns(batch, 3)
        self._edges.append((target, source, values) if end else (source, target, values))

    def addresses(self) -> list[Any]:
        """Return, by partition, the vertex ids that the loaded edges lead to, and the number of edges to each."""
        ends = joined([columns[0] for columns in self._edges])
        targets = joined([columns[1] for columns in self._edges])
        self.edge_values = _together([columns[2] for columns in self._edges])
        self._edges = []
        different, codes = encoded(targets)
        owners = assign_owners(different, self.partitions)
        order = radix_argsort(owners)
        slot_of = np.empty(len(order), np.uint32)
        slot_of[order] = np.arange(len(order), dtype=np.uint32)
        slots = slot_of[codes]
        by_slot = radix_argsort(slots)
        self._ends, self._end_codes = encoded(ends)
        self._end_codes = self._end_codes[by_slot]
        self.edge_values = _taken(self.edge_values, by_slot)
        counts = np.bincount(slots, minlength=len(order)).astype(np.int64)
        self._counts = counts
        bounds = np.searchsorted(owners[order], np.arange(self.partitions + 1))
        self._bounds = bounds
        ordered = taken(different, order)
        return [
            (ordered[bounds[owner] : bounds[owner + 1]], counts[bounds[owner] : bounds[owner + 1]])
            for owner in range(self.partitions)
        ]

    def settle(self, addressed: Sequence[Any]) -> None:
        """Number the vertices, now that the addresses from all partitions have arrived."""
        if self._has_vertices:
            self._number_given()
        else:
            self.ids = encoded(joined([self._ends, *(ids for ids, _ in addressed)]))[0]
        size = len(self)
        place_of_end = find_positions(self.ids, self._ends)
        self.edge_sources = place_of_end[self._end_codes]
        self._drop_edges_from_nowhere()
        self._places = [find_positions(self.ids, ids) for ids, _ in addressed]
        self.degrees = np.bincount(self.edge_sources, minlength=size)
        self.in_degrees = np.zeros(size, np.int64)
        for positions, (_, counts) in zip(self._places, addressed, strict=True):
            present = positions >= 0
            self.in_degrees[positions[present]] += counts[present]
        self._counts_of_all = [counts for _, counts in addressed]
        self._all_there = [bool((part >= 0).all()) for part in self._places]
        self._starts = np.concatenate([[0], np.cumsum(self._counts)])[:-1]
        del self._ends, self._end_codes

    def initialize(self, value_of: Callable[[Any], Any]) -> None:
        """Compute the values of the vertices from their ids."""
        self.vertex_values = _to_number_array([value_of(vertex_id) for vertex_id in listed(self.ids)])

    def _number_given(self) -> None:
        ids = joined([columns[0] for columns in self._vertices])
        values = _together([columns[1] for columns in self._vertices])
        self._vertices = []
        self.ids, codes = encoded(ids)
        if values is not None:
            last = np.zeros(len(self.ids), np.int64)
            last[codes] = np.arange(len(codes))  # the last of several vertices with the same id counts
            values = _taken(values, last)
        self.vertex_values = values

    def _drop_edges_from_nowhere(self) -> None:
        """Drop edges whose first end is missing from the graph: they carry nothing."""
        present = self.edge_sources >= 0
        if present.all():
            return
        slots = np.repeat(np.arange(len(self._counts)), self._counts)[present]
        self._counts = np.bincount(slots, minlength=len(self._counts)).astype(np.int64)
        self.edge_sources = self.edge_sources[present]
        self.edge_values = _taken(self.edge_values, np.flatnonzero(present))

    # --- values along edges ------------------------------------------------------------------------------------------

    def scattered(self, values: Any, active: Any, along: Any, combine: Combine) -> list[Any]:
        """Return each partition's payload, or None: values, and their slots (None for all).

        With `Combine.NONE`, the number of values for each slot takes the place of the slots.
        """
        sources = self.edge_sources
        if not len(sources) or (active is not None and not active.any()):
            return [None] * self.partitions
        is_all = active is None or bool(active.all())
        counts, starts, edges = self._counts, self._starts, None
        if not is_all:
            sends = active[sources]
            edges = np.flatnonzero(sends)
            slots = np.repeat(np.arange(len(counts)), counts)[edges]
            counts = np.bincount(slots, minlength=len(counts))
            sources = sources[edges]
        per_edge = along(values[sources], self.edge_values if edges is None else _taken(self.edge_values, edges))
        used = np.flatnonzero(counts)
        if combine is Combine.NONE:
            ends = np.concatenate([[0], np.cumsum(counts)])
            return list(self._uncombined(per_edge, counts, ends))
        if edges is not None:
            starts = np.concatenate([[0], np.cumsum(counts)])[:-1]
        reduced = UFUNCS[combine].reduceat(per_edge, starts[used])
        return list(self._combined(reduced, used, len(used) == len(counts)))

    def _combined(self, reduced: Any, used: Any, is_dense: bool) -> Iterator[Any]:
        cuts = self._bounds if is_dense else np.searchsorted(used, self._bounds)
        for owner in range(self.partitions):
            part = reduced[cuts[owner] : cuts[owner + 1]]
            slots = None if is_dense else used[cuts[owner] : cuts[owner + 1]] - self._bounds[owner]
            yield (part, slots) if len(part) else None

    def _uncombined(self, per_edge: Any, counts: Any, ends: Any) -> Iterator[Any]:
        for owner in range(self.partitions):
            begin, end = self._bounds[owner], self._bounds[owner + 1]
            part = per_edge[ends[begin] : ends[end]]
            yield (part, counts[begin:end]) if len(part) else None

    def gathered(self, payloads: Sequence[Any], combine: Combine, kind: Any) -> Inbox:
        """Collect the values from all partitions; `kind` is the type of values if none arrived."""
        for payload in payloads:
            if payload is not None:
                kind = payload[0].dtype
        if combine is Combine.NONE:
            return self._all_gathered(payloads, kind)
        values = np.full(len(self), None if kind.kind == "O" else get_identity(combine, kind), kind)
        has = np.zeros(len(self), bool)
        combined = UFUNCS[combine]
        for positions, is_all_there, payload in zip(self._places, self._all_there, payloads, strict=True):
            if payload is None:
                continue
            part, slots = payload
            at = positions if slots is None else positions[slots]
            if not is_all_there:
                part, at = part[at >= 0], at[at >= 0]
            if kind.kind == "O":  # objects have no identity value
                both = has[at]
                values[at[~both]] = part[~both]
                part, at = part[both], at[both]
            values[at] = combined(values[at], part)  # no index occurs twice
            has[positions if slots is None else positions[slots]] = True
        return Inbox(values, has)

    def _all_gathered(self, payloads: Sequence[Any], kind: Any) -> Inbox:
        positions, parts = [np.zeros(0, np.int64)], [np.zeros(0, kind)]
        for mine, payload in zip(self._places, payloads, strict=True):
            if payload is not None:
                part, counts = payload
                at = np.repeat(mine, counts)
                positions.append(at[at >= 0])
                parts.append(part[at >= 0])
        at = np.concatenate(positions)
        counts = np.bincount(at, minlength=len(self))
        return Inbox(np.concatenate(parts)[radix_argsort(at)], counts > 0, np.concatenate([[0], np.cumsum(counts)]))


def _columns(batch: Batch, width: int) -> tuple[Any, ...]:
    """Return the columns of a batch, ids first. Records may lack the last column, which is then None."""
    ids = width - 1
    if isinstance(batch, ColumnBatch):
        columns = batch.columns.columns
        values = _numbers(columns[ids]) if len(columns) > ids else None
        return (*(ids_of_column(column) for column in columns[:ids]), values)
    lists = list(zip(*batch.values, strict=True))
    values = _to_number_array(lists[ids]) if len(lists) > ids else None
    return (*(to_id_column(column) for column in lists[:ids]), values)


def _numbers(column: Any) -> Any:
    if column.null_count == len(column):
        return None
    if column.null_count or not (np.issubdtype(kind := column.type.to_pandas_dtype(), np.number) or kind is np.bool_):
        return _to_number_array(column.to_pylist())
    return column.to_numpy(zero_copy_only=False)


def _to_number_array(values: Sequence[Any]) -> Any:
    kinds = set(map(type, values))
    if kinds == {type(None)}:
        return None
    if kinds <= {int, float} or kinds == {bool}:
        try:
            return np.array(values, np.float64 if float in kinds else None)
        except OverflowError:
            return list(values)
    return list(values)


def _together(parts: Sequence[Any]) -> Any:
    """Return several arrays or lists as one; None if all are None."""
    if all(part is None for part in parts):
        return None
    if all(isinstance(part, np.ndarray) for part in parts):
        joined_parts = np.concatenate(parts)
        return joined_parts if joined_parts.dtype != object else joined_parts.tolist()
    return [value for part in parts for value in (part.tolist() if isinstance(part, np.ndarray) else part)]


def _taken(values: Any, positions: Any) -> Any:
    if values is None:
        return None
    return values[positions] if isinstance(values, np.ndarray) else [values[position] for position in positions]


class Kernel(ABC):
    """Does the work of a partition in each superstep: `send` in all partitions, the exchange, then `receive`.

    Values for one vertex are combined before they leave a partition. The loop ends at the maximum number of supersteps,
    when no vertex is active, or when `is_converged` returns true. Every partition has its own copy, made by pickling,
    which keeps arrays of a value for each vertex in attributes. An array that `send` has returned must not be modified.

    Attributes:
        direction: the edges of a vertex that carry its value: outgoing, incoming, or all.
        combine: how several values for one vertex are combined.

    Examples:
        >>> import numpy as np
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph, Vertex
        >>> from penstock.gelly.columnar import Combine, Kernel, run_kernel
        >>> class Components(Kernel):
        ...     combine = Combine.MIN
        ...     def begin(self, graph):
        ...         self.label = np.array(graph.vertex_values)
        ...         self.changed = np.ones(len(graph), bool)
        ...     def send(self, graph):
        ...         return self.label, self.changed
        ...     def receive(self, graph, inbox):
        ...         self.changed = inbox.has & (inbox.values < self.label)
        ...         self.label = np.where(self.changed, inbox.values, self.label)
        ...         return int(self.changed.sum())
        ...     def results(self, graph):
        ...         return [self.label]
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (2, 3)], env, vertex_value_initializer=int)
        >>> least = run_kernel(graph, Components(), max_iterations=10, name="Components", record=Vertex)
        >>> sorted(map(tuple, least.collect()))
        [(1, 1), (2, 1), (3, 1)]
    """

    direction: ClassVar[EdgeDirection] = EdgeDirection.OUT
    combine: ClassVar[Combine] = Combine.SUM

    @abstractmethod
    def begin(self, graph: GraphArrays) -> None:
        """Prepare; the arrays are complete."""

    @abstractmethod
    def send(self, graph: GraphArrays) -> Any:
        """Return the value that each vertex sends along its edges: an array of n values of any numpy type.

        It may also return a tuple of this array and an array of n booleans: which vertices send.
        """

    def along_edges(self, values: Any, edge_values: Any) -> Any:
        """Transform values along edges: one for each edge, from the vertex at its origin. Unchanged by default.

        Args:
            values: a value for each edge; may be changed.
            edge_values: the values of the edges, in the same order: an array of numbers, a list of anything else, or
                None if edges have no values.
        """
        return values

    @abstractmethod
    def receive(self, graph: GraphArrays, inbox: Inbox) -> int:
        """Process the values that arrived; return how many vertices of the partition are active now."""

    def is_converged(self, sums: dict[str, float]) -> bool:
        """Return whether the previous superstep, which produced these sums, was the last one."""
        return False

    @abstractmethod
    def results(self, graph: GraphArrays) -> Sequence[Any]:
        """Return the columns of the result besides the ids: arrays or lists of n values."""

    def chosen(self, graph: GraphArrays) -> Any:
        """Return which vertices are in the result: an array of n booleans, or None for all."""
        return None


#: The inputs: vertices, edges by their source, edges by their target.
VERTICES, BY_SOURCE, BY_TARGET = 0, 1, 2
#: The values of vertices come from the input of vertices.
GIVEN: Final = "given"
_EMITTED_AT_A_TIME: Final = 4096


class KernelOperator(LockstepOperator):
    """See the module docstring.

    Args:
        kernel: the work of a superstep.
        max_iterations: the maximum number of supersteps; None for any number.
        name: the iteration's name in logs.
        record: makes a record of the result from an id and its values in the kernel's `results`.
        vertex_values: `GIVEN` if vertices have their own input. Otherwise the edges determine the vertices, and this
            returns their values by their ids, or is None for no values.
    """

    def __init__(
        self, kernel: Kernel, max_iterations: int | None, name: str, record: Callable[..., Any], vertex_values: Any
    ) -> None:
        self._kernel = kernel
        self._max_iterations = max_iterations
        self._name = name
        self._record = record
        self._vertex_values = vertex_values

    def open(self) -> None:
        """Begin without vertices."""
        self._graph = GraphArrays(self.context.subtask_index, self.context.parallelism)
        if self._vertex_values == GIVEN:
            self._graph.expect_vertices()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Load a part of the graph."""
        if not len(batch):
            return
        if input_index == VERTICES:
            self._graph.load_vertices(batch)
        else:
            self._graph.load_edges(batch, input_index - BY_SOURCE)

    def rounds(self) -> Generator[Round, Answer, None]:
        """Run all supersteps; emit the result at the end."""
        graph, kernel = self._graph, self._kernel
        answer = yield Round(graph.addresses())
        graph.settle(answer.payloads)
        if self._vertex_values not in (None, GIVEN):
            graph.initialize(method(self._vertex_values, "map"))
        kernel.begin(graph)
        nothing = [None] * graph.partitions
        answer = yield Round(nothing, (len(graph), int(graph.degrees.sum()), graph.take_added()))
        graph.number_of_vertices = sum(report[0] for report in answer.reports)
        graph.number_of_edges = sum(report[1] for report in answer.reports)
        graph.sums = _sums(report[2] for report in answer.reports)
        active, number, end = len(graph), 0, "the maximum"
        message = f"{graph.number_of_vertices} vertices, {graph.number_of_edges} edges"
        while number != self._max_iterations:
            begun_ms = self.context.clock.steady_ms()
            graph.superstep = number + 1
            sent = kernel.send(graph)
            values, mask = sent if isinstance(sent, tuple) else (sent, None)
            payloads = graph.scattered(values, mask, kernel.along_edges, kernel.combine)
            answer = yield Round(payloads, (active, graph.take_added(), values.dtype.str), self._line(message))
            sums = _sums(report[1] for report in answer.reports)
            active_in_all = sum(report[0] for report in answer.reports)
            if number and not active_in_all:
                end = "no vertex is active"
                break
            if number and kernel.is_converged(sums):
                end = "converged"
                break
            number += 1
            graph.sums = sums
            active = kernel.receive(graph, graph.gathered(answer.payloads, kernel.combine, values.dtype))
            seconds = (self.context.clock.steady_ms() - begun_ms) / 1000
            figures = "".join(f", {name} = {value:g}" for name, value in sums.items())
            message = f"superstep {number}: {active_in_all} vertices active{figures}, {seconds:.2f} s"
        yield Round(nothing, None, self._line(message))
        yield Round(nothing, None, self._line(f"ended after {number} supersteps: {end}"))
        for batch in self._results():
            self.output.collect(batch)

    def _line(self, text: str) -> str:
        return f"iteration {self._name!r}: {text}"

    def _results(self) -> Iterator[Batch]:
        columns, ids = list(self._kernel.results(self._graph)), self._graph.ids
        chosen = self._kernel.chosen(self._graph)
        if chosen is not None:
            positions = np.flatnonzero(chosen)
            ids = taken(ids, positions)
            columns = [
                column[positions] if isinstance(column, np.ndarray) else taken(column, positions) for column in columns
            ]
        if len(ids) and isinstance(ids, pa.Array) and all(map(_is_numbers, columns)):
            yield from self._columns([ids, *map(pa.array, columns)])
            return
        for begin in range(0, len(ids), _EMITTED_AT_A_TIME):
            part = slice(begin, begin + _EMITTED_AT_A_TIME)
            lists = [column[part].tolist() if isinstance(column, np.ndarray) else column[part] for column in columns]
            yield Batch(list(map(self._record, listed(ids[part]), *lists)))

    def _columns(self, columns: list[Any]) -> Iterator[Batch]:
        """Yield the records in columns, which become rows only on access."""
        names = getattr(self._record, "_fields", None) or [f"f{index}" for index in range(len(columns))]
        batch = pa.RecordBatch.from_arrays(columns, list(names))
        for begin in range(0, len(batch), COLUMN_BATCH_ROWS):
            yield ColumnBatch(RecordData(batch.slice(begin, COLUMN_BATCH_ROWS), self._record))


def _is_numbers(column: Any) -> bool:
    return isinstance(column, np.ndarray) and column.dtype.kind in "biuf" and column.ndim == 1


def _sums(parts: Iterator[dict[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for part in parts:
        for name, number in part.items():
            sums[name] = sums.get(name, 0) + number
    return sums


def run_kernel(
    graph: GraphBase,
    kernel: Kernel,
    max_iterations: int | None,
    name: str,
    record: Callable[..., Any],
    parallelism: int | None = None,
) -> DataStream:
    """Return a stream of the kernel's results. The kernel runs once, when a job reads the stream.

    Args:
        graph: the graph.
        kernel: the work of a superstep.
        max_iterations: the maximum number of supersteps; None for no limit.
        name: its name in plans, logs and errors.
        record: makes a record from an id and the values of the kernel's `results`; `Vertex` or another NamedTuple.
        parallelism: the number of partitions of the graph; None for the environment's parallelism.

    Raises:
        ValueError: if the maximum is negative.

    Examples:
        >>> import numpy as np
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.gelly import Graph, Vertex
        >>> from penstock.gelly.columnar import Combine, Kernel, run_kernel
        >>> class Least(Kernel):
        ...     combine = Combine.MIN
        ...     def begin(self, graph):
        ...         self.label = np.array(graph.vertex_values)
        ...         self.changed = np.ones(len(graph), bool)
        ...     def send(self, graph):
        ...         return self.label, self.changed
        ...     def receive(self, graph, inbox):
        ...         self.changed = inbox.has & (inbox.values < self.label)
        ...         self.label = np.where(self.changed, inbox.values, self.label)
        ...         return int(self.changed.sum())
        ...     def results(self, graph):
        ...         return [self.label]
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> graph = Graph.from_collection([(1, 2), (2, 3)], env, vertex_value_initializer=int)
        >>> least = run_kernel(graph, Least(), max_iterations=10, name="Least", record=Vertex)
        >>> sorted(map(tuple, least.collect()))
        [(1, 1), (2, 1), (3, 1)]
    """
    if max_iterations is not None and max_iterations < 0:
        raise WrongValueError(f"the maximum number of iterations must be 0 or more, not {max_iterations}")
    origin = graph.origin
    inputs = [] if origin.vertices is None else [Input(origin.vertices, by_id(0), VERTICES)]
    if kernel.direction is not EdgeDirection.IN:
        inputs.append(Input(origin.edges, by_id(0), BY_SOURCE))
    if kernel.direction is not EdgeDirection.OUT:
        inputs.append(Input(origin.edges, by_id(1), BY_TARGET))
    source = origin.initializer if origin.vertices is None else GIVEN
    operator = partial(KernelOperator, kernel, max_iterations, name, record, source)
    return in_step(operator, inputs, name, parallelism)


__all__ = ["Combine", "GraphArrays", "Inbox", "Kernel", "run_kernel"]
