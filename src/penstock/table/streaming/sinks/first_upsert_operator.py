"""Writes one row for each primary key, if the query should not have more: ON CONFLICT DO ERROR and DO NOTHING.

Changes may arrive out of order: a new row may take over the key of a row that is yet to be retracted. So changes wait
until the watermark has passed. Only then are keys with more than one remaining row conflicts. DO ERROR fails the job;
DO NOTHING keeps the first row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.core.columns.batch import as_columns
from penstock.core.operators.base import StreamOperator, UserCodeError
from penstock.core.records import Batch
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import DataType
from penstock.table.plan.changes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from penstock.table.streaming.rows.held_rows import to_canonical_rows
from penstock.table.streaming.rows.row_keys import RowKeys
from penstock.table.streaming.sinks.upserts import Identity, Row, sent_batch

#: The states: primary key -> the written row; primary key -> pending changes, as (whether it is an insert, row).
WRITTEN: Final = "written"
WAITING: Final = "waiting"


class FirstUpsertOperator(StreamOperator):
    """See the module docstring.

    Args:
        key: the indexes of the primary key columns.
        own: the indexes of the columns that identify the rows of the query; None if only all columns do.
        types: the types of all columns.
        names: the names of all columns.
        key_names: the names of the key columns in the table.
        fails: whether a conflict fails the job.
    """

    is_keyed = True

    def __init__(
        self,
        key: Sequence[int],
        own: Sequence[int] | None,
        types: Sequence[DataType],
        names: Sequence[str],
        key_names: Sequence[str],
        fails: bool,
    ) -> None:
        self._keys = RowKeys(key)
        self._identity = Identity(own, types)
        self._types = tuple(types)
        self._names = list(names)
        self._key_names = tuple(key_names)
        self._fails = fails

    def open(self) -> None:
        """Look up the states."""
        written, waiting = self.context.keyed.table(WRITTEN), self.context.keyed.table(WAITING)
        self._written, self._mark_written = written.entries(None), written.mark
        self._waiting, self._mark_waiting = waiting.entries(None), waiting.mark

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Keep changes until the watermark has passed."""
        records = as_columns(batch, self.context.operator_name)
        keys, kinds = self._keys.of(records.columns), records.kinds
        for index, (key, row) in enumerate(
            zip(keys, to_canonical_rows(records.columns.columns, self._types, len(records)), strict=True)
        ):
            comes = kinds is None or kinds[index] not in (UPDATE_BEFORE, DELETE)
            self._waiting.setdefault(key, []).append((comes, row))
        self._mark_waiting(None, set(keys))

    def process_watermark(self, timestamp: int) -> None:
        """Apply the pending changes."""
        keys = list(self._waiting)
        sent: list[tuple[int, Row]] = []
        for key in keys:
            self._settle(key, self._waiting.pop(key), sent)
        self._mark_waiting(None, keys)
        self._mark_written(None, keys)
        if sent:
            self.output.collect(sent_batch(sent, self._types, self._names))
        super().process_watermark(timestamp)

    def _settle(self, key: Any, changes: list[tuple[bool, Row]], sent: list[tuple[int, Row]]) -> None:
        before = self._written.get(key)
        left = self._left([] if before is None else [before], changes)
        if self._fails and len({self._identity.of(row) for row in left}) > 1:
            values = [left[0][index] for index in self._keys.places]
            key_text = ", ".join(f"'{name}'={value}" for name, value in zip(self._key_names, values, strict=True))
            raise UserCodeError(self.context.operator_name, None) from TableRuntimeError(
                f"Primary key constraint violation: {len(left)} rows of the query have the primary key [{key_text}], "
                "and "
                "ON CONFLICT DO ERROR takes one. ON CONFLICT DO NOTHING keeps the first of them, and ON CONFLICT DO "
                "DEDUPLICATE the last one."
            )
        if not left:
            if before is not None:
                sent.append((DELETE, before))
                del self._written[key]
        elif left[0] != before:
            sent.append((INSERT if before is None else UPDATE_AFTER, left[0]))
            self._written[key] = left[0]

    def _left(self, rows: list[Row], changes: list[tuple[bool, Row]]) -> list[Row]:
        """Return the rows that remain after changes. A retraction may precede its row."""
        missing: list[Row] = []
        for comes, row in changes:
            if comes:
                missing_index = self._identity.find(missing, row) if not self._identity.is_known else None
                if missing_index is not None:
                    missing.pop(missing_index)
                    continue
                at = self._identity.find(rows, row) if self._identity.is_known else None
                if at is None:
                    rows.append(row)
                else:
                    rows[at] = row
                continue
            at = self._identity.find(rows, row)
            if at is None:
                missing.append(row)
            elif rows[at] == row or not self._identity.is_known:
                rows.pop(at)
        return rows
