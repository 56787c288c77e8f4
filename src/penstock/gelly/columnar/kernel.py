"""Graph algorithms that run in numpy: a superstep costs a few passes over arrays, and no call for each vertex.

A `Kernel` does the work of a partition in each superstep. The arrays of a partition are `GraphArrays`: its vertices by
number, 0 to n - 1, and their edges. A kernel keeps its own arrays of n values in attributes.

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

Runs a kernel over a graph.

The operator that runs a kernel superstep by superstep, in lockstep with its other subtasks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from penstock.base.errors import WrongValueError
from penstock.codecs.column_data import COLUMN_BATCH_ROWS, RecordData
from penstock.datastream.data_stream import DataStream
from penstock.gelly.base.elements import EdgeDirection, GraphBase
from penstock.gelly.base.streams import Input, by_id, in_step
from penstock.gelly.columnar.arrays import Combine, GraphArrays, Inbox, listed, taken
from penstock.runtime.columns.batch import ColumnBatch
from penstock.runtime.operators.lockstep import Answer, LockstepOperator, Round
from penstock.runtime.operators.record.stateless import method
from penstock.runtime.records import Batch


class Kernel(ABC):
    """See the module docstring. Every partition has its own copy, made by pickling.

    Attributes:
        direction: the edges of a vertex that carry its value: outgoing, incoming, or all.
        combine: how several values for one vertex are combined.
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
