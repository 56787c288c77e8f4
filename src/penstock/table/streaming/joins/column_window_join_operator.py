"""Joins of two window tables, whose rows are stored as columns and never become Python objects.

The windows that a watermark has passed are joined at once, with start and end as additional key columns. Rows of a
closed window are late. The columns are in memory; with RocksDB, a `WindowJoinOperator` stores the rows instead. Each of
the two can restore the other's state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.columns.keys import ColumnKey
from penstock.core.operators.base import UserCodeError
from penstock.core.operators.columnar.columnar_window_base import read_times
from penstock.core.operators.watermarks import LATE_RECORDS
from penstock.core.records import MIN_TIMESTAMP, Batch
from penstock.state.captures import StateCapture
from penstock.state.key_columns import ColumnsCapture
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.flat import milliseconds
from penstock.table.data.logical_types import DataType
from penstock.table.evaluation.evaluator import Evaluator
from penstock.table.plan.logical import JoinType
from penstock.table.streaming.joins.held_columns import HeldColumns, Matches
from penstock.table.streaming.joins.join_sides import PairCondition
from penstock.table.streaming.joins.restored_rows import restored_rows
from penstock.table.streaming.joins.window_joining import COLUMN_STATES, SIDES, WindowJoining
from penstock.table.streaming.joins.window_rows import EDGES, END, START, WindowRows, build_row_schema
from penstock.table.streaming.rows.evaluating import EvaluatingOperator
from penstock.table.streaming.rows.held_rows import build_columns
from penstock.table.streaming.rows.key_hashes import is_own_number, key_hashes
from penstock.table.streaming.rows.row_keys import ONLY_KEY
from penstock.table.streaming.windows.window_ends import WindowEnds

#: The approximate maximum number of pairs to process at once.
_PAIRS_MAX: Final = 1 << 18
#: Marks a missing row.
_NO_ROW: Final = -1
_NONE: Final = np.zeros(0, np.int64)


class ColumnWindowJoinOperator(EvaluatingOperator):
    """See the module docstring, and `WindowJoining` for the arguments. `key_types`: the types of the key columns."""

    is_keyed = True

    def __init__(self, joining: WindowJoining, key_types: Sequence[DataType]) -> None:
        self._joining = joining
        self._key_types = [arrow_type(kind) for kind in key_types]
        self._watermark = MIN_TIMESTAMP

    def initialize_state(self) -> None:
        """Load the restored rows."""
        super().initialize_state()
        types = [map(arrow_type, of_side) for of_side in self._joining.types]
        self._sides = tuple(WindowRows(build_row_schema(self._key_types, list(of_side))) for of_side in types)
        for index, side in enumerate(self._sides):
            restored = restored_rows(self.context.columns, COLUMN_STATES[index], self._joining.about_columns())
            for rows in () if restored is None else restored.to_batches():
                side.add(rows)
            self._take_rows(index)

    def _take_rows(self, index: int) -> None:
        """Load a side from the state of a `WindowJoinOperator`."""
        if not self.context.keyed.has_restored(SIDES[index]):
            return
        table, side = self.context.keyed.table(SIDES[index]), self._sides[index]
        width = len(side.key_names)
        for start, end in list(table.panes):
            keys: list[Any] = []
            rows: list[tuple[Any, ...]] = []
            for key, stored in table.drop((start, end)).items():
                keys += [key] * len(stored)
                rows += stored
            if rows:
                of_keys = [keys] if width == 1 else list(zip(*keys, strict=True))
                kinds = side.schema.types[EDGES : EDGES + width]
                columns = [pa.array(of_key, kind) for of_key, kind in zip(of_keys, kinds, strict=True)]
                edges = [pa.repeat(pa.scalar(edge, pa.int64()), len(rows)) for edge in (start, end)]
                arrays = [*edges, *columns, *build_columns(rows, self._joining.types[index])]
                side.add(pa.RecordBatch.from_arrays(arrays, schema=side.schema))

    def open(self) -> None:
        """Create the evaluator of the condition."""
        joining = self._joining
        self._ends = WindowEnds(joining.session.zone if joining.is_moment else None)
        self._where: PairCondition | None = None
        if joining.condition is not None:
            evaluator = Evaluator([joining.condition], self.running(joining.session))
            self._where = PairCondition(joining.condition, len(joining.types[0]), evaluator)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Store rows until their window closes."""
        columns = as_columns(batch, self.context.operator_name).columns
        starts, ends = (milliseconds(columns.column(edge)) for edge in self._joining.edges[input_index])
        indices, side = self._joining.keys[input_index], self._sides[input_index]
        keys = (
            ColumnKey(tuple(columns.schema.names[index] for index in indices)).select_columns(columns)
            if indices
            else None
        )
        width = len(self._joining.types[input_index])
        arrays = [starts, ends, *(keys or [np.full(len(starts), ONLY_KEY, np.int64)]), *columns.columns[:width]]
        rows = pa.RecordBatch.from_arrays(list(map(pa.array, arrays)), schema=side.schema)
        late = ends - 1 <= self._watermark
        if late.any():
            self.context.count(LATE_RECORDS, int(late.sum()))
            rows = rows.filter(pa.array(~late))
        side.add(rows)

    def process_watermark(self, timestamp: int) -> None:
        """Join the closed windows, in order of time."""
        self._watermark = max(self._watermark, self._ends.reached(timestamp))
        if any(side.next_end is not None and side.next_end - 1 <= self._watermark for side in self._sides):
            left, right = (side.take_due(self._watermark + 1) for side in self._sides)
            try:
                self._join(left, right)
            except TableRuntimeError as error:
                raise UserCodeError(self.context.operator_name, f"windows until {timestamp}") from error
        self.output.emit_watermark(timestamp)

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture the rows of open windows."""
        captures = super().snapshot_state(checkpoint_id)
        about = self._joining.about_columns()
        for state, side in zip(COLUMN_STATES, self._sides, strict=True):
            captures.append(ColumnsCapture(state, side.table(), side.key_names, about))
        return captures

    # --- the rows of windows that are over ----------------------------------------------------------------------------

    def _join(self, left: pa.RecordBatch, right: pa.RecordBatch) -> None:
        kind = self._joining.join_type
        left = _in_order_of_windows(left)
        if kind is JoinType.INNER:
            for mine, other in self._pairs(left, right):
                self._send(left, mine, right, other)
            return
        pairs = list(self._pairs(left, right))
        mine, other = (np.concatenate([_NONE, *(pair[side] for pair in pairs)]) for side in (0, 1))
        if kind in (JoinType.SEMI, JoinType.ANTI):
            chosen = np.unique(mine) if kind is JoinType.SEMI else _others(mine, left.num_rows)
            self._send(left, chosen, right, None)
            return
        alone = _others(mine, left.num_rows) if kind.keeps_left else _NONE
        alone_there = _others(other, right.num_rows) if kind.keeps_right else _NONE
        mine = np.concatenate([mine, alone, np.full(len(alone_there), _NO_ROW)])
        other = np.concatenate([other, np.full(len(alone), _NO_ROW), alone_there])
        order = _in_order_of_time(left, mine, right, other)
        for begin in range(0, len(order), _PAIRS_MAX):
            chosen = order[begin : begin + _PAIRS_MAX]
            self._send(left, mine[chosen], right, other[chosen])

    def _pairs(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Iterator[tuple[Any, Any]]:
        """Yield the pairs in parts, as row indexes on either side."""
        positions = [self._may_match(rows) for rows in (left, right)]
        if not all(map(len, positions)):
            return
        names = [] if _is_one_window(left, right) else [START, END]
        if self._key_types:
            names += self._sides[0].key_names
        keys = [
            [_chosen(rows.column(name), of_rows) for name in names]
            for rows, of_rows in zip((left, right), positions, strict=True)
        ]
        if len(names) == 1 and self._where is None and (pairs := _pairs_of_one(keys[0][0], keys[1][0])) is not None:
            if len(pairs[0]):
                yield positions[0][pairs[0]], positions[1][pairs[1]]
            return
        matches = _matches(keys[0], keys[1]) if names else Matches.of_all(len(positions[0]), len(positions[1]))
        if matches is None:
            return
        for start, stop in matches.runs(_PAIRS_MAX):
            pairs = matches.pairs(start, stop)
            mine, other = positions[0][pairs[0]], positions[1][pairs[1]]
            if self._where is not None and len(mine):
                holds = self._where.holds((self._columns(left), mine), (self._columns(right), other))
                mine, other = mine[holds], other[holds]
            if len(mine):
                yield mine, other

    def _may_match(self, rows: pa.RecordBatch) -> Any:
        """Return the indexes of rows that can match: their key has no NULL in a column where NULL matches nothing."""
        may = np.ones(rows.num_rows, np.bool_)
        for name, matches in zip(self._sides[0].key_names, self._joining.nulls_match, strict=False):
            if not matches and rows.column(name).null_count:
                may &= rows.column(name).is_valid().to_numpy(zero_copy_only=False)
        return np.flatnonzero(may)

    def _columns(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """Return the columns of the input rows, without window and key."""
        columns: list[pa.Array] = rows.columns
        return columns[EDGES + len(self._sides[0].key_names) :]

    def _send(self, left: pa.RecordBatch, mine: Any, right: pa.RecordBatch, other: Any) -> None:
        """Emit rows by their indexes on either side; `other` is None to emit the left side only."""
        arrays = []
        for rows, positions in ((left, mine), (right, other)):
            if positions is not None:
                chosen = pa.array(positions, pa.int64(), mask=positions == _NO_ROW)
                arrays += [column.take(chosen) for column in self._columns(rows)]
        if len(mine):
            self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, list(self._joining.names))))


def _chosen(column: pa.Array, positions: Any) -> pa.Array:
    """Return the rows of a column at sorted indexes."""
    return column if len(positions) == len(column) else column.take(pa.array(positions))


def _in_order_of_windows(rows: pa.RecordBatch) -> pa.RecordBatch:
    if _is_one_window(rows):
        return rows
    return rows.take(pa.array(np.lexsort((read_times(rows, START), read_times(rows, END)))))


def _is_one_window(*sides: pa.RecordBatch) -> bool:
    """Return whether all rows belong to one window."""
    for name in (START, END):
        times = [read_times(rows, name) for rows in sides if rows.num_rows]
        if any((array != times[0][0]).any() for array in times):
            return False
    return True


def _pairs_of_one(keys: pa.Array, other_keys: pa.Array) -> tuple[Any, Any] | None:
    """Return the pairs of rows with equal integer keys, if the values of `keys` are unique; otherwise None."""
    if not is_own_number([keys.type]) or keys.null_count or other_keys.null_count or len(pc.unique(keys)) < len(keys):
        return None
    indices = pc.index_in(other_keys, value_set=keys)
    matching = indices.is_valid().to_numpy(zero_copy_only=False)
    other = np.flatnonzero(matching)
    mine = indices.drop_null().to_numpy()
    order = np.argsort(mine, kind="stable")
    return mine[order], other[order]


def _matches(keys: Sequence[pa.Array], other_keys: Sequence[pa.Array]) -> Matches | None:
    """Return the matches of `keys` among the rows of the other side."""
    candidates = HeldColumns(len(other_keys))
    candidates.add(
        key_hashes(other_keys), pa.RecordBatch.from_arrays(other_keys, list(map(str, range(len(other_keys)))))
    )
    return candidates.matches(key_hashes(keys), keys)


def _others(positions: Any, rows: int) -> Any:
    """Return all indexes below `rows` that are not in `positions`."""
    is_other = np.ones(rows, np.bool_)
    is_other[positions] = False
    return np.flatnonzero(is_other)


def _in_order_of_time(left: pa.RecordBatch, mine: Any, right: pa.RecordBatch, other: Any) -> Any:
    """Return the order of rows by their windows; each row has an index on at least one side."""
    positions = np.where(mine == _NO_ROW, other + left.num_rows, mine)
    ends, starts = (
        np.concatenate([read_times(left, name), read_times(right, name)])[positions] for name in (END, START)
    )
    return np.lexsort((starts, ends))
