"""Which functions of a map are looked at, because they may hold an object and change it later."""

from __future__ import annotations

import datetime
import json
import math
import sys
import types
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import partial, wraps
from typing import Any, NamedTuple

import pytest

from penstock.base.types import Row
from penstock.datastream.functions import MapFunction
from penstock.runtime.operators.results import holds_objects


class Plain(MapFunction):
    def map(self, value: Any) -> Any:
        return value


class Keeps(MapFunction):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def map(self, value: Any) -> Any:
        self.seen.append(value)
        return self.seen


class KeepsLater(MapFunction):
    def map(self, value: Any) -> Any:
        if not hasattr(self, "seen"):
            self.seen: list[Any] = []
        self.seen.append(value)
        return self.seen


KEPT: list[int] = []
FACTOR = 3


def keeps_in_global(value: Any) -> Any:
    KEPT.append(value)
    return KEPT


def calls_one_that_keeps(value: Any) -> Any:
    return keeps_in_global(value)


def scaled(value: int) -> float:
    return math.sqrt(value * FACTOR)


def recursive(value: int) -> int:
    return recursive(value - 1) if value else 0


def test_functions_that_hold_something() -> None:
    """A function that has nothing of its own cannot change what it has returned; only others are looked at."""
    held: list[int] = []
    assert not any(map(holds_objects, [Plain().map, scaled, recursive, len, str.upper, int, Row, lambda value: value]))
    assert all(
        map(holds_objects, [Keeps().map, KeepsLater().map, keeps_in_global, calls_one_that_keeps, lambda value: held])
    )
    assert holds_objects(partial(scaled, 1))
    assert holds_objects(lambda value, seen=held: seen)


def get_qualified_name(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


# --- objects of modules and classes -----------------------------------------------------------------------------------


class ClassAttribute(MapFunction):
    seen: list[Any] = []  # noqa: RUF012 - the class shares it

    def map(self, value: Any) -> Any:
        self.seen.append(value)
        return self.seen


class Inherits(ClassAttribute):
    def map(self, value: Any) -> Any:
        return super().map(value)


class ByHelper(MapFunction):
    def map(self, value: Any) -> Any:
        return self._added(value)

    def _added(self, value: Any) -> Any:
        if not hasattr(self, "kept"):
            self.kept: list[Any] = []
        return self.kept


class Slots(MapFunction):
    __slots__ = ("seen",)

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def map(self, value: Any) -> Any:
        self.seen.append(value)
        return self.seen


class Called:
    seen: list[Any] = []  # noqa: RUF012

    def __call__(self, value: Any) -> Any:
        return self.seen


class Registry:
    items: list[Any] = []  # noqa: RUF012

    def __init__(self, value: Any) -> None:
        self.items.append(value)

    @classmethod
    def add(cls, value: Any) -> Any:
        cls.items.append(value)
        return cls.items

    @property
    def all(self) -> Any:
        return self.items


class Single:
    """Gives the same instance each time."""

    one: Any = None

    def __new__(cls) -> Any:
        if cls.one is None:
            cls.one = super().__new__(cls)
        return cls.one


class Grows:
    items: list[Any] = []  # noqa: RUF012

    def grown(self, value: Any) -> Any:
        self.items.append(value)
        return self.items


def make_grows() -> Grows:
    return Grows()


def of_class(value: Any) -> Any:
    Registry.items.append(value)
    return Registry.items


def of_class_attribute_by_text(value: Any) -> Any:
    return getattr(Registry, "items")  # noqa: B009


def of_constructor(value: Any) -> Any:
    return Registry(value)


def of_property(value: Any) -> Any:
    return Registry(value).all


def of_class_method(value: Any) -> Any:
    return Registry.add(value)


def of_single(value: Any) -> Any:
    return Single()


def of_made_instance(value: Any) -> Any:
    return make_grows().grown(value)


def of_globals(value: Any) -> Any:
    return globals().setdefault("LATER", [])


def of_exec(value: Any) -> Any:
    return eval("KEPT")


PAIR = (keeps_in_global, 1)
get_kept = {1: [0]}.get


def of_tuple(value: Any) -> Any:
    return PAIR[0](value)


def of_bound_method(value: Any) -> Any:
    return get_kept(value)


def decorated(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(value: Any) -> Any:
        return function(value)

    return call


def counting(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    last: Any = None

    @wraps(function)
    def call(value: Any) -> Any:
        nonlocal last
        last = [value]
        return last

    return call


@pytest.mark.parametrize(
    "function",
    [
        ClassAttribute().map,
        Inherits().map,
        ByHelper().map,
        Slots().map,
        Called(),
        Registry,
        Registry.add,
        of_class,
        of_class_attribute_by_text,
        of_constructor,
        of_property,
        of_class_method,
        of_single,
        of_made_instance,
        of_globals,
        of_exec,
        of_tuple,
        of_bound_method,
        get_kept,
        decorated(keeps_in_global),
        counting(scaled),
    ],
    ids=get_qualified_name,
)
def test_objects_of_classes_and_functions(function: Any) -> None:
    """K1: a function may keep its object in a class, in a slot, or in another function."""
    assert holds_objects(function)


@pytest.fixture
def helper() -> Iterator[types.ModuleType]:
    module = types.ModuleType("penstocks_helper")
    exec(
        "acc = []\ndef remember(v):\n    acc.append(v); return acc\n"
        "def twice(v):\n    return v * 2\nclass Store:\n    items = []\n",
        module.__dict__,
    )
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


@pytest.mark.parametrize(
    ("code", "holds"),
    [
        ("def f(v): return helper.remember(v)", True),
        ("def f(v): return helper.acc", True),
        ("def f(v): return helper.Store.items", True),
        ("def f(v): return getattr(helper, 'a' + 'cc')", True),
        ("def f(v): return vars(helper)['acc']", True),
        ("def f(v):\n import penstocks_helper\n return penstocks_helper.acc", True),
        ("def f(v):\n from penstocks_helper import remember\n return remember(v)", True),
        ("def f(v):\n import no_module_of_this_name\n return no_module_of_this_name.acc", True),
        ("def f(v):\n import sys\n return sys.modules['penstocks_helper'].acc", True),
        ("def f(v): return helper.twice(v)", False),
        ("def f(v):\n from penstocks_helper import twice\n return twice(v)", False),
        ("def f(v):\n import json\n return json.dumps(v)", False),
    ],
)
def test_objects_of_modules(helper: types.ModuleType, code: str, holds: bool) -> None:
    """K1: a function may keep its object in a module of the program; what it does not name there does not count."""
    scope: dict[str, Any] = {"helper": helper, "__name__": "program"}
    exec(code, scope)
    assert holds_objects(scope["f"]) is holds


@pytest.mark.parametrize(("name", "holds"), [("twice", False), ("acc", True)])
def test_modules_that_name_each_other(helper: types.ModuleType, name: str, holds: bool) -> None:
    """Each module is looked into once, though the code goes from one to the other and back."""
    other = types.ModuleType("penstocks_other")
    vars(helper)["other"] = other
    vars(other)["helper"] = helper
    scope: dict[str, Any] = {"helper": helper, "__name__": "program"}
    exec(f"def f(v): return helper.other.helper.{name}", scope)
    assert holds_objects(scope["f"]) is holds


@dataclass
class Order:
    number: int
    items: list[int] = field(default_factory=list)
    note: str = ""

    def total(self) -> int:
        return self.number + sum(self.items)


@dataclass(frozen=True)
class Fixed:
    number: int
    day: datetime.date = datetime.date(2026, 1, 1)


class Point(NamedTuple):
    x: int
    y: int = 0


Pair = namedtuple("Pair", "a b")


class Color(Enum):
    RED = 1


class Doubles:
    count = 0

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def double(self) -> Doubles:
        return Doubles(self.value * 2)


def makes_instances(value: Any) -> Any:
    return [Order(value, [1]).total(), Fixed(value), Point(value), Pair(value, 1), Color.RED, Doubles(value).double()]


def of_library(value: Any) -> Any:
    day = datetime.datetime.fromtimestamp(value, datetime.UTC)
    return json.loads(json.dumps([math.pi, day.isoformat(), str(value), sys.maxsize]))


def factor_of(factor: int) -> Callable[[Any], Any]:
    return lambda value: value * factor


@pytest.mark.parametrize(
    "function",
    [makes_instances, of_library, Order, Point, Doubles, factor_of(2), decorated(scaled), math.sqrt, ",".join, Color],
    ids=get_qualified_name,
)
def test_functions_that_make_what_they_return(function: Any) -> None:
    """A1: modules of the standard library and classes whose instances are new hold nothing; nothing is copied."""
    assert not holds_objects(function)
