"""Watermarks that follow a column: the same from numbers as from the expression worked out."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pytest

from penstock.runtime.columns import ColumnBatch
from penstock.sql.data.arrow import to_column
from penstock.sql.data.types import (
    DataType,
    DayTimeIntervalType,
    LocalZonedTimestampType,
    TimestampType,
    YearMonthIntervalType,
)
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.stream.rows.watermarks import NullTimes, WatermarkAssignerOperator
from penstock.sql.typed import Constant, Field, FunctionCall, Typed
from penstock.testing.operator_harness import OneInputOperatorHarness

MILLISECOND_NS = 1_000_000
NULL_TIMES = NullTimes("ts", "t", ("ts",), "")
DAY_MS = 86_400_000
TIMES_MS = [[5_000, 9_000, 7_000], [8_000], [31 * DAY_MS, 30 * DAY_MS]]


def behind(kind: DataType, delay: object, interval: DataType) -> Typed:
    return FunctionCall(kind, "-", (Field(kind, 0, "ts"), Constant(interval, delay)))


def watermarks(kind: DataType, expression: Typed, gap: int = 0) -> list[int]:
    """What follows batches of these times, 500 µs later each where the type has them."""
    operator = partial(WatermarkAssignerOperator, 0, expression, StreamSession(), NULL_TIMES, gap)
    harness = OneInputOperatorHarness(operator)
    harness.open()
    for times in TIMES_MS:
        column = to_column([time * MILLISECOND_NS + 500_000 for time in times], kind)
        harness.operator.process_batch(ColumnBatch(pa.RecordBatch.from_arrays([column], ["ts"])))
    return harness.watermarks


@pytest.mark.parametrize("kind", [TimestampType(3), TimestampType(6), LocalZonedTimestampType(3)])
def test_a_watermark_is_behind_the_latest_time(kind: DataType) -> None:
    assert watermarks(kind, Field(kind, 0, "ts")) == [9_000, 31 * DAY_MS]
    assert watermarks(kind, behind(kind, 4_000, DayTimeIntervalType())) == [5_000, 31 * DAY_MS - 4_000]


def test_months_differ_in_length() -> None:
    kind = TimestampType(3)
    # February 1 less a month is January 1; what is before 1970 is before all others.
    assert watermarks(kind, behind(kind, 1, YearMonthIntervalType()))[-1] == 0


def test_null_is_no_watermark() -> None:
    kind = TimestampType(3)
    assert watermarks(kind, behind(kind, None, DayTimeIntervalType())) == []


def test_a_watermark_after_each_second_row() -> None:
    kind = TimestampType(3)
    expression = behind(kind, 1_000, DayTimeIntervalType())
    assert watermarks(kind, expression, gap=2) == [8_000, 31 * DAY_MS - 1_000]
