"""The harness for operators with two inputs."""

from __future__ import annotations

from typing import Any

from penstock.core.records import MAX_WATERMARK, Batch
from penstock.core.task.watermark_valve import WatermarkValve
from penstock.testing.operator_harness import OneInputOperatorHarness


class TwoInputOperatorHarness(OneInputOperatorHarness):
    """A `OneInputOperatorHarness` with two inputs; event time is the minimum of both.

    `process` and `process_batch` feed the first input; `watermark` applies to both.
    """

    def open(self) -> None:
        """See the base class; each input starts without a watermark of its own."""
        super().open()
        self._valve = WatermarkValve(2, self._watermark)

    def process1(self, value: Any, timestamp: int | None = None) -> None:
        """Process one record of the first input."""
        self._process(0, value, timestamp)

    def process2(self, value: Any, timestamp: int | None = None) -> None:
        """Process one record of the second input."""
        self._process(1, value, timestamp)

    def _process(self, input_index: int, value: Any, timestamp: int | None) -> None:
        self.operator.process_batch(Batch([value], None if timestamp is None else [timestamp]), input_index)

    def watermark1(self, timestamp: int) -> None:
        """Advance the event time of the first input to `timestamp` (ms)."""
        self._on_watermark(0, timestamp)

    def watermark2(self, timestamp: int) -> None:
        """Advance the event time of the second input to `timestamp` (ms)."""
        self._on_watermark(1, timestamp)

    def watermark(self, timestamp: int) -> None:
        """Advance the event time of both inputs to `timestamp` (ms)."""
        self.watermark1(timestamp)
        self.watermark2(timestamp)

    def _on_watermark(self, input_index: int, timestamp: int) -> None:
        lowest = self._valve.on_watermark(input_index, timestamp).watermark
        if lowest is not None:
            self._advance(lowest)

    def end(self) -> None:
        """End both inputs: MAX_WATERMARK, end of each input, finish (F3)."""
        self.watermark(MAX_WATERMARK)
        self._drain()
        self.operator.end_input(0)
        self.operator.end_input(1)
        self.operator.quiesce_timers()
        self.operator.finish()
