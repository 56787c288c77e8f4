"""Columns of vertex ids: Arrow arrays of integers or text, or lists of any other keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.gelly.base.owners import Owners, assign_integer_owners

#: An Arrow array, or a list.
Ids = Any


def to_id_column(values: Sequence[Any]) -> Ids:
    """Return a column of ids: an Arrow array if all are 64-bit integers, or all are text."""
    kinds = set(map(type, values))
    if kinds == {int}:
        try:
            return pa.array(values, pa.int64())
        except (OverflowError, pa.ArrowInvalid):
            return list(values)
    return pa.array(values, pa.string()) if kinds == {str} else list(values)


def ids_of_column(column: Any) -> Ids:
    """Return the same for an Arrow array."""
    if pa.types.is_integer(column.type) and column.type != pa.uint64() and not column.null_count:
        return column.cast(pa.int64())
    if column.type == pa.string() and not column.null_count:
        return column
    return to_id_column(column.to_pylist())


def joined(parts: Sequence[Ids]) -> Ids:
    """Join several columns into one."""
    types = {part.type if isinstance(part, pa.Array) else None for part in parts if len(part)}
    if not types:
        return pa.array([], pa.int64())
    if len(types) == 1 and None not in types:
        return pa.concat_arrays([part for part in parts if len(part)])
    return [vertex_id for part in parts for vertex_id in listed(part)]


def listed(ids: Ids) -> list[Any]:
    """Return the ids as a list."""
    values: list[Any] = ids.to_pylist() if isinstance(ids, pa.Array) else ids
    return values


def encoded(ids: Ids) -> tuple[Ids, Any]:
    """Return the distinct ids, and the index of each id among them."""
    if isinstance(ids, pa.Array):
        array = ids.dictionary_encode()
        return array.dictionary, array.indices.to_numpy(zero_copy_only=False)
    numbers: dict[Any, int] = {}
    codes = [numbers.setdefault(vertex_id, len(numbers)) for vertex_id in ids]
    return list(numbers), np.array(codes, np.int32)


def find_positions(known: Ids, ids: Ids) -> Any:
    """Return the index of each wanted id among the known ids, which are distinct; -1 if it is missing."""
    if isinstance(known, pa.Array) and isinstance(ids, pa.Array) and known.type == ids.type:
        indexes = pc.index_in(ids, value_set=known)
        return pc.fill_null(indexes, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    index = {vertex_id: number for number, vertex_id in enumerate(listed(known))}
    return np.array([index.get(vertex_id, -1) for vertex_id in listed(ids)], np.int64)


def taken(ids: Ids, positions: Any) -> Ids:
    """Return the ids at these indices."""
    if isinstance(ids, pa.Array):
        return ids.take(pa.array(positions))
    return [ids[position] for position in positions]


def assign_owners(ids: Ids, partitions: int) -> Any:
    """Return the partition of each id."""
    if isinstance(ids, pa.Array) and pa.types.is_integer(ids.type):
        return assign_integer_owners(ids.to_numpy(zero_copy_only=False), partitions)
    owners = Owners(partitions)
    return np.array([owners[vertex_id] for vertex_id in listed(ids)], np.uint16)


def radix_argsort(numbers: Any) -> Any:
    """Return a stable sort order of numbers from 0 to 2**32 - 1, by radix sort, which numpy uses for 16 bits."""
    order = np.argsort((numbers & 0xFFFF).astype(np.uint16), kind="stable")
    if len(numbers) and int(numbers.max()) > 0xFFFF:
        high = (numbers >> 16).astype(np.uint16)[order]
        order = order[np.argsort(high, kind="stable")]
    return order
