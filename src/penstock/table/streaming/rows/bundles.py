"""Mini-batches: rows that wait for others, so that what they change is sent once (`table.exec.mini-batch.*`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.records import MAX_WATERMARK, Batch
from penstock.table.streaming.rows.state_times import ExpiringOperator


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """How long (ms) rows wait for others at most, and how many make a bundle that does not wait."""

    latency_ms: int
    size: int


class Bundle:
    """Rows that wait, in the order in which they came. All have to be taken out ahead of a snapshot."""

    def __init__(self, limits: MiniBatch) -> None:
        self._limits = limits
        self._waiting: list[ColumnBatch] = []
        self._rows = 0
        #: when the rows that wait are due; None where none does
        self.due_ms: int | None = None

    def add(self, batch: ColumnBatch, now_ms: int) -> Iterator[ColumnBatch]:
        """Let rows wait; each bundle that is full comes out."""
        start = 0
        while len(batch) - start >= self._limits.size - self._rows:
            stop = start + self._limits.size - self._rows
            self._put(batch.slice(start, stop))
            yield from self.take()
            start = stop
        if start < len(batch):
            self._put(batch.slice(start, len(batch)) if start else batch)
            if self.due_ms is None:
                # At a multiple of the latency, as Flink does, so that the steps of a plan are due together.
                self.due_ms = now_ms - now_ms % self._limits.latency_ms + self._limits.latency_ms

    def _put(self, batch: ColumnBatch) -> None:
        self._waiting.append(batch)
        self._rows += len(batch)

    def take(self) -> Iterator[ColumnBatch]:
        """The rows that wait, as one batch; nothing where none does."""
        waiting, self._waiting, self._rows, self.due_ms = self._waiting, [], 0, None
        if len(waiting) == 1:
            yield waiting[0]
        elif waiting:
            kinds = None
            if any(one.kinds is not None for one in waiting):
                kinds = b"".join(bytes(len(one)) if one.kinds is None else one.kinds for one in waiting)
            (columns,) = pa.Table.from_batches([one.columns for one in waiting]).combine_chunks().to_batches()
            yield ColumnBatch(columns, None, kinds)


class BundlingOperator(ExpiringOperator):
    """An operator that takes rows in as they come, or in bundles. A subclass says how (`take_in`).

    Args:
        mini_batch: when bundles are due; None for rows as they come.
    """

    def __init__(self, mini_batch: MiniBatch | None) -> None:
        self.mini_batch = mini_batch
        self._bundle = None if mini_batch is None else Bundle(mini_batch)
        self._watermark: int | None = None

    def take_in(self, taken: ColumnBatch) -> None:
        """Take rows in, and send what has changed."""
        raise NotImplementedError

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Take rows in, or let them wait for others."""
        taken = as_columns(batch, self.context.operator_name)
        if self._bundle is None:
            self.take_in(taken)
            return
        for full in self._bundle.add(taken, self.context.now_ms()):
            self.take_in(full)
        self._pass_on_watermark()

    def _flush(self) -> None:
        """Take in the rows that wait."""
        if self._bundle is not None:
            for waiting in self._bundle.take():
                self.take_in(waiting)
            self._pass_on_watermark()

    def _pass_on_watermark(self) -> None:
        """Event time does not overtake rows that wait."""
        watermark, self._watermark = self._watermark, None
        if watermark is not None:
            if self._bundle is not None and self._bundle.due_ms is not None and watermark < MAX_WATERMARK:
                self._watermark = watermark
            else:
                self.output.emit_watermark(watermark)

    def process_watermark(self, timestamp: int) -> None:
        """Pass it on behind the rows that wait, at the end with these."""
        self._watermark = timestamp
        if timestamp == MAX_WATERMARK:
            self._flush()
        else:
            self._pass_on_watermark()

    def process_status(self, idle: bool) -> None:
        """An idle stream sends its rows and its watermark first: a consumer ignores the watermark of an idle input."""
        if idle:
            self._flush()
        super().process_status(idle)

    def next_timer_ms(self) -> int | None:
        """When rows that wait are due, or when state next expires."""
        due = (super().next_timer_ms(), None if self._bundle is None else self._bundle.due_ms)
        return min((one for one in due if one is not None), default=None)

    def on_processing_time(self, now_ms: int) -> None:
        """Take in rows that are due, and forget what has expired."""
        if self._bundle is not None and self._bundle.due_ms is not None and self._bundle.due_ms <= now_ms:
            self._flush()
        super().on_processing_time(now_ms)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """No row waits in a snapshot."""
        self._flush()

    def finish(self) -> None:
        """No row is left out."""
        self._flush()
