"""Changes of rows by key: the last change of each key, and the rows of a table that have one of the keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.types import RowKind

_PLACE: Final = "__penstock_place"


def is_gone(kinds: Any) -> Any:
    """Return which rows are deleted, given an array of their row kinds.

    The UPDATE_BEFORE of an update is the last change of its key if the UPDATE_AFTER has another key.
    """
    return (kinds == RowKind.DELETE.value) | (kinds == RowKind.UPDATE_BEFORE.value)


def last_of_each(changes: pa.Table, key: Sequence[str]) -> pa.Array:
    """Return the positions of the last row of each key, in ascending order."""
    numbered = changes.select(list(key)).append_column(_PLACE, pa.array(np.arange(changes.num_rows)))
    last = numbered.group_by(list(key)).aggregate([(_PLACE, "max")]).column(f"{_PLACE}_max")
    return pa.array(np.sort(last.to_numpy()))


def has_key(rows: pa.Table, keys: pa.Table) -> pa.Array:
    """Return for each row whether its key is among `keys`. Column types must match; NULL is a key like any other."""
    names = keys.schema.names
    if len(names) == 1:
        matches = pc.is_in(rows.column(names[0]), value_set=keys.column(0).combine_chunks(), skip_nulls=False)
        return matches.combine_chunks() if isinstance(matches, pa.ChunkedArray) else matches
    # Group both tables together, the keys first: a row matches if its group contains a key.
    both = pa.concat_tables([keys, rows.select(names)], promote_options="permissive")
    numbered = both.append_column(_PLACE, pa.array(np.arange(both.num_rows)))
    grouped = numbered.group_by(names).aggregate([(_PLACE, "min"), (_PLACE, "list")])
    is_key = grouped.column(f"{_PLACE}_min").to_numpy() < keys.num_rows
    positions = pc.list_flatten(grouped.filter(pa.array(is_key)).column(f"{_PLACE}_list")).to_numpy()
    mask = np.zeros(both.num_rows, np.bool_)
    mask[positions] = True
    return pa.array(mask[keys.num_rows :])
