"""Mini-batches: rows are buffered, so that their combined changes are emitted once (`table.exec.mini-batch.*`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.runtime.columns.batch import ColumnBatch, as_columns
from penstock.runtime.records import MAX_WATERMARK, Batch
from penstock.sql.stream.rows.state_ttl import ExpiringOperator


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """The maximum time (ms) that rows are buffered, and the number of rows that make a full bundle."""

    latency_ms: int
    size: int


class Bundle:
    """Buffered rows, in arrival order. All must be taken out before a snapshot."""

    def __init__(self, limits: MiniBatch) -> None:
        self._limits = limits
        self._waiting: list[ColumnBatch] = []
        self._rows = 0
        #: when the buffered rows are due; None without rows
        self.due_ms: int | None = None

    def add(self, batch: ColumnBatch, now_ms: int) -> Iterator[ColumnBatch]:
        """Buffer rows. Yields each full bundle."""
        start = 0
        while len(batch) - start >= self._limits.size - self._rows:
            stop = start + self._limits.size - self._rows
            self._put(batch.slice(start, stop))
            yield from self.take()
            start = stop
        if start < len(batch):
            self._put(batch.slice(start, len(batch)) if start else batch)
            if self.due_ms is None:
                # At a multiple of the latency, as in Flink, so that all steps of a plan are due together.
                self.due_ms = now_ms - now_ms % self._limits.latency_ms + self._limits.latency_ms

    def _put(self, batch: ColumnBatch) -> None:
        self._waiting.append(batch)
        self._rows += len(batch)

    def take(self) -> Iterator[ColumnBatch]:
        """Yield the buffered rows as one batch, if there are any, and empty the buffer."""
        waiting, self._waiting, self._rows, self.due_ms = self._waiting, [], 0, None
        if len(waiting) == 1:
            yield waiting[0]
        elif waiting:
            kinds = None
            if any(batch.kinds is not None for batch in waiting):
                kinds = b"".join(bytes(len(batch)) if batch.kinds is None else batch.kinds for batch in waiting)
            (columns,) = pa.Table.from_batches([batch.columns for batch in waiting]).combine_chunks().to_batches()
            yield ColumnBatch(columns, None, kinds)


class BundlingOperator(ExpiringOperator):
    """An operator that processes rows as they arrive, or in bundles. Subclasses implement `process_rows`.

    Args:
        mini_batch: when bundles are due; None to process rows as they arrive.
    """

    def __init__(self, mini_batch: MiniBatch | None) -> None:
        self.mini_batch = mini_batch
        self._bundle = None if mini_batch is None else Bundle(mini_batch)
        self._watermark: int | None = None

    def process_rows(self, records: ColumnBatch) -> None:
        """Process rows and emit the resulting changes."""
        raise NotImplementedError

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Process rows, or buffer them."""
        records = as_columns(batch, self.context.operator_name)
        if self._bundle is None:
            self.process_rows(records)
            return
        for full in self._bundle.add(records, self.context.now_ms()):
            self.process_rows(full)
        self._pass_on_watermark()

    def _flush(self) -> None:
        """Process the buffered rows."""
        if self._bundle is not None:
            for waiting in self._bundle.take():
                self.process_rows(waiting)
            self._pass_on_watermark()

    def _pass_on_watermark(self) -> None:
        """Emit the pending watermark, unless it would overtake buffered rows."""
        watermark, self._watermark = self._watermark, None
        if watermark is not None:
            if self._bundle is not None and self._bundle.due_ms is not None and watermark < MAX_WATERMARK:
                self._watermark = watermark
            else:
                self.output.emit_watermark(watermark)

    def process_watermark(self, timestamp: int) -> None:
        """Emit the watermark after the buffered rows. The last watermark flushes them."""
        self._watermark = timestamp
        if timestamp == MAX_WATERMARK:
            self._flush()
        else:
            self._pass_on_watermark()

    def process_status(self, idle: bool) -> None:
        """Emit rows and watermark before becoming idle: a consumer ignores the watermark of an idle input."""
        if idle:
            self._flush()
        super().process_status(idle)

    def next_timer_ms(self) -> int | None:
        """Return when the buffered rows are due or state next expires."""
        due = (super().next_timer_ms(), None if self._bundle is None else self._bundle.due_ms)
        return min((time_ms for time_ms in due if time_ms is not None), default=None)

    def on_processing_time(self, now_ms: int) -> None:
        """Process the rows that are due, and drop expired state."""
        if self._bundle is not None and self._bundle.due_ms is not None and self._bundle.due_ms <= now_ms:
            self._flush()
        super().on_processing_time(now_ms)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """Process the buffered rows, which a snapshot does not contain."""
        self._flush()

    def finish(self) -> None:
        """Process the remaining rows."""
        self._flush()
