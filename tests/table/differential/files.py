"""Tables of a world in files: Parquet for rows that are only appended, Debezium's JSON for other changes.

Files are read one after the other, so the rows of a table with event time are in files in the order in which they
arrive: none is late then, whichever subtask reads a file. Changes of other tables are in a file for each split.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from tests.table.differential.kinds import BOOLEAN, INT, LONG, ROWTIME, TEXT
from tests.table.differential.tables import Table, TableChange

from penstock.sql.data.arrow import to_column
from penstock.sql.data.datetimes import format_timestamp

#: kinds whose values JSON keeps
_IN_JSON: Final = (INT, TEXT, LONG, BOOLEAN, ROWTIME)


def can_be_files(table: Table) -> bool:
    """Whether a table can be written into files that mean the same changes."""
    if not table.declares_changes:
        return True
    is_plain = all(column.kind in _IN_JSON for column in table.columns)
    return is_plain and not table.is_upsert and bool(table.changes)


def write_files(table: Table, folder: Path) -> str:
    """Write the files of a table. Returns their format."""
    folder.mkdir()
    parts = _parts(table)
    for number, changes in enumerate(parts):
        if table.declares_changes:
            lines = "".join(json.dumps(message) + "\n" for message in _messages(table, changes))
            (folder / f"part-{number}.json").write_text(lines)
        else:
            pq.write_table(_columns(table, changes), folder / f"part-{number}.parquet")
    return "debezium-json" if table.declares_changes else "parquet"


def _parts(table: Table) -> list[list[TableChange]]:
    if table.delay_ms is None:
        return [[change for change in table.changes if change.split == split] for split in range(table.splits)]
    if table.declares_changes or table.has_late_rows:
        return [list(table.changes)]
    size = max(1, -(-len(table.changes) // table.splits))
    starts = range(0, max(1, len(table.changes)), size)
    return [list(table.changes[start : start + size]) for start in starts]


def _columns(table: Table, changes: Sequence[TableChange]) -> pa.Table:
    arrays = [
        to_column([change.values[place] for change in changes], column.kind.type)
        for place, column in enumerate(table.columns)
    ]
    return pa.table(arrays, [column.name for column in table.columns])


def _messages(table: Table, changes: Sequence[TableChange]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    previous: dict[Any, dict[str, Any]] = {}
    before: dict[str, Any] | None = None
    for change in changes:
        row = {
            column.name: _in_json(column.kind, value)
            for column, value in zip(table.columns, change.values, strict=True)
        }
        key = tuple(change.values[place] for place in table.key)
        if change.kind == "+I":
            messages.append({"before": None, "after": row, "op": "c"})
        elif change.kind == "-D":
            messages.append({"before": row, "after": None, "op": "d"})
        elif change.kind == "-U":
            before = row
        else:
            # Versions are updates without the previous row, which Debezium always has.
            messages.append({"before": before or previous.get(key, row), "after": row, "op": "u"})
            before = None
        previous[key] = row
    return messages


def _in_json(kind: Any, value: Any) -> Any:
    return format_timestamp(value, 3) if kind == ROWTIME and value is not None else value
