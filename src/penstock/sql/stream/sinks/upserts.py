"""Rows of a query that share a primary key: finds the row that a change affects, and builds the output.

Writes one row for each primary key, if the query should not have more: ON CONFLICT DO ERROR and DO NOTHING.

Changes may arrive out of order: a new row may take over the key of a row that is yet to be retracted. So changes wait
until the watermark has passed. Only then are keys with more than one remaining row conflicts. DO ERROR fails the job;
DO NOTHING keeps the first row.

Writes the last of the query's rows for each primary key: ON CONFLICT DO DEDUPLICATE.

When the last row is retracted, the one before it is written again. When all rows are retracted, the key is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.runtime.columns.batch import ColumnBatch, as_columns
from penstock.runtime.operators.base import StreamOperator, UserCodeError
from penstock.runtime.records import Batch
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from penstock.sql.stream.rows.rows import RowEquality, RowKeys, build_columns, pack_kinds, to_canonical_rows
from penstock.sql.stream.rows.state_ttl import ExpiringOperator

Row = tuple[Any, ...]


class Identity:
    """Compares rows by the columns at `indices`, or by all columns if it is None.

    Rows are in canonical form (`to_canonical_rows`), but state of an earlier release may have others. `types`: of
    all columns.
    """

    def __init__(self, indices: Sequence[int] | None, types: Sequence[DataType]) -> None:
        self._places = None if indices is None else tuple(indices)
        self._equality = RowEquality(types if indices is None else [types[index] for index in indices])

    @property
    def is_known(self) -> bool:
        """Whether there are such columns. Then a row replaces the one with the same values in them."""
        return self._places is not None

    def of(self, row: Row) -> Row:
        """Return the values that identify a row."""
        return row if self._places is None else tuple([row[index] for index in self._places])

    def find(self, rows: Sequence[Row], row: Row) -> int | None:
        """Return the index of the row that a change affects: the last of equal ones, or None if not found."""
        identity = self.of(row)
        for index in range(len(rows) - 1, -1, -1):
            if self._equality.same(self.of(rows[index]), identity):
                return index
        return None


def sent_batch(sent: Sequence[tuple[int, Row]], types: Sequence[DataType], names: Sequence[str]) -> ColumnBatch:
    """Build a batch from kinds and rows."""
    columns = build_columns([row for _, row in sent], types)
    return ColumnBatch(pa.RecordBatch.from_arrays(columns, list(names)), None, pack_kinds([kind for kind, _ in sent]))


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


#: State: primary key -> the rows of the query, in arrival order.
ROWS: Final = "rows"


class LastUpsertOperator(ExpiringOperator):
    """See the module docstring.

    Args:
        key: the indexes of the primary key columns.
        own: the indexes of the columns that identify the rows of the query; None if only all columns do.
        types: the types of all columns.
        names: the names of all columns.
    """

    def __init__(
        self, key: Sequence[int], own: Sequence[int] | None, types: Sequence[DataType], names: Sequence[str]
    ) -> None:
        self._keys = RowKeys(key)
        self._identity = Identity(own, types)
        self._types = tuple(types)
        self._names = list(names)

    def open(self) -> None:
        """Look up the state."""
        table = self.context.keyed.table(ROWS)
        self._rows, self._mark = table.entries(None), table.mark
        self._expire(self._rows, table.mark)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Process changes and emit the rows to write."""
        records = as_columns(batch, self.context.operator_name)
        keys, kinds = self._keys.of(records.columns), records.kinds
        distinct = set(keys)
        self._look(distinct)
        rows = to_canonical_rows(records.columns.columns, self._types, len(records))
        sent: list[tuple[int, tuple[Any, ...]]] = []
        for index, (key, row) in enumerate(zip(keys, rows, strict=True)):
            kind = INSERT if kinds is None else kinds[index]
            key_rows = self._rows.setdefault(key, [])
            if kind in (UPDATE_BEFORE, DELETE):
                self._remove(key_rows, row, sent)
            else:
                sent.append((UPDATE_AFTER if key_rows else INSERT, row))
                at = self._identity.find(key_rows, row) if self._identity.is_known else None
                if at is None:
                    key_rows.append(row)
                else:
                    key_rows[at] = row
            if not key_rows:
                del self._rows[key]
        self._mark(None, distinct)
        self._written([key for key in distinct if key in self._rows])
        if sent:
            self.output.collect(sent_batch(sent, self._types, self._names))

    def _remove(
        self, key_rows: list[tuple[Any, ...]], row: tuple[Any, ...], sent: list[tuple[int, tuple[Any, ...]]]
    ) -> None:
        at = self._identity.find(key_rows, row)
        if at is None:
            return
        removed = key_rows.pop(at)
        if not key_rows:
            sent.append((DELETE, removed))
        elif at == len(key_rows):
            sent.append((UPDATE_AFTER, key_rows[-1]))
