"""Interval joins, window joins and co-groups in whole programs on the local driver."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from penstock.common import Configuration, Time, WatermarkStrategy
from penstock.datastream import (
    CoGroupFunction,
    DataStream,
    FlatJoinFunction,
    JoinFunction,
    KeySelector,
    OutputTag,
    ProcessJoinFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.window import CountEvictor, CountTrigger
from penstock.plan.transformation import get_factory
from penstock.runtime.records import Watermark
from penstock.runtime.windowing import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.testing import Record, run_hostile

Records = list[tuple[str, int, int]]  # key, number, timestamp


def environment(parallelism: int = 1) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)


def timed(env: StreamExecutionEnvironment, records: Records) -> DataStream:
    """Nothing is late: the watermark waits for the end."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(10_000).with_timestamp_assigner(lambda r: r[2])
    return env.from_collection(records).assign_timestamps_and_watermarks(strategy)


LEFT: Records = [("ab"[n % 2], n, 7 * n) for n in range(20)]
RIGHT: Records = [("abc"[n % 3], 100 + n, 5 * n) for n in range(20)]


class Key(KeySelector):
    def get_key(self, value: Any) -> Any:
        return value[0]


class Numbers(JoinFunction):
    def join(self, first: Any, second: Any) -> Any:
        return first[1], second[1]


class OddNumbers(FlatJoinFunction):
    def join(self, first: Any, second: Any) -> Iterable[Any]:
        if (first[1] + second[1]) % 2:
            yield first[1], second[1]


class Compare(CoGroupFunction):
    def open(self, runtime_context: Any) -> None:
        self.is_open = True

    def co_group(self, first: list[Any], second: list[Any]) -> Iterable[Any]:
        assert self.is_open
        yield sorted(r[1] for r in first), sorted(r[1] for r in second)


def pairs(left: Records, right: Records, size: int) -> list[tuple[int, int]]:
    """The nested loop for tumbling windows."""
    return sorted((a[1], b[1]) for a in left for b in right if a[0] == b[0] and a[2] // size == b[2] // size)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_window_join_pairs_by_key_and_window(parallelism: int) -> None:
    """A2, C1: tumbling windows, key selectors as objects and as functions."""
    env = environment(parallelism)
    joined = timed(env, LEFT).join(timed(env, RIGHT)).where(Key()).equal_to(lambda r: r[0])
    result = joined.window(TumblingEventTimeWindows.of(Time.milliseconds(20))).apply(Numbers())
    assert sorted(result.execute_and_collect()) == pairs(LEFT, RIGHT, 20)


@settings(deadline=None, max_examples=15)
@given(st.data())
def test_a_sliding_window_join_is_that_of_a_nested_loop(data: Any) -> None:
    """A2, C1: a pair comes once for each window that has both."""
    record = st.tuples(st.sampled_from("ab"), st.integers(0, 99), st.integers(-50, 100))
    left, right = data.draw(st.lists(record, max_size=8)), data.draw(st.lists(record, max_size=8))
    size, slide = data.draw(st.sampled_from([(20, 10), (30, 7), (5, 10)]))
    env = environment()
    windows = SlidingEventTimeWindows.of(Time.milliseconds(size), Time.milliseconds(slide))
    joined = timed(env, left).join(timed(env, right)).where(Key()).equal_to(Key()).window(windows)
    starts = [n * slide for n in range(-30, 30)]
    wanted = [
        (a[1], b[1])
        for a in left
        for b in right
        for start in starts
        if a[0] == b[0] and start <= a[2] < start + size and start <= b[2] < start + size
    ]
    assert sorted(joined.apply(lambda a, b: (a[1], b[1])).execute_and_collect()) == sorted(wanted)


def test_a_flat_join_gives_any_number_of_records_for_a_pair() -> None:
    """A2: also none."""
    env = environment()
    joined = timed(env, LEFT).join(timed(env, RIGHT)).where(Key()).equal_to(Key())
    result = joined.window(TumblingEventTimeWindows.of(Time.milliseconds(50))).apply(OddNumbers())
    assert sorted(result.execute_and_collect()) == [p for p in pairs(LEFT, RIGHT, 50) if sum(p) % 2]


def test_session_windows_merge_over_both_streams() -> None:
    """C1: a record of one stream keeps the other's session open."""
    env = environment()
    left, right = [("a", 1, 0), ("a", 2, 16)], [("a", 3, 8), ("a", 4, 40)]
    joined = timed(env, left).co_group(timed(env, right)).where(Key()).equal_to(Key())
    result = joined.window(EventTimeSessionWindows.with_gap(Time.milliseconds(10))).apply(Compare())
    assert sorted(result.execute_and_collect()) == [([], [4]), ([1, 2], [3])]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_co_group_sees_what_has_no_partner(parallelism: int) -> None:
    """A2: an outer join is a co-group."""
    env = environment(parallelism)
    joined = timed(env, LEFT).co_group(timed(env, RIGHT)).where(Key()).equal_to(Key())
    result = joined.window(TumblingEventTimeWindows.of(Time.milliseconds(20))).apply(Compare())
    wanted: dict[Any, tuple[list[int], list[int]]] = {}
    for side, records in enumerate((LEFT, RIGHT)):
        for key, number, timestamp in records:
            wanted.setdefault((key, timestamp // 20), ([], []))[side].append(number)
    assert sorted(result.execute_and_collect()) == sorted(wanted.values())


def test_late_records_of_a_join_go_where_late_records_of_windows_go() -> None:
    """C1, G8: allowed lateness fires again, what is later goes to the side output; in all hostile ways."""
    late = OutputTag("late")
    env = environment()
    windows = timed(env, LEFT).join(timed(env, RIGHT)).where(Key()).equal_to(Key())
    joined = (
        windows.window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .allowed_lateness(50)
        .side_output_late_data(late)
        .apply(lambda one, other: (one[1], other[1]))
    )
    operator = get_factory(joined.upstreams[0].transformation.node)
    inputs = [
        *(Record((0, ("a", 1, 1)), 1), Record((1, ("a", 2, 2)), 2), Watermark(20)),
        *(Record((1, ("a", 3, 3)), 3), Watermark(60), Record((0, ("a", 4, 4)), 4)),
    ]
    run_hostile(operator, inputs, [Record((1, 2), 9), Record((1, 2), 9), Record((1, 3), 9)], {late: [(0, ("a", 4, 4))]})


def test_triggers_and_evictors_of_joins_are_those_of_windows() -> None:
    """C1: a window that fires with every third record of both streams together, and gives all but the last two up."""
    env = environment()
    windows = timed(env, LEFT).co_group(timed(env, RIGHT)).where(Key()).equal_to(Key())
    grouped = (
        windows.window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
        .trigger(CountTrigger.of(3))
        .evictor(CountEvictor.of(2))
        .apply(Compare())
    )
    operator = get_factory(grouped.upstreams[0].transformation.node)
    inputs = [Record((n % 2, ("a", n, n)), n) for n in range(1, 8)]
    run_hostile(operator, inputs, [([2], [3]), ([6], [5])])


class Spans(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield left[1], right[1], ctx.get_timestamp()


@pytest.mark.parametrize("parallelism", [1, 3])
def test_an_interval_join_pairs_what_is_close_in_time(parallelism: int) -> None:
    """A2: both bounds included, but where the program says otherwise."""
    env = environment(parallelism)
    left, right = timed(env, LEFT).key_by(Key()), timed(env, RIGHT).key_by(lambda r: r[0])
    joined = left.interval_join(right).between(Time.milliseconds(-6), 10).upper_bound_exclusive().process(Spans())
    wanted = [(a[1], b[1], max(a[2], b[2])) for a in LEFT for b in RIGHT if a[0] == b[0] and -6 <= b[2] - a[2] < 10]
    assert sorted(joined.execute_and_collect()) == sorted(wanted)


def test_bounds_that_contradict_themselves_are_refused() -> None:
    """A2: when the program is built."""
    env = environment()
    keyed = timed(env, LEFT).key_by(Key())
    with pytest.raises(ValueError, match=r"lower bound \(5 ms\) is above the upper \(4 ms\)"):
        keyed.interval_join(keyed).between(5, 4)
    with pytest.raises(ValueError, match="no timestamp lies between"):
        keyed.interval_join(keyed).between(5, 5).lower_bound_exclusive().process(Spans())
    with pytest.raises(TypeError, match="key_by"):
        keyed.interval_join(timed(env, RIGHT))  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="event time only"):
        keyed.interval_join(keyed).in_processing_time()


class BothNumbers(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield left[1], right[1]


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("mode", ["STREAMING", "BATCH", "MICRO_BATCH"])
def test_an_interval_join_is_that_of_a_nested_loop_in_every_execution_mode(mode: str, parallelism: int) -> None:
    """A2, I1: in batch key by key, with no more than a key's records kept."""
    env = environment(parallelism)
    env.configure(Configuration.from_dict({"execution.runtime-mode": mode}))
    left, right = (timed(env, records).key_by(lambda r: r[0]) for records in (LEFT, RIGHT))
    joined = left.interval_join(right).between(Time.milliseconds(-9), Time.milliseconds(15)).process(BothNumbers())
    wanted = [(a[1], b[1]) for a in LEFT for b in RIGHT if a[0] == b[0] and a[2] - 9 <= b[2] <= a[2] + 15]
    assert sorted(joined.execute_and_collect()) == sorted(wanted)
    assert wanted
