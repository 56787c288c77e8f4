"""Plans what reads streams of the program, and where watermarks come from."""

from __future__ import annotations

from functools import partial

from penstock.base.errors import UnsupportedError
from penstock.table.data.errors import ValidationError
from penstock.table.evaluation.stability import is_pure
from penstock.table.plan import logical
from penstock.table.plan.changes import INSERTS, Changes
from penstock.table.plan.text import node_text
from penstock.table.streaming.planning.rule import Factory, Planning, Rule
from penstock.table.streaming.planning.streams import Stream, names_of
from penstock.table.streaming.planning.table_options import ALIGNMENT_GROUP, WatermarkOptions, watermark_options
from penstock.table.streaming.records.record_stream import FromRecordsOperator, RecordStream
from penstock.table.streaming.records.source_watermark_operator import SourceWatermarkOperator, is_source_watermark
from penstock.table.streaming.records.split_watermarks import TableTime
from penstock.table.streaming.rows.calc_operator import CalcOperator
from penstock.table.streaming.rows.watermark_operator import WatermarkAssignerOperator
from penstock.table.typed.nodes import Field, transformed


class StreamRowsRule(Rule[logical.StreamRows]):
    """Streams of the program, whose records become columns."""

    nodes = (logical.StreamRows,)

    def changes(self, node: logical.StreamRows, planning: Planning) -> Changes:
        """See `Rule`."""
        return node.changes

    def stream(self, node: logical.StreamRows, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        stream, names = node.stream, names_of(node.schema)
        assert isinstance(stream, RecordStream)
        required = [(place, column.name) for place, column in enumerate(node.schema) if not column.type.is_nullable]
        key = node.key if node.is_upsert else ()
        operator = partial(FromRecordsOperator, stream.layout, stream.kinds, names, required, key, planning.session)
        upstreams = planning.step("From Records", operator, stream.upstreams, node.changes != INSERTS)
        return Stream(upstreams, node.schema, node.changes, node.has_before)


def with_watermarks(node: logical.WatermarkAssigner, planning: Planning, wants_before: bool) -> Stream:
    """The stream of what is below, with event time: made where a table is read if that can be, else in a step above.

    Raises:
        ValidationError: for SOURCE_WATERMARK() of a table that is no stream.
        UnsupportedError: for a table that is to be aligned with others, and makes no watermarks where it is read.
    """
    options = WatermarkOptions()
    if not is_source_watermark(node.expression):
        options = watermark_options(node, planning.options.idle_ms)
        found = _made_in_source(node, options, planning, wants_before)
        if found is not None:
            return found
    inner = planning.stream(node.input, wants_before)
    operator = _watermarks(node, options, planning)
    upstreams = planning.step("Watermark Assigner", operator, inner.upstreams, inner.changes != INSERTS)
    return Stream(upstreams, node.schema, inner.changes, inner.has_before)


def _made_in_source(
    node: logical.WatermarkAssigner, options: WatermarkOptions, planning: Planning, wants_before: bool
) -> Stream | None:
    """The rows of a table whose watermarks are made where it is read, of each split apart; None where they are not."""
    calc = planning.calc_of(node.input)
    if not isinstance(calc.input, logical.Scan) or calc.condition is not None:
        return None
    scan, columns = calc.input, calc.expressions or tuple(calc.input.schema.fields())
    time, width = columns[node.column], len(scan.schema)
    places = [*columns[: node.column], Field(time.type, width), *columns[node.column + 1 :]]
    watermark = transformed(node.expression, lambda one: places[one.index] if isinstance(one, Field) else one)
    if not all(map(is_pure, (time, watermark))):
        return None
    of_table = TableTime(time, watermark, width, planning.session, options.gap)
    found = planning.timed(scan, options.applied(of_table.strategy()), wants_before)
    if found is None or calc.expressions is None:
        return None if found is None else Stream(found.upstreams, node.schema, found.changes, found.has_before)
    operator = partial(CalcOperator, None, columns, names_of(node.schema), planning.session)
    upstreams = planning.step("Calc", operator, found.upstreams, found.changes != INSERTS)
    return Stream(upstreams, node.schema, found.changes, found.has_before)


def _watermarks(node: logical.WatermarkAssigner, options: WatermarkOptions, planning: Planning) -> Factory:
    """The operator that says how far event time has come."""
    leaf: logical.Node = node
    while leaf.inputs():
        (leaf,) = leaf.inputs()
    if not is_source_watermark(node.expression):
        if options.alignment is not None:
            raise UnsupportedError(
                f"option '{ALIGNMENT_GROUP.key()}' of table {node_text(leaf)} is not supported: its watermarks are not "
                "made where it is read, because its connector does not do that, or WATERMARK FOR calls a function of "
                "the program or asks for the time. Leave the option out, or read the source as a DataStream with "
                "with_watermark_alignment"
            )
        return partial(
            WatermarkAssignerOperator, node.column, node.expression, planning.session, options.gap, options.idle_ms
        )
    if not isinstance(leaf, logical.StreamRows):
        raise ValidationError(
            "SOURCE_WATERMARK() takes the watermarks that a source sends itself, and only streams of the program do, "
            f"see from_data_stream: {node_text(leaf)}. Declare the watermark with an expression, such as "
            "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
        )
    return partial(SourceWatermarkOperator, node.column)
