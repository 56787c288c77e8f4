"""Reduces the buffered changes of a sink to the last one of each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.codecs.column_data import ColumnData
from penstock.state.equality import canonical_column
from penstock.state.key_columns import distinct_keys

#: Columns, and one byte per row for its kind; None if all rows are inserts.
Part = tuple[ColumnData, bytes | None]
_INSERT: Final = 0


def concatenate_kinds(parts: Sequence[Part]) -> Any:
    """Return the kinds of all rows as an array."""
    return np.concatenate(
        [
            np.full(len(data), _INSERT, np.uint8) if kinds is None else np.frombuffer(kinds, np.uint8)
            for data, kinds in parts
        ]
    )


def last_of_each(keys: Sequence[pa.Array]) -> Any:
    """Return the positions of the last row of each key, in ascending order."""
    codes, distinct = distinct_keys(list(map(canonical_column, keys)))
    last = np.zeros(len(distinct), np.int64)
    last[codes] = np.arange(len(codes))
    return np.sort(last)


def whole_column(column: pa.ChunkedArray) -> pa.Array:
    """Return the column as a single array."""
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined
