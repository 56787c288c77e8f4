"""Steps that process rows one by one: filters, projections, table functions, grouping sets, repeated rows, and unions.

`CalcOperator` filters rows and computes columns. `CorrelateOperator` joins each row with the rows that a table function
returns for it, or with its elements (UNNEST). `ExpandOperator` expands rows for grouping sets: it emits each row once
for each set. The rules plan these steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias, TypeGuard

import numpy as np
import pyarrow as pa

from penstock.codecs.column_data import ChosenColumns, ColumnData
from penstock.runtime.columns import ColumnBatch, as_columns
from penstock.runtime.operators.base import StreamOperator, UserCodeError
from penstock.runtime.records import Batch
from penstock.sql.data.arrow import to_values
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.row_data import RowData, RowLayout
from penstock.sql.data.types import DataType
from penstock.sql.expressions import row_program
from penstock.sql.expressions.builder import Correlation
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Condition, Evaluator, compile_expressions
from penstock.sql.expressions.row_program import RowProgram, build_row_program
from penstock.sql.logical.explain import calc_text
from penstock.sql.logical.nodes import (
    INSERTS,
    ChangelogNormalize,
    Changes,
    Correlate,
    Expand,
    Filter,
    Node,
    Project,
    Replicate,
    SetOperation,
    Values,
    VectorSearchTableFunction,
)
from penstock.sql.optimizer.pushdown import is_identity
from penstock.sql.stream.changelog import ReplicateOperator, asks_key_alone, normalized
from penstock.sql.stream.planning.options import Optimization, of_connector
from penstock.sql.stream.planning.rule import Planning, Rule, Stream, name_columns
from penstock.sql.stream.rows.state_ttl import EvaluatingOperator, StreamSession
from penstock.sql.tables.vectors import as_correlate
from penstock.sql.typed import Field, Typed, conjuncts

#: Columns are cut lazily if the whole batch has at most this many times the chosen rows, because it stays in memory.
_PINNED_MAX: Final = 2


class CalcOperator(EvaluatingOperator):
    """Keeps the rows that satisfy a condition, and computes a column for each expression.

    Args:
        condition: None to keep all rows.
        expressions: None to keep the columns unchanged.
        names: the names of the output columns.
    """

    def __init__(
        self, condition: Typed | None, expressions: Sequence[Typed] | None, names: Sequence[str], session: StreamSession
    ) -> None:
        self._condition = condition
        self._expressions = None if expressions is None else tuple(expressions)
        self._names = list(names)
        self._session = session

    def open(self) -> None:
        """Create the evaluators of the expressions."""
        self._watermark: int | None = None
        session = self.running(self._session, lambda: self._watermark)
        conditions = [] if self._condition is None else conjuncts(self._condition)
        parts = compile_expressions([*conditions, *(self._expressions or ())], session)
        self._where = Condition(parts[: len(conditions)]) if conditions else None
        selected = self._selected = parts[len(conditions) :]
        self._select = None if self._expressions is None else Evaluator((), session, selected)
        expressions = self._expressions or ()
        read = {
            part.index
            for expression in expressions
            if not isinstance(expression, Field)
            for part in _fields(expression.walk())
        }
        #: for each expression, the column that it copies, if no computed expression reads it; None for a computed one
        self._columns = [
            expression.index if isinstance(expression, Field) and expression.index not in read else None
            for expression in expressions
        ]
        computed = [part for part, column in zip(selected, self._columns, strict=False) if column is None]
        self._has_columns = len(computed) < len(expressions)
        self._compute_others = Evaluator((), session, computed)
        #: builds the row program for the first batch of a few rows; jobs of large batches do not need it
        self._build_program: Callable[[Typed | None, Sequence[Typed]], RowProgram | None] | None = partial(
            build_row_program, session=session
        )
        self._program: RowProgram | None = None
        #: the types of the expressions that the program leaves to kernels, by their indexes, and their evaluator
        self._left: dict[int, DataType] = {}
        self._build_evaluator = partial(Evaluator, (), session)
        self._compute_left = self._build_evaluator(())
        #: of the rows that the program computes
        types = [expression.type for expression in expressions]
        self._layout = RowLayout(self._names if types else (), types)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Filter and compute a batch."""
        records = as_columns(batch, self.context.operator_name)
        program = self._find_program() if len(records) <= row_program.TUPLES_MAX else None
        if program is None or not program.takes(records.data):
            computed = self._by_kernels(records)
        else:
            computed = self._by_rows(program, records)
        if computed is not None:
            self.output.collect(computed)

    def _find_program(self) -> RowProgram | None:
        """Return the program for a few rows; None if kernels compute all that is to compute."""
        build, self._build_program = self._build_program, None
        if build is not None:
            expressions = self._expressions or ()
            self._program = build(self._condition, expressions)
            if self._program is None:
                self._program = self._build_partly(build, expressions)
        return self._program

    def _build_partly(
        self, build: Callable[[Typed | None, Sequence[Typed]], RowProgram | None], expressions: Sequence[Typed]
    ) -> RowProgram | None:
        """Return a program for the filter and the expressions that have a row form; None if it would compute nothing.

        Kernels compute the other expressions, such as calls of functions that take columns.
        """
        has_form = [build(None, [expression]) is not None for expression in expressions]
        left = {index: expressions[index].type for index, has in enumerate(has_form) if not has}
        formed = [expression for expression, has in zip(expressions, has_form, strict=True) if has]
        if self._condition is None and all(isinstance(expression, Field) for expression in formed):
            return None
        self._left = left
        self._compute_left = self._build_evaluator([self._selected[index] for index in left])
        return build(self._condition, formed)

    def resume_event_time(self, watermark: int) -> None:
        """Do nothing: as in Flink, CURRENT_WATERMARK is NULL after a restart until the next watermark."""

    def process_watermark(self, timestamp: int) -> None:
        """Record the watermark for CURRENT_WATERMARK."""
        self._watermark = timestamp
        super().process_watermark(timestamp)

    def _by_rows(self, program: RowProgram, records: ColumnBatch) -> ColumnBatch | None:
        """Filter and compute a few rows. Returns None if no row is left."""
        data, rowtimes, kinds = records.data, records.rowtimes, records.kinds
        try:
            chosen = program.choose(data)
            if chosen is not None and not chosen:
                return None
            rows = range(len(records)) if chosen is None else chosen
            is_whole = len(rows) == len(records)
            if self._expressions is None:
                return records if is_whole else records.take(np.array(chosen))
            tuples = program.project(data, rows)
            if self._left:
                tuples = self._with_left(tuples, data if is_whole else data.take(np.array(rows)), records)
        except TableRuntimeError:
            # Which error comes first does not depend on the size of a batch.
            return self._by_kernels(records)
        if not is_whole:
            rowtimes = None if rowtimes is None else rowtimes[rows]
            kinds = None if kinds is None else bytes([kinds[row] for row in rows])
        computed = ColumnBatch(RowData(self._layout, tuples), rowtimes, kinds)
        if is_whole:
            computed.origin = records.origin
        return computed

    def _with_left(
        self, tuples: list[tuple[Any, ...]], data: ColumnData, records: ColumnBatch
    ) -> list[tuple[Any, ...]]:
        """Return the rows with the values of the expressions that kernels compute."""
        try:
            arrays = self._compute_left(Columns(_Arrays(data), len(data)))
        except TableRuntimeError as error:
            raise self._failed(records) from error
        columns = list(zip(*tuples, strict=True)) if tuples[0] else []
        for (index, kind), array in zip(self._left.items(), arrays, strict=True):
            columns.insert(index, tuple(to_values(array, kind)))
        return list(zip(*columns, strict=True))

    def _failed(self, records: ColumnBatch) -> UserCodeError:
        return UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows")

    def _by_kernels(self, records: ColumnBatch) -> ColumnBatch | None:
        """Filter and compute a batch. Returns None if no row is left."""
        columns = Columns.of(records.columns)
        try:
            if self._where is not None:
                columns = self._where.chosen(columns)
                if not columns.rows:
                    return None
            computed = self._computed(records, columns)
        except TableRuntimeError as error:
            raise self._failed(records) from error
        if columns.numbers is None:
            computed.origin = records.origin
        return computed

    def _computed(self, records: ColumnBatch, columns: Columns) -> ColumnBatch:
        """Return the batch of the chosen rows. Columns that no expression reads are not cut."""
        chosen = columns.numbers
        rowtimes, kinds = records.rowtimes, records.kinds
        if chosen is not None:
            rowtimes = None if rowtimes is None else rowtimes[chosen]
            kinds = None if kinds is None else np.frombuffer(kinds, np.uint8)[chosen].tobytes()
            if len(chosen) * _PINNED_MAX >= len(records) and (self._select is None or self._has_columns):
                return ColumnBatch(self._uncut(records, columns, chosen), rowtimes, kinds)
        if self._select is None:
            return records if chosen is None else records.take(chosen)
        arrays = self._select(columns)
        if not arrays:
            # Rows without columns still exist, for consumers that count them.
            return ColumnBatch(pa.RecordBatch.from_arrays([pa.nulls(columns.rows)], ["c0"]), rowtimes, kinds)
        return ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), rowtimes, kinds)

    def _uncut(self, records: ColumnBatch, columns: Columns, chosen: Any) -> ChosenColumns:
        """Return the chosen rows, cutting only the columns that are computed."""
        if self._select is None:
            names = records.columns.schema.names
            whole_columns = [columns.whole(column) for column in range(len(names))]
            return ChosenColumns(whole_columns, names, chosen, {}, columns.mask)
        computed = iter(self._compute_others(columns))
        known = {index: next(computed) for index, column in enumerate(self._columns) if column is None}
        # Arrow's `take` is several times faster for columns without NULLs.
        whole_columns = [None if column is None else columns.whole(column) for column in self._columns]
        return ChosenColumns(whole_columns, self._names, chosen, known, columns.mask)


class _Arrays(Sequence[pa.Array]):
    """The columns of a batch, each built when it is read."""

    def __init__(self, data: ColumnData) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data.names)

    def __getitem__(self, index: Any) -> Any:
        return self._data.column(index)


def _fields(expressions: Iterable[Typed]) -> list[Field]:
    return [expression for expression in expressions if isinstance(expression, Field)]


class CorrelateOperator(EvaluatingOperator):
    """Emits the columns of its input and of the function. An output row has the kind and time of its input row.

    The function is called again for retracted rows, and must return the same rows as for the insert. So a
    non-deterministic function requires an append-only input, as in Flink.

    Args:
        node: defines the join; its inputs are ignored.
        names: the names of the output columns.
    """

    def __init__(self, node: Correlate, names: Sequence[str], session: StreamSession) -> None:
        # Workers do not need the input of the node.
        self._node = replace(node, input=Values(schema=node.input.schema, rows=()))
        self._names = list(names)
        self._session = session

    def open(self) -> None:
        """Open the function, and create the evaluators of its operands and the condition."""
        self._watermark: int | None = None
        self._correlation = Correlation(self._node, self.running(self._session, lambda: self._watermark))

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Join a batch."""
        records = as_columns(batch, self.context.operator_name)
        try:
            parents, results = self._correlation(Columns.of(records.columns))
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
        if not len(parents):
            return
        rows = records.take(parents)
        width = len(self._node.input.schema)
        arrays = [*rows.columns.columns[:width], *results]
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), rows.rowtimes, rows.kinds))

    def resume_event_time(self, watermark: int) -> None:
        """Do nothing: as in Flink, CURRENT_WATERMARK is NULL after a restart until the next watermark."""

    def process_watermark(self, timestamp: int) -> None:
        """Record the watermark for CURRENT_WATERMARK."""
        self._watermark = timestamp
        super().process_watermark(timestamp)


class ExpandOperator(StreamOperator):
    """Emits the rows of a batch once for each projection, one projection after another.

    Args:
        projections: the expressions of the output columns, for each projection.
        names: the names of the output columns.
    """

    def __init__(self, projections: Sequence[Sequence[Typed]], names: Sequence[str], session: StreamSession) -> None:
        self._projections = tuple(map(tuple, projections))
        self._names = list(names)
        self._session = session

    def open(self) -> None:
        """Create the evaluators of the expressions."""
        session = self._session.open(self.context.now_ms)
        self._evaluators = [Evaluator(projection, session) for projection in self._projections]

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Repeat the rows of a batch."""
        records = as_columns(batch, self.context.operator_name)
        columns = Columns.of(records.columns)
        try:
            parts = [evaluate(columns) for evaluate in self._evaluators]
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
        arrays = [pa.concat_arrays(list(column)) for column in zip(*parts, strict=True)]
        times = None if records.rowtimes is None else np.tile(records.rowtimes, len(parts))
        kinds = None if records.kinds is None else records.kinds * len(parts)
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), times, kinds))


CalcNode: TypeAlias = Project | Filter


class CalcRule(Rule[CalcNode]):
    """Consecutive filters and projections, as one step."""

    nodes = (Project, Filter)

    def changes(self, node: CalcNode, planning: Planning) -> Changes:
        """See `Rule`."""
        return planning.changes(planning.extract_calc(node).input)

    def asks_before(self, node: CalcNode, planning: Planning, wants_before: bool) -> bool:
        """Require UPDATE_BEFORE for updates of a filter's input: the previous row may pass although the new row does
        not.
        """
        is_of_table = _completes_upserts(planning.extract_calc(node).input, planning)
        return wants_before or (isinstance(node, Filter) and planning.updates(node.input) and not is_of_table)

    def stream(self, node: CalcNode, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        calc = planning.extract_calc(node)
        condition, rows = calc.condition, calc.input
        if not _completes_upserts(rows, planning) or condition is None or not planning.updates(rows):
            inner = planning.stream(rows, wants_before or (condition is not None and planning.updates(rows)))
        elif asks_key_alone(condition, rows.key):
            inner = planning.stream(rows, wants_before)
        else:
            # The normalize step evaluates the filter, and does not store rows that fail it.
            inner, condition = normalized(rows, planning, wants_before, condition), None
        if condition is None and (calc.expressions is None or is_identity(calc.expressions, rows.schema)):
            return Stream(inner.upstreams, node.schema, inner.changes, inner.has_before)
        operator = partial(CalcOperator, condition, calc.expressions, name_columns(node.schema), planning.session)
        text = calc_text(rows, condition, calc.expressions, node.schema)
        upstreams = planning.step("Calc", operator, inner.upstreams, inner.changes != INSERTS, description=text)
        return Stream(upstreams, node.schema, inner.changes, inner.has_before)


def _completes_upserts(node: Node, planning: Planning) -> TypeGuard[ChangelogNormalize]:
    """Return whether a node completes upserts and can evaluate the filter above it."""
    return isinstance(node, ChangelogNormalize) and planning.options.allows(Optimization.FILTERED_UPSERTS)


class CorrelateRule(Rule[Correlate]):
    """Each row with the rows that a table function returns for it."""

    nodes = (Correlate,)

    def changes(self, node: Correlate, planning: Planning) -> Changes:
        """See `Rule`."""
        return planning.changes(node.input)

    def asks_before(self, node: Correlate, planning: Planning, wants_before: bool) -> bool:
        """Require UPDATE_BEFORE for updates: the new row may yield other or fewer rows, so the previous rows are
        retracted.
        """
        return wants_before or planning.updates(node.input)

    def stream(self, node: Correlate, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        inner = planning.stream(node.input, self.asks_before(node, planning, wants_before))
        operator = partial(CorrelateOperator, node, name_columns(node.schema), planning.session)
        kind = "AsyncCorrelate" if node.user is not None and node.user.is_async else "Correlate"
        upstreams = planning.step(kind, operator, inner.upstreams, inner.changes != INSERTS)
        return Stream(upstreams, node.schema, inner.changes, inner.has_before)


class VectorSearchRule(Rule[VectorSearchTableFunction]):
    """Each row with the rows of a table whose vectors are nearest."""

    nodes = (VectorSearchTableFunction,)

    def changes(self, node: VectorSearchTableFunction, planning: Planning) -> Changes:
        """Accept inserts alone, as in Flink: the table may have changed when a row is retracted."""
        planning.accept("VectorSearchTableFunction", node.input, INSERTS)
        return INSERTS

    def stream(self, node: VectorSearchTableFunction, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        correlate = as_correlate(node, lambda scan, column: planning.lookups.vectors(of_connector(scan), column))
        inner = planning.stream(node.input, False)
        operator = partial(CorrelateOperator, correlate, name_columns(node.schema), planning.session)
        return Stream(planning.step("Vector Search", operator, inner.upstreams), node.schema, INSERTS, False)


class UnionRule(Rule[SetOperation]):
    """UNION ALL; `planning.rule` has rewritten the other set operations to joins and groups."""

    nodes = (SetOperation,)

    def changes(self, node: SetOperation, planning: Planning) -> Changes:
        """See `Rule`."""
        changes = INSERTS
        for part in node.parts:
            changes |= planning.changes(part)
        return changes

    def stream(self, node: SetOperation, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        parts = [planning.stream(part, wants_before) for part in node.parts]
        has_before = any(part.has_before for part in parts)
        upstreams = tuple(upstream for part in parts for upstream in part.upstreams)
        return Stream(upstreams, node.schema, planning.changes(node), has_before)


class ExpandRule(Rule[Expand]):
    """Rows repeated once for each of several sets of keys."""

    nodes = (Expand,)

    def changes(self, node: Expand, planning: Planning) -> Changes:
        """See `Rule`."""
        return planning.changes(node.input)

    def stream(self, node: Expand, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        inner = planning.stream(node.input, wants_before)
        operator = partial(ExpandOperator, node.projections, name_columns(node.schema), planning.session)
        upstreams = planning.step("Expand", operator, inner.upstreams, inner.changes != INSERTS)
        return Stream(upstreams, node.schema, inner.changes, inner.has_before)


class ReplicateRule(Rule[Replicate]):
    """Rows repeated as often as a column says."""

    nodes = (Replicate,)

    def changes(self, node: Replicate, planning: Planning) -> Changes:
        """See `Rule`."""
        return planning.changes(node.input)

    def asks_before(self, node: Replicate, planning: Planning, wants_before: bool) -> bool:
        """Require UPDATE_BEFORE for updates, because the new row may be repeated less often."""
        return planning.updates(node.input)

    def stream(self, node: Replicate, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        inner = planning.stream(node.input, self.asks_before(node, planning, wants_before))
        operator = partial(ReplicateOperator, name_columns(node.schema))
        upstreams = planning.step("Replicate", operator, inner.upstreams, inner.changes != INSERTS)
        return Stream(upstreams, node.schema, inner.changes, inner.has_before)
