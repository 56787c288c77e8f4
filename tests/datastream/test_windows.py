"""Windows in whole programs on the local driver: every way into them, and which operator does the work."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from penstock.base.configuration import Configuration
from penstock.base.output_tag import OutputTag
from penstock.base.restart_strategy import RestartStrategies
from penstock.base.time import Duration, Time
from penstock.base.typeinfo import Types, TypeSerializer
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    MapFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    CumulativeEventTimeWindows,
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeWindow,
    TimeWindowSerializer,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from penstock.plan.transformation import get_factory
from penstock.runtime.operators.window.aligned import AlignedWindowOperator, SessionWindowOperator
from penstock.runtime.operators.window.general import WindowOperator

logging.getLogger("penstock").addHandler(logging.NullHandler())

EVENTS = [("ab"[n % 2], n) for n in range(40)]  # (key, event time in ms)
LATE = OutputTag("late")


def environment(parallelism: int = 2, **options: Any) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    for key, value in options.items():
        configuration.set_string(key, str(value))
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)


def timed(env: StreamExecutionEnvironment, events: Any = EVENTS) -> Any:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value[1])
    return env.from_collection(events).assign_timestamps_and_watermarks(strategy)


def keyed(env: StreamExecutionEnvironment, events: Any = EVENTS) -> Any:
    return timed(env, events).key_by(lambda value: value[0])


def collect(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as results:
        return sorted(results)


def find_operator_type(stream: Any) -> type[Any]:
    """Which operator a window's transformation makes."""
    (upstream,) = stream.upstreams
    return type(get_factory(upstream.transformation.node)())


# --- functions --------------------------------------------------------------------------------------------------------


class Latest(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return max(value1, value2)


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Apply(WindowFunction[Any, Any, str, Any]):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return [(key, window.max_timestamp(), sorted(inputs))]


class Process(ProcessWindowFunction):
    def process(self, key: Any, context: ProcessWindowFunction.Context, elements: Any) -> Any:
        yield key, context.window().max_timestamp(), sorted(elements)


class ApplyAll(AllWindowFunction[Any, Any, Any]):
    def apply(self, window: Any, inputs: Any) -> Any:
        return [(window.max_timestamp(), sorted(inputs))]


class ProcessAll(ProcessAllWindowFunction[Any, Any, Any]):
    def process(self, context: ProcessAllWindowFunction.Context, elements: Any) -> Any:
        yield context.window().max_timestamp(), sorted(elements)


def in_windows(of: Any) -> list[Any]:
    """(key, last ms, what `of` makes of the records) of the windows of 10 ms."""
    found: dict[Any, list[Any]] = defaultdict(list)
    for key, time in EVENTS:
        found[key, time // 10 * 10 + 9].append((key, time))
    return sorted((key, end, of(values)) for (key, end), values in found.items())


@pytest.mark.parametrize("trigger", [None, PurgingTrigger.of(EventTimeTrigger.create())], ids=["fast", "general"])
def test_every_form_of_keyed_windows(trigger: Any) -> None:
    """C1: reduce and aggregate alone, with a window function and with a process window function; apply; process."""

    def windows() -> Any:
        made = keyed(environment()).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        return made if trigger is None else made.trigger(trigger)

    latest, count = in_windows(lambda values: [max(values)]), in_windows(lambda values: [len(values)])
    everything = in_windows(sorted)
    assert collect(windows().reduce(Latest())) == sorted(value for _, _, (value,) in latest)
    assert collect(windows().reduce(Latest(), window_function=Apply())) == latest
    assert collect(windows().reduce(Latest(), Process(), output_type=Types.PICKLED_BYTE_ARRAY())) == latest
    assert collect(windows().aggregate(Count())) == sorted(value for _, _, (value,) in count)
    assert collect(windows().aggregate(Count(), window_function=Apply())) == count
    assert collect(windows().aggregate(Count(), Process(), Types.INT(), Types.INT())) == count
    assert collect(windows().apply(Apply())) == everything
    assert collect(windows().process(Process())) == everything


@pytest.mark.parametrize("trigger", [None, PurgingTrigger.of(EventTimeTrigger.create())], ids=["fast", "general"])
def test_every_form_of_windows_of_all_records(trigger: Any) -> None:
    """C1, B2: the same on a stream without keys, in one subtask whatever the job's parallelism."""

    def windows() -> Any:
        made = timed(environment(4)).window_all(TumblingEventTimeWindows.of(10))
        return made if trigger is None else made.trigger(trigger)

    parts = {end: [e for e in EVENTS if e[1] // 10 * 10 + 9 == end] for end in (9, 19, 29, 39)}
    latest = [(end, [max(values)]) for end, values in parts.items()]
    count = [(end, [10]) for end in parts]
    everything = [(end, sorted(values)) for end, values in parts.items()]
    assert collect(windows().reduce(Latest())) == sorted(value for _, (value,) in latest)
    assert collect(windows().reduce(Latest(), ApplyAll())) == latest
    assert collect(windows().reduce(Latest(), ProcessAll())) == latest
    assert collect(windows().aggregate(Count())) == [10] * 4
    assert collect(windows().aggregate(Count(), ApplyAll())) == count
    assert collect(windows().aggregate(Count(), ProcessAll())) == count
    assert collect(windows().apply(ApplyAll())) == everything
    assert collect(windows().process(ProcessAll())) == everything


def test_windows_of_all_records_stay_in_one_subtask() -> None:
    """B2: their parallelism is 1, and another one is refused."""
    env = environment(4)
    stream = timed(env).window_all(TumblingEventTimeWindows.of(10)).reduce(Latest()).set_parallelism(2)
    with pytest.raises(ValueError, match="at most parallelism 1"):
        collect(stream)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_count_windows(parallelism: int) -> None:
    """C1: windows of so many records of a key; those that are not full do not fire."""
    windows = keyed(environment(parallelism)).count_window(6)
    values = {key: [e for e in EVENTS if e[0] == key] for key in "ab"}
    expected = [values[key][n : n + 6] for key in "ab" for n in (0, 6, 12)]
    assert collect(windows.apply(lambda key, window, inputs: [list(inputs)])) == expected


def test_sliding_count_windows() -> None:
    """C1: a new window every so many records of a key, which fires when it is full."""
    windows = keyed(environment()).count_window(10, 5)
    values = {key: [e for e in EVENTS if e[0] == key] for key in "ab"}
    expected = [values[key][n : n + 10] for key in "ab" for n in (0, 5, 10)]
    assert collect(windows.apply(lambda key, window, inputs: [list(inputs)])) == expected


def test_count_windows_of_all_records() -> None:
    """C1: the same without keys, in the order in which the records come."""
    env = environment(1)
    tumbling = env.from_collection(range(7)).count_window_all(3).apply(lambda window, inputs: [list(inputs)])
    assert collect(tumbling) == [[0, 1, 2], [3, 4, 5]]
    env = environment(1)
    sliding = env.from_collection(range(7)).count_window_all(3, 2).apply(lambda window, inputs: [list(inputs)])
    assert collect(sliding) == [[0, 1, 2], [2, 3, 4], [4, 5, 6]]


def test_triggers_and_evictors_in_a_program() -> None:
    """C1: `trigger` and `evictor` of keyed windows and of windows of all records."""
    env = environment(1)
    windows = keyed(env).window(GlobalWindows.create()).trigger(CountTrigger.of(10)).evictor(CountEvictor.of(2))
    assert collect(windows.reduce(lambda one, other: (one[0], one[1], other[1]))) == [
        ("a", 16, 18), ("a", 36, 38), ("b", 17, 19), ("b", 37, 39),
    ]  # fmt: skip
    env = environment(1)
    all_windows = timed(env).window_all(GlobalWindows.create()).trigger(CountTrigger.of(20)).evictor(CountEvictor.of(3))
    assert collect(all_windows.process(ProcessAll())) == [
        (2**63 - 1, [("a", 18), ("b", 17), ("b", 19)]),
        (2**63 - 1, [("a", 38), ("b", 37), ("b", 39)]),
    ]


@pytest.mark.parametrize("trigger", [None, PurgingTrigger(EventTimeTrigger())], ids=["fast", "general"])
def test_lateness_and_late_data(trigger: Any) -> None:
    """C1: late records within the lateness fire again; later ones go to the side output."""
    events = [("a", 1), ("a", 10), ("a", 2), ("a", 20), ("a", 3), ("a", 30)]
    env = environment(1, **{"penstock.source.batch-records": 1})
    windows = keyed(env, events).window(TumblingEventTimeWindows.of(10))
    windows = windows.allowed_lateness(Duration.of_millis(5)).side_output_late_data(LATE)
    if trigger is not None:
        windows = windows.trigger(trigger)
    fired = windows.apply(lambda key, window, inputs: [[time for _, time in inputs]])
    late = fired.get_side_output(LATE).map(lambda value: ["late", value[1]])
    again = [2] if trigger else [1, 2]
    with fired.union(late).execute_and_collect() as results:
        assert sorted(map(str, results)) == sorted(map(str, [[1], again, [10], [20], [30], ["late", 3]]))


def test_late_data_of_windows_of_all_records() -> None:
    """C1: lateness and late data without keys."""
    events = [("a", 1), ("a", 30), ("a", 3)]
    env = environment(1, **{"penstock.source.batch-records": 1})
    windows = timed(env, events).window_all(TumblingEventTimeWindows.of(10)).allowed_lateness(5)
    assert collect(windows.side_output_late_data(LATE).reduce(Latest()).get_side_output(LATE)) == [("a", 3)]


class Totals(ProcessWindowFunction):
    """Numbers a key's windows."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        windows = context.global_state().get_state(ValueStateDescriptor("windows"))
        windows.update((windows.value() or 0) + 1)
        yield key, context.window().start, windows.value()


class TotalsOfAll(ProcessAllWindowFunction):
    """Numbers the windows, and the firings of each."""

    def process(self, context: Any, elements: Any) -> Any:
        states = (context.global_state(), context.window_state())
        counts = []
        for state in states:
            count = state.get_state(ValueStateDescriptor("count"))
            count.update((count.value() or 0) + 1)
            counts.append(count.value())
        yield context.window().start, *counts

    def clear(self, context: Any) -> None:
        context.window_state().get_state(ValueStateDescriptor("count")).clear()


def test_state_in_window_functions() -> None:
    """C1, D1: state of a key over its windows, in the fast operator; state of windows of all records."""
    stream = keyed(environment()).window(TumblingEventTimeWindows.of(10)).process(Totals())
    assert collect(stream) == [(key, 10 * n, n + 1) for key in "ab" for n in range(4)]
    env = environment(1, **{"penstock.source.batch-records": 1})
    windows = timed(env).window_all(TumblingEventTimeWindows.of(20)).trigger(ContinuousEventTimeTrigger.of(10))
    assert collect(windows.process(TotalsOfAll())) == [(0, 1, 1), (0, 2, 2), (20, 3, 1), (20, 4, 2)]


def test_dynamic_sessions_in_a_program() -> None:
    """C1: the record says for how long its session stays open."""
    events = [("a", 0), ("a", 3), ("b", 4), ("a", 20)]
    assigner = DynamicEventTimeSessionWindows.with_dynamic_gap(lambda value: 5 if value[0] == "a" else 1)
    windows = keyed(environment(), events).window(assigner)
    assert collect(windows.reduce(Latest(), Apply())) == [
        ("a", 7, [("a", 3)]),
        ("a", 24, [("a", 20)]),
        ("b", 4, [("b", 4)]),
    ]


def test_cumulative_windows_in_a_program() -> None:
    """C1: each step of a window gives what came since its beginning."""
    windows = keyed(environment()).window(CumulativeEventTimeWindows.of(Time.milliseconds(40), Time.milliseconds(10)))
    expected = [(key, end, [count]) for key in "ab" for end, count in ((9, 5), (19, 10), (29, 15), (39, 20))]
    assert collect(windows.aggregate(Count(), Process())) == expected


def test_processing_time_windows_in_a_program() -> None:
    """C1: by the clock: everything comes in some window, in a job whose source outlasts them."""
    env = environment(1)
    source = DataGeneratorSource(lambda index: index, rate_per_second=500)
    windows = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").key_by(lambda n: n % 2)
    counted: Any = windows.window(TumblingProcessingTimeWindows.of(20)).aggregate(Count(), Process())
    with counted.execute_and_collect() as results:
        seen = [next(results) for _ in range(6)]
    assert {key for key, _, _ in seen} == {0, 1}
    assert all(end % 20 == 19 and count > 0 for _, end, (count,) in seen)


WAYS: dict[str, Any] = {
    "fast": lambda s: s.window(TumblingEventTimeWindows(10)).process(Process()),
    "purging": lambda s: (
        s.window(TumblingEventTimeWindows(10)).trigger(PurgingTrigger(EventTimeTrigger())).apply(Apply())
    ),
    "sessions": lambda s: s.window(DynamicEventTimeSessionWindows(lambda e: 1 + e[1] % 4)).apply(Apply()),
    "count": lambda s: s.count_window(6, 4).apply(Apply()),
    "evicting": lambda s: s.window(EventTimeSessionWindows(5)).evictor(CountEvictor(3)).apply(Apply()),
    "continuous": lambda s: (
        s.window(TumblingEventTimeWindows(20)).trigger(ContinuousEventTimeTrigger(7)).aggregate(Count(), Apply())
    ),
    "all": lambda s: s.window_all(TumblingEventTimeWindows(10)).process(ProcessAll()),
    "all, purging": lambda s: (
        s.window_all(TumblingEventTimeWindows(10)).trigger(PurgingTrigger(EventTimeTrigger())).process(ProcessAll())
    ),
    "all, count": lambda s: s.count_window_all(7).aggregate(Count()),
}


@pytest.mark.parametrize("way", WAYS)
def test_batch_execution_gives_the_same(way: str) -> None:
    """I1: windows of a bounded program in batch execution and in streaming, in which all records come in one batch."""

    def run(mode: RuntimeExecutionMode) -> list[Any]:
        env = environment(2).set_runtime_mode(mode)
        return collect(WAYS[way](keyed(env)))

    streamed = run(RuntimeExecutionMode.STREAMING)
    assert streamed
    assert run(RuntimeExecutionMode.BATCH) == streamed


def test_processing_time_windows_in_batch_execution() -> None:
    """I1: windows of the clock fire at the end of their key, as in Flink; none is dropped."""
    env = environment(2).set_runtime_mode(RuntimeExecutionMode.BATCH)
    windows = keyed(env).window(TumblingProcessingTimeWindows.of(Time.days(1000)))
    assert sorted(count for _, _, (count,) in collect(windows.aggregate(Count(), Apply()))) == [20, 20]


class FailsOnce(MapFunction):
    """Raises at a record, once in the life of a marker file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def map(self, value: Any) -> Any:
        if value[1] == 700 and not self.marker.exists():
            self.marker.write_text("failed")
            raise RuntimeError("once")
        return value


@pytest.mark.parametrize("state_backend", ["hashmap", "rocksdb"])
def test_windows_through_a_failure(state_backend: str, tmp_path: Path) -> None:
    """C1, G8, D3: a job with counting and continuous windows that fails and recovers gives each result exactly once."""
    env = environment(2, **{"penstock.source.batch-records": 16, "state.backend.type": state_backend})
    env.enable_checkpointing(2)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 1))
    events = [("abc"[n % 3], n) for n in range(1500)]
    marker = tmp_path / "marker"
    stream = keyed(env, events).map(FailsOnce(marker)).key_by(lambda value: value[0])
    fired = stream.count_window(50).aggregate(Count(), Apply()).uid("counted")
    assert collect(fired) == sorted((key, 2**63 - 1, [50]) for key in "abc" for _ in range(10))
    assert marker.exists()


# --- which operator, and what is refused ------------------------------------------------------------------------------


def test_the_fast_operators_do_what_they_can() -> None:
    """C1: event-time windows with the default trigger, whatever is made of them, run in the fast operators."""
    stream = keyed(environment())
    for assigner in (TumblingEventTimeWindows(10), SlidingEventTimeWindows(10, 5), CumulativeEventTimeWindows(10, 5)):
        assert find_operator_type(stream.window(assigner).process(Process())) is AlignedWindowOperator
    windows = stream.window(EventTimeSessionWindows(10)).trigger(EventTimeTrigger.create())
    assert find_operator_type(windows.aggregate(Count())) is SessionWindowOperator
    assert find_operator_type(timed(environment()).window_all(TumblingEventTimeWindows(10)).reduce(Latest())) is (
        AlignedWindowOperator
    )


def test_the_general_operator_does_the_rest() -> None:
    """C1: another trigger, an evictor, another assigner, or a function that wants to clean up."""

    class Own(TumblingEventTimeWindows):
        pass

    class Cleaning(Process):
        def clear(self, context: Any) -> None:
            pass

    stream = keyed(environment())
    tumbling = TumblingEventTimeWindows(10)
    for windows in (
        stream.window(tumbling).trigger(CountTrigger(1)),
        stream.window(tumbling).evictor(CountEvictor(1)),
        stream.window(Own(10)),
        stream.window(TumblingProcessingTimeWindows(10)),
        stream.count_window(3),
    ):
        assert find_operator_type(windows.reduce(Latest())) is WindowOperator
    assert find_operator_type(stream.window(tumbling).process(Cleaning())) is WindowOperator


def test_what_does_not_fit_is_refused_at_once() -> None:
    """C1: wrong kinds of arguments, a trigger that cannot merge on windows that do, a negative lateness."""
    stream = keyed(environment())
    with pytest.raises(TypeError, match="WindowAssigner"):
        stream.window(10)
    with pytest.raises(TypeError, match="Trigger"):
        stream.window(TumblingEventTimeWindows(10)).trigger(10)
    with pytest.raises(TypeError, match="Evictor"):
        stream.window(TumblingEventTimeWindows(10)).evictor(10)
    with pytest.raises(ValueError, match="at least 0 ms"):
        stream.window(TumblingEventTimeWindows(10)).allowed_lateness(-1)
    with pytest.raises(ValueError, match="NeverTrigger does not support that"):
        stream.window(EventTimeSessionWindows(10)).trigger(NeverTrigger())


def test_what_windows_say_of_themselves() -> None:
    """B1: windows know their environment and the type of their records."""
    env = environment()
    for windows in (keyed(env).window(GlobalWindows()), timed(env).window_all(GlobalWindows())):
        assert windows.get_execution_environment() is env
        assert windows.get_input_type() == Types.PICKLED_BYTE_ARRAY()


def test_functions_triggers_and_assigners_may_be_subscripted() -> None:
    """A1: programs that give PyFlink's base classes their types run unchanged."""

    class Typed(ProcessWindowFunction[tuple, tuple, str, TimeWindow]):
        def process(self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Any) -> Any:
            yield key, context.window().start, len(list(elements))

    class TypedTrigger(Trigger[tuple, TimeWindow]):
        def on_element(self, element: tuple, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
            return TriggerResult.FIRE_AND_PURGE if element[1] % 10 == 9 else TriggerResult.CONTINUE

        def on_event_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
            return TriggerResult.CONTINUE

        def on_processing_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
            return TriggerResult.CONTINUE

        def on_merge(self, window: TimeWindow, ctx: Any) -> None:
            pass

        def clear(self, window: TimeWindow, ctx: Any) -> None:
            pass

    class TypedAssigner(WindowAssigner[tuple, TimeWindow]):
        def assign_windows(self, element: tuple, timestamp: int, context: Any) -> Collection[TimeWindow]:
            return [TimeWindow(timestamp // 10 * 10, timestamp // 10 * 10 + 10)]

        def get_default_trigger(self, env: StreamExecutionEnvironment) -> Trigger[tuple, TimeWindow]:
            return TypedTrigger()

        def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
            return TimeWindowSerializer()

        def is_event_time(self) -> bool:
            return True

    typed = keyed(environment()).window(TypedAssigner()).process(Typed())
    assert collect(typed) == [("b", n, 5) for n in range(0, 40, 10)]


def test_names_of_window_operators() -> None:
    """B1: plans say what is done, and whether it is done for all records."""
    stream = timed(environment())
    assert stream.window_all(GlobalWindows()).reduce(Latest()).get_name() == "All-Window Reduce"
    assert keyed(environment()).window(GlobalWindows()).apply(Apply()).get_name() == "Window Apply"
