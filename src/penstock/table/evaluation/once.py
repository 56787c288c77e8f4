"""Repeated calls of user-defined functions, evaluated once per row.

`x BETWEEN a AND b` uses `x` twice, and CASE its operand at each WHEN. A function that is not deterministic would return
a different result each time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from penstock.table.data.values import Datum, to_full_array
from penstock.table.evaluation.columns import Columns


class Once:
    """Caches the values of the rows of one batch. `run` computes the values of any rows."""

    def __init__(self, run: Callable[[Columns], Datum]) -> None:
        self._run = run
        self._origin: Columns | None = None

    def __call__(self, columns: Columns) -> Datum:
        """Return the values of these rows, computing only the unknown ones."""
        origin = columns.origin
        if self._origin is not origin:
            self._origin = origin
            self._places = np.full(origin.rows, -1, np.int64)
            self._known: list[pa.Array] = []
            self._count = 0
        row_numbers = np.arange(origin.rows) if columns.numbers is None else columns.numbers
        missing = row_numbers[self._places[row_numbers] < 0]
        if len(missing) or not self._known:
            rows = origin if len(missing) == origin.rows else origin.take(pa.array(missing, pa.int64()))
            self._known.append(to_full_array(self._run(rows), len(missing)))
            self._places[missing] = np.arange(self._count, self._count + len(missing))
            self._count += len(missing)
        if len(self._known) > 1:
            self._known = [pa.concat_arrays(self._known)]
        (known,) = self._known
        return known.take(pa.array(self._places[row_numbers], pa.int64()))
