"""Broadcast process functions: who may read and write what, timers, side outputs, snapshots."""

from functools import partial
from typing import Any

import pytest

from penstock.base.output_tag import OutputTag
from penstock.datastream.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.record.process import (
    BroadcastProcessOperator,
    KeyedBroadcastProcessOperator,
    TimeDomain,
)
from penstock.state.errors import StateError
from penstock.state.states import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.testing import Record, TwoInputOperatorHarness

RULES = MapStateDescriptor("rules")
LIMITS = MapStateDescriptor("limits")
UNKNOWN = OutputTag("unknown")


class Enrich(BroadcastProcessFunction):
    """Records with the rule of their name; those without one go to a side output."""

    def open(self, runtime_context):
        self.opened = True

    def process_element(self, value, ctx):
        rule = ctx.get_broadcast_state(RULES).get(value)
        if rule is None:
            yield UNKNOWN, value
        else:
            yield value, rule, ctx.timestamp(), ctx.current_watermark(), ctx.current_processing_time()

    def process_broadcast_element(self, value, ctx):
        assert self.opened
        rules = ctx.get_broadcast_state(RULES)
        rules.put(*value)
        ctx.get_broadcast_state(LIMITS).put("count", len(rules))
        yield f"rule {value[0]}", ctx.timestamp()


def unkeyed(function, **arguments):
    return TwoInputOperatorHarness(partial(BroadcastProcessOperator, function, (RULES, LIMITS)), **arguments)


def keyed(function, **arguments):
    factory = partial(KeyedBroadcastProcessOperator, function, lambda value: value[0], (RULES, LIMITS))
    return TwoInputOperatorHarness(factory, **arguments)


def test_both_sides():
    """A1, D2: what the broadcast side stores the other side reads; timestamps, times and side outputs as elsewhere."""
    with unkeyed(Enrich()) as harness:
        harness.process1("a", 1)
        harness.process2(("a", 10), 5)
        harness.watermark1(7)
        assert harness.watermarks == []
        harness.watermark2(6)
        harness.advance_processing_time(3)
        harness.process1("a", 8)
        assert harness.output == [Record(("rule a", 5), 5), Record(("a", 10, 8, 6, 3), 8)]
        assert harness.side_output(UNKNOWN) == [Record("a", 1)]
        assert harness.watermarks == [6]


def test_records_without_timestamps():
    """A1: records that carry no time have none in the context either."""
    with unkeyed(Enrich()) as harness:
        harness.process2(("a", 1))
        harness.process1("b")
        assert harness.output == [Record(("rule a", None), None)]
        assert harness.side_output(UNKNOWN) == [Record("b", None)]


class Calls(BroadcastProcessFunction):
    """Does what the record says."""

    def process_element(self, value, ctx):
        return value(ctx)

    def process_broadcast_element(self, value, ctx):
        return value(ctx)


@pytest.mark.parametrize("side", ["process1", "process2"])
def test_unknown_states_are_named(side):
    """D2: a descriptor that broadcast() was not given is an error with its name and those that it was given."""
    with unkeyed(Calls(), name="enrich") as harness:
        process = getattr(harness, side)
        with pytest.raises(UserCodeError) as caught:
            process(lambda ctx: ctx.get_broadcast_state(MapStateDescriptor("other")))
        assert isinstance(caught.value.__cause__, StateError)
        assert "'other'" in str(caught.value.__cause__)
        assert "'rules', 'limits'" in str(caught.value.__cause__)
        for wrong in (ListStateDescriptor("other"), "rules"):
            with pytest.raises(UserCodeError) as caught:
                process(lambda ctx, wrong=wrong: ctx.get_broadcast_state(wrong))
            assert isinstance(caught.value.__cause__, TypeError)


def test_only_the_broadcast_side_writes():
    """D2: writing on the other side is an error, and changes nothing."""
    with unkeyed(Calls()) as harness:
        harness.process2(lambda ctx: ctx.get_broadcast_state(RULES).put("a", 1))
        with pytest.raises(UserCodeError) as caught:
            harness.process1(lambda ctx: ctx.get_broadcast_state(RULES).put("a", 2))
        assert isinstance(caught.value.__cause__, StateError)
        harness.process1(lambda ctx: [ctx.get_broadcast_state(RULES)["a"]])
        assert harness.values == [1]


class Waiting(KeyedBroadcastProcessFunction):
    """(key, number) times the key's factor; what has none yet waits, and is told of after ten ms of its own time."""

    def open(self, runtime_context):
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting"))

    def process_element(self, value, ctx):
        key, number = value
        assert key == ctx.get_current_key()
        factor = ctx.get_broadcast_state(RULES).get(key)
        if factor is None:
            self.waiting.add(number)
            ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)
            ctx.timer_service().register_processing_time_timer(1_000)
        else:
            yield key, number * factor

    def process_broadcast_element(self, value, ctx):
        key, factor = value
        ctx.get_broadcast_state(RULES).put(key, factor)
        released: list[Any] = []

        def release(each, state):
            if each == key:
                released.extend((key, number * factor) for number in state.get())
                self.waiting.clear()

        ctx.apply_to_key_state(ListStateDescriptor("waiting"), release)
        return released

    def on_timer(self, timestamp, ctx):
        waiting = len(list(self.waiting.get()))
        if waiting:
            yield (
                ctx.get_current_key(),
                waiting,
                ctx.time_domain(),
                ctx.timestamp(),
                len(ctx.get_broadcast_state(RULES)),
            )


def test_keyed_side():
    """A1: keyed state, timers of both kinds, and a broadcast record that visits the state of all keys."""
    with keyed(Waiting()) as harness:
        harness.process1(("a", 1), 0)
        harness.process1(("b", 2), 1)
        harness.process1(("a", 3), 2)
        harness.process2(("a", 10), 3)
        assert harness.take_output() == [Record(("a", 10), 3), Record(("a", 30), 3)]
        harness.process1(("a", 4), 4)
        harness.watermark(11)
        harness.advance_processing_time(1_000)
        assert harness.values == [
            ("a", 40),
            ("b", 1, TimeDomain.EVENT_TIME, 11, 1),
            ("b", 1, TimeDomain.PROCESSING_TIME, 1_000, 1),
        ]


@pytest.mark.parametrize("every", [1, 2])
def test_snapshots_between_records(every):
    """G7, D1, D2: replaced by one that was restored from its snapshot, the operator goes on as if nothing had been."""
    inputs = [(1, ("a", 1)), (1, ("b", 2)), (2, ("a", 10)), (1, ("a", 3)), (1, ("c", 4)), (2, ("b", 5)), (2, ("c", 6))]
    harness, values = keyed(Waiting()), []
    harness.open()
    for index, (side, value) in enumerate(inputs):
        getattr(harness, f"process{side}")(value, index)
        if index % every == 0:
            snapshot = harness.snapshot(index + 1)
            values += harness.values
            harness.close()
            harness = keyed(Waiting(), attempt=index + 1)
            harness.restore(snapshot)
            harness.open()
    harness.end()
    assert values + harness.values == [("a", 10), ("a", 30), ("b", 10), ("c", 24)]


@pytest.mark.parametrize(("old", "new"), [(1, 3), (3, 1), (2, 3), (3, 2), (2, 2)])
def test_rescaling(old, new):
    """D2, D4: at another parallelism every subtask has the whole of the broadcast state."""
    snapshots = []
    for subtask in range(old):
        with unkeyed(Enrich(), parallelism=old, subtask=subtask) as harness:
            for n in range(5):
                harness.process2((n, n * n))
            snapshots.append(harness.snapshot(1))
    for subtask in range(new):
        harness = unkeyed(Calls(), parallelism=new, subtask=subtask)
        harness.restore(*snapshots)
        with harness:
            harness.process1(lambda ctx: list(ctx.get_broadcast_state(RULES).items()))
            harness.process1(lambda ctx: [ctx.get_broadcast_state(LIMITS)["count"]])
            assert harness.values == [*((n, n * n) for n in range(5)), 5]


class Visits(KeyedBroadcastProcessFunction):
    """Fills keyed state of every kind, and lists it for a broadcast record."""

    DESCRIPTORS = (
        ValueStateDescriptor("value"),
        ListStateDescriptor("list"),
        MapStateDescriptor("map"),
        ReducingStateDescriptor("reducing", max),
        AggregatingStateDescriptor("aggregating", None),
    )

    def open(self, runtime_context):
        self.value = runtime_context.get_state(self.DESCRIPTORS[0])
        self.list = runtime_context.get_list_state(self.DESCRIPTORS[1])
        self.map = runtime_context.get_map_state(self.DESCRIPTORS[2])
        self.reducing = runtime_context.get_reducing_state(self.DESCRIPTORS[3])

    def process_element(self, value, ctx):
        self.value.update(value[1])
        self.list.add(value[1])
        self.map.put(value[1], True)
        self.reducing.add(value[1])

    def process_broadcast_element(self, value, ctx):
        if value == "key":
            return [self.value.value()]
        found = []

        def note(key, state):
            seen = getattr(state, {"value": "value", "map": "keys"}.get(value.name, "get"))()
            found.append((key, list(seen) if value.name in ("list", "map") else seen))
            state.clear()

        ctx.apply_to_keyed_state(value, note)
        return sorted(found)


def test_visiting_keyed_state_of_every_kind():
    """A1, D1: each kind of keyed state can be visited, and cleared on the way; others and other things are refused."""
    with keyed(Visits()) as harness:
        for key, number in [("a", 1), ("b", 2), ("a", 3)]:
            harness.process1((key, number))
        for descriptor in Visits.DESCRIPTORS[:4] * 2:
            harness.process2(descriptor)
        assert harness.values == [
            *[("a", 3), ("b", 2)],
            *[("a", [1, 3]), ("b", [2])],
            *[("a", [1, 3]), ("b", [2])],
            *[("a", 3), ("b", 2)],
        ]
        with pytest.raises(UserCodeError) as caught:
            harness.process2("key")
        assert "no key is current" in str(caught.value.__cause__)
        with pytest.raises(UserCodeError) as caught:
            harness.process2(None)
        assert isinstance(caught.value.__cause__, TypeError | AttributeError)
        with pytest.raises(UserCodeError) as caught:
            harness.process2(ValueStateDescriptor("list"))
        assert "declared as ListState" in str(caught.value.__cause__)


def test_keyed_function_object_visits():
    """A1: what visits may be an object with a method `process`, as in Flink; no key is current afterwards."""

    class Fail:
        def process(self, key, state):
            raise RuntimeError(f"at {key}")

    class Visit(Visits):
        def process_broadcast_element(self, value, ctx):
            ctx.apply_to_key_state(self.DESCRIPTORS[0], Fail())

    with keyed(Visit()) as harness:
        harness.process1(("a", 1))
        with pytest.raises(UserCodeError) as caught:
            harness.process2("anything")
        assert str(caught.value.__cause__) == "at a"
        with pytest.raises(StateError):
            hash(harness.context.keyed.current_key)


def test_processing_time_timers_at_the_end():
    """F5: those that wait are dropped, or all fired when the function asks for it."""

    class Drained(Waiting):
        drain_processing_time_timers = True

    for function, expected in ((Waiting(), []), (Drained(), [TimeDomain.PROCESSING_TIME])):
        with keyed(function) as harness:
            harness.process1(("a", 1), 0)
            harness.watermark(100)
            harness.take_output()
            harness.end()
            assert [value[2] for value in harness.values] == expected
