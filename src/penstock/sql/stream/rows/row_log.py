"""Rows in columns that supersede one another, and the part of them that a checkpoint has to write.

An operator numbers the rows that it keeps, and releases superseded ones: the former last row of a key, or a row that
has dropped out of the first. The rows alone, in the order of their numbers, determine which of them it keeps. So a
checkpoint writes the rows since the last completed one that have not been released, and a restore applies all rows of
the history again; rows that were released later change nothing. Once released rows outnumber the others, `compact`
discards them and gives the others new numbers, and the next checkpoint writes all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.codecs.arrow_columns import nullable_key_table
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.function_context import OperatorContext
from penstock.sql.data.types import DataType
from penstock.sql.stream.rows.columns import ColumnParts, NumberedRows, build_part
from penstock.sql.stream.rows.rows import build_columns, cut
from penstock.state.backend import KeyedTable
from penstock.state.key_columns import EACH_ROW, ROW_NUMBER, ColumnsCapture, RowMeaning

_CAPACITY_MIN: Final = 1 << 12
#: Rows are taken over this many at a time.
_ROWS_AT_ONCE: Final = 1 << 14


def label(labels: Sequence[str]) -> dict[str, str]:
    """Return the labels of columns by the names that they have in a log, which are their numbers."""
    return {str(index): text for index, text in enumerate(labels)}


class RowLog(NumberedRows):
    """See the module docstring.

    Args:
        context: the context of the operator.
        state: the name of the state.
        about: describes the state, see `ColumnStates`.
        keys: the indexes of the columns that rows are partitioned by.
        types: the types of the columns.
        names: the names of the output columns.
        meaning: how rows become the entries of the state, for readers of checkpoints.
    """

    def __init__(
        self,
        context: OperatorContext,
        state: str,
        about: str,
        keys: Sequence[int],
        types: Sequence[DataType],
        names: Sequence[str],
        meaning: RowMeaning = EACH_ROW,
    ) -> None:
        super().__init__(types, names)
        self._context = context
        self._meaning = meaning
        self._state = state
        self._about = about
        self._key_names = tuple(map(str, keys))
        restored = take_rows(context, state, about)
        self._schema = None if restored is None else restored.schema
        first = 0 if restored is None else context.columns.first_number(state, restored.num_rows)
        self._begin(first)
        for batch in () if restored is None else restored.to_batches():
            if batch.num_rows:
                self._append(batch)

    def _begin(self, base: int) -> None:
        #: the first number in use
        self.base = base
        self._parts = ColumnParts(base, self._context.keyed.store_columns)
        #: for each number from `base` on, whether its row is kept
        self._kept = self._context.keyed.allocate(_CAPACITY_MIN, np.bool_)
        self._kept_count = 0

    @property
    def end(self) -> int:
        """The number of the next row."""
        return self._parts.end

    def add(self, rows: pa.RecordBatch) -> int:
        """See `NumberedRows`. The rows are kept until they are released."""
        return self._append(build_part(rows.columns[: len(self.types)], rows.num_rows))

    def restore(self, rows: Sequence[tuple[Any, ...]]) -> int:
        """See `NumberedRows`."""
        return self._append(build_part(build_columns(rows, self.types), len(rows)))

    def _append(self, rows: pa.RecordBatch) -> int:
        if self._schema is None:
            self._schema = rows.schema
        first = self._parts.append(rows)
        self._keep_new(first)
        return first

    def _keep_new(self, first: int) -> None:
        begin, stop = first - self.base, self.end - self.base
        if stop > len(self._kept):
            kept = self._context.keyed.allocate(max(2 * len(self._kept), stop), np.bool_)
            kept[:begin] = self._kept[:begin]
            self._kept = kept
        self._kept[begin:stop] = True
        self._kept_count += stop - begin

    def release(self, numbers: Any) -> None:
        """Note that rows are superseded; they can be read until `compact`. Each row is released once."""
        self._kept[numbers - self.base] = False
        self._kept_count -= len(numbers)

    @property
    def must_compact(self) -> bool:
        """Whether enough rows were released for `compact` to be worthwhile."""
        return self.is_wasteful(self._kept_count)

    def compact(self) -> Any:
        """Discard the released rows. Returns the former numbers of the others; the new ones begin with `base`."""
        numbers = self.kept_numbers()
        parts = self._parts
        self._begin(parts.end)
        # A part at a time: together they may be larger than memory.
        for part, start in zip(parts.parts, parts.starts, strict=False):
            of_part = numbers[np.searchsorted(numbers, start) : np.searchsorted(numbers, start + part.num_rows)]
            if len(of_part):
                self._append(cut(part).take(pa.array(of_part - start)))
        return numbers

    def kept_numbers(self) -> Any:
        """Return the numbers of the rows that were not released, in order."""
        return np.flatnonzero(self._kept[: self.end - self.base]) + self.base

    def capture(self, checkpoint_id: int) -> list[ColumnsCapture]:
        """Capture the rows that the last completed checkpoint does not have."""
        first = self._context.columns.start_capture(self._state, self.end, checkpoint_id, self.base)
        is_addition = first > self.base
        if self._schema is None or (is_addition and first == self.end):
            return []
        kept = self._kept[first - self.base : self.end - self.base].copy()
        rows = _RowsOfCheckpoint(self._parts.since(first), kept, first, self._schema)
        history = (first, self.end, is_addition, self._meaning)
        return [ColumnsCapture(self._state, rows, self._key_names, self._about, *history)]


@dataclass
class _RowsOfCheckpoint:
    """Builds the table of a capture; parts are immutable, so this may run in another thread."""

    parts: Sequence[tuple[Any, int]]
    kept: Any
    first: int
    schema: pa.Schema

    def __call__(self) -> pa.Table:
        batches = []
        begin = 0
        is_whole = bool(self.kept.all())
        for part, start in self.parts:
            rows = cut(part).slice(start)
            mask = self.kept[begin : begin + rows.num_rows]
            if not mask.all():
                rows = rows.filter(pa.array(mask))
            batches.append(rows)
            begin += len(mask)
        table = pa.Table.from_batches(batches, self.schema)
        if is_whole:
            return table
        numbers = np.flatnonzero(self.kept) + self.first
        return table.append_column(ROW_NUMBER, pa.array(numbers, pa.int64()))


class RowsTakenOver:
    """The rows of a log that another operator now keeps by key.

    Args:
        context: the context of the other operator.
        state: the name of the log's state.
        about: describes the state, see `ColumnStates`.
        keys: the indexes of the columns that rows are partitioned by.

    Raises:
        StateError: if the restored rows belong to something else.
    """

    def __init__(self, context: OperatorContext, state: str, about: str, keys: Sequence[int]) -> None:
        self._state, self._about = state, about
        self._key_names = tuple(map(str, keys))
        self._rows = take_rows(context, state, about)

    def move(self, table: KeyedTable) -> Iterator[ColumnBatch]:
        """Yield the rows in their order, a part at a time. State may be evicted from memory after each.

        Args:
            table: the caller adds the rows to it.
        """
        if self._rows is None:
            return
        for batch in self._rows.to_batches(max_chunksize=_ROWS_AT_ONCE):
            yield ColumnBatch(batch)
            if table.settle is not None:
                table.settle()
        self._rows = self._rows.slice(0, 0)

    def capture(self) -> list[ColumnsCapture]:
        """Capture the log, which is empty now."""
        return [] if self._rows is None else [ColumnsCapture(self._state, self._rows, self._key_names, self._about)]


def take_rows(context: OperatorContext, state: str, about: str) -> pa.Table | None:
    """Return the restored rows of a log in their order; None if the snapshot has no such log.

    Raises:
        StateError: if the rows belong to something else.
    """
    table = context.columns.take(state, about)
    return None if table is None else nullable_key_table(table)
