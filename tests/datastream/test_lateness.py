"""Which records are late, at any parallelism (C1, C2)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.datastream.environments import collect, local_environment

from penstock.common import OutputTag, Time, WatermarkStrategy
from penstock.datastream import DataStream
from penstock.datastream.window import TumblingEventTimeWindows

TIMES = [*range(0, 100_000, 1000), 5]
LATE = OutputTag("late")
STRATEGY = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda time, _: time)


def late_records(stream: DataStream) -> list[Any]:
    windows = stream.key_by(lambda time: 0).window(TumblingEventTimeWindows.of(Time.seconds(10)))
    return collect(windows.side_output_late_data(LATE).reduce(lambda a, b: a + b).get_side_output(LATE))


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4])
@pytest.mark.parametrize("batch_records", [1, 10, 101])
def test_late_records_of_a_collection_do_not_depend_on_the_parallelism(parallelism: int, batch_records: int) -> None:
    """C1: a watermark follows the batch of its source, so only a record of another batch can be late."""
    env = local_environment(parallelism, penstock__source__batch_records=batch_records)
    stream = env.from_collection(TIMES).assign_timestamps_and_watermarks(STRATEGY)
    assert late_records(stream) == ([5] if batch_records < 101 else [])


def test_the_assigner_has_the_parallelism_of_its_source_unless_told_otherwise() -> None:
    """C2, B2: what stands between them, or was said, counts."""
    env = local_environment(4)
    source = env.from_collection(TIMES)
    for stream in [
        source.assign_timestamps_and_watermarks(STRATEGY),
        source.assign_timestamps_and_watermarks(STRATEGY).set_parallelism(3),
        source.rebalance().assign_timestamps_and_watermarks(STRATEGY),
        source.map(abs).assign_timestamps_and_watermarks(STRATEGY),
    ]:
        stream.print()
    vertices = re.split(r"\[\d\] parallelism ", env.explain().replace("<- [", ""))
    assert [int(text[0]) for text in vertices if "Timestamps/Watermarks" in text] == [1, 3, 4, 4]
