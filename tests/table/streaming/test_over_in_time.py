"""OVER windows in the order of time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.state.rocks import CanonicalRocks
from tests.table.streaming.over_windows import Window, calls_over

from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.records import MAX_WATERMARK
from penstock.testing import operator_harness

UNBOUNDED_ROWS = "PARTITION BY k ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
UNBOUNDED_RANGE = "PARTITION BY k ORDER BY ts"
ONE_ROW = "PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"
TEN_MS = "PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '0.010' SECOND PRECEDING AND CURRENT ROW"


def results(calls: str, window: str, *rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """All results of rows."""
    over = Window(calls_over(calls, window))
    over.rows(*rows)
    over.watermark(MAX_WATERMARK)
    return over.take()


def test_rows_come_out_in_order_when_the_watermark_has_passed_them() -> None:
    over = Window(calls_over("SUM(v)", UNBOUNDED_ROWS))
    over.rows(("a", 1, 30), ("a", 2, 10), ("a", 3, 20))
    assert over.take() == []
    over.watermark(20)
    assert over.take() == [("a", 2, 2), ("a", 3, 5)]
    over.watermark(30)
    assert over.take() == [("a", 1, 6)]
    assert over.harnesses[0].watermarks == [20, 30]


@pytest.mark.parametrize("window", [UNBOUNDED_ROWS, UNBOUNDED_RANGE, ONE_ROW, TEN_MS])
def test_a_row_needs_its_time(window: str) -> None:
    over = Window(calls_over("SUM(v)", window))
    with pytest.raises(UserCodeError, match=r"'v': 1, 'ts': None") as raised:
        over.rows(("a", 2, 10), ("a", 1))
    assert "column 'ts' is NULL in a row, and OVER needs" in str(raised.value.__cause__)


def test_rows_carry_their_time() -> None:
    over = Window(calls_over("SUM(v)", UNBOUNDED_ROWS))
    over.rows(("a", 1, 30), ("a", 2, 10))
    over.watermark(30)
    assert [record.timestamp for record in over.harnesses[0].output] == [10, 30]


def test_with_rows_each_row_has_its_own_result() -> None:
    assert results("SUM(v)", UNBOUNDED_ROWS, ("a", 1, 1), ("a", 2, 1), ("a", 3, 2)) == [
        ("a", 1, 1),
        ("a", 2, 3),
        ("a", 3, 6),
    ]


def test_with_range_rows_of_one_time_share_their_result() -> None:
    assert results("SUM(v)", UNBOUNDED_RANGE, ("a", 1, 1), ("a", 2, 1), ("a", 3, 2)) == [
        ("a", 1, 3),
        ("a", 2, 3),
        ("a", 3, 6),
    ]


def test_a_frame_of_rows_forgets_the_oldest() -> None:
    assert results("SUM(v); MAX(v)", ONE_ROW, ("a", 5, 1), ("a", 2, 1), ("a", 3, 2)) == [
        ("a", 5, 5, 5),
        ("a", 2, 7, 5),
        ("a", 3, 5, 3),
    ]


def test_a_frame_of_time_has_both_ends() -> None:
    assert results("SUM(v)", TEN_MS, ("a", 1, 10), ("a", 2, 20), ("a", 3, 21)) == [
        ("a", 1, 1),
        ("a", 2, 3),
        ("a", 3, 5),
    ]


def test_partitions_do_not_see_each_other_and_null_is_one() -> None:
    rows = (("a", 1, 1), (None, 2, 2), ("a", 3, 3), (None, 4, 4))
    assert results("SUM(v)", UNBOUNDED_ROWS, *rows) == [("a", 1, 1), (None, 2, 2), ("a", 3, 4), (None, 4, 6)]
    assert results("SUM(v)", "ORDER BY ts", *rows) == [("a", 1, 1), (None, 2, 3), ("a", 3, 6), (None, 4, 10)]


def test_a_filter_leaves_rows_out() -> None:
    over = Window(f"SELECT SUM(v) FILTER (WHERE v > 1) OVER ({ONE_ROW}) FROM t")
    over.rows(("a", 1, 1), ("a", 2, 2), ("a", 3, 3), ("a", 1, 4), ("a", 1, 5))
    over.watermark(MAX_WATERMARK)
    assert [row[-1] for row in over.take()] == [None, 2, 5, 3, None]


@pytest.mark.parametrize(
    ("calls", "window", "wanted"),
    [
        ("ROW_NUMBER()", UNBOUNDED_RANGE, [1, 2, 3, 4]),
        ("RANK()", UNBOUNDED_RANGE, [1, 2, 2, 4]),
        ("DENSE_RANK()", UNBOUNDED_RANGE, [1, 2, 2, 3]),
        ("LAG(v)", UNBOUNDED_RANGE, [None, None, None, 3]),
        ("LAG(v, 2, 0)", UNBOUNDED_RANGE, [0, 1, 1, None]),
        ("FIRST_VALUE(v)", UNBOUNDED_ROWS, [1, 1, 1, 1]),
        ("LAST_VALUE(v)", UNBOUNDED_ROWS, [1, 1, 3, 4]),
        ("FIRST_VALUE(v)", ONE_ROW, [1, 1, 3, 3]),
        ("LAST_VALUE(v)", ONE_ROW, [1, 1, 3, 4]),
        ("COUNT(DISTINCT v)", ONE_ROW, [1, 1, 1, 2]),
        ("COUNT(*)", ONE_ROW, [1, 2, 2, 2]),
    ],
)
def test_functions(calls: str, window: str, wanted: list[Any]) -> None:
    found = results(calls, window, ("a", 1, 1), ("a", None, 2), ("a", 3, 2), ("a", 4, 3))
    assert [row[-1] for row in found] == wanted


def test_lag_takes_no_negative_offset() -> None:
    with pytest.raises(UserCodeError) as raised:
        results("LAG(v, -1)", UNBOUNDED_RANGE, ("a", 1, 1))
    assert str(raised.value.__cause__) == "Offset(-1) should be positive."


def test_without_a_bound_rows_behind_the_watermark_are_late() -> None:
    over = Window(calls_over("SUM(v)", UNBOUNDED_ROWS))
    over.watermark(10)
    over.rows(("a", 1, 10), ("b", 2, 11))
    over.watermark(20)
    assert over.take() == [("b", 2, 2)]
    assert over.harnesses[0].counters == {LATE_RECORDS: 1}


def test_with_a_bound_rows_behind_the_last_one_of_their_partition_are_late() -> None:
    over = Window(calls_over("SUM(v)", ONE_ROW))
    over.rows(("a", 1, 10))
    over.watermark(15)
    over.rows(("a", 2, 10), ("a", 3, 11), ("b", 4, 10))
    over.watermark(16)
    assert over.take() == [("a", 1, 1), ("b", 4, 4), ("a", 3, 4)]
    assert over.harnesses[0].counters == {LATE_RECORDS: 1}


def test_a_timer_that_came_in_vain_makes_rows_before_it_late() -> None:
    over = Window(calls_over("SUM(v)", TEN_MS))
    over.rows(("a", 1, 4), ("a", 2, 25))
    over.watermark(22)  # at 20 the frame of the first row would have ended, if the second one had not come
    over.rows(("a", 3, 13), ("a", 4, 23))
    over.watermark(40)
    assert over.take() == [("a", 1, 1), ("a", 4, 4), ("a", 2, 6)]


def test_a_frame_of_time_is_forgotten_when_no_row_can_reach_it() -> None:
    over = Window(calls_over("SUM(v)", TEN_MS))
    over.rows(("a", 1, 10))
    over.watermark(25)
    assert over.held > 0
    over.recover()
    over.watermark(26)
    assert over.held == 0
    over.rows(("a", 2, 10))
    over.watermark(27)
    assert over.take() == [("a", 2, 2)]


# --- against all rows so far ------------------------------------------------------------------------------------------

ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(-3, 3), st.integers(1, 12)), max_size=6)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), ROWS),
        st.tuples(st.just("watermark"), st.integers(1, 12)),
        st.tuples(st.just("checkpoint"), st.none()),
        st.tuples(st.just("recover"), st.integers(1, 3)),
    ),
    max_size=20,
)
CALLS = "SUM(v); COUNT(*); MIN(v); COUNT(DISTINCT v); LAST_VALUE(v)"


def of_frame(values: list[Any]) -> tuple[Any, ...]:
    """What the calls give."""
    found = [value for value in values if value is not None]
    return (
        sum(found) if found else None,
        len(values),
        min(found, default=None),
        len(set(found)),
        found[-1] if found else None,
    )


def from_all_rows(rows: list[tuple[str, Any, int]], is_rows: bool, distance: int | None) -> Counter[Any]:
    """The results of all rows, in order of time, from the frame of each."""
    results = []
    ordered = sorted(rows, key=lambda row: row[2])
    for key in "abc":
        mine = [row for row in ordered if row[0] == key]
        for index, (_, value, time) in enumerate(mine):
            if is_rows:
                frame = mine[: index + 1] if distance is None else mine[max(0, index - distance) : index + 1]
            else:
                frame = [row for row in mine if row[2] <= time and (distance is None or time - row[2] <= distance)]
            results.append((key, value, *of_frame([row[1] for row in frame])))
    return Counter(results)


def check(events: list[Any], window: tuple[str, bool, int | None], rescales: bool = True) -> None:
    frame, is_rows, distance = window
    over = Window(calls_over(CALLS, frame))
    now, taken = 0, []
    found: list[tuple[Any, ...]] = []
    for what, argument in events:
        if what == "rows":
            rows = [(key, value, now + time) for key, value, time in argument]
            taken += rows
            over.rows(*rows)
        elif what == "watermark":
            now += argument
            over.watermark(now)
            found += over.take()
        elif what == "checkpoint":
            over.checkpoint()
        else:
            found += over.take()
            over.recover(argument if rescales else 1)
            over.watermark(now)
    over.watermark(MAX_WATERMARK)
    found += over.take()
    over.close()
    assert Counter(found) == from_all_rows(taken, is_rows, distance)


WINDOWS = st.sampled_from(
    [
        (UNBOUNDED_ROWS, True, None),
        (UNBOUNDED_RANGE, False, None),
        (ONE_ROW, True, 1),
        (TEN_MS, False, 10),
        ("PARTITION BY k ORDER BY ts RANGE INTERVAL '0.003' SECOND PRECEDING", False, 3),
    ]
)


@settings(deadline=None, max_examples=150)
@given(EVENTS, WINDOWS)
def test_results_are_those_of_all_rows_so_far(events: list[Any], window: tuple[str, bool, int | None]) -> None:
    """Whatever the batches, the watermarks, the recoveries and the parallelism after them."""
    check(events, window)


@settings(deadline=None, max_examples=25)
@given(EVENTS, WINDOWS)
def test_results_are_the_same_on_rocksdb(events: list[Any], window: tuple[str, bool, int | None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator_harness, "HeapKeyedStateBackend", CanonicalRocks)
        check(events, window, rescales=False)


# --- processing time --------------------------------------------------------------------------------------------------


def test_in_processing_time_rows_have_their_result_at_once() -> None:
    over = Window(calls_over("SUM(v)", "PARTITION BY k ORDER BY p"))
    over.rows(("a", 1), ("a", 2), ("b", 3))
    assert over.take() == [("a", 1, 1), ("a", 2, 3), ("b", 3, 3)]
    over.recover(2)
    over.rows(("a", 4), ("b", 5))
    assert Counter(over.take()) == Counter([("a", 4, 7), ("b", 5, 8)])


def test_in_processing_time_a_frame_of_rows_forgets_the_oldest() -> None:
    over = Window(calls_over("SUM(v)", "ORDER BY p ROWS 1 PRECEDING"))
    over.rows(("a", 1), ("a", 2), ("b", 3))
    over.recover()
    over.rows(("a", 4))
    assert over.take() == [("a", 4, 7)]


def test_a_range_of_processing_time_waits_a_millisecond() -> None:
    over = Window(calls_over("SUM(v)", "PARTITION BY k ORDER BY p RANGE INTERVAL '0.010' SECOND PRECEDING"))
    over.rows(("a", 1), ("a", 2))
    assert over.take() == []
    over.wait(1)
    assert over.take() == [("a", 1, 3), ("a", 2, 3)]
    over.wait(9)
    over.rows(("a", 4))
    over.wait(1)
    over.rows(("a", 8))
    over.wait(1)
    assert over.take() == [("a", 4, 7), ("a", 8, 12)]
    over.wait(100)
    assert over.held == 0


def test_a_range_of_processing_time_gives_its_last_rows_at_the_end() -> None:
    over = Window(calls_over("SUM(v)", "PARTITION BY k ORDER BY p RANGE INTERVAL '0.010' SECOND PRECEDING"))
    over.rows(("a", 1), ("a", 2))
    over.harnesses[0].end()
    assert over.take() == [("a", 1, 3), ("a", 2, 3)]
    assert over.held == 0
