"""Keys by name of many records at once (A1)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.common import Row
from penstock.runtime.columns import ColumnKey

RECORDS: dict[str, tuple[tuple[str, ...], list[Any]]] = {
    "tuples": (("f2", "f0"), [(1, 2, 3), (4, 5, 6)]),
    "lists": (("f2", "f0"), [[1, 2, 3], [4, 5, 6]]),
    "rows": (("c", "a"), [Row(a=1, b=2, c=3), Row(a=4, b=5, c=6)]),
    "rows with names in another order": (("c", "a"), [Row(a=1, c=3), Row(c=6, a=4)]),
    "dicts": (("c", "a"), [{"a": 1, "c": 3}, {"a": 4, "c": 6}]),
    "objects": (("c", "a"), [SimpleNamespace(a=1, c=3), SimpleNamespace(a=4, c=6)]),
    "tuples and rows": (("f2", "f0"), [(1, 2, 3), Row(4, 5, 6)]),
}


@pytest.mark.parametrize("kind", RECORDS)
def test_the_keys_of_many_records_are_those_of_each(kind: str) -> None:
    """A1: whatever the records are, of one name and of several."""
    names, records = RECORDS[kind]
    for key in (ColumnKey(names), ColumnKey(names[:1])):
        keys: list[Any] = []
        key.extend(keys, records)
        assert keys == [key(record) for record in records]
    assert keys == [3, 6]


@pytest.mark.parametrize("records", [[(1, 2), (3,)], [Row(b=2, f1=1), Row(b=2)], [Row(f1=1, b=1), {"f1": 1}, {}]])
def test_what_has_no_such_field_is_told_by_how_far_it_went(records: list[Any]) -> None:
    """A1: the keys ahead of it are there."""
    keys: list[Any] = ["before"]
    with pytest.raises(TypeError, match="has no field 'f1'"):
        ColumnKey(("f1",)).extend(keys, records)
    assert len(keys) == len(records)


def test_no_records_have_no_keys() -> None:
    """A1."""
    keys: list[Any] = []
    ColumnKey(("f1",)).extend(keys, [])
    assert keys == []
