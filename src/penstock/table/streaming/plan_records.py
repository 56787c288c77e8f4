"""Plans what reads streams of the program, and where watermarks come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from penstock.core.operators.base import StreamOperator
from penstock.plan.transformation import Upstream
from penstock.table.data.errors import ValidationError
from penstock.table.plan import logical
from penstock.table.plan.changes import DELETE, INSERTS, UPDATE_AFTER, UPDATE_BEFORE, Changes
from penstock.table.plan.text import node_text
from penstock.table.streaming.changelog_operators import FromChangelogOperator, ToChangelogOperator
from penstock.table.streaming.record_stream import FromRecordsOperator, RecordStream
from penstock.table.streaming.sessions import StreamSession
from penstock.table.streaming.source_watermark_operator import SourceWatermarkOperator, is_source_watermark
from penstock.table.streaming.watermark_operator import WatermarkAssignerOperator


def from_records(
    node: logical.StreamRows, names: Sequence[str], session: StreamSession
) -> tuple[Callable[[], StreamOperator], tuple[Upstream, ...]]:
    """The operator that makes columns of the records of a stream, and what it reads."""
    stream = node.stream
    assert isinstance(stream, RecordStream)
    required = [(place, column.name) for place, column in enumerate(node.schema) if not column.type.is_nullable]
    key = node.key if node.is_upsert else ()
    operator = partial(FromRecordsOperator, stream.layout, stream.kinds, names, required, key, session)
    return operator, stream.upstreams


def changelog_changes(node: logical.ToChangelog | logical.FromChangelog) -> Changes:
    """Which changes the rows are."""
    found = INSERTS
    if isinstance(node, logical.FromChangelog):
        kinds = {kind for _, kind in node.kinds}
        found |= Changes.UPDATE if UPDATE_AFTER in kinds else INSERTS
        found |= Changes.DELETE if DELETE in kinds else INSERTS
    return found


def asks_before(node: logical.ToChangelog | logical.FromChangelog) -> bool:
    """Whether updates have to come with the row as it was before."""
    return isinstance(node, logical.ToChangelog) and node.codes[UPDATE_BEFORE] is not None


def changelog_operator(
    node: logical.ToChangelog | logical.FromChangelog, names: Sequence[str]
) -> Callable[[], StreamOperator]:
    """The operator between changes and rows that say which changes they are."""
    if isinstance(node, logical.ToChangelog):
        return partial(ToChangelogOperator, node.codes, names)
    return partial(FromChangelogOperator, node.column, node.kinds, names)


def watermarks(node: logical.WatermarkAssigner, session: StreamSession) -> Callable[[], StreamOperator]:
    """The operator that says how far event time has come.

    Raises:
        ValidationError: for SOURCE_WATERMARK() of a table that is no stream.
    """
    if not is_source_watermark(node.expression):
        return partial(WatermarkAssignerOperator, node.column, node.expression, session)
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
