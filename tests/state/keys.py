"""Keys of all kinds for tests, and what is one key by plain Python."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import uuid
from collections.abc import Hashable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
import numpy
import pandas
from hypothesis import reject

from penstock.base.types import Row, RowKind

UTC = datetime.UTC
EAST = datetime.timezone(datetime.timedelta(hours=1))


class Color(str, enum.Enum):  # noqa: UP042 - the older way, whose str() is another one
    RED = "red"
    BLUE = "blue"


class Size(enum.Enum):
    RED = "red"
    ONE = 1


class Level(enum.IntEnum):
    ONE = 1
    TWO = 2


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Half(float, enum.Enum):
    HALF = 0.5


class Text(str):
    def __str__(self) -> str:
        return "text"


class Number(int):
    def __index__(self) -> int:
        return 7


class Pair(NamedTuple):
    one: Any
    other: Any


@dataclasses.dataclass(frozen=True)
class Point:
    x: Any
    y: Any


@dataclasses.dataclass(frozen=True)
class Place(Point):
    """As its base, but another class."""


@dataclasses.dataclass(frozen=True)
class Labelled:
    key: Any
    label: Any = dataclasses.field(compare=False)


def kinded(row: Row, kind: RowKind) -> Row:
    row.set_row_kind(kind)
    return row


AT = datetime.datetime(2024, 1, 1, 12)
#: In Berlin this hour came twice.
TWICE = datetime.datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))

#: Few, so that equal ones often meet.
NUMBERS: list[Hashable] = [
    0, 1, 2, -1, 2**53, 2**53 + 1, 10**30, True, False, 0.0, -0.0, 1.0, 0.5, 2.0**53, 1e30, float("inf"),
    float("-inf"), Decimal(0), Decimal("-0.0"), Decimal(1), Decimal("1.0"), Decimal("0.50"), Decimal("0.1"), 0.1,
    Decimal.from_float(0.1), Decimal("Infinity"), Decimal("1E+30"), Decimal("1.00000000000000000000000000001"),
    Decimal("1.00000000000000000000000000002"), Decimal("1e-400"), Decimal("1E+400"), 10**400, numpy.int64(1),
    numpy.int8(-1), numpy.bool_(True), numpy.float64(0.5), numpy.float32(0.1), float(numpy.float32(0.1)), Level.ONE,
    Level.TWO, Half.HALF, Number(1),
]  # fmt: skip
TEXTS: list[Hashable] = [
    "", "a", "b", "s", "asb", "i1", "1", "red", "blue", "Color.RED", "text", "ä\ud800", Color.RED, Color.BLUE,
    Size.RED, Size.ONE, Text("a"), Text("red"), numpy.str_("a"), b"", b"a", b"red", numpy.bytes_(b"a"),
]  # fmt: skip
TIMES: list[Hashable] = [
    AT, AT.replace(tzinfo=UTC), AT.replace(hour=13, tzinfo=EAST), AT.replace(fold=1), pandas.Timestamp(AT),
    pandas.Timestamp(AT, tz="UTC"), pandas.Timestamp("2024-01-01 12:00:00.000000001"), AT.date(), AT.time(),
    AT.time().replace(fold=1), datetime.time(12, tzinfo=UTC), datetime.time(13, tzinfo=EAST),
    datetime.time(0, tzinfo=EAST),
    datetime.datetime.min.replace(tzinfo=EAST), datetime.datetime.min.replace(tzinfo=UTC), TWICE, TWICE.replace(fold=1),
    TWICE.astimezone(UTC), datetime.timedelta(1), datetime.timedelta(hours=24), pandas.Timedelta(1, "D"),
    pandas.Timedelta(1, "ns"), pandas.NaT,
]  # fmt: skip
OTHERS: list[Hashable] = [None, uuid.UUID(int=1), Right.READ, Right.READ | Right.WRITE, Right(0), (), frozenset()]
NANS: list[Hashable] = [float("nan"), -float("nan"), Decimal("NaN"), numpy.float32("nan"), numpy.float64("nan")]

ONE = [*NUMBERS, *TEXTS, *TIMES, *OTHERS, *NANS]


def set_of(items: list[Any]) -> frozenset[Any]:
    """A set of values, unless it is one that Python cannot make: a Decimal beside an equal number of NumPy's."""
    try:
        return frozenset(items)
    except (TypeError, OverflowError):
        reject()


def holding(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    two = st.tuples(items, items)
    # Since Python 3.13 a dataclass with NaT does not equal itself.
    fields = two.filter(lambda pair: all(item is not pandas.NaT for item in pair))
    return st.one_of(
        st.lists(items, max_size=3).map(tuple),
        st.lists(items, max_size=3).map(set_of),
        two.map(lambda pair: Pair(*pair)),
        fields.map(lambda pair: Point(*pair)),
        fields.map(lambda pair: Place(*pair)),
        fields.map(lambda pair: Labelled(*pair)),
        st.lists(items, max_size=2).map(lambda values: Row(*values)),
        two.map(lambda pair: Row(a=pair[0], b=pair[1])),
        two.map(lambda pair: Row(x=pair[0], y=pair[1])),
        two.map(lambda pair: kinded(Row(*pair), RowKind.DELETE)),
    )


KEYS = st.recursive(st.sampled_from(ONE), holding, max_leaves=4)


def without_nan(key: Any) -> Any:
    """The key with the text `NaN` for every NaN, which Python can tell from others; written apart from the product."""
    if isinstance(key, tuple):
        return tuple.__new__(type(key), map(without_nan, key))
    if isinstance(key, frozenset):
        return frozenset(map(without_nan, key))
    if isinstance(key, Row):
        row = kinded(Row(*map(without_nan, key)), key.get_row_kind())
        if key.has_field_names:
            row.set_field_names(list(key.as_dict()))
        return row
    if dataclasses.is_dataclass(key) and not isinstance(key, type):
        values = {field.name: without_nan(getattr(key, field.name)) for field in dataclasses.fields(key)}
        return type(key)(**values)
    if isinstance(key, numpy.generic):
        return without_nan(key.item())  # a Decimal raises when it is compared with one of NumPy's
    if isinstance(key, float | Decimal) and key != key:
        return "NaN, and nothing else is called so"
    return key


def counted(keys: Sequence[Any]) -> list[int]:
    """How often each key comes, for a dictionary of plain Python; sorted."""
    counts: dict[Any, int] = {}
    for key in map(without_nan, keys):
        counts[key] = counts.get(key, 0) + 1
    return sorted(counts.values())
