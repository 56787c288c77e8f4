"""The keys of rows, for partitioning and keyed state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.core.columns.keys import ColumnKey
from penstock.state.key_columns import distinct_keys
from penstock.state.keys import KeyGuard

#: The key of all rows without key columns.
ONLY_KEY: Final = 0


class RowKeys:
    """Extracts row keys from the columns at these indexes. Equal values are one key (`penstock.state.equality`)."""

    def __init__(self, indices: Sequence[int]) -> None:
        self.places = tuple(indices)
        self._guard = KeyGuard()

    def numbered(self, columns: pa.RecordBatch) -> tuple[Any, list[Any]]:
        """Return each row's index into the distinct keys, as a NumPy array, and these keys."""
        if not self.places:
            return np.zeros(columns.num_rows, np.int64), [ONLY_KEY]
        key = ColumnKey(tuple(columns.schema.names[index] for index in self.places))
        codes, keys = distinct_keys(key.select_columns(columns))
        return codes, self._guard.admit(keys)

    def of(self, columns: pa.RecordBatch) -> list[Any]:
        """Return the key of each row."""
        if not self.places:
            return [ONLY_KEY] * columns.num_rows
        codes, keys = self.numbered(columns)
        return [keys[code] for code in codes.tolist()]
