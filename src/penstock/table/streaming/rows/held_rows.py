"""Rows in state: tuples of values that can be dictionary keys, so that a row is found by its values.

All comparisons of rows use the same equality (`penstock.state.equality`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from penstock.state.equality import Zeros, build_canonicalizer, canonical_values
from penstock.state.key_bytes import NAN
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import to_column, to_values

Row = tuple[Any, ...]
_FLOAT: Final = build_canonicalizer(pa.float64())


def to_canonical_rows(
    columns: Sequence[pa.Array], types: Sequence[DataType], rows: int, zeros: Zeros = "kept"
) -> list[Row]:
    """Return the rows of these columns in canonical form, so that equal rows are one dictionary key.

    Rows that are kept to be sent again need `zeros="apart"`: a retracted row must be the one that was sent, bit for
    bit, even if an equal row has 0.0 instead of -0.0.
    """
    lists = [
        canonical_values(to_values(column, kind), column.type, zeros)
        for column, kind in zip(columns, types, strict=True)
    ]
    return list(zip(*lists, strict=True)) if lists else [()] * rows


def build_columns(rows: Sequence[Row], types: Sequence[DataType]) -> list[pa.Array]:
    """Return the columns of these rows."""
    return [to_column(list(map(itemgetter(index), rows)), kind) for index, kind in enumerate(types)]


class RowEquality:
    """Compares rows of these types. Their values may be in canonical form or not.

    Args:
        types: the types of the values, which are in the form that `to_values` returns.
        zeros: how -0.0 appears in keys, see `build_canonicalizer`.
    """

    def __init__(self, types: Sequence[DataType], zeros: Zeros = "kept") -> None:
        canonicalizers = [build_canonicalizer(arrow_type(data_type), zeros) for data_type in types]
        self._canonicalizers = [
            (index, canonicalizer) for index, canonicalizer in enumerate(canonicalizers) if canonicalizer is not None
        ]

    @property
    def is_plain(self) -> bool:
        """Whether tuples can be compared directly, because no type has several forms of one value."""
        return not self._canonicalizers

    def key(self, row: Sequence[Any]) -> Row:
        """Return the row as a dictionary key. It is the row itself if the types need no canonical form."""
        if not self._canonicalizers:
            return tuple(row)
        values = list(row)
        for index, canonical in self._canonicalizers:
            values[index] = canonical(values[index])
        return tuple(values)

    def current_key(self, key: Row) -> Row:
        """Return the current key for a key that an earlier release wrote, with a string for NaN."""
        values = list(key)
        for index, canonical in self._canonicalizers:
            if canonical is _FLOAT and values[index] == "NaN":
                values[index] = NAN
        return self.key(tuple(values))

    def same(self, row: Sequence[Any] | None, other: Sequence[Any] | None) -> bool:
        """Return whether two rows are equal. None equals None."""
        if row == other:
            return True
        if not self._canonicalizers or row is None or other is None:
            return False
        return self.key(row) == self.key(other)

    def find(self, row: Row, rows: Iterable[Row]) -> Row | None:
        """Return the first of the rows that equals this one, or None.

        State of an earlier release has rows that are not in canonical form, so a dictionary lookup may miss them.
        """
        if not self._canonicalizers:
            return None
        key = self.key(row)
        return next((other for other in rows if self.key(other) == key), None)
