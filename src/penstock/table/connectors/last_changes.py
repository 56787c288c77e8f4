"""Changes that a sink has gathered, of which it writes only the last one of each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.codecs.column_data import ColumnData
from penstock.state.equality import canonical_column
from penstock.state.key_columns import distinct_keys

#: Columns, and a byte for what each row does; None where all are inserts.
Part = tuple[ColumnData, bytes | None]
_INSERT: Final = 0


def kinds_of(parts: Sequence[Part]) -> Any:
    """What all rows do, as an array."""
    return np.concatenate(
        [
            np.full(len(data), _INSERT, np.uint8) if kinds is None else np.frombuffer(kinds, np.uint8)
            for data, kinds in parts
        ]
    )


def last_of_each(keys: Sequence[pa.Array]) -> Any:
    """The places of the last row of each key, going up."""
    codes, distinct = distinct_keys(list(map(canonical_column, keys)))
    last = np.zeros(len(distinct), np.int64)
    last[codes] = np.arange(len(codes))
    return np.sort(last)


def whole_column(column: pa.ChunkedArray) -> pa.Array:
    """The column in one piece."""
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found
