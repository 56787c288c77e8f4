"""Bundles of many rows: each aggregate gives what it gives row by row."""

from __future__ import annotations

from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.table.streaming.joined import create_batch
from tests.table.streaming.ranked import TS, TYPES, K, Under, V

from penstock.sql.data.types import BigIntType, BooleanType, DataType, IntType, TinyIntType
from penstock.sql.logical.nodes import AggregateCall
from penstock.sql.stream.groups import operators as group_aggregate_operator
from penstock.sql.stream.groups.operators import GroupAggregateOperator
from penstock.sql.stream.rows.state_ttl import MiniBatch
from penstock.sql.typed import Constant, Field

VALUE, TIME = Field(TYPES[V], V), Field(TYPES[TS], TS)
COUNT = BigIntType(False)
CALLS = (
    AggregateCall("COUNT", (), COUNT),
    AggregateCall("COUNT", (VALUE,), COUNT),
    AggregateCall("COUNT", (VALUE,), COUNT, is_distinct=True),
    AggregateCall("COUNT", (TIME,), COUNT, is_distinct=True),
    AggregateCall("SUM", (VALUE,), IntType()),
    AggregateCall("AVG", (VALUE,), IntType()),
    AggregateCall("MIN", (VALUE,), IntType()),
    AggregateCall("MAX", (VALUE,), IntType()),
    AggregateCall("FIRST_VALUE", (VALUE,), IntType()),
    AggregateCall("SUM", (VALUE,), IntType(), is_distinct=True),
    AggregateCall("COUNT", (VALUE, Field(TYPES[K], K)), COUNT),
    AggregateCall("SUM", (Constant(IntType(False), 2),), IntType()),
    AggregateCall("MAX", (Field(TYPES[K], K),), TYPES[K]),
)
VALUES = st.one_of(st.none(), st.integers(-3, 3), st.sampled_from((2**31 - 1, -(2**31))))
ROWS = st.lists(st.tuples(st.sampled_from("ab"), VALUES, st.integers(0, 4)), max_size=40)


def last_of(rows: list[Any], calls: tuple[AggregateCall, ...], mini_batch: MiniBatch | None) -> dict[str, Any]:
    """What the calls give in the end."""
    names = ["k", *(f"c{place}" for place in range(len(calls)))]
    found = Grouped(partial(GroupAggregateOperator, (K,), calls, TYPES, names, False, False, mini_batch))
    for begin in range(0, len(rows), 10):
        found.rows(*rows[begin : begin + 10])
    found.later(100)
    return {key: values for _, key, *values in found.taken()}


class Grouped(Under):
    """Shows rows as they are."""

    def taken(self) -> list[tuple[Any, ...]]:
        return [(None, *record.value) for harness in self.harnesses for record in harness.take_output()]


@pytest.fixture(autouse=True)
def few_rows_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_aggregate_operator, "FEW_ROWS", 1)


@given(rows=ROWS)
def test_a_bundle_comes_to_what_its_rows_come_to(rows: list[Any]) -> None:
    assert last_of(rows, CALLS, MiniBatch(50, 15)) == last_of(rows, CALLS, None)


def test_rows_and_watermark_that_wait_leave_before_the_stream_is_idle() -> None:
    """C2: a consumer ignores the watermark of an idle input, so it must not come after the news that it is idle."""
    found = Grouped(partial(GroupAggregateOperator, (K,), CALLS[:1], TYPES, ["k", "c"], False, False, MiniBatch(50, 9)))
    harness = found.harnesses[0]
    found.rows(("a", 1, 0))
    harness.watermark(7)
    harness.status(True)
    assert [values for _, _, *values in found.taken()] == [[1]]
    assert harness.captured.order[1:] == [7, True]


def test_sums_wrap_as_those_of_single_rows_do() -> None:
    most = 2**31 - 1
    found = last_of([("a", most, 0), ("a", most, 0), ("a", 5, 0)], CALLS[4:6], MiniBatch(50, 3))
    assert found == {"a": [3, (2 * most + 5) // 3]}


def test_filters_of_several_calls_share_a_column() -> None:
    """The condition is a column of its own."""
    types: tuple[DataType, ...] = (TYPES[K], TYPES[V], BooleanType())
    keeps = Field(BooleanType(), 2)
    calls = [
        AggregateCall("COUNT", (VALUE,), COUNT, is_distinct=True, condition=keeps),
        AggregateCall("COUNT", (VALUE,), COUNT, is_distinct=True),
        AggregateCall("COUNT", (), COUNT, condition=keeps),
        AggregateCall("SUM", (VALUE,), TinyIntType(), condition=keeps),
    ]
    operator = partial(
        GroupAggregateOperator, (0,), calls, types, ["k", "a", "b", "c", "d"], False, False, MiniBatch(50, 6)
    )
    found = Grouped(operator)
    rows = [("a", 1, True), ("a", 1, False), ("a", 2, None), ("a", 3, True), ("b", 4, False), ("a", 3, True)]
    found.harnesses[0].operator.process_batch(create_batch(types, [("+I", *row) for row in rows]))
    assert {key: values for _, key, *values in found.taken()} == {"a": [2, 3, 3, 7], "b": [0, 1, 0, None]}
