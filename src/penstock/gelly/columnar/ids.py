"""Columns of vertex ids: Arrow arrays of whole numbers or texts, or lists of anything else that can be a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.gelly.base.owners import Owners, owners_of

#: An Arrow array, or a list.
Ids = Any


def ids_of(values: Sequence[Any]) -> Ids:
    """A column of ids: an Arrow array if all are whole numbers of 64 bits, or all are texts."""
    kinds = set(map(type, values))
    if kinds == {int}:
        try:
            return pa.array(values, pa.int64())
        except (OverflowError, pa.ArrowInvalid):
            return list(values)
    return pa.array(values, pa.string()) if kinds == {str} else list(values)


def ids_of_column(column: Any) -> Ids:
    """The same of an Arrow array."""
    if pa.types.is_integer(column.type) and column.type != pa.uint64() and not column.null_count:
        return column.cast(pa.int64())
    if column.type == pa.string() and not column.null_count:
        return column
    return ids_of(column.to_pylist())


def joined(parts: Sequence[Ids]) -> Ids:
    """One column of several."""
    types = {part.type if isinstance(part, pa.Array) else None for part in parts if len(part)}
    if not types:
        return pa.array([], pa.int64())
    if len(types) == 1 and None not in types:
        return pa.concat_arrays([part for part in parts if len(part)])
    return [one for part in parts for one in listed(part)]


def listed(ids: Ids) -> list[Any]:
    """The ids as a list."""
    values: list[Any] = ids.to_pylist() if isinstance(ids, pa.Array) else ids
    return values


def encoded(ids: Ids) -> tuple[Ids, Any]:
    """The different ids, and for each id the number of its place among these."""
    if isinstance(ids, pa.Array):
        found = ids.dictionary_encode()
        return found.dictionary, found.indices.to_numpy(zero_copy_only=False)
    numbers: dict[Any, int] = {}
    codes = [numbers.setdefault(one, len(numbers)) for one in ids]
    return list(numbers), np.array(codes, np.int32)


def places_in(known: Ids, wanted: Ids) -> Any:
    """For each wanted id the number of its place among the known, which are different; -1 if it is not there."""
    if isinstance(known, pa.Array) and isinstance(wanted, pa.Array) and known.type == wanted.type:
        found = pc.index_in(wanted, value_set=known)
        return pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    index = {one: number for number, one in enumerate(listed(known))}
    return np.array([index.get(one, -1) for one in listed(wanted)], np.int64)


def taken(ids: Ids, places: Any) -> Ids:
    """The ids at these places."""
    if isinstance(ids, pa.Array):
        return ids.take(pa.array(places))
    return [ids[place] for place in places]


def owners_in(ids: Ids, partitions: int) -> Any:
    """The partition of each id."""
    if isinstance(ids, pa.Array) and pa.types.is_integer(ids.type):
        return owners_of(ids.to_numpy(zero_copy_only=False), partitions)
    owners = Owners(partitions)
    return np.array([owners[one] for one in listed(ids)], np.uint16)


def sorted_by(numbers: Any) -> Any:
    """A stable order of numbers from 0 to 2**32 - 1, by radix: numpy sorts 16 bits so."""
    order = np.argsort((numbers & 0xFFFF).astype(np.uint16), kind="stable")
    if len(numbers) and int(numbers.max()) > 0xFFFF:
        high = (numbers >> 16).astype(np.uint16)[order]
        order = order[np.argsort(high, kind="stable")]
    return order
