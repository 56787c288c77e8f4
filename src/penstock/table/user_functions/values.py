"""Between columns and the values that functions of the program take and give.

Plain values go through Arrow at once; the class of each result is looked at first, because Arrow would make whole
numbers of fractions, and text of bytes, without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.table.data import logical_types as types
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.conversion import checked, held_of, is_seen_as_held, seen_of
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import Datum, column_of, values_of

#: tells which value was refused, by its place among the results, and the value
Refuse = Callable[[int, object], Any]

_NONE: Final = type(None)
#: the classes of values that Arrow takes as they are
_TAKEN: Final[tuple[tuple[type[DataType], frozenset[type]], ...]] = (
    (types.BooleanType, frozenset({bool, _NONE})),
    (types.IntegralType, frozenset({int, _NONE})),
    (types.FloatType, frozenset({float, int, _NONE})),
    (types.DoubleType, frozenset({float, int, _NONE})),
    (types.CharType, frozenset({str, _NONE})),
    (types.VarCharType, frozenset({str, _NONE})),
    (types.BinaryType, frozenset({bytes, _NONE})),
    (types.VarBinaryType, frozenset({bytes, _NONE})),
)
#: the types of which tables hold each value of a class just as it is
_ALWAYS: Final[tuple[tuple[type[DataType], type], ...]] = (
    (types.BooleanType, bool),
    (types.IntegralType, int),
    (types.DoubleType, float),
    (types.CharType, str),
    (types.VarCharType, str),
)
_FAULTS: Final = (WrongTypeError, WrongValueError, pa.ArrowException, OverflowError)


def seen_values(column: Datum, data_type: DataType, zone: tzinfo, rows: int) -> list[Any]:
    """The values of an operand as functions see them, one for each row."""
    found = values_of(column, data_type)
    if not is_seen_as_held(data_type):
        found = list(map(seen_of(data_type, zone, for_functions=True), found))
    return found if isinstance(column, pa.Array) else found * rows


class Results:
    """Makes columns of what functions return. `data_type`: of the column; NULL is None."""

    def __init__(self, data_type: DataType, zone: tzinfo) -> None:
        self.data_type = data_type
        self._arrow = arrow_type(data_type)
        self._taken = next((classes for kind, classes in _TAKEN if isinstance(data_type, kind)), None)
        self._held = checked(data_type, held_of(data_type, zone))
        self._plain = next((one for kind, one in _ALWAYS if isinstance(data_type, kind)), None)
        bits = self._arrow.bit_width if isinstance(data_type, types.IntegralType) else None
        self._bounds = None if bits is None else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)

    def column(self, values: Sequence[Any], refuse: Refuse) -> pa.Array:
        """A column of these values. `refuse` raises for the first that has no place in it."""
        if not self.data_type.is_nullable and None in values:
            refuse(values.index(None), None)
        try:
            if self._taken is not None and self._taken.issuperset(map(type, values)):
                return pa.array(values, self._arrow)
            return column_of(list(map(self._held, values)), self.data_type)
        except _FAULTS:
            for place, value in enumerate(values):
                if not self._takes(value):
                    refuse(place, value)
            raise

    def held(self, value: Any, refuse: Refuse) -> Any:
        """One value as tables hold it. `refuse` raises if it has no place in the column."""
        if type(value) is self._plain and (self._bounds is None or self._bounds[0] <= value <= self._bounds[1]):
            return value
        if value is None:
            return refuse(0, None) if not self.data_type.is_nullable else None
        try:
            found = self._held(value)
            column_of([found], self.data_type)
        except _FAULTS:
            refuse(0, value)
            raise
        return found

    def _takes(self, value: object) -> bool:
        try:
            column_of([self._held(value)], self.data_type)
        except _FAULTS:
            return False
        return True
