"""A map with a filter right behind it, which are done in one pass: what users can tell is as if they were not."""

from __future__ import annotations

from typing import Any

import pytest
from tests.datastream.environments import collect, local_environment

from penstock.base.errors import UserFunctionError
from penstock.base.restart_strategy import RestartStrategies
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.common import Row, Types
from penstock.datastream import ProcessFunction

COUNT = 10_000


class WithTimestamp(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, ctx.timestamp()


def test_records_and_their_order() -> None:
    """A2: over several batches, without timestamps; batches of which the filter leaves nothing too."""
    stream = local_environment().from_collection(list(range(COUNT)))
    kept = collect(stream.map(lambda v: v * 3).filter(lambda v: v % 2 == 0 and v < 9_000))
    assert kept == [v * 3 for v in range(3_000) if v % 2 == 0]


def test_timestamps_stay_with_their_records() -> None:
    """A2: each record that the filter leaves has the timestamp that it came with."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value * 10)
    stream = local_environment().from_collection(list(range(COUNT))).assign_timestamps_and_watermarks(strategy)
    kept = collect(stream.map(lambda v: v + 1).filter(lambda v: v % 3 == 0).process(WithTimestamp()))
    assert kept == [(v + 1, v * 10) for v in range(COUNT) if (v + 1) % 3 == 0]


def test_maps_and_filters_in_turn() -> None:
    """A2: several pairs in a row."""
    stream = local_environment().from_collection(list(range(100)))
    stream = stream.map(lambda v: v + 1).filter(lambda v: v % 2).map(lambda v: v * 10).filter(lambda v: v % 3 == 0)
    assert collect(stream.filter(lambda v: v > 100).map(str)) == [
        str(v * 10) for v in range(1, 101, 2) if v % 3 == 0 and v > 10
    ]


def test_another_reader_of_the_map_sees_all_records() -> None:
    """A2: what the filter drops goes to others who read the same stream."""
    mapped = local_environment().from_collection([1, 2, 3, 4]).map(lambda v: v * 10)
    assert sorted(collect(mapped.filter(lambda v: v > 20).union(mapped.map(lambda v: -v)))) == [
        *(-40, -30, -20, -10),
        *(30, 40),
    ]


def test_a_declared_row_is_a_row_for_the_filter_and_behind_it() -> None:
    """A2: what the map emits becomes rows on the way."""
    row_type = Types.ROW_NAMED(["name", "count"], [Types.STRING(), Types.INT()])
    stream = local_environment().from_collection([1, 2, 3]).map(lambda v: ("n", v), output_type=row_type)
    assert collect(stream.filter(lambda row: row.count > 1)) == [Row(name="n", count=2), Row(name="n", count=3)]


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize(("broken", "record"), [("halved", 8), ("is small", 4)])
def test_an_error_names_the_function_that_raised(timed: bool, broken: str, record: int) -> None:
    """A2: the operator's name and its own record: for the filter, the one that the map made."""

    def halved(value: int) -> int:
        if broken == "halved" and value == 8:
            raise ValueError("oops")
        return value // 2

    def is_small(value: int) -> bool:
        if broken == "is small" and value == 4:
            return next(iter(()))  # StopIteration is an error like any other
        return value < 3

    env = local_environment()
    env.set_restart_strategy(RestartStrategies.no_restart())
    stream = env.from_collection([2, 4, 6, 8, 10])
    if timed:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value)
        stream = stream.assign_timestamps_and_watermarks(strategy)
    with pytest.raises(UserFunctionError, match=rf"operator '{broken}'.*\nrecord: {record}\n"):
        collect(stream.map(halved).name("halved").filter(is_small).name("is small"))


def test_a_pass_of_many_operators_names_the_one_that_raised() -> None:
    """A2: map, filter, map, map in one pass; the third of them raises on the record that it was given."""

    def third(value: int) -> int:
        if value == 40:
            raise ValueError("oops")
        return value

    env = local_environment()
    env.set_restart_strategy(RestartStrategies.no_restart())
    stream = env.from_collection([1, 2, 3, 4]).map(lambda v: v * 10).filter(lambda v: v > 20).map(third).name("third")
    with pytest.raises(UserFunctionError, match=r"operator 'third'.*\nrecord: 40\n"):
        collect(stream.map(lambda v: v + 1))
