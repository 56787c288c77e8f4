"""Converts row kinds to a column of codes, and back. No state is needed: each row is self-contained.

Drops the previous rows of updates (UPDATE_BEFORE), for consumers that do not need them.

Turns upserts into a changelog: keeps the last row of each key, so that updates can include the previous row.

Repeats each row as often as its last column says, for INTERSECT ALL and EXCEPT ALL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.columns.batch import ColumnBatch, as_columns
from penstock.runtime.operators.base import StreamOperator, UserCodeError
from penstock.runtime.records import Batch
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import DataType
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.logical.nodes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from penstock.sql.stream.rows.evaluation import EvaluatingOperator, StreamSession
from penstock.sql.stream.rows.rows import RowEquality, RowKeys, build_batch, pack_kinds, to_tuples
from penstock.sql.stream.rows.state_ttl import ExpiringOperator
from penstock.sql.typed import Typed


class ToChangelogOperator(StreamOperator):
    """Emits all changes as inserts with the codes of their kinds.

    Args:
        columns: the indexes of the input columns, in output order; the first `before` ones precede the code.
        before: the number of columns before the code.
        codes: kind byte -> code; rows of other kinds are dropped.
        names: the names of the output columns.
    """

    def __init__(self, columns: Sequence[int], before: int, codes: Mapping[int, str], names: Sequence[str]) -> None:
        self._columns = tuple(columns)
        self._before = before
        self._codes = dict(codes)
        self._names = list(names)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Insert the column of codes."""
        records = as_columns(batch, self.context.operator_name)
        kinds = np.frombuffer(records.kinds or bytes(len(records)), np.uint8)
        is_sent = np.isin(kinds, list(self._codes))
        if not is_sent.all():
            records, kinds = records.where(is_sent), kinds[is_sent]
        if not len(records):
            return
        texts = pa.array([self._codes.get(kind) for kind in range(4)], pa.string())
        arrays = [records.columns.column(index) for index in self._columns]
        arrays.insert(self._before, texts.take(pa.array(kinds)))
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), records.rowtimes))


class FromChangelogOperator(StreamOperator):
    """Emits inserts as the changes that their codes denote. An unknown code fails the job.

    Args:
        operation: the index of the column with the codes.
        codes: code -> kind byte.
        columns: the input indexes of the output columns.
        names: the names of the output columns.
    """

    def __init__(self, operation: int, codes: Mapping[str, int], columns: Sequence[int], names: Sequence[str]) -> None:
        self._operation = operation
        self._codes = dict(codes)
        self._columns = tuple(columns)
        self._names = list(names)

    def open(self) -> None:
        """Build the arrays for the lookup."""
        self._texts = pa.array(list(self._codes), pa.string())
        self._kinds = np.array(list(self._codes.values()), np.uint8)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Look up the codes."""
        records = as_columns(batch, self.context.operator_name)
        operations = records.columns.column(self._operation)
        code_indices = pc.index_in(operations.cast(pa.string()), value_set=self._texts)
        if code_indices.null_count:
            row = code_indices.is_null().to_pylist().index(True)
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from TableRuntimeError(
                f"Received invalid op code '{operations[row].as_py()}'. Valid op codes are: {list(self._codes)}."
            )
        kinds = self._kinds[code_indices.to_numpy(zero_copy_only=False)].tobytes()
        arrays = [records.columns.column(index) for index in self._columns] or [pa.nulls(len(records))]
        columns = pa.RecordBatch.from_arrays(arrays, self._names or ["c0"])
        self.output.collect(ColumnBatch(columns, records.rowtimes, pack_kinds(kinds)))


class DropUpdateBeforeOperator(StreamOperator):
    """See the module docstring."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Emit all other changes."""
        records = as_columns(batch, self.context.operator_name)
        if records.kinds is not None and UPDATE_BEFORE in records.kinds:
            records = records.where(np.frombuffer(records.kinds, np.uint8) != UPDATE_BEFORE)
        if len(records):
            self.output.collect(records)


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


class ReplicateOperator(StreamOperator):
    """See the module docstring. `names`: the names of the output columns, without the last one."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Repeat each row."""
        records = as_columns(batch, self.context.operator_name)
        *columns, times = records.columns.columns
        counts = times.to_numpy(zero_copy_only=False)
        rows = ColumnBatch(pa.RecordBatch.from_arrays(columns, self._names), records.rowtimes, records.kinds)
        repeated = np.repeat(np.arange(len(records)), counts)
        if len(repeated):
            self.output.collect(rows.take(repeated))
