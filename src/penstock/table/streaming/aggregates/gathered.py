"""Aggregates that keep their values: COLLECT, LISTAGG, ARRAY_AGG, FIRST_VALUE, LAST_VALUE."""

from __future__ import annotations

from typing import Any

from penstock.table.plan.logical import AggregateCall
from penstock.table.streaming.aggregates.base import SingleOperand, changed_count, stored_key, to_canonical, to_key
from penstock.table.typed.nodes import Constant


class Collect(SingleOperand):
    """COLLECT: {key: [value in canonical form, count]}."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._key = to_key(call.operands[0].type)
        self._form = to_canonical(call.operands[0].type)

    def create(self) -> Any:
        """See `Accumulator`."""
        return {}

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return self._changed(state, value, 1)

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return self._changed(state, value, -1)

    def _changed(self, state: Any, value: Any, by: int) -> Any:
        key = value if self._key is None else self._key(value)
        if by < 0:
            key = stored_key(state, key, self._key)
        entry = state.get(key)
        if entry is None:
            state[key] = [value if self._form is None else self._form(value), by]
        elif entry[1] + by:
            entry[1] += by
        else:
            del state[key]
        return state

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        return [(value, count) for value, count in state.values() if count > 0]


class Gathered(SingleOperand):
    """The base class of aggregates of values in arrival order: [values, {key: number of pending retractions}]."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._key = to_key(call.operands[0].type)

    def create(self) -> Any:
        """See `Accumulator`."""
        return [[], {}]

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        values, owed = state
        if owed and is_owed(owed, value if self._key is None else self._key(value)):
            return state
        values.append(value)
        return state

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        values, owed = state
        index = self._find_index(value, values)
        if index is None:
            changed_count(owed, value if self._key is None else self._key(value), 1)
        else:
            del values[index]
        return state

    def _find_index(self, value: Any, values: list[Any]) -> int | None:
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

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        return list(state[0]) or None


def get_separator(call: AggregateCall) -> str:
    """Return the separator of LISTAGG."""
    given = call.operands[1] if len(call.operands) > 1 else None
    return str(given.value) if isinstance(given, Constant) else ","


class ListAgg(SingleOperand):
    """LISTAGG of append-only rows: the text."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._separator = get_separator(call)

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return value if state is None else f"{state}{self._separator}{value}"


class RetractableListAgg(Gathered):
    """LISTAGG with retractions."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._separator = get_separator(call)

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        return self._separator.join(state[0]) if state[0] else None


class FirstOrLast(SingleOperand):
    """FIRST_VALUE and LAST_VALUE of append-only rows: the value."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._is_first = call.function == "FIRST_VALUE"

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return state if self._is_first and state is not None else value


class RetractableFirstOrLast(SingleOperand):
    """FIRST_VALUE and LAST_VALUE with retractions.

    The state is [next number, {number: value}, {key: its numbers}, {key: number of pending retractions}]. Values are
    numbered in arrival order. A retraction removes the earliest of equal values.
    """

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._key = to_key(call.operands[0].type)
        self._is_first = call.function == "FIRST_VALUE"

    def create(self) -> Any:
        """See `Accumulator`."""
        return [0, {}, {}, {}]

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        number, values, numbers, owed = state
        key = value if self._key is None else self._key(value)
        if is_owed(owed, key):
            return state
        values[number] = value
        numbers.setdefault(key, []).append(number)
        state[0] = number + 1
        return state

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        _, values, numbers, owed = state
        key = value if self._key is None else stored_key(numbers, self._key(value), self._key)
        known = numbers.get(key)
        if known is None:
            changed_count(owed, key, 1)
            return state
        del values[known.pop(0)]
        if not known:
            del numbers[key]
        return state

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        values = state[1].values()
        return next(iter(values) if self._is_first else reversed(values), None)

    def is_spent(self, state: Any) -> bool:
        """See `Accumulator`."""
        return not state[1] and not state[3]
