"""What functions are handed beside the record: contexts by the names under which a program annotates them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.datastream.environments import collect, local_environment

from penstock.base.typeinfo import Types
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.datastream import TimerService
from penstock.datastream.functions import (
    AggregateFunction,
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    CoProcessFunction,
    Function,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeyedStateStore,
    MapFunction,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
)
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.time_domain import TimeDomain
from penstock.datastream.window import TimeWindow, TumblingEventTimeWindows
from penstock.state.errors import StateError

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())
EVENTS = [("a", 1), ("b", 2), ("a", 13)]  # (key, event time in ms)
BEGINNING = -(2**63)  # of event time


def timed(env: Any, values: Any = EVENTS) -> Any:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value[1])
    return env.from_collection(values).assign_timestamps_and_watermarks(strategy)


def keyed(env: Any) -> Any:
    return timed(env).key_by(lambda value: value[0])


# --- process functions ------------------------------------------------------------------------------------------------


class Plain(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        assert isinstance(ctx, ProcessFunction.Context)
        assert isinstance(ctx.timer_service(), TimerService)
        assert ctx.timer_service().current_processing_time() > 0
        yield ctx.timestamp(), ctx.timer_service().current_watermark()


def test_a_process_function_sees_times() -> None:
    """A1: the record's timestamp, None where it has none, and the watermark, which lies behind it."""
    assert collect(timed(local_environment()).process(Plain())) == [(time, BEGINNING) for _, time in EVENTS]
    assert collect(local_environment().from_collection([0]).process(Plain())) == [(None, BEGINNING)]


class Timers(KeyedProcessFunction):
    """Sets a timer 5 ms behind each record, and one that it deletes at once."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        assert isinstance(ctx, KeyedProcessFunction.Context)
        timers, time = ctx.timer_service(), ctx.timestamp()
        assert time is not None
        timers.register_event_time_timer(timestamp=time + 5)
        timers.register_event_time_timer(time + 6)
        timers.delete_event_time_timer(timestamp=time + 6)
        timers.register_processing_time_timer(timestamp=0)
        timers.delete_processing_time_timer(timestamp=0)
        yield "record", ctx.get_current_key(), time

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        assert isinstance(ctx, KeyedProcessFunction.OnTimerContext)
        assert ctx.time_domain() is TimeDomain.EVENT_TIME
        assert ctx.timer_service().current_watermark() >= timestamp == ctx.timestamp()
        yield "timer", ctx.get_current_key(), timestamp


TIMERS_SEEN = [("record", *event) for event in EVENTS] + [("timer", key, time + 5) for key, time in EVENTS]


def test_a_keyed_process_function_sees_key_and_timers() -> None:
    """A1: `on_timer` is called under the key and time of each timer that was not deleted."""
    assert sorted(collect(keyed(local_environment(2)).process(Timers()))) == sorted(TIMERS_SEEN)


class ByClock(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time())

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), ctx.time_domain().name, ctx.timer_service().current_processing_time() >= timestamp

    drain_processing_time_timers = True


def test_a_timer_tells_which_time_it_goes_by() -> None:
    """A1: processing time is the other domain."""
    found = collect(keyed(local_environment()).process(ByClock()))
    assert set(found) == {("a", "PROCESSING_TIME", True), ("b", "PROCESSING_TIME", True)}


class Two(CoProcessFunction):
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        assert isinstance(ctx, CoProcessFunction.Context)
        yield 1, ctx.timestamp(), ctx.timer_service().current_watermark()

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        yield 2, ctx.timestamp(), ctx.timer_service().current_watermark()


class KeyedTwo(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        assert isinstance(ctx, KeyedCoProcessFunction.Context)
        ctx.timer_service().register_event_time_timer(100)
        yield 1, ctx.get_current_key(), ctx.timestamp()

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        yield 2, ctx.get_current_key(), ctx.timestamp()

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[Any]:
        assert isinstance(ctx, KeyedCoProcessFunction.OnTimerContext)
        assert ctx.timer_service().current_watermark() >= timestamp == ctx.timestamp()
        yield ctx.time_domain().name, ctx.get_current_key(), timestamp


def test_functions_of_two_streams_see_times_and_keys() -> None:
    """A1: either side has the context of its record; a timer has that of its key."""
    env = local_environment()
    both = timed(env).connect(timed(env, [("c", 3)]))
    seen = [(side, time, BEGINNING) for side, time in ((1, 1), (1, 2), (1, 13), (2, 3))]
    assert sorted(collect(both.process(Two()))) == seen
    env = local_environment()
    both = timed(env).connect(timed(env, [("a", 3)])).key_by(lambda value: value[0], lambda value: value[0])
    assert sorted(collect(both.process(KeyedTwo())), key=str) == sorted(
        [(1, "a", 1), (1, "b", 2), (1, "a", 13), (2, "a", 3), ("EVENT_TIME", "a", 100), ("EVENT_TIME", "b", 100)],
        key=str,
    )


# --- broadcast --------------------------------------------------------------------------------------------------------


class Rules(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterator[Any]:
        assert isinstance(ctx, BroadcastProcessFunction.ReadOnlyContext)
        assert isinstance(ctx, BaseBroadcastProcessFunction.ReadOnlyContext)
        with pytest.raises(StateError, match="only be read"):
            ctx.get_broadcast_state(state_descriptor=RULES).put("rule", 0)
        yield "record", ctx.timestamp(), ctx.current_watermark(), ctx.current_processing_time() > 0

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> Iterator[Any]:
        assert isinstance(ctx, BroadcastProcessFunction.Context)
        assert isinstance(ctx, BaseBroadcastProcessFunction.Context)
        assert isinstance(ctx, BaseBroadcastProcessFunction.BaseContext)
        ctx.get_broadcast_state(RULES).put(*value)
        yield "rule", ctx.timestamp(), ctx.current_watermark(), ctx.current_processing_time() > 0


class KeyedRules(KeyedBroadcastProcessFunction):
    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Iterator[Any]:
        assert isinstance(ctx, KeyedBroadcastProcessFunction.ReadOnlyContext)
        ctx.timer_service().register_event_time_timer(100)
        yield "record", ctx.get_current_key(), ctx.timestamp()

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> Iterator[Any]:
        assert isinstance(ctx, KeyedBroadcastProcessFunction.Context)
        ctx.get_broadcast_state(RULES).put(*value)
        yield "rule", value[0], ctx.timestamp()

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Iterator[Any]:
        assert isinstance(ctx, KeyedBroadcastProcessFunction.OnTimerContext)
        assert ctx.time_domain() is TimeDomain.EVENT_TIME
        assert ctx.current_watermark() == ctx.timer_service().current_watermark() >= timestamp == ctx.timestamp()
        assert ctx.current_processing_time() > 0
        yield "timer", ctx.get_current_key(), ctx.get_broadcast_state(RULES).get("rule")


def test_broadcast_functions_see_times_and_one_side_writes() -> None:
    """A1, D2: both sides have times and the broadcast state; the side that is not broadcast cannot write it."""
    env = local_environment()
    rules = timed(env, [("rule", 7)]).broadcast(RULES)
    assert sorted(collect(timed(env).connect(rules).process(Rules()))) == [
        *(("record", time, BEGINNING, True) for _, time in EVENTS),
        ("rule", 7, BEGINNING, True),
    ]
    env = local_environment()
    rules = timed(env, [("rule", 7)]).broadcast(RULES)
    assert sorted(collect(keyed(env).connect(rules).process(KeyedRules()))) == [
        ("record", "a", 1),
        ("record", "a", 13),
        ("record", "b", 2),
        ("rule", "rule", 7),
        ("timer", "a", 7),
        ("timer", "b", 7),
    ]


# --- windows ----------------------------------------------------------------------------------------------------------


class Average(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


def every_kind_of_state(store: KeyedStateStore, number: int) -> tuple[Any, ...]:
    """What each kind of state holds with the number added."""
    assert isinstance(store, KeyedStateStore)
    value = store.get_state(state_descriptor=ValueStateDescriptor("value", Types.INT()))
    listed = store.get_list_state(state_descriptor=ListStateDescriptor("list", Types.INT()))
    mapped = store.get_map_state(state_descriptor=MapStateDescriptor("map", Types.INT(), Types.INT()))
    most = store.get_reducing_state(state_descriptor=ReducingStateDescriptor("most", max, Types.INT()))
    average = store.get_aggregating_state(
        state_descriptor=AggregatingStateDescriptor("average", Average(), Types.PICKLED_BYTE_ARRAY())
    )
    value.update(number)
    for appended in (listed, most, average):
        appended.add(number)
    mapped.put(number, number)
    return value.value(), list(listed.get()), dict(mapped.items()), most.get(), average.get()


class OfWindow(ProcessWindowFunction[Any, Any, str, TimeWindow]):
    def process(self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Any) -> Iterator[Any]:
        assert isinstance(context, ProcessWindowFunction.Context)
        assert context.current_watermark() >= context.window().max_timestamp()
        assert context.current_processing_time() > 0
        of_key = every_kind_of_state(context.global_state(), len(list(elements)))
        of_window = context.window_state().get_state(ValueStateDescriptor("fired"))
        of_window.update((of_window.value() or 0) + 1)
        yield key, context.window().start, of_key, of_window.value()

    def clear(self, context: ProcessWindowFunction.Context[TimeWindow]) -> None:
        context.window_state().get_state(ValueStateDescriptor("fired")).clear()


class OfAll(ProcessAllWindowFunction[Any, Any, TimeWindow]):
    def process(self, context: ProcessAllWindowFunction.Context[TimeWindow], elements: Any) -> Iterator[Any]:
        assert isinstance(context, ProcessAllWindowFunction.Context)
        of_window = context.window_state().get_list_state(ListStateDescriptor("seen"))
        of_window.add_all(elements)
        yield context.window().end, list(of_window.get()), every_kind_of_state(context.global_state(), 1)[1]

    def clear(self, context: ProcessAllWindowFunction.Context[TimeWindow]) -> None:
        context.window_state().get_list_state(ListStateDescriptor("seen")).clear()


def test_window_functions_see_the_window_times_and_two_kinds_of_state() -> None:
    """C1, D1: state of the key goes on from window to window, that of a window begins anew with each."""
    events = [("a", 1), ("a", 2), ("a", 11)]
    windows = timed(local_environment(), events).key_by(lambda value: value[0]).window(TumblingEventTimeWindows.of(10))
    assert collect(windows.process(OfWindow())) == [
        ("a", 0, (2, [2], {2: 2}, 2, 2.0), 1),
        ("a", 10, (1, [2, 1], {2: 2, 1: 1}, 2, 1.5), 1),
    ]
    all_windows = timed(local_environment(), events).window_all(TumblingEventTimeWindows.of(10))
    assert collect(all_windows.process(OfAll())) == [(10, [("a", 1), ("a", 2)], [1]), (20, [("a", 11)], [1, 1])]


# --- the subtask ------------------------------------------------------------------------------------------------------


class Where(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        assert isinstance(runtime_context, KeyedStateStore)
        context = runtime_context
        self.told = (
            context.get_task_name(),
            context.get_task_name_with_subtasks(),
            context.get_index_of_this_subtask(),
            context.get_number_of_parallel_subtasks(),
            context.get_max_number_of_parallel_subtasks(),
            context.get_attempt_number(),
            context.get_job_parameter(key="city", default_value="?"),
            context.get_job_parameter(key="street", default_value="?"),
        )

    def map(self, value: Any) -> Any:
        return self.told


def test_a_function_knows_its_subtask() -> None:
    """A1: names, index, parallelism, number of key groups, attempt and the job's parameters."""
    env = local_environment(2).set_max_parallelism(16)
    env.get_config().set_global_job_parameters(global_job_parameters_dict={"city": "Graz"})
    stream = env.from_collection(range(4)).rebalance().map(Where()).name("where")
    assert set(collect(stream.disable_chaining())) == {
        ("where", f"where ({index + 1}/2)", index, 2, 16, 0, "Graz", "?") for index in (0, 1)
    }


class Opened(MapFunction):
    """Tells a list outside of what happens to it."""

    calls: list[str] = []  # noqa: RUF012 - shared between the copies of the function that run in this process

    def open(self, runtime_context: RuntimeContext) -> None:
        self.calls.append("open")

    def map(self, value: Any) -> Any:
        if value is None:
            raise ValueError("no")
        self.calls.append("map")
        return value

    def close(self) -> None:
        self.calls.append("close")


@pytest.mark.parametrize("values", [[1, 2], [None]])
def test_a_function_is_opened_before_and_closed_after_its_records(values: list[Any]) -> None:
    """A1: also when it fails."""
    assert issubclass(MapFunction, Function)
    Opened.calls.clear()
    stream = local_environment().from_collection(values).map(Opened())
    if values == [None]:
        with pytest.raises(Exception, match="no"):
            collect(stream)
    else:
        assert collect(stream) == values
    assert Opened.calls == ["open", *("map" for value in values if value is not None), "close"]
