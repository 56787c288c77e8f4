"""Columns as keys, as in `key_by("name")`."""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.base.errors import WrongTypeError
from penstock.base.fields import get_field
from penstock.base.types import Row
from penstock.codecs.row_batches import take_apart
from penstock.state.equality import canonical_column
from penstock.state.key_columns import distinct_keys

#: The field names of tuples.
_NUMBERED: Final = re.compile("f[0-9]+")
#: Integer keys below this have their channels in a table.
_TABLE_MAX: Final = 1 << 20
_UNKNOWN: Final = -1


class ColumnKey:
    """Extracts a record's key from columns: the value of one, or a tuple of the values of several.

    For a record that is not from a column batch, it takes the fields with these names.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def __call__(self, record: Any) -> Any:
        """Return the key of a single record."""
        if len(self.names) == 1:
            return get_field(record, self.names[0])
        return tuple(get_field(record, name) for name in self.names)

    def extend(self, target: list[Any], records: list[Any]) -> None:
        """Append the keys of many records, up to the first record without one.

        Raises:
            TypeError: if a record has no such field; it is the one that follows the last appended key.
        """
        fields, getter = self._at_once(records)
        if getter is None:
            target.extend(map(self, records))
            return
        begin = len(target)
        try:
            target.extend(map(getter, fields))
        except IndexError:
            self(records[len(target) - begin])
            raise

    def _at_once(self, records: list[Any]) -> tuple[list[Any], Callable[[Any], Any] | None]:
        """Return lists of fields and a getter for their keys, if all are tuples or all are rows with the same names."""
        kinds = set(map(type, records))
        if kinds == {tuple}:
            if all(_NUMBERED.fullmatch(name) for name in self.names):
                return records, itemgetter(*(int(name[1:]) for name in self.names))
        elif kinds == {Row}:
            apart = take_apart(records)
            names = () if apart is None else apart[0] or ()
            if apart is not None and all(names.count(name) == 1 for name in self.names):
                return apart[1], itemgetter(*(names.index(name) for name in self.names))
        return records, None

    def __repr__(self) -> str:
        return f"ColumnKey({', '.join(self.names)})"

    def select_columns(self, columns: pa.RecordBatch) -> list[Any]:
        """Return the key's columns in canonical form (`penstock.state.equality`).

        Raises:
            TypeError: if a column is missing.
        """
        schema = columns.schema
        positions = [schema.get_field_index(name) for name in self.names]
        if min(positions) < 0:
            missing = [name for name, position in zip(self.names, positions, strict=True) if position < 0]
            raise WrongTypeError(f"there is no column {missing[0]!r} to key by; there are {', '.join(schema.names)}")
        return [canonical_column(columns.column(position)) for position in positions]


class ColumnRoutes:
    """Routes each record to a channel by its key; each key is hashed once while it is remembered.

    Small integers use a table, so a batch's distinct keys need not be found first.
    """

    def __init__(self, key: ColumnKey, route: Callable[[Any], int]) -> None:
        self._key = key
        self._route = route
        #: channel by key, -1 for keys not seen yet
        self._table = np.full(0, _UNKNOWN, np.int16)

    def select_channels(self, columns: pa.RecordBatch) -> Any:
        """Return the channels of the records as a numpy array."""
        of_key = self._key.select_columns(columns)
        if len(of_key) == 1 and pa.types.is_integer(of_key[0].type) and not of_key[0].null_count:
            numbers = of_key[0].to_numpy()
            if len(numbers) and numbers.min() >= 0 and (highest := int(numbers.max())) < _TABLE_MAX:
                return self._in_table(numbers, highest)
        codes, keys = distinct_keys(of_key)
        return np.fromiter(map(self._route, keys), np.int16, len(keys))[codes]

    def _in_table(self, numbers: Any, highest: int) -> Any:
        missing = highest + 1 - len(self._table)
        if missing > 0:
            self._table = np.concatenate([self._table, np.full(missing, _UNKNOWN, np.int16)])
        routes = self._table[numbers]
        unknown = routes == _UNKNOWN
        if unknown.any():
            new = np.unique(numbers[unknown])
            self._table[new] = list(map(self._route, new.tolist()))
            routes = self._table[numbers]
        return routes
