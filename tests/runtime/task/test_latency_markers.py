"""Latency markers: where they come from, where they go, and what their ages become (A1)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.runtime.task.fakes import Rig

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collection import CollectionSource
from penstock.runtime.operators.connector import SourceOperator
from penstock.runtime.operators.record.stateless import MapOperator
from penstock.runtime.protocol import LatencySettings
from penstock.runtime.records import Batch, CheckpointBarrier, LatencyMarker
from penstock.runtime.task.channels.in_flight import is_state
from penstock.runtime.task.channels.result_partition import ForwardPartitioner, RebalancePartitioner


def double(value: int) -> int:
    return 2 * value


def settings(granularity: str = "operator") -> dict[str, Any]:
    return {"latency": LatencySettings(10, granularity, 4)}


def ages(rig: Rig) -> list[dict[str, Any]]:
    found = rig.task.metrics().figures
    assert found is not None
    return [{name: figures[:3] for name, figures in one.latency.items()} for one in found.operators]


def markers(rig: Rig, channel: int | None = None) -> list[LatencyMarker]:
    elements = rig.outbox.elements(None if channel is None else rig.outputs[channel])
    return [element for element in elements if isinstance(element, LatencyMarker)]


def test_a_source_sends_one_at_each_interval_though_it_has_no_records() -> None:
    source = partial(SourceOperator, CollectionSource([]), WatermarkStrategy.no_watermarks())
    rig = Rig([source, partial(MapOperator, double)], inputs=0, partitioner=ForwardPartitioner(), settings=settings())
    rig.advance(35)
    assert markers(rig) == [LatencyMarker(ms, "op0", 0) for ms in (10, 20, 30)]
    assert ages(rig) == [{}, {"op0": (3, 0, 0)}], "the source itself has no latency"


def test_without_the_option_a_source_sends_none() -> None:
    source = partial(SourceOperator, CollectionSource([]), WatermarkStrategy.no_watermarks())
    rig = Rig([source], inputs=0, partitioner=ForwardPartitioner())
    rig.advance(1_000)
    assert markers(rig) == []


def test_a_marker_keeps_its_place_behind_records_and_takes_one_channel_after_the_other() -> None:
    rig = Rig([partial(MapOperator, double)], partitioner=RebalancePartitioner(), consumers=2, settings=settings())
    rig.advance(50)
    rig.feed(0, Batch([1, 2]), LatencyMarker(20, "source", 1), LatencyMarker(40, "source", 0))
    assert len(markers(rig, 0)) == len(markers(rig, 1)) == 1
    for channel in rig.outputs:
        assert [type(one) for one in rig.outbox.elements(channel)] == [Batch, LatencyMarker]
    assert ages(rig) == [{"source": (2, 10, 30)}]


@pytest.mark.parametrize(
    ("granularity", "names"), [("single", {""}), ("operator", {"a", "b"}), ("subtask", {"a.0", "a.1", "b.0"})]
)
def test_what_is_kept_apart(granularity: str, names: set[str]) -> None:
    rig = Rig([partial(MapOperator, double)], partitioner=ForwardPartitioner(), settings=settings(granularity))
    rig.feed(0, LatencyMarker(0, "a", 0), LatencyMarker(0, "a", 1), LatencyMarker(0, "b", 0))
    assert ages(rig)[0].keys() == names


def test_a_marker_from_a_clock_that_is_ahead_is_of_age_0() -> None:
    rig = Rig([partial(MapOperator, double)], partitioner=ForwardPartitioner(), settings=settings())
    rig.feed(0, LatencyMarker(1_000, "a", 0))
    assert ages(rig) == [{"a": (1, 0, 0)}]


def test_a_marker_is_no_part_of_a_checkpoint_and_waits_for_alignment_as_records_do() -> None:
    assert not is_state(LatencyMarker(0, "a", 0))
    rig = Rig([partial(MapOperator, double)], inputs=2, partitioner=ForwardPartitioner(), settings=settings())
    rig.feed(0, CheckpointBarrier(1, 0))
    rig.feed(0, LatencyMarker(0, "a", 0))
    assert markers(rig) == []
    rig.feed(1, CheckpointBarrier(1, 0))
    assert [type(one) for one in rig.outbox.elements()] == [CheckpointBarrier, LatencyMarker]
