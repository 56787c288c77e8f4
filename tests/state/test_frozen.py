"""What a snapshot has captured is out of user code's reach (G7)."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import pytest

from penstock.state.backend import StateTable
from penstock.state.errors import StateError
from penstock.state.keys import assign_key_group, assign_key_groups
from penstock.state.snapshot import read_keyed


class Colour(enum.IntEnum):
    RED = 1


class Sale(NamedTuple):
    name: str
    prices: list[int]


def restored(data: bytes) -> Any:
    return read_keyed([data], 0, 127)[None]


def make_table(entries: dict[Any, Any]) -> StateTable:
    table = StateTable("totals")
    table.entries(None).update(entries)
    table.changed(None).update(entries)
    return table


@pytest.mark.parametrize("size", [3, 2_000])
@pytest.mark.parametrize(
    "value",
    [7, True, None, 1.5, "text", b"bytes", (1, "a", None), (1, (2, 3)), Colour.RED, Sale("tea", [1]), [1], {"a": {1}}],
    ids=repr,
)
def test_entries_come_back_as_they_were_of_the_same_types(value: Any, size: int) -> None:
    """G7: whole tables and a few entries."""
    capture = make_table(dict.fromkeys(range(size), value)).capture(1, "Sum")
    assert capture is not None
    found = restored(capture.to_bytes(128))
    assert found == dict.fromkeys(range(size), value)
    assert {type(item) for item in found.values()} == {type(value)}


@pytest.mark.parametrize(
    "value", [[1], (1, [2]), ("a", ("b", [2])), Sale("tea", [1]), {"a": [1]}, bytearray(b"1")], ids=repr
)
def test_what_is_changed_after_the_capture_does_not_reach_the_snapshot(value: Any) -> None:
    """G7: however deep in a value, and though the bytes are made later."""
    as_it_was = repr(value)
    table = make_table({"plain": 1, "other": value})
    capture = table.capture(1, "Sum")
    assert capture is not None
    inner: Any = value
    while not isinstance(inner, list | bytearray):
        inner = inner["a"] if isinstance(inner, dict) else inner[-1]
    inner.append(9)
    table.entries(None)["plain"] = 2
    assert repr(value) != as_it_was
    assert {key: repr(item) for key, item in restored(capture.to_bytes(128)).items()} == {
        "plain": "1",
        "other": as_it_was,
    }


def test_a_value_that_cannot_be_pickled_is_told_at_the_capture() -> None:
    """G7: with the operator and the state."""
    with pytest.raises(StateError, match="Sum: a value in state 'totals' cannot be pickled"):
        make_table({"a": (1, (n for n in range(3)))}).capture(1, "Sum")


@pytest.mark.parametrize(
    "keys", [[1, -5, 1 << 70], ["a", "é", "\ud800", ""], [1, "a", 2.0, None, ("a", 1)], [True, 1], []], ids=repr
)
def test_groups_of_many_keys_are_those_of_each(keys: list[Any]) -> None:
    """D4."""
    assert assign_key_groups(keys, 128) == [assign_key_group(key, 128) for key in keys]
