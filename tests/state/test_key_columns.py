"""Keys of several columns as numbers, which stand for them in groups, routes and snapshots (D4)."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.state.key_columns import (
    KEY_GROUP,
    ColumnsCapture,
    ColumnStates,
    add_key_groups,
    distinct_keys,
    merge_columns,
    read_columns,
)
from penstock.state.keys import assign_key_group

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


FEW: list[list[pa.Array]] = [
    [pa.array([2, None, 2, 1], pa.int32())],
    [pa.array([True, False, None, True])],
    [pa.array(["b", "", None, "b"]), pa.array([b"x", b"x", None, b"x"])],
    [pa.array([1, 2, None, 1], pa.timestamp("ms")), pa.array([1, 1, 1, 1], pa.date32())],
    [pa.array([Decimal("1.50"), Decimal("-0.01"), None, Decimal("1.50")], pa.decimal128(10, 2))],
    [pa.array([math.nan, None, math.nan, 0.0])],
    [pa.array([[1], [1], None, [1]])],
    [pa.array([7], pa.int64()), pa.array(["x"])],
]


@pytest.mark.parametrize("columns", FEW, ids=lambda columns: ", ".join(str(column.type) for column in columns))
def test_a_few_rows_have_the_numbers_that_kernels_give_them(
    columns: list[pa.Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    """D4: numbers, keys, and the order of keys, which are the order of state."""
    codes, keys = distinct_keys(columns)
    monkeypatch.setattr("penstock.state.key_columns._FEW", 0)
    expected_codes, expected_keys = distinct_keys(columns)
    assert codes.tolist() == expected_codes.tolist()
    assert repr(keys) == repr(expected_keys)


def part(first: int, *keys: int) -> bytes:
    table = pa.table({"key.0": pa.array(keys, pa.int64())})
    return ColumnsCapture("rows", table, ("key.0",), "rows", first).to_bytes()


@pytest.mark.parametrize(
    "chunks", [[[None, 1.0], [math.nan]], [[math.nan], [None, math.nan]], [[math.nan], [math.nan]]]
)
def test_nan_and_null_are_keys_of_tables_in_several_chunks(chunks: list[list[float | None]]) -> None:
    """D4: a checkpoint numbers the keys of a table as it lies in memory."""
    codes, keys = distinct_keys([pa.chunked_array(chunks, pa.float64())])
    values = [value for chunk in chunks for value in chunk]
    assert list(map(str, (keys[code] for code in codes.tolist()))) == list(map(str, values))
    assert len(keys) == len(set(map(str, values)))


def test_rows_that_two_files_have_count_once() -> None:
    """G7: a checkpoint may have begun before the one that it builds on was complete."""
    history = [part(0, 1, 2, 3), part(2, 3, 4), part(4, 5)]
    assert read_columns(history).column("key.0").to_pylist() == [1, 2, 3, 4, 5]
    assert read_columns([merge_columns(history), part(5, 6)]).column("key.0").to_pylist() == [1, 2, 3, 4, 5, 6]


def test_a_checkpoint_builds_on_complete_ones_only() -> None:
    """G7: and no checkpoint on a savepoint."""
    states = ColumnStates()
    assert states.start_capture("rows", 3, 1) == 0
    assert states.start_capture("rows", 5, 2) == 0
    states.confirm(1)
    assert states.start_capture("rows", 8, 3) == 3
    states.take_back(3)
    states.confirm(3)
    assert states.start_capture("rows", 9, 4) == 5


def test_a_restored_table_goes_on_where_its_key_groups_are_the_same() -> None:
    """G7, D4."""
    for goes_on, expected in ((True, 2), (False, 0)):
        states = ColumnStates()
        states.restore("rows", [part(0, 1, 2)], (0, 127), (0, 127), 128, goes_on)
        assert states.start_capture("rows", 2, 1) == expected


def former_part(first: int, *keys: int) -> bytes:
    """A file as releases wrote it that put the key group of each row first."""
    groups = pa.array([assign_key_group(key, 128) for key in keys], pa.int32())
    table = pa.table({KEY_GROUP: groups, "key.0": pa.array(keys, pa.int64())})
    table = table.replace_schema_metadata({"penstock.columns": "rows", "penstock.first_row": str(first)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    "history",
    [
        [former_part(0, *range(50)), former_part(50, *range(50, 90))],
        [former_part(0, *range(50)), part(50, *range(50, 90))],
        [part(0, *range(50)), part(50, *range(50, 90))],
        [merge_columns([former_part(0, *range(50)), part(50, *range(50, 80))]), part(80, *range(80, 90))],
    ],
    ids=["with key groups", "begins with key groups", "without key groups", "merged"],
)
def test_other_key_groups_get_their_rows(history: list[bytes]) -> None:
    """D4: at another parallelism each row is restored once, whether its file has key groups or not."""
    keys = []
    for first, last in ((0, 31), (32, 100), (101, 127)):
        states = ColumnStates()
        states.restore("rows", history, (0, 127), (first, last), 128)
        table = states.take("rows", "rows")
        assert table is not None
        assert table.column_names == ["key.0"]
        of_range = table.column(0).to_pylist()
        assert all(first <= assign_key_group(key, 128) <= last for key in of_range)
        keys += of_range
    assert sorted(keys) == list(range(90))
    groups = add_key_groups(read_columns(history), 128).column(KEY_GROUP).to_pylist()
    assert groups == [assign_key_group(key, 128) for key in range(90)]


@pytest.mark.parametrize("kind", [pa.timestamp("ms"), pa.date32(), pa.decimal128(10, 2), pa.string()], ids=str)
def test_a_table_without_rows_is_stored(kind: pa.DataType) -> None:
    """D4: whatever its keys are, and once its rows are gone."""
    empty = pa.table({"key.0": pa.chunked_array([], kind), "n": pa.chunked_array([], pa.int64())})
    states = ColumnStates()
    file = ColumnsCapture("windows", empty, ("key.0",), "windows").to_bytes()
    states.restore("windows", [file], (0, 127), (0, 63), 128)
    found = states.take("windows", "windows")
    assert found is not None
    assert found.schema.equals(empty.schema)
    assert found.num_rows == 0
