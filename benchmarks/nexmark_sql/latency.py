"""The connector `nexmark-latency`: keeps no row, but how long ago its event was due.

Its options are those of the same connector in `flink/LatencyTable.java`: the position of the column with the event's
time, and the time of the first event. At a steady rate the events' own times pass as fast as the clock. Rows of the
first second do not count, nor do rows that are removed.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.nexmark_sql.queries import NexmarkQuery
from penstock.base.config_options import ConfigOptions
from penstock.base.types import RowKind
from penstock.codecs.column_data import ColumnData
from penstock.runtime.connector import Sink, SinkWriter, SinkWriterContext
from penstock.sql.connectors.nexmark import FIRST_EVENT_MS
from penstock.sql.data.arrow import columns_of_changes
from penstock.sql.data.types import DataType
from penstock.sql.logical.nodes import ALL, Write
from penstock.sql.tables.connector import TableConnector, TableOptions
from penstock.sql.tables.tables import TableWriter

#: the position of the time of the event that makes a row; other queries wait for a window's end, or have no such column
COLUMNS: Final = {"q0": 3, "q1": 3, "q9": 13, "q14": 4, "q18": 5, "q20": 5}
WARM_UP_MS: Final = 1_000
_COLUMN: Final = ConfigOptions.key("column").int_type().no_default_value().with_description("The column of the time.")
_FIRST: Final = ConfigOptions.key("first").int_type().no_default_value().with_description("The first event's time.")
_REMOVED: Final = [RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value]


class Latencies:
    """Latencies of one job in this process: its source says when it begins, and its sink adds rows."""

    def __init__(self) -> None:
        self._begun_ms = 0
        self._parts: list[Any] = []

    def begin(self, now_ms: int) -> None:
        """Start anew: the first event is due now."""
        self._begun_ms = now_ms
        self._parts = []

    def add(self, due_ms: Any, now_ms: int) -> None:
        """Add rows that come out now. `due_ms`: how long after the first event theirs were due, an array."""
        self._parts.append(now_ms - self._begun_ms - due_ms[due_ms >= WARM_UP_MS])

    def percentiles(self) -> tuple[int, int] | None:
        """Return the median and the 99th percentile in ms; None without a row."""
        ordered = np.sort(np.concatenate(self._parts)) if self._parts else np.array([])
        if not len(ordered):
            return None
        last = len(ordered) - 1
        return int(ordered[last // 2]), int(ordered[int(last * 0.99)])


#: of the job that runs in this process
LATENCIES: Final = Latencies()


def with_latency_sink(query: NexmarkQuery) -> NexmarkQuery:
    """Return the query with a sink of this connector, if its rows tell their event."""
    if query.name not in COLUMNS:
        return query
    column = COLUMNS[query.name]
    options = f"WITH ('connector' = 'nexmark-latency', 'column' = '{column}', 'first' = '{FIRST_EVENT_MS}')"
    return replace(query, sink=re.sub(r"WITH\s*\(.*\)", options, query.sink, flags=re.S))


class LatencyConnector(TableConnector):
    """See the module's text."""

    name = "nexmark-latency"
    required_options = (_COLUMN, _FIRST)

    def writer(self, write: Write, options: TableOptions) -> TableWriter:
        """Takes what `blackhole` takes."""
        names, types = list(write.schema.names), list(write.schema.types)
        sink = _LatencySink(options.required(_COLUMN), options.required(_FIRST), names, types)
        return TableWriter(sink, ALL, wants_before=False, takes_columns=True, follows_query=True)


class _LatencySink(Sink[Any]):
    def __init__(self, column: int, first_ms: int, names: list[str], types: list[DataType]) -> None:
        self._arguments = column, first_ms, names, types

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        return _LatencyWriter(context, *self._arguments)


class _LatencyWriter(SinkWriter[Any, Any]):
    def __init__(
        self, context: SinkWriterContext, column: int, first_ms: int, names: list[str], types: list[DataType]
    ) -> None:
        self._context = context
        self._column = column
        self._first_ms = first_ms
        self._names = names
        self._types = types

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        if values:
            columns, kinds = columns_of_changes(values, self._names, self._types)
            self._add(ColumnData(columns), kinds)

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        self._add(data, bytes(len(data)))

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        self._add(data, kinds)

    def _add(self, data: ColumnData, kinds: bytes) -> None:
        _ = data.columns  # as `blackhole` does: they are made, as for any sink
        times = data.column(self._column).cast(pa.timestamp("ms")).cast(pa.int64()).to_numpy(zero_copy_only=False)
        stays = np.isin(np.frombuffer(kinds, np.uint8), _REMOVED, invert=True)
        LATENCIES.add(times[stays] - self._first_ms, self._context.now_ms())
