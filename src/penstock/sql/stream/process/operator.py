"""Runs process table functions: calls `eval` for rows and `on_timer` for timers, and emits what they yield."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import GeneratorType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.base.copies import IMMUTABLE
from penstock.base.errors import MisuseError, StopIterationRaised, short_repr
from penstock.base.typeinfo import PickledBytesTypeInfo, RowTypeInfo
from penstock.base.types import Row, RowKind
from penstock.runtime.columns import ColumnBatch, as_columns
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.patterns.sieve import join_columns, pick
from penstock.runtime.operators.patterns.waiting import WaitingEvents
from penstock.runtime.operators.record.process import EVENT_TIMERS, FIRED_AT_ONCE
from penstock.runtime.operators.watermarks import LATE_RECORDS, TimerQueue, TimersAfterEnd
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP, Batch
from penstock.sql.data.arrow import arrow_type, milliseconds, to_column, to_values
from penstock.sql.data.conversion import is_seen_as_held, to_external
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.row_data import RowData
from penstock.sql.data.types import AtomicType, DataType
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.logical.nodes import NAMES
from penstock.sql.stream.aggregates.user_aggregates import KeptListView, KeptMapView
from penstock.sql.stream.process.calls import (
    CallingContext,
    InputTable,
    ProcessCall,
    Services,
    StateEntry,
    build_frame,
    group_rows,
    iterate_frames,
    read_frame,
    value_entry,
    view_entry,
)
from penstock.sql.stream.rows.rows import RowKeys, pack_kinds, sort_keys, to_tuples
from penstock.sql.stream.rows.state_ttl import EvaluatingOperator, StreamSession
from penstock.sql.stream.rows.watermarks import check_times
from penstock.sql.user_functions.calls import Results, iterate_rows, seen_values, unpack_row
from penstock.sql.user_functions.definition import GENERAL, PANDAS
from penstock.sql.user_functions.process import ArgumentTrait, ColumnList
from penstock.sql.user_functions.signature import LIST, MAP
from penstock.state import views
from penstock.state.snapshot import StateCapture
from penstock.state.states import NO_KEY, ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.state.ttl_config import StateTtlConfig

#: The names of the states besides the function's own.
NAMED_TIMERS: Final = "_penstock_timers_named"
TIMERS: Final = "_penstock_timers_of_partitions"
WAITING: Final = "_penstock_waiting_rows"
_KINDS: Final = tuple(RowKind)


# --- operators -------------------------------------------------------------------------------------------------------


class _Emitted:
    """Rows that a function has emitted, each with the number of the row or timer that it comes from.

    The rows of one column are its values.
    """

    def __init__(self) -> None:
        self.parents: list[int] = []
        self.rows: list[Any] = []
        self.kinds = bytearray()


class ProcessOperator(EvaluatingOperator, Services):
    """Calls a function without partitions: tables with row semantics, or no tables.

    Args:
        call: the call.
        names: the names of the output columns.
        session: the session that values are evaluated in.
    """

    def __init__(self, call: ProcessCall, names: Sequence[str], session: StreamSession) -> None:
        self._call = call
        self._names = list(names)
        self._session = session
        self.cleared = set()

    def open(self) -> None:
        """Open the function, and evaluate the scalar arguments."""
        call = self._call
        session = self.running(self._session, lambda: self.watermark_ms)
        functions = self._functions
        assert functions is not None
        # A function that is called in several places has attributes of its own in each.
        self._user = copy.copy(call.user)
        self._user.function = copy.copy(call.user.function)
        self._function = functions.open(self._user)
        self._opened = functions
        zone = functions.zone
        self._results = [Results(kind, zone) for kind in call.types]
        self._eager = [index for index, kind in enumerate(call.types) if not isinstance(kind, AtomicType)]
        self._converters = [self._converter(table) for table in call.tables]
        self._output_names = list(call.names)
        self._field_names = tuple(call.names)
        self._is_refused = bytes(not call.mode.contains(kind) for kind in _KINDS)
        #: whether a value is a row of one column, and an insert
        self._is_plain = len(call.types) == 1 and not self._eager and call.mode.contains_only(RowKind.INSERT)
        self._is_updating = not call.mode.contains_only(RowKind.INSERT)
        self._context = CallingContext(self, call)
        self._arguments = self._evaluate(session)
        self._entries = self._open_states()
        signature = call.user.signature
        self._leading = [self._context] if signature.has_context else []
        by_name = {table.name: number for number, table in enumerate(call.tables)}
        offset = len(self._leading) + len(self._entries)
        self._places = [0] * len(by_name)
        for position, argument in enumerate(signature.arguments):
            if argument.is_table:
                self._places[by_name[argument.name]] = offset + position

    def _open_states(self) -> list[StateEntry]:
        return []

    def _evaluate(self, session: Any) -> list[Any]:
        """Return the arguments of `eval` after the states; None for tables."""
        values = dict(self._call.values)
        arguments: list[Any] = []
        for argument in self._call.user.signature.arguments:
            value = values.get(argument.name)
            if argument.is_table or value is None:
                arguments.append(argument.default)
            elif isinstance(value, tuple):
                arguments.append(ColumnList(value))
            else:
                (column,) = Evaluator([value], session)(Columns((), 1))
                convert = to_external(value.type, self._opened.zone, for_functions=True)
                arguments.append(convert(to_values(column, value.type)[0]))
        return arguments

    def _converter(self, table: InputTable) -> list[tuple[int, Callable[[Any], Any]]]:
        """Return the conversions of the columns that functions see in another form."""
        return [
            (index, to_external(kind, self._opened.zone, for_functions=True))
            for index, kind in enumerate(table.types)
            if not is_seen_as_held(kind)
        ]

    # --- calls -------------------------------------------------------------------------------------------------------

    def _seen(self, number: int, records: ColumnBatch) -> Iterator[Any]:
        """Return the rows of a batch as the function sees them."""
        table, zone = self._call.tables[number], self._opened.zone
        if isinstance(records.data, RowData):
            return self._seen_rows(number, to_tuples(records, table.types), records.kinds)
        count = len(records)
        columns = [
            seen_values(column, kind, zone, count)
            for column, kind in zip(records.columns.columns, table.types, strict=False)
        ]
        rows = zip(*columns, strict=True) if columns else iter([()] * count)
        return self._as_declared(table, rows, records.kinds)

    def _seen_rows(self, number: int, rows: Sequence[tuple[Any, ...]], kinds: bytes | None) -> Iterator[Any]:
        """Return rows of internal values as the function sees them."""
        table, converters = self._call.tables[number], self._converters[number]
        if converters:
            columns: list[Any] = list(zip(*rows, strict=True))
            for column, convert in converters:
                columns[column] = map(convert, columns[column])
            return self._as_declared(table, zip(*columns, strict=True), kinds)
        return self._as_declared(table, rows, kinds)

    def _as_declared(self, table: InputTable, rows: Iterable[Sequence[Any]], kinds: bytes | None) -> Iterator[Any]:
        """Yield rows one by one, so that each is freed after its call: Python looks for cycles among many objects."""
        names, make = table.names, table.row_class
        if make is not None:
            yield from (make(**dict(zip(names, values, strict=True))) for values in rows)
            return
        new, kind, number = Row.__new__, RowKind.INSERT, 0
        for values in rows:
            row = new(Row)
            row._fields = names
            row._values = list(values)
            if kinds is not None:
                kind = _KINDS[kinds[number]]
                number += 1
            row._row_kind = kind
            yield row

    def _fail(self, record: Any, method: str) -> UserCodeError:
        return UserCodeError(self.context.operator_name, record, f"{method}() of {self._user}")

    def _take(self, emitted: _Emitted, parent: int, row: Any) -> None:
        """Add an emitted row."""
        kind = 0
        width = len(self._field_names)
        values: Sequence[Any]
        if row.__class__ is Row:
            kind = row._row_kind.value
            fields = row._fields
            if (fields is None or fields == self._field_names) and len(row._values) == width:
                values = [*row._values]
            else:
                values = unpack_row(row, self._output_names)
        elif row.__class__ is tuple and len(row) == width:
            values = row
        elif width == 1:
            values = (row,)
        else:
            values = unpack_row(self._as_row(row), self._output_names)
        if kind or self._is_updating:
            if self._is_refused[kind]:
                raise TableRuntimeError(
                    f"Invalid row kind received: {NAMES[kind]}. Expected produced changelog mode: {self._call.mode}"
                )
            emitted.kinds.append(kind)
        if self._eager:
            buffered = list(values)
            for index in self._eager:
                buffered[index] = self._hold(index, buffered[index])
            values = buffered
        emitted.parents.append(parent)
        emitted.rows.append(values[0] if width == 1 else values)

    def _as_row(self, row: Any) -> Any:
        """Return an object with attributes as a row of these, if the result has several columns."""
        if isinstance(row, dict):
            return Row(*(row.get(name) for name in self._field_names))
        if not isinstance(row, Row | tuple) and hasattr(row, "__dict__"):
            return Row(*(getattr(row, name, None) for name in self._field_names))
        return row

    def _hold(self, index: int, value: Any) -> Any:
        """Convert a value that may change later, such as a list, to its internal form."""

        def refuse(_: int, refused: object) -> None:
            raise MisuseError(self._refusal(index, refused))

        return self._results[index].held(value, refuse)

    def _refusal(self, index: int, value: object) -> str:
        return (
            f"it returned {short_repr(value)} ({type(value).__name__}), which is no {self._call.types[index]}, as "
            f"column {self._output_names[index]} is"
        )

    def _columns(self, emitted: _Emitted, record: Callable[[int], Any]) -> list[pa.Array]:
        """Return the function's columns."""
        is_one = len(self._output_names) == 1

        def column(index: int) -> pa.Array:
            kind = self._call.types[index]
            values = emitted.rows if is_one else [row[index] for row in emitted.rows]
            if index in self._eager:
                return to_column(values, kind)

            def refuse(row: int, value: object) -> None:
                error = MisuseError(self._refusal(index, value))
                raise self._fail(record(emitted.parents[row]), "eval") from error

            return self._results[index].column(values, refuse)

        return [column(index) for index in range(len(self._output_names))]

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Call the function for each row."""
        call = self._call
        emitted = _Emitted()
        records = as_columns(batch, self.context.operator_name)
        if not call.tables:
            self._call_rows(emitted, [None] * len(records), None)
            self._send(emitted, records, None)
            return
        if self._user.func_type != GENERAL:
            self._call_frames(records, 0, None)
            return
        table = call.tables[0]
        times = self._times(records, table)
        rows = self._seen(0, records)
        self._call_rows(emitted, rows, times)
        self._send(emitted, records, table)

    def _times(self, records: ColumnBatch, table: InputTable) -> list[int] | None:
        if table.time < 0:
            return None
        check_times(records, table.time, table.names, self.context.operator_name, "the argument on_time")
        return milliseconds(records.columns.column(table.time)).tolist()  # type: ignore[no-any-return]

    def _call_frames(self, records: ColumnBatch, number: int, keys: Sequence[Any] | None) -> None:
        """Call `eval` once for the rows of each key, or for all rows, and emit what it gives."""
        table, columns = self._call.tables[number], records.columns
        is_pandas, first = self._user.func_type == PANDAS, len(self._leading)
        groups: Iterable[tuple[Any, Any]] = [(NO_KEY, None)] if keys is None else group_rows(keys)
        arguments = [*self._leading, *[None] * len(self._entries), *self._arguments]
        self.is_timer = False
        for key, rows in groups:
            chosen = columns if rows is None or len(rows) == len(records) else columns.take(pa.array(rows))
            if keys is not None:
                self.context.keyed.current_key = key
            try:
                arguments[self._places[number]] = build_frame(chosen, table, is_pandas, self._opened.zone)
                arguments[first : first + len(self._entries)] = [entry.load() for entry in self._entries]
                given = iterate_frames(self._function.eval(*arguments))
                frames = [read_frame(frame, self._call.names, self._call.types) for frame in given]
                self._store_some()
            except Exception as error:
                raise self._fail(f"{chosen.num_rows} rows", "eval") from error
            finally:
                if keys is not None:
                    self.context.keyed.current_key = NO_KEY
            for arrays in frames:
                if len(arrays[0]):
                    ones = pa.array(np.zeros(len(arrays[0]), np.int64))
                    prefix = [chosen.column(index).take(ones) for index in table.prefix]
                    self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays([*prefix, *arrays], self._names)))

    def _store_some(self) -> None:
        """Do nothing: there is no state."""

    def _call_rows(self, emitted: _Emitted, rows: Iterable[Any], times: Sequence[int] | None) -> None:
        """Call `eval` for rows of a table without partitions."""
        function, take = self._function, self._take
        arguments = [*self._leading, *self._arguments]
        position = self._places[0] if self._places else -1
        index, row = 0, None

        def emit(row: Any) -> None:
            take(emitted, index, row)

        function._emit = emit
        self.is_timer = False
        try:
            for index, row in enumerate(rows):
                if position >= 0:
                    arguments[position] = row
                if times is not None:
                    self.time_ms = times[index]
                returned = function.eval(*arguments)
                if returned is not None:
                    for result in iterate_rows(returned):
                        take(emitted, index, result)
        except StopIteration:
            raise self._fail(row, "eval") from StopIterationRaised()
        except Exception as error:
            raise self._fail(row, "eval") from error
        finally:
            function._emit = None
            self.time_ms = None

    def _send(self, emitted: _Emitted, records: ColumnBatch, table: InputTable | None) -> None:
        """Emit the rows that come from rows of a batch."""
        if not emitted.rows:
            return
        arrays = self._columns(emitted, lambda parent: f"row {parent} of a batch")
        times = None
        if table is not None:
            count = len(emitted.parents)
            is_same = count == len(records) and emitted.parents == list(range(count))
            chosen = None if is_same else pa.array(emitted.parents, pa.int64())
            columns = records.columns

            def take(index: int) -> pa.Array:
                column = columns.column(index)
                return column if chosen is None else column.take(chosen)

            arrays = [*map(take, table.prefix), *arrays]
            if table.time >= 0:
                rowtime = take(table.time)
                times = milliseconds(rowtime)
                arrays.append(rowtime)
        columns = pa.RecordBatch.from_arrays(arrays, self._names)
        self.output.collect(ColumnBatch(columns, times, pack_kinds(emitted.kinds)))

    # --- time --------------------------------------------------------------------------------------------------------

    def process_watermark(self, timestamp: int) -> None:
        """Note the watermark."""
        self.watermark_ms = timestamp
        self.output.emit_watermark(timestamp)

    def resume_event_time(self, watermark: int) -> None:
        """Do nothing: as in Flink, there is no watermark after a restart until the next one."""

    def register(self, time_ms: int) -> None:
        """Refuse a timer."""
        raise TableRuntimeError(
            "Timers are not supported in the current PTF declaration. Note that only PTFs that take set semantic "
            "tables support timers. Also timers are not available for advanced traits such as supporting pass-through "
            "columns or updates."
        )

    def register_named(self, name: str, time_ms: int) -> None:
        """Refuse a timer."""
        self.register(time_ms)

    def delete(self, time_ms: int) -> None:
        """Do nothing: there are no timers."""

    def delete_named(self, name: str) -> None:
        """Do nothing: there are no timers."""

    def clear_timers(self) -> None:
        """Do nothing: there are no timers."""


class KeyedProcessOperator(ProcessOperator):
    """Calls a function with partitions: tables with set semantics, which share state and timers."""

    is_keyed = True

    def open(self) -> None:
        """Open state and timers too."""
        super().open()
        keyed, tables = self.context.keyed, self._call.tables
        self._keyed = keyed
        self._key_readers = [RowKeys(table.partition) for table in tables]
        self._has_timers = not any(
            argument.has(ArgumentTrait.PASS_COLUMNS_THROUGH) for argument in self._user.signature.arguments
        )
        self._on_timer = getattr(self._function, "on_timer", None)
        self._can_set = self._has_timers and self._on_timer is not None
        self._unnamed = TimerQueue(keyed.table(EVENT_TIMERS))
        self._named = TimerQueue(keyed.table(NAMED_TIMERS))
        self._unnamed_of_times = keyed.table(EVENT_TIMERS).panes
        self._timer_table = keyed.table(TIMERS)
        #: by partition: the times of named timers by name, and those of unnamed ones by themselves
        self._timers: dict[Any, dict[str | int, int]] = self._timer_table.entries(None)
        self._after_end = TimersAfterEnd(self.context)
        self._late_up_to = MIN_TIMESTAMP
        self._waiting = {
            number: WaitingEvents(keyed.table(f"{WAITING}_{number}"), None)
            for number, table in enumerate(tables)
            if table.order
        }

    def _open_states(self) -> list[StateEntry]:
        keyed = self.context.keyed
        entries: list[StateEntry] = []
        for entry in self._call.user.signature.states:
            ttl_ms = self._call.ttl_ms if entry.ttl_ms is None else entry.ttl_ms
            descriptor: Any
            if entry.kind == LIST:
                descriptor = ListStateDescriptor(entry.name)
            elif entry.kind == MAP:
                descriptor = MapStateDescriptor(entry.name)
            else:
                kinds = [PickledBytesTypeInfo()] * len(entry.fields)
                descriptor = ValueStateDescriptor(entry.name, RowTypeInfo(kinds, entry.fields))
            if ttl_ms > 0:
                descriptor.enable_time_to_live(StateTtlConfig.new_builder(ttl_ms).build())
            if entry.kind == LIST:
                items = views.open_list_state(keyed, descriptor)
                entries.append(view_entry(items, KeptListView(items)))
            elif entry.kind == MAP:
                pairs = views.open_map_state(keyed, descriptor)
                entries.append(view_entry(pairs, KeptMapView(pairs)))
            else:
                entries.append(value_entry(keyed, views.open_value_state(keyed, descriptor), entry, ttl_ms > 0))
        return entries

    # --- rows --------------------------------------------------------------------------------------------------------

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Call the function for each row, or let rows wait for the watermark."""
        records = as_columns(batch, self.context.operator_name)
        table = self._call.tables[input_index]
        keys = self._key_readers[input_index].of(records.columns)
        if self._user.func_type != GENERAL:
            self._call_frames(records, input_index, keys)
            return
        if table.order:
            self._let_wait(records, keys, input_index)
            return
        times = self._times(records, table)
        rows = self._seen(input_index, records)
        emitted = _Emitted()
        self._call_keyed(emitted, input_index, keys, rows, times)
        self._send(emitted, records, table)
        for sweeper in self._keyed.sweepers.values():
            sweeper.on_records(len(records))

    def _call_keyed(
        self,
        emitted: _Emitted,
        number: int,
        keys: Sequence[Any],
        rows: Iterable[Any],
        times: Sequence[int] | None,
    ) -> None:
        """Call `eval` for rows of a table, each with the state of its partition."""
        function, take, keyed, entries = self._function, self._take, self._keyed, self._entries
        evaluate, cleared, is_plain = function.eval, self.cleared, self._is_plain
        add_parent, add_row = emitted.parents.append, emitted.rows.append
        first = len(self._leading)
        arguments = [*self._leading, *[None] * len(entries), *self._arguments]
        place = self._places[number]
        loads = [(position, entry.load) for position, entry in enumerate(entries, first)]
        stores = [entry.store for entry in entries]
        index = 0

        def emit(row: Any) -> None:
            take(emitted, index, row)

        function._emit = emit
        self.is_timer = False
        try:
            for index, (keyed.current_key, arguments[place]) in enumerate(zip(keys, rows, strict=True)):
                if times is not None:
                    self.time_ms = times[index]
                for position, load in loads:
                    arguments[position] = load()
                returned = evaluate(*arguments)
                if returned is not None:
                    for result in returned if returned.__class__ is GeneratorType else iterate_rows(returned):
                        if is_plain and result.__class__ in IMMUTABLE:
                            add_parent(index)
                            add_row(result)
                        else:
                            take(emitted, index, result)
                if cleared:
                    self._store_some()
                else:
                    for store in stores:
                        store()
        except StopIteration:
            raise self._fail(arguments[place], "eval") from StopIterationRaised()
        except Exception as error:
            raise self._fail(arguments[place], "eval") from error
        finally:
            function._emit = None
            self.time_ms = None
            keyed.current_key = NO_KEY

    def _store_some(self) -> None:
        """Remove the entries that the call has cleared, and store the others."""
        for number, entry in enumerate(self._entries):
            if number in self.cleared:
                entry.clear()
            else:
                entry.store()
        self.cleared.clear()

    # --- rows that wait ----------------------------------------------------------------------------------------------

    def _let_wait(self, records: ColumnBatch, keys: Sequence[Any], number: int) -> None:
        table = self._call.tables[number]
        order = table.order[0].index
        check_times(records, order, table.names, self.context.operator_name, "ORDER BY of a table argument")
        times = milliseconds(records.columns.column(order))
        rows: Sequence[Any] = to_tuples(records, table.types)
        kinds = records.kinds or bytes(len(records))
        rows = list(zip(kinds, rows, strict=True))
        late = int(np.count_nonzero(times <= self._late_up_to))
        if late:
            in_time = np.flatnonzero(times > self._late_up_to)
            chosen = in_time.tolist()
            keys, times, rows = pick(keys, chosen), times[in_time], pick(rows, chosen)
            self.context.count(LATE_RECORDS, late)
        self._waiting[number].add_all(keys, times, rows)

    def _release(self, number: int, up_to: int) -> None:
        """Call the function for the rows that have waited, in order."""
        due = self._waiting[number].take(up_to)
        if not due:
            return
        table = self._call.tables[number]
        waited = join_columns([some.read() for some in due])
        # A row that was pickled is a list after a restore.
        values = [tuple(row) for _, row in waited.events]
        further = sort_keys(table.order[1:], table.types, values)
        times = waited.times.tolist()
        order = sorted(range(len(times)), key=lambda at: (times[at], further[at]))
        values = [values[at] for at in order]
        kinds = bytes(waited.events[at][0] for at in order)
        arrays = [to_column([row[index] for row in values], kind) for index, kind in enumerate(table.types)]
        records = ColumnBatch(
            pa.RecordBatch.from_arrays(arrays, [f"c{index}" for index in range(len(arrays))]), None, pack_kinds(kinds)
        )
        emitted = _Emitted()
        rows = self._seen_rows(number, values, kinds)
        known = [times[at] for at in order] if table.time >= 0 else None
        self._call_keyed(emitted, number, [waited.keys[at] for at in order], rows, known)
        self._send(emitted, records, table)

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture all state, including the rows that wait."""
        for waiting in self._waiting.values():
            waiting.store()
        return super().snapshot_state(checkpoint_id)

    # --- time --------------------------------------------------------------------------------------------------------

    def process_watermark(self, timestamp: int) -> None:
        """Process the rows that have waited, and fire the timers that are due."""
        for number in self._waiting:
            self._release(number, timestamp)
        self._late_up_to = timestamp
        self.watermark_ms = timestamp
        while self._fire(timestamp) and timestamp == MAX_WATERMARK:
            pass
        self.output.emit_watermark(timestamp)

    def resume_event_time(self, watermark: int) -> None:
        """Treat earlier rows as late where rows are ordered; as in Flink, there is no watermark until the next one."""
        self._late_up_to = watermark

    def _fire(self, up_to: int) -> bool:
        """Fire unnamed timers and then named ones, as Flink does. Returns whether any has fired."""
        has_fired = False
        for due in (self._unnamed.due(up_to), self._due_named(up_to)):
            while fired := self._fire_some(due):
                has_fired = True
                if fired < FIRED_AT_ONCE:
                    break
        return has_fired

    def _due_named(self, up_to: int) -> Iterator[tuple[int, Any]]:
        """Yield the time and partition of each named timer that fires; it is removed before, and `timer_name`."""
        of_partition = self._timers
        for time_ms, key in self._named.due(up_to):
            timers = of_partition.get(key, {})
            for name in [name for name, time in timers.items() if time == time_ms and isinstance(name, str)]:
                # A timer of the same time may have deleted or replaced it.
                if of_partition.get(key, {}).get(name) == time_ms:
                    self._forget(key, name)
                    self.timer_name = name
                    yield time_ms, key

    def _fire_some(self, due: Iterator[tuple[int, Any]]) -> int:
        """Fire timers and emit their rows. Returns how many have fired, `FIRED_AT_ONCE` at most."""
        function, take, keyed, on_timer = self._function, self._take, self._keyed, self._on_timer
        forget, cleared, stores = self._forget, self.cleared, [entry.store for entry in self._entries]
        leading: list[Any] = [self._context] if self._call.user.signature.passes_timer else []
        loads = [(position, entry.load) for position, entry in enumerate(self._entries, len(leading))]
        arguments = [*leading, *[None] * len(loads)]
        emitted, is_plain = _Emitted(), self._is_plain
        add_parent, add_row = emitted.parents.append, emitted.rows.append
        keys: list[Any] = []
        times: list[int] = []

        def emit(row: Any) -> None:
            take(emitted, fired - 1, row)

        fired = 0
        function._emit = emit
        self.is_timer = True
        key: Any = None
        try:
            for time_ms, key in due:
                if on_timer is None:
                    raise self._without_on_timer()
                fired += 1
                keys.append(key)
                times.append(time_ms)
                keyed.current_key, self.time_ms = key, time_ms
                if self.timer_name is None:
                    forget(key, time_ms)
                for position, load in loads:
                    arguments[position] = load()
                returned = on_timer(*arguments)
                if returned is not None:
                    for result in returned if returned.__class__ is GeneratorType else iterate_rows(returned):
                        if is_plain and result.__class__ in IMMUTABLE:
                            add_parent(fired - 1)
                            add_row(result)
                        else:
                            take(emitted, fired - 1, result)
                if cleared:
                    self._store_some()
                else:
                    for store in stores:
                        store()
                if fired == FIRED_AT_ONCE:
                    break
        except StopIteration:
            raise self._fail(("timer", self.time_ms, key), "on_timer") from StopIterationRaised()
        except Exception as error:
            raise self._fail(("timer", self.time_ms, key), "on_timer") from error
        finally:
            function._emit = None
            self.time_ms = self.timer_name = None
            keyed.current_key = NO_KEY
        self.context.fired_timers += fired
        self._send_fired(emitted, keys, times)
        return fired

    def _send_fired(self, emitted: _Emitted, keys: Sequence[Any], times: Sequence[int]) -> None:
        """Emit the rows that come from timers."""
        if not emitted.rows:
            return
        call = self._call
        arrays = self._columns(emitted, lambda parent: ("timer", times[parent], keys[parent]))
        width = len(call.tables[0].partition)
        of_rows = [keys[parent] for parent in emitted.parents]
        columns = [of_rows] if width == 1 else [[key[index] for key in of_rows] for index in range(width)]
        prefix = [to_column(columns[at % width], kind) for at, kind in enumerate(call.prefix_types)] if width else []
        rowtimes = None
        if call.rowtime is not None:
            rowtimes = np.array([times[parent] for parent in emitted.parents], np.int64)
            prefix_and_own = [*prefix, *arrays, _time_column(rowtimes, call.rowtime)]
        else:
            prefix_and_own = [*prefix, *arrays]
        batch = pa.RecordBatch.from_arrays(prefix_and_own, self._names)
        self.output.collect(ColumnBatch(batch, rowtimes, pack_kinds(emitted.kinds)))

    # --- timers ------------------------------------------------------------------------------------------------------

    def _without_on_timer(self) -> MisuseError:
        return MisuseError(
            f"{self._user} has a timer but no on_timer() for it to call: define on_timer(self[, ctx][, state entries])"
        )

    def _admits_timer(self) -> bool:
        """Refuse a timer that the call cannot have. Returns whether the partition may set another one."""
        if not self._has_timers:
            super().register(0)
        if self._on_timer is None:
            raise self._without_on_timer()
        return self.watermark_ms != MAX_WATERMARK or self._after_end.admit(self._keyed.current_key)

    def register(self, time_ms: int) -> None:
        """Register an unnamed timer of the current partition."""
        if (not self._can_set or self.watermark_ms == MAX_WATERMARK) and not self._admits_timer():
            return
        key = self._keyed.current_key
        timers = self._timers.get(key)
        if timers is None:
            self._timers[key] = {time_ms: time_ms}
        elif time_ms in timers:
            return
        else:
            timers[time_ms] = time_ms
        if not self._timer_table.is_next_whole:
            self._timer_table.changed(None).add(key)
        self._unnamed.put(time_ms, key, self._unnamed_of_times.get(time_ms))

    def register_named(self, name: str, time_ms: int) -> None:
        """Register a named timer of the current partition, replacing one of the same name."""
        if (not self._can_set or self.watermark_ms == MAX_WATERMARK) and not self._admits_timer():
            return
        key = self._keyed.current_key
        if self._timers.get(key, {}).get(name) == time_ms:
            return
        self.delete_named(name)
        self._timers.setdefault(key, {})[name] = time_ms
        if not self._timer_table.is_next_whole:
            self._timer_table.changed(None).add(key)
        self._named.register(time_ms, key)

    def delete(self, time_ms: int) -> None:
        """Delete the unnamed timer for this time."""
        key = self._keyed.current_key
        if time_ms in self._timers.get(key, {}):
            self._forget(key, time_ms)
            self._unnamed.delete(time_ms, key)

    def delete_named(self, name: str) -> None:
        """Delete the timer of this name."""
        key = self._keyed.current_key
        timers = self._timers.get(key, {})
        time_ms = timers.get(name)
        if time_ms is None:
            return
        self._forget(key, name)
        if not any(time == time_ms and isinstance(other, str) for other, time in timers.items()):
            self._named.delete(time_ms, key)

    def _forget(self, key: Any, timer: str | int) -> None:
        """Remove a timer from those of a partition."""
        timers = self._timers[key]
        del timers[timer]
        if not timers:
            del self._timers[key]
        if not self._timer_table.is_next_whole:
            self._timer_table.changed(None).add(key)

    def clear_timers(self) -> None:
        """Delete all timers of the current partition."""
        key = self._keyed.current_key
        timers = self._timers.pop(key, None)
        if timers:
            for timer, time_ms in timers.items():
                (self._named if isinstance(timer, str) else self._unnamed).delete(time_ms, key)
            self._timer_table.mark(None, (key,))


def _time_column(times_ms: Any, kind: DataType) -> pa.Array:
    """Return milliseconds as a column of timestamps."""
    return pa.array(times_ms, pa.timestamp("ms")).cast(arrow_type(kind))
