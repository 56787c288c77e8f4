"""User-defined aggregate functions: row by row, and on pandas or Arrow columns; and their views in keyed state.

**Views.** Accumulator views are in separate keyed states. The stored accumulator of a group has None in place of its
views. While the group's rows are processed, these places hold views that read and write the state of the group's key. A
view that the function has replaced loses its contents. On RocksDB, a change to a map writes only the changed keys, and
appending to a list writes one row. On the heap, a checkpoint writes the views of the changed groups as a whole.

**Row by row** (`UserAccumulator`). The state of a group is empty until its first row, and then [its accumulator, a
checksum of its rows]. The checksum is maintained only if the input may contain retractions. It is 0 exactly if the
added and the retracted rows are the same. So a group without rows is known to be empty, whatever its accumulator
contains, and a group with a pending retraction is not mistaken for empty.

**On columns** (`VectorAccumulator`). The function receives all rows at once, as pandas or Arrow columns. The state of a
group is its rows in arrival order, and the number of pending retractions for each row. The function is called when its
value is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import MisuseError
from penstock.base.types import Row
from penstock.runtime.operators.base import UserCodeError
from penstock.sql.data.arrow import to_column
from penstock.sql.data.conversion import is_seen_as_held, to_external
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import RowType
from penstock.sql.logical.nodes import UserAggregateCall
from penstock.sql.stream.aggregates.functions import Accumulator, Rows, changed_count
from penstock.sql.stream.aggregates.values import is_owed
from penstock.sql.stream.rows.rows import RowEquality
from penstock.sql.user_functions.calls import Results, check_pandas, iterate_rows, to_pandas_column, unpack_row
from penstock.sql.user_functions.classes import DataView, ListView, MapView, implements
from penstock.sql.user_functions.definition import GENERAL, PANDAS, OpenFunctions, UserFunction
from penstock.state.backend import KeyedStateBackend
from penstock.state.states import ListState, ListStateDescriptor, MapState, MapStateDescriptor

#: the index of a view that is the accumulator itself
_WHOLE = -1


class KeptListView(ListView[Any]):
    """A list in keyed state, for the current key."""

    def __init__(self, state: ListState[Any]) -> None:
        super().__init__()
        self._state = state

    def get(self) -> list[Any]:
        """See `ListView`."""
        return self._state.get()

    def add(self, value: Any) -> None:
        """See `ListView`."""
        self._state.add(value)

    def add_all(self, values: Iterable[Any]) -> None:
        """See `ListView`."""
        self._state.add_all(values)

    def clear(self) -> None:
        """See `ListView`."""
        self._state.clear()


class KeptMapView(MapView[Any, Any]):
    """A map in keyed state, for the current key."""

    def __init__(self, state: MapState[Any, Any]) -> None:
        super().__init__()
        self._state = state

    def get(self, key: Any) -> Any:
        """See `MapView`."""
        return self._state.get(key)

    def put(self, key: Any, value: Any) -> None:
        """See `MapView`."""
        self._state.put(key, value)

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        """See `MapView`."""
        self._state.put_all(dict_value)

    def remove(self, key: Any) -> None:
        """See `MapView`."""
        self._state.remove(key)

    def contains(self, key: Any) -> bool:
        """See `MapView`."""
        return self._state.contains(key)

    def items(self) -> Iterable[tuple[Any, Any]]:
        """See `MapView`."""
        return self._state.items()

    def keys(self) -> Iterable[Any]:
        """See `MapView`."""
        return self._state.keys()

    def values(self) -> Iterable[Any]:
        """See `MapView`."""
        return self._state.values()

    def is_empty(self) -> bool:
        """See `MapView`."""
        return self._state.is_empty()

    def clear(self) -> None:
        """See `MapView`."""
        self._state.clear()


class KeptViews:
    """The views of one call.

    Args:
        keyed: the backend of their states.
        name: the prefix of the state names.
        sample: an empty accumulator. It may itself be a view, or have views as fields of a `Row`, list or tuple.
    """

    def __init__(self, keyed: KeyedStateBackend, name: str, sample: Any) -> None:
        self._keyed = keyed
        self._views: dict[int, KeptListView | KeptMapView] = {}
        for index, part in _parts(sample):
            if isinstance(part, ListView):
                self._views[index] = KeptListView(keyed.list_state(ListStateDescriptor(f"{name}.view{index}")))
            elif isinstance(part, MapView):
                self._views[index] = KeptMapView(keyed.map_state(MapStateDescriptor(f"{name}.view{index}")))

    @property
    def are_there(self) -> bool:
        """Whether the accumulator has any views."""
        return bool(self._views)

    def set_key(self, key: Any) -> None:
        """Switch all views to this key."""
        self._keyed.current_key = key

    def clear(self, key: Any) -> None:
        """Clear the state of a key."""
        self.set_key(key)
        for view in self._views.values():
            view.clear()

    def begun(self, accumulator: Any) -> Any:
        """Prepare a new accumulator: move the contents of its views to the state."""
        for view in self._views.values():
            view.clear()
        return self.attach_views(self.taken_out(accumulator))

    def attach_views(self, accumulator: Any) -> Any:
        """Insert the views into an accumulator."""
        return _insert_views(accumulator, self._views)

    def taken_out(self, accumulator: Any) -> Any:
        """Remove the views from an accumulator.

        If the function has replaced a view, store the contents of the new one.
        """
        parts = dict(_parts(accumulator))
        for index, view in self._views.items():
            part = parts.get(index)
            if part is not view:
                _replace(view, part)
        return _insert_views(accumulator, dict.fromkeys(self._views))


def _parts(accumulator: Any) -> Iterable[tuple[int, Any]]:
    if isinstance(accumulator, DataView):
        return [(_WHOLE, accumulator)]
    return enumerate(accumulator) if isinstance(accumulator, Row | list | tuple) else ()


def _insert_views(accumulator: Any, views: Any) -> Any:
    """Return an accumulator with these values in the places of its views."""
    if _WHOLE in views:
        return views[_WHOLE]
    if isinstance(accumulator, tuple):
        parts = [views.get(position, part) for position, part in enumerate(accumulator)]
        return type(accumulator)(*parts) if hasattr(accumulator, "_fields") else tuple(parts)
    for index, view in views.items():
        accumulator[index] = view
    return accumulator


def _replace(view: KeptListView | KeptMapView, replacement: Any) -> None:
    """Overwrite a view with the contents of another one."""
    if isinstance(view, KeptListView) and isinstance(replacement, ListView):
        values = list(replacement)
        view.clear()
        view.add_all(values)
    elif isinstance(view, KeptMapView) and isinstance(replacement, MapView):
        items = dict(replacement.items())
        view.clear()
        view.put_all(items)
    else:
        kind = type(view).__base__.__name__  # type: ignore[union-attr]
        raise MisuseError(f"an accumulator began with a {kind}, and now has {replacement!r} in its place")


#: the indexes of the parts of the state
_ACCUMULATOR, _SUM = 0, 1
_SUMS: Final = 2**64


def check_retracts(user: UserFunction) -> None:
    """Raise `ValidationError` for a function that does not support retraction."""
    if user.func_type == GENERAL and not implements(user.function, "retract"):
        raise ValidationError(
            f"Could not find an implementation method 'retract' in class '{type(user.function).__name__}' for function "
            f"'{user.name}': rows that it has taken in change, go, or leave its window. Implement retract(accumulator, "
            "*args), which takes back what accumulate has taken in"
        )


class UserAccumulator(Accumulator):
    """A user-defined aggregate function. `retracts`: whether the input may contain retractions."""

    call: UserAggregateCall

    def __init__(self, call: UserAggregateCall, retracts: bool, functions: OpenFunctions) -> None:
        super().__init__(call)
        self._user = call.user
        self._functions = functions
        self._function = functions.open(call.user)
        self._retracts = retracts
        types = [operand.type for operand in call.operands]
        self._equality = RowEquality(types, zeros="merged")
        self._seen: list[Callable[[Any], Any]] | None = None
        if not all(map(is_seen_as_held, types)):
            self._seen = [to_external(kind, functions.zone, for_functions=True) for kind in types]
        self._results = Results(call.type, functions.zone)
        self._views: KeptViews | None = None

    def keep_apart(self, keyed: KeyedStateBackend, name: str) -> None:
        """See `Accumulator`: views have separate states."""
        views = KeptViews(keyed, name, self._created())
        self._views = views if views.are_there else None

    def create(self) -> Any:
        """See `Accumulator`."""
        return []

    def _created(self) -> Any:
        try:
            accumulator = self._function.create_accumulator()
        except Exception as error:
            raise self._failed("create_accumulator", ()) from error
        if accumulator is None:
            raise self._failed("create_accumulator", ()) from MisuseError("it returned None, which is no accumulator")
        return accumulator

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return self._changed(state or [self._created(), 0], values, 1)

    def retract(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return self._changed(state or [self._created(), 0], values, -1)

    def _changed(self, state: list[Any], values: tuple[Any, ...], by: int) -> list[Any]:
        operands = values
        if self._seen is not None:
            operands = tuple([convert(value) for convert, value in zip(self._seen, values, strict=True)])
        try:
            (self._function.accumulate if by > 0 else self._function.retract)(state[_ACCUMULATOR], *operands)
        except Exception as error:
            raise self._failed("accumulate" if by > 0 else "retract", operands) from error
        if self._retracts:
            state[_SUM] = (state[_SUM] + by * _hash_row(self._equality.key(values))) % _SUMS
        return state

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        accumulator = state[_ACCUMULATOR] if state else self._created()
        try:
            result = self._given(accumulator)
        except UserCodeError:
            raise
        except Exception as error:
            raise self._failed(self._gives, ()) from error
        return result

    #: the name of the method that returns the result
    _gives = "get_value"

    def _given(self, accumulator: Any) -> Any:
        return self._results.held(self._function.get_value(accumulator), self._refuse)

    def _refuse(self, index: int, value: object) -> None:
        self._functions.refuse(self._user, "an accumulator", value, self._results.data_type)

    def is_spent(self, state: Any) -> bool:
        """See `Accumulator`."""
        return not state or (self._retracts and state[_SUM] == 0)

    def forget(self, key: Any) -> None:
        """See `Accumulator`."""
        if self._views is not None:
            self._views.clear(key)

    def running(self, rows: Rows, states: list[Any]) -> list[Any]:
        """See `Accumulator`."""
        if self._views is None:
            return super().running(rows, states)
        views, keeps, goes, results = self._views, rows.keeps, rows.goes, []
        attached: set[int] = set()
        for row, (group, operands) in enumerate(zip(rows.groups, rows.operands, strict=True)):
            views.set_key(rows.keys[group])
            if not states[group]:
                states[group] = [views.begun(self._created()), 0]
            elif group not in attached:
                states[group][_ACCUMULATOR] = views.attach_views(states[group][_ACCUMULATOR])
            attached.add(group)
            if keeps is None or keeps[row]:
                self._changed(states[group], operands, -1 if goes is not None and goes[row] else 1)
            results.append(self.value(states[group]))
            if row in rows.ends and self.is_spent(states[group]):
                states[group] = self.create()
                attached.discard(group)
        try:
            for group in attached:
                views.set_key(rows.keys[group])
                states[group][_ACCUMULATOR] = views.taken_out(states[group][_ACCUMULATOR])
        except MisuseError as error:
            raise self._failed("accumulate", ()) from error
        return results

    def _failed(self, method: str, operands: tuple[Any, ...]) -> UserCodeError:
        return UserCodeError(self._functions.operator_name, operands or None, f"{method}() of {self._user}")


class UserTableAccumulator(UserAccumulator):
    """A user-defined table aggregate function: its result is a list of rows, in internal form."""

    _gives = "emit_value"

    def __init__(self, call: UserAggregateCall, retracts: bool, functions: OpenFunctions) -> None:
        super().__init__(call, retracts, functions)
        assert isinstance(call.type, RowType)
        self._names = call.type.field_names()
        self._columns = [Results(kind, functions.zone) for kind in call.type.field_types()]

    def _given(self, accumulator: Any) -> Any:
        emitted = [unpack_row(row, self._names) for row in iterate_rows(self._function.emit_value(accumulator))]
        return [tuple([self._field(index, value) for index, value in enumerate(fields)]) for fields in emitted]

    def _field(self, index: int, value: Any) -> Any:
        def refuse(_: int, refused: object) -> None:
            expected = f"{self._columns[index].data_type}, as column {self._names[index]} is"
            self._functions.refuse(self._user, "an accumulator", refused, expected)

        return self._columns[index].held(value, refuse)


def _hash_row(values: tuple[Any, ...]) -> int:
    """Hash a row in canonical form to a number. Equal rows have the same number in any process; others differ."""
    return int.from_bytes(blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=8).digest())


class VectorAccumulator(Accumulator):
    """An aggregate function of whole columns: [rows, {row as text: number of pending retractions}]."""

    call: UserAggregateCall

    def __init__(self, call: UserAggregateCall, functions: OpenFunctions) -> None:
        super().__init__(call)
        self._user = call.user
        self._is_pandas = call.user.func_type == PANDAS
        if self._is_pandas:
            check_pandas(call.user)
        self._functions = functions
        self._function = functions.open(call.user)
        self._results = Results(call.type, functions.zone)
        self._types = [operand.type for operand in call.operands]
        self._equality = RowEquality(self._types, zeros="merged")

    def create(self) -> Any:
        """See `Accumulator`."""
        return [[], {}]

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        rows, owed = state
        if owed and is_owed(owed, self._name(values)):
            return state
        rows.append(values)
        return state

    def retract(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        rows, owed = state
        for index, row in enumerate(rows):  # usually, the oldest row is retracted
            if self._equality.same(row, values):
                del rows[index]
                return state
        changed_count(owed, self._name(values), 1)
        return state

    def _name(self, values: tuple[Any, ...]) -> str:
        """Return a text that is the same for equal rows."""
        return repr(self._equality.key(values))

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        rows = state[0]
        columns = zip(*rows, strict=True) if rows else ((),) * len(self._types)
        arrays = [to_column(list(column), kind) for column, kind in zip(columns, self._types, strict=True)]
        record = f"{len(rows)} rows"
        try:
            result = self._called(arrays)
        except Exception as error:
            raise self._functions.failed(self._user, record) from error

        def refuse(_: int, value: object) -> None:
            self._functions.refuse(self._user, record, value, self._results.data_type)

        return self._results.held(result, refuse)

    def _called(self, arrays: list[pa.Array]) -> Any:
        operands = arrays
        if self._is_pandas:
            zone = str(self._functions.zone)
            operands = [to_pandas_column(array, kind, zone) for array, kind in zip(arrays, self._types, strict=True)]
        if hasattr(self._function, "eval"):
            result = self._function.eval(*operands)
        else:
            accumulator = self._function.create_accumulator()
            self._function.accumulate(accumulator, *operands)
            result = self._function.get_value(accumulator)
        return _plain(result, self._is_pandas)


def _plain(value: Any, is_pandas: bool) -> Any:
    """Convert a pandas, NumPy or Arrow value to Python. In pandas, NaN stands for NULL."""
    if isinstance(value, tuple):
        return tuple([_plain(item, is_pandas) for item in value])
    if is_pandas and isinstance(value, float) and value != value:
        return None
    if isinstance(value, pa.Scalar):
        return value.as_py()
    if type(value).__module__.split(".")[0] == "numpy" and hasattr(value, "item") and value.ndim == 0:
        # NumPy times with nanoseconds would become integers.
        return value.item() if value.dtype.kind not in "mM" else value.astype(f"{value.dtype.kind}8[us]").item()
    if type(value).__module__.startswith("pandas.") or isinstance(value, pa.Array | pa.ChunkedArray):
        return _of_pandas(value)
    return value


def _of_pandas(value: Any) -> Any:
    import pandas

    if value is pandas.NA or value is pandas.NaT:
        return None
    if isinstance(value, pandas.Series | pandas.DataFrame | pa.Array | pa.ChunkedArray):
        raise MisuseError(f"an aggregate function gives one value for all rows, not a {type(value).__name__}")
    return value
