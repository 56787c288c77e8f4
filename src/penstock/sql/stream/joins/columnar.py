"""Inner joins of append-only inputs: both sides are stored as columns, and rows never become Python objects.

A row is emitted with each match that arrived before it. Rows are never dropped, as in any regular join without a state
TTL. The columns are in memory; with RocksDB, a `JoinOperator` stores the rows instead. Each of the two can restore the
other's state.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.column_data import ColumnData
from penstock.runtime.columns.batch import ColumnBatch, ColumnKey, as_columns
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.records import Batch
from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import DataType
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.stream.joins.regular import COLUMN_STATES, SIDES, about_columns, restored_rows
from penstock.sql.stream.joins.sides import COUNT, HeldColumns, Matches
from penstock.sql.stream.rows.columns import key_hashes
from penstock.sql.stream.rows.evaluation import EvaluatingOperator, StreamSession
from penstock.sql.stream.rows.rows import UncutRows, build_columns
from penstock.sql.typed import Field, Typed
from penstock.state.key_columns import ColumnsCapture
from penstock.state.snapshot import StateCapture

#: The approximate maximum number of pairs to process at once.
_PAIRS_MAX: Final = 1 << 18


class ColumnJoinOperator(EvaluatingOperator):
    """See the module docstring, and `JoiningOperator` for the arguments.

    Args:
        key_types: the types of the key columns; at least one.
    """

    is_keyed = True

    def __init__(
        self,
        keys: tuple[Sequence[int], Sequence[int]],
        nulls_match: Sequence[bool],
        condition: Typed | None,
        types: tuple[Sequence[DataType], Sequence[DataType]],
        names: Sequence[str],
        session: StreamSession,
        key_types: Sequence[DataType],
    ) -> None:
        self._keys = keys
        self._key_types = tuple(key_types)
        self._nulls_match = tuple(nulls_match)
        self._condition = condition
        self._types = types
        self._names = list(names)
        self._session = session

    def initialize_state(self) -> None:
        """Load the restored rows."""
        super().initialize_state()
        self._sides = (HeldColumns(len(self._nulls_match)), HeldColumns(len(self._nulls_match)))
        self._key_names = tuple(f"key.{position}" for position in range(len(self._nulls_match)))
        for index, side in enumerate(self._sides):
            restored = restored_rows(self.context.columns, COLUMN_STATES[index], about_columns(self._nulls_match))
            for rows in () if restored is None else restored.to_batches():
                side.add(key_hashes(rows.columns[: len(self._key_names)]), rows)
            self._take_rows(index)

    def _take_rows(self, index: int) -> None:
        """Load a side from the state of a `JoinOperator`."""
        if not self.context.keyed.has_restored(SIDES[index]):
            return
        keys: list[Any] = []
        rows: list[tuple[Any, ...]] = []
        for key, stored in self.context.keyed.table(SIDES[index]).drop(None).items():
            for row, entry in stored.items():
                keys += [key] * entry[COUNT]
                rows += [row] * entry[COUNT]
        if rows:
            of_keys = [keys] if len(self._key_types) == 1 else list(zip(*keys, strict=True))
            columns = [
                pa.array(of_key, arrow_type(kind)) for of_key, kind in zip(of_keys, self._key_types, strict=True)
            ]
            arrays = [*columns, *build_columns(rows, self._types[index])]
            self._sides[index].add(
                key_hashes(columns), pa.RecordBatch.from_arrays(arrays, self._build_column_names(index))
            )

    def _build_column_names(self, side: int) -> list[str]:
        return [*self._key_names, *(f"c{position}" for position in range(len(self._types[side])))]

    def open(self) -> None:
        """Create the evaluator of the condition."""
        self._evaluator: Evaluator | None = None
        if self._condition is not None:
            self._evaluator = Evaluator([self._condition], self.running(self._session))
            used = {part.index for part in self._condition.walk() if isinstance(part, Field)}
            self._used = sorted(used)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Emit the rows with their matches, then store them."""
        records = as_columns(batch, self.context.operator_name)
        rows = self._with_keys(records, input_index)
        if not rows.num_rows:
            return
        mine, other = self._sides[input_index], self._sides[1 - input_index]
        hashes = key_hashes(rows.keys)
        matches = other.matches(hashes, rows.keys)
        if matches is not None:
            try:
                self._send_all(rows, matches, other, input_index == 0)
            except TableRuntimeError as error:
                raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
        mine.add(hashes, rows.to_keep())

    def _send_all(self, rows: UncutRows, matches: Matches, other: HeldColumns, is_left: bool) -> None:
        for start, stop in matches.runs(_PAIRS_MAX):
            positions, numbers = matches.pairs(start, stop)
            if len(positions):
                self._send(rows, positions, other, numbers, is_left)

    def _with_keys(self, records: ColumnBatch, side: int) -> UncutRows:
        """Return the rows that can have matches, with their key columns first."""
        columns = pa.RecordBatch.from_arrays(list(map(records.data.column, self._keys[side])), self._key_names)
        keys = ColumnKey(self._key_names).select_columns(columns)
        rows = UncutRows(keys, records.data, self._build_column_names(side))
        refused = [
            key.is_valid()
            for key, matches in zip(keys, self._nulls_match, strict=True)
            if key.null_count and not matches
        ]
        if not refused:
            return rows
        filtered = rows.cut().filter(reduce(pc.and_, refused))
        own = pa.RecordBatch.from_arrays(filtered.columns[len(keys) :], filtered.schema.names[len(keys) :])
        return UncutRows(filtered.columns[: len(keys)], ColumnData(own), rows.names)

    def _send(self, rows: UncutRows, positions: Any, other: HeldColumns, numbers: Any, is_left: bool) -> None:
        if self._evaluator is not None:
            holds = self._holds(rows, positions, other, numbers, is_left)
            positions, numbers = positions[holds], numbers[holds]
            if not len(positions):
                return
        keys = len(self._key_names)
        widths = [len(types) for types in (self._types if is_left else self._types[::-1])]
        mine = [rows.taken(keys + index, positions) for index in range(widths[0])]
        theirs = other.taken(range(keys, keys + widths[1]), numbers)
        arrays = [*mine, *theirs] if is_left else [*theirs, *mine]
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names)))

    def _holds(self, rows: UncutRows, positions: Any, other: HeldColumns, numbers: Any, is_left: bool) -> Any:
        """Return for which pairs the condition is true."""
        assert self._evaluator is not None
        keys, width = len(self._key_names), len(self._types[0])
        lefts = [index for index in self._used if index < width]
        rights = [index for index in self._used if index >= width]
        mine, theirs = (lefts, rights) if is_left else (rights, lefts)
        begin = (0, width) if is_left else (width, 0)
        arrays = [pa.nulls(0)] * (max(self._used, default=-1) + 1)
        for index in mine:
            arrays[index] = rows.taken(keys + index - begin[0], positions)
        columns = other.taken([keys + index - begin[1] for index in theirs], numbers)
        for index, column in zip(theirs, columns, strict=True):
            arrays[index] = column
        (answers,) = self._evaluator(Columns(arrays, len(positions)))
        return pc.fill_null(answers, False).to_numpy(zero_copy_only=False)

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture the rows that are not in the last completed checkpoint."""
        captures = super().snapshot_state(checkpoint_id)
        about = about_columns(self._nulls_match)
        for state, side in zip(COLUMN_STATES, self._sides, strict=True):
            first = self.context.columns.start_capture(state, len(side), checkpoint_id)
            table = side.table(first)
            if table is not None:
                captures.append(ColumnsCapture(state, table, self._key_names, about, first))
        return captures
