"""Keys, key groups and their owners."""

import dataclasses
import datetime
import decimal
import enum
import subprocess
import sys
import uuid

import hypothesis.strategies as st
import numpy
import pandas
import pytest
from hypothesis import given, settings

from penstock.base.types import Row
from penstock.state.errors import StateError
from penstock.state.keys import assign_key_group, key_bytes, key_group_range, subtask_of_key_group


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Name(enum.StrEnum):
    ANN = "ann"


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: int


UTC = datetime.UTC
KEYS = [
    "a", "", "ä\ud800", b"a", 0, -1, 2**80, 1.5, float("inf"), None, (), ("a", 1), ("a1",), (("a",), 1), ((), "a1"),
    Colour.RED, decimal.Decimal("0.1"), datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1, tzinfo=UTC),
    datetime.datetime(2024, 1, 1), datetime.timedelta(1), datetime.time(1), uuid.UUID(int=5), Row("a", 1),
    frozenset({1, 2}), Point(1, 2),
]  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 300), st.data())
def test_every_key_group_has_exactly_one_owner(max_parallelism, data):
    """D4: the ranges of all subtasks cover every key group once, in order, as evenly as can be."""
    parallelism = data.draw(st.integers(1, max_parallelism))
    ranges = [key_group_range(i, max_parallelism, parallelism) for i in range(parallelism)]
    covered = [g for first, last in ranges for g in range(first, last + 1)]
    assert covered == list(range(max_parallelism))
    for subtask, (first, last) in enumerate(ranges):
        for group in range(first, last + 1):
            assert subtask_of_key_group(group, max_parallelism, parallelism) == subtask
    sizes = {last - first + 1 for first, last in ranges}
    assert max(sizes) - min(sizes) <= 1


@settings(deadline=None)
@given(
    st.one_of(st.text(), st.integers(), st.floats(allow_nan=False), st.binary(), st.tuples(st.text(), st.integers()))
)
def test_key_groups_are_in_range(key):
    """D4: every key has a key group."""
    assert 0 <= assign_key_group(key, 7) < 7


def test_different_keys_have_different_bytes():
    """D4: no two different keys share their canonical bytes."""
    assert len({key_bytes(key) for key in KEYS}) == len(KEYS)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        (2**60, float(2**60)),
        (1, numpy.int64(1)),
        ("a", numpy.str_("a")),
        (("a", 1), ("a", 1.0)),
        (decimal.Decimal("1.50"), decimal.Decimal("1.5")),
        (
            datetime.datetime(2024, 1, 1, 12, tzinfo=UTC),
            datetime.datetime(2024, 1, 1, 13, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
        ),
        (1, decimal.Decimal(1)),
        (0.5, decimal.Decimal("0.5")),
        (1, Level.LOW),
        ("ann", Name.ANN),
        (datetime.datetime(2024, 1, 1), pandas.Timestamp("2024-01-01")),
    ],
    ids=repr,
)
def test_equal_keys_have_equal_bytes(one, other):
    """D4: two keys that Python holds to be one are one, or one subtask's key would be found in two."""
    assert one == other
    assert hash(one) == hash(other)
    assert key_bytes(one) == key_bytes(other)


@pytest.mark.parametrize(
    "key",
    [object(), [1], {"a": 1}, {1}, lambda: None, ("a", object()), 1j],
    ids=["object", "list", "dict", "set", "function", "tuple", "complex"],
)
def test_keys_without_stable_value_are_refused(key):
    """D4: a key that cannot be hashed by value is refused, with what to use instead."""
    with pytest.raises(StateError, match="the key selector must return"):
        key_bytes(key)


def test_key_groups_do_not_depend_on_the_process():
    """D4: another process, with another hash seed, finds the same groups."""
    code = (
        "from penstock.state.keys import assign_key_group as g;"
        "print([g(k, 128) for k in ('a', b'a', 1, 1.5, None, ('x', 2), frozenset(['p', 'q', 'r']))])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PATH": ""}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
