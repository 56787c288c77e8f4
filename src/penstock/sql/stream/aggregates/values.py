"""Aggregates that keep values: MIN and MAX, PERCENTILE, collections and texts of values, JSON, and bitmaps.

MIN, MAX and PERCENTILE need the values in order. COLLECT, LISTAGG, ARRAY_AGG, FIRST_VALUE and LAST_VALUE keep their
values, and so do JSON_OBJECTAGG and JSON_ARRAYAGG. BITMAP_*_AGG build and combine bitmaps of numbers, and have a common
base class.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final

from penstock.codecs.variant import name_order, text_in_quotes
from penstock.sql.data import types
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.functions.bitmaps import bitmap_bytes, bitmap_class, decode_bitmap
from penstock.sql.functions.json import json_writer
from penstock.sql.functions.variants import storable
from penstock.sql.logical.nodes import AggregateCall
from penstock.sql.stream.aggregates import functions
from penstock.sql.typed import Constant

#: types whose values Arrow orders as Penstock does
_IN_ORDER: Final = (
    types.IntegralType,
    types.CharType,
    types.VarCharType,
    types.DateType,
    types.TimestampType,
    types.LocalZonedTimestampType,
)


class Extreme(functions.SingleOperand):
    """MIN and MAX of insert-only rows: the best value. NaN is the greatest number, and 0.0 stands for both zeros."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._is_least = call.function == "MIN"
        self._is_float = isinstance(call.operands[0].type, types.DoubleType | types.FloatType)

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        if self._is_float:
            return _better(state, value + 0.0, self._is_least)
        if state is None:
            return value
        return value if (value < state if self._is_least else value > state) else state

    def running(self, rows: functions.Rows, states: list[Any]) -> list[Any]:
        """See `Accumulator`."""
        if not rows.only_come or self._is_float:
            return super().running(rows, states)
        is_least = self._is_least
        results = []
        for group, operand in zip(rows.groups, rows.operands, strict=True):
            best = states[group]
            if operand is not None and (best is None or (operand < best if is_least else operand > best)):
                states[group] = best = operand
            results.append(best)
        return results

    def gather(self, bundle: functions.Bundled, states: list[Any]) -> bool:
        """See `Accumulator`. Floats are processed one by one, because Flink orders NaN differently from Arrow."""
        if bundle.operand is None or not isinstance(self.call.operands[0].type, _IN_ORDER):
            return False
        is_least = self._is_least
        for group, value in zip(*bundle.extremes("min" if is_least else "max"), strict=True):
            best = states[group]
            if best is None or (value < best if is_least else value > best):
                states[group] = value
        return True


def _better(best: float | None, value: float, is_least: bool) -> float:
    """Return the lesser or the greater of two numbers, where NaN is the greatest."""
    if best is None:
        return value
    if is_least:
        return value if value < best or best != best else best
    return value if value > best or value != value else best


class RetractableExtreme(functions.SingleOperand):
    """MIN and MAX of rows that may be retracted: [the values in order, {value: count}].

    NaN is greater than all numbers, and is counted separately. 0.0 represents both zeros.
    """

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._place = 0 if call.function == "MIN" else -1
        self._key = functions.to_key(call.type)
        self._is_float = isinstance(call.type, types.DoubleType | types.FloatType)

    def create(self) -> Any:
        """See `Accumulator`."""
        return [[], {}]

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        key = value if self._key is None else self._key(value)
        if functions.changed_count(state[1], key, 1) == 1 and key is not functions.NAN:
            insort(state[0], value)
        return state

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        key = value if self._key is None else self._key(value)
        if functions.changed_count(state[1], key, -1) == 0 and key is not functions.NAN:
            del state[0][bisect_left(state[0], value)]
        return state

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        values, counts = state
        if self._key is not None and counts.get(functions.NAN, 0) > 0 and (self._place or not values):
            return math.nan
        if not values:
            return None
        return values[self._place] + 0.0 if self._is_float else values[self._place]


class Percentile(functions.Accumulator):
    """PERCENTILE: [the values in order, {value: count}, the requested percentages].

    NaN is greater than all numbers, and is counted separately. 0.0 represents both zeros.
    """

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._is_list = isinstance(call.type, types.ArrayType)
        share = call.operands[1]
        self._shares = self._check_shares(share.value) if isinstance(share, Constant) else None

    def create(self) -> Any:
        """See `Accumulator`."""
        return [[], {}, self._shares]

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return self._changed(state, values, 1)

    def retract(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        return self._changed(state, values, -1)

    def _changed(self, state: Any, operands: tuple[Any, ...], sign: int) -> Any:
        value = operands[0]
        if state[2] is None:
            state[2] = self._check_shares(operands[1])
        weight = operands[2] if len(operands) > 2 else 1
        if value is None or weight is None or weight <= 0:
            return state
        number = float(value) + 0.0
        key = number if number == number else functions.NAN
        before = state[1].get(key, 0)
        after = functions.changed_count(state[1], key, sign * weight)
        if key is functions.NAN:
            return state
        if before <= 0 < after:
            insort(state[0], number)
        elif after <= 0 < before:
            del state[0][bisect_left(state[0], number)]
        return state

    def _check_shares(self, value: Any) -> list[float]:
        shares = [float(share) for share in (value if self._is_list else [value])]
        for share in shares:
            if not 0 <= share <= 1:
                raise TableRuntimeError(f"PERCENTILE takes shares from 0 to 1, not {share}")
        return shares

    def is_spent(self, state: Any) -> bool:
        """See `Accumulator`."""
        return not state[1]

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        values, counts, shares = state
        ends = list(accumulate(map(counts.__getitem__, values)))  # cumulative counts
        if counts.get(functions.NAN, 0) > 0:
            values = [*values, math.nan]
            ends.append((ends[-1] if ends else 0) + counts[functions.NAN])
        if not values or not shares:
            return None
        percentiles = [self._interpolate(values, ends, share * (ends[-1] - 1) + 1) for share in shares]
        return percentiles if self._is_list else percentiles[0]

    @staticmethod
    def _interpolate(values: list[float], ends: list[int], position: float) -> float:
        """Return the value at a position, counted from 1, with linear interpolation between two values."""
        lower, higher = math.floor(position), math.ceil(position)
        index = bisect_left(ends, lower)
        if ends[index] >= higher:
            return values[index]
        return (higher - position) * values[index] + (position - lower) * values[index + 1]


class Collect(functions.SingleOperand):
    """COLLECT: {key: [value in canonical form, count]}."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._key = functions.to_key(call.operands[0].type)
        self._form = functions.to_canonical(call.operands[0].type)

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
            key = functions.stored_key(state, key, self._key)
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


class Gathered(functions.SingleOperand):
    """The base class of aggregates of values in arrival order: [values, {key: number of pending retractions}]."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._key = functions.to_key(call.operands[0].type)

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
            functions.changed_count(owed, value if self._key is None else self._key(value), 1)
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
    functions.changed_count(owed, key, -1)
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


class ListAgg(functions.SingleOperand):
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


class FirstOrLast(functions.SingleOperand):
    """FIRST_VALUE and LAST_VALUE of append-only rows: the value."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._is_first = call.function == "FIRST_VALUE"

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return state if self._is_first and state is not None else value


class RetractableFirstOrLast(functions.SingleOperand):
    """FIRST_VALUE and LAST_VALUE with retractions.

    The state is [next number, {number: value}, {key: its numbers}, {key: number of pending retractions}]. Values are
    numbered in arrival order. A retraction removes the earliest of equal values.
    """

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._key = functions.to_key(call.operands[0].type)
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
        key = value if self._key is None else functions.stored_key(numbers, self._key(value), self._key)
        known = numbers.get(key)
        if known is None:
            functions.changed_count(owed, key, 1)
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


def _writer(call: AggregateCall, index: int) -> Callable[[Any], str | None]:
    """Return a function that converts an operand to JSON; NULL stays NULL, and JSON operands are not converted."""
    if any(option.startswith("EMBEDDED") and str(index) in option.split() for option in call.options):
        return lambda value: value
    write = json_writer(call.operands[index].type)
    return lambda value: None if value is None else storable(write(value))


def _keeps_null(call: AggregateCall, unless_said: bool) -> bool:
    """Return whether NULL becomes `null` instead of being omitted. The function's name or an option decides."""
    for words in (call.function.replace("_", " "), *call.options):
        if words.endswith("ABSENT ON NULL"):
            return False
        if words.endswith("NULL ON NULL"):
            return True
    return unless_said


class JsonArrayAgg(Gathered):
    """JSON_ARRAYAGG: values as JSON."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._key = None
        self.skips_null = not _keeps_null(call, False)
        self._write = _writer(call, 0)

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return super().add_one(state, self._write(value))

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return super().retract_one(state, self._write(value))

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        return f"[{','.join(['null' if text is None else text for text in state[0]])}]"


class JsonObjectAgg(functions.Accumulator):
    """JSON_OBJECTAGG: [{key: value as JSON}, {(key, value): number of pending retractions}]."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._keeps_null = _keeps_null(call, True)
        self._write = _writer(call, 1)

    def create(self) -> Any:
        """See `Accumulator`."""
        return [{}, {}]

    def add(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        known, owed = state
        key, value = self._pair(values)
        if owed and is_owed(owed, (key, value)):
            return state
        if key in known:
            raise TableRuntimeError(f"JSON_OBJECTAGG has met the key '{key}' twice; an object has each key once")
        if value is not None or self._keeps_null:
            known[key] = value
        return state

    def retract(self, state: Any, values: tuple[Any, ...]) -> Any:
        """See `Accumulator`."""
        known, owed = state
        key, value = self._pair(values)
        if value is None and not self._keeps_null:
            return state
        if key in known and known[key] == value:
            del known[key]
        else:
            functions.changed_count(owed, (key, value), 1)
        return state

    def _pair(self, values: tuple[Any, ...]) -> tuple[str, str | None]:
        key, value = values
        if key is None:
            raise TableRuntimeError("a key of JSON_OBJECTAGG is NULL")
        return key, self._write(value)

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        known = state[0]
        parts = [f"{text_in_quotes(key)}:{known[key] or 'null'}" for key in sorted(known, key=name_order)]
        return storable(f"{{{','.join(parts)}}}")


_BITS: Final = 2**32
_COMBINE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "AND": lambda bitmap, other: bitmap & other,
    "OR": lambda bitmap, other: bitmap | other,
    "XOR": lambda bitmap, other: bitmap ^ other,
}


class _OfBitmaps(functions.SingleOperand):
    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._is_count = "_CARDINALITY_" in call.function
        self._combine = _COMBINE.get(call.function.split("_")[1], _COMBINE["OR"])

    def _given(self, bitmap: Any) -> Any:
        """Return a bitmap as the result of the call: its bytes, or its cardinality."""
        return None if bitmap is None else len(bitmap) if self._is_count else bitmap_bytes(bitmap)


class BitmapBuild(_OfBitmaps):
    """BITMAP_BUILD_AGG: [the bitmap, {number: count}]; append-only inputs need no counts."""

    def __init__(self, call: AggregateCall, retracts: bool) -> None:
        super().__init__(call)
        self._counts = retracts

    def create(self) -> Any:
        """See `Accumulator`."""
        return [bitmap_class()(), {}]

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        number = value % _BITS
        if not self._counts or functions.changed_count(state[1], number, 1) == 1:
            state[0].add(number)
        return state

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        number = value % _BITS
        if functions.changed_count(state[1], number, -1) == 0:
            state[0].discard(number)
        return state

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        return self._given(state[0] if state[0] else None)


class BitmapCombined(_OfBitmaps):
    """BITMAP_AND_AGG, BITMAP_OR_AGG and BITMAP_XOR_AGG of append-only rows: the bitmap."""

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        bitmap = decode_bitmap(value)
        return bitmap if state is None else self._combine(state, bitmap)

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        return self._given(state)


class RetractableXor(_OfBitmaps):
    """BITMAP_XOR_AGG with retractions: (the bitmap, number of rows)."""

    def create(self) -> Any:
        """See `Accumulator`."""
        return bitmap_class()(), 0

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return state[0] ^ decode_bitmap(value), state[1] + 1

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return state[0] ^ decode_bitmap(value), state[1] - 1

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        return self._given(state[0] if state[1] > 0 else None)


class RetractableCombined(_OfBitmaps):
    """BITMAP_AND_AGG and BITMAP_OR_AGG with retractions: [{bitmap as bytes: count}, the combined bitmap].

    The combined bitmap is None when it has to be rebuilt, after a bitmap was removed.
    """

    def create(self) -> Any:
        """See `Accumulator`."""
        return [{}, None]

    def add_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        counts, bitmap = state
        if functions.changed_count(counts, bytes(value), 1) == 1 and bitmap is not None:
            state[1] = self._combine(bitmap, decode_bitmap(value))
        return state

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        if functions.changed_count(state[0], bytes(value), -1) == 0:
            state[1] = None
        return state

    def value(self, state: Any) -> Any:
        """See `Accumulator`."""
        counts, bitmap = state
        if bitmap is None:
            for raw, count in counts.items():
                if count > 0:
                    bitmap = decode_bitmap(raw) if bitmap is None else self._combine(bitmap, decode_bitmap(raw))
            state[1] = bitmap
        return self._given(bitmap)

    def is_spent(self, state: Any) -> bool:
        """See `Accumulator`."""
        return not state[0]
