"""The harness for operators with two inputs."""

from __future__ import annotations

from typing import Any

from penstock.core.records import MAX_WATERMARK, Batch
from penstock.core.task.watermark_valve import WatermarkValve
from penstock.testing.operator_harness import OneInputOperatorHarness


class TwoInputOperatorHarness(OneInputOperatorHarness):
    """As `OneInputOperatorHarness`, with an input for either stream; event time is the lower one of both.

    What is not named for an input (`process`, `process_batch`) goes to the first; `watermark` is one of both.
    """

    def open(self) -> None:
        """See the base; each input begins without a watermark of its own."""
        super().open()
        self._valve = WatermarkValve(2, self._watermark)

    def process1(self, value: Any, timestamp: int | None = None) -> None:
        """One record of the first stream."""
        self._process(0, value, timestamp)

    def process2(self, value: Any, timestamp: int | None = None) -> None:
        """One record of the second stream."""
        self._process(1, value, timestamp)

    def _process(self, input_index: int, value: Any, timestamp: int | None) -> None:
        self.operator.process_batch(Batch([value], None if timestamp is None else [timestamp]), input_index)

    def watermark1(self, timestamp: int) -> None:
        """Event time of the first stream has come to `timestamp` (ms)."""
        self._on_watermark(0, timestamp)

    def watermark2(self, timestamp: int) -> None:
        """Event time of the second stream has come to `timestamp` (ms)."""
        self._on_watermark(1, timestamp)

    def watermark(self, timestamp: int) -> None:
        """Event time of both streams has come to `timestamp` (ms)."""
        self.watermark1(timestamp)
        self.watermark2(timestamp)

    def _on_watermark(self, input_index: int, timestamp: int) -> None:
        lowest = self._valve.on_watermark(input_index, timestamp).watermark
        if lowest is not None:
            self._advance(lowest)

    def end(self) -> None:
        """Both inputs were read: MAX_WATERMARK, end of each input, finish (F3)."""
        self.watermark(MAX_WATERMARK)
        self._drain()
        self.operator.end_input(0)
        self.operator.end_input(1)
        self.operator.quiesce_timers()
        self.operator.finish()
