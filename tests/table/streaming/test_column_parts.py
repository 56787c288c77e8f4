"""Rows in parts keep their numbers, and keys their hashes, however parts are put together."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from penstock.sql.stream.rows import columns as column_parts
from penstock.sql.stream.rows.columns import ColumnParts, is_own_number, key_hashes, same_keys


def batch(first: int, rows: int) -> pa.RecordBatch:
    numbers = list(range(first, first + rows))
    return pa.RecordBatch.from_pydict({"n": numbers, "t": [f"row {number}" for number in numbers]})


@pytest.mark.parametrize("few", [0, 7])
@given(st.lists(st.integers(0, 9), max_size=60), st.data())
def test_a_row_is_found_by_its_number_wherever_it_has_moved(few: int, sizes: list[int], data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_parts, "_FEW", few)
        patch.setattr(column_parts, "_FACTOR", 3)
        patch.setattr(column_parts, "_ROWS_MAX", 40)
        parts = ColumnParts()
        for size in sizes:
            assert parts.append(batch(parts.end, size)) == parts.end - size
    if not len(parts):
        return
    asked = data.draw(st.lists(st.integers(0, parts.end - 1), min_size=1))
    numbers, texts = parts.taken([0, 1], np.array(asked))
    assert numbers.to_pylist() == asked
    assert texts.to_pylist() == [f"row {number}" for number in asked]


def test_parts_stay_few() -> None:
    parts = ColumnParts()
    for _ in range(5_000):
        parts.append(batch(parts.end, 3))
    assert len(parts.parts) < 16


NAN = float("nan")
COLUMNS = [
    pa.array([1, 2, None, 1, None]),
    pa.array([1, 2, None, 1, None], pa.date32()),
    pa.array([1, 2, None, 1, None], pa.timestamp("ns", "UTC")),
    pa.array([NAN, 2.0, None, NAN, None]),
    pa.array(["a", "b", None, "a", None]),
    pa.array([b"a", b"", None, b"a", None]),
    pa.array([True, False, None, True, None]),
    pa.array([[1], [2], None, [1], None]),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_keys_that_are_the_same_have_the_same_hash(column: pa.Array) -> None:
    one = key_hashes([column]).tolist()
    assert (one[0], one[2]) == (one[3], one[4])
    assert len(set(one)) == 3
    of_two = key_hashes([column, pa.array([1, 1, 1, 1, 2])]).tolist()
    assert of_two[0] == of_two[3]
    assert len(set(of_two)) == 4


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_keys_are_compared_with_null_like_null(column: pa.Array) -> None:
    others = column.take(pa.array([3, 0, 4, 1, 0]))
    assert same_keys([column], [others]).tolist() == [True, False, True, False, False]


def test_only_whole_numbers_are_their_own() -> None:
    assert is_own_number([pa.int64()])
    assert not is_own_number([pa.int64(), pa.int64()])
    assert not is_own_number([pa.string()])
    assert key_hashes([pa.array([3, -4])]).tolist() == [3, -4]
