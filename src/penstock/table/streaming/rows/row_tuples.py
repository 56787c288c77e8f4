"""Converts the rows of a batch to tuples of internal values (`penstock.table.data.values`), and back.

A batch of rows without columns has one column that is never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import to_column, to_values
from penstock.table.plan.changes import DELETE, UPDATE_BEFORE


def to_tuples(records: ColumnBatch, types: Sequence[DataType]) -> list[tuple[Any, ...]]:
    """Return the rows of a batch."""
    columns = [to_values(column, kind) for column, kind in zip(records.columns.columns, types, strict=False)]
    return list(zip(*columns, strict=True)) if columns else [()] * len(records)


def build_batch(
    rows: Sequence[tuple[Any, ...]],
    types: Sequence[DataType],
    names: list[str],
    rowtimes: Any = None,
    kinds: Sequence[int] = (),
) -> ColumnBatch:
    """Build a batch from at least one row."""
    # zip(*rows) would create an iterator for each row, and Python would look for cycles among them.
    arrays = [to_column(list(map(itemgetter(index), rows)), kind) for index, kind in enumerate(types)]
    columns = pa.RecordBatch.from_arrays(arrays or [pa.nulls(len(rows))], names or ["c0"])
    return ColumnBatch(columns, rowtimes, pack_kinds(kinds))


def pack_kinds(kinds: Sequence[int]) -> bytes | None:
    """Return the kinds of the rows of a batch; None if all are inserts."""
    return bytes(kinds) if any(kinds) else None


def without_update_before(batch: ColumnBatch) -> ColumnBatch:
    """Return a batch for a consumer by key, with the previous rows of updates (-U) as deletions (-D).

    A step that need not send -U still does if the new row may be missing. So a -U can be the last change of a key, and
    dropping it would leave the row at the consumer.
    """
    if batch.kinds is None or UPDATE_BEFORE not in batch.kinds:
        return batch
    kinds = batch.kinds.replace(bytes([UPDATE_BEFORE]), bytes([DELETE]))
    return ColumnBatch(batch.columns, batch.rowtimes, kinds)
