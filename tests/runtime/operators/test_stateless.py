"""Map, filter, flat map, process: one at a time under the harness."""

import pytest

from penstock.base.output_tag import OutputTag
from penstock.datastream.functions import FilterFunction, FlatMapFunction, MapFunction, ProcessFunction
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.record.process import ProcessOperator
from penstock.runtime.operators.record.stateless import FilterOperator, FlatMapOperator, MapOperator
from penstock.testing import OneInputOperatorHarness, Record, harness_for, run_hostile

INPUTS = [Record(n, 10 * n) for n in range(7)]
SIDE = OutputTag("odd")


class Double(MapFunction):
    def map(self, value):
        return 2 * value


class Even(FilterFunction):
    def filter(self, value):
        return value % 2 == 0


class Repeat(FlatMapFunction):
    def flat_map(self, value):
        for _ in range(value):
            yield value


class Route(ProcessFunction):
    def process_element(self, value, ctx):
        if value % 2:
            yield SIDE, (value, ctx.timestamp())
        else:
            yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


@pytest.mark.parametrize("function", [Double(), lambda v: 2 * v])
def test_map(function):
    """A2: map gives one record for each, with its timestamp, from a function or a function object."""
    run_hostile(lambda: MapOperator(function), INPUTS, [Record(2 * n, 10 * n) for n in range(7)])


@pytest.mark.parametrize("function", [Even(), lambda v: v % 2 == 0])
def test_filter(function):
    """A2: filter keeps records and their timestamps."""
    run_hostile(lambda: FilterOperator(function), INPUTS, [Record(n, 10 * n) for n in (0, 2, 4, 6)])


@pytest.mark.parametrize("function", [Repeat(), lambda v: [v] * v])
def test_flat_map(function):
    """A2: flat map gives any number of records, each with the timestamp of the one it came from."""
    run_hostile(lambda: FlatMapOperator(function), INPUTS, [Record(n, 10 * n) for n in range(7) for _ in range(n)])


def test_flat_map_may_return_none():
    """A2: a flat map that returns nothing gives nothing."""
    run_hostile(lambda: FlatMapOperator(lambda v: None), INPUTS, [])


def test_flat_map_to_side_output():
    """A2: flat map may write to side outputs."""
    run_hostile(lambda: FlatMapOperator(lambda v: [(SIDE, v) if v % 2 else v]), INPUTS, [0, 2, 4, 6], {SIDE: [1, 3, 5]})


@pytest.mark.parametrize("value", [(), (SIDE,), (SIDE, 1, 2), (1, SIDE), [SIDE, 1]])
def test_other_results_than_a_pair_with_a_tag_go_on(value):
    """A2: an empty tuple, one of another length, and one with the tag elsewhere are records."""
    run_hostile(lambda: FlatMapOperator(lambda v: [value]), INPUTS, [Record(value, 10 * n) for n in range(7)])


def test_process():
    """A1: a process function sees timestamps and writes to side outputs, each record with its timestamp."""
    expected = [Record((n, 10 * n, -(2**63)), 10 * n) for n in (0, 2, 4, 6)]
    run_hostile(
        lambda: ProcessOperator(Route()), INPUTS, expected, {SIDE: [Record((n, 10 * n), 10 * n) for n in (1, 3, 5)]}
    )


def test_process_sees_watermark_and_clock():
    """A1: a process function reads event time and processing time."""

    class Times(ProcessFunction):
        def process_element(self, value, ctx):
            yield ctx.timer_service().current_watermark(), ctx.timer_service().current_processing_time()

    with harness_for(Times()) as harness:
        harness.watermark(7)
        harness.advance_processing_time(50)
        harness.process("x")
        assert harness.values == [(7, 50)]
        assert harness.watermarks == [7]


def test_records_without_timestamps():
    """A2: what comes without timestamps goes without timestamps."""
    inputs = [Record(n) for n in range(3)]
    for factory in (
        lambda: MapOperator(lambda v: v),
        lambda: FilterOperator(lambda v: True),
        lambda: FlatMapOperator(lambda v: [v]),
        lambda: ProcessOperator(type("P", (), {"process_element": lambda self, v, ctx: [v]})()),
    ):
        run_hostile(factory, inputs, inputs)


def test_timer_without_key_is_refused():
    """A1: timers belong to a key; without one the error says what to do."""

    class Timer(ProcessFunction):
        def process_element(self, value, ctx):
            ctx.timer_service().register_event_time_timer(1)

    with harness_for(Timer()) as harness, pytest.raises(UserCodeError) as caught:
        harness.process("x", 1)
    assert "key_by" in str(caught.value.__cause__)


def test_open_and_close_of_functions():
    """F1, F4: a function is opened once before the first record and closed once, with the context of its subtask."""
    calls: list = []

    class Logging(MapFunction):
        def open(self, runtime_context):
            calls.append(
                ("open", runtime_context.get_index_of_this_subtask(), runtime_context.get_task_name_with_subtasks())
            )

        def map(self, value):
            return value

        def close(self):
            calls.append("close")

    harness = OneInputOperatorHarness(lambda: MapOperator(Logging()), 4, 2, name="log")
    harness.open()
    harness.process(1)
    harness.close()
    harness.close()
    assert calls == [("open", 2, "log (3/4)"), "close"]


def test_close_before_open_does_not_reach_the_function():
    """F4: close on a task that failed before open leaves the function alone."""

    class Never(MapFunction):
        def map(self, value):
            return value

        def close(self):
            raise AssertionError("closed, but never opened")

    MapOperator(Never()).close()
