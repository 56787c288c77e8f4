"""Partitioners that choose among channels: rescale, shuffle, custom; and which neighbours a pointwise edge connects."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.runtime.columns import ColumnBatch, ColumnKey
from penstock.runtime.graph import find_consumers, find_producers
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.records import Batch
from penstock.runtime.task.channels.result_partition import (
    CustomPartitioner,
    HashPartitioner,
    RescalePartitioner,
    ShufflePartitioner,
)
from penstock.state.keys import assign_key_group


def split(partitioner, values, channels, subtask=0, batch=10):
    partitioner.set_up(subtask, channels, 128, "Consumer")
    dealt: list = [[] for _ in range(channels)]
    for start in range(0, len(values), batch):
        for channel, part in partitioner.split(Batch(values[start : start + batch], list(range(len(values)))[:batch])):
            dealt[channel] += part.values
    return dealt


@pytest.mark.parametrize("producers", range(1, 9))
@pytest.mark.parametrize("consumers", range(1, 9))
def test_both_ends_of_a_pointwise_edge_see_the_same_channels(producers, consumers):
    """B3: producers and consumers agree, nobody is left out, and groups differ in size by one at most."""
    seen_by_consumers = {(p, c) for c in range(consumers) for p in find_producers(c, producers, consumers)}
    seen_by_producers = {(p, c) for p in range(producers) for c in find_consumers(p, producers, consumers)}
    assert seen_by_consumers == seen_by_producers
    assert {p for p, _ in seen_by_producers} == set(range(producers))
    assert {c for _, c in seen_by_producers} == set(range(consumers))
    if producers >= consumers:
        sizes = {len(find_producers(c, producers, consumers)) for c in range(consumers)}
    else:
        sizes = {len(find_consumers(p, producers, consumers)) for p in range(producers)}
    assert max(sizes) - min(sizes) <= 1
    if producers == consumers:
        assert seen_by_producers == {(i, i) for i in range(producers)}


def test_rescale_talks_to_its_group():
    """B3: from 2 to 4 the first subtask has the first two, from 4 to 2 each of the two has its own two."""
    assert [list(find_consumers(p, 2, 4)) for p in range(2)] == [[0, 1], [2, 3]]
    assert [list(find_producers(c, 4, 2)) for c in range(2)] == [[0, 1], [2, 3]]
    assert [list(find_producers(c, 2, 3)) for c in range(3)] == [[0], [0], [1]]
    assert RescalePartitioner().is_pointwise


def test_rescale_is_round_robin():
    """B3: within the group records are dealt out evenly."""
    assert [len(part) for part in split(RescalePartitioner(), list(range(100)), 2)] == [50, 50]


def test_shuffle_is_even_and_the_same_in_every_run():
    """B3: by chance, but reproducibly, and differently for each sender; order within a channel is kept."""
    values = list(range(8_000))
    dealt = split(ShufflePartitioner(), values, 4)
    assert sorted(v for part in dealt for v in part) == values
    assert all(part == sorted(part) for part in dealt)
    assert all(1_850 < len(part) < 2_150 for part in dealt)
    assert dealt == split(ShufflePartitioner(), values, 4, batch=1_000)
    assert dealt != split(ShufflePartitioner(), values, 4, subtask=1)


@pytest.mark.parametrize("channels", [2, 3, 8, 9, 20])
@pytest.mark.parametrize(
    "batches",
    [
        [[3, 1, 2, 1, 3], [70, 5, 3], [9]],
        [[1, 2], [1 << 17, 1, 2], [1 << 40, 7]],
        [[4, 5], [-1, 4], [5, 4]],
        [[1, 2], [1.0, 2.5, True], ["a", 1], [None, 2]],
        [["a", "b", "a"], [("a", 1), ("b", 2)]],
        [[1, Decimal("NaN")], [Decimal("7"), 7]],
    ],
    ids=["small", "growing", "negative", "mixed", "no integers", "incomparable"],
)
def test_a_key_of_any_kind_goes_to_the_owner_of_its_key_group(batches, channels):
    """D4: whatever else has come before it; values and timestamps stay together and in order."""
    partitioner = HashPartitioner(lambda value: value[0])
    partitioner.set_up(0, channels, 128, "Consumer")
    for keys in batches:
        values = [(key, index) for index, key in enumerate(keys)]
        expected: list = [[] for _ in range(channels)]
        for value in values:
            expected[assign_key_group(value[0], 128) * channels // 128].append(value)
        timed = partitioner.split(Batch(values, list(range(len(values)))))
        assert partitioner.split(Batch(values)) == [(i, Batch(part)) for i, part in enumerate(expected) if part]
        assert timed == [(i, Batch(part, [at for _, at in part])) for i, part in enumerate(expected) if part]


def test_custom_goes_where_the_function_says():
    """B3: partition(key, number of channels)."""
    dealt = split(CustomPartitioner(lambda key, n: key % n, lambda v: v[0]), [(i, "x") for i in range(9)], 3)
    assert dealt == [[(i, "x") for i in range(first, 9, 3)] for first in range(3)]


@pytest.mark.parametrize("answer", [3, -1, "one"])
def test_a_channel_that_is_not_there(answer):
    """B3: the error names the consumer and the record."""
    with pytest.raises(UserCodeError) as caught:
        split(CustomPartitioner(lambda key, n: answer, lambda v: v), [5], 3)
    assert caught.value.operator_name == "Consumer"
    assert caught.value.record == 5
    assert caught.value.what == "the partitioner"


def assert_columns_go_where_rows_go(partitioner: HashPartitioner, columns: dict[str, Any]) -> None:
    size = len(next(iter(columns.values())))
    batch = ColumnBatch(pa.RecordBatch.from_pydict(columns), np.arange(size))
    by_columns = partitioner.split(batch)
    by_rows = partitioner.split(Batch(batch.values, batch.timestamps))
    assert [(c, part.values, part.timestamps) for c, part in by_columns] == [
        (c, part.values, part.timestamps) for c, part in by_rows
    ]
    assert all(isinstance(part, ColumnBatch) for _, part in by_columns)


@pytest.mark.parametrize("channels", [3, 300])
@pytest.mark.parametrize("names", [("key",), ("key", "number"), ("number", "key", "at")])
def test_columns_go_where_their_rows_would_go(names: tuple[str, ...], channels: int) -> None:
    """D4: the key group is that of the key's value, however the record is kept; order within a channel stays."""
    partitioner = HashPartitioner(ColumnKey(names))
    partitioner.set_up(0, channels, 1024, "Consumer")
    keys = ["a", "b", None, "", "c", "a"] * 20
    columns = {"key": keys, "number": [i % 7 for i in range(120)], "at": range(120)}
    assert_columns_go_where_rows_go(partitioner, columns)


@pytest.mark.parametrize("channels", [3, 300])
def test_columns_of_numbers_go_where_their_rows_would_go(channels: int) -> None:
    """D4: small integers by a table that grows as they come, and large ones, negative ones and nulls without."""
    partitioner = HashPartitioner(ColumnKey(("key",)))
    partitioner.set_up(0, channels, 1024, "Consumer")
    for keys in (
        *([5, 3, 5], [0, 6], [9, 1_000], [-1, 3, -1_001], [2**40, 3], [None, 7, 3], [2**20, 2**20 - 1], [8], [1.5]),
        *(pa.array([200, 7, 200], pa.uint8()), pa.array([-200, 7], pa.int16()), pa.array([2**63, 7], pa.uint64())),
    ):
        assert_columns_go_where_rows_go(partitioner, {"key": keys})


def test_columns_whose_key_is_a_function_stay_columns():
    partitioner = HashPartitioner(lambda row: row.key)
    partitioner.set_up(0, 2, 128, "Consumer")
    batch = ColumnBatch(pa.RecordBatch.from_pydict({"key": list(range(10))}))
    parts = partitioner.split(batch)
    assert sorted(row.key for _, part in parts for row in part.values) == list(range(10))
    assert all(isinstance(part, ColumnBatch) for _, part in parts)


def test_a_column_that_is_not_there_is_the_consumers_error():
    partitioner = HashPartitioner(ColumnKey(("colour",)))
    partitioner.set_up(0, 2, 128, "Consumer")
    with pytest.raises(UserCodeError) as raised:
        partitioner.split(ColumnBatch(pa.RecordBatch.from_pydict({"key": [1]})))
    assert raised.value.operator_name == "Consumer"
    assert "no column 'colour'" in str(raised.value.__cause__)
