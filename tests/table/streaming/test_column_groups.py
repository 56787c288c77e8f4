"""Groups in columns send what groups of accumulators send: change by change, and from each other's snapshots."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.state.rocks import CanonicalRocks

from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.records import Batch
from penstock.sql.data import types
from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.logical.nodes import SHORT, AggregateCall
from penstock.sql.stream.aggregates import distinct, pairs
from penstock.sql.stream.aggregates.accumulators import build_call_column, is_distinct_by_view
from penstock.sql.stream.aggregates.columns import AccumulatorColumn
from penstock.sql.stream.groups import columnar, columns
from penstock.sql.stream.groups.columnar import ColumnGroupAggregateOperator
from penstock.sql.stream.groups.operators import GROUPS, GroupAggregateOperator
from penstock.sql.stream.rows.state_ttl import MiniBatch, lasting
from penstock.sql.typed import Field
from penstock.testing import OneInputOperatorHarness, operator_harness


@pytest.fixture(autouse=True, params=[0, 64, 3], ids=["in columns", "few rows", "both"])
def few_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of up to how many rows are processed by accumulators."""
    monkeypatch.setattr(columnar, "FEW_ROWS", request.param)


Change = tuple[str, tuple[Any, ...]]
BIGINT, BOOLEAN = types.BigIntType(), types.BooleanType()
NAN = float("nan")
#: by type, values that are equal in two forms, at the ends of their type, or close to each other
VALUES: list[tuple[types.DataType, list[Any]]] = [
    (types.TinyIntType(), [-128, 127, 0, 1]),
    (types.SmallIntType(), [-(1 << 15), (1 << 15) - 1, 3]),
    (types.IntType(), [-(1 << 31), (1 << 31) - 1, 0, 7]),
    (BIGINT, [-(1 << 63), (1 << 63) - 1, 0, -1, 1, 5]),
    (types.DoubleType(), [0.0, -0.0, NAN, 1.5, math.inf, -math.inf]),
    (types.FloatType(), [0.0, -0.0, NAN, 1.5]),
    (types.DecimalType(20, 2), [Decimal("0.00"), Decimal("-1.50"), Decimal("123456789012345678.99")]),
    (types.VarCharType(20), ["", "a", "b", "é", "\U0001f600", "\uffff"]),
    (types.VarBinaryType(20), [b"", b"a", b"\xff"]),
    (BOOLEAN, [True, False]),
    (types.DateType(), [-1, 0, 20_000]),
    (types.TimeType(0), [0, 1000, 86_399_000]),
    (types.TimestampType(3), [-1_000_000, 0, 5_000_000]),
    (types.TimestampType(9), [-1, 0, 5]),
    (types.LocalZonedTimestampType(3), [0, 1_000_000]),
    (types.DayTimeIntervalType(), [0, -5, 1000]),
    (types.YearMonthIntervalType(), [0, -5, 12]),
    (types.ArrayType(types.IntType()), [[], [1], [None, 2]]),
]
FUNCTIONS = ("COUNT", "SUM", "$SUM0", "AVG", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE", "LISTAGG", "COLLECT")


def calls_of(data_type: types.DataType) -> list[AggregateCall]:
    """Each function that takes the type: with and without DISTINCT and FILTER."""
    value, keeps = Field(data_type, 1), Field(BOOLEAN, 2)
    is_number = isinstance(data_type, types.IntegralType | types.DoubleType | types.FloatType | types.DecimalType)
    is_text = isinstance(data_type, types.VarCharType)
    is_ordered = not isinstance(data_type, types.ArrayType | types.BooleanType | types.VarBinaryType)
    takes = {"SUM": is_number, "$SUM0": is_number, "AVG": is_number, "MIN": is_ordered, "MAX": is_ordered}
    found = [AggregateCall("COUNT", (), BIGINT), AggregateCall("COUNT", (), BIGINT, condition=keeps)]
    for function in FUNCTIONS:
        if not takes.get(function, function != "LISTAGG" or is_text):
            continue
        given = BIGINT if function == "COUNT" else data_type
        if function == "COLLECT":
            given = types.MultisetType(data_type)
        for is_distinct in (False, True):
            if is_distinct and function in ("FIRST_VALUE", "LAST_VALUE"):
                continue
            for condition in (None, keeps):
                found.append(AggregateCall(function, (value,), given, is_distinct=is_distinct, condition=condition))
    return found


class Running:
    """One of the two operators, which may become the other one at a snapshot."""

    def __init__(self, given: Sequence[Any], data_type: types.DataType, ttl_ms: int = 0) -> None:
        self._given = given
        self._types = [BIGINT, data_type, BOOLEAN]
        self._ttl_ms = ttl_ms
        self._clock = operator_harness.VirtualClock()
        self._checkpoint = 0
        calls: Sequence[AggregateCall] = given[1]
        self._result_types = [*[self._types[key] for key in given[0]], *[call.type for call in calls]]
        self.sent: list[Any] = []

    def open(self, operator: Any, *snapshots: bytes) -> None:
        names = [f"c{index}" for index in range(len(self._result_types))]
        keys, calls, *more = self._given
        factory: Callable[[], StreamOperator] = partial(operator, keys, calls, self._types, names, *more)
        self.harness = OneInputOperatorHarness(lasting(factory, self._ttl_ms), clock=self._clock)
        self.harness.restore(*snapshots)
        self.harness.open()
        self.harness.operator.output.collect = self._take  # type: ignore[method-assign]

    def _take(self, batch: Batch) -> None:
        assert isinstance(batch, ColumnBatch)
        columns = [to_values(*pair) for pair in zip(batch.columns.columns, self._result_types, strict=True)]
        kinds = batch.kinds or bytes(len(batch))
        # The text of a value shows the sign of a zero, and NaN equals itself as text.
        self.sent += [(SHORT[kind], repr(row)) for kind, row in zip(kinds, zip(*columns, strict=True), strict=True)]

    def process(self, changes: Sequence[Change]) -> None:
        self.harness.operator.process_batch(batch_of(changes, self._types))
        self.harness.context.keyed.settle()

    def become(self, operator: Any) -> None:
        """Go on from a snapshot as this operator."""
        self._checkpoint += 1
        snapshot = self.harness.snapshot(self._checkpoint)
        self.harness.close()
        self.open(operator, snapshot)

    def columns(self) -> ColumnGroupAggregateOperator:
        """The operator."""
        assert isinstance(self.harness.operator, ColumnGroupAggregateOperator)
        return self.harness.operator

    def held(self) -> set[Any]:
        """The keys in state."""
        keys = set(self.harness.context.keyed.table(GROUPS).entries(None))
        few = getattr(self.harness.operator, "_few", None)
        return keys if few is None else (keys - few.changed) | set(few.groups)


def batch_of(changes: Sequence[Change], data_types: Sequence[types.DataType]) -> ColumnBatch:
    arrays = [to_column([row[index] for _, row in changes], kind) for index, kind in enumerate(data_types)]
    kinds = bytes(SHORT.index(kind) for kind, _ in changes)
    columns = pa.RecordBatch.from_arrays(arrays, [f"c{index}" for index in range(len(arrays))])
    return ColumnBatch(columns, None, kinds if any(kinds) else None)


#: how many groups that have gone keep their numbers
GONE_MAX = (0, 1 << 16)
#: what happens after a batch
AFTER = ("nothing", "nothing", "snapshot", "other operator", "later")


@st.composite
def runs(draw: st.DrawFn, values: list[Any], retracts: bool) -> list[tuple[list[Change], str]]:
    """Batches of changes, some rows of which are taken back: after they came, or before."""
    row = st.tuples(
        st.integers(0, 3), st.one_of(st.none(), st.sampled_from(values)), st.sampled_from([None, True, False])
    )
    rows = draw(st.lists(row, min_size=1, max_size=40))
    changes: list[Change] = [("+I", one) for one in rows]
    if retracts:
        changes = draw(st.permutations([*changes, *[("-D", one) for one in rows if draw(st.booleans())]]))
    cuts = []
    while changes:
        size = draw(st.integers(1, 25))
        cuts.append((changes[:size], draw(st.sampled_from(AFTER))))
        changes = changes[size:]
    return cuts


def compare(given: Sequence[Any], data_type: types.DataType, batches: Any, gone_max: int = 0, ttl_ms: int = 0) -> None:
    """Both operators send the same, and hold the same groups."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "ROWS_GONE_MAX", gone_max)
        _compare(given, data_type, batches, ttl_ms)


def _compare(given: Sequence[Any], data_type: types.DataType, batches: Any, ttl_ms: int) -> None:
    expected, actual = Running(given, data_type, ttl_ms), Running(given, data_type, ttl_ms)
    expected.open(GroupAggregateOperator)
    actual.open(ColumnGroupAggregateOperator)
    for changes, after in batches:
        for one in (expected, actual):
            one.process(changes)
            if after == "later":
                one.harness.advance_processing_time(40)
        if after in ("snapshot", "other operator"):
            expected.become(GroupAggregateOperator)
            if after == "other operator":
                actual.become(GroupAggregateOperator)
            actual.become(ColumnGroupAggregateOperator)
        assert actual.sent == expected.sent
        assert actual.held() == expected.held()
    for one in (expected, actual):
        one.harness.operator.finish()
    assert actual.sent == expected.sent


@pytest.mark.parametrize("retracts", [False, True])
@pytest.mark.parametrize(("data_type", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_both_send_the_same(data_type: types.DataType, values: list[Any], retracts: bool) -> None:
    calls = calls_of(data_type)

    @settings(max_examples=10, deadline=None)
    @given(
        batches=runs(values, retracts),
        keys=st.sampled_from([(), (0,), (0, 2)]),
        before=st.booleans(),
        gone_max=st.sampled_from(GONE_MAX),
    )
    def holds(batches: Any, keys: Any, before: bool, gone_max: int) -> None:
        compare([keys, calls, retracts, before], data_type, batches, gone_max)

    holds()


@pytest.mark.parametrize("retracts", [False, True])
@pytest.mark.parametrize("data_type", [BIGINT, types.VarCharType(20)])
def test_both_send_the_same_in_bundles(data_type: types.DataType, retracts: bool) -> None:
    values = dict(VALUES)[data_type]

    @settings(max_examples=25, deadline=None)
    @given(batches=runs(values, retracts), size=st.integers(1, 30), before=st.booleans())
    def holds(batches: Any, size: int, before: bool) -> None:
        compare([(0,), calls_of(data_type), retracts, before, MiniBatch(50, size)], data_type, batches)

    holds()


@pytest.mark.parametrize("retracts", [False, True])
@pytest.mark.parametrize("data_type", [BIGINT, types.VarCharType(20)])
def test_both_forget_the_same_at_the_same_time(data_type: types.DataType, retracts: bool) -> None:
    """Expired groups begin anew; a retraction of one that has expired is dropped."""
    values = dict(VALUES)[data_type]

    @settings(max_examples=25, deadline=None)
    @given(
        batches=runs(values, retracts),
        mini_batch=st.sampled_from([None, MiniBatch(50, 9)]),
        gone_max=st.sampled_from(GONE_MAX),
    )
    def holds(batches: Any, mini_batch: Any, gone_max: int) -> None:
        compare([(0,), calls_of(data_type), retracts, True, mini_batch], data_type, batches, gone_max, ttl_ms=80)

    holds()


def test_groups_without_calls_are_distinct_rows() -> None:
    @settings(max_examples=30, deadline=None)
    @given(batches=runs([1, 2], True), keys=st.sampled_from([(0,), (1, 0)]))
    def holds(batches: Any, keys: Any) -> None:
        compare([keys, [], True, True], BIGINT, batches)

    holds()


def test_a_batch_without_rows_sends_nothing() -> None:
    running = Running([(), [AggregateCall("COUNT", (), BIGINT)], True, True], BIGINT)
    running.open(ColumnGroupAggregateOperator)
    running.process([])
    assert not running.sent
    assert not running.held()


# --- which calls have columns -----------------------------------------------------------------------------------------


def test_kernels_compute_calls_of_whole_numbers_times_and_texts() -> None:
    """Of insert-only rows; the least and greatest of rows that may go needs all values in order."""

    def kinds(data_type: types.DataType, retracts: bool) -> set[str]:
        by_kernel = [
            call for call in calls_of(data_type) if not isinstance(build_call_column(call, retracts), AccumulatorColumn)
        ]
        return {f"{call.function}{' DISTINCT' * is_distinct_by_view(call)}" for call in by_kernel}

    extremes = {"MIN", "MAX"}
    counts = {"COUNT", "COUNT DISTINCT"}
    sums = {name + more for name in ("SUM", "$SUM0", "AVG") for more in ("", " DISTINCT")}
    for data_type, _ in VALUES:
        expected = counts if not isinstance(data_type, types.ArrayType) else {"COUNT"}
        if isinstance(data_type, types.IntegralType):
            expected = expected | sums
        assert kinds(data_type, True) == expected, data_type
        has_order = isinstance(data_type, types.IntegralType | types.VarCharType) or (
            pairs.is_whole(data_type) and data_type is not BOOLEAN
        )
        assert kinds(data_type, False) == (expected | extremes if has_order else expected), data_type


def test_calls_with_distinct_over_a_column_share_a_view() -> None:
    """Up to 64 of them; then there is another one."""
    value, keeps = Field(BIGINT, 1), Field(BOOLEAN, 2)
    calls = [
        AggregateCall("COUNT", (value,), BIGINT, is_distinct=True, condition=None if index % 3 else keeps)
        for index in range(130)
    ]
    for retracts in (False, True):
        given = [(0,), calls, retracts, True]
        running = Running(given, BIGINT)
        running.open(ColumnGroupAggregateOperator)
        assert [len(of_view) for _, of_view in running.columns()._state.views] == [64, 64, 2]
        rows = [("+I", (0, index % 7, index % 2 == 0)) for index in range(30)]
        gone = [("-D", row) for _, row in rows[::2]] if retracts else []
        compare(given, BIGINT, [(rows, "snapshot"), (gone or rows, "other operator"), (rows, "nothing")])


# --- distinct values --------------------------------------------------------------------------------------------------

COUNT_DISTINCT = AggregateCall("COUNT", (Field(BIGINT, 1),), BIGINT, is_distinct=True)


def last_sent(running: Running) -> str:
    return str(running.sent[-1][1])


def test_a_value_counts_until_its_last_row_goes() -> None:
    running = Running([(), [COUNT_DISTINCT], True, False], BIGINT)
    running.open(ColumnGroupAggregateOperator)
    running.process([("+I", (0, 5, True)), ("+I", (0, 5, True)), ("+I", (0, None, True)), ("+I", (0, 6, True))])
    assert running.sent == [("+I", "(1,)"), ("+U", "(2,)")]
    running.sent.clear()
    running.process([("-D", (0, 5, True)), ("-D", (0, None, True))])
    assert not running.sent
    running.become(ColumnGroupAggregateOperator)
    running.process([("-D", (0, 5, True))])
    assert running.sent == [("+U", "(1,)")]


def test_a_retraction_waits_for_its_row() -> None:
    running = Running([(), [AggregateCall("COUNT", (), BIGINT), COUNT_DISTINCT], True, False], BIGINT)
    running.open(ColumnGroupAggregateOperator)
    running.process([("-D", (0, 5, True)), ("+I", (0, 6, True))])
    running.become(ColumnGroupAggregateOperator)
    running.process([("+I", (0, 5, True)), ("+I", (0, 5, True))])
    assert running.sent == [("+I", "(1, 1)"), ("+U", "(2, 2)")]


def test_counts_of_more_rows_than_32_bits_have() -> None:
    """A snapshot has a value that came more often than a 32-bit count can say."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distinct, "_COUNT_MAX", 3)
        view = distinct.DistinctView(1, BIGINT, [None], True)
        view.grow(1)
        view.restore(0, [[{7: 1 << 40}]])
        captured = view.capture(pa.array([0]).to_numpy()).unpack()
        assert captured == [[([7], [1 << 40])]]


def test_a_snapshot_has_many_whole_numbers_as_bytes() -> None:
    """Their bytes have the width of the largest; others are a list."""
    running = Running([(0,), [COUNT_DISTINCT], False, False], BIGINT)
    running.open(ColumnGroupAggregateOperator)
    running.process(
        [("+I", (0, index, True)) for index in range(300)] + [("+I", (1, 4, True)), ("+I", (2, None, True))]
    )
    packed = running.columns()._state.pack([0, 1, 2]).unpack()
    (many, few, none) = [state[1][0][1] for state in packed]
    assert (many[0], len(many[1])) == ("<i2", 600)
    assert few == [4]
    assert none == []
    assert [state[0] for state in packed] == [300, 1, 1]
    assert [state[2] for state in packed] == [(300,), (1,), (0,)]


def test_values_of_groups_that_have_gone_take_no_memory() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "ROWS_GONE_MAX", 10)
        running = Running([(0,), [COUNT_DISTINCT], True, True], BIGINT)
        running.open(ColumnGroupAggregateOperator)
        for group in range(20):
            rows = [(group, value, True) for value in range(50)]
            running.process([("+I", row) for row in rows])
            running.process([("-D", row) for row in rows])
        (view, _), *_ = running.columns()._state.views
        assert len(view) <= 100
        assert not running.held()


def test_values_of_groups_that_have_expired_take_no_memory() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "ROWS_GONE_MAX", 10)
        running = Running([(0,), [COUNT_DISTINCT], False, True], BIGINT, ttl_ms=80)
        running.open(ColumnGroupAggregateOperator)
        for group in range(8):
            running.process([("+I", (group, value, True)) for value in range(50)])
            running.harness.advance_processing_time(1000)
        running.process([("+I", (9, 1, True))])
        (view, _), *_ = running.columns()._state.views
        assert len(view) <= 100
        assert running.held() == {9}


def test_a_group_keeps_its_values_when_others_go() -> None:
    """It gets another number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "ROWS_GONE_MAX", 0)
        running = Running([(0,), [COUNT_DISTINCT], True, False], BIGINT)
        running.open(ColumnGroupAggregateOperator)
        for group in (1, 2, 3):
            running.process([("+I", (group, value, True)) for value in (5, 6)])
        running.process([("-D", (group, value, True)) for group in (1, 2) for value in (5, 6)])
        assert len(running.columns()._state.counts) == 1
        running.sent.clear()
        running.process([("+I", (3, 5, True)), ("+I", (4, 5, True)), ("+I", (3, 7, True))])
        assert running.sent == [("+I", "(4, 1)"), ("+U", "(3, 3)")]


def test_a_capture_is_of_its_moment() -> None:
    """Changes that come before a snapshot is written are not in it."""
    for retracts in (False, True):
        calls = calls_of(BIGINT)
        running = Running([(0,), calls, retracts, True], BIGINT)
        running.open(ColumnGroupAggregateOperator)
        running.process([("+I", (0, index, index % 2 == 0)) for index in range(20)])
        before = running.columns()._state.pack([0]).unpack()
        packed = running.columns()._state.pack([0])
        running.process([("+I", (0, index, True)) for index in range(20)])
        assert packed.unpack() == before
        assert running.columns()._state.pack([0]).unpack() != before


def test_values_that_have_gone_from_a_group_take_no_memory() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "ROWS_GONE_MAX", 10)
        text = AggregateCall("COUNT", (Field(types.VarCharType(20), 1),), BIGINT, is_distinct=True)
        running = Running([(), [text], True, True], types.VarCharType(20))
        running.open(ColumnGroupAggregateOperator)
        running.process([("+I", (0, "stays", True))])
        for round_ in range(20):
            rows = [(0, f"{round_}-{value}", True) for value in range(50)]
            running.process([("+I", row) for row in rows])
            running.process([("-D", row) for row in rows])
        (view, _), *_ = running.columns()._state.views
        assert len(view) <= 130
        assert last_sent(running) == "(1,)"


@pytest.fixture
def on_rocksdb(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Puts the state of further harnesses into RocksDB."""
    return lambda: monkeypatch.setattr(operator_harness, "HeapKeyedStateBackend", CanonicalRocks)


@pytest.mark.parametrize("data_type", [BIGINT, types.DoubleType(), types.DecimalType(20, 2)])
@pytest.mark.parametrize("retracts", [False, True])
def test_a_snapshot_goes_on_in_rocksdb(
    data_type: types.DataType, retracts: bool, on_rocksdb: Callable[[], None]
) -> None:
    """There, the groups of accumulators unpack the values of a group when they meet it."""
    values = next(values for kind, values in VALUES if kind == data_type)
    rows: list[Change] = [("+I", (index % 3, values[index % len(values)], index % 4 > 0)) for index in range(60)]
    more = [("-D", row) for _, row in rows[:40]] if retracts else [("+I", (0, values[0], True))]
    given = [(0,), calls_of(data_type), retracts, True]
    expected, actual = Running(given, data_type), Running(given, data_type)
    expected.open(GroupAggregateOperator)
    actual.open(ColumnGroupAggregateOperator)
    for running in (expected, actual):
        running.process(rows)
    on_rocksdb()
    actual.become(GroupAggregateOperator)
    actual.become(GroupAggregateOperator)
    for running in (expected, actual):
        running.process(more)
    assert actual.sent == expected.sent
    assert actual.held() == expected.held()
