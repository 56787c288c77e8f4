"""CheckpointedFunction: when it is called, what it is given, for every kind of operator."""

from functools import partial
from typing import Any

import pytest

from penstock.datastream.functions import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
)
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.keyed.aggregates import KeyedFunctionOperator
from penstock.runtime.operators.record.process import BroadcastProcessOperator
from penstock.runtime.operators.window.aligned import AlignedWindowOperator
from penstock.runtime.operators.window.base import ListContents, ProcessResult
from penstock.runtime.windowing import TumblingEventTimeWindows
from penstock.state.states import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.testing import OneInputOperatorHarness, TwoInputOperatorHarness, harness_for


class Stateful(CheckpointedFunction):
    """Notes its calls, and what it was restored with."""

    def initialize_state(self, context):
        self.calls = ["initialize_state"]
        self.restored = context.is_restored(), context.get_restored_checkpoint_id()
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("seen"))
        self.seen = self.state.get()

    def open(self, runtime_context):
        self.calls.append("open")

    def close(self):
        self.calls.append("close")

    def snapshot_state(self, context):
        self.calls.append(f"snapshot_state {context.get_checkpoint_id()}")
        self.state.update(self.seen)

    def notify_checkpoint_complete(self, checkpoint_id):
        self.calls.append(f"complete {checkpoint_id}")

    def notify_checkpoint_aborted(self, checkpoint_id):
        self.calls.append(f"aborted {checkpoint_id}")


class Map(Stateful, MapFunction):
    def map(self, value):
        self.seen.append(value)
        return value


class Filter(Stateful, FilterFunction):
    def filter(self, value):
        self.seen.append(value)
        return True


class FlatMap(Stateful, FlatMapFunction):
    def flat_map(self, value):
        self.seen.append(value)


class Process(Stateful, ProcessFunction):
    def process_element(self, value, ctx):
        self.seen.append(value)


class KeyedProcess(Stateful, KeyedProcessFunction):
    def process_element(self, value, ctx):
        self.seen.append(value)


class Reduce(Stateful, ReduceFunction):
    def reduce(self, value1, value2):
        self.seen.append(value2)
        return value2


class Window(Stateful, ProcessWindowFunction):
    def process(self, key, context, elements):
        self.seen += elements
        return []


class Broadcast(Stateful, BroadcastProcessFunction):
    def process_element(self, value, ctx):
        self.seen.append(value)

    def process_broadcast_element(self, value, ctx):
        return None


def same(value):
    return value


def windows(function):
    tumbling = TumblingEventTimeWindows.of(10)
    return partial(AlignedWindowOperator, same, tumbling, ListContents(), ProcessResult(function, True), 0, None)


KINDS: dict[str, tuple[Any, Any]] = {
    "map": (Map, harness_for),
    "filter": (Filter, harness_for),
    "flat map": (FlatMap, harness_for),
    "process": (Process, harness_for),
    "keyed process": (KeyedProcess, lambda f: harness_for(f, same)),
    "reduce": (Reduce, lambda f: harness_for(f, lambda value: 0)),
    "keyed map": (Map, lambda f: OneInputOperatorHarness(partial(KeyedFunctionOperator, f, same, "map"))),
    "window": (Window, lambda f: OneInputOperatorHarness(windows(f))),
    "broadcast": (
        Broadcast,
        lambda f: TwoInputOperatorHarness(partial(BroadcastProcessOperator, f, (MapStateDescriptor("rules"),))),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_function(kind):
    """D2, F1, F2: initialised before open, captured at the snapshot, restored in the next attempt."""
    function_class, harness_of = KINDS[kind]
    function = function_class()
    harness = harness_of(function)
    with harness:
        harness.process(0, 1)
        harness.process(1, 2)
        harness.watermark(100)
        snapshot = harness.snapshot(7)
        harness.notify_aborted(6)
        harness.notify_complete(7)
    expected = ["initialize_state", "open", "snapshot_state 7", "aborted 6", "complete 7", "close"]
    assert function.calls == expected
    assert function.restored == (False, None)
    other = function_class()
    harness = harness_of(other)
    harness.restore(snapshot)
    with harness:
        assert other.restored == (True, 7)
        assert other.seen == function.seen
        assert other.seen == ([1] if kind == "reduce" else [0, 1])


METHODS = ("initialize_state", "snapshot_state", "notify_checkpoint_complete", "notify_checkpoint_aborted")


@pytest.mark.parametrize("method", METHODS)
def test_what_it_raises_names_operator_and_method(method):
    """D2: an error of user code says where it comes from."""
    function: Any = Map()
    harness = harness_for(function, name="mine")

    def fail(context):
        raise RuntimeError("no")

    setattr(function, method, fail)

    def run():
        harness.open()
        harness.snapshot(1)
        harness.notify_aborted(0)
        harness.notify_complete(1)

    with pytest.raises(UserCodeError) as caught:
        run()
    assert (caught.value.operator_name, caught.value.what) == ("mine", f"{method}()")


class AllModes(MapFunction, CheckpointedFunction):
    """Keeps what it sees in states of each mode, and gives all of it back."""

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.split = store.get_list_state(ListStateDescriptor("split"))
        self.union = store.get_union_list_state(ListStateDescriptor("union"))
        self.all = store.get_broadcast_state(MapStateDescriptor("all"))
        self.last = context.get_keyed_state_store().get_state(ValueStateDescriptor("last"))
        self.restored = [sorted(self.split), sorted(self.union), sorted(self.all)]

    def snapshot_state(self, context):
        pass

    def map(self, value):
        self.split.add(value)
        self.union.add(value)
        self.all.put("of all", value)


@pytest.mark.parametrize(("old", "new"), [(1, 3), (3, 1), (2, 3), (2, 2)])
def test_redistribution(old, new):
    """D2, D4: split items go each to one subtask, union items to all, broadcast entries to all once."""
    snapshots, seen = [], []
    for subtask in range(old):
        with harness_for(AllModes(), parallelism=old, subtask=subtask) as harness:
            for n in range(4):
                harness.process(10 * subtask + n)
                seen.append(10 * subtask + n)
            snapshots.append(harness.snapshot(1))
    dealt = []
    for subtask in range(new):
        function = AllModes()
        harness = harness_for(function, parallelism=new, subtask=subtask)
        harness.restore(*snapshots)
        with harness:
            dealt += function.restored[0]
            assert len(function.restored[0]) in (len(seen) // new, -(-len(seen) // new))
            assert function.restored[1:] == [seen, ["of all"]]
    assert sorted(dealt) == seen


def test_keyed_state_may_be_looked_up():
    """D1: the keyed state store gives states that work once a key is current."""

    class Keyed(Stateful, KeyedProcessFunction):
        def initialize_state(self, context):
            self.count = context.get_keyed_state_store().get_state(ValueStateDescriptor("count"))

        def snapshot_state(self, context):
            pass

        def process_element(self, value, ctx):
            self.count.update((self.count.value() or 0) + 1)
            yield value, self.count.value()

        def open(self, runtime_context):
            pass

        def close(self):
            pass

    with harness_for(Keyed(), same) as harness:
        for value in "aba":
            harness.process(value)
        assert harness.values == [("a", 1), ("b", 1), ("a", 2)]
