"""The bridge between streams and tables: records as rows and back, event time, and the rules that plan sources.

`RecordStream` is a data stream that is read as a table, and `FromRecordsOperator` converts its records to columns.
`RecordTarget` determines how rows become records, and `ToRecordsOperator` converts them. `SourceWatermarkOperator` sets
the event time of rows whose source emits watermarks itself. `TableTime` computes the event time of a table where the
table is read, separately for each split.

The rules plan the reading of DataStreams, watermarks, tables, VALUES, and in-memory rows of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.base.typeinfo import TypeInformation
from penstock.base.watermark_strategy import BatchWatermarks, WatermarkStrategy
from penstock.connectors.collection import ColumnsSource
from penstock.plan.transformation import Upstream
from penstock.runtime.columns import ColumnBatch, as_columns, get_row_kinds
from penstock.runtime.operators.base import StreamOperator, UserCodeError
from penstock.runtime.operators.watermarks import EVENT_TIME, AssignerError
from penstock.runtime.records import Batch
from penstock.sql.data.arrow import milliseconds
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator, columns_of_rows, is_pure
from penstock.sql.expressions.row_program import RowProgram, build_row_program
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.explain import node_text
from penstock.sql.logical.nodes import DELETE, INSERTS, SHORT, ArrowRows, Changes, Node, RowSchema, Scan, Values
from penstock.sql.logical.records import RecordLayout, RecordShape
from penstock.sql.stream.calc import CalcOperator
from penstock.sql.stream.changelog import DropUpdateBeforeOperator, goes_by_key
from penstock.sql.stream.planning.options import ALIGNMENT_GROUP, WatermarkOptions, read_parallelism, watermark_options
from penstock.sql.stream.planning.rule import Factory, Planning, Rule, Stream, name_columns
from penstock.sql.stream.rows import watermarks
from penstock.sql.stream.rows.rows import without_update_before
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.tables.tables import TableReader
from penstock.sql.typed import Field, FunctionCall, Typed, transformed


@dataclass(frozen=True, eq=False)
class RecordStream:
    """The source of records, their layout, and the row kinds that they may have, one byte each.

    Instances are compared by identity, because their columns do not identify their records.
    """

    upstreams: tuple[Upstream, ...]
    layout: RecordLayout
    kinds: bytes


class FromRecordsOperator(StreamOperator):
    """Converts records to columns and keeps their timestamps.

    Args:
        layout: the layout of the records.
        kinds: the row kinds that records may have.
        names: the names of the columns within streams.
        required: the indexes of NOT NULL columns, each with its name in the table.
        key: the columns that a deletion has; empty if it has all.
        session: provides the time zone of times that have none.
    """

    def __init__(
        self,
        layout: RecordLayout,
        kinds: bytes,
        names: Sequence[str],
        required: Sequence[tuple[int, str]],
        key: Sequence[int],
        session: StreamSession,
    ) -> None:
        self._layout = layout
        self._allowed = kinds
        self._names = list(names)
        self._required = list(required)
        self._key = frozenset(key)
        self._session = session

    def open(self) -> None:
        """Create the converter of records."""
        self._columns = self._layout.open(self._session.zone, self.context.operator_name)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Convert records to columns."""
        kinds = get_row_kinds(batch)
        if kinds is not None:
            self._check_kinds(kinds, batch)
        columns = self._columns(batch)
        for column_index, name in self._required:
            if columns[column_index].null_count:
                self._check_null(columns[column_index], column_index, name, kinds, batch)
        if isinstance(batch, ColumnBatch):
            times = batch.rowtimes
        else:
            times = None if batch.timestamps is None else np.asarray(batch.timestamps, np.int64)
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(columns, self._names), times, kinds))

    def _check_kinds(self, kinds: bytes, batch: Batch) -> None:
        for kind, record in zip(kinds, batch.values, strict=True):
            if kind not in self._allowed:
                known = ", ".join(SHORT[allowed] for allowed in self._allowed)
                raise UserCodeError(self.context.operator_name, record) from TableRuntimeError(
                    f"the stream may have rows of the kinds {known} and has one of the kind {SHORT[kind]}: read it "
                    "with from_changelog_stream and a changelog mode that has this kind"
                )

    def _check_null(self, column: pa.Array, column_index: int, name: str, kinds: bytes | None, batch: Batch) -> None:
        for index, valid in enumerate(column.is_valid().to_pylist()):
            has_key_alone = self._key and column_index not in self._key and kinds is not None and kinds[index] == DELETE
            if not valid and not has_key_alone:
                raise UserCodeError(self.context.operator_name, batch.values[index]) from TableRuntimeError(
                    f"column '{name}' is NOT NULL, and the record has no value for it: declare the column as one that "
                    "may be NULL, in a Schema or in the type of the stream"
                )


class ToRecordsOperator(StreamOperator):
    """Converts rows to records. Watermarks pass unchanged.

    Args:
        shape: the shape of a record.
        rowtime: the index of the column that becomes the timestamp of a record; None for records without timestamps.
        keeps_before: whether previous rows of updates (UPDATE_BEFORE) become records. Otherwise they are deletions:
            the query sends them only if no new row needs to follow, such as in a join with a further condition.
        session: provides the time zone of instants.
        names: the names of the columns, for errors.
    """

    def __init__(
        self,
        shape: RecordShape,
        rowtime: int | None,
        keeps_before: bool,
        session: StreamSession,
        names: Sequence[str],
    ) -> None:
        self._names = tuple(names)
        self._shape = shape
        self._rowtime = rowtime
        self._keeps_before = keeps_before
        self._session = session

    def open(self) -> None:
        """Create the converter of values."""
        self._records = self._shape.open(self._session.zone)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Convert columns to records."""
        records = as_columns(batch, self.context.operator_name)
        if not self._keeps_before:
            records = without_update_before(records)
        if len(records):
            self.output.collect(Batch(self._records(records), self._times(records)))

    def _times(self, batch: ColumnBatch) -> list[int] | None:
        if self._rowtime is None:
            return None
        times = batch.columns.column(self._rowtime)
        watermarks.check_times(
            batch, self._rowtime, self._names, self.context.operator_name, "a stream with timestamps"
        )
        return list(milliseconds(times).tolist())


@dataclass(frozen=True)
class RecordTarget:
    """A plan and the records to create from its rows.

    Attributes:
        plan: produces the rows.
        schema: the columns as declared by the user; NULL in a NOT NULL column fails the job.
        shape: the shape of a record.
        type_info: the type of the records.
        accepts: the changes that the stream accepts.
        wants_before: whether updates include the previous row (UPDATE_BEFORE).
        rowtime: the index of the column that becomes the timestamp of a record, if any.
        key: the indexes of the primary key columns if rows are replaced by key; else empty.
        title: the name of the stream in errors.
    """

    plan: Node
    schema: RowSchema
    shape: RecordShape
    type_info: TypeInformation
    accepts: Changes = INSERTS
    wants_before: bool = True
    rowtime: int | None = None
    key: tuple[int, ...] = ()
    title: str = "*anonymous_datastream_sink*"

    def operator(self, session: StreamSession) -> Callable[[], StreamOperator]:
        """Return the factory of the operator."""
        names = tuple(self.plan.schema.names)
        return partial(ToRecordsOperator, self.shape, self.rowtime, self.wants_before, session, names)

    def check_key(self, changes: Changes, keys: Callable[[], frozenset[frozenset[int]]]) -> None:
        """Raise `UnsupportedError` if rows replace others by a key of the plan that is not the declared one."""
        if self.wants_before or changes == INSERTS or frozenset(self.key) in keys():
            return
        names = ", ".join(self.schema.names[index] for index in self.key)
        raise UnsupportedError(
            f"the rows of the table are not told apart by the primary key ({names}), so without the rows before "
            "updates nobody can tell which row is replaced: use ChangelogMode.all(), or declare the columns by which "
            "the query groups its rows as the primary key"
        )


def is_source_watermark(expression: Typed) -> bool:
    """Return whether an expression is SOURCE_WATERMARK(), possibly in a cast."""
    while isinstance(expression, FunctionCall) and expression.function == "CAST":
        (expression,) = expression.operands
    return isinstance(expression, FunctionCall) and expression.function == "SOURCE_WATERMARK"


class SourceWatermarkOperator(StreamOperator):
    """Sets the timestamps of rows from their time attribute. Watermarks pass unchanged.

    Args:
        column: the index of the time attribute.
        null_times: handles rows with a NULL event time.
    """

    makes_watermarks = True

    def __init__(self, column: int, null_times: watermarks.NullTimes) -> None:
        self._column = column
        self._null_times = null_times

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Emit the rows with their timestamps."""
        records = as_columns(batch, self.context.operator_name)
        try:
            timed = self._null_times.take_out(records, records.data.column(self._column))
        except watermarks.NullTimeError as error:
            raise UserCodeError(self.context.operator_name, error.record) from error
        self.output.collect(timed.batch)


@dataclass(frozen=True)
class TableTime:
    """How to compute the event time of a table's rows.

    Args:
        time: the event time, an expression over the columns that are read.
        watermark: the watermark, an expression over these columns followed by the time.
        width: the number of columns that are read.
        session: the session of the reading operator.
        null_times: handles rows with a NULL event time.
        gap: the number of rows between watermarks; 0 for one watermark after each batch.
    """

    time: Typed
    watermark: Typed
    width: int
    session: StreamSession
    null_times: watermarks.NullTimes
    gap: int = 0

    def strategy(self) -> WatermarkStrategy:
        """Return the watermark strategy for a source."""
        return WatermarkStrategy.for_batches(partial(SplitWatermarks, self))


class SplitWatermarks(BatchWatermarks):
    """Computes times and watermarks of one split."""

    def __init__(self, of_table: TableTime) -> None:
        session = of_table.session.open(_no_clock)
        self._evaluate = Evaluator([of_table.time], session)
        marks = Evaluator([of_table.watermark], session)
        self._row_times = watermarks.RowTimes(of_table.width, of_table.watermark, marks, of_table.gap)
        self._program: RowProgram | None = None
        if watermarks.has_milliseconds(of_table.time.type) and not self._row_times.needs_columns:
            self._program = build_row_program(None, [of_table.time], session)
        self._null_times = of_table.null_times
        self.side_tag = watermarks.REJECTED_ROWS if of_table.null_times.is_rejecting else None
        self._timed: watermarks.TimedRows | None = None

    def assign(self, batch: Any) -> ColumnBatch:
        """See `BatchWatermarks`."""
        records = as_columns(batch, "a table")
        self._timed = self._assign_few(records)
        if self._timed is not None:
            return self._timed.batch
        (times,) = self._evaluate(Columns.of(records.columns))
        try:
            timed = self._timed = self._null_times.take_out(records, times)
        except watermarks.NullTimeError as error:
            raise AssignerError(error.record, EVENT_TIME) from error
        return timed.batch

    def _assign_few(self, records: ColumnBatch) -> watermarks.TimedRows | None:
        """Compute the times of a few rows in Python; return None if there are more, or NULL, or an error."""
        program = self._program
        if program is None or not program.takes(records.data):
            return None
        try:
            times = [time for (time,) in program.project(records.data, range(len(records)))]
        except TableRuntimeError:
            return None  # the kernels report it
        return watermarks.assign_times(records, times)

    def left_out(self) -> ColumnBatch | None:
        """See `BatchWatermarks`."""
        return None if self._timed is None else self._timed.rejected

    def follow(self, batch: Any) -> Iterable[tuple[ColumnBatch, int | None]]:
        """See `BatchWatermarks`. The batch must be the one whose times were computed last."""
        assert self._timed is not None
        if self._timed.times is None:
            return self._row_times.follow(batch, None)
        return self._row_times.follow(batch, Columns([*batch.columns.columns, self._timed.times], len(batch)))


def _no_clock() -> int:
    raise UnsupportedError("a watermark that is worked out where a table is read cannot ask for the time")


_REMEDY: Final = (
    "Every row of a table with a watermark needs an event time. Set the table's option 'scan.watermark.null-time' to "
    "'drop' to leave out and count such rows, or to 'route' to write them into another table"
)
_REMEDY_OF_STREAM: Final = (
    "Every row of a table with a watermark needs an event time: filter such records out of the stream, or declare the "
    "watermark for another column"
)


class StreamRowsRule(Rule[logical.StreamRows]):
    """DataStreams, whose records become columns."""

    nodes = (logical.StreamRows,)

    def changes(self, node: logical.StreamRows, planning: Planning) -> Changes:
        """See `Rule`."""
        return node.changes

    def stream(self, node: logical.StreamRows, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        stream, names = node.stream, name_columns(node.schema)
        assert isinstance(stream, RecordStream)
        required = [(index, column.name) for index, column in enumerate(node.schema) if not column.type.is_nullable]
        key = node.key if node.is_upsert else ()
        operator = partial(FromRecordsOperator, stream.layout, stream.kinds, names, required, key, planning.session)
        upstreams = planning.step("From Records", operator, stream.upstreams, node.changes != INSERTS)
        return Stream(upstreams, node.schema, node.changes, node.has_before)


class RejectedRowsRule(Rule[logical.RejectedRows]):
    """The rejected rows of a table, which have a NULL event time."""

    nodes = (logical.RejectedRows,)

    def changes(self, node: logical.RejectedRows, planning: Planning) -> Changes:
        """Return the table's changelog mode, or inserts if no previous rows are known."""
        reader = planning.table(node.table)
        return INSERTS if _are_inserts(reader, planning) else reader.changes

    def stream(self, node: logical.RejectedRows, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`. Keeps UPDATE_BEFORE, because the new row may have an event time and thus not be rejected."""
        return planning.rejected(node)


class WatermarkRule(Rule[logical.WatermarkAssigner]):
    """Watermark assigners."""

    nodes = (logical.WatermarkAssigner,)

    def changes(self, node: logical.WatermarkAssigner, planning: Planning) -> Changes:
        """Return the changelog mode.

        In a table updated by key, a row with a NULL event time deletes the previous row.
        """
        changes, leaf = planning.changes(node.input), _leaf(node)
        if node.drops_null and isinstance(leaf, logical.Scan) and _is_by_key(planning.table(leaf), planning):
            changes |= Changes.DELETE
        return changes

    def asks_before(self, node: logical.WatermarkAssigner, planning: Planning, wants_before: bool) -> bool:
        """Require UPDATE_BEFORE as for a filter: the previous row may have an event time if the new row has NULL."""
        return _asks_before(node, planning, wants_before)

    def stream(self, node: logical.WatermarkAssigner, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        return with_watermarks(node, planning, wants_before)


def _asks_before(node: logical.WatermarkAssigner, planning: Planning, wants_before: bool) -> bool:
    return wants_before or (node.drops_null and planning.updates(node.input))


def with_watermarks(node: logical.WatermarkAssigner, planning: Planning, wants_before: bool) -> Stream:
    """Return the stream of the input with watermarks, generated in the source if possible, otherwise in a step above
    it.

    Raises:
        ValidationError: for SOURCE_WATERMARK() of a table that is not a DataStream.
        UnsupportedError: for a table with watermark alignment whose source does not generate watermarks.
    """
    options = WatermarkOptions()
    if not is_source_watermark(node.expression):
        options = watermark_options(node, planning.options.idle_ms)
        stream = _made_in_source(node, options, planning, wants_before)
        if stream is not None:
            return stream
    inner = planning.stream(node.input, _asks_before(node, planning, wants_before))
    operator = _watermarks(node, options, planning)
    upstreams = planning.step("Watermark Assigner", operator, inner.upstreams, inner.changes != INSERTS)
    if node.route is not None:
        rejected = Stream(_left_out(upstreams), node.schema, planning.changes(node.route.input), inner.has_before)
        planning.route(node.route, lambda: rejected)
    return Stream(upstreams, node.schema, planning.changes(node), inner.has_before)


def _made_in_source(
    node: logical.WatermarkAssigner, options: WatermarkOptions, planning: Planning, wants_before: bool
) -> Stream | None:
    """Return the rows of a table whose source generates watermarks for each split; None if it does not."""
    calc = planning.extract_calc(node.input)
    if not isinstance(calc.input, logical.Scan) or calc.condition is not None:
        return None
    scan, columns = calc.input, calc.expressions or tuple(calc.input.schema.fields())
    time, width = columns[node.column], len(scan.schema)
    expressions = [*columns[: node.column], Field(time.type, width), *columns[node.column + 1 :]]
    watermark = transformed(node.expression, lambda part: expressions[part.index] if isinstance(part, Field) else part)
    if not all(map(is_pure, (time, watermark))):
        return None
    null_times = _null_times(node, scan.schema.names, planning)
    of_table = TableTime(time, watermark, width, planning.session, null_times, options.gap)
    before = _asks_before(node, planning, wants_before)
    scan_stream = planning.timed(scan, options.applied(of_table.strategy()), before)
    if scan_stream is None:
        return None

    def computed(stream: Stream) -> Stream:
        """Compute the table's columns from the scanned columns."""
        if calc.expressions is None:
            return replace(stream, schema=node.schema)
        operator = partial(CalcOperator, None, columns, name_columns(node.schema), planning.session)
        upstreams = planning.step("Calc", operator, stream.upstreams, stream.changes != INSERTS)
        return replace(stream, upstreams=upstreams, schema=node.schema)

    timed = replace(computed(scan_stream), changes=planning.changes(node))
    if node.route is not None:
        reader, upstreams = planning.table(scan), _left_out(_sources(scan_stream.upstreams))
        rejected = Stream(upstreams, scan.schema, planning.changes(node.route.input), reader.has_before)
        planning.route(node.route, lambda: computed(rejected))
    return timed


def _left_out(upstreams: Iterable[Upstream]) -> tuple[Upstream, ...]:
    """Return the side outputs with the rejected rows of these streams."""
    return tuple(replace(upstream, side_tag=watermarks.REJECTED_ROWS) for upstream in upstreams)


def _sources(upstreams: Iterable[Upstream]) -> Iterator[Upstream]:
    """Yield the sources of these streams, whose steps have one input each."""
    for upstream in upstreams:
        below = upstream.transformation.inputs
        if below:
            yield from _sources(below)
        else:
            yield upstream


def _watermarks(node: logical.WatermarkAssigner, options: WatermarkOptions, planning: Planning) -> Factory:
    """Return the operator that generates watermarks."""
    leaf, null_times = _leaf(node), _null_times(node, node.input.schema.names, planning)
    if not is_source_watermark(node.expression):
        if options.alignment is not None:
            raise UnsupportedError(
                f"option '{ALIGNMENT_GROUP.key()}' of table {node_text(leaf)} is not supported: its watermarks are not "
                "made where it is read, because its connector does not do that, or WATERMARK FOR calls a function of "
                "the program or asks for the time. Leave the option out, or read the source as a DataStream with "
                "with_watermark_alignment"
            )
        return partial(
            watermarks.WatermarkAssignerOperator,
            node.column,
            node.expression,
            planning.session,
            null_times,
            options.gap,
            options.idle_ms,
        )
    if not isinstance(leaf, logical.StreamRows):
        raise ValidationError(
            "SOURCE_WATERMARK() takes the watermarks that a source sends itself, and only streams of the program do, "
            f"see from_data_stream: {node_text(leaf)}. Declare the watermark with an expression, such as "
            "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
        )
    return partial(SourceWatermarkOperator, node.column, null_times)


def _leaf(node: logical.Node) -> logical.Node:
    """Return the table or stream below a watermark assigner."""
    while node.inputs():
        (node,) = node.inputs()
    return node


def _null_times(node: logical.WatermarkAssigner, names: Sequence[str], planning: Planning) -> watermarks.NullTimes:
    """Return how to handle rows with a NULL event time. `names`: the columns of the rows at that point, for errors."""
    leaf, column = _leaf(node), node.schema.names[node.column]
    if not isinstance(leaf, logical.Scan):
        title = leaf.title if isinstance(leaf, logical.StreamRows) else node_text(leaf)
        return watermarks.NullTimes(column, title, tuple(names), _REMEDY_OF_STREAM)
    reader = planning.table(leaf)
    return watermarks.NullTimes(
        column,
        ".".join(leaf.path),
        tuple(names),
        _REMEDY,
        is_rejecting=node.drops_null,
        by_key=_is_by_key(reader, planning),
        as_inserts=_are_inserts(reader, planning),
    )


def _are_inserts(reader: TableReader, planning: Planning) -> bool:
    """Return whether rejected rows are written as inserts, because the table has no previous rows of updates."""
    return _is_by_key(reader, planning) and not reader.has_before


def _is_by_key(reader: TableReader, planning: Planning) -> bool:
    return goes_by_key(reader, planning.options.has_duplicates)


class ValuesRule(Rule[Values]):
    """VALUES, and queries without FROM."""

    nodes = (Values,)

    def changes(self, node: Values, planning: Planning) -> Changes:
        """See `Rule`."""
        return INSERTS

    def stream(self, node: Values, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        names = name_columns(node.schema)
        if not names:
            # A query without FROM reads one row with an unused column.
            batch = pa.RecordBatch.from_arrays([pa.nulls(len(node.rows))], ["c0"])
            return planning.source("Values", TableReader(ColumnsSource(batch)), node.schema)
        arrays = columns_of_rows(node.rows, node.schema.types, planning.calls.session)
        batch = pa.RecordBatch.from_arrays(arrays, names)
        return planning.source("Values", TableReader(ColumnsSource(batch)), node.schema)


class ArrowRowsRule(Rule[ArrowRows]):
    """In-memory rows of the program."""

    nodes = (ArrowRows,)

    def changes(self, node: ArrowRows, planning: Planning) -> Changes:
        """See `Rule`."""
        return INSERTS

    def stream(self, node: ArrowRows, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        data = node.data.combine_chunks()
        arrays = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in data.itercolumns()]
        batch = pa.RecordBatch.from_arrays(arrays, name_columns(node.schema))
        return planning.source("Rows", TableReader(ColumnsSource(batch)), node.schema)


class ScanRule(Rule[Scan]):
    """Tables. If they are updated by key, a step above them normalizes their changes, see `changelog`."""

    nodes = (Scan,)

    def changes(self, node: Scan, planning: Planning) -> Changes:
        """See `Rule`."""
        return planning.table(node).changes

    def stream(self, node: Scan, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        return self.read(node, planning.table(node), planning, wants_before)

    @staticmethod
    def read(node: Scan, table: TableReader, planning: Planning, wants_before: bool) -> Stream:
        """Add the steps that read a table with this reader."""
        title = ".".join(node.path)
        if table.source is None:
            raise ValidationError(f"table '{title}' is read by Spark, in batch only: its connector has no source")
        parallelism = read_parallelism(node)
        if parallelism is not None and table.changes != INSERTS:
            raise UnsupportedError(
                f"option 'scan.parallelism' of table {title} is not supported where rows are updated or deleted: leave "
                "it out, so that the changes of a row stay in order"
            )
        stream = planning.source(node.path[-1], table, node.schema, parallelism)
        if wants_before or not stream.has_before or Changes.UPDATE not in stream.changes:
            return stream
        upstreams = planning.step("Drop Update Before", DropUpdateBeforeOperator, stream.upstreams, True)
        return Stream(upstreams, node.schema, stream.changes, False)
