"""The operator that runs a kernel superstep by superstep, in lockstep with its other subtasks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.codecs.column_data import COLUMN_BATCH_ROWS, RecordData
from penstock.core.columns.batch import ColumnBatch
from penstock.core.operators.lockstep import Answer, LockstepOperator, Round
from penstock.core.operators.record.stateless import method
from penstock.core.records import Batch
from penstock.gelly.columnar.arrays import GraphArrays
from penstock.gelly.columnar.ids import listed, taken
from penstock.gelly.columnar.kernel import Kernel

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
