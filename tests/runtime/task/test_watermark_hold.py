"""Which input of a task holds its watermark back: the channels and splits that stand still while others go on (C2)."""

from __future__ import annotations

from functools import partial

from tests.runtime.task.fakes import Rig

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.runtime.operators.connector import SourceWatermarks
from penstock.runtime.operators.record.stateless import MapOperator, TimestampsAndWatermarksOperator
from penstock.runtime.protocol import InputWatermark, WatermarkHold
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP, Batch, Watermark, WatermarkStatus
from penstock.runtime.task.channels.input_gate import PARTS_MAX, SHOWN_MS, HoldTracker, hold_of_splits
from penstock.runtime.task.channels.result_partition import ForwardPartitioner


def same(value: int) -> int:
    return value


def rig(inputs: int = 2, second: int = 0) -> Rig:
    return Rig([partial(MapOperator, same)], inputs=inputs, broadcast_inputs=second, partitioner=ForwardPartitioner())


def held(found: Rig) -> WatermarkHold | None:
    figures = found.task.metrics().figures
    assert figures is not None
    return figures.hold


def test_the_channel_that_stands_still_is_named_with_its_time() -> None:
    task = rig(3)
    for channel in range(3):
        task.feed(channel, Watermark(10))
    assert held(task) is None, "all are as far"
    task.feed(0, Watermark(20))
    task.feed(1, Watermark(30))
    began_ms = task.clock.now_ms()
    assert held(task) is None, "channels are never as far for a moment"
    task.advance(SHOWN_MS)
    assert held(task) == WatermarkHold(
        10, began_ms, began_ms, (InputWatermark(0, 10, 30, is_idle=False, holds=True, parts=("2",), count=1),)
    )


def test_others_that_go_on_meanwhile_are_seen_to() -> None:
    task = rig()
    task.feed(0, Watermark(20))
    held(task)
    task.advance(SHOWN_MS)
    began_ms = task.clock.now_ms() - SHOWN_MS
    task.feed(0, Watermark(30))
    found = held(task)
    assert found is not None
    assert (found.watermark_ms, found.since_ms, found.moved_ms) == (MIN_TIMESTAMP, began_ms, task.clock.now_ms())


def test_any_progress_of_the_watermark_ends_it() -> None:
    task = rig()
    task.feed(0, Watermark(20))
    task.feed(1, Watermark(10))
    held(task)
    task.advance(SHOWN_MS)
    assert held(task) is not None
    task.feed(1, Watermark(11))
    assert held(task) is None
    task.advance(SHOWN_MS)
    assert held(task) is not None
    task.feed(1, Watermark(20))
    assert held(task) is None, "both are as far"


def test_an_idle_channel_and_one_that_has_ended_hold_nothing() -> None:
    task = rig(3)
    task.feed(0, Watermark(20))
    task.feed(1, WatermarkStatus(True))
    held(task)
    task.advance(SHOWN_MS)
    found = held(task)
    assert found is not None
    assert found.inputs[0].parts == ("2",)
    task.feed(2, Watermark(MAX_WATERMARK))
    held(task)
    task.advance(SHOWN_MS)
    assert held(task) is None


def test_inputs_are_told_apart() -> None:
    """Of an operator with two inputs, the one that lags is the one that holds."""
    task = rig(2, second=1)
    task.feed(0, Watermark(50))
    task.feed(1, Watermark(60))
    task.feed(2, Watermark(7))
    held(task)
    task.advance(SHOWN_MS)
    found = held(task)
    assert found is not None
    assert found.inputs == (
        InputWatermark(0, 50, 60, is_idle=False, holds=False),
        InputWatermark(1, 7, 7, is_idle=False, holds=True, parts=("0",), count=1),
    )
    task.feed(0, WatermarkStatus(True))
    task.feed(1, WatermarkStatus(True))
    held(task)
    task.advance(SHOWN_MS)
    assert held(task) is None, "an input that is idle is no reason to wait"


def test_a_task_says_whether_it_makes_watermarks() -> None:
    """Who waits for a source that has none waits for ever, and that is as it should be."""
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    passes, assigns = (
        rig(),
        Rig(
            [partial(MapOperator, same), partial(TimestampsAndWatermarksOperator, strategy)],
            partitioner=ForwardPartitioner(),
        ),
    )
    found = [one.task.metrics().figures for one in (passes, assigns)]
    assert [one and one.makes_watermarks for one in found] == [None, True]
    assert SourceWatermarks(strategy).makes_any
    assert SourceWatermarks(WatermarkStrategy.for_ingestion_time()).makes_any
    assert not SourceWatermarks(WatermarkStrategy.no_watermarks()).makes_any


def test_a_task_with_one_input_holds_itself_back_never() -> None:
    task = rig(1)
    task.feed(0, Batch([1]), Watermark(5))
    held(task)
    task.advance(SHOWN_MS)
    assert held(task) is None


def test_splits_of_a_source_hold_it_back_as_channels_do() -> None:
    watermarks = SourceWatermarks(WatermarkStrategy.for_monotonous_timestamps())
    tracker = HoldTracker()
    for number in range(PARTS_MAX + 2):
        watermarks.open_split(f"orders-{number}", 0)
    watermarks.of_split("orders-0").advance(Batch([1], [100]))
    watermarks.settle()
    assert hold_of_splits(tracker, watermarks, 1_000) is None
    found = hold_of_splits(tracker, watermarks, 1_000 + SHOWN_MS)
    assert found is not None
    (split,) = found.inputs
    assert split.edge is None
    assert (split.highest_ms, split.count) == (99, PARTS_MAX + 1)
    assert split.parts == tuple(f"orders-{number}" for number in range(1, PARTS_MAX + 1))
