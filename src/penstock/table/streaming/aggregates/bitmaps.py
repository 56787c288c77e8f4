"""BITMAP_*_AGG: bitmaps of numbers, and their common base class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.table.functions.bitmaps import bitmap_bytes, bitmap_class, decode_bitmap
from penstock.table.plan.logical import AggregateCall
from penstock.table.streaming.aggregates.base import SingleOperand, changed_count

_BITS: Final = 2**32
_COMBINE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "AND": lambda bitmap, other: bitmap & other,
    "OR": lambda bitmap, other: bitmap | other,
    "XOR": lambda bitmap, other: bitmap ^ other,
}


class _OfBitmaps(SingleOperand):
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
        if not self._counts or changed_count(state[1], number, 1) == 1:
            state[0].add(number)
        return state

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        number = value % _BITS
        if changed_count(state[1], number, -1) == 0:
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
        if changed_count(counts, bytes(value), 1) == 1 and bitmap is not None:
            state[1] = self._combine(bitmap, decode_bitmap(value))
        return state

    def retract_one(self, state: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        if changed_count(state[0], bytes(value), -1) == 0:
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
