"""Event-time temporal join: each left row with the version of the right table at the time of the left row.

A left row waits until the watermark, the minimum of both sides, reaches its time. No version from before that time can
then arrive, so the result is final. A version is a row of the right side. It lasts from its own time until the next
version of its key; a deletion ends it. When left rows are emitted, only the last version that the watermark has passed
is kept, even if it is a deletion, because an older version may arrive late.

As in Flink, a late left row is emitted at the next watermark, with one of the versions that still exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import UserCodeError
from penstock.core.operators.timers import TimerQueue
from penstock.core.records import Batch
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.flat import milliseconds
from penstock.table.data.logical_types import DataType
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.evaluator import Evaluator
from penstock.table.streaming.joins.join_sides import SideKeys
from penstock.table.streaming.joins.versions import TableVersions, ViewVersions
from penstock.table.streaming.rows.evaluating import EvaluatingOperator
from penstock.table.streaming.rows.held_rows import RowEquality, build_columns
from penstock.table.streaming.rows.null_times import check_times
from penstock.table.streaming.rows.row_tuples import pack_kinds, to_tuples
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.typed.nodes import Typed

#: The states: key -> [waiting rows, times of versions, versions, timer]; and timers.
ROWS: Final = "rows"
TIMERS: Final = "timers"
#: Fields of an entry: left rows as (time, kind, values) in arrival order; the times of versions and the versions in
#: time order, see `versions`; the time of the key's timer, or None.
_WAITING, _TIMES, _VERSIONS, _TIMER = range(4)


@dataclass(frozen=True, slots=True)
class TemporalSpec:
    """The specification of an event-time temporal join.

    Attributes:
        keeps_left: whether a left row without a version is emitted with NULL.
        keys: the indices of the key columns of each side.
        nulls_match: for each key column, whether NULL equals NULL.
        times: the index of the event time of each side.
        condition: a further condition on a row and its version, over the columns of both sides; or None.
        types: the types of the columns of each side; further columns serve only as keys.
        names: the names of the output columns.
        ends_by_before: see `TableVersions`.
        is_view: whether the right side is a view that keeps the last of several rows, see `ViewVersions`.
        shown: the index of the right column that says whether a row passes the view's filters; None if all rows do.
        columns: the names of the columns of each side, for errors.
    """

    keeps_left: bool
    keys: tuple[Sequence[int], Sequence[int]]
    nulls_match: tuple[bool, ...]
    times: tuple[int, int]
    condition: Typed | None
    types: tuple[Sequence[DataType], Sequence[DataType]]
    names: Sequence[str]
    ends_by_before: bool
    is_view: bool = False
    shown: int | None = None
    columns: tuple[Sequence[str], Sequence[str]] = ((), ())


class TemporalJoinOperator(EvaluatingOperator):
    """INNER and LEFT. See the module docstring."""

    is_keyed = True

    def __init__(self, spec: TemporalSpec, session: StreamSession) -> None:
        self._spec = spec
        self._session = session

    def open(self) -> None:
        """Open the state and build the condition's evaluator."""
        spec, table = self._spec, self.context.keyed.table(ROWS)
        self._entries, self._mark = table.entries(None), table.mark
        self._timers = TimerQueue(self.context.keyed.table(TIMERS))
        self._versions = (
            ViewVersions(spec.ends_by_before, RowEquality(spec.types[1]))
            if spec.is_view
            else TableVersions(spec.ends_by_before)
        )
        self._finders = [SideKeys(indices, spec.nulls_match) for indices in spec.keys]
        session = self.running(self._session)
        self._where = None if spec.condition is None else Evaluator([spec.condition], session)

    # --- rows ---------------------------------------------------------------------------------------------------------

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Let left rows wait, and record versions."""
        records = as_columns(batch, self.context.operator_name)
        times = self._read_times(records, input_index)
        keys = self._finders[input_index].of(records.columns)
        kinds = bytes(len(records)) if records.kinds is None else records.kinds
        rows = to_tuples(records, self._spec.types[input_index])
        shown = self._read_visibility(records) if input_index else repeat(True)
        entries, timers, note = self._entries, self._timers, self._versions.note
        for key, time, kind, row, is_shown in zip(keys, times, kinds, rows, shown, strict=False):
            entry = entries.get(key)
            if entry is None:
                entry = entries[key] = [[], [], [], None]
            if input_index:
                note(entry[_TIMES], entry[_VERSIONS], time, kind, row, is_shown)
            else:
                entry[_WAITING].append((time, kind, row))
            timer = entry[_TIMER]
            if timer is None or time < timer:
                if timer is not None:
                    timers.delete(timer, key)
                timers.register(time, key)
                entry[_TIMER] = time
        self._mark(None, set(keys))

    def _read_times(self, records: ColumnBatch, side: int) -> list[int]:
        spec = self._spec
        check_times(records, spec.times[side], spec.columns[side], self.context.operator_name, "a temporal join")
        times: list[int] = milliseconds(records.columns.column(spec.times[side])).tolist()
        return times

    def _read_visibility(self, records: ColumnBatch) -> Iterable[bool]:
        """Return whether each row of the right side passes the view's filters."""
        index = self._spec.shown
        if index is None:
            return repeat(True)
        return [bool(is_shown) for is_shown in records.columns.column(index).to_pylist()]

    # --- time ---------------------------------------------------------------------------------------------------------

    def process_watermark(self, timestamp: int) -> None:
        """Emit the rows whose time has come, and drop versions that no row in time can match."""
        kinds, left, right = bytearray(), [], []
        for _, key in self._timers.due(timestamp):
            entry = self._entries.get(key)
            if entry is None:
                continue
            refuses = self._finders[0].matches_nothing(key)
            for kind, row, version in self._answered(entry, timestamp):
                kinds.append(kind)
                left.append(row)
                right.append(None if refuses else version)
            self._clean(entry, key, timestamp)
            # Mark the entry now: without a mark it may be evicted unchanged between two timers.
            self._mark(None, (key,))
        if left:
            self._send(kinds, left, right)
        self.output.emit_watermark(timestamp)

    def _answered(self, entry: list[Any], up_to: int) -> list[tuple[int, tuple[Any, ...], tuple[Any, ...] | None]]:
        """Remove the rows whose time has come from the waiting rows, and return them with versions in arrival order."""
        times, versions, valid = entry[_TIMES], entry[_VERSIONS], self._versions.valid
        results, stays = [], []
        for waiting in entry[_WAITING]:
            time, kind, row = waiting
            if time > up_to:
                stays.append(waiting)
                continue
            results.append((kind, row, valid(times, versions, time)))
        entry[_WAITING] = stays
        return results

    def _clean(self, entry: list[Any], key: Any, up_to: int) -> None:
        """Drop the versions before the one that is valid at this time, and set the timer for the waiting rows."""
        self._versions.clean(entry[_TIMES], entry[_VERSIONS], up_to)
        if not entry[_TIMES] and not entry[_WAITING]:
            del self._entries[key]
            return
        entry[_TIMER] = min((waiting[0] for waiting in entry[_WAITING]), default=None)
        if entry[_TIMER] is not None:
            self._timers.register(entry[_TIMER], key)

    def _send(self, kinds: bytearray, left: list[Any], right: list[Any]) -> None:
        spec = self._spec
        mine = build_columns(left, spec.types[0])
        has = np.fromiter((version is not None for version in right), np.bool_, len(right))
        theirs = self._build_version_columns(right, has)
        if self._where is not None and has.any():
            try:
                (answers,) = self._where(Columns([*mine, *theirs], len(left)))
            except TableRuntimeError as error:
                raise UserCodeError(self.context.operator_name, f"{len(left)} rows with their versions") from error
            has &= answers.fill_null(False).to_numpy(zero_copy_only=False)
        if not spec.keeps_left:
            chosen = np.flatnonzero(has)
            indices = pa.array(chosen)
            mine = [column.take(indices) for column in mine]
            theirs = [column.take(indices) for column in theirs]
            kinds = bytearray(np.frombuffer(kinds, np.uint8)[chosen].tobytes())
        elif not has.all():
            indices = pa.array(np.arange(len(has)), mask=~has)
            theirs = [column.take(indices) for column in theirs]
        if kinds:
            columns = pa.RecordBatch.from_arrays([*mine, *theirs], list(spec.names))
            self.output.collect(ColumnBatch(columns, None, pack_kinds(kinds)))

    def _build_version_columns(self, right: list[Any], has: Any) -> list[pa.Array]:
        """Return the versions as columns, a row per left row. A version shared by several rows is converted once."""
        positions: dict[int, int] = {}
        distinct: list[tuple[Any, ...]] = []
        numbers: list[int | None] = []
        for version in right:
            if version is None:
                numbers.append(None)
                continue
            position = positions.setdefault(id(version), len(distinct))
            if position == len(distinct):
                distinct.append(version)
            numbers.append(position)
        types = self._spec.types[1]
        if not distinct:
            return [pa.nulls(len(right), arrow_type(kind)) for kind in types]
        indices = pa.array(numbers, pa.int64())
        return [column.take(indices) for column in build_columns(distinct, types)]
