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
from penstock.table.data.conversion import checked, is_seen_as_held, to_external, to_internal
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import Datum, to_column, to_values

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
    values = to_values(column, data_type)
    if not is_seen_as_held(data_type):
        values = list(map(to_external(data_type, zone, for_functions=True), values))
    return values if isinstance(column, pa.Array) else values * rows


class Results:
    """Converts results of functions to columns of `data_type`; NULL is None."""

    def __init__(self, data_type: DataType, zone: tzinfo) -> None:
        self.data_type = data_type
        self._arrow = arrow_type(data_type)
        self._taken = next((classes for kind, classes in _TAKEN if isinstance(data_type, kind)), None)
        self._held = checked(data_type, to_internal(data_type, zone))
        self._plain = next((plain for kind, plain in _ALWAYS if isinstance(data_type, kind)), None)
        bits = self._arrow.bit_width if isinstance(data_type, types.IntegralType) else None
        self._bounds = None if bits is None else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)

    def column(self, values: Sequence[Any], refuse: Refuse) -> pa.Array:
        """Convert values to a column. Calls `refuse` with the first value that does not fit it."""
        if not self.data_type.is_nullable and None in values:
            refuse(values.index(None), None)
        try:
            if self._taken is not None and self._taken.issuperset(map(type, values)):
                return pa.array(values, self._arrow)
            return to_column(list(map(self._held, values)), self.data_type)
        except _FAULTS:
            for row_index, value in enumerate(values):
                if not self._takes(value):
                    refuse(row_index, value)
            raise

    def held(self, value: Any, refuse: Refuse) -> Any:
        """Convert one value to its internal representation. Calls `refuse` if it does not fit the column."""
        if type(value) is self._plain and (self._bounds is None or self._bounds[0] <= value <= self._bounds[1]):
            return value
        if value is None:
            return refuse(0, None) if not self.data_type.is_nullable else None
        try:
            converted = self._held(value)
            to_column([converted], self.data_type)
        except _FAULTS:
            refuse(0, value)
            raise
        return converted

    def _takes(self, value: object) -> bool:
        try:
            to_column([self._held(value)], self.data_type)
        except _FAULTS:
            return False
        return True
