"""TUMBLE, HOP and CUMULATE: emits each row once for each window that contains its time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.operators.base import StreamOperator
from penstock.core.records import Batch
from penstock.table.data.zones import to_moments
from penstock.table.functions.window_assignment import ASSIGN
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.streaming.windows.window_times import WindowTime

_CLOCK: Final = pa.timestamp("ms")
_MOMENT: Final = pa.timestamp("ms", "UTC")


class WindowTableOperator(StreamOperator):
    """Adds the start, the end and the time of the window, which is 1 ms before its end.

    A time attribute that is an instant (TIMESTAMP_LTZ) is converted to the session's time zone, where windows begin at
    full hours and days.

    Args:
        kind: TUMBLE, HOP or CUMULATE.
        time: the time attribute.
        sizes: in ms: the size for TUMBLE, slide and size for HOP, step and size for CUMULATE.
        offset: the shift of the windows' starts, in ms.
        names: the names of the output columns.
    """

    def __init__(
        self,
        kind: str,
        time: WindowTime,
        sizes: Sequence[int],
        offset: int,
        names: Sequence[str],
        session: StreamSession,
    ) -> None:
        self._assign = ASSIGN[kind]
        self._time = time
        self._sizes = tuple(sizes)
        self._offset = offset
        self._names = list(names)
        self._session = session

    def open(self) -> None:
        """Look up the time zone."""
        self._zone = self._session.zone

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Emit each row with its windows."""
        records, clock = self._time.clock(as_columns(batch, self.context.operator_name), self._session, self.context)
        rows, starts, ends = self._assign(clock, self._sizes, self._offset)
        if rows is not None:
            records = records.take(rows)
        if not len(records):
            return
        last = pa.array(ends - 1).view(_CLOCK)
        edges = [pa.array(starts).view(_CLOCK), pa.array(ends).view(_CLOCK)]
        time = to_moments(last, self._zone).cast(_MOMENT) if self._time.is_moment else last
        columns = pa.RecordBatch.from_arrays([*records.columns.columns, *edges, time], self._names)
        self.output.collect(ColumnBatch(columns, records.rowtimes, records.kinds))
