"""Event time of the splits of a table, computed where the table is read, separately for each split."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.base.errors import UnsupportedError
from penstock.base.watermark_strategy import BatchWatermarks, WatermarkStrategy
from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.watermarks import EVENT_TIME, AssignerError
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.evaluator import Evaluator
from penstock.table.streaming.rows.null_times import REJECTED_ROWS, NullTimeError, NullTimes, TimedRows
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.streaming.rows.watermark_operator import RowTimes
from penstock.table.typed.nodes import Typed


@dataclass(frozen=True)
class TableTime:
    """How to compute the event time of a table's rows.

    Args:
        time: the event time, an expression over the columns that are read.
        watermark: the watermark, an expression over these columns followed by the time.
        width: the number of columns that are read.
        session: the session of the reading operator.
        null_times: handles rows with a NULL event time.
        gap: the number of rows between watermarks; 0 for one watermark after each batch.
    """

    time: Typed
    watermark: Typed
    width: int
    session: StreamSession
    null_times: NullTimes
    gap: int = 0

    def strategy(self) -> WatermarkStrategy:
        """Return the watermark strategy for a source."""
        return WatermarkStrategy.for_batches(partial(SplitWatermarks, self))


class SplitWatermarks(BatchWatermarks):
    """Computes times and watermarks of one split."""

    def __init__(self, of_table: TableTime) -> None:
        session = of_table.session.open(_no_clock)
        self._evaluate = Evaluator([of_table.time], session)
        marks = Evaluator([of_table.watermark], session)
        self._row_times = RowTimes(of_table.width, of_table.watermark, marks, of_table.gap)
        self._null_times = of_table.null_times
        self.side_tag = REJECTED_ROWS if of_table.null_times.is_rejecting else None
        self._timed: TimedRows | None = None

    def assign(self, batch: Any) -> ColumnBatch:
        """See `BatchWatermarks`."""
        records = as_columns(batch, "a table")
        (times,) = self._evaluate(Columns.of(records.columns))
        try:
            self._timed = self._null_times.take_out(records, times)
        except NullTimeError as error:
            raise AssignerError(error.record, EVENT_TIME) from error
        return self._timed.batch

    def left_out(self) -> ColumnBatch | None:
        """See `BatchWatermarks`."""
        return None if self._timed is None else self._timed.rejected

    def follow(self, batch: Any) -> Iterable[tuple[ColumnBatch, int | None]]:
        """See `BatchWatermarks`. The batch must be the one whose times were computed last."""
        assert self._timed is not None
        return self._row_times.follow(batch, Columns([*batch.columns.columns, self._timed.times], len(batch)))


def _no_clock() -> int:
    raise UnsupportedError("a watermark that is worked out where a table is read cannot ask for the time")
