"""Rows of a history as the entries of the state, beside a model in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.key_columns import ColumnsCapture, RowMeaning, read_columns, select_entries

KEYS = st.one_of(st.none(), st.integers(0, 3))
NUMBERS = st.one_of(st.none(), st.sampled_from([-0.0, 0.0, 1.5, -2.0, float("nan"), float("inf")]))
ROWS = st.lists(st.tuples(KEYS, NUMBERS, st.integers(0, 2)), min_size=1, max_size=30)
NAMES = ["key", "number", "count"]
TYPES = [pa.int32(), pa.float64(), pa.int64()]


def read(rows: list[tuple[Any, ...]], meaning: RowMeaning, files: int = 2) -> list[tuple[Any, ...]]:
    """The entries of a history of some files."""
    history, begin = [], 0
    for part in np.array_split(np.arange(len(rows)), files):
        chosen = [rows[index] for index in part]
        columns = [pa.array([row[index] for row in chosen], kind) for index, kind in enumerate(TYPES)]
        table = pa.Table.from_arrays(columns, NAMES)
        history.append(ColumnsCapture("s", table, ("key",), "rows", begin, meaning=meaning).to_bytes())
        begin += len(chosen)
    return list(zip(*select_entries(read_columns(history)).to_pydict().values(), strict=True))


def shown(rows: list[tuple[Any, ...]]) -> list[str]:
    """Rows that compare where they hold NaN; the two zeros are equal."""
    return [repr(tuple(0.0 if value == 0 else value for value in row)) for row in rows]


@given(ROWS)
def test_the_newest_row_of_an_entry_counts(rows: list[tuple[Any, ...]]) -> None:
    """In the order of these rows; entries without a count are left out."""
    newest: dict[Any, tuple[Any, ...]] = {}
    for row in rows:
        newest.pop(row[0], None)
        newest[row[0]] = row
    meaning = RowMeaning(("key",), counts=("count",))
    assert shown(read(rows, meaning)) == shown([row for row in newest.values() if row[2]])


@given(ROWS, st.booleans(), st.booleans(), st.integers(1, 3))
def test_the_first_rows_of_an_entry_count(
    rows: list[tuple[Any, ...]], is_descending: bool, nulls_first: bool, first: int
) -> None:
    """By the order, and of equal rows the earlier one; NaN is the greatest number."""

    def place(number: float | None) -> tuple[bool, float, float]:
        value = (0.0, 0.0) if number is None else (1.0, 0.0) if number != number else (0.0, number + 0.0)
        sign = -1 if is_descending else 1
        return ((number is None) != nulls_first, sign * value[0], sign * value[1])

    groups: dict[Any, list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault(row[0], []).append(index)
    kept = sorted(
        index
        for indexes in groups.values()
        for index in sorted(indexes, key=lambda index: (place(rows[index][1]), index))[:first]
    )
    meaning = RowMeaning(("key",), first, (("number", is_descending, nulls_first),))
    assert shown(read(rows, meaning)) == shown([rows[index] for index in kept])


def test_columns_have_the_names_of_users_where_these_are_clear() -> None:
    """Two columns of one name keep the names of the file."""
    table = pa.table({"c0": [1], "c1": [2]})

    def names(labels: dict[str, str]) -> list[str]:
        data = ColumnsCapture("s", table, ("c0",), "rows", meaning=RowMeaning(labels=labels)).to_bytes()
        read_names: list[str] = select_entries(read_columns([data])).column_names
        return read_names

    assert names({"c0": "id", "c1": "name"}) == ["id", "name"]
    assert names({"c0": "id", "c1": "id"}) == ["c0", "c1"]
    assert names({}) == ["c0", "c1"]
