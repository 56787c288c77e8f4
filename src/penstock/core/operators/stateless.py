"""Operators without state: map, filter, flat map, and assigning timestamps and watermarks."""

from __future__ import annotations

from itertools import compress, repeat
from typing import Any

from penstock.common.types import Row
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.core.operators.base import FunctionOperator, StreamOperator, UserCodeError, call_all
from penstock.core.operators.emitting import split_side_outputs
from penstock.core.records import MAX_WATERMARK, Batch
from penstock.core.task.watermarks import AssignerError, WatermarkGenerator


def method(function: Any, name: str) -> Any:
    """`function.name`, or the function itself when it is a plain callable."""
    return getattr(function, name, function)


class PassOnOperator(StreamOperator):
    """Records as they come: a place in the plan."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Pass them on."""
        self.output.collect(batch)


class MapOperator(FunctionOperator):
    """One record in, one record out."""

    def open(self) -> None:
        """Open the function."""
        super().open()
        self._map = method(self.function, "map")

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Map every record."""
        results: list[Any] = []
        try:
            call_all(self._map, batch.values, results)
        except Exception as error:
            raise self.failed(batch.values[len(results)]) from error
        self.output.collect(Batch(results, batch.timestamps))


class FilterOperator(FunctionOperator):
    """Keeps the records for which the function is true."""

    def open(self) -> None:
        """Open the function."""
        super().open()
        self._keep = method(self.function, "filter")

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Test every record."""
        keep: list[Any] = []
        try:
            call_all(self._keep, batch.values, keep)
        except Exception as error:
            raise self.failed(batch.values[len(keep)]) from error
        values = list(compress(batch.values, keep))
        if values:
            times = batch.timestamps
            self.output.collect(Batch(values, None if times is None else list(compress(times, keep))))


class FlatMapOperator(FunctionOperator):
    """One record in, any number out."""

    def open(self) -> None:
        """Open the function."""
        super().open()
        self._flat_map = method(self.function, "flat_map")

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Expand every record; each result has its record's timestamp."""
        results: list[Any] = []
        times: list[int] = []
        flat_map, timestamps = self._flat_map, batch.timestamps
        for index, value in enumerate(batch.values):
            size = len(results)
            try:
                expanded = flat_map(value)
                if expanded is not None:
                    results.extend(expanded)
            except Exception as error:
                raise self.failed(value) from error
            if timestamps is not None:
                times.extend(repeat(timestamps[index], len(results) - size))
        out = split_side_outputs(self.output, results, None if timestamps is None else times)
        if len(out):
            self.output.collect(out)


class TimestampsAndWatermarksOperator(StreamOperator):
    """Assigns timestamps and makes watermarks in the middle of a stream; watermarks from upstream end here (C2)."""

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self._generator = WatermarkGenerator(strategy)

    def open(self) -> None:
        """A stream without any record becomes idle too, counted from now."""
        if self._generator.tracks_idleness:
            self._generator.saw_records(self.context.now_ms())

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Assign, emit, and advance."""
        generator = self._generator
        if generator.tracks_idleness and generator.saw_records(self.context.now_ms()):
            self.output.emit_status(False)
        try:
            batch = generator.assign(batch)
        except AssignerError as error:
            what = "the timestamp assigner"
            raise UserCodeError(self.context.operator_name, error.record, what) from error.__cause__
        self.output.collect(batch)
        watermark = generator.advance(batch)
        if watermark is not None:
            self.output.emit_watermark(watermark)

    def process_watermark(self, timestamp: int) -> None:
        """Only the end of time passes."""
        if timestamp == MAX_WATERMARK:
            if self._generator.idle:
                self.output.emit_status(False)
            self.output.emit_watermark(timestamp)

    def process_status(self, idle: bool) -> None:
        """Idleness is decided here, not upstream."""

    def next_timer_ms(self) -> int | None:
        """When the stream becomes idle."""
        return self._generator.idle_deadline_ms()

    def on_processing_time(self, now_ms: int) -> None:
        """Become idle when nothing has come for long enough."""
        if self._generator.check_idle(now_ms):
            self.output.emit_status(True)


class Projection:
    """The function of a map that keeps some fields: of tuples and lists a tuple, of rows a row with their names."""

    def __init__(self, indexes: tuple[int, ...]) -> None:
        self._indexes = indexes

    def __call__(self, record: Any) -> Any:
        """The record with these fields only, in this order."""
        chosen = [record[index] for index in self._indexes]
        if not isinstance(record, Row):
            return tuple(chosen)
        row = Row(*chosen)
        names = record._fields
        if names is not None:
            row.set_field_names([names[index] for index in self._indexes])
        row.set_row_kind(record.get_row_kind())
        return row
