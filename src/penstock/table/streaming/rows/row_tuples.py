"""Rows of a batch as tuples of held values (`penstock.table.data.values`), and back.

A batch of rows without columns has one that nobody asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import column_of, values_of


def tuples_of(taken: ColumnBatch, types: Sequence[DataType]) -> list[tuple[Any, ...]]:
    """The rows of a batch."""
    columns = [values_of(column, kind) for column, kind in zip(taken.columns.columns, types, strict=False)]
    return list(zip(*columns, strict=True)) if columns else [()] * len(taken)


def batch_of(
    rows: Sequence[tuple[Any, ...]],
    types: Sequence[DataType],
    names: list[str],
    rowtimes: Any = None,
    kinds: Sequence[int] = (),
) -> ColumnBatch:
    """A batch of at least one row."""
    # zip(*rows) would make an iterator for each row, and Python look for cycles among them.
    arrays = [column_of(list(map(itemgetter(place), rows)), kind) for place, kind in enumerate(types)]
    columns = pa.RecordBatch.from_arrays(arrays or [pa.nulls(len(rows))], names or ["c0"])
    return ColumnBatch(columns, rowtimes, kinds_of(kinds))


def kinds_of(kinds: Sequence[int]) -> bytes | None:
    """The kinds of the rows of a batch; None if all are inserts."""
    return bytes(kinds) if any(kinds) else None
