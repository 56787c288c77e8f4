"""Operators on keyed streams: reduce, running aggregates, merge, and functions that use keyed state (A1, A2).

`KeyedReduceOperator` is a running reduce: every record yields its key's new value; in batch execution only the last
one.

`KeyedAggregateOperator` keeps the running sum, minimum and maximum of a field. Every record yields its key's aggregate
so far, as a record of the same form; in batch execution a key yields only its last aggregate. `sum`, `min` and `max`
change one field of the key's first record and keep its others. `min_by` and `max_by` yield the whole record with the
least or greatest field, the first one if several are equal. Records are read-only once emitted, so changes are made to
a copy.

How to read and replace a field depends on the form of the record. The operator determines this once for each class; the
loop is then the same as in the keyed reduce.

`KeyedMergeOperator` merges a keyed set with replacements for parts of it: how a delta iteration updates its solution
set.

`KeyedFunctionOperator` runs map, filter and flat map on a keyed stream.
"""

from __future__ import annotations

import copy
import enum
import operator
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from typing import Any, Final

from penstock.base.copies import IMMUTABLE, detached, is_immutable
from penstock.base.declared_values import fitting, rounding
from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.base.typeinfo import TypeInformation
from penstock.base.types import Row
from penstock.runtime.operators.base import FunctionOperator
from penstock.runtime.operators.emitting import NO_VALUES, check_items, wrong_value
from penstock.runtime.operators.record.process import KeyedProcessOperator
from penstock.runtime.operators.record.stateless import method
from penstock.runtime.records import MAX_TIMESTAMP, Batch

#: The number of results that are examined one by one; after that, a batch's first record decides for the batch.
LOOKED_AT_MIN: Final = 1024
#: Stands for "no value yet" where None may be a value.
MISSING = object()


def rounded_reduce(reduce: Any, type_info: TypeInformation | None) -> Any:
    """Return the function with its results rounded to single precision if the type holds a FLOAT."""
    convert = rounding(type_info)
    return reduce if convert is None else lambda value, other: convert(reduce(value, other))


def typed_reduce(reduce: Any, type_info: TypeInformation | None) -> Any:
    """Return the function with results in the type of the records: rows in its order, FLOATs in single precision."""
    convert = fitting(type_info)
    return reduce if convert is None else lambda value, other: convert(reduce(value, other))


class KeyedReduceOperator(FunctionOperator):
    """Folds each record into its key's value and emits the result (A2)."""

    is_keyed = True

    def __init__(
        self, function: Any, key_selector: Callable[[Any], Any], type_info: TypeInformation | None = None
    ) -> None:
        super().__init__(function)
        self._key_selector = key_selector
        #: the type of the records, as far as the program declares it
        self._type_info = type_info

    def open(self) -> None:
        """Open the function."""
        super().open()
        self._reduce = typed_reduce(method(self.function, "reduce"), self._type_info)
        table = self.context.keyed.table("_penstock_reduce")
        self._entries, self._mark = table.entries(None), table.mark
        self._has_mutable = False
        self._looked_at = 0

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Fold every record into its key's value."""
        entries, reduce, copies = self._entries, self._reduce, self.copies(batch.values)
        get = entries.get
        results: list[Any] = []
        append = results.append
        keys = self.extract_keys(batch.values, self._key_selector)
        self._has_timestamps = batch.timestamps is not None
        try:
            for key, value in zip(keys, batch.values, strict=True):
                reduced = get(key, MISSING)
                if reduced is not MISSING:
                    value = reduce(reduced, value)
                entries[key] = value
                if copies and value.__class__ not in IMMUTABLE:
                    value = detached(value)
                append(value)
        except Exception as error:
            raise self.failed(batch.values[len(results)]) from error
        if results and type(results[-1]) in NO_VALUES:
            raise self.failed(batch.values[-1]) from wrong_value(results[-1], "reduce()")
        if not self.context.is_batch:
            self._mark(None, keys)
            self.track_results(results)
            self.output.collect(Batch(results, batch.timestamps))

    def copies(self, values: list[Any]) -> bool:
        """Return whether the results of a batch are copied, because they are mutable: they are also the state.

        All records and results have one type, so after enough results were examined, the first record decides.
        """
        if self.context.is_batch:
            return False
        return self._has_mutable or self._looked_at < LOOKED_AT_MIN or not all(map(is_immutable, values[:1]))

    def track_results(self, results: list[Any]) -> None:
        """Note whether the results of a batch are mutable."""
        self._looked_at += len(results)
        self._has_mutable = self._has_mutable or not all(map(is_immutable, results[-1:]))

    def end_keys(self) -> None:
        """Emit each key's final value, at the end of time as in Flink."""
        values = list(self._entries.values())
        if values:
            self.output.collect(Batch(values, [MAX_TIMESTAMP] * len(values) if self._has_timestamps else None))


Reducer = Callable[[Any, Any], Any]


class AccumulateType(enum.Enum):
    """The kind of aggregate of a key's records."""

    MIN = 1
    MAX = 2
    MIN_BY = 3
    MAX_BY = 4
    SUM = 5


def check_field(field: int | str) -> None:
    """Raise `WrongValueError` if the field to aggregate is a negative position."""
    if isinstance(field, int) and field < 0:
        raise WrongValueError(f"the field to aggregate must be a position from 0 on, or a name, not {field!r}")


class KeyedAggregateOperator(KeyedReduceOperator):
    """Folds one field of each record into its key's aggregate, and emits the aggregate.

    Args:
        kind: how to aggregate the field.
        field: its position, or its name in rows, named tuples, dataclasses and dicts (`f0`, `f1`, … in tuples).
        key_selector: returns the key of a record.
        type_info: the type of the records, as far as the program declares it.
    """

    def __init__(
        self,
        kind: AccumulateType,
        field: int | str,
        key_selector: Callable[[Any], Any],
        type_info: TypeInformation | None = None,
    ) -> None:
        super().__init__(None, key_selector, type_info)
        self._reducers = _Reducers(kind, field, type_info)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Fold every record into its key's aggregate."""
        entries, reducers, copies = self._entries, self._reducers, self.copies(batch.values)
        get = entries.get
        results: list[Any] = []
        append = results.append
        keys = self.extract_keys(batch.values, self._key_selector)
        self._has_timestamps = batch.timestamps is not None
        try:
            for key, value in zip(keys, batch.values, strict=True):
                reduced = get(key, MISSING)
                if reduced is not MISSING:
                    value = reducers[reduced.__class__](reduced, value)
                else:
                    reducers[value.__class__]  # so that a wrong field fails at the first record
                entries[key] = value
                if copies and value.__class__ not in IMMUTABLE:
                    value = detached(value)
                append(value)
        except Exception as error:
            raise self.failed(batch.values[len(results)]) from error
        if not self.context.is_batch:
            self._mark(None, keys)
            self.track_results(results)
            self.output.collect(Batch(results, batch.timestamps))


class FieldReduce:
    """Folds one field of a record into an aggregate: the reduce function of windows with `sum`, `min` and the like."""

    def __init__(self, kind: AccumulateType, field: int | str, type_info: TypeInformation | None = None) -> None:
        self._reducers = _Reducers(kind, field, type_info)

    def check(self, record: Any) -> None:
        """Raise if the record has no such field. A window's first record needs this, because nothing is folded yet."""
        self._reducers[record.__class__]

    def reduce(self, value1: Any, value2: Any) -> Any:
        """Return the aggregate with another record folded in."""
        return self._reducers[value1.__class__](value1, value2)


class _Reducers(dict[type, Reducer]):
    """The functions that fold a record into an aggregate, by the aggregate's class; each is created on first use."""

    def __init__(self, kind: AccumulateType, field: int | str, type_info: TypeInformation | None = None) -> None:
        super().__init__()
        self._kind = kind
        self._field = field
        self._type_info = type_info

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._kind, self._field, self._type_info)

    def __missing__(self, cls: type) -> Reducer:
        reducer: Reducer = rounded_reduce(_reducer(self._kind, cls, self._field), self._type_info)
        self[cls] = reducer
        return reducer


def _reducer(kind: AccumulateType, cls: type, field: int | str) -> Reducer:
    take, put = _build_field_access(cls, field)
    if kind is AccumulateType.SUM:
        if cls is tuple:
            return _tuple_sum(_position(field, None, cls))
        if take is _itself:
            return operator.add
        return lambda total, value: put(total, take(total) + take(value))
    is_better = operator.lt if kind in (AccumulateType.MIN, AccumulateType.MIN_BY) else operator.gt
    if kind in (AccumulateType.MIN_BY, AccumulateType.MAX_BY):
        return lambda best, value: value if is_better(take(value), take(best)) else best

    def better(best: Any, value: Any) -> Any:
        candidate = take(value)
        return put(best, candidate) if is_better(candidate, take(best)) else best

    return better


def _tuple_sum(index: int) -> Reducer:
    """Return a reducer for the most frequent sum, with a single call per record: each record makes a new tuple."""
    behind = index + 1
    if index == 1:
        return lambda total, value: (
            (total[0], total[1] + value[1]) if len(total) == 2 else (total[0], total[1] + value[1], *total[2:])
        )
    return lambda total, value: (*total[:index], total[index] + value[index], *total[behind:])


def _build_field_access(cls: type, field: int | str) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    """Return how to read the field of a record of that class, and how to copy the record with another value."""
    if issubclass(cls, tuple):
        names = getattr(cls, "_fields", None)
        index = _position(field, names, cls)
        if names is None:
            return operator.itemgetter(index), lambda r, x: (*r[:index], x, *r[index + 1 :])
        make: Any = cls._make  # type: ignore[attr-defined]
        return operator.itemgetter(index), lambda r, x: make((*r[:index], x, *r[index + 1 :]))
    if issubclass(cls, list):
        index = _position(field, None, cls)
        return operator.itemgetter(index), lambda r, x: [*r[:index], x, *r[index + 1 :]]
    if issubclass(cls, Row | dict):
        return operator.itemgetter(field), _with_item(field)
    if is_dataclass(cls):
        known = tuple(f.name for f in fields(cls))
        name = known[_position(field, known, cls)]
        return operator.attrgetter(name), _with_attribute(name)
    if field not in (0, "f0"):
        raise WrongTypeError(
            f"a {cls.__name__} has no field {field!r}; of a plain value only position 0 can be aggregated"
        )
    return _itself, lambda r, x: x


def _itself(value: Any) -> Any:
    return value


def _position(field: int | str, names: tuple[str, ...] | None, cls: type) -> int:
    if isinstance(field, int):
        return field
    if names is not None and field in names:
        return names.index(field)
    if names is None and field[:1] == "f" and field[1:].isdecimal():
        return int(field[1:])
    known = "fields are named f0, f1, …" if names is None else f"there are {', '.join(names)}"
    raise WrongTypeError(f"a {cls.__name__} has no field {field!r}: {known}")


def _with_item(field: int | str) -> Callable[[Any, Any], Any]:
    def put(record: Any, value: Any) -> Any:
        changed = copy.copy(record)
        changed[field] = value
        return changed

    return put


def _with_attribute(name: str) -> Callable[[Any, Any], Any]:
    def put(record: Any, value: Any) -> Any:
        changed = copy.copy(record)
        object.__setattr__(changed, name, value)  # works for frozen dataclasses as well
        return changed

    return put


_SET, _DELTA = 0, 1


class KeyedMergeOperator(FunctionOperator):
    """Emits each key's last record of the delta (input 1) or, without one, its last record of the set (input 0).

    For batch execution: all records of a key arrive before any is emitted, when the keys end.
    """

    is_keyed = True

    def __init__(self, key_selector: Callable[[Any], Any]) -> None:
        super().__init__(None)
        self._key_selector = key_selector

    def open(self) -> None:
        """Look up the state: key -> (which input, record, timestamp in ms or None)."""
        super().open()
        self._entries = self.context.keyed.table("_penstock_merge").entries(None)

    def process_batch(self, batch: Batch, input_index: int = _SET) -> None:
        """Keep each key's relevant record.

        Each input comes in order of time; the order between them does not matter.
        """
        entries, keys = self._entries, self.extract_keys(batch.values, self._key_selector)
        timestamps = [None] * len(keys) if batch.timestamps is None else batch.timestamps
        rows = zip(keys, batch.values, timestamps, strict=True)
        if input_index == _DELTA:
            entries.update((key, (_DELTA, value, timestamp)) for key, value, timestamp in rows)
            return
        for key, value, timestamp in rows:
            entry = entries.get(key)
            if entry is None or entry[0] == _SET:
                entries[key] = (_SET, value, timestamp)

    def end_keys(self) -> None:
        """Emit each key's record."""
        entries = list(self._entries.values())
        for has_time in (False, True):
            group = [entry for entry in entries if (entry[2] is not None) is has_time]
            if group:
                times = [entry[2] for entry in group] if has_time else None
                self.output.collect(Batch([entry[1] for entry in group], times))


class KeyedFunctionOperator(KeyedProcessOperator):
    """Calls a map, filter or flat-map function with its record's key as the current key."""

    def __init__(self, function: Any, key_selector: Callable[[Any], Any], kind: str) -> None:
        super().__init__(_KINDS[kind](function), key_selector)
        self._user_function = function

    def user_functions(self) -> tuple[Any, ...]:
        """Return the map, filter or flat-map function."""
        return (self._user_function,)


class _AsProcessFunction:
    """Adapts a function of records to the interface of a keyed process function."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def open(self, runtime_context: Any) -> None:
        self._function.open(runtime_context)

    def close(self) -> None:
        self._function.close()

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        """Do nothing, because no timer is ever set."""


class _Map(_AsProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> list[Any]:
        result = self._function.map(value)
        if type(result) in NO_VALUES:
            raise wrong_value(result, "map()")
        return [result]


class _Filter(_AsProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> list[Any] | None:
        return [value] if self._function.filter(value) else None


class _FlatMap(_AsProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        expanded = self._function.flat_map(value)
        return None if expanded is None else check_items(expanded, self._function.flat_map)


_KINDS: Final = {"map": _Map, "filter": _Filter, "flat_map": _FlatMap}
