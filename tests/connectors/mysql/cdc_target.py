"""What the events of a source of many tables come to: tables in memory, and what was wrong on the way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.base.types import RowKind
from penstock.connectors.cdc.events import (
    CreateTableEvent,
    DataChangeEvent,
    DropTableEvent,
    TableId,
    TableSchema,
    TruncateTableEvent,
)


class Target:
    """Applies events. A column `version` must go up by one with each update of a row, or a change came twice.

    Each subtask has its own schemas: one may be behind a statement that another one has not reached.
    """

    def __init__(self) -> None:
        self.schemas: dict[TableId, TableSchema] = {}
        self._of_subtasks: dict[int, dict[TableId, TableSchema]] = {}
        self.rows: dict[TableId, dict[Any, dict[str, Any]]] = {}
        self.wrong: list[str] = []
        self.updates = 0

    def apply(self, events: Iterable[Any], subtask: int = 0) -> None:
        self.schemas = self._of_subtasks.setdefault(subtask, {})
        for event in events:
            table_id = event.table_id
            if isinstance(event, DataChangeEvent):
                self._change(event)
            elif isinstance(event, DropTableEvent):
                self.schemas.pop(table_id, None)
                self.rows.pop(table_id, None)
            elif isinstance(event, TruncateTableEvent):
                self.rows[table_id].clear()
            elif isinstance(event, CreateTableEvent):
                self.schemas[table_id] = event.schema
                for row in self.rows.setdefault(table_id, {}).values():
                    for name in event.schema.names:
                        row.setdefault(name, None)
            else:
                self._alter(event)

    def _alter(self, event: Any) -> None:
        table_id = event.table_id
        kind = type(event).__name__
        self.schemas[table_id] = self.schemas[table_id].apply(event)
        for row in self.rows[table_id].values():
            if kind == "AddColumnEvent":
                row.setdefault(event.column.name, event.column.default)
            elif kind == "DropColumnEvent":
                row.pop(event.name, None)
            elif kind == "RenameColumnEvent" and event.name in row:
                row[event.new_name] = row.pop(event.name)

    def _change(self, event: DataChangeEvent) -> None:
        schema, rows = self.schemas[event.table_id], self.rows[event.table_id]
        before, after = (
            None if row is None else dict(zip(schema.names, row, strict=True)) for row in (event.before, event.after)
        )
        old, new = (None if row is None else tuple(row[name] for name in schema.primary_key) for row in (before, after))
        if event.kind is RowKind.INSERT:
            if new in rows:
                self.wrong.append(f"inserted twice: {event}")
            rows[new] = after or {}
        elif event.kind is RowKind.DELETE:
            if rows.pop(old, None) is None:
                self.wrong.append(f"deleted, but not there: {event}")
        else:
            self.updates += 1
            there = rows.get(old)
            assert after is not None
            assert before is not None
            if there is None:
                self.wrong.append(f"updated, but not there: {event}")
            elif there["version"] != before["version"] or after["version"] != before["version"] + 1:
                self.wrong.append(f"version {there['version']} is there: {event}")
            rows[new] = after
