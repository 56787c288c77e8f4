"""Copies of values that can change, and values that are their own copies."""

from __future__ import annotations

import datetime
import decimal
import enum
import gc
import sys
import threading
import uuid
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.base.copies import attribute_values, detached, is_immutable, separated
from penstock.base.output_tag import OutputTag
from penstock.base.types import Row, RowKind

Pair = namedtuple("Pair", "left right")


class Colour(enum.Enum):
    RED = 1


@dataclass(frozen=True)
class Frozen:
    value: Any


@dataclass
class Thawed:
    value: Any


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slotted) and self.value == other.value

    __hash__ = None  # type: ignore[assignment]


class Counted(dict[str, int]):
    pass


class OwnCopy:
    """Says itself what a copy of it is."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __deepcopy__(self, memo: Any) -> OwnCopy:
        return OwnCopy([*self.value, "copied"])


IMMUTABLE = [
    None,
    True,
    1,
    1.5,
    1j,
    "text",
    b"bytes",
    decimal.Decimal("1.5"),
    datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
    uuid.UUID(int=1),
    Colour.RED,
    OutputTag("side"),
    (),
    (1, ("a", None)),
    Pair(1, "a"),
    Frozen((1, 2)),
    frozenset({1, 2}),
    range(3),
    int,
    len,
    lambda value: value,
]
MUTABLE = [
    [1, [2]],
    [(1, 2), (3, [4])],
    {"a": [1]},
    {("a", Frozen(1)): 1},
    {1, 2},
    {Frozen((1,))},
    bytearray(b"bytes"),
    (1, [2]),
    Pair([1], 2),
    Frozen([1]),
    Thawed({"a": [1]}),
    Slotted([1]),
    Row(1, [2]),
    Row(first=1, last=[2]),
    Counter("aab"),
    Counted(a=1),
    OrderedDict(a=[1]),
    defaultdict(list, a=[1]),
    deque([[1]]),
]


@pytest.mark.parametrize("value", IMMUTABLE, ids=lambda value: type(value).__name__)
def test_immutable_values_pass_as_they_are(value: Any) -> None:
    """A number, text, a time, and tuples and frozen objects of these are their own copies."""
    assert is_immutable(value)
    assert detached(value) is value


@pytest.mark.parametrize("value", MUTABLE, ids=lambda value: type(value).__name__)
def test_mutable_values_are_copied(value: Any) -> None:
    """Everything else is copied, with its class and its contents."""
    assert not is_immutable(value)
    copied = detached(value)
    assert copied is not value
    assert copied == value
    assert type(copied) is type(value)
    assert repr(copied) == repr(value) or type(value) is Slotted


def test_what_is_inside_is_copied() -> None:
    """No change of a value reaches its copy, however deep it is."""
    inner = [1]
    value = {"list": inner, "tuple": (inner, 2), "row": Row(a=inner), "object": Thawed(inner)}
    copied = detached(value)
    inner.append(2)
    assert copied == {"list": [1], "tuple": ([1], 2), "row": Row(a=[1]), "object": Thawed([1])}


def test_one_object_in_two_places_stays_one_object() -> None:
    """A copy has the same shape as its original, circles included."""
    inner = [1]
    first, second = detached([inner, inner])
    assert first is second
    circle: list[Any] = [1]
    circle.append(circle)
    copied = detached(circle)
    assert copied is not circle
    assert copied[1] is copied
    in_tuple: list[Any] = []
    in_tuple.append((in_tuple, 1))
    assert (made := detached(in_tuple))[0][0] is made


def test_a_row_keeps_its_kind() -> None:
    """The copy of a row has its names and its kind."""
    row = Row(a=[1])
    row.set_row_kind(RowKind.DELETE)
    copied = detached(row)
    assert copied.get_row_kind() is RowKind.DELETE
    assert copied.as_dict() == {"a": [1]}
    assert copied.a is not row.a


def test_a_class_says_itself_what_a_copy_is() -> None:
    """`__deepcopy__` of the program's own classes is called."""
    assert detached(OwnCopy([1])).value == [1, "copied"]


def test_what_cannot_be_copied_is_returned_itself() -> None:
    """An object that has no copy passes, as does a generator."""
    lock, numbers = threading.Lock(), (number for number in (1, 2))
    assert detached(lock) is lock
    assert detached(numbers) is numbers
    assert detached([lock])[0] is lock


def test_separate_values_share_nothing() -> None:
    """K2: values that are one object, or share one, become copies; nothing is done for numbers, text and tuples."""
    for values in ([], [1, "a", None], [(1, "a"), (2, "b"), (3, "c")]):
        assert separated(values) is values
    shared = [1]
    for value in (shared, {"a": shared}, ("x", shared), (1, ("x", shared)), Thawed(shared), Frozen(shared)):
        one, other, number = separated([value, value, 1])
        assert (one, other, number) == (value, value, 1)
        assert len({id(one), id(other), id(value)}) == 3


class Both(Slotted):
    """A slot and a `__dict__`."""


@pytest.mark.parametrize(
    ("owner", "values"),
    [
        (Thawed([1]), [[1]]),
        (Thawed({"a": 1}), [{"a": 1}]),
        (Both([2]), [[2]]),
        (Slotted(1), None),
        (3, None),
    ],
)
def test_the_values_of_attributes(owner: Any, values: list[Any] | None) -> None:
    assert attribute_values(owner) == values


def test_a_look_at_attributes_makes_no_dictionary() -> None:
    """Each access to an attribute takes longer from the time on that `__dict__` was asked for."""
    owner = Thawed([1])
    for _ in range(2):
        assert attribute_values(owner) == [[1]]
    assert dict not in map(type, gc.get_referents(owner))
    assert vars(owner) == {"value": [1]}
    if sys.version_info < (3, 13):  # where the dictionary stays with the object
        assert dict in map(type, gc.get_referents(owner))
    assert attribute_values(owner) == [[1]]
