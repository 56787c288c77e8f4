"""Converts between columns and the Python values that user-defined functions take and return.

Arrow converts plain values in bulk. The class of each result is checked first, because Arrow would silently convert
fractions to integers and bytes to text.
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

#: reports a refused value: takes its position among the results, and the value
Refuse = Callable[[int, object], Any]

_NONE: Final = type(None)
#: the classes of values that Arrow converts directly
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
#: the types that store every value of a class unchanged
_ALWAYS: Final[tuple[tuple[type[DataType], type], ...]] = (
    (types.BooleanType, bool),
    (types.IntegralType, int),
    (types.DoubleType, float),
    (types.CharType, str),
    (types.VarCharType, str),
)
_FAULTS: Final = (WrongTypeError, WrongValueError, pa.ArrowException, OverflowError)


def seen_values(column: Datum, data_type: DataType, zone: tzinfo, rows: int) -> list[Any]:
    """Convert an operand to the values that functions see, one for each row."""
    found = values_of(column, data_type)
    if not is_seen_as_held(data_type):
        found = list(map(seen_of(data_type, zone, for_functions=True), found))
    return found if isinstance(column, pa.Array) else found * rows


class Results:
    """Converts results of functions to columns of `data_type`; NULL is None."""

    def __init__(self, data_type: DataType, zone: tzinfo) -> None:
        self.data_type = data_type
        self._arrow = arrow_type(data_type)
        self._taken = next((classes for kind, classes in _TAKEN if isinstance(data_type, kind)), None)
        self._held = checked(data_type, held_of(data_type, zone))
        self._plain = next((one for kind, one in _ALWAYS if isinstance(data_type, kind)), None)
        bits = self._arrow.bit_width if isinstance(data_type, types.IntegralType) else None
        self._bounds = None if bits is None else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)

    def column(self, values: Sequence[Any], refuse: Refuse) -> pa.Array:
        """Convert values to a column. Calls `refuse` with the first value that does not fit it."""
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
        """Convert one value to its internal representation. Calls `refuse` if it does not fit the column."""
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
