"""Operators of OVER windows, by the order of their rows: arrival, a column other than a time attribute, or time.

`OverAtOnceOperator`, for processing-time order: each row is emitted with its result as soon as it arrives.

`OverInOrderOperator`, for a column other than a time attribute: results are updated as rows are inserted and retracted.
The state of a partition has its rows in order, in groups: with ROWS each row is a group, with RANGE all rows of one
sort value are a group. A group is [sort value, rows, accumulators up to its end]. Inserting or retracting a row changes
the results of all rows after it, up to the first group whose accumulators stay the same.

`WaitingOverOperator`, for time order: rows wait until their time has passed, in a state table whose namespaces are
their times. For the state of a partition see `functions`. The state of a bounded RANGE frame is dropped when time has
advanced so far that no frame can reach its rows. The state of other frames is dropped if state expires and no row has
arrived for that long.

`OverRule` checks whether streams support an OVER window, and selects the operator.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.runtime.columns import ColumnBatch, as_columns
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.watermarks import LATE_RECORDS, TimerQueue
from penstock.runtime.records import MAX_TIMESTAMP, MAX_WATERMARK, MIN_TIMESTAMP, Batch
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import (
    ArrayType,
    BitmapType,
    DataType,
    DayTimeIntervalType,
    IntegralType,
    MapType,
    MultisetType,
    RowType,
    VariantType,
)
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.nodes import (
    ALL,
    DELETE,
    INSERT,
    INSERTS,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    AggregateCall,
    Changes,
    TimeAttribute,
)
from penstock.sql.stream.over.functions import END, LAST, Entry, Frame, OverCalls, Row, check_over, copied
from penstock.sql.stream.planning.rule import Factory, Planning, Rule, Stream, by_columns, name_columns
from penstock.sql.stream.rows.rows import RowEquality, RowKeys, pack_kinds
from penstock.sql.stream.rows.state_ttl import EvaluatingOperator, ExpiringOperator, StreamSession, lasting
from penstock.sql.stream.rows.watermarks import check_times
from penstock.sql.typed import Constant
from penstock.state.equality import same_objects

#: The name of the state.
FRAMES = "over_frames"


class OverAtOnceOperator(EvaluatingOperator, ExpiringOperator):
    """Emits rows with the results of the calls over the rows so far.

    Args:
        partition: the columns that rows are partitioned by.
        order: the column that they are ordered by.
        calls: the calls, over columns of the input.
        types: the types of the input columns.
        names: the names of the output columns: the input's, then the calls'.
        distance: the number of rows before the current one in the frame; None for all.
        session: the session of user-defined functions.
    """

    def __init__(
        self,
        partition: Sequence[int],
        order: int,
        calls: Sequence[AggregateCall],
        types: Sequence[DataType],
        names: Sequence[str],
        distance: int | None,
        session: StreamSession | None = None,
    ) -> None:
        self._partition = RowKeys(partition)
        self._order = order
        self._call_list = tuple(calls)
        self._types = tuple(types)
        self._names = list(names)
        self._distance = distance
        self._session = session or StreamSession()

    def open(self) -> None:
        """Open the state."""
        functions = self.running(self._session).functions
        self._calls = OverCalls(self._call_list, self._order, self._types, self._distance is not None, functions)
        self._frame = Frame(self._calls, True, self._distance)
        table = self.context.keyed.table(FRAMES)
        self._entries, self._mark = table.entries(None), table.mark
        self._expire(self._entries, table.mark)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Aggregate the rows, and emit each with its results."""
        records = as_columns(batch, self.context.operator_name)
        keys = self._partition.of(records.columns)
        distinct = set(keys)
        self._look(distinct)
        entries, frame = self._entries, self._frame
        results = []
        try:
            for key, row in zip(keys, self._calls.rows(records, False), strict=True):
                entry = entries.get(key)
                if entry is None:
                    entry = entries[key] = frame.create()
                results += frame.results(entry, 0, (row,))
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
        self._mark(None, distinct)
        self._written(distinct)
        arrays = [*records.columns.columns, *self._calls.columns(results)]
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), records.rowtimes))


#: The name of the state.
SORTED: Final = "over_sorted"
_ORDER, _ROWS, _HELD = range(3)
_by_order: Final[Callable[[Any], Any]] = itemgetter(_ORDER)


class OverInOrderOperator(EvaluatingOperator, ExpiringOperator):
    """Emits rows with the results of the calls over all rows up to them, as a changelog.

    Args:
        partition: the columns that rows are partitioned by.
        order: the column that they are ordered by, ascending.
        nulls_first: whether NULL sorts before all values; otherwise it sorts last.
        calls: the calls, over columns of the input.
        types: the types of the input columns.
        names: the names of the output columns: the input's, then the calls'.
        is_rows: whether it is a ROWS frame; otherwise it is a RANGE frame.
        session: the session of user-defined functions.
    """

    def __init__(
        self,
        partition: Sequence[int],
        order: int,
        nulls_first: bool,
        calls: Sequence[AggregateCall],
        types: Sequence[DataType],
        names: Sequence[str],
        is_rows: bool,
        session: StreamSession | None = None,
    ) -> None:
        self._partition = RowKeys(partition)
        self._order = order
        self._null = (-1,) if nulls_first else (2,)
        self._call_list = tuple(calls)
        self._types = tuple(types)
        self._equality = RowEquality(types)
        self._names = list(names)
        self._is_rows = is_rows
        self._session = session or StreamSession()

    def open(self) -> None:
        """Open the state."""
        functions = self.running(self._session).functions
        self._calls = OverCalls(self._call_list, self._order, self._types, False, functions, counts_sums=True)
        table = self.context.keyed.table(SORTED)
        self._entries, self._mark = table.entries(None), table.mark
        self._expire(self._entries, table.mark)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Apply changes, and emit the changed results."""
        records = as_columns(batch, self.context.operator_name)
        keys = self._partition.of(records.columns)
        distinct = set(keys)
        self._look(distinct)
        kinds = records.kinds or bytes(len(records))
        self._rows: list[Row] = []
        self._values: list[Row] = []
        self._kinds = bytearray()
        try:
            for key, row, kind in zip(keys, self._calls.rows(records, True), kinds, strict=True):
                self._change(key, row, kind)
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(records)} rows") from error
        self._mark(None, distinct)
        self._written(distinct)
        if self._rows:
            arrays = [*self._calls.row_columns(self._rows), *self._calls.columns(self._values)]
            sent = pack_kinds(self._kinds)
            self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), None, sent))

    def _change(self, key: Any, row: Row, kind: int) -> None:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = [[], {}]
        # A retraction that arrives before its insert is owed.
        groups, owed = entry
        if kind in (INSERT, UPDATE_AFTER):
            if owed and (name := self._owed_name(owed, row)) in owed:
                _count(owed, name, -1)
            else:
                self._insert(groups, row, kind)
        elif not self._remove(groups, row) and not self.ttl_ms:
            _count(owed, self._equality.key(row), 1)
        if not groups and not owed:
            del self._entries[key]

    def _owed_name(self, owed: dict[Any, int], row: Row) -> Row:
        """Return the key of a row among the owed rows."""
        name = self._equality.key(row)
        return name if name in owed else self._equality.find(row, owed) or name

    def _place(self, value: Any) -> tuple[Any, ...]:
        """Return the sort value of a column value."""
        return self._null if value is None else _place(value)

    def _insert(self, groups: list[Any], row: Row, kind: int) -> None:
        sort_value, operands = self._place(row[self._order]), self._calls.operands(row)
        if self._is_rows:
            index = bisect_right(groups, sort_value, key=_by_order)
        else:
            index = bisect_left(groups, sort_value, key=_by_order)
            if index < len(groups) and groups[index][_ORDER] == sort_value:
                group = groups[index]
                states = copied(group[_HELD])
                self._calls.add(states, operands)
                self._replace(group, states, group[_ROWS])
                group[_ROWS].append(row)
                self._send(kind, row, self._calls.values(states))
                self._go_on(groups, index + 1, states)
                return
        states = self._held_before(groups, index)
        self._calls.add(states, operands)
        groups.insert(index, [sort_value, [row], states])
        self._send(kind, row, self._calls.values(states))
        self._go_on(groups, index + 1, states)

    def _remove(self, groups: list[Any], row: Row) -> bool:
        """Remove a row. Returns whether it existed."""
        sort_value = self._place(row[self._order])
        index = bisect_left(groups, sort_value, key=_by_order)
        at = None
        while index < len(groups) and groups[index][_ORDER] == sort_value:
            group = groups[index]
            at = self._find_index(row, group[_ROWS])
            if at is not None:
                break
            index += 1
        if at is None:
            return False
        rows: list[Row] = group[_ROWS]
        # Retract the row as it was emitted: equal values may have other forms.
        self._send(DELETE, rows.pop(at), self._calls.values(group[_HELD]))
        states = self._held_before(groups, index)
        if rows:
            self._add_all(states, rows)
            self._replace(group, states, rows)
            index += 1
        else:
            del groups[index]
        self._go_on(groups, index, states)
        return True

    def _find_index(self, row: Row, rows: list[Row]) -> int | None:
        if self._equality.is_plain:
            return rows.index(row) if row in rows else None
        return next((index for index, other in enumerate(rows) if self._equality.same(row, other)), None)

    def _held_before(self, groups: list[Any], index: int) -> list[Any]:
        return copied(groups[index - 1][_HELD]) if index else self._calls.create()

    def _add_all(self, states: list[Any], rows: Sequence[Row]) -> None:
        for row in rows:
            self._calls.add(states, self._calls.operands(row))

    def _replace(self, group: list[Any], states: list[Any], rows: Sequence[Row]) -> bool:
        """Replace the accumulators of a group, and emit updates of these rows.

        Returns whether the accumulators differ.
        """
        if same_objects(states, group[_HELD]):
            return False
        before, after = self._calls.values(group[_HELD]), self._calls.values(states)
        for row in rows:
            self._send(UPDATE_BEFORE, row, before)
            self._send(UPDATE_AFTER, row, after)
        group[_HELD] = states
        return True

    def _go_on(self, groups: list[Any], index: int, states: list[Any]) -> None:
        """Recompute the groups from an index on. `states`: the accumulators of the previous group."""
        for group in groups[index:]:
            states = copied(states)
            self._add_all(states, group[_ROWS])
            if not self._replace(group, states, group[_ROWS]):
                return

    def _send(self, kind: int, row: Row, values: Row) -> None:
        self._kinds.append(kind)
        self._rows.append(row)
        self._values.append(values)


def _place(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (-1,)
    if isinstance(value, list | tuple):
        return (0, tuple(map(_place, value)))
    return (1,) if value != value else (0, value)  # NaN sorts after all numbers


def _count(counts: dict[Any, int], key: Any, by: int) -> None:
    counts[key] = counts.get(key, 0) + by
    if not counts[key]:
        del counts[key]


#: The states: waiting rows, and when partitions are dropped.
WAITING: Final = "over_waiting"
ENDS: Final = "over_ends"
_MILLISECOND_NS: Final = 1_000_000
#: A batch is emitted when it has this many rows.
_BATCH_ROWS: Final = 4096


class WaitingOverOperator(EvaluatingOperator, ExpiringOperator):
    """The base class: rows wait, and are emitted in the order of their times.

    Args:
        partition: the columns that rows are partitioned by.
        order: the column that they are ordered by.
        calls: the calls, over columns of the input.
        types: the types of the input columns.
        names: the names of the output columns: the input's, then the calls'.
        is_rows: whether it is a ROWS frame; otherwise it is a RANGE frame.
        distance: how many rows, or how many ms, the frame reaches back; None if it is unbounded.
        session: the session of user-defined functions.
        columns: the names of the input columns, for errors.
    """

    def __init__(
        self,
        partition: Sequence[int],
        order: int,
        calls: Sequence[AggregateCall],
        types: Sequence[DataType],
        names: Sequence[str],
        is_rows: bool,
        distance: int | None,
        session: StreamSession | None = None,
        columns: Sequence[str] = (),
    ) -> None:
        self._columns = tuple(columns)
        self._partition = RowKeys(partition)
        self._order = order
        self._call_list = tuple(calls)
        self._types = tuple(types)
        self._names = list(names)
        self._is_rows = is_rows
        self._distance = distance
        self._session = session or StreamSession()

    def open(self) -> None:
        """Open the state."""
        functions = self.running(self._session).functions
        self._calls = OverCalls(self._call_list, self._order, self._types, self._distance is not None, functions)
        self._frame = Frame(self._calls, self._is_rows, self._distance)
        self._ends_after = None if self._is_rows else self._distance
        keyed = self.context.keyed
        self._table = keyed.table(FRAMES)
        self._entries = self._table.entries(None)
        self._waiting = keyed.table(WAITING)
        self._times = list(self._waiting.panes)
        heapify(self._times)
        self._ends = TimerQueue(keyed.table(ENDS))
        self._waiting_keys: set[Any] = set()
        if self._ends_after is None:
            self._begin_lifetimes(self._entries, self._forget_idle)

    def _forget_idle(self, key: Any) -> bool:
        """Drop a partition without waiting rows. Returns False if rows wait."""
        if key in self._waiting_keys:
            return False
        if self._entries.pop(key, None) is not None:
            self._table.changed(None).add(key)
        return True

    def on_processing_time(self, now_ms: int) -> None:
        """Drop expired partitions."""
        due = super().next_timer_ms()
        if due is not None and due <= now_ms:
            self._waiting_keys = set().union(*self._waiting.panes.values())
            super().on_processing_time(now_ms)

    def _keep(self, key: Any, time: int, row: Row) -> None:
        """Let a row wait."""
        waiting = self._waiting
        rows = waiting.panes.get(time)
        if rows is None:
            rows = waiting.entries(time)
            heappush(self._times, time)
        key_rows = rows.get(key)
        if key_rows is None:
            rows[key] = [row]
        else:
            key_rows.append(row)
        if not waiting.is_next_whole:
            waiting.changed(time).add(key)
        if self._ends_after is not None:
            self._end_later(key, time, self._ends_after)

    def _entry(self, key: Any) -> Entry:
        entry: Entry | None = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = self._frame.create()
        return entry

    def _end_later(self, key: Any, time: int, distance: int) -> None:
        """Keep a partition until no frame can reach this time, and half as long again."""
        entry = self._entry(key)
        if entry[END] is None or entry[END] < time + distance + 1:
            entry[END] = time + distance * 3 // 2 + 1
            self._ends.register(entry[END], key)
            self._table.changed(None).add(key)

    def _fire(self, up_to: int, has_times: bool) -> None:
        """Emit all rows up to a time, and drop partitions that end.

        `has_times`: whether to emit rows with their times.
        """
        results = _Results()
        try:
            while True:
                time = self._times[0] if self._times else MAX_TIMESTAMP + 1
                end = self._ends.next_timestamp()
                if time <= up_to and (end is None or time <= end):
                    heappop(self._times)
                    self._take(time, results)
                    if len(results.rows) >= _BATCH_ROWS:
                        self._send(results, has_times)
                elif end is not None and end <= up_to:
                    self.context.fired_timers += self._ends.fire(end, self._forget)
                else:
                    break
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, "rows of one time") from error
        self._send(results, has_times)

    def _take(self, time: int, results: _Results) -> None:
        for key, rows in list(self._waiting.drop(time).items()):
            results.values += self._frame.results(self._entry(key), time, rows)
            results.rows += rows
            results.times += [time] * len(rows)
            self._table.changed(None).add(key)

    def _forget(self, time: int, key: Any) -> None:
        entry = self._entries.get(key)
        if entry is None:
            return
        if entry[END] <= time:
            del self._entries[key]
        else:
            # as in Flink, a timer that drops nothing still makes earlier rows late
            entry[LAST] = max(entry[LAST], time)
        self._table.changed(None).add(key)

    def _send(self, results: _Results, has_times: bool) -> None:
        if not results.rows:
            return
        arrays = [*self._calls.row_columns(results.rows), *self._calls.columns(results.values)]
        times = np.array(results.times, np.int64) if has_times else None
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, self._names), times))
        results.clear()


class OverInEventTimeOperator(WaitingOverOperator):
    """Emits rows when the watermark passes their time.

    A row is late if its time has passed. For bounded frames that is the time of the partition's last row or last timer,
    otherwise the watermark.
    """

    def open(self) -> None:
        """Open the state."""
        super().open()
        self._watermark = MIN_TIMESTAMP

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Let rows wait, and count late rows."""
        records = as_columns(batch, self.context.operator_name)
        check_times(records, self._order, self._columns, self.context.operator_name, "OVER")
        keys = self._partition.of(records.columns)
        self._written(set(keys))
        late, order, is_bounded = 0, self._order, self._distance is not None
        for key, row in zip(keys, self._calls.rows(records, True), strict=True):
            time = row[order] // _MILLISECOND_NS
            if time <= (self._last(key) if is_bounded else self._watermark):
                late += 1
            else:
                self._keep(key, time, row)
        if late:
            self.context.count(LATE_RECORDS, late)

    def _last(self, key: Any) -> int:
        entry = self._entries.get(key)
        return MIN_TIMESTAMP if entry is None else entry[LAST]

    def process_watermark(self, timestamp: int) -> None:
        """Emit due rows, then the watermark."""
        self._watermark = timestamp
        self._fire(timestamp, True)
        self.output.emit_watermark(timestamp)

    def end_keys(self) -> None:
        """Emit all rows."""
        self.advance_keys(MAX_WATERMARK)

    def advance_keys(self, timestamp: int) -> None:
        """Emit due rows."""
        before = self._watermark
        self.process_watermark(timestamp)
        self._watermark = before


class OverInProcessingTimeOperator(WaitingOverOperator):
    """RANGE frames in processing time: rows are emitted a millisecond later; rows of one millisecond share results."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Let rows wait."""
        records = as_columns(batch, self.context.operator_name)
        now_ms = self.context.now_ms()
        keys = self._partition.of(records.columns)
        self._written(set(keys))
        for key, row in zip(keys, self._calls.rows(records, True), strict=True):
            self._keep(key, now_ms, row)

    def next_timer_ms(self) -> int | None:
        """Return when the earliest rows are due, or a partition ends or expires."""
        end, expiry = self._ends.next_timestamp(), super().next_timer_ms()
        times = [*self._times[:1], *(() if end is None else (end,))]
        return min([*(time + 1 for time in times), *(() if expiry is None else (expiry,))], default=None)

    def on_processing_time(self, now_ms: int) -> None:
        """Emit due rows, and drop expired partitions."""
        self._fire(now_ms - 1, False)
        super().on_processing_time(now_ms)

    def finish(self) -> None:
        """Emit all rows."""
        self._fire(MAX_TIMESTAMP, False)


class _Results:
    """Rows to emit, their results and their times."""

    __slots__ = ("rows", "times", "values")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.rows: list[Row] = []
        self.values: list[Row] = []
        self.times: list[int] = []


_UNORDERED: Final = (MapType, MultisetType, BitmapType, VariantType)


def over_changes(node: logical.Over) -> Changes:
    """Return the changelog mode of a window."""
    return INSERTS if over_time(node) is not None else ALL


def over_time(node: logical.Over) -> TimeAttribute | None:
    """Return the time attribute that rows are ordered by; None for other columns."""
    return node.input.schema[node.order[0].index].time if node.order else None


def over_operator(node: logical.Over, names: list[str], session: StreamSession) -> Factory:
    """Return the operator of a window. Raises `ValidationError` for windows that Flink rejects."""
    _check(node)
    distance, time = _distance(node), over_time(node)
    for call in node.calls:
        check_over(call, distance is not None)
    order, types = node.order[0], node.input.schema.types
    if time is None:
        if distance is not None:
            raise ValidationError("Non-time attribute sort is not supported for bounded OVER window.")
        _check_order(types[order.index])
        return partial(
            OverInOrderOperator,
            node.partition,
            order.index,
            order.nulls_first,
            node.calls,
            types,
            names,
            node.is_rows,
            session,
        )
    if time is TimeAttribute.PROCTIME and (node.is_rows or distance is None):
        return partial(OverAtOnceOperator, node.partition, order.index, node.calls, types, names, distance, session)
    kind = OverInEventTimeOperator if time is TimeAttribute.ROWTIME else OverInProcessingTimeOperator
    columns = node.input.schema.names
    return partial(
        kind, node.partition, order.index, node.calls, types, names, node.is_rows, distance, session, columns
    )


def _check(node: logical.Over) -> None:
    if len(node.order) != 1:
        raise ValidationError("The window can only be ordered by a single time column.")
    if node.order[0].is_descending:
        raise ValidationError("The window can only be ordered in ASCENDING mode.")
    if not node.upper.is_current or not node.lower.is_preceding or node.lower.is_current:
        raise ValidationError("OVER RANGE FOLLOWING windows are not supported yet.")


def _distance(node: logical.Over) -> int | None:
    bound = node.lower.distance
    if bound is None:
        return None
    assert isinstance(bound, Constant)
    if not node.is_rows and isinstance(bound.type, DayTimeIntervalType) and isinstance(bound.value, int):
        return bound.value
    if node.is_rows and isinstance(bound.type, IntegralType) and isinstance(bound.value, int):
        return bound.value
    if node.is_rows:
        raise ValidationError("the specific value is decimal which haven not supported yet.")
    if over_time(node) is not None:
        raise ValidationError("Data Type mismatch between ORDER BY and RANGE clause")
    raise UnsupportedError(f"RANGE over {bound.type} is not supported in streams")


def _check_order(kind: DataType) -> None:
    if isinstance(kind, _UNORDERED):
        raise ValidationError(
            f"Type({kind}) is not an orderable data type, it is not supported as a ORDER_BY/GROUP_BY/JOIN_EQUAL field."
        )
    if isinstance(kind, ArrayType):
        _check_order(kind.element_type)
    elif isinstance(kind, RowType):
        for field_type in kind.field_types():
            _check_order(field_type)


class OverRule(Rule[logical.Over]):
    """Aggregates over frames around each row."""

    nodes = (logical.Over,)

    def changes(self, node: logical.Over, planning: Planning) -> Changes:
        """See `Rule`."""
        return over_changes(node)

    def asks_before(self, node: logical.Over, planning: Planning, wants_before: bool) -> bool:
        """Require UPDATE_BEFORE for updates, because aggregates retract the values of a row."""
        return planning.updates(node.input)

    def stream(self, node: logical.Over, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        operator = over_operator(node, name_columns(node.schema), planning.session)
        changes = planning.changes(node)
        if changes == INSERTS:
            planning.accept("OverAggregate", node.input, INSERTS)
        inner = planning.stream(node.input, planning.updates(node.input))
        inputs = by_columns(inner, node.partition)
        limit = None if node.partition else 1
        operator = lasting(operator, planning.options.state_ttl_ms)
        upstreams = planning.step("Over Aggregate", operator, inputs, is_stateful=True, parallelism_limit=limit)
        # As in Flink, updates include UPDATE_BEFORE even if no consumer needs it.
        return Stream(upstreams, node.schema, changes, changes != INSERTS)
