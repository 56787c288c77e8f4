"""Timers in whole jobs: those set after the end of the input, and those that cannot be set, in every execution mode."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.datastream.environments import collect, local_environment

from penstock.base.errors import JobExecutionError, MisuseError, UserFunctionError
from penstock.base.restart_strategy import RestartStrategies
from penstock.common import WatermarkStrategy
from penstock.datastream.functions import (
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
)
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    EventTimeTrigger,
    GlobalWindows,
    Trigger,
    TriggerResult,
    TumblingProcessingTimeWindows,
)
from penstock.runtime.operators.record.process import KeyedProcessOperator
from penstock.runtime.operators.watermarks import DROPPED_TIMERS
from penstock.testing import OneInputOperatorHarness

MODES = ("STREAMING", "MICRO_BATCH", "BATCH")
BACKENDS = ("hashmap", "rocksdb")
RECORDS = [("a", 0), ("b", 3)]
END_MS = 2**63 - 1


def keyed(mode: str = "STREAMING", backend: str = "hashmap", parallelism: int = 1, **options: Any) -> Any:
    """The records by key, with event time."""
    env = local_environment(parallelism, execution__runtime_mode=mode, state__backend__type=backend, **options)
    env.set_restart_strategy(RestartStrategies.no_restart())
    by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda record, _: record[1])
    return env.from_collection(RECORDS).assign_timestamps_and_watermarks(by_time).key_by(lambda record: record[0])


class Reminders(KeyedProcessFunction):
    """Reminds of each record `count` times, every 10 ms: each timer sets the next one."""

    def __init__(self, count: float, domains: str = "e") -> None:
        self.count = count
        self.domains = domains

    def open(self, runtime_context: Any) -> None:
        self.reminders = runtime_context.get_state(ValueStateDescriptor("reminders"))

    def set(self, ctx: Any, time: int, number: int) -> None:
        timers = ctx.timer_service()
        if self.domains[number % len(self.domains)] == "e":
            timers.register_event_time_timer(time)
        else:
            timers.register_processing_time_timer(time)

    def process_element(self, value: Any, ctx: Any) -> None:
        self.set(ctx, value[1] + 10, 0)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        number = (self.reminders.value() or 0) + 1
        self.reminders.update(number)
        yield ctx.get_current_key(), timestamp
        if number < self.count:
            self.set(ctx, timestamp + 10, number)


def reminders(count: int) -> list[Any]:
    return sorted((key, time + 10 * number) for key, time in RECORDS for number in range(1, count + 1))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_timers_that_timers_set_fire_in_every_mode(mode: str, backend: str, parallelism: int) -> None:
    """F5: at the end of the input all event-time timers are due, those included that `on_timer` sets then."""
    found = collect(keyed(mode, backend, parallelism).process(Reminders(5)))
    assert sorted(found) == reminders(5)


@pytest.mark.parametrize("domains", ["p", "pe", "ep", "ppe", "eep"])
def test_timers_of_both_times_fire_at_the_end_of_a_key_in_batch(domains: str) -> None:
    """F5, I2: processing-time timers are due, too, and whichever kind sets the other."""
    found = collect(keyed("BATCH").process(Reminders(6, domains)))
    assert sorted(found) == reminders(6)


class TwoReminders(Reminders, KeyedCoProcessFunction):
    """The same for records of two inputs."""

    process_element1 = process_element2 = Reminders.process_element


class Broadcasts(KeyedBroadcastProcessFunction):
    """The same beside a broadcast stream."""

    def __init__(self, count: float) -> None:
        self.reminders = Reminders(count)
        self.open = self.reminders.open  # type: ignore[method-assign]

    def process_element(self, value: Any, ctx: Any) -> None:
        self.reminders.process_element(value, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return self.reminders.on_timer(timestamp, ctx)

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        """Nothing."""


@pytest.mark.parametrize("mode", MODES)
def test_functions_of_two_inputs_and_broadcast_functions_do_the_same(mode: str) -> None:
    """F5: every keyed function that has timers."""
    one = keyed(mode)
    other = one.get_execution_environment().from_collection([("a", 0)]).key_by(lambda record: record[0])
    assert sorted(collect(one.connect(other).process(TwoReminders(3))))[:1] == [("a", 10)]
    one = keyed(mode)
    rules = one.get_execution_environment().from_collection([1]).broadcast(MapStateDescriptor("rules"))
    assert sorted(collect(one.connect(rules).process(Broadcasts(3)))) == reminders(3)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_timers_that_never_end_fail_the_job(mode: str, backend: str) -> None:
    """F5: the error names the operator, the key, the limit and the option."""
    stream = keyed(mode, backend, penstock__timers__after_end_of_input__max=200).process(Reminders(float("inf")))
    with pytest.raises(UserFunctionError) as caught:
        collect(stream.name("every 10 ms"))
    assert caught.value.operator_name == "every 10 ms"
    text = str(caught.value)
    for part in ("every 10 ms: key '", "more than 200 timers", "after-end-of-input.max", "in on_timer", "self.set("):
        assert part in text


def test_processing_time_timers_that_never_end_fail_a_batch() -> None:
    """F5: in batch the limit is for timers of both times."""
    stream = keyed("BATCH", penstock__timers__after_end_of_input__max=50).process(Reminders(float("inf"), "pe"))
    with pytest.raises(UserFunctionError, match="more than 50 timers"):
        collect(stream)


@pytest.mark.parametrize("mode", MODES)
def test_a_key_may_set_as_many_timers_as_the_limit_says(mode: str) -> None:
    """F5: the limit is for each key, so it does not depend on how many keys a subtask has."""
    stream = keyed(mode, penstock__timers__after_end_of_input__max=4).process(Reminders(5))
    assert sorted(collect(stream)) == reminders(5)
    stream = keyed(mode, penstock__timers__after_end_of_input__max=4).process(Reminders(6))
    with pytest.raises(UserFunctionError, match="more than 4 timers"):
        collect(stream)


def test_by_default_a_key_may_set_a_hundred_thousand() -> None:
    """F5: enough for a timer a second for the rest of a day, and an endless chain ends within a second or so."""
    found = collect(keyed("BATCH").process(Reminders(86_400)))
    assert len(found) == 2 * 86_400
    with pytest.raises(UserFunctionError, match="more than 100000 timers"):
        collect(keyed("BATCH").process(Reminders(float("inf"))))


@pytest.mark.parametrize("mode", MODES)
def test_the_limit_0_drops_timers_that_are_set_after_the_end(mode: str) -> None:
    """F5: as Flink's batch execution does."""
    stream = keyed(mode, penstock__timers__after_end_of_input__max=0).process(Reminders(float("inf")))
    assert sorted(collect(stream)) == reminders(1)


def test_dropped_timers_are_counted() -> None:
    """F5: no timer is dropped without a trace."""
    harness = OneInputOperatorHarness(lambda: KeyedProcessOperator(Reminders(9), lambda record: record[0]))
    harness.context.timers_after_end_max = 0
    with harness:
        for key, time in RECORDS:
            harness.process((key, time), time)
        harness.end()
        assert harness.context.counters[DROPPED_TIMERS] == 2


def test_what_many_timers_emit_goes_out_in_parts() -> None:
    """F5: the results of a long chain are not held in memory as a whole."""
    harness = OneInputOperatorHarness(lambda: KeyedProcessOperator(Reminders(10_000), lambda record: record[0]))
    with harness:
        harness.process(("a", 0), 0)
        harness.end()
        assert len(harness.values) == 10_000
        assert harness.context.fired_timers == 10_000


class Ticks(Trigger[Any, Any]):
    """Fires every 10 ms of event time, without an end."""

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        ctx.register_event_time_timer(timestamp + 10)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        ctx.register_event_time_timer(time + 10)
        return TriggerResult.FIRE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Any, ctx: Any) -> None:
        """Windows do not merge."""

    def clear(self, window: Any, ctx: Any) -> None:
        """Nothing is kept."""


@pytest.mark.parametrize("mode", MODES)
def test_triggers_that_never_end_fail_the_job(mode: str) -> None:
    """F5, C1: the same limit is for the timers of windows."""
    windows = keyed(mode, penstock__timers__after_end_of_input__max=100).window(GlobalWindows.create())
    with pytest.raises(JobExecutionError) as caught:
        collect(windows.trigger(Ticks()).apply(lambda key, window, records: [key]).name("ticking"))
    assert "ticking: key '" in str(caught.value)
    assert "more than 100 timers" in str(caught.value)


@pytest.mark.parametrize("mode", MODES)
def test_triggers_that_end_do_not_reach_the_limit(mode: str) -> None:
    """F5, C1: timers that are there already are set again in vain, and count for nothing."""
    windows = keyed(mode, penstock__timers__after_end_of_input__max=1).window(GlobalWindows.create())
    found = collect(windows.trigger(ContinuousEventTimeTrigger.of(10)).apply(lambda key, window, records: [key]))
    assert sorted(set(found)) == ["a", "b"]


def test_timers_of_the_clock_that_triggers_set_at_the_end_of_a_key_are_dropped() -> None:
    """F5, C1: in batch a window of the clock fires once for each timer that waits when its key ends."""
    windows = keyed("BATCH").window(TumblingProcessingTimeWindows.of(10_000))
    found = collect(windows.trigger(ContinuousProcessingTimeTrigger.of(1)).apply(lambda key, window, records: [key]))
    assert sorted(set(found)) == ["a", "b"]
    assert len(found) <= 4


# --- times that cannot be set ----------------------------------------------------------------------------------------


class At(KeyedProcessFunction):
    """Calls a method of the timer service with a time."""

    def __init__(self, method: str, time: Any) -> None:
        self.method = method
        self.time = time

    def process_element(self, value: Any, ctx: Any) -> None:
        getattr(ctx.timer_service(), self.method)(self.time)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp


METHODS = [f"{verb}_{domain}_time_timer" for verb in ("register", "delete") for domain in ("event", "processing")]
WRONG_TIMES: dict[str, Any] = {
    "float": (1000.5, r"1000.5 \(float\).*int\(x \* 1000\)"),
    "whole float": (1000.0, r"1000.0 \(float\).*int\(x\)"),
    "none": (None, r"None \(NoneType\).*assign timestamps"),
    "text": ("5", r"'5' \(str\).*an int"),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("wrong", WRONG_TIMES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_time_that_is_no_int_is_refused_where_it_is_set(method: str, wrong: str, backend: str) -> None:
    """A1: on every backend alike; the error names the operator, the method and the remedy."""
    time, text = WRONG_TIMES[wrong]
    with pytest.raises(UserFunctionError, match=text) as caught:
        collect(keyed(backend=backend).process(At(method, time)).name("mine"))
    assert caught.value.operator_name == "mine"
    assert f"{method}()" in str(caught.value)
    assert "getattr(ctx.timer_service(), self.method)(self.time)" in caught.value.traceback_text


@pytest.mark.parametrize("method", METHODS[:2])
@pytest.mark.parametrize("time", [2**63, -(2**63) - 1, 10**30])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_time_beyond_64_bits_is_refused(method: str, time: int, backend: str) -> None:
    """A1: such a timer would never fire, not even at the end of the input."""
    with pytest.raises(UserFunctionError, match=r"fits into 64 bits.*sys\.maxsize"):
        collect(keyed(backend=backend).process(At(method, time)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_and_the_last_time_can_be_set(mode: str, backend: str) -> None:
    """A1, F5: as in Flink the end of event time is a time as any other, which the end of the input reaches."""
    for time in (sys.maxsize, -sys.maxsize - 1):
        found = collect(keyed(mode, backend).process(At("register_event_time_timer", time)))
        assert sorted(found) == [("a", time), ("b", time)]


def test_times_of_numpy_are_taken() -> None:
    """A1: an integer of numpy is one."""
    numpy = pytest.importorskip("numpy")
    found = collect(keyed().process(At("register_event_time_timer", numpy.int64(7))))
    assert sorted(found) == [("a", 7), ("b", 7)]
    assert {type(time) for _, time in found} == {int}
    with pytest.raises(UserFunctionError, match=r"datetime64.*astype"):
        collect(keyed().process(At("register_event_time_timer", numpy.datetime64(7, "ms"))))


class TriggerAt(EventTimeTrigger):
    """Calls a method of the trigger's context with a time."""

    def __init__(self, method: str, time: Any) -> None:
        self.method = method
        self.time = time

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        getattr(ctx, self.method)(self.time)
        return TriggerResult.CONTINUE


@pytest.mark.parametrize("method", METHODS)
def test_triggers_cannot_set_such_times_either(method: str) -> None:
    """A1, C1: the timers of windows follow the same rules."""
    windows = keyed().window(GlobalWindows.create()).trigger(TriggerAt(method, 1000.5))
    with pytest.raises(UserFunctionError, match=rf"{method}\(\) was given 1000.5"):
        collect(windows.apply(lambda key, window, records: [key]))


# --- functions without on_timer --------------------------------------------------------------------------------------


class Plain(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.timer_service().register_event_time_timer(1)
        yield value


class PlainByClock(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.timer_service().register_processing_time_timer(1)
        yield value


class PlainCo(CoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.timer_service().register_event_time_timer(1)
        yield value

    process_element2 = process_element1


class PlainWithOnTimer(Plain):
    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp


WITHOUT: dict[str, Callable[[Any], Any]] = {
    "Plain": lambda stream: stream.process(Plain()),
    "PlainByClock": lambda stream: stream.process(PlainByClock()),
    "PlainCo": lambda stream: stream.connect(stream).process(PlainCo()),
}


@pytest.mark.parametrize("name", WITHOUT)
@pytest.mark.parametrize("mode", MODES)
def test_a_function_without_on_timer_cannot_set_timers(name: str, mode: str) -> None:
    """A1: the registration is refused, in the function's own line, and says which class to use."""
    with pytest.raises(UserFunctionError, match=rf"{name} has a timer but no on_timer.*Keyed") as caught:
        collect(WITHOUT[name](keyed(mode)).name("mine"))
    assert "mine" in str(caught.value)
    assert "_time_timer(1)" in caught.value.traceback_text


def test_a_process_function_with_on_timer_may_set_them() -> None:
    """A1: on a keyed stream the method is enough."""
    found = collect(keyed().process(PlainWithOnTimer()))
    assert sorted(found, key=str) == sorted([*RECORDS, ("a", 1), ("b", 1)], key=str)


def test_timers_of_a_savepoint_need_an_on_timer() -> None:
    """A1, H4: a function that has lost its on_timer says so when a restored timer is due."""
    with OneInputOperatorHarness(lambda: KeyedProcessOperator(PlainWithOnTimer(), str)) as harness:
        harness.process(1, 0)
        snapshot = harness.snapshot(1)
    later = OneInputOperatorHarness(lambda: KeyedProcessOperator(Plain(), str))
    later.restore(snapshot)
    with later, pytest.raises(Exception) as caught:  # noqa: PT011 - its cause is looked at
        later.watermark(5)
    assert isinstance(caught.value.__cause__, MisuseError)
