"""Keyed process functions: every kind of state, both kinds of timers."""

from functools import partial

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from penstock.base.output_tag import OutputTag
from penstock.datastream.functions import AggregateFunction, KeyedProcessFunction, MapFunction
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.record.process import KeyedProcessOperator, TimeDomain
from penstock.runtime.records import Watermark
from penstock.state.errors import StateError
from penstock.state.states import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.testing import OneInputOperatorHarness, ProcessingTime, Record, harness_for, run_hostile

KEYS = "abc"


def first(value):
    return value[0]


def keyed(function):
    return partial(KeyedProcessOperator, function, first)


class Mean(AggregateFunction):
    def create_accumulator(self):
        return [0, 0]

    def add(self, value, accumulator):
        accumulator[0] += value
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]


class AllStates(KeyedProcessFunction):
    """Emits what all kinds of state hold after each record."""

    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))
        self.all = runtime_context.get_list_state(ListStateDescriptor("all"))
        self.counts = runtime_context.get_map_state(MapStateDescriptor("counts"))
        self.sum = runtime_context.get_reducing_state(ReducingStateDescriptor("sum", lambda a, b: a + b))
        self.mean = runtime_context.get_aggregating_state(AggregatingStateDescriptor("mean", Mean()))

    def process_element(self, value, ctx):
        number = value[1]
        if number == 0:
            for state in (self.last, self.all, self.counts, self.sum, self.mean):
                state.clear()
        else:
            self.last.update(number)
            self.all.add(number)
            self.counts.put(number, (self.counts.get(number) or 0) + 1)
            self.sum.add(number)
            self.mean.add(number)
        yield (
            ctx.get_current_key(),
            self.last.value(),
            list(self.all.get()),
            dict(self.counts.items()),
            self.sum.get(),
            self.mean.get(),
        )


class Model:
    def __init__(self):
        self.numbers = {}

    def step(self, key, number):
        numbers = self.numbers.setdefault(key, [])
        numbers.append(number)
        if number == 0:
            numbers.clear()
        if not numbers:
            return key, None, [], {}, None, None
        counts = {n: numbers.count(n) for n in numbers}
        return key, numbers[-1], list(numbers), counts, sum(numbers), sum(numbers) / len(numbers)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 4)), max_size=12))
def test_all_states_against_model(values):
    """D1: value, list, map, reducing and aggregating state of the current key only, through any snapshot."""
    model = Model()
    expected = [model.step(*value) for value in values]
    run_hostile(keyed(AllStates()), [Record(v) for v in values], expected)


class Everything(KeyedProcessFunction):
    """Exercises the rest of the state interfaces."""

    def open(self, runtime_context):
        self.items = runtime_context.get_list_state(ListStateDescriptor("items"))
        self.table = runtime_context.get_map_state(MapStateDescriptor("table"))
        self.value = runtime_context.get_state(ValueStateDescriptor("value"))

    def process_element(self, value, ctx):
        items, table = self.items, self.table
        assert list(items) == []
        items.add_all([1, 2])
        items.add_all([])
        items.update([3])
        assert list(items) == [3]
        items.update([])
        assert list(items) == []
        assert table.is_empty()
        table.put_all({"a": 1, "b": 2})
        table["c"] = 3
        assert "a" in table
        assert table.contains("b")
        assert table["c"] == 3
        assert table.get("z") is None
        assert len(table) == 3
        assert sorted(table) == ["a", "b", "c"] == sorted(table.keys())
        assert sorted(table.values()) == [1, 2, 3]
        for key in table:
            table.remove(key)
        with pytest.raises(KeyError):
            del table["a"]
        with pytest.raises(KeyError):
            table["a"]
        assert table.is_empty()
        self.value.update(1)
        self.value.update(None)
        assert self.value.value() is None
        yield "ok"


def test_state_interfaces():
    """D1: the whole interface of list, map and value state; what is empty leaves nothing behind."""
    with harness_for(Everything(), first) as harness:
        harness.process(("k", 0))
        harness.process(("k", 0))
        assert harness.values == ["ok", "ok"]
        tables = harness.context.keyed._tables.values()  # type: ignore[attr-defined]
        assert tables
        assert not any(entries for table in tables for entries in table.panes.values())


def test_state_without_key_is_refused():
    """D1: state touched while there is no key is an error that says so."""

    class InOpen(KeyedProcessFunction):
        def open(self, runtime_context):
            runtime_context.get_state(ValueStateDescriptor("s")).update(1)

        def process_element(self, value, ctx): ...

    class OnPlainStream(MapFunction):
        def open(self, runtime_context):
            self.state = runtime_context.get_list_state(ListStateDescriptor("s"))

        def map(self, value):
            self.state.add(value)

    with pytest.raises(UserCodeError) as caught:
        harness_for(InOpen(), first).open()
    assert isinstance(caught.value.__cause__, StateError)
    with harness_for(OnPlainStream()) as harness, pytest.raises(UserCodeError) as caught:
        harness.process(1)
    assert isinstance(caught.value.__cause__, StateError)
    assert "after key_by" in str(caught.value.__cause__)


def test_one_name_for_two_kinds_of_state_is_refused():
    """D1: two states of one name and different kinds are an error that names operator and state."""

    class Twice(KeyedProcessFunction):
        def open(self, runtime_context):
            runtime_context.get_state(ValueStateDescriptor("s"))
            runtime_context.get_map_state(MapStateDescriptor("s"))

        def process_element(self, value, ctx): ...

    with pytest.raises(UserCodeError) as caught:
        harness_for(Twice(), first, name="mine").open()
    assert "mine" in str(caught.value.__cause__)
    assert "'s'" in str(caught.value.__cause__)


# --- timers ---------------------------------------------------------------------------------------------------------


class TimerScript(KeyedProcessFunction):
    """Records are (key, [commands]); a command is (verb, domain, time)."""

    def process_element(self, value, ctx):
        service = ctx.timer_service()
        for verb, domain, time in value[1]:
            getattr(service, f"{verb}_{domain}_time_timer")(time)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, ctx.timestamp(), ctx.time_domain().name


def commands(*texts):
    """`"+e5"`: register an event-time timer at 5; `-` deletes, `p` is processing time."""
    verbs, domains = {"+": "register", "-": "delete"}, {"e": "event", "p": "processing"}
    return [(verbs[t[0]], domains[t[1]], int(t[2:])) for t in texts]


EVENT, PROCESSING = TimeDomain.EVENT_TIME.name, TimeDomain.PROCESSING_TIME.name


def test_event_timers_fire_in_order_once():
    """A1: event-time timers fire in order of time when the watermark reaches them, each once, with its timestamp."""
    inputs = [
        Record(("a", commands("+e30", "+e10", "+e10")), 1),
        Record(("b", commands("+e10", "+e20")), 1),
        Watermark(9),
        Watermark(20),
        Watermark(29),
        Watermark(30),
    ]
    expected = [("a", 10, 10, EVENT), ("b", 10, 10, EVENT), ("b", 20, 20, EVENT), ("a", 30, 30, EVENT)]
    run_hostile(keyed(TimerScript()), inputs, [Record(e, e[1]) for e in expected])


def test_a_timer_behind_the_watermark_waits_for_the_next_one():
    """A1: a timer set behind the watermark fires at the next one; a restart in between does not make it fire."""
    inputs = [
        Watermark(50),
        Record(("a", commands("+e20", "+e30")), 1),
        Record(("b", commands("+e50")), 1),
        Record(("a", commands("-e20")), 1),
        Watermark(51),
    ]
    expected = [("a", 30, 30, EVENT), ("b", 50, 50, EVENT)]
    run_hostile(keyed(TimerScript()), inputs, [Record(e, e[1]) for e in expected])


def test_processing_timers_fire_in_order_once():
    """A1: processing-time timers fire when the clock reaches them, independent of event time."""
    inputs = [
        Record(("a", commands("+p30", "+p10", "+p10", "+e7"))),
        Record(("b", commands("+p20"))),
        ProcessingTime(9),
        ProcessingTime(11),
        ProcessingTime(100),
    ]
    expected = [("a", 10, 10, PROCESSING), ("b", 20, 20, PROCESSING), ("a", 30, 30, PROCESSING)]
    run_hostile(keyed(TimerScript()), inputs, expected, end=False)


def test_deleted_timers_do_not_fire():
    """A1: a deleted timer does not fire; deleting another key's or another domain's timer does nothing."""
    inputs = [
        Record(("a", commands("+e10", "+e20", "+p10", "+p20")), 1),
        Record(("a", commands("-e10", "-p20")), 1),
        Record(("b", commands("-e20", "-p10")), 1),
        Record(("b", commands("-e99")), 1),
        ProcessingTime(50),
    ]
    run_hostile(keyed(TimerScript()), inputs, [("a", 10, 10, PROCESSING), ("a", 20, 20, EVENT)])


def test_timers_not_due_fire_at_the_end_of_event_time():
    """F3: at the end of input all event-time timers fire; those of processing time do not (F5)."""
    inputs = [Record(("a", commands("+e1000", "+p1000")), 1)]
    run_hostile(keyed(TimerScript()), inputs, [("a", 1000, 1000, EVENT)])


class Chain(KeyedProcessFunction):
    """Each timer sets the next one, until 5; state counts them."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp, ctx):
        fired = (self.count.value() or 0) + 1
        self.count.update(fired)
        if fired < 5:
            ctx.timer_service().register_event_time_timer(timestamp + 10)
        yield ctx.get_current_key(), timestamp, fired, ctx.timer_service().current_watermark()


def test_timers_set_while_firing():
    """A1: a timer that is set while timers fire, and is due, fires in the same go, after those before it."""
    inputs = [Record(("a", 0), 0), Record(("b", 15), 0), Watermark(30), Watermark(1000)]
    expected = [
        ("a", 0, 1, 30), ("a", 10, 2, 30), ("b", 15, 1, 30), ("a", 20, 3, 30), ("b", 25, 2, 30), ("a", 30, 4, 30),
        ("b", 35, 3, 1000), ("a", 40, 5, 1000), ("b", 45, 4, 1000), ("b", 55, 5, 1000),
    ]  # fmt: skip
    run_hostile(keyed(Chain()), inputs, expected)


class SameTime(KeyedProcessFunction):
    """A timer that sets itself again at its own time, twice."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp, ctx):
        fired = (self.count.value() or 0) + 1
        self.count.update(fired)
        if fired < 3:
            ctx.timer_service().register_event_time_timer(timestamp)
        yield ctx.get_current_key(), timestamp, fired


def test_timer_set_again_at_its_own_time():
    """A1: a timer set anew at the time that is firing fires anew."""
    inputs = [Record(("a", 5), 0), Watermark(5)]
    run_hostile(keyed(SameTime()), inputs, [("a", 5, 1), ("a", 5, 2), ("a", 5, 3)])


class DeletesOthers(KeyedProcessFunction):
    def process_element(self, value, ctx):
        for time in value[1]:
            ctx.timer_service().register_event_time_timer(time)

    def on_timer(self, timestamp, ctx):
        ctx.timer_service().delete_event_time_timer(timestamp + 1)
        yield ctx.get_current_key(), timestamp


def test_timer_deletes_a_later_one():
    """A1: a timer may delete one of the same key that is due in the same go."""
    inputs = [Record(("a", [1, 2, 3]), 0), Record(("b", [2]), 0), Watermark(10)]
    run_hostile(keyed(DeletesOthers()), inputs, [("a", 1), ("b", 2), ("a", 3)])


def test_timer_set_in_the_past_fires_with_the_next_watermark():
    """A1: a timer at or before the current watermark fires when the watermark next advances."""
    with harness_for(TimerScript(), first) as harness:
        harness.watermark(100)
        harness.process(("a", commands("+e50")), 120)
        assert harness.values == []
        harness.watermark(101)
        assert harness.values == [("a", 50, 50, EVENT)]


def test_timer_output_goes_before_the_watermark():
    """C2: what a timer emits leaves before the watermark that made it fire."""
    with harness_for(TimerScript(), first) as harness:
        harness.process(("a", commands("+e50")), 1)
        harness.watermark(60)
        assert harness.captured.order == [Record(("a", 50, 50, EVENT), 50), 60]


def test_timers_reach_side_outputs_and_state():
    """A1: on_timer writes to side outputs and works with its key's state."""
    tag = OutputTag("expired")

    class Expire(KeyedProcessFunction):
        def open(self, runtime_context):
            self.last = runtime_context.get_state(ValueStateDescriptor("last"))

        def process_element(self, value, ctx):
            self.last.update(value[1])
            ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 10)

        def on_timer(self, timestamp, ctx):
            yield tag, (ctx.get_current_key(), self.last.value())

    inputs = [Record(("a", 1)), ProcessingTime(5), Record(("b", 2)), ProcessingTime(5), ProcessingTime(5)]
    run_hostile(keyed(Expire()), inputs, [], {tag: [Record(("a", 1), 10), Record(("b", 2), 15)]}, end=False)


TIMER_INPUTS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(KEYS),
            st.lists(st.tuples(st.sampled_from("+-"), st.integers(0, 30)), min_size=1, max_size=3),
        ),
        st.integers(0, 30),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=40)
@given(TIMER_INPUTS)
def test_timers_against_model(steps):
    """A1: setting, deleting and firing timers is as a sorted set of (time, key) would have it."""
    watermark = -1
    inputs: list = []
    expected: list = []
    due: set[tuple[int, str]] = set()
    for step in steps:
        if isinstance(step, int):
            watermark = max(watermark, step)
            inputs.append(Watermark(watermark))
            fired = sorted(t for t in due if t[0] <= watermark)
            due -= set(fired)
            expected += [(k, t) for t, k in fired]
        else:
            key, changes = step
            # In the past a timer would wait for the next watermark, which a restored instance hears at once.
            changes = [(verb, watermark + 1 + time) for verb, time in changes]
            inputs.append(Record((key, commands(*(f"{verb}e{time}" for verb, time in changes))), 0))
            for verb, time in changes:
                (due.add if verb == "+" else due.discard)((time, key))
    expected += [(k, t) for t, k in sorted(due)]
    with OneInputOperatorHarness(keyed(TimerScript())) as harness:
        for element in inputs:
            harness.feed(element)
        harness.end()
        outputs = [(v[0], v[1]) for v in harness.values]
    assert [t for _, t in outputs] == [t for _, t in expected]
    assert sorted(outputs) == sorted(expected)
    run_hostile(keyed(TimerScript()), inputs, [(k, t, t, EVENT) for k, t in outputs])


def test_order_within_one_time_is_that_of_registration():
    """A1: timers of one time fire in the order in which they were set, also after a recovery."""
    keys = ["z", "a", "m", "b"]
    inputs = [*(Record((k, commands("+e5")), 0) for k in keys), Watermark(5)]
    run_hostile(keyed(TimerScript()), inputs, [(k, 5, 5, EVENT) for k in keys])


def test_rescaled_timers_fire_where_their_key_lives():
    """D4: timers move with their key group."""
    keys = [f"k{n}" for n in range(30)]
    with harness_for(TimerScript(), first) as old:
        for key in keys:
            old.process((key, commands("+e5")), 0)
        snapshot = old.snapshot(1)
    fired = []
    for subtask in range(4):
        harness = OneInputOperatorHarness(keyed(TimerScript()), 4, subtask)
        harness.restore(snapshot)
        harness.open()
        harness.watermark(5)
        fired += [v[0] for v in harness.values]
        assert harness.values
    assert sorted(fired) == sorted(keys)
