"""Joins of two window tables: the rows of each window with each other, when the watermark has passed its end.

State of either side: (start, end) -> key -> its rows. A row whose window is over is late. Rows only come, and go with
their window, so the state has an end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import StreamOperator, UserCodeError
from penstock.core.operators.watermarks import LATE_RECORDS
from penstock.core.records import MIN_TIMESTAMP, Batch
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import DataType
from penstock.table.evaluation.evaluator import Evaluator
from penstock.table.plan.logical import JoinType
from penstock.table.streaming.joins.join_sides import PairCondition, SideKeys
from penstock.table.streaming.joins.joining_operator import taken_at
from penstock.table.streaming.rows.held_rows import columns_of, rows_of
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.streaming.rows.watermark_operator import milliseconds
from penstock.table.streaming.windows.window_ends import WindowEnds
from penstock.table.typed.nodes import Typed

#: The states of the sides.
SIDES: Final = ("left windows", "right windows")
_Window = tuple[int, int]
_Rows = list[tuple[Any, ...]]


class WindowJoinOperator(StreamOperator):
    """See the module's text.

    Args:
        join_type: which rows it gives; those of the left side alone for SEMI and ANTI.
        keys: the places of the columns of the key besides those of the window, for either side.
        nulls_match: for each column of the key whether NULL equals NULL.
        condition: over the columns of both sides, what else has to be true of pairs.
        types: of the columns of either side that are its rows; further ones are only there as keys.
        names: of the columns that it gives.
        edges: the places of the window's start and end, for either side.
        is_moment: whether the time attributes are moments, so that windows end in the session's time zone.
    """

    is_keyed = True

    def __init__(
        self,
        join_type: JoinType,
        keys: tuple[Sequence[int], Sequence[int]],
        nulls_match: Sequence[bool],
        condition: Typed | None,
        types: tuple[Sequence[DataType], Sequence[DataType]],
        names: Sequence[str],
        session: StreamSession,
        edges: tuple[tuple[int, int], tuple[int, int]],
        is_moment: bool,
    ) -> None:
        self._join_type = join_type
        self._finders = [SideKeys(places, nulls_match) for places in keys]
        self._condition = condition
        self._types = types
        self._names = list(names)
        self._session = session
        self._edges = edges
        self._is_moment = is_moment
        self._watermark = MIN_TIMESTAMP

    def open(self) -> None:
        """Look up the state, find when windows are due, and make what runs the condition."""
        self._ends = WindowEnds(self._session.zone if self._is_moment else None)
        self._tables = [self.context.keyed.table(side) for side in SIDES]
        windows = {window for table in self._tables for window in table.panes}
        self._due = [(self._ends.due_ms(end), (start, end)) for start, end in windows]
        heapify(self._due)
        self._where: PairCondition | None = None
        if self._condition is not None:
            session = self._session.open(self.context.now_ms)
            self._where = PairCondition(self._condition, len(self._types[0]), Evaluator([self._condition], session))

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Keep rows until their window is over."""
        taken = as_columns(batch, self.context.operator_name)
        starts, ends = (milliseconds(taken.columns.column(edge)).tolist() for edge in self._edges[input_index])
        keys = self._finders[input_index].of(taken.columns)
        types = self._types[input_index]
        rows = rows_of(taken.columns.columns[: len(types)], types, len(taken))
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
        """The rows of a window, and the keys whose rows change; None when it has fired."""
        due = self._ends.due_ms(window[1])
        if due <= self._watermark:
            return None
        if not any(window in table.panes for table in self._tables):
            heappush(self._due, (due, window))
        return self._tables[side].entries(window), set()

    def process_watermark(self, timestamp: int) -> None:
        """Join the windows that are over, in order of time."""
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
        others: _Rows = []
        places: dict[Any, range] = {}
        for key, rows in right.items():
            if not self._finders[1].matches_nothing(key):
                places[key] = range(len(others), len(others) + len(rows))
            others += rows
        mine: _Rows = []
        matches: list[Sequence[int]] = []
        for key, rows in left.items():
            mine += rows
            matches += [places.get(key, ())] * len(rows)
        columns = [columns_of(rows, types) for rows, types in zip((mine, others), self._types, strict=True)]
        if self._where is not None and any(matches):
            matches = self._where.kept(np.arange(len(mine)), matches, columns[0], columns[1], True)
        self._send(columns, matches, len(others))

    def _send(self, columns: list[list[pa.Array]], matches: list[Sequence[int]], others: int) -> None:
        kind = self._join_type
        if kind in (JoinType.SEMI, JoinType.ANTI):
            wanted = kind is JoinType.SEMI
            chosen: list[int | None] = [row for row, found in enumerate(matches) if bool(found) == wanted]
            arrays = taken_at(columns[0], chosen)
        else:
            chosen, other = _pairs(matches, others, kind)
            arrays = [*taken_at(columns[0], chosen), *taken_at(columns[1], other)]
        if chosen:
            self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names)))


def _pairs(matches: Sequence[Sequence[int]], others: int, kind: JoinType) -> tuple[list[int | None], list[int | None]]:
    """The places of the rows of each pair, None for a row that is missing."""
    mine: list[int | None] = []
    other: list[int | None] = []
    for row, found in enumerate(matches):
        if found:
            mine += [row] * len(found)
            other += found
        elif kind.keeps_left:
            mine.append(row)
            other.append(None)
    if kind.keeps_right:
        seen = set(other)
        alone = [place for place in range(others) if place not in seen]
        mine += [None] * len(alone)
        other += alone
    return mine, other
