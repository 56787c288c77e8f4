"""BITMAP_*_AGG: bitmaps of numbers, and their common base class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.table.functions.bitmaps import bitmap_bytes, bitmap_class, bitmap_of
from penstock.table.plan.logical import AggregateCall
from penstock.table.streaming.aggregates.base import SingleOperand, changed_count

_BITS: Final = 2**32
_COMBINE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "AND": lambda one, other: one & other,
    "OR": lambda one, other: one | other,
    "XOR": lambda one, other: one ^ other,
}


class _OfBitmaps(SingleOperand):
    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._is_count = "_CARDINALITY_" in call.function
        self._combine = _COMBINE.get(call.function.split("_")[1], _COMBINE["OR"])

    def _given(self, found: Any) -> Any:
        """Return a bitmap as the result of the call: its bytes, or its cardinality."""
        return None if found is None else len(found) if self._is_count else bitmap_bytes(found)


class BitmapBuild(_OfBitmaps):
    """BITMAP_BUILD_AGG: [the bitmap, {number: count}]; append-only inputs need no counts."""

    def __init__(self, call: AggregateCall, retracts: bool) -> None:
        super().__init__(call)
        self._counts = retracts

    def create(self) -> Any:
        """See `Accumulator`."""
        return [bitmap_class()(), {}]

    def add_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        number = value % _BITS
        if not self._counts or changed_count(held[1], number, 1) == 1:
            held[0].add(number)
        return held

    def retract_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        number = value % _BITS
        if changed_count(held[1], number, -1) == 0:
            held[0].discard(number)
        return held

    def value(self, held: Any) -> Any:
        """See `Accumulator`."""
        return self._given(held[0] if held[0] else None)


class BitmapCombined(_OfBitmaps):
    """BITMAP_AND_AGG, BITMAP_OR_AGG and BITMAP_XOR_AGG of append-only rows: the bitmap."""

    def add_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        found = bitmap_of(value)
        return found if held is None else self._combine(held, found)

    def value(self, held: Any) -> Any:
        """See `Accumulator`."""
        return self._given(held)


class RetractableXor(_OfBitmaps):
    """BITMAP_XOR_AGG with retractions: (the bitmap, number of rows)."""

    def create(self) -> Any:
        """See `Accumulator`."""
        return bitmap_class()(), 0

    def add_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return held[0] ^ bitmap_of(value), held[1] + 1

    def retract_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        return held[0] ^ bitmap_of(value), held[1] - 1

    def value(self, held: Any) -> Any:
        """See `Accumulator`."""
        return self._given(held[0] if held[1] > 0 else None)


class RetractableCombined(_OfBitmaps):
    """BITMAP_AND_AGG and BITMAP_OR_AGG with retractions: [{bitmap as bytes: count}, the combined bitmap].

    The combined bitmap is None when it has to be rebuilt, after a bitmap was removed.
    """

    def create(self) -> Any:
        """See `Accumulator`."""
        return [{}, None]

    def add_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        counts, found = held
        if changed_count(counts, bytes(value), 1) == 1 and found is not None:
            held[1] = self._combine(found, bitmap_of(value))
        return held

    def retract_one(self, held: Any, value: Any) -> Any:
        """See `SingleOperand`."""
        if changed_count(held[0], bytes(value), -1) == 0:
            held[1] = None
        return held

    def value(self, held: Any) -> Any:
        """See `Accumulator`."""
        counts, found = held
        if found is None:
            for raw, count in counts.items():
                if count > 0:
                    found = bitmap_of(raw) if found is None else self._combine(found, bitmap_of(raw))
            held[1] = found
        return self._given(found)

    def is_spent(self, held: Any) -> bool:
        """See `Accumulator`."""
        return not held[0]
