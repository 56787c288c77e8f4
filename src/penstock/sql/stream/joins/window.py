"""Joins of two window tables: the rows of each window are joined when the watermark passes its end.

Input is append-only and rows are dropped with their window, so the state is bounded. A row whose window has ended is
late. `WindowJoining` is the specification that both operators share, with the names of their states.

`WindowRows` has the rows of one side as columns, until their windows end. A row consists of its window's start and end,
its key columns and its own columns. Rows are stored in parts, in arrival order. A part whose windows have all ended is
returned whole.

`WindowJoinOperator` has the state of each side as (start, end) -> key -> rows.

`ColumnWindowJoinOperator` stores the rows as columns, and they never become Python objects. The windows that a
watermark has passed are joined at once, with start and end as additional key columns. The columns are in memory; with
RocksDB, a `WindowJoinOperator` stores the rows instead. Each of the two can restore the other's state.

`window_join` plans these joins by the bounds of their windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.runtime.columns import ColumnBatch, ColumnKey, as_columns
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.columnar.windows import read_times
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.records import MIN_TIMESTAMP, Batch
from penstock.sql.analyzer.subqueries import TRUE
from penstock.sql.data.arrow import arrow_type, milliseconds
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import DataType
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.logical.nodes import Join, JoinType, WindowTable
from penstock.sql.optimizer.pushdown import JoinKeys
from penstock.sql.stream.joins.regular import restored_rows, take_rows
from penstock.sql.stream.joins.sides import HeldColumns, Matches, PairCondition, SideKeys
from penstock.sql.stream.planning.rule import Factory, PlannedJoin, with_keys
from penstock.sql.stream.rows.columns import is_own_number, key_hashes
from penstock.sql.stream.rows.rows import ONLY_KEY, build_columns, to_canonical_rows
from penstock.sql.stream.rows.state_ttl import EvaluatingOperator, StreamSession
from penstock.sql.stream.windows.window_aggregate import WindowEnds, WindowTime
from penstock.sql.typed import Field, Typed
from penstock.state.key_columns import ColumnsCapture
from penstock.state.snapshot import StateCapture

#: The states of the sides.
SIDES: Final = ("left windows", "right windows")
#: The states of a join that stores rows as columns.
COLUMN_STATES: Final = ("left_window_columns", "right_window_columns")


@dataclass(frozen=True, slots=True)
class WindowJoining:
    """The pairs and the output of a window join.

    Args:
        join_type: determines which rows the join emits; SEMI and ANTI emit rows of the left side only.
        keys: for each side, the indices of the key columns without the window's columns.
        nulls_match: for each key column, whether NULL equals NULL.
        condition: a further condition on pairs, over the columns of both sides.
        types: the types of each side's row columns; further columns serve only as keys.
        names: the names of the output columns.
        edges: for each side, the indices of the window's start and end.
        is_moment: whether the time attributes are instants, so that windows end in the session's time zone.
    """

    join_type: JoinType
    keys: tuple[tuple[int, ...], tuple[int, ...]]
    nulls_match: tuple[bool, ...]
    condition: Typed | None
    types: tuple[Sequence[DataType], Sequence[DataType]]
    names: tuple[str, ...]
    session: StreamSession
    edges: tuple[tuple[int, int], tuple[int, int]]
    is_moment: bool = False

    def about_columns(self) -> str:
        """Return the description of the columnar states, see `ColumnStates`."""
        return f"the rows of a join of windows by {len(self.nulls_match)} columns"


START: Final = "start"
END: Final = "end"
#: The number of window columns in a row.
EDGES: Final = 2
_KEY: Final = "key."
#: Batches are merged into parts of this many batches, so that single rows do not become parts.
_BATCHES: Final = 64


def key_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the key columns."""
    return tuple(name for name in names if name.startswith(_KEY))


def build_row_schema(keys: Sequence[pa.DataType], rows: Sequence[pa.DataType]) -> pa.Schema:
    """Return the schema of rows. Without key columns, all rows share one key, which gives them a key group."""
    keys = list(keys) or [pa.int64()]
    edges = [(START, pa.int64()), (END, pa.int64())]
    of_key = [(f"{_KEY}{index}", kind) for index, kind in enumerate(keys)]
    return pa.schema([*edges, *of_key, *((f"c{index}", kind) for index, kind in enumerate(rows))])


class WindowRows:
    """See the module docstring. `schema`: see `build_row_schema`."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.key_names = key_names(schema.names)
        #: rows with the first and the last end of their windows
        self._parts: list[tuple[pa.RecordBatch, int, int]] = []
        #: batches not yet merged into a part
        self._new: list[pa.RecordBatch] = []
        self.next_end: int | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows."""
        if not rows.num_rows:
            return
        least = int(read_times(rows, END).min())
        self.next_end = least if self.next_end is None else min(self.next_end, least)
        self._new.append(rows)
        if len(self._new) >= _BATCHES:
            self._settle()

    def _settle(self) -> None:
        if self._new:
            self._append(_together(self._new))
            self._new = []

    def _append(self, rows: pa.RecordBatch) -> None:
        ends = read_times(rows, END)
        self._parts.append((rows, int(ends.min()), int(ends.max())))

    def take_due(self, end: int) -> pa.RecordBatch:
        """Remove and return the rows of windows that end at or before `end`."""
        if self.next_end is None or self.next_end > end:
            return pa.RecordBatch.from_pylist([], self.schema)
        self._settle()
        parts, self._parts = self._parts, []
        due = []
        for rows, first, last in parts:
            if last <= end:
                due.append(rows)
            elif first > end:
                self._parts.append((rows, first, last))
            else:
                is_due = read_times(rows, END) <= end
                due.append(rows.filter(pa.array(is_due)))
                self._append(rows.filter(pa.array(~is_due)))
        self.next_end = min((first for _, first, _ in self._parts), default=None)
        return _together(due)

    def table(self) -> pa.Table:
        """Return all rows."""
        return pa.Table.from_batches([*(rows for rows, _, _ in self._parts), *self._new], self.schema)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(batches) if len(batches) > 1 else batches[0]


#: Columnar state is imported in batches of this many rows; state may be evicted from memory after each.
_ROWS_AT_ONCE: Final = 1 << 14
_Window = tuple[int, int]
_Rows = list[tuple[Any, ...]]


class WindowJoinOperator(EvaluatingOperator):
    """See the module docstring."""

    is_keyed = True

    def __init__(self, joining: WindowJoining) -> None:
        self._joining = joining
        self._finders = [SideKeys(indices, joining.nulls_match) for indices in joining.keys]
        self._watermark = MIN_TIMESTAMP

    def initialize_state(self) -> None:
        """Open the state, and import the state of a `ColumnWindowJoinOperator`."""
        super().initialize_state()
        self._tables = [self.context.keyed.table(side) for side in SIDES]
        #: states imported from another operator, without their rows
        self._taken: dict[str, pa.Table] = {}
        for index, name in enumerate(COLUMN_STATES):
            columns = restored_rows(self.context.columns, name, self._joining.about_columns())
            if columns is not None and columns.num_rows:
                self._take_columns(columns, index)
                self._taken[name] = columns.slice(0, 0)

    def open(self) -> None:
        """Schedule the restored windows, and build the condition's evaluator."""
        joining = self._joining
        self._ends = WindowEnds(joining.session.zone if joining.is_moment else None)
        windows = {window for table in self._tables for window in table.panes}
        self._due = [(self._ends.due_ms(end), (start, end)) for start, end in windows]
        heapify(self._due)
        self._where: PairCondition | None = None
        if joining.condition is not None:
            evaluator = Evaluator([joining.condition], self.running(joining.session))
            self._where = PairCondition(joining.condition, len(joining.types[0]), evaluator)

    def _take_columns(self, columns: pa.Table, index: int) -> None:
        """Import the state of one side from a `ColumnWindowJoinOperator`."""
        table, types = self._tables[index], self._joining.types[index]
        width = len(columns.schema) - EDGES - len(types)
        of_key = SideKeys(range(width), self._joining.nulls_match)
        for batch in columns.to_batches(max_chunksize=_ROWS_AT_ONCE):
            starts, ends = (read_times(batch, name).tolist() for name in (START, END))
            keys = of_key.of(batch.select(batch.schema.names[EDGES : EDGES + width]))
            rows = to_canonical_rows(batch.columns[EDGES + width :], types, len(keys))
            changed: dict[_Window, set[Any]] = {}
            for window, key, row in zip(zip(starts, ends, strict=True), keys, rows, strict=True):
                table.entries(window).setdefault(key, []).append(row)
                changed.setdefault(window, set()).add(key)
            for window, of_window in changed.items():
                table.mark(window, of_window)
            if table.settle is not None:
                table.settle()

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture the rows by window and key; the states that they were imported from are now empty."""
        about = self._joining.about_columns()
        emptied = [
            ColumnsCapture(name, table, key_names(table.schema.names), about) for name, table in self._taken.items()
        ]
        return [*super().snapshot_state(checkpoint_id), *emptied]

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Store rows until their window ends."""
        records = as_columns(batch, self.context.operator_name)
        starts, ends = (
            milliseconds(records.columns.column(edge)).tolist() for edge in self._joining.edges[input_index]
        )
        keys = self._finders[input_index].of(records.columns)
        types = self._joining.types[input_index]
        rows = to_canonical_rows(records.columns.columns[: len(types)], types, len(records))
        table = self._tables[input_index]
        panes: dict[_Window, tuple[dict[Any, _Rows], set[Any]] | None] = {}
        late = 0
        for window, key, row in zip(zip(starts, ends, strict=True), keys, rows, strict=True):
            if window not in panes:
                panes[window] = self._pane(window, input_index)
            pane = panes[window]
            if pane is None:
                late += 1
                continue
            pane[0].setdefault(key, []).append(row)
            pane[1].add(key)
        for window, pane in panes.items():
            if pane is not None:
                table.mark(window, pane[1])
        if late:
            self.context.count(LATE_RECORDS, late)

    def _pane(self, window: _Window, side: int) -> tuple[dict[Any, _Rows], set[Any]] | None:
        """Return the rows of a window, and the set of keys whose rows change; None if the window has fired."""
        due = self._ends.due_ms(window[1])
        if due <= self._watermark:
            return None
        if not any(window in table.panes for table in self._tables):
            heappush(self._due, (due, window))
        return self._tables[side].entries(window), set()

    def process_watermark(self, timestamp: int) -> None:
        """Join the windows that have ended, in time order."""
        self._watermark = timestamp
        while self._due and self._due[0][0] <= timestamp:
            _, window = heappop(self._due)
            left, right = (table.drop(window) for table in self._tables)
            try:
                self._join(left, right)
            except TableRuntimeError as error:
                raise UserCodeError(self.context.operator_name, f"the window {window}") from error
        self.output.emit_watermark(timestamp)

    def _join(self, left: Mapping[Any, _Rows], right: Mapping[Any, _Rows]) -> None:
        theirs: _Rows = []
        ranges: dict[Any, range] = {}
        for key, rows in right.items():
            if not self._finders[1].matches_nothing(key):
                ranges[key] = range(len(theirs), len(theirs) + len(rows))
            theirs += rows
        mine: _Rows = []
        matches: list[Sequence[int]] = []
        for key, rows in left.items():
            mine += rows
            matches += [ranges.get(key, ())] * len(rows)
        columns = [build_columns(rows, types) for rows, types in zip((mine, theirs), self._joining.types, strict=True)]
        if self._where is not None and any(matches):
            matches = self._where.kept(np.arange(len(mine)), matches, columns[0], columns[1], True)
        self._send(columns, matches, len(theirs))

    def _send(self, columns: list[list[pa.Array]], matches: list[Sequence[int]], right_count: int) -> None:
        kind = self._joining.join_type
        if kind in (JoinType.SEMI, JoinType.ANTI):
            keeps_matched = kind is JoinType.SEMI
            chosen: list[int | None] = [
                row for row, row_matches in enumerate(matches) if bool(row_matches) == keeps_matched
            ]
            arrays = take_rows(columns[0], chosen)
        else:
            chosen, other = _pairs(matches, right_count, kind)
            arrays = [*take_rows(columns[0], chosen), *take_rows(columns[1], other)]
        if chosen:
            self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, list(self._joining.names))))


def _pairs(
    matches: Sequence[Sequence[int]], right_count: int, kind: JoinType
) -> tuple[list[int | None], list[int | None]]:
    """Return the positions of the rows of each pair, None for a missing row."""
    mine: list[int | None] = []
    other: list[int | None] = []
    for row, row_matches in enumerate(matches):
        if row_matches:
            mine += [row] * len(row_matches)
            other += row_matches
        elif kind.keeps_left:
            mine.append(row)
            other.append(None)
    if kind.keeps_right:
        matched = set(other)
        alone = [position for position in range(right_count) if position not in matched]
        mine += [None] * len(alone)
        other += alone
    return mine, other


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


#: the indices of window start and end for each side, and the window table of the left side
WindowEdges: TypeAlias = tuple[tuple[int, int], tuple[int, int], WindowTable]


def window_join(
    join: Join,
    windows: WindowEdges,
    keys: JoinKeys,
    names: Sequence[str],
    session: StreamSession,
    is_in_memory: bool,
) -> PlannedJoin:
    """Plan a window join.

    Args:
        join: the join.
        windows: the windows of its sides.
        keys: the equalities of its condition, including the equalities of the window.
        names: the names of the output columns.
        session: the session of its operator.
        is_in_memory: whether rows may be stored as columns.
    """
    left_edges, right_edges, window = windows
    time = WindowTime.of(window)
    if time.is_processing:
        raise UnsupportedError(
            "Processing time Window Join is not supported yet: take an event time attribute for both windows"
        )
    edges = set(zip(left_edges, right_edges, strict=True))
    indices = [
        index
        for index, (key, other) in enumerate(zip(keys.left, keys.right, strict=True))
        if not (isinstance(key, Field) and isinstance(other, Field) and (key.index, other.index) in edges)
    ]
    left, left_places = with_keys(join.left, [keys.left[index] for index in indices])
    right, right_places = with_keys(join.right, [keys.right[index] for index in indices])
    joining = WindowJoining(
        join.join_type,
        (left_places, right_places),
        tuple(keys.nulls_match[index] for index in indices),
        None if keys.rest == TRUE else keys.rest,
        (join.left.schema.types, join.right.schema.types),
        tuple(names),
        session,
        (left_edges, right_edges),
        time.is_moment,
    )
    operator: Factory = partial(WindowJoinOperator, joining)
    if is_in_memory:
        operator = partial(ColumnWindowJoinOperator, joining, [left.schema.types[index] for index in left_places])
    name = f"Window Join {join.join_type.value}"
    return PlannedJoin(name, (left, right), (left_places, right_places), operator, False)
