"""Plans the reading of DataStreams, and watermarks.

Plans sources: tables, VALUES, and in-memory rows of the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.connectors.collection import ColumnsSource
from penstock.plan.transformation import Upstream
from penstock.sql.data.errors import ValidationError
from penstock.sql.expressions.evaluator import columns_of_rows
from penstock.sql.expressions.sharing import is_pure
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.explain import node_text
from penstock.sql.logical.nodes import INSERTS, ArrowRows, Changes, Scan, Values
from penstock.sql.stream.bridge.records import (
    FromRecordsOperator,
    RecordStream,
    SourceWatermarkOperator,
    TableTime,
    is_source_watermark,
)
from penstock.sql.stream.calc.operators import CalcOperator
from penstock.sql.stream.changelog.operators import DropUpdateBeforeOperator
from penstock.sql.stream.changelog.plan import goes_by_key
from penstock.sql.stream.planning.rule import Factory, Planning, Rule, Stream, name_columns
from penstock.sql.stream.planning.table_options import (
    ALIGNMENT_GROUP,
    WatermarkOptions,
    read_parallelism,
    watermark_options,
)
from penstock.sql.stream.rows.watermarks import REJECTED_ROWS, NullTimes, WatermarkAssignerOperator
from penstock.sql.tables.tables import TableReader
from penstock.sql.typed import Field, transformed

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
    return tuple(replace(upstream, side_tag=REJECTED_ROWS) for upstream in upstreams)


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
            WatermarkAssignerOperator,
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


def _null_times(node: logical.WatermarkAssigner, names: Sequence[str], planning: Planning) -> NullTimes:
    """Return how to handle rows with a NULL event time. `names`: the columns of the rows at that point, for errors."""
    leaf, column = _leaf(node), node.schema.names[node.column]
    if not isinstance(leaf, logical.Scan):
        title = leaf.title if isinstance(leaf, logical.StreamRows) else node_text(leaf)
        return NullTimes(column, title, tuple(names), _REMEDY_OF_STREAM)
    reader = planning.table(leaf)
    return NullTimes(
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
    """Tables. If they are updated by key, a step above them normalizes their changes, see `changelog.plan`."""

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
