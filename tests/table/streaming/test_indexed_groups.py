"""Groups whose keys are columns send what groups of accumulators send, and go on from each other's state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from tests.state.rocks import CanonicalRocks
from tests.table.streaming.test_column_groups import BOOLEAN, VALUES, Change, batch_of, calls_of

from penstock.runtime.columns import ColumnBatch
from penstock.runtime.records import Batch
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type, to_column, to_values
from penstock.sql.logical.nodes import SHORT, AggregateCall
from penstock.sql.stream.aggregates import columns as call_columns
from penstock.sql.stream.aggregates import pairs
from penstock.sql.stream.groups import columnar, columns, indexed
from penstock.sql.stream.groups.columnar import ColumnGroupAggregateOperator
from penstock.sql.stream.groups.columns import GROUP_COLUMNS, has_only_columns
from penstock.sql.stream.groups.indexed import IndexedGroupAggregateOperator
from penstock.sql.stream.groups.operators import GROUPS, GroupAggregateOperator
from penstock.sql.stream.rows import columns as numbered_rows
from penstock.sql.stream.rows import key_index
from penstock.sql.stream.rows.rows import RowKeys
from penstock.sql.stream.rows.state_ttl import MiniBatch
from penstock.sql.typed import Field
from penstock.state.backend import HeapKeyedStateBackend
from penstock.state.errors import StateError
from penstock.state.key_columns import ColumnsCapture, read_history
from penstock.state.keys import assign_key_group, subtask_of_key_group
from penstock.state.rocksdb.backend import MappedBlocks
from penstock.testing import OneInputOperatorHarness, operator_harness

BIGINT, TEXT = types.BigIntType(), types.VarCharType(20)
#: a setting is the same for all examples
SHARED = [HealthCheck.function_scoped_fixture]
KEYS = [(kind, values) for kind, values in VALUES if not isinstance(kind, types.ArrayType)]


@pytest.fixture(autouse=True, params=["in memory", "mapped", "with equal hashes", "few rows", "few and many rows"])
def setting(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """How state lies; small limits, so that everything happens with few rows."""
    for module in (columns, call_columns, pairs):
        monkeypatch.setattr(module, "ROWS_GONE_MAX", 2)
    monkeypatch.setattr(numbered_rows, "_FEW", 2)
    monkeypatch.setattr(columns, "_GROUPS_AT_ONCE", 2)
    monkeypatch.setattr(key_index, "_SLOTS_MIN", 2)
    few = {"few rows": 256, "few and many rows": 5}.get(request.param, 0)
    monkeypatch.setattr(columnar, "FEW_ROWS", few)
    monkeypatch.setattr(columnar, "_GROUPS_MAX", 3)
    if request.param == "few and many rows":
        monkeypatch.setattr(indexed, "ENTRIES_MAX", 3)
    if request.param == "mapped":
        blocks = MappedBlocks(tmp_path / "blocks", "groups")
        monkeypatch.setattr(numbered_rows, "_STORED_BYTES", 64)
        monkeypatch.setattr(pairs, "_MAPPED_MIN", 0)
        monkeypatch.setattr(HeapKeyedStateBackend, "store_columns", blocks.store_columns)
        monkeypatch.setattr(HeapKeyedStateBackend, "allocate", lambda self, n, kind: blocks.allocate(n, kind))
    if request.param == "with equal hashes":
        hashes = numbered_rows.key_hashes

        def few_hashes(keys: Sequence[pa.Array]) -> Any:
            return hashes(keys) if numbered_rows.is_own_number([key.type for key in keys]) else hashes(keys) % 3

        def build_few_hashes(kinds: Sequence[pa.DataType]) -> Any:
            hash_key = numbered_rows.build_key_hash(kinds)
            return hash_key if hash_key is None or numbered_rows.is_own_number(kinds) else lambda key: hash_key(key) % 3

        monkeypatch.setattr(key_index, "key_hashes", few_hashes)
        monkeypatch.setattr(indexed, "build_key_hash", build_few_hashes)
        monkeypatch.setattr(columnar, "FEW_ROWS", 5)
    yield request.param
    assert not list(tmp_path.rglob("*.block"))


class Subtasks:
    """The subtasks of an operator, which may become another one with another parallelism at a snapshot."""

    def __init__(self, operator: Any, arguments: Sequence[Any], column_types: Sequence[types.DataType]) -> None:
        self._arguments = arguments
        self._types = list(column_types)
        keys, calls = arguments[:2]
        self._keys = RowKeys(keys)
        self._result_types = [*[self._types[key] for key in keys], *[call.type for call in calls]]
        self._checkpoint_id = 0
        self._sent: list[tuple[str, str]] = []
        self.open(operator, 1, False)

    def open(self, operator: Any, parallelism: int, is_on_disk: bool, *snapshots: bytes) -> None:
        """Start from snapshots."""
        names = [f"c{index}" for index in range(len(self._result_types))]
        keys, calls, *more = self._arguments
        with pytest.MonkeyPatch.context() as patch:
            if is_on_disk:
                patch.setattr(operator_harness, "HeapKeyedStateBackend", CanonicalRocks)
            self.harnesses = [
                OneInputOperatorHarness(partial(operator, keys, calls, self._types, names, *more), parallelism, subtask)
                for subtask in range(parallelism)
            ]
        for harness in self.harnesses:
            harness.restore(*snapshots)
            harness.open()
            harness.operator.output.collect = self._collect  # type: ignore[method-assign]

    def _collect(self, batch: Batch) -> None:
        assert isinstance(batch, ColumnBatch)
        values = [to_values(*pair) for pair in zip(batch.columns.columns, self._result_types, strict=True)]
        kinds = batch.kinds or bytes(len(batch))
        rows = zip(*values, strict=True)
        self._sent += [(SHORT[kind], repr(row)) for kind, row in zip(kinds, rows, strict=True)]

    def process(self, changes: Sequence[Change]) -> None:
        """A batch of changes, to each subtask those of its keys."""
        batch = batch_of(changes, self._types)
        subtasks = np.array([self._find_subtask(key) for key in self._keys.of(batch.columns)])
        for subtask, harness in enumerate(self.harnesses):
            mine = (subtasks == subtask).nonzero()[0]
            if len(mine):
                harness.operator.process_batch(batch if len(mine) == len(batch) else batch.take(mine))
                harness.context.keyed.settle()

    def _find_subtask(self, key: Any) -> int:
        return subtask_of_key_group(assign_key_group(key, 128), 128, len(self.harnesses))

    def take(self) -> list[tuple[str, str]]:
        """What was sent since the last call."""
        sent, self._sent = self._sent, []
        return sent

    def snapshot(self) -> list[bytes]:
        """Take a snapshot, without completing it."""
        self._checkpoint_id += 1
        return [harness.snapshot(self._checkpoint_id) for harness in self.harnesses]

    def complete(self) -> None:
        """Complete the last snapshot: later ones build on it."""
        for harness in self.harnesses:
            harness.notify_complete(self._checkpoint_id)

    def recover(self, operator: Any, parallelism: int = 1, is_on_disk: bool = False) -> None:
        """Go on from a snapshot."""
        snapshots = self.snapshot()
        for harness in self.harnesses:
            harness.close()
        self.open(operator, parallelism, is_on_disk, *snapshots)

    def indexed(self) -> IndexedGroupAggregateOperator:
        """The operator of the only subtask."""
        (harness,) = self.harnesses
        assert isinstance(harness.operator, IndexedGroupAggregateOperator)
        return harness.operator

    def close(self) -> None:
        """End all subtasks."""
        for harness in self.harnesses:
            harness.operator.finish()
            harness.close()


@st.composite
def changes_of(draw: st.DrawFn, keys: list[Any], values: list[Any], retracts: bool) -> list[list[Change]]:
    """Batches of changes, some rows of which are taken back: after they came, or before."""
    row = st.tuples(
        st.one_of(st.none(), st.sampled_from(keys)),
        st.one_of(st.none(), st.sampled_from(values)),
        st.sampled_from([None, True, False]),
    )
    rows = draw(st.lists(row, min_size=1, max_size=40))
    changes: list[Change] = [("+I", values) for values in rows]
    if retracts:
        changes = draw(st.permutations([*changes, *[("-D", values) for values in rows if draw(st.booleans())]]))
    batches = []
    while changes:
        size = draw(st.integers(1, 15))
        batches.append(changes[:size])
        changes = changes[size:]
    return batches


def check(
    arguments: Sequence[Any], column_types: Sequence[types.DataType], batches: Sequence[list[Change]], data: Any
) -> None:
    """Both send the same for each batch, whatever checkpoints complete, and whatever state they go on from."""
    expected = Subtasks(GroupAggregateOperator, arguments, column_types)
    actual = Subtasks(IndexedGroupAggregateOperator, arguments, column_types)
    for batch in batches:
        for subtasks in (expected, actual):
            subtasks.process(batch)
        sent, wanted = actual.take(), expected.take()
        if len(actual.harnesses) > 1:
            sent, wanted = sorted(sent), sorted(wanted)
        assert sent == wanted
        after = data.draw(st.sampled_from(["nothing", "checkpoint", "completed checkpoint", "recovery"]))
        is_bundled = arguments[4] is not None
        if is_bundled and after != "nothing":
            expected.snapshot()  # the rows of a bundle are processed before
        if after in ("checkpoint", "completed checkpoint"):
            actual.snapshot()
            if after == "completed checkpoint":
                actual.complete()
        elif after == "recovery":
            is_on_disk = data.draw(st.sampled_from([False, False, True]))
            operators = [IndexedGroupAggregateOperator, IndexedGroupAggregateOperator, GroupAggregateOperator]
            operator = data.draw(st.sampled_from(operators + [ColumnGroupAggregateOperator] * (not is_on_disk)))
            # On disk, a harness has the state of all key groups.
            is_alone = is_bundled or is_on_disk
            actual.recover(operator, 1 if is_alone else data.draw(st.sampled_from([1, 1, 2])), is_on_disk)
    for subtasks in (expected, actual):
        subtasks.close()
    assert sorted(actual.take()) == sorted(expected.take())


def kernel_calls(data_type: types.DataType, retracts: bool) -> list[AggregateCall]:
    return [call for call in calls_of(data_type) if has_only_columns([call], [], retracts)]


def holds_for(
    keys: Any, key_type: types.DataType, key_values: list[Any], data_type: types.DataType, *more: Any
) -> None:
    values = next(values for kind, values in VALUES if kind == data_type)
    retracts, mini_batch, calls = more

    @settings(max_examples=4, deadline=None, suppress_health_check=SHARED)
    @given(batches=changes_of(key_values, values, retracts), before=st.booleans(), data=st.data())
    def holds(batches: Any, before: bool, data: Any) -> None:
        check([keys, calls, retracts, before, mini_batch], [key_type, data_type, BOOLEAN], batches, data)

    holds()


@pytest.mark.parametrize("retracts", [False, True])
@pytest.mark.parametrize(("key_type", "key_values"), KEYS, ids=[str(kind) for kind, _ in KEYS])
def test_keys_of_each_type(key_type: types.DataType, key_values: list[Any], retracts: bool) -> None:
    """NULL and NaN are keys, and equal values are one key."""
    holds_for((0,), key_type, key_values, BIGINT, retracts, None, kernel_calls(BIGINT, retracts))


@pytest.mark.parametrize("retracts", [False, True])
@pytest.mark.parametrize("data_type", [kind for kind, _ in KEYS], ids=str)
def test_values_of_each_type(data_type: types.DataType, retracts: bool) -> None:
    holds_for((0, 2), BIGINT, [1, 2, 3], data_type, retracts, None, kernel_calls(data_type, retracts))


@pytest.mark.parametrize("mini_batch", [None, MiniBatch(50, 7)])
@pytest.mark.parametrize("retracts", [False, True])
@pytest.mark.parametrize("data_type", [BIGINT, TEXT], ids=str)
def test_calls_without_distinct(data_type: types.DataType, retracts: bool, mini_batch: Any) -> None:
    """Few rows are then processed by accumulators."""
    calls = [call for call in kernel_calls(data_type, retracts) if not call.is_distinct]
    holds_for((0,), BIGINT, [1, 2, 3], data_type, retracts, mini_batch, calls)


@pytest.mark.parametrize("retracts", [False, True])
def test_one_group_of_all_rows(retracts: bool) -> None:
    holds_for((), BIGINT, [1], BIGINT, retracts, None, kernel_calls(BIGINT, retracts))


def test_groups_without_calls() -> None:
    holds_for((0, 1), types.DoubleType(), [0.0, -0.0, float("nan")], BIGINT, True, None, [])


def test_the_hash_of_a_key_is_the_same_without_kernels() -> None:
    """Otherwise a group in the columns would begin anew for few rows."""
    seen = set()
    for kind, values in [*KEYS, (BIGINT, [None]), (types.VarCharType(9), ["", "x" * 300, None])]:
        for other, more in KEYS:
            for column_types in ([kind], [other, kind], [kind, other, kind]):
                hash_key = numbered_rows.build_key_hash([arrow_type(column_type) for column_type in column_types])
                if hash_key is None:
                    continue
                seen.add(str(kind))
                for value in values:
                    rows = [
                        tuple(value if column_type is kind else another for column_type in column_types)
                        for another in (*more, None)
                    ]
                    arrays = [
                        to_column(list(column), column_type)
                        for column, column_type in zip(zip(*rows, strict=True), column_types, strict=True)
                    ]
                    assert list(map(hash_key, rows)) == numbered_rows.key_hashes(arrays).tolist()
    assert {"BIGINT", "TIMESTAMP(3)", "TIMESTAMP(9)", "VARCHAR(20)", "DATE", "TIME(0)"} <= seen


# --- checkpoints ------------------------------------------------------------------------------------------------------

VALUE, KEEPS = Field(BIGINT, 1), Field(BOOLEAN, 2)
COUNT_DISTINCT = AggregateCall("COUNT", (VALUE,), BIGINT, is_distinct=True)
CALLS = [AggregateCall("SUM", (VALUE,), BIGINT), COUNT_DISTINCT]
TYPES = [BIGINT, BIGINT, BOOLEAN]


def captured(subtasks: Subtasks, checkpoint_id: int, is_complete: bool) -> dict[str, list[dict[str, Any]]]:
    """The rows that a checkpoint writes, by state."""
    (harness,) = subtasks.harnesses
    captures = {
        capture.name: capture
        for capture in subtasks.indexed().snapshot_state(checkpoint_id)
        if isinstance(capture, ColumnsCapture)
    }
    if is_complete:
        harness.context.columns.confirm(checkpoint_id)
    return {name: read_history([capture.to_bytes()]).table.to_pylist() for name, capture in captures.items()}


def test_a_checkpoint_has_what_changed_since_the_last_completed_one() -> None:
    subtasks = Subtasks(IndexedGroupAggregateOperator, [(0,), CALLS, False, True], TYPES)
    subtasks.process([("+I", (key, value, True)) for key in range(5) for value in (1, 2)])
    written = captured(subtasks, 1, True)
    assert [len(written[name]) for name in (GROUP_COLUMNS, "group_values.0")] == [5, 10]
    assert not captured(subtasks, 2, True)
    subtasks.process([("+I", (3, 1, True)), ("+I", (4, 7, True))])
    for checkpoint_id, is_complete in ((3, False), (4, True)):
        written = captured(subtasks, checkpoint_id, is_complete)
        assert [row["key0"] for row in written[GROUP_COLUMNS]] == [3, 4]
        assert [(row["key0"], row["part0"]) for row in written["group_values.0"]] == [(4, 7)]
    assert not captured(subtasks, 5, True)


def test_a_history_begins_again_once_most_of_its_rows_are_superseded() -> None:
    subtasks = Subtasks(IndexedGroupAggregateOperator, [(0,), CALLS, True, True], TYPES)
    for round_ in range(30):
        subtasks.process([("+I", (key, round_, True)) for key in range(3)])
        subtasks.process([("-D", (key, round_, True)) for key in range(round_ % 4)])
        subtasks.snapshot()
        subtasks.complete()
        state = subtasks.indexed()._state
        for versions in (state._versions, *state._value_versions):
            assert versions.end - versions.base <= 2 * len(versions._numbers) + 2 + 3


def test_groups_and_values_that_have_gone_take_no_memory() -> None:
    calls = [*CALLS, AggregateCall("COUNT", (), BIGINT)]
    subtasks = Subtasks(IndexedGroupAggregateOperator, [(0,), calls, True, True], TYPES)
    for key in range(20):
        rows = [(key, value, True) for value in range(20)]
        subtasks.process([("+I", row) for row in rows])
        subtasks.process([("-D", row) for row in rows])
    state = subtasks.indexed()._state
    assert len(state) <= 4
    assert len(state.views[0][0]) <= 45
    subtasks.recover(IndexedGroupAggregateOperator)
    assert not len(subtasks.indexed()._state)


def test_a_group_that_comes_back_is_in_the_next_snapshot() -> None:
    """Also if nothing has gone in the batch with which it comes."""
    subtasks = Subtasks(IndexedGroupAggregateOperator, [(0,), CALLS, True, True], TYPES)
    for kind in ("+I", "-D", "+I"):
        subtasks.process([(kind, (1, 5, True))])
    subtasks.recover(IndexedGroupAggregateOperator)
    subtasks.take()
    subtasks.process([("+I", (1, 5, True))])
    assert subtasks.take()[-1] == ("+U", "(1, 10, 1)")


def test_a_known_value_that_another_call_counts_is_in_the_next_checkpoint() -> None:
    kept = AggregateCall("COUNT", (VALUE,), BIGINT, is_distinct=True, condition=KEEPS)
    for retracts in (False, True):
        arguments = [(0,), [COUNT_DISTINCT, kept], retracts, True]
        subtasks = Subtasks(IndexedGroupAggregateOperator, arguments, TYPES)
        subtasks.process([("+I", (1, 5, False))])
        subtasks.snapshot()
        subtasks.complete()
        subtasks.process([("+I", (1, 5, True))])
        subtasks.recover(IndexedGroupAggregateOperator)
        subtasks.take()
        subtasks.process([("+I", (1, 5, True)), ("+I", (1, 6, True))])
        assert subtasks.take()[-1] == ("+U", "(1, 2, 2)")


def test_texts_that_are_no_longer_the_greatest_take_no_memory() -> None:
    greatest = AggregateCall("MAX", (Field(TEXT, 1),), TEXT)
    subtasks = Subtasks(IndexedGroupAggregateOperator, [(0,), [greatest], False, True], [BIGINT, TEXT, BOOLEAN])
    for number in range(100, 160):
        subtasks.process([("+I", (0, str(number), True))] * 300)
    (column,) = subtasks.indexed()._state.columns
    assert isinstance(column, call_columns.ColumnTextExtreme)
    assert len(column._texts) <= 5
    assert subtasks.take()[-1] == ("+U", "(0, '159')")


def test_groups_of_few_rows_are_found_after_the_columns_got_new_numbers() -> None:
    """A value that was not looked up before is one that the group has."""
    subtasks = Subtasks(IndexedGroupAggregateOperator, [(0,), [COUNT_DISTINCT], True, True], TYPES)
    for key in range(10):
        subtasks.process([("+I", (key, 5, True))])
    subtasks.process([("+I", (100, 5, True)), ("+I", (100, 6, True))])
    subtasks.recover(IndexedGroupAggregateOperator)
    subtasks.process([("+I", (100, 5, True))])
    for key in range(10):
        subtasks.process([("-D", (key, 5, True))])
    subtasks.snapshot()
    assert len(subtasks.indexed()._state) < 10, "groups that are gone have no numbers"
    subtasks.take()
    subtasks.process([("+I", (100, 6, True))])
    assert subtasks.take() == [], "there are two values still"


def test_a_query_with_other_calls_is_told_from_the_one_before() -> None:
    subtasks = Subtasks(IndexedGroupAggregateOperator, [(0,), CALLS, False, True], TYPES)
    subtasks.process([("+I", (1, 2, True))])
    snapshots = subtasks.snapshot()
    other = [(0,), CALLS[:1], False, True]
    for operator in (IndexedGroupAggregateOperator, GroupAggregateOperator):
        with pytest.raises(StateError, match="growing groups by 1 columns of"):
            Subtasks(operator, other, TYPES).open(operator, 1, False, *snapshots)


def test_state_by_key_is_empty_once_taken_over() -> None:
    subtasks = Subtasks(GroupAggregateOperator, [(0,), CALLS, False, True], TYPES)
    subtasks.process([("+I", (1, 2, True)), ("+I", (2, 2, True))])
    subtasks.recover(IndexedGroupAggregateOperator)
    (harness,) = subtasks.harnesses
    assert not len(harness.context.keyed.table(GROUPS).entries(None))
    subtasks.recover(GroupAggregateOperator)
    subtasks.process([("+I", (1, 3, True))])
    subtasks.recover(IndexedGroupAggregateOperator)
    subtasks.take()
    subtasks.process([("+I", (1, 3, True)), ("+I", (2, 3, True))])
    assert [row for kind, row in subtasks.take() if kind == "+U"] == ["(1, 8, 2)", "(2, 5, 2)"]


def test_restored_values_are_those_of_their_columns() -> None:
    """Key groups, which a rescaled job restores by, are those of the keys."""
    subtasks = Subtasks(IndexedGroupAggregateOperator, [(0,), CALLS, False, True], TYPES)
    subtasks.process([("+I", (key, value, True)) for key in range(30) for value in (1, 2, 2)])
    subtasks.recover(IndexedGroupAggregateOperator, 3)
    sizes = [len(harness.operator._state) for harness in subtasks.harnesses]  # type: ignore[attr-defined]
    assert sum(sizes) == 30
    assert 0 not in sizes
    subtasks.take()
    subtasks.process([("+I", (key, 2, True)) for key in range(30)])
    expected = {("+U", f"({key}, 7, 2)") for key in range(30)}
    assert expected == {sent for sent in subtasks.take() if sent[0] == "+U"}
