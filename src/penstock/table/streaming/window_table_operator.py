"""TUMBLE, HOP and CUMULATE: each row once for each window that its time is in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import StreamOperator
from penstock.core.records import Batch
from penstock.table.data.logical_types import DataType, LocalZonedTimestampType
from penstock.table.data.zones import to_local, to_moments
from penstock.table.functions.window_assignment import ASSIGN
from penstock.table.streaming.sessions import StreamSession
from penstock.table.streaming.watermark_operator import milliseconds

_CLOCK: Final = pa.timestamp("ms")
_MOMENT: Final = pa.timestamp("ms", "UTC")
_MILLISECOND_NS: Final = 1_000_000


class WindowTableOperator(StreamOperator):
    """Adds the start, the end and the time of the window, which is 1 ms before its end.

    A time attribute that is a moment is seen in the session's time zone: windows begin there at full hours and days.

    Args:
        kind: TUMBLE, HOP or CUMULATE.
        time: the place of the time attribute, of `time_type`.
        sizes: in ms: of TUMBLE the size, of HOP slide and size, of CUMULATE step and size.
        offset: by which windows begin later, in ms.
        names: of the columns that it gives.
    """

    def __init__(
        self,
        kind: str,
        time: int,
        time_type: DataType,
        sizes: Sequence[int],
        offset: int,
        names: Sequence[str],
        session: StreamSession,
    ) -> None:
        self._assign = ASSIGN[kind]
        self._time = time
        self._is_moment = isinstance(time_type, LocalZonedTimestampType)
        self._sizes = tuple(sizes)
        self._offset = offset
        self._names = list(names)
        self._session = session

    def open(self) -> None:
        """Find the time zone."""
        self._zone = self._session.open(lambda: self.context.now_ms() * _MILLISECOND_NS).zone

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Give each row with its windows."""
        taken = as_columns(batch, self.context.operator_name)
        times = taken.columns.column(self._time)
        if times.null_count:
            # A row without a time is in no window.
            taken = taken.take(np.flatnonzero(times.is_valid().to_numpy(zero_copy_only=False)))
            times = taken.columns.column(self._time)
        clock = to_local(times, self._zone) if self._is_moment else times
        rows, starts, ends = self._assign(milliseconds(clock), self._sizes, self._offset)
        if rows is not None:
            taken = taken.take(rows)
        if not len(taken):
            return
        last = pa.array(ends - 1).view(_CLOCK)
        edges = [pa.array(starts).view(_CLOCK), pa.array(ends).view(_CLOCK)]
        time = to_moments(last, self._zone).cast(_MOMENT) if self._is_moment else last
        columns = pa.RecordBatch.from_arrays([*taken.columns.columns, *edges, time], self._names)
        self.output.collect(ColumnBatch(columns, taken.rowtimes, taken.kinds))
