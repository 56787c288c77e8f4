"""Aggregates that keep their values: COLLECT, LISTAGG, ARRAY_AGG, FIRST_VALUE, LAST_VALUE."""

from __future__ import annotations

from typing import Any

from penstock.table.plan.logical import AggregateCall
from penstock.table.streaming.aggregates.base import SingleOperand, changed_count, form_of, key_of, stored_key
from penstock.table.typed.nodes import Constant


class Collect(SingleOperand):
    """COLLECT: {key: [value in canonical form, count]}."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._key = key_of(call.operands[0].type)
        self._form = form_of(call.operands[0].type)

    def create(self) -> Any:
        """See `Accumulator`."""
        return {}

    def add_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return self._changed(held, value, 1)

    def retract_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return self._changed(held, value, -1)

    def _changed(self, held: Any, value: Any, by: int) -> Any:
        key = value if self._key is None else self._key(value)
        if by < 0:
            key = stored_key(held, key, self._key)
        entry = held.get(key)
        if entry is None:
            held[key] = [value if self._form is None else self._form(value), by]
        elif entry[1] + by:
            entry[1] += by
        else:
            del held[key]
        return held

    def value(self, held: Any) -> Any:
        """See `Accumulator`."""
        return [(value, count) for value, count in held.values() if count > 0]


class Gathered(SingleOperand):
    """The base class of aggregates of values in arrival order: [values, {key: number of pending retractions}]."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._key = key_of(call.operands[0].type)

    def create(self) -> Any:
        """See `Accumulator`."""
        return [[], {}]

    def add_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        values, owed = held
        if owed and is_owed(owed, value if self._key is None else self._key(value)):
            return held
        values.append(value)
        return held

    def retract_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        values, owed = held
        index = self._index_of(value, values)
        if index is None:
            changed_count(owed, value if self._key is None else self._key(value), 1)
        else:
            del values[index]
        return held

    def _index_of(self, value: Any, values: list[Any]) -> int | None:
        """Return the index of the first value that equals this one, or None."""
        try:
            return values.index(value)
        except ValueError:
            if self._key is None or value is None:
                return None
        key = self._key(value)
        return next(
            (index for index, other in enumerate(values) if other is not None and self._key(other) == key), None
        )


def is_owed(owed: dict[Any, int], key: Any) -> bool:
    """Return whether a retraction of this value is pending, and consume it."""
    if key not in owed:
        return False
    changed_count(owed, key, -1)
    return True


class ArrayAgg(Gathered):
    """ARRAY_AGG: includes NULL, except with IGNORE NULLS."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self.skips_null = "IGNORE NULLS" in call.options

    def value(self, held: Any) -> Any:
        """See `Accumulator`."""
        return list(held[0]) or None


def separator_of(call: AggregateCall) -> str:
    """Return the separator of LISTAGG."""
    given = call.operands[1] if len(call.operands) > 1 else None
    return str(given.value) if isinstance(given, Constant) else ","


class ListAgg(SingleOperand):
    """LISTAGG of append-only rows: the text."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._separator = separator_of(call)

    def add_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return value if held is None else f"{held}{self._separator}{value}"


class RetractableListAgg(Gathered):
    """LISTAGG with retractions."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._separator = separator_of(call)

    def value(self, held: Any) -> Any:
        """See `Accumulator`."""
        return self._separator.join(held[0]) if held[0] else None


class FirstOrLast(SingleOperand):
    """FIRST_VALUE and LAST_VALUE of append-only rows: the value."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._is_first = call.function == "FIRST_VALUE"

    def add_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return held if self._is_first and held is not None else value


class RetractableFirstOrLast(SingleOperand):
    """FIRST_VALUE and LAST_VALUE with retractions.

    The state is [next number, {number: value}, {key: its numbers}, {key: number of pending retractions}]. Values are
    numbered in arrival order. A retraction removes the earliest of equal values.
    """

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._key = key_of(call.operands[0].type)
        self._is_first = call.function == "FIRST_VALUE"

    def create(self) -> Any:
        """See `Accumulator`."""
        return [0, {}, {}, {}]

    def add_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        number, values, numbers, owed = held
        key = value if self._key is None else self._key(value)
        if is_owed(owed, key):
            return held
        values[number] = value
        numbers.setdefault(key, []).append(number)
        held[0] = number + 1
        return held

    def retract_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        _, values, numbers, owed = held
        key = value if self._key is None else stored_key(numbers, self._key(value), self._key)
        known = numbers.get(key)
        if known is None:
            changed_count(owed, key, 1)
            return held
        del values[known.pop(0)]
        if not known:
            del numbers[key]
        return held

    def value(self, held: Any) -> Any:
        """See `Accumulator`."""
        values = held[1].values()
        return next(iter(values) if self._is_first else reversed(values), None)

    def is_spent(self, held: Any) -> bool:
        """See `Accumulator`."""
        return not held[1] and not held[3]
