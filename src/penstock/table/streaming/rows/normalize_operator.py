"""Turns upserts into a changelog: keeps the last row of each key, so that updates can include the previous row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import UserCodeError
from penstock.core.records import Batch
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import DataType
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.evaluator import Evaluator
from penstock.table.plan.changes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from penstock.table.streaming.rows.evaluating import EvaluatingOperator
from penstock.table.streaming.rows.held_rows import RowEquality
from penstock.table.streaming.rows.row_keys import RowKeys
from penstock.table.streaming.rows.row_tuples import build_batch, to_tuples
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.streaming.rows.state_times import ExpiringOperator
from penstock.table.typed.nodes import Typed

#: State: key -> values of its row.
ROWS: Final = "rows"


class ChangelogNormalizeOperator(ExpiringOperator, EvaluatingOperator):
    """Takes upserts, and deletions that may have only the key. Emits inserts, updates and deletes of whole rows.

    An unchanged row emits nothing, nor does the deletion of an unknown key. If state expires, unchanged rows are
    emitted again to keep downstream state alive. Rows that do not satisfy the condition are not kept: such a row
    deletes the previous one of its key.

    Args:
        keys: the indexes of the key columns.
        types: the types of all columns.
        names: the names of all columns.
        sends_before: whether updates include the previous row (UPDATE_BEFORE).
        condition: a condition over all columns; None for all rows.
    """

    def __init__(
        self,
        keys: Sequence[int],
        types: Sequence[DataType],
        names: Sequence[str],
        sends_before: bool,
        condition: Typed | None = None,
        session: StreamSession | None = None,
    ) -> None:
        self._keys = RowKeys(keys)
        self._types = tuple(types)
        self._equality = RowEquality(types)
        self._names = list(names)
        self._sends_before = sends_before
        self._condition = condition
        self._session = session or StreamSession()
        self._watermark: int | None = None

    def open(self) -> None:
        """Look up the state."""
        session = self.running(self._session, lambda: self._watermark)
        self._where = None if self._condition is None else Evaluator([self._condition], session)
        table = self.context.keyed.table(ROWS)
        self._rows, self._mark = table.entries(None), table.mark
        self._expire(self._rows, table.mark)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Compare each row with the last one of its key."""
        records = as_columns(batch, self.context.operator_name)
        keys = self._keys.of(records.columns)
        distinct = set(keys)
        self._look(distinct)
        last_rows, kinds, passes = self._rows, records.kinds, self._passes(records)
        output_rows: list[tuple[Any, ...]] = []
        output_kinds = bytearray()
        for row, (key, values) in enumerate(zip(keys, to_tuples(records, self._types), strict=True)):
            kind = INSERT if kinds is None else kinds[row]
            before = last_rows.get(key)
            goes = kind == DELETE or (passes is not None and not passes[row])
            if kind == UPDATE_BEFORE or goes:
                if before is not None and kind != UPDATE_BEFORE:
                    output_rows.append(before)
                    output_kinds.append(DELETE)
                    del last_rows[key]
                continue
            if before is not None and not self.ttl_ms and self._equality.same(before, values):
                continue
            if before is not None and self._sends_before:
                output_rows.append(before)
                output_kinds.append(UPDATE_BEFORE)
            output_rows.append(values)
            output_kinds.append(INSERT if before is None else UPDATE_AFTER)
            last_rows[key] = values
        self._mark(None, distinct)
        self._written([key for key in distinct if key in last_rows])
        if output_rows:
            self.output.collect(build_batch(output_rows, self._types, self._names, kinds=output_kinds))

    def _passes(self, records: ColumnBatch) -> list[bool] | None:
        """Return which rows satisfy the condition; None for all."""
        if self._where is None:
            return None
        try:
            (answers,) = self._where(Columns.of(records.columns))
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
        return answers.to_pylist()  # type: ignore[no-any-return]

    def resume_event_time(self, watermark: int) -> None:
        """Do nothing: as in Flink, CURRENT_WATERMARK is NULL after a restart until the next watermark."""

    def process_watermark(self, timestamp: int) -> None:
        """Record the watermark for CURRENT_WATERMARK."""
        self._watermark = timestamp
        super().process_watermark(timestamp)
