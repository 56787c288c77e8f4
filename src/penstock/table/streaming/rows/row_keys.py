"""The keys of rows: what they are partitioned by, and what state is kept by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.core.columns.keys import ColumnKey
from penstock.state.key_columns import distinct_keys
from penstock.state.keys import KeyGuard

#: The key of all rows where there are no columns to tell them apart by.
ONLY_KEY: Final = 0


class RowKeys:
    """Finds the keys of rows by the columns at these places. Equal values are one key (`penstock.state.equality`)."""

    def __init__(self, places: Sequence[int]) -> None:
        self.places = tuple(places)
        self._guard = KeyGuard()

    def numbered(self, columns: pa.RecordBatch) -> tuple[Any, list[Any]]:
        """The number of each row's key, as a numpy array, and the keys."""
        if not self.places:
            return np.zeros(columns.num_rows, np.int64), [ONLY_KEY]
        key = ColumnKey(tuple(columns.schema.names[place] for place in self.places))
        codes, keys = distinct_keys(key.columns_in(columns))
        return codes, self._guard.admit(keys)

    def of(self, columns: pa.RecordBatch) -> list[Any]:
        """The key of each row."""
        if not self.places:
            return [ONLY_KEY] * columns.num_rows
        codes, keys = self.numbered(columns)
        return [keys[code] for code in codes.tolist()]
