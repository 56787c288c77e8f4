"""What is raised by user code names the operator and the record, wherever in a batch it happens."""

from functools import partial
from typing import Any

import pytest

from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.datastream.functions import KeyedProcessFunction, MapFunction, ProcessFunction
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.keyed.aggregates import KeyedReduceOperator
from penstock.runtime.operators.record.process import KeyedProcessOperator, ProcessOperator
from penstock.runtime.operators.record.stateless import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    TimestampsAndWatermarksOperator,
)
from penstock.runtime.operators.window.aligned import AlignedWindowOperator, SessionWindowOperator
from penstock.runtime.operators.window.base import ApplyResult, ListContents, ReducingContents
from penstock.runtime.windowing import EventTimeSessionWindows, TumblingEventTimeWindows
from penstock.testing import OneInputOperatorHarness, harness_for

BAD = 3
TUMBLING = TumblingEventTimeWindows(10)


class Oops(Exception):
    pass


def fails(value, *_):
    if value == BAD:
        raise Oops("no threes")
    return value


def fails_inside(value):
    yield value
    yield fails(value)


def adds(one, other):
    fails(other)
    return one + other


class Process(ProcessFunction):
    def process_element(self, value, ctx):
        yield fails(value)


class KeyedProcess(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield fails(value)


def one_key(value):
    return "k"


FACTORIES: dict[str, Any] = {
    "map": partial(MapOperator, fails),
    "filter": partial(FilterOperator, fails),
    "flat map": partial(FlatMapOperator, lambda v: [fails(v)]),
    "flat map, generator": partial(FlatMapOperator, fails_inside),
    "process": partial(ProcessOperator, Process()),
    "keyed process": partial(KeyedProcessOperator, KeyedProcess(), one_key),
    "keyed process, key selector": partial(KeyedProcessOperator, KeyedProcess(), fails),
    "keyed reduce": partial(KeyedReduceOperator, adds, one_key),
    "keyed reduce, key selector": partial(KeyedReduceOperator, max, fails),
    "window reduce": partial(AlignedWindowOperator, one_key, TUMBLING, ReducingContents(adds)),
    "window, key selector": partial(AlignedWindowOperator, fails, TUMBLING, ListContents()),
    "session reduce": partial(SessionWindowOperator, one_key, EventTimeSessionWindows(10), ReducingContents(adds)),
    "session, key selector": partial(SessionWindowOperator, fails, EventTimeSessionWindows(10), ListContents()),
    "timestamp assigner": partial(
        TimestampsAndWatermarksOperator,
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v: fails(v)),
    ),
}


@pytest.mark.parametrize("kind", FACTORIES)
@pytest.mark.parametrize("position", [1, 2, 5])
def test_error_names_operator_and_record(kind, position):
    """A2: a user function that raises in the middle of a batch is reported with its operator and exactly its record."""
    values = [v for v in (10, 11, 12, 13, 14, 15) if v != BAD]
    values[position] = BAD
    with OneInputOperatorHarness(FACTORIES[kind], name="mine") as harness, pytest.raises(UserCodeError) as caught:
        harness.process_batch(values, range(6))
    assert caught.value.operator_name == "mine"
    assert caught.value.record == BAD
    assert isinstance(caught.value.__cause__, Oops)


class Leaky:
    """Raises StopIteration, as a bare next() on an empty iterator does."""

    def __call__(self, value):
        if value == BAD:
            return next(iter(()))
        return value


@pytest.mark.parametrize("kind", ["map", "filter", "flat map", "timestamp assigner"])
def test_stop_iteration_is_an_error_like_any_other(kind):
    """A2: a StopIteration out of a user function is its error; it never ends the batch and drops what follows."""
    factory: Any = {
        "map": partial(MapOperator, Leaky()),
        "filter": partial(FilterOperator, Leaky()),
        "flat map": partial(FlatMapOperator, Leaky()),
        "timestamp assigner": partial(
            TimestampsAndWatermarksOperator,
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Leaky()),
        ),
    }[kind]
    values = [1, BAD, 5] if kind != "flat map" else [BAD]
    with OneInputOperatorHarness(factory, name="mine") as harness, pytest.raises(UserCodeError) as caught:
        harness.process_batch(values, range(len(values)))
    assert caught.value.record == BAD


def test_error_in_open_names_the_operator():
    """F1: what open() raises is reported as the user's."""

    class Broken(MapFunction):
        def open(self, runtime_context):
            raise Oops("no connection")

        def map(self, value):
            return value

    with pytest.raises(UserCodeError) as caught:
        harness_for(Broken(), name="mine").open()
    assert (caught.value.operator_name, caught.value.record, caught.value.what) == ("mine", None, "open()")


def test_error_in_timer_names_time_and_key():
    """A1: what on_timer raises is reported with the timer's time and key."""

    class Timer(KeyedProcessFunction):
        def process_element(self, value, ctx):
            ctx.timer_service().register_event_time_timer(50)

        def on_timer(self, timestamp, ctx):
            raise Oops

    with harness_for(Timer(), one_key, name="mine") as harness:
        harness.process("x", 1)
        with pytest.raises(UserCodeError) as caught:
            harness.watermark(60)
    assert caught.value.record == ("timer", 50, "k")


@pytest.mark.parametrize(
    ("operator", "assigner"),
    [(AlignedWindowOperator, TUMBLING), (SessionWindowOperator, EventTimeSessionWindows(10))],
    ids=["aligned", "session"],
)
def test_error_in_window_function_names_the_key(operator, assigner):
    """C1: what a window function raises when the watermark fires it is reported with the window's key."""

    def broken(key, window, inputs):
        fails({"b": BAD}.get(key))
        return inputs

    result = ApplyResult(broken, True)
    factory: Any = partial(operator, lambda v: v, assigner, ListContents(), result)
    with OneInputOperatorHarness(factory, name="mine") as harness:
        harness.process_batch(["a", "b", "c"], [1, 2, 3])
        with pytest.raises(UserCodeError) as caught:
            harness.watermark(100)
    assert caught.value.operator_name == "mine"
    assert "'b'" in repr(caught.value.record)


def test_windows_without_timestamps_say_what_to_do():
    """C1: event-time windows over records without timestamps are refused with advice."""
    with (
        OneInputOperatorHarness(FACTORIES["window reduce"]) as harness,
        pytest.raises(TypeError, match="assign_timestamps_and_watermarks"),
    ):
        harness.process("x")
