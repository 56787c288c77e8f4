"""What user functions may return: generators, lists and iterators of results, and from `flat_map` any iterable."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from penstock.base.errors import MisuseError
from penstock.base.types import Row
from penstock.datastream.functions import Function, KeyedProcessFunction
from penstock.datastream.state import StateView
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.keyed.aggregates import KeyedFunctionOperator, KeyedReduceOperator
from penstock.runtime.operators.keyed.interval_join import IntervalJoinOperator
from penstock.runtime.operators.record.process import (
    BroadcastProcessOperator,
    CoProcessOperator,
    KeyedCoProcessOperator,
    KeyedProcessOperator,
    ProcessOperator,
)
from penstock.runtime.operators.record.stateless import FilterOperator, FlatMapOperator, MapOperator
from penstock.runtime.operators.window.aligned import AlignedWindowOperator
from penstock.runtime.operators.window.base import ApplyResult, ListContents, ProcessResult
from penstock.runtime.windowing import TumblingEventTimeWindows
from penstock.testing import OneInputOperatorHarness, TwoInputOperatorHarness


class Returns(Function):
    """Every method of every kind of function returns what it was made with."""

    def __init__(self, make: Callable[[], Any]) -> None:
        def method(*_: Any) -> Any:
            return make()

        self.process_element = self.process_broadcast_element = self.flat_map = self.apply = self.process = method
        self.process_element1 = self.process_element2 = self.flat_map1 = self.flat_map2 = method
        self.on_timer = method


class OnTimer(KeyedProcessFunction):
    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(1)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return self.make()


def one_key(value: Any) -> str:
    return "k"


def window(result: Any, make: Callable[[], Any]) -> Any:
    windows = TumblingEventTimeWindows(10)
    return AlignedWindowOperator(one_key, windows, ListContents(), result(Returns(make), is_list=True))


ONE_INPUT: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "flat_map": lambda make: FlatMapOperator(lambda v: make()),
    "keyed flat_map": lambda make: KeyedFunctionOperator(Returns(make), one_key, "flat_map"),
    "process": lambda make: ProcessOperator(Returns(make)),
    "keyed process": lambda make: KeyedProcessOperator(Returns(make), one_key),
    "on_timer": lambda make: KeyedProcessOperator(OnTimer(make), one_key),
    "window process": partial(window, ProcessResult),
    "window apply": partial(window, ApplyResult),
}

TWO_INPUTS: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "co flat_map": lambda make: CoProcessOperator(Returns(make), "flat_map"),
    "co process": lambda make: CoProcessOperator(Returns(make), "process"),
    "keyed co process": lambda make: KeyedCoProcessOperator(Returns(make), "process", one_key, one_key),
    "broadcast": lambda make: BroadcastProcessOperator(Returns(make), []),
    "interval join": lambda make: IntervalJoinOperator(Returns(make), (one_key, one_key), -5, 5),
}


def outputs(kind: str, make: Callable[[], Any], timestamp: int | None = 1) -> list[Any]:
    """What an operator of the kind emits for records, until the end of time."""
    if kind in ONE_INPUT:
        with OneInputOperatorHarness(partial(ONE_INPUT[kind], make), name="mine") as harness:
            harness.process("record", timestamp)
            harness.watermark(100)
            return harness.values
    two = TwoInputOperatorHarness(partial(TWO_INPUTS[kind], make), name="mine")
    with two:
        two.process1("record", timestamp)
        two.process2("record", timestamp)
        return two.values


WRONG: dict[str, Any] = {
    "tuple": (1, "x"),
    "empty tuple": (),
    "str": "word",
    "bytes": b"word",
    "dict": {"a": 1},
    "set": {1},
    "Row": Row(1, "x"),
    "int": 7,
    "float": 0.5,
    "bool": False,
    "range": range(3),
}


FLAT_MAPS = [kind for kind in (*ONE_INPUT, *TWO_INPUTS) if kind.endswith("flat_map")]
OTHERS = [kind for kind in (*ONE_INPUT, *TWO_INPUTS) if kind not in FLAT_MAPS]


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_list_and_no_iterator_is_refused(kind: str, wrong: str) -> None:
    """A1: a returned tuple, text, dict or number is never taken apart into records; the error says what to do."""
    with pytest.raises(UserCodeError) as caught:
        outputs(kind, lambda: WRONG[wrong])
    assert caught.value.operator_name == "mine"
    cause = caught.value.__cause__
    assert isinstance(cause, MisuseError)
    assert isinstance(cause, TypeError)
    assert f"returned {repr(WRONG[wrong])[:20]}" in str(cause)
    assert f"({type(WRONG[wrong]).__name__})" in str(cause)
    assert "yield" in str(cause)
    assert "return [" in str(cause)


ITERABLES: dict[str, tuple[Callable[[], Any], list[Any]]] = {
    "tuple": (lambda: (1, "x"), [1, "x"]),
    "empty tuple": (lambda: (), []),
    "str": (lambda: "to", ["t", "o"]),
    "set": (lambda: {1}, [1]),
    "dict": (lambda: {"a": 1}, ["a"]),
    "dict values": (lambda: {"a": 1}.values(), [1]),
    "range": (lambda: range(2), [0, 1]),
    "deque": (lambda: deque([3]), [3]),
    "array": (lambda: np.array([5]), [5]),
    "Row": (lambda: Row(1, "x"), [1, "x"]),
    "iterable by index": (lambda: ByIndex(), [10]),
    "view of state": (lambda: StateView([7]), [7]),
}


class ByIndex:
    def __getitem__(self, index: int) -> int:
        return [10][index]


@pytest.mark.parametrize("kind", FLAT_MAPS)
@pytest.mark.parametrize("made", ITERABLES)
@pytest.mark.parametrize("timestamp", [1, None])
def test_flat_map_takes_any_iterable(kind: str, made: str, timestamp: int | None) -> None:
    """A1, K2: with or without keys, and of two inputs: as in PyFlink an iterable is what its items are."""
    make, items = ITERABLES[made]
    assert outputs(kind, make, timestamp) in (items, items * 2)


@pytest.mark.parametrize("kind", FLAT_MAPS)
@pytest.mark.parametrize("wrong", ["int", "float", "bool"])
def test_flat_map_takes_nothing_else(kind: str, wrong: str) -> None:
    """A1: the error says what to return."""
    with pytest.raises(UserCodeError) as caught:
        outputs(kind, lambda: WRONG[wrong])
    cause = caught.value.__cause__
    assert isinstance(cause, MisuseError)
    assert f"returned {WRONG[wrong]!r} ({type(WRONG[wrong]).__name__}): it must yield" in str(cause)
    assert "iterable" in str(cause)


@pytest.mark.parametrize("kind", OTHERS)
def test_a_view_of_state_is_results(kind: str) -> None:
    """A1, D1: keys, values and items of a map may be returned, as a list of them may."""
    assert outputs(kind, lambda: StateView([1, 2])) in ([1, 2], [1, 2, 1, 2])


@pytest.mark.parametrize("kind", [*ONE_INPUT, *TWO_INPUTS])
@pytest.mark.parametrize("made", [lambda: [1, 2], lambda: iter((1, 2)), lambda: (i for i in (1, 2))])
def test_lists_iterators_and_generators_are_results(kind: str, made: Callable[[], Any]) -> None:
    """A1: results are yielded, or in a list, or come from an iterator."""
    assert outputs(kind, made) in ([1, 2], [1, 2, 1, 2])


class Listed(list[Any]):
    """A list of one's own."""


@pytest.mark.parametrize("kind", [*ONE_INPUT, *TWO_INPUTS])
def test_a_subclass_of_list_is_a_list(kind: str) -> None:
    """A1: a list is a list by `isinstance`."""
    assert outputs(kind, lambda: Listed([5])) in ([5], [5, 5])


@pytest.mark.parametrize("kind", [*ONE_INPUT, *TWO_INPUTS])
def test_none_is_no_results(kind: str) -> None:
    """A1: a function that returns nothing has no results."""
    assert outputs(kind, lambda: None) == []


@pytest.mark.parametrize("kind", [k for k in ONE_INPUT if k not in ("on_timer", "window process", "window apply")])
def test_records_without_timestamps_are_refused_as_well(kind: str) -> None:
    """A1: the loop for records without timestamps asks too."""
    with pytest.raises(UserCodeError) as caught:
        outputs(kind, lambda: 7, timestamp=None)
    assert caught.value.record == "record"


def generates(*values: Any) -> Any:
    yield values[0]


async def awaits(*values: Any) -> Any:
    return values[0]


ONE_RESULT: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "map": MapOperator,
    "filter": FilterOperator,
    "reduce": lambda f: KeyedReduceOperator(f, one_key),
    "key selector": lambda f: KeyedReduceOperator(max, f),
}


@pytest.mark.parametrize("kind", ONE_RESULT)
def test_a_generator_is_no_record(kind: str) -> None:
    """A1: a map, filter, reduce or key selector gives one value: a generator in its place is an error."""
    # A lambda hides what it calls, so this is known when it has been called only.
    factory = partial(ONE_RESULT[kind], lambda *values: generates(*values))
    with OneInputOperatorHarness(factory, name="mine") as harness, pytest.raises(UserCodeError) as caught:
        harness.process_batch([7, 8])
    assert caught.value.operator_name == "mine"
    assert isinstance(caught.value.__cause__, MisuseError)
    assert "generator" in str(caught.value.__cause__)


def test_a_coroutine_is_no_record() -> None:
    """A1: an `async def` given to map is told where it belongs."""
    with OneInputOperatorHarness(partial(MapOperator, awaits), name="mine") as harness:
        with pytest.raises(UserCodeError) as caught:
            harness.process("x")
        assert "AsyncDataStream" in str(caught.value.__cause__)


def test_a_generator_between_fused_maps_is_told_of_the_map_that_made_it() -> None:
    """A1: of maps done in one pass the one that returned the generator is named, not the one that fails on it."""
    first, second = MapOperator(generates), MapOperator(lambda v: v + 1)
    one, other = OneInputOperatorHarness(lambda: first, name="first"), OneInputOperatorHarness(lambda: second)
    first.fuse(second)
    with one, other, pytest.raises(UserCodeError) as caught:
        one.process_batch([1])
    assert caught.value.operator_name == "first"
    assert "map() returned" in str(caught.value.__cause__)
