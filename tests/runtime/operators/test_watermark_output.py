"""C2: a generator in Flink's form emits watermarks to an output, and says whether its stream is idle."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.runtime.operators.test_source_watermarks import Rig, of

from penstock.base.watermark_strategy import WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.record.stateless import TimestampsAndWatermarksOperator
from penstock.runtime.records import MAX_WATERMARK, Watermark
from penstock.testing import OneInputOperatorHarness


class Silence(WatermarkGenerator):
    """A watermark after each record; idle when asked by the clock twice without a record."""

    def __init__(self) -> None:
        self._asked = 0

    def on_event(self, value: Any, timestamp_ms: int, output: WatermarkOutput) -> None:
        self._asked = 0
        if value != "quiet":
            output.emit_watermark(timestamp_ms)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        self._asked += 1
        if self._asked == 2:
            output.mark_idle()
        elif self._asked == 4:
            output.mark_active()


class Returns(WatermarkGenerator):
    """The form without an output."""

    def on_event(self, value: Any, timestamp_ms: int) -> int | None:  # type: ignore[override]
        return timestamp_ms - 1

    def on_periodic_emit(self) -> int | None:  # type: ignore[override]
        return None


class Mixed(Returns):
    def on_periodic_emit(self, output: WatermarkOutput) -> None:  # type: ignore[override]
        output.emit_watermark(Watermark(7))
        output.emit_watermark(50)
        output.emit_watermark(30)


def in_the_middle(generator: type[WatermarkGenerator]) -> OneInputOperatorHarness:
    """An operator in the middle of a stream, asked by the clock every 200 ms."""
    strategy = WatermarkStrategy.for_generator(generator)
    harness = OneInputOperatorHarness(partial(TimestampsAndWatermarksOperator, strategy))
    harness.open()
    return harness


def test_in_the_middle_of_a_stream() -> None:
    harness = in_the_middle(Silence)
    harness.process_batch(["a", "b"], [10, 20])
    assert harness.watermarks == [10, 20]
    harness.advance_processing_time(200)
    assert harness.idle_changes == []
    harness.advance_processing_time(200)
    assert harness.idle_changes == [True]
    harness.process_batch(["quiet"], [25])
    assert harness.idle_changes == [True], "as in Flink, a record alone does not make it active"
    harness.process_batch(["c"], [30])
    assert (harness.idle_changes, harness.watermarks) == ([True, False], [10, 20, 30])


def test_an_idle_stream_is_asked_and_may_become_active_by_the_clock() -> None:
    harness = in_the_middle(Silence)
    for _ in range(4):
        harness.advance_processing_time(200)
    assert harness.idle_changes == [True, False]


def test_the_end_of_time_comes_from_an_active_stream() -> None:
    harness = in_the_middle(Silence)
    harness.advance_processing_time(200)
    harness.advance_processing_time(200)
    harness.watermark(MAX_WATERMARK)
    assert (harness.idle_changes, harness.watermarks) == ([True, False], [MAX_WATERMARK])


def test_in_a_source_with_splits() -> None:
    rig = Rig(WatermarkStrategy.for_generator(Silence))
    rig.poll("+a", "+b", of("a", 10), of("b", 5))
    assert rig.harness.watermarks == [5]
    rig.wait(200)
    rig.poll(of("a", 20))
    rig.wait(200)
    assert rig.harness.watermarks == [5, 20], "b is idle, and a goes on"
    rig.wait(200)
    assert rig.harness.idle_changes == [True]
    rig.poll(of("b", 30))
    assert rig.harness.idle_changes == [True, False]
    assert rig.harness.watermarks == [5, 20, 30]


def test_forms_without_an_output_and_mixed_ones() -> None:
    returns, mixed = in_the_middle(Returns), in_the_middle(Mixed)
    for harness in (returns, mixed):
        harness.process_batch(["a"], [10])
        harness.advance_processing_time(200)
    assert returns.watermarks == [9]
    assert mixed.watermarks == [9, 50], "the highest of a call"


def test_a_watermark_that_is_no_time_is_an_error() -> None:
    class Wrong(Silence):
        def on_event(self, value: Any, timestamp_ms: int, output: WatermarkOutput) -> None:
            output.emit_watermark(1.5)

    with pytest.raises(UserCodeError, match="the watermark generator"):
        in_the_middle(Wrong).process_batch(["a"], [10])
