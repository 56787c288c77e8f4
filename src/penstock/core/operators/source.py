"""The head of a source task: polls a reader, assigns timestamps, follows the watermark."""

from __future__ import annotations

import enum
import pickle
from typing import Any

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.core.connector import InputStatus, Source, SourceReader
from penstock.core.operators.base import OperatorContext, StreamOperator, UserCodeError
from penstock.core.records import Batch
from penstock.core.task.watermarks import AssignerError, WatermarkGenerator
from penstock.state.snapshot import StateCapture

SPLITS_STATE = "_penstock_splits"


class Emitted(enum.Enum):
    """What a source did when it was asked to emit."""

    RECORDS = "RECORDS"
    NOTHING = "NOTHING"
    END = "END"


class _ReaderContext:
    """A reader's view of its task."""

    def __init__(self, operator: SourceOperator, context: OperatorContext) -> None:
        self._operator = operator
        self._context = context
        self.subtask_index = context.subtask_index
        self.parallelism = context.parallelism

    def now_ms(self) -> int:
        return self._context.now_ms()

    def request_split(self) -> None:
        self._context.request_split()

    def count(self, name: str, increment: int = 1) -> None:
        self._context.count(name, increment)

    def collect_side(self, tag_id: str, batch: Batch) -> None:
        self._operator.output.collect_side(tag_id, batch)


class SourceOperator(StreamOperator):
    """Runs a `SourceReader`; its state is the reader's splits with their positions (G8)."""

    def __init__(self, source: Source[Any, Any], strategy: WatermarkStrategy) -> None:
        self.source = source
        self.watermarks = WatermarkGenerator(strategy)
        self.records_out = 0
        self.emitted_watermark: int | None = None
        self._reader: SourceReader[Any, Any] | None = None
        self._retry_at_ms: int | None = None

    def initialize_state(self) -> None:
        """Make the reader and give it its restored splits."""
        self._splits = self.context.operator_state.list_state(SPLITS_STATE)
        self._reader = self.source.create_reader(_ReaderContext(self, self.context))
        restored = self._splits.get()
        if restored:
            self._reader.add_splits(restored)

    def open(self) -> None:
        """Start the reader."""
        self.reader.start()

    @property
    def reader(self) -> SourceReader[Any, Any]:
        """The reader; there is one from `initialize_state` on."""
        if self._reader is None:
            raise RuntimeError("the source operator was used before initialize_state()")
        return self._reader

    def add_splits(self, splits: tuple[bytes, ...], no_more: bool) -> None:
        """The enumerator's answer to a request."""
        if splits:
            self.reader.add_splits([pickle.loads(split) for split in splits])
        if no_more:
            self.reader.no_more_splits()
        self._retry_at_ms = None

    def emit_next(self, records_max: int) -> Emitted:
        """Poll the reader once and emit what it gave."""
        if self._retry_at_ms is not None and self.context.now_ms() < self._retry_at_ms:
            return Emitted.NOTHING
        result = self.reader.poll_next(records_max)
        if result is InputStatus.NOTHING_AVAILABLE:
            self._note_silence()
            return Emitted.NOTHING
        if result is InputStatus.END_OF_INPUT:
            return Emitted.END
        assert isinstance(result, Batch)
        self._retry_at_ms = None
        if len(result):
            self.emit(result)
        return Emitted.RECORDS

    def emit(self, polled: Batch) -> None:
        """Emit records with their timestamps, then the watermark that follows."""
        watermarks = self.watermarks
        if watermarks.tracks_idleness and watermarks.saw_records(self.context.now_ms()):
            self.output.emit_status(False)
        try:
            batch = watermarks.assign(polled)
        except AssignerError as error:
            what = "the timestamp assigner"
            raise UserCodeError(self.context.operator_name, error.record, what) from error.__cause__
        self.records_out += len(batch)
        self.output.collect(batch)
        watermark = watermarks.advance(batch)
        if watermark is not None:
            self.emitted_watermark = watermark
            self.output.emit_watermark(watermark)

    def _note_silence(self) -> None:
        now = self.context.now_ms()
        if self.watermarks.tracks_idleness and self.watermarks.check_idle(now):
            self.output.emit_status(True)
        self._retry_at_ms = now + max(1, self.reader.retry_after_ms())

    def next_timer_ms(self) -> int | None:
        """When to poll again after the reader had nothing."""
        return self._retry_at_ms

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """The reader's splits."""
        self._splits.update(self.reader.snapshot_state(checkpoint_id))
        return super().snapshot_state(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Tell the reader."""
        self.reader.notify_checkpoint_complete(checkpoint_id)

    def close(self) -> None:
        """Close the reader, when there is one."""
        if self._reader is not None:
            self._reader.close()
