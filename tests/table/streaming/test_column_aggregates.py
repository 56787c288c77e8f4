"""Partials by kernel: rows in runs are what groups of them are."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.types import (
    BigIntType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    IntType,
    TimestampType,
    VarCharType,
)
from penstock.sql.logical.nodes import AggregateCall
from penstock.sql.stream.aggregates import kernels as column_aggregates
from penstock.sql.stream.aggregates.kernels import FIRED, ColumnAggregates, is_by_kernel
from penstock.sql.typed import Field

COLUMNS: list[tuple[DataType, list[Any]]] = [
    (IntType(), [-(1 << 31), -1, 0, 7, (1 << 31) - 1]),
    (BigIntType(), [-(1 << 63), -1, 0, 7, (1 << 63) - 1]),
    (DecimalType(10, 2), [Decimal("-1.25"), Decimal("0.00"), Decimal("99999999.99")]),
    (DoubleType(), [-1.5, 0.0, 0.1, 1e300]),
    (VarCharType(), ["", "a", "b", "ä"]),
    (TimestampType(3), [datetime.datetime(1970, 1, 1), datetime.datetime(2026, 11, 24, 9)]),
]
FILTER = Field(BooleanType(), len(COLUMNS))
SCHEMA = pa.schema([(str(place), arrow_type(kind)) for place, (kind, _) in enumerate([*COLUMNS, (BooleanType(), [])])])


def calls() -> list[AggregateCall]:
    found = [AggregateCall("COUNT", (), BigIntType())]
    for place, (kind, _) in enumerate(COLUMNS):
        operands = (Field(kind, place),)
        for function in ("COUNT", "SUM", "AVG", "MIN", "MAX"):
            for condition in (None, FILTER):
                call = AggregateCall(function, operands, BigIntType(), condition=condition)
                if is_by_kernel(call):
                    found.append(call)
    return found


ROWS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.tuples(*(st.sampled_from([None, *values]) for _, values in COLUMNS), st.sampled_from([None, True, False])),
    ),
    min_size=1,
    max_size=12,
)


def in_groups(table: pa.Table) -> list[Any]:
    return sorted(table.to_pylist(), key=lambda row: row["time"])


@pytest.mark.slow
@pytest.mark.parametrize("shares_panes", [False, True])
@given(rows=ROWS, in_order=st.booleans())
def test_runs_of_rows_give_what_their_groups_give(shares_panes: bool, rows: list[Any], in_order: bool) -> None:
    if in_order:
        rows.sort(key=lambda row: row[0])
    columns = pa.RecordBatch.from_arrays(
        [pa.array([row[place] for _, row in rows], field.type) for place, field in enumerate(SCHEMA)], schema=SCHEMA
    )
    group = {"time": np.array([time for time, _ in rows]), "key.0": np.zeros(len(rows), np.int64)}
    for call in calls():
        aggregates = ColumnAggregates([call], shares_panes)
        arguments = aggregates.build_arguments(group, columns)
        wanted = aggregates.grouped(arguments, list(group))
        found = aggregates.in_runs(arguments, list(group))
        assert found.schema == wanted.schema, call
        assert in_groups(found) == in_groups(wanted), call
        assert not shares_panes or FIRED in found.column_names
        assert found.num_rows == len(set(group["time"].tolist()))


def test_rows_in_many_runs_are_grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_aggregates, "_RUNS_MAX", 3)
    aggregates = ColumnAggregates([AggregateCall("COUNT", (), BigIntType())], False)
    times = np.array([0, 1, 0, 1])
    arguments = aggregates.build_arguments({"time": times}, pa.RecordBatch.from_pydict({"0": [1] * 4}))
    assert in_groups(aggregates.in_runs(arguments, ["time"])) == [
        {"time": 0, "0.count": 2},
        {"time": 1, "0.count": 2},
    ]


@pytest.mark.parametrize("shares_panes", [False, True])
def test_group_in_several_runs_has_one_row(shares_panes: bool) -> None:
    """K1: also with no aggregate, as in a set operation of windows."""
    times = np.array([0, 1, 0, 1, 0])
    columns = pa.RecordBatch.from_pydict({"0": [1, 2, 3, 4, 5]})
    counted = ColumnAggregates([AggregateCall("SUM", (Field(BigIntType(), 0),), BigIntType())], shares_panes)
    found = counted.in_runs(counted.build_arguments({"time": times}, columns), ["time"])
    assert found.select(["time", "0.sum"]).to_pylist() == [{"time": 0, "0.sum": 9}, {"time": 1, "0.sum": 6}]
    alone = ColumnAggregates([], shares_panes)
    assert alone.in_runs(alone.build_arguments({"time": times}, columns), ["time"]).column("time").to_pylist() == [0, 1]
