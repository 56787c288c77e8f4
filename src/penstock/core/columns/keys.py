"""Columns as keys: what `key_by("name")` partitions by."""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.common.fields import field_of
from penstock.common.row_batches import take_apart
from penstock.common.types import Row
from penstock.state.key_columns import distinct_keys

#: What a tuple's fields are called.
_NUMBERED: Final = re.compile("f[0-9]+")


class ColumnKey:
    """The key of a record that is made of columns: the value of one, or a tuple of the values of several.

    Called with a record that is no column batch's, it takes the fields of those names.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def __call__(self, record: Any) -> Any:
        """The key of a single record."""
        if len(self.names) == 1:
            return field_of(record, self.names[0])
        return tuple(field_of(record, name) for name in self.names)

    def extend(self, target: list[Any], records: list[Any]) -> None:
        """Append the keys of many records, up to the first that has none.

        Raises:
            TypeError: if a record has no such field; it is the one at the index that `target` has grown to.
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
        """Lists of fields, and what takes the key of each: of tuples, and of rows with the same names."""
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

    def columns_in(self, columns: pa.RecordBatch) -> list[Any]:
        """The key's columns.

        Raises:
            TypeError: if one is not there.
        """
        schema = columns.schema
        positions = [schema.get_field_index(name) for name in self.names]
        if min(positions) < 0:
            missing = [name for name, position in zip(self.names, positions, strict=True) if position < 0]
            raise TypeError(f"there is no column {missing[0]!r} to key by; there are {', '.join(schema.names)}")
        return [columns.column(position) for position in positions]


class ColumnRoutes:
    """The channel of each record by its key; a key is hashed once, as long as it is remembered."""

    def __init__(self, key: ColumnKey, route: Callable[[Any], int]) -> None:
        self._key = key
        self._route = route

    def channels_of(self, columns: pa.RecordBatch) -> Any:
        """A numpy array of channels."""
        codes, keys = distinct_keys(self._key.columns_in(columns))
        return np.fromiter(map(self._route, keys), np.int32, len(keys))[codes]
