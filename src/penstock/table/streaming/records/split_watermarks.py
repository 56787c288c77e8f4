"""Event time of the splits of a table: worked out where the table is read, of each split by itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.base.watermark_strategy import BatchWatermarks, WatermarkStrategy
from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.records import MIN_TIMESTAMP
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.evaluator import Evaluator
from penstock.table.plan.changes import DELETE
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.streaming.rows.watermark_operator import RowTimes, rowtimes_of
from penstock.table.typed.nodes import Typed


@dataclass(frozen=True)
class TableTime:
    """How rows of a table have event time.

    Args:
        time: over the columns that are read.
        watermark: over these columns, and the time behind them.
        width: how many columns are read.
        session: of the operator that reads.
        gap: after how many rows there is a watermark; 0 for one after each batch.
    """

    time: Typed
    watermark: Typed
    width: int
    session: StreamSession
    gap: int = 0

    def strategy(self) -> WatermarkStrategy:
        """The same for a source."""
        return WatermarkStrategy.for_batches(partial(SplitWatermarks, self))


class SplitWatermarks(BatchWatermarks):
    """Works out times and watermarks of one split."""

    def __init__(self, of_table: TableTime) -> None:
        session = of_table.session.open(_no_clock)
        self._evaluate = Evaluator([of_table.time], session)
        marks = Evaluator([of_table.watermark], session)
        self._row_times = RowTimes(of_table.width, of_table.watermark, marks, of_table.gap)
        self._times: pa.Array | None = None

    def assign(self, batch: Any) -> ColumnBatch:
        """See `BatchWatermarks`."""
        taken = as_columns(batch, "a table")
        (self._times,) = self._evaluate(Columns.of(taken.columns))
        return taken.with_rowtimes(rowtimes_of(_with_times_of_deletions(self._times, taken.kinds)))

    def follow(self, batch: Any) -> Iterable[tuple[ColumnBatch, int | None]]:
        """See `BatchWatermarks`: of the batch whose times were worked out last."""
        return self._row_times.follow(batch, Columns([*batch.columns.columns, self._times], len(batch)))


def _with_times_of_deletions(times: pa.Array, kinds: bytes | None) -> pa.Array:
    """Times where only those are NULL that must not be: a deletion by key alone has none, and moves no event time."""
    if kinds is None or not times.null_count:
        return times
    by_key = pc.and_(pc.equal(pa.array(np.frombuffer(kinds, np.uint8)), DELETE), times.is_null())
    return pc.if_else(by_key, pa.scalar(MIN_TIMESTAMP, pa.int64()).cast(times.type), times)


def _no_clock() -> int:
    raise UnsupportedError("a watermark that is worked out where a table is read cannot ask for the time")
