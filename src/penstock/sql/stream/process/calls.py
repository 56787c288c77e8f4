"""What a call of a process table function needs at work: its description, its state entries, and its contexts.

Many rows in one call: what functions of `func_type` `pandas` and `arrow` take and give.

A call has the rows of a table that came together: all of a batch with row semantics, those of one partition with set
semantics. They are a data frame, or an Arrow table, under the names of the table's columns. The function gives any
number of the same: one, a list, or by `yield`. Columns of the result are found by name. In pandas, NaN is NULL.
"""

from __future__ import annotations

import copy
import datetime
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from operator import attrgetter, itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.base.copies import IMMUTABLE
from penstock.base.errors import MisuseError, WrongTypeError
from penstock.base.time import Instant
from penstock.base.types import Row, RowKind
from penstock.codecs.arrow_columns import exact_cast, plain_column
from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import SortKey
from penstock.sql.typed import Typed
from penstock.sql.user_functions.calls import to_pandas_column
from penstock.sql.user_functions.process import OnTimerContext, TableSemantics, TimeContext
from penstock.sql.user_functions.signature import ProcessFunction, ProcessTableFunctionState
from penstock.state.backend import KeyedStateBackend, KeyedTable


def group_rows(keys: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each key with the indices of its rows, in the order in which keys come."""
    positions: dict[Any, list[int]] = {}
    for index, key in enumerate(keys):
        positions.setdefault(key, []).append(index)
    for key, indices in positions.items():
        yield key, np.array(indices, np.int64)


def build_frame(columns: pa.RecordBatch, table: InputTable, is_pandas: bool, zone: tzinfo) -> Any:
    """Return rows as functions take them."""
    arrays = [plain_column(column) for column in columns.columns[: len(table.types)]]
    if not is_pandas:
        return pa.table(arrays, names=list(table.names))
    import pandas

    series = [to_pandas_column(array, kind, str(zone)) for array, kind in zip(arrays, table.types, strict=True)]
    return pandas.DataFrame(dict(zip(table.names, series, strict=True)))


def iterate_frames(returned: Any) -> Iterator[Any]:
    """Yield the frames in a function's result."""
    if returned is None:
        return
    yield from returned if isinstance(returned, list | Iterator) else (returned,)


def read_frame(frame: Any, names: Sequence[str], types: Sequence[DataType]) -> list[pa.Array]:
    """Return the columns of a frame that a function gave. Raises `WrongTypeError` for anything else."""
    find: Callable[[str], Any]
    if isinstance(frame, pa.RecordBatch | pa.Table):
        known, find = frame.schema.names, frame.column
    elif type(frame).__module__.split(".")[0] == "pandas" and hasattr(frame, "columns"):
        known, find = list(frame.columns), frame.__getitem__
    else:
        raise WrongTypeError(f"it returned {type(frame).__name__}, and not a data frame or an Arrow table")
    missing = [name for name in names if name not in known]
    if missing:
        raise MisuseError(f"it returned the columns {', '.join(map(str, known))}, and not {', '.join(missing)}")
    return [_read_column(find(name), kind, name) for name, kind in zip(names, types, strict=True)]


def _read_column(column: Any, kind: DataType, name: str) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    if not isinstance(column, pa.Array):
        column = pa.Array.from_pandas(column)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
    try:
        read = exact_cast(column, arrow_type(kind))
    except (pa.ArrowException, OverflowError) as error:
        raise MisuseError(f"it returned values that are no {kind} in column {name}: {error}") from error
    if read.null_count and not kind.is_nullable:
        raise MisuseError(f"it returned NULL in column {name} of type {kind}")
    return read


_ROW: Final = object.__new__


@dataclass(frozen=True, slots=True)
class InputTable:
    """A table argument: its columns, and what the call says of it.

    `prefix`: the columns that begin the rows of the result. `row_class`: the class of the rows; None for `Row`.
    """

    name: str
    names: tuple[str, ...]
    types: tuple[DataType, ...]
    semantics: TableSemantics
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    time: int
    prefix: tuple[int, ...]
    row_class: type | None = None


@dataclass(frozen=True)
class ProcessCall:
    """A call, as the operator needs it.

    `values`: the scalar arguments by name, as expressions, columns of a descriptor, or None for those left out.
    `names`, `types`: the function's own columns. `rowtime`: the type of the event time of the result, if it has one.
    `mode`: the kinds of changes that the function may emit. `ttl_ms`: the lifetime of state that declares none.
    """

    user: ProcessFunction
    tables: tuple[InputTable, ...]
    values: tuple[tuple[str, Typed | tuple[str, ...] | None], ...]
    names: tuple[str, ...]
    types: tuple[DataType, ...]
    prefix_types: tuple[DataType, ...]
    rowtime: DataType | None
    mode: Any
    ttl_ms: int


# --- state -----------------------------------------------------------------------------------------------------------


class StateEntry:
    """A state entry of a function, for the current partition.

    Attributes:
        load: returns the object for a call.
        store: stores the object after a call.
        clear: removes the state.
    """

    __slots__ = ("clear", "load", "store")

    def __init__(self, load: Callable[[], Any], store: Callable[[], None], clear: Callable[[], None]) -> None:
        self.load = load
        self.store = store
        self.clear = clear


def view_entry(state: Any, view: Any) -> StateEntry:
    """Return an entry with a list or map state, which the function changes itself."""
    return StateEntry(lambda: view, _do_nothing, state.clear)


def _do_nothing() -> None:
    pass


def value_entry(keyed: KeyedStateBackend, state: Any, entry: ProcessTableFunctionState, has_ttl: bool) -> StateEntry:
    """Return an entry with a value state: an object of the declared class for each call, stored as a `Row`.

    A row in state gets other values in place, so that a call costs no new row. State that expires is not changed in
    place: only a change prolongs its life.
    """
    fields, make = entry.fields, entry.state_class
    table = keyed.table(entry.name)
    if make is not None and not has_ttl and len(fields) == 1 and _has_plain_fields(make, fields):
        return _field_entry(keyed, table, state, fields, make)
    entries, changed = table.entries(None), table.changed(None)
    pack, unpack = _packing(fields, make), _unpacking(fields, make)
    stored: Row | None = None
    loaded: Any = None
    before: list[Any] = []

    def load() -> Any:
        nonlocal stored, loaded, before
        if has_ttl:
            stored = state.value()
            if stored is not None:
                before = stored._values
                if not IMMUTABLE.issuperset(map(type, before)):
                    before = copy.deepcopy(before)
        else:
            stored = entries.get(keyed.current_key)
        loaded = unpack(None if stored is None else stored._values)
        return loaded

    def store() -> None:
        values = pack(loaded)
        if stored is None:
            if values.count(None) < len(values):
                state.update(make_row(fields, values))
        elif None in values and values.count(None) == len(values):
            state.clear()
        elif has_ttl:
            if before != values:
                state.update(make_row(fields, values))
        # What changes in place within a value looks the same before and after.
        elif stored._values != values or not IMMUTABLE.issuperset(map(type, values)):
            stored._values = values
            if not table.is_next_whole:
                changed.add(keyed.current_key)

    return StateEntry(load, store, state.clear)


def _field_entry(
    keyed: KeyedStateBackend, table: KeyedTable, state: Any, fields: tuple[str, ...], make: Any
) -> StateEntry:
    """Return an entry like that of `value_entry` for objects with one field, in the fewest steps."""
    entries, changed = table.entries(None), table.changed(None)
    new, set_field, (field,) = make.__new__, setattr, fields
    loaded: Any = None
    stored: Row | None = None

    def load() -> Any:
        nonlocal loaded, stored
        stored = entries.get(keyed.current_key)
        if stored is None:
            loaded = make()
        else:
            loaded = new(make)
            set_field(loaded, field, stored._values[0])
        return loaded

    def store() -> None:
        value = getattr(loaded, field, None)
        if stored is None:
            if value is not None:
                state.update(make_row(fields, [value]))
        elif value is None:
            state.clear()
        elif value.__class__ not in IMMUTABLE or value is not stored._values[0]:
            stored._values = [value]
            if not table.is_next_whole:
                changed.add(keyed.current_key)

    return StateEntry(load, store, state.clear)


def _unpacking(fields: tuple[str, ...], make: type | None) -> Callable[[list[Any] | None], Any]:
    """Return what makes the object of the values of fields, or of none."""
    if make is None:
        width = len(fields)
        return lambda values: make_row(fields, [None] * width if values is None else [*values])
    kind: Any = make
    if not hasattr(kind(), "__dict__"):

        def fill(values: list[Any] | None) -> Any:
            made = kind()
            for name, value in zip(fields, values or (), strict=values is not None):
                setattr(made, name, value)
            return made

        return fill

    def create(values: list[Any] | None) -> Any:
        if values is None:
            return kind()
        made = new(kind)
        made.__dict__.update(zip(fields, values, strict=True))
        return made

    new = kind.__new__
    return create


def _has_plain_fields(kind: type, fields: tuple[str, ...]) -> bool:
    """Return whether attributes of these names are just entries of an object's dictionary, or values of the class."""
    hooks = ("__setattr__", "__getattribute__")
    return (
        all(getattr(kind, hook) is getattr(object, hook) for hook in hooks)
        and not hasattr(kind, "__getattr__")
        and not any(hasattr(type(inspect.getattr_static(kind, field, None)), "__get__") for field in fields)
    )


def _packing(fields: tuple[str, ...], make: type | None) -> Callable[[Any], list[Any]]:
    """Return what takes the values of fields out of an object."""
    if make is None:
        return lambda loaded: loaded._values
    if not hasattr(make(), "__dict__"):
        return lambda loaded: [getattr(loaded, name, None) for name in fields]
    is_one = len(fields) == 1
    if _has_plain_fields(make, fields):
        get_fields: Callable[[Any], Any] = attrgetter(*fields)

        def pack_plain(loaded: Any) -> list[Any]:
            try:
                values = get_fields(loaded)
            except AttributeError:
                return [getattr(loaded, name, None) for name in fields]
            return [values] if is_one else list(values)

        return pack_plain
    get: Callable[[Any], Any] = itemgetter(*fields)

    def pack(loaded: Any) -> list[Any]:
        try:
            values = get(loaded.__dict__)
        except KeyError:
            # A field without a value of its own has that of the class.
            return [getattr(loaded, name, None) for name in fields]
        return [values] if is_one else list(values)

    return pack


def make_row(fields: tuple[str, ...], values: list[Any]) -> Row:
    """Return a row that owns its list of values."""
    row: Row = _ROW(Row)
    row._fields = fields
    row._values = values
    row._row_kind = RowKind.INSERT
    return row


# --- contexts --------------------------------------------------------------------------------------------------------


class Services(ABC):
    """What contexts ask of the operator. Times are in ms; `is_timer` says that a timer is being processed."""

    time_ms: int | None = None
    watermark_ms: int | None = None
    is_timer = False
    timer_name: str | None = None
    #: the numbers of the state entries to remove after the call
    cleared: set[int]

    @abstractmethod
    def register(self, time_ms: int) -> None:
        """Register an unnamed timer of the current partition."""

    @abstractmethod
    def register_named(self, name: str, time_ms: int) -> None:
        """Register a named timer of the current partition, replacing one of the same name."""

    @abstractmethod
    def delete(self, time_ms: int) -> None:
        """Delete the unnamed timer for this time."""

    @abstractmethod
    def delete_named(self, name: str) -> None:
        """Delete the timer of this name."""

    @abstractmethod
    def clear_timers(self) -> None:
        """Delete all timers of the current partition."""


_EPOCH: Final = datetime.datetime(1970, 1, 1)
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


def _of_datetime(time: datetime.datetime) -> int:
    if time.tzinfo is not None:
        time = time.astimezone(datetime.UTC).replace(tzinfo=None)
    return (time - _EPOCH) // _MILLISECOND


#: for each class of times, the conversions from and to milliseconds
_CONVERSIONS: Final[dict[type, tuple[Callable[[int], Any], Callable[[Any], int]]]] = {
    int: (int, int),
    Instant: (Instant.of_epoch_milli, Instant.to_epoch_milli),
    datetime.datetime: (lambda ms: _EPOCH + _MILLISECOND * ms, _of_datetime),
}


class _Time(TimeContext[Any]):
    """Times of one class."""

    def __init__(self, operator: Services, kind: type) -> None:
        self._operator = operator
        self._register = operator.register
        self._to, self._of = _CONVERSIONS[kind]

    def _shown(self, time_ms: int | None) -> Any:
        return None if time_ms is None else self._to(time_ms)

    def time(self) -> Any:
        """See `TimeContext`."""
        return self._shown(self._operator.time_ms)

    def table_watermark(self) -> Any:
        """See `TimeContext`."""
        return None if self._operator.is_timer else self._shown(self._operator.watermark_ms)

    def current_watermark(self) -> Any:
        """See `TimeContext`."""
        return self._shown(self._operator.watermark_ms)

    def register_on_time(self, name_or_time: Any, time: Any = None) -> None:
        """See `TimeContext`."""
        if isinstance(name_or_time, str):
            if time is None:
                raise MisuseError("Time must not be null.")
            self._operator.register_named(name_or_time, self._of(time))
        elif name_or_time is None or time is not None:
            raise MisuseError("register_on_time() takes a time, or a name and a time")
        else:
            self._register(self._of(name_or_time))

    def clear_timer(self, name_or_time: Any) -> None:
        """See `TimeContext`."""
        if name_or_time is None:
            raise MisuseError("clear_timer() takes a name or a time")
        if isinstance(name_or_time, str):
            self._operator.delete_named(name_or_time)
        else:
            self._operator.delete(self._of(name_or_time))

    def clear_all_timers(self) -> None:
        """See `TimeContext`."""
        self._operator.clear_timers()


class _Milliseconds(_Time):
    """Times in milliseconds, which need no conversion."""

    def time(self) -> int | None:
        """See `TimeContext`."""
        return self._operator.time_ms

    def register_on_time(self, name_or_time: Any, time: Any = None) -> None:
        """See `TimeContext`."""
        if time is None and name_or_time.__class__ is int:
            self._register(name_or_time)
        else:
            super().register_on_time(name_or_time, time)


class CallingContext(OnTimerContext):
    """The context of `eval` and of `on_timer`."""

    def __init__(self, operator: Services, call: ProcessCall) -> None:
        self._operator = operator
        self._semantics = {table.name: table.semantics for table in call.tables}
        self._states = {state.name: number for number, state in enumerate(call.user.signature.states)}
        self._mode = call.mode
        self._times: dict[type, _Time] = {}

    def time_context(self, conversion_class: type[Any] = int) -> Any:
        """See `Context`."""
        known = self._times.get(conversion_class)
        if known is None:
            if conversion_class not in _CONVERSIONS:
                raise TableRuntimeError(f"Unsupported conversion class for TimeContext: {conversion_class.__name__}")
            of_class = _Milliseconds if conversion_class is int else _Time
            known = self._times[conversion_class] = of_class(self._operator, conversion_class)
        return known

    def table_semantics_for(self, arg_name: str) -> TableSemantics:
        """See `Context`."""
        if arg_name not in self._semantics:
            raise TableRuntimeError(f"Unknown table argument: {arg_name}")
        return self._semantics[arg_name]

    def clear_state(self, state_name: str) -> None:
        """See `Context`."""
        if state_name not in self._states:
            raise TableRuntimeError(f"Unknown state entry: {state_name}")
        self._operator.cleared.add(self._states[state_name])

    def clear_all_state(self) -> None:
        """See `Context`."""
        self._operator.cleared.update(self._states.values())

    def clear_all_timers(self) -> None:
        """See `Context`."""
        self._operator.clear_timers()

    def clear_all(self) -> None:
        """See `Context`."""
        self.clear_all_state()
        self.clear_all_timers()

    def get_changelog_mode(self) -> Any:
        """See `Context`."""
        return self._mode

    def current_timer(self) -> str | None:
        """See `OnTimerContext`."""
        return self._operator.timer_name
