"""The time that assigns rows to windows: a column, or the clock time of their arrival."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch
from penstock.core.operators.context import OperatorContext
from penstock.table.analyser.window_properties import is_processing
from penstock.table.data.flat import milliseconds
from penstock.table.data.logical_types import LocalZonedTimestampType
from penstock.table.data.zones import to_local
from penstock.table.plan.logical import WindowTable
from penstock.table.streaming.rows.sessions import StreamSession

_MOMENT: Final = pa.timestamp("ms", "UTC")


@dataclass(frozen=True, slots=True)
class WindowTime:
    """A time attribute.

    Args:
        place: the index of the column.
        is_moment: whether it is an instant (TIMESTAMP_LTZ), which is converted to the session's time zone, where
            windows begin at full hours.
        is_processing: whether it is processing time, which is read from the clock when rows arrive, so the column
            is not read.
    """

    place: int
    is_moment: bool
    is_processing: bool = False

    @staticmethod
    def of(window: WindowTable) -> WindowTime:
        """Return the time that assigns rows to the windows of a window table."""
        is_moment = isinstance(window.input.schema[window.time].type, LocalZonedTimestampType)
        return WindowTime(window.time, is_moment, is_processing(window))

    def get_zone(self, session: StreamSession) -> tzinfo | None:
        """Return the time zone of the windows; None for times without one."""
        return session.zone if self.is_moment else None

    def clock(self, records: ColumnBatch, session: StreamSession, context: OperatorContext) -> tuple[ColumnBatch, Any]:
        """Return the rows of a batch that have a time, and their wall-clock times as a NumPy array of ms."""
        if self.is_processing:
            times = pa.array(np.full(len(records), context.now_ms(), np.int64)).view(_MOMENT)
        else:
            times = records.columns.column(self.place)
            if times.null_count:
                # A row without a time belongs to no window.
                records = records.take(np.flatnonzero(times.is_valid().to_numpy(zero_copy_only=False)))
                times = records.columns.column(self.place)
        return records, milliseconds(to_local(times, session.zone) if self.is_moment else times)
