"""Keys of several columns as numbers, which stand for them in groups, routes and snapshots (D4)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.state.key_columns import distinct_keys

COLUMNS: dict[str, list[list[Any]]] = {
    "one": [["b", "a", None, "b"]],
    "two": [["b", "a", None, "b", "b"], [1, None, 1, 1, 2]],
    "three": [["b", "a", "a", "b"], [1, 1, 1, 1], [0.5, 2.5, 0.5, 0.5]],
    "none": [[], []],
    "more pairs than 32 bits have": [list(range(50_000)), list(range(50_000))],
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_each_row_has_the_number_of_its_key(kind: str) -> None:
    """D4: and each key has one number."""
    columns = COLUMNS[kind]
    codes, keys = distinct_keys([pa.array(column) for column in columns])
    rows = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    assert [keys[code] for code in codes.tolist()] == rows
    assert len(keys) == len(set(rows))
