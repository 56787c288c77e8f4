"""Tables of a world as streams of the program: a collection of rows, which say what they do to the table."""

from __future__ import annotations

from datetime import UTC
from typing import Final

from tests.table.differential.kinds import MOMENT
from tests.table.differential.tables import Table

from penstock.base.types import Row, RowKind
from penstock.datastream.data_stream import StreamExecutionEnvironment
from penstock.sql.catalogs.columns import Schema
from penstock.sql.data.conversion import to_external
from penstock.table.changelog_mode import ChangelogMode
from penstock.table.table_environment import StreamTableEnvironment

_KINDS: Final = {kind.short_string: kind for kind in RowKind}


def can_be_stream(table: Table) -> bool:
    """Whether a stream of the program means the same table.

    Python's datetime has no nanoseconds, a collection has no watermark after each row, and it may not be empty. In a
    stream of upserts a deletion means the row of its key whatever its event time is, so versions would be others.
    """
    if table.is_upsert and table.delay_ms is not None:
        return False
    has_nanoseconds = any(column.kind == MOMENT for column in table.columns)
    return not has_nanoseconds and not table.has_late_rows and bool(table.changes)


def create_stream(tables: StreamTableEnvironment, streams: StreamExecutionEnvironment, table: Table) -> None:
    """Create a view of the stream under the name of the table."""
    seen = [to_external(column.kind.type, UTC) for column in table.columns]
    names = [column.name for column in table.columns]
    rows = []
    for change in table.changes:
        values = (convert(value) for convert, value in zip(seen, change.values, strict=True))
        row = Row.of_kind(_KINDS[change.kind], *values)
        row.set_field_names(names)
        rows.append(row)
    builder = Schema.new_builder()
    for place, column in enumerate(table.columns):
        kind = column.kind.type
        builder.column(column.name, str(kind.not_null() if place in table.key else kind))
    if table.delay_ms is not None:
        builder.watermark("ts", f"ts - INTERVAL '{table.delay_ms / 1000:.3f}' SECOND")
    if table.key:
        builder.primary_key(*(names[place] for place in table.key))
    mode = ChangelogMode.all()
    if not table.declares_changes:
        mode = ChangelogMode.insert_only()
    elif table.is_upsert:
        mode = ChangelogMode.upsert()
    stream = streams.from_collection(rows)
    tables.create_temporary_view(table.name, tables.from_changelog_stream(stream, builder.build(), mode))
