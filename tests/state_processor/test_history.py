"""Histories of changes: what is left of them, and how values become columns."""

from __future__ import annotations

import datetime
import pickle
import random
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from penstock.base.typeinfo import Types
from penstock.base.types import Row
from penstock.state.backend import StateTable
from penstock.state.errors import StateError
from penstock.state.snapshot import read_keyed
from penstock.state_processor.layouts import live_rows
from penstock.state_processor.reader import split_range
from penstock.state_processor.table import PICKLED, arrow_type, infer_type, spark_type, to_array
from penstock.storage.file_store import FileCheckpointStore
from penstock.storage.metadata import StateFile, checksum

GROUPS = 16
STORE = FileCheckpointStore(None, "", 0)


def stored(data: bytes) -> StateFile:
    return StateFile(len(data), checksum(data), data=data)


def random_history(seed: int) -> list[bytes]:
    """Files of a table that is written, removed from and dropped from, a snapshot after each few changes."""
    chance, table, files = random.Random(seed), StateTable("state"), []
    for checkpoint in range(chance.randint(1, 6)):
        for _ in range(chance.randint(1, 60)):
            namespace, key = chance.choice([None, (0, 5), 7]), chance.choice([1, 1.0, "a", "b", ("t", 2), *range(9)])
            if chance.random() < 0.05:
                table.drop(namespace)
            elif chance.random() < 0.25:
                table.entries(namespace).pop(key, None)
                table.changed(namespace).add(key)
            else:
                table.entries(namespace)[key] = chance.random()
                table.changed(namespace).add(key)
        capture = table.capture(checkpoint, "test")
        table.confirm(checkpoint)
        if capture is not None:
            files.append(capture.to_bytes(GROUPS))
    return files


@pytest.mark.parametrize("seed", range(60))
def test_what_is_left_of_a_history_is_what_a_job_would_restore(seed: int) -> None:
    """H5, G7: puts, removals and dropped namespaces are applied as a restore applies them, for any key groups."""
    files = random_history(seed)
    for first, last in [(0, GROUPS - 1), *split_range(0, GROUPS - 1, 3)]:
        left: dict[Any, dict[Any, Any]] = {}
        for rows in live_rows(STORE, list(map(stored, files)), first, last):
            assert all(first <= group <= last for group in rows.groups)
            for key, namespace, value in zip(rows.keys, rows.namespaces, rows.values, strict=True):
                entries = left.setdefault(pickle.loads(namespace), {})
                assert pickle.loads(key) not in entries
                entries[pickle.loads(key)] = pickle.loads(value)
        assert left == {n: entries for n, entries in read_keyed(files, first, last).items() if entries}


def test_key_groups_are_split_without_gap_or_overlap() -> None:
    """D4: ranges cover all key groups once."""
    for count in range(1, 20):
        for pieces in range(1, 25):
            ranges = split_range(5, 4 + count, pieces)
            assert [g for first, last in ranges for g in range(first, last + 1)] == list(range(5, 5 + count))
            assert len(ranges) == min(count, pieces)


@dataclass
class Point:
    x: int
    label: str | None


class Pair(NamedTuple):
    one: int
    other: float


AWARE = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("values", "kind", "read"),
    [
        ([1, None, -(2**40)], "BIGINT", [1, None, -(2**40)]),
        ([1, 2.5], "DOUBLE", [1.0, 2.5]),
        ([True, False], "BOOLEAN", [True, False]),
        (["a", ""], "STRING", ["a", ""]),
        ([b"a", b"\0"], "BINARY", [b"a", b"\0"]),
        ([AWARE], "TIMESTAMP", [AWARE]),
        ([AWARE.replace(tzinfo=None)], "TIMESTAMP_NTZ", [AWARE.replace(tzinfo=None)]),
        ([datetime.date(1969, 1, 2)], "DATE", [datetime.date(1969, 1, 2)]),
        ([datetime.timedelta(1, 2, 3)], "INTERVAL DAY TO SECOND", [datetime.timedelta(1, 2, 3)]),
        ([(1, "a"), None], "STRUCT<`f0`: BIGINT, `f1`: STRING>", [{"f0": 1, "f1": "a"}, None]),
        ([Pair(1, 2.0)], "STRUCT<`one`: BIGINT, `other`: DOUBLE>", [{"one": 1, "other": 2.0}]),
        ([Row(a=1, b=(2,))], "STRUCT<`a`: BIGINT, `b`: STRUCT<`f0`: BIGINT>>", [{"a": 1, "b": {"f0": 2}}]),
        ([Point(1, None)], "STRUCT<`x`: BIGINT, `label`: STRING>", [{"x": 1, "label": None}]),
        ([[(1, 2)], [], None], "ARRAY<STRUCT<`f0`: BIGINT, `f1`: BIGINT>>", [[{"f0": 1, "f1": 2}], [], None]),
        ([{"a": [1]}, {}], "MAP<STRING, ARRAY<BIGINT>>", [[("a", [1])], []]),
    ],
)
def test_simple_types_become_columns(values: list[Any], kind: str, read: list[Any]) -> None:
    """H5: numbers, text, bytes, times, and tuples, rows, dataclasses, lists and dicts of them have column types."""
    inferred = infer_type(values)
    assert spark_type(inferred) == kind
    assert to_array(values, inferred, "column").to_pylist() == read


@pytest.mark.parametrize(
    "values", [[{1, 2}], [1, "a"], [2**70], [(1, 2), (1,)], [object], [(1, None)], [None], [[]], []]
)
def test_everything_else_is_pickled(values: list[Any]) -> None:
    """H5: values of other types, of types that do not go together, and of which nothing is known, are pickled."""
    assert infer_type(values) is None
    assert [pickle.loads(b) for b in to_array(values, None, "column").to_pylist()] == values


def test_types_that_are_said() -> None:
    """H5: a column's type may be a Python type, a dataclass, a type of the API or of Arrow."""
    assert arrow_type(PICKLED) is None
    assert arrow_type(int) == pa.int64()
    assert arrow_type(pa.int8()) == pa.int8()
    assert arrow_type(Point) == pa.struct([("x", pa.int64()), ("label", pa.string())])
    assert arrow_type(Types.TUPLE([Types.INT(), Types.STRING()])) == pa.struct(
        [("f0", pa.int32()), ("f1", pa.string())]
    )
    named = arrow_type(Types.ROW_NAMED(["a"], [Types.LONG()]))
    assert to_array([Row(a=1)], named, "column").to_pylist() == [{"a": 1}]
    with pytest.raises(StateError, match="a value of column 'value' does not fit"):
        to_array([1, "a"], pa.int64(), "column 'value'")
    with pytest.raises(StateError, match="has 1 fields, not the 2 of f0, f1"):
        to_array([(1,)], pa.struct([("f0", pa.int64()), ("f1", pa.int64())]), "column")
