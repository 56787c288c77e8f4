"""Running sum, minimum and maximum of a field on a keyed stream (A2).

Every record yields its key's aggregate so far, as a record of the same form; in batch execution a key yields only its
last aggregate. `sum`, `min` and `max` change one field of the key's first record and keep its others. `min_by` and
`max_by` yield the whole record with the least or greatest field, the first one if several are equal. Records are
read-only once emitted, so changes are made to a copy.

How to read and replace a field depends on the form of the record. The operator determines this once for each class; the
loop is then the same as in the keyed reduce.
"""

from __future__ import annotations

import copy
import enum
import operator
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from penstock.base.copies import IMMUTABLE, detached
from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.base.typeinfo import TypeInformation
from penstock.base.types import Row
from penstock.core.operators.keyed.keyed_reduce import MISSING, KeyedReduceOperator, rounded_reduce
from penstock.core.records import Batch

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
