"""Top-N and deduplication over indexed columns send what those over rows send, and go on from each other's state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from tests.table.streaming.ranked import NAMES, NUMBERED, TS, TYPES, K, Under, V

from penstock.runtime.operators.base import StreamOperator
from penstock.sql.data.types import BigIntType, BooleanType, DoubleType, IntType
from penstock.sql.logical.nodes import SortKey
from penstock.sql.stream.ranking import indexed_last_row, indexed_top_n
from penstock.sql.stream.ranking.columnar import ColumnLastRowOperator, ColumnRankOperator
from penstock.sql.stream.ranking.deduplicate import LastRowOperator
from penstock.sql.stream.ranking.indexed_last_row import IndexedLastRowOperator
from penstock.sql.stream.ranking.indexed_top_n import Emission, IndexedTopNOperator, SortValues
from penstock.sql.stream.ranking.top_n import RankOperator, Top1, TopN
from penstock.sql.stream.rows import columns as numbered_rows
from penstock.sql.stream.rows import key_index
from penstock.sql.stream.rows.key_index import ABSENT, KeyIndex
from penstock.sql.stream.rows.rows import sort_keys
from penstock.state.backend import HeapKeyedStateBackend
from penstock.state.key_columns import ColumnsCapture, read_history
from penstock.state.rocksdb.backend import MappedBlocks

Factory = Callable[[], StreamOperator]
#: a setting is the same for all examples
SHARED = [HealthCheck.function_scoped_fixture]
FEW = [*"abc"]
MANY = [f"k{number}" for number in range(40)]


def batches_of(keys: list[str], size: int) -> st.SearchStrategy[list[list[tuple[Any, ...]]]]:
    rows = st.tuples(st.sampled_from(keys), st.one_of(st.none(), st.integers(0, 4)), st.integers(0, 3))
    return st.lists(st.lists(rows, min_size=1, max_size=size), max_size=6)


BATCHES = st.one_of(batches_of(FEW, 8), batches_of(MANY, 60))


@pytest.fixture(params=["in memory", "mapped", "with equal hashes", "few rows", "few and many rows"])
def setting(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """How state lies; small limits, so that everything happens with few rows."""
    monkeypatch.setattr(numbered_rows, "ROWS_GONE_MAX", 2)
    monkeypatch.setattr(numbered_rows, "_FEW", 2)
    monkeypatch.setattr(indexed_top_n, "_PARTITIONS_MIN", 2)
    monkeypatch.setattr(indexed_top_n, "_RANKED_FIRST", 1)
    monkeypatch.setattr(indexed_top_n, "_PARTITIONS_AT_FIRST", 1)
    monkeypatch.setattr(key_index, "_SLOTS_MIN", 2)
    few = {"few rows": 256, "few and many rows": 5}.get(request.param, 0)
    monkeypatch.setattr(indexed_top_n, "FEW_ROWS", few)
    monkeypatch.setattr(indexed_last_row, "FEW_ROWS", few)
    if request.param == "few and many rows":
        monkeypatch.setattr(indexed_top_n, "_GROUPS_MAX", 3)
        monkeypatch.setattr(indexed_last_row, "_ENTRIES_MAX", 3)
    if request.param == "mapped":
        blocks = MappedBlocks(tmp_path / "blocks", "ranks")
        monkeypatch.setattr(numbered_rows, "_STORED_BYTES", 64)
        monkeypatch.setattr(HeapKeyedStateBackend, "store_columns", blocks.store_columns)
        monkeypatch.setattr(HeapKeyedStateBackend, "allocate", lambda self, n, kind: blocks.allocate(n, kind))
    if request.param == "with equal hashes":
        hashes = numbered_rows.key_hashes
        monkeypatch.setattr(key_index, "key_hashes", lambda keys: hashes(keys) % 3)

        def build_few_hashes(kinds: Sequence[pa.DataType]) -> Any:
            hash_key = numbered_rows.build_key_hash(kinds)
            return hash_key and (lambda key: hash_key(key) % 3)

        monkeypatch.setattr(indexed_last_row, "build_key_hash", build_few_hashes)
        monkeypatch.setattr(indexed_last_row, "FEW_ROWS", 5)
        monkeypatch.setattr(indexed_last_row, "_ENTRIES_MAX", 3)
    yield request.param
    assert not list(tmp_path.rglob("*.block"))


def check(indexed: Factory, others: Sequence[Factory], batches: list[list[tuple[Any, ...]]], data: Any) -> None:
    """Both send the same for each batch, whatever state they go on from, at whatever parallelism."""
    under, expected = Under(indexed), Under(others[0])
    for batch in batches:
        under.rows(*batch)
        expected.rows(*batch)
        sent, wanted = under.take(), expected.take()
        if len(under.harnesses) > 1:
            sent, wanted = sorted(sent, key=repr), sorted(wanted, key=repr)
        assert sent == wanted
        if data.draw(st.booleans()):
            under._operator = data.draw(st.sampled_from([indexed, indexed, *others]))
            under.recover(data.draw(st.sampled_from([1, 1, 2])))
    for harness in under.harnesses:
        operator = harness.operator
        operator.snapshot_state(99)
        if isinstance(operator, IndexedLastRowOperator):
            assert len(operator._rows.kept_numbers()) == len(operator._index)
        elif isinstance(operator, IndexedTopNOperator):
            assert len(operator._rows.kept_numbers()) == operator._counts.sum()


@settings(deadline=None, max_examples=80, suppress_health_check=SHARED)
@given(BATCHES, st.sampled_from([None, TS]), st.booleans(), st.data())
def test_the_last_row(setting: str, batches: Any, time: int | None, sends_before: bool, data: Any) -> None:
    arguments = ((K,), time, TYPES, NAMES, sends_before)
    others = [partial(kind, *arguments) for kind in (LastRowOperator, ColumnLastRowOperator)]
    check(partial(IndexedLastRowOperator, *arguments), others, batches, data)


ORDERS = [(SortKey(V),), (SortKey(V, True, False),), (SortKey(TS, True, False), SortKey(V)), (SortKey(TS),)]


@settings(deadline=None, max_examples=120, suppress_health_check=SHARED)
@given(BATCHES, st.sampled_from(ORDERS), st.integers(1, 2), st.integers(0, 2), st.booleans(), st.data())
def test_the_first_rows(
    setting: str, batches: Any, order: Any, start: int, more: int, shows: bool, data: st.DataObject
) -> None:
    end, names, before = start + more, NUMBERED if shows else NAMES, data.draw(st.booleans())
    top = Top1(shows, before) if end == 1 else TopN(start, shows, before)
    emission = Emission(start, end, end == 1 or top.is_numbered, shows, before)
    others: list[Factory] = [
        partial(RankOperator, (K,), order, end, False, top, TYPES, names),
        partial(ColumnRankOperator, (K,), order, end, top, TYPES, names),
    ]
    check(partial(IndexedTopNOperator, (K,), order, emission, top, TYPES, names), others, batches, data)


@given(st.lists(st.tuples(st.one_of(st.none(), st.floats(width=32)), st.booleans(), st.integers(-(1 << 63), 5))))
def test_sort_values_are_in_the_order_of_sort_keys(rows: list[tuple[Any, ...]]) -> None:
    """NaN is the greatest number, -0.0 is 0.0, and the least integer has a place in either direction."""
    types = (DoubleType(), BooleanType(False), BigIntType(False))
    columns = [
        pa.array([row[index] for row in rows], kind)
        for index, kind in enumerate((pa.float64(), pa.bool_(), pa.int64()))
    ]
    for order in (
        (SortKey(0, False, True), SortKey(2)),
        (SortKey(0, True, False), SortKey(1), SortKey(2, True, True)),
        (SortKey(1, True, False), SortKey(0, False, False)),
    ):
        values = list(map(tuple, SortValues(order, types).of(columns).tolist())) if rows else []
        keys = sort_keys(order, types, rows)
        for left, right in zip(range(len(rows)), range(1, len(rows)), strict=False):
            assert (values[left] < values[right]) == (keys[left] < keys[right])
            assert (values[left] == values[right]) == (keys[left] == keys[right])


@given(st.lists(st.lists(st.integers(0, 50), max_size=20, unique=True), max_size=20), st.booleans())
def test_an_index_finds_what_was_put_in(batches: list[list[int]], are_equal: bool) -> None:
    """Also where all keys have one hash."""
    index, stored, keys = KeyIndex(np.zeros), dict[int, int](), list[int]()
    for batch in batches:
        array = np.array(batch, np.int64)
        hashes = array * 0 + 7 if are_equal else array

        known_keys = np.array(keys)

        def same(positions: Any, numbers: Any, array: Any = array, known_keys: Any = known_keys) -> Any:
            return array[positions] == known_keys[numbers]

        numbers, slots = index.find(hashes, same if are_equal else None)
        assert numbers.tolist() == [stored.get(key, ABSENT) for key in batch]
        known = numbers != ABSENT
        new = np.arange(len(keys), len(keys) + len(batch))
        keys += batch
        index.replace(slots[known], new[known])
        index.insert(hashes[~known], new[~known])
        stored.update(zip(batch, new.tolist(), strict=True))
    assert len(index) == len(stored)


@pytest.fixture
def without_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of any size are processed by kernels."""
    monkeypatch.setattr(indexed_top_n, "FEW_ROWS", 0)
    monkeypatch.setattr(indexed_last_row, "FEW_ROWS", 0)


def files_of(under: Under, checkpoint_id: int, *meanwhile: tuple[Any, ...]) -> list[Any]:
    """What a checkpoint writes in columns, while rows come: each file, and whether it is an addition."""
    (harness,) = under.harnesses
    captures = [c for c in harness.operator.snapshot_state(checkpoint_id) if isinstance(c, ColumnsCapture)]
    if meanwhile:
        under.rows(*meanwhile)
    files = [(read_history([capture.to_bytes()]), capture.is_addition) for capture in captures]
    harness.context.columns.confirm(checkpoint_id)
    return files


@pytest.mark.usefixtures("without_python")
def test_a_checkpoint_has_the_rows_that_are_new_and_still_last() -> None:
    """G7."""
    under = Under(partial(IndexedLastRowOperator, (K,), TS, TYPES, NAMES, True))
    under.rows(*[(f"k{number}", number, number) for number in range(3_000)])
    ((file, is_addition),) = files_of(under, 1)
    assert (file.table.num_rows, file.end, is_addition) == (3_000, 3_000, False)
    under.rows(("k1", 7, 5_000), ("new", 8, 1), ("new", 9, 2))
    ((file, is_addition),) = files_of(under, 2, ("k1", 8, 5_001), ("new", 10, 3))
    assert is_addition
    assert file.table.column("0").to_pylist() == ["k1", "new"]
    assert file.table.column("1").to_pylist() == [7, 9]
    assert (file.first, file.end, file.list_numbers().tolist()) == (3_000, 3_003, [3_000, 3_002])
    ((file, is_addition),) = files_of(under, 3)
    assert file.table.column("1").to_pylist() == [8, 10]
    assert files_of(under, 4) == []


@pytest.mark.usefixtures("without_python")
def test_rows_with_new_numbers_are_written_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """G7: the history begins anew, so that it does not grow with rows that are gone."""
    monkeypatch.setattr(numbered_rows, "ROWS_GONE_MAX", 2)
    top = TopN(1, False, True)
    emission = Emission(1, 2, False, False, True)
    under = Under(partial(IndexedTopNOperator, (K,), (SortKey(V),), emission, top, TYPES, NAMES))
    under.rows(("a", 9), ("a", 8))
    assert [is_addition for _, is_addition in files_of(under, 1)] == [False]
    for value in range(7, 0, -1):
        under.rows(("a", value))
    ((file, is_addition),) = files_of(under, 2)
    assert not is_addition
    assert file.table.column("1").to_pylist() == [2, 1]


@pytest.mark.usefixtures("without_python")
def test_a_partition_takes_only_rows_that_may_rank() -> None:
    top = TopN(1, False, True)
    emission = Emission(1, 1, False, False, True)
    ranked = Under(partial(IndexedTopNOperator, (K,), (SortKey(V),), emission, top, TYPES, NAMES))
    ranked.rows(("a", 0))
    ranked.rows(*[("a", value) for value in range(1, 100)])
    operator = ranked.harnesses[0].operator
    assert isinstance(operator, IndexedTopNOperator)
    assert len(operator._rows) == 1


def test_types_that_cannot_be_compared_as_numbers() -> None:
    assert indexed_top_n.can_compare((SortKey(V),), TYPES)
    assert not indexed_top_n.can_compare((SortKey(V), SortKey(K)), TYPES)
    assert not indexed_top_n.can_compare((), TYPES)
    assert indexed_top_n.can_compare((SortKey(0),), (IntType(),))
