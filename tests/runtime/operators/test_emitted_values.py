"""Which results an operator copies: those that something else refers to, and no others."""

from __future__ import annotations

import enum
import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from penstock.base.types import Row
from penstock.datastream.functions import FlatMapFunction, ProcessFunction
from penstock.runtime.operators.record.process import ProcessOperator
from penstock.runtime.operators.record.stateless import FlatMapOperator
from penstock.runtime.operators.results import LOOKED_INTO_MIN
from penstock.testing import OneInputOperatorHarness


class Thing:
    def __init__(self, value: Any) -> None:
        self.value = value


MAKERS: dict[str, Callable[[int], Any]] = {
    "list": lambda number: [number],
    "nested list": lambda number: [[number], (number, {"a": [number]})],
    "dict": lambda number: {"a": number, "b": [number]},
    "set": lambda number: {number},
    "bytearray": lambda number: bytearray([number]),
    "row": lambda number: Row(a=number, b=[number]),
    "object": lambda number: Thing(number),
    "object with parts": lambda number: Thing([{number: [number]}, Thing(number)]),
    "tuple": lambda number: ("a", [number]),
}


def hide(value: Any) -> int:
    """Which object it is, without a reference to it; of a tuple what is inside."""
    return id(value[1]) if isinstance(value, tuple) else id(value)


def get_inner(value: Any) -> Any:
    """An object inside."""
    return value.value if isinstance(value, Thing) else value[0]


class Emits(ProcessFunction, FlatMapFunction):
    """Emits new objects in one of several ways, and notes which objects these are."""

    def __init__(self, make: Callable[[int], Any], way: str, noted: list[int], kept: list[Any]) -> None:
        self.make = make
        self.way = way
        self.noted = noted
        self.kept = kept

    def process_element(self, value: int, ctx: Any) -> Any:
        return self.flat_map(value)

    def flat_map(self, value: int) -> Any:
        if self.way == "yield":
            return self._yielded(value)
        made = [self.make(value), self.make(value + 1)]
        self.noted += map(hide, made)
        if self.way == "kept list":
            self.kept.append(made)
        elif self.way == "kept results":
            self.kept += made
        elif self.way == "kept parts":
            self.kept += map(get_inner, made)
        return iter(made) if self.way == "iterator" else made

    def _yielded(self, value: int) -> Any:
        for number in (value, value + 1):
            yield self._noted(self.make(number))

    def _noted(self, made: Any) -> Any:
        self.noted.append(hide(made))
        return made


OPERATORS = {"process": ProcessOperator, "flat map": FlatMapOperator}


def emitted(operator: str, make: Callable[[int], Any], way: str) -> tuple[list[int], list[int]]:
    """The objects that come out, and those that the function made."""
    noted: list[int] = []
    function = partial(Emits, make, way, noted, [])
    with OneInputOperatorHarness(lambda: OPERATORS[operator](function())) as harness:
        harness.process_batch([1, 3])
        return [hide(value) for value in harness.values], noted


@pytest.mark.parametrize("way", ["list", "yield"])
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_new_objects_are_not_copied(operator: str, kind: str, way: str) -> None:
    """A1: a result that nothing else refers to is emitted itself."""
    found, noted = emitted(operator, MAKERS[kind], way)
    assert found == noted


@pytest.mark.parametrize("way", ["kept list", "kept results", "iterator"])
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_objects_that_something_refers_to_are_copied(operator: str, kind: str, way: str) -> None:
    """A1: a result that the function still has is emitted as a copy."""
    found, noted = emitted(operator, MAKERS[kind], way)
    assert not {*found} & {*noted}


@pytest.mark.parametrize("kind", ["nested list", "object with parts"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_objects_whose_parts_something_refers_to_are_copied(operator: str, kind: str) -> None:
    """A1: so is one in which the function still has an object."""
    kept: list[Any] = []
    function = partial(Emits, MAKERS[kind], "kept parts", [], kept)
    with OneInputOperatorHarness(lambda: OPERATORS[operator](function())) as harness:
        harness.process_batch([1, 3])
        assert len(kept) == 4
        for value, part in zip(harness.values, kept, strict=True):
            assert get_inner(value) is not part
            assert type(get_inner(value)) is type(part)


class Colour(enum.Enum):
    RED = 1


@dataclass(frozen=True)
class Point:
    x: int


@pytest.mark.parametrize(
    ("make", "is_looked_into"),
    [
        (lambda number: (number, "a"), False),
        (lambda number: (("key", number), (1, 2)), False),
        (lambda number: ("a", Colour.RED, Point(number)), False),
        (Point, False),
        (lambda number: (("key", [number]), 1), True),
        (lambda number: [number], True),
    ],
    ids=["flat tuple", "nested tuples", "frozen parts", "frozen", "list in nested tuple", "list"],
)
def test_a_function_whose_results_cannot_change_is_trusted(make: Callable[[int], Any], is_looked_into: bool) -> None:
    """A1: results are looked into one by one only as long as one of them may change."""

    class Makes(ProcessFunction):
        def process_element(self, value: int, ctx: Any) -> Any:
            return [make(value)]

    with OneInputOperatorHarness(lambda: ProcessOperator(Makes())) as harness:
        harness.process_batch(list(range(LOOKED_INTO_MIN)))
        assert isinstance(harness.operator, ProcessOperator)
        assert harness.operator._check.is_close() == is_looked_into


def test_a_function_that_emits_nothing_at_first_is_not_decided_upon() -> None:
    """A1: a long batch is processed as a whole when its first part has no results."""

    class Late(ProcessFunction):
        def process_element(self, value: int, ctx: Any) -> Any:
            return None if value < LOOKED_INTO_MIN else [value]

    with OneInputOperatorHarness(lambda: ProcessOperator(Late())) as harness:
        assert isinstance(harness.operator, ProcessOperator)
        check = harness.operator._check
        harness.process_batch(list(range(LOOKED_INTO_MIN)))
        assert not check.is_undecided()
        harness.process_batch([LOOKED_INTO_MIN])
        assert check.is_undecided()
        assert harness.values == [LOOKED_INTO_MIN]


def test_a_look_into_a_function_does_not_slow_it_down() -> None:
    """CPython makes `__dict__` when it is first asked for; from then on each access to an attribute takes longer."""

    class Counts(ProcessFunction):
        def open(self, runtime_context: Any) -> None:
            self.count = 0

        def process_element(self, value: int, ctx: Any) -> Any:
            self.count += 1
            return [self.count]

    function = Counts()
    with OneInputOperatorHarness(lambda: ProcessOperator(function)) as harness:
        for _ in range(3):
            harness.process_batch(list(range(LOOKED_INTO_MIN)))
        assert function.count == 3 * LOOKED_INTO_MIN
        assert dict not in map(type, gc.get_referents(function))
