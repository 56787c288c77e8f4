"""Joins of two window tables: the rows of each window are joined when the watermark passes its end.

The state of each side: (start, end) -> key -> rows. A row whose window has ended is late. Input is append-only and rows
are dropped with their window, so the state is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import UserCodeError
from penstock.core.operators.columnar.columnar_window_base import read_times
from penstock.core.operators.watermarks import LATE_RECORDS
from penstock.core.records import MIN_TIMESTAMP, Batch
from penstock.state.captures import StateCapture
from penstock.state.key_columns import ColumnsCapture
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.flat import milliseconds
from penstock.table.evaluation.evaluator import Evaluator
from penstock.table.plan.logical import JoinType
from penstock.table.streaming.joins.join_sides import PairCondition, SideKeys
from penstock.table.streaming.joins.joining_operator import take_rows
from penstock.table.streaming.joins.restored_rows import restored_rows
from penstock.table.streaming.joins.window_joining import COLUMN_STATES, SIDES, WindowJoining
from penstock.table.streaming.joins.window_rows import EDGES, END, START, key_names
from penstock.table.streaming.rows.evaluating import EvaluatingOperator
from penstock.table.streaming.rows.held_rows import build_columns, to_canonical_rows
from penstock.table.streaming.windows.window_ends import WindowEnds

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
