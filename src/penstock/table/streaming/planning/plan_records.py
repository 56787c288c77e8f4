"""Plans what reads streams of the program, and where watermarks come from."""

from __future__ import annotations

from functools import partial

from penstock.table.data.errors import ValidationError
from penstock.table.plan import logical
from penstock.table.plan.changes import INSERTS, Changes
from penstock.table.plan.text import node_text
from penstock.table.streaming.planning.rule import Factory, Planning, Rule
from penstock.table.streaming.planning.streams import Stream, names_of
from penstock.table.streaming.planning.table_options import watermark_options
from penstock.table.streaming.records.record_stream import FromRecordsOperator, RecordStream
from penstock.table.streaming.records.source_watermark_operator import SourceWatermarkOperator, is_source_watermark
from penstock.table.streaming.rows.watermark_operator import WatermarkAssignerOperator


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


def watermarks(node: logical.WatermarkAssigner, planning: Planning) -> Factory:
    """The operator that says how far event time has come.

    Raises:
        ValidationError: for SOURCE_WATERMARK() of a table that is no stream.
    """
    if not is_source_watermark(node.expression):
        options = watermark_options(node, planning.options.idle_ms)
        return partial(
            WatermarkAssignerOperator, node.column, node.expression, planning.session, options.gap, options.idle_ms
        )
    leaf: logical.Node = node
    while leaf.inputs():
        (leaf,) = leaf.inputs()
    if not isinstance(leaf, logical.StreamRows):
        raise ValidationError(
            "SOURCE_WATERMARK() takes the watermarks that a source sends itself, and only streams of the program do, "
            f"see from_data_stream: {node_text(leaf)}. Declare the watermark with an expression, such as "
            "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
        )
    return partial(SourceWatermarkOperator, node.column)
