"""One row of each partition by time, and rows in the order of time."""

from __future__ import annotations

from functools import partial
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings
from tests.table.streaming.ranked import NAMES, NUMBERED, TS, TYPES, K, Under, V

from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.records import MAX_WATERMARK
from penstock.sql.logical.nodes import SortKey
from penstock.sql.stream.ranking.columnar import WindowRankOperator
from penstock.sql.stream.ranking.deduplicate import FirstRowOperator, LastRowOperator
from penstock.sql.stream.ranking.plan import EventTimeSortOperator, ProcessingTimeSortOperator
from penstock.sql.stream.ranking.top_n import LatestTopN, Sent, TopN
from penstock.sql.stream.rows.state_ttl import StreamSession

IN_TIME = (SortKey(TS), SortKey(V, True, False))


def last(time: int | None = TS, sends_before: bool = True) -> Under:
    """What keeps the last row."""
    return Under(partial(LastRowOperator, (K,), time, TYPES, NAMES, sends_before))


def first() -> Under:
    """What keeps the first row by event time."""
    return Under(partial(FirstRowOperator, (K,), TS, TYPES, NAMES))


def in_time() -> Under:
    """What sorts by event time."""
    return Under(partial(EventTimeSortOperator, IN_TIME, TYPES, NAMES), False)


# --- the last row -----------------------------------------------------------------------------------------------------


def test_a_later_row_updates_the_last_one() -> None:
    kept = last()
    kept.rows(("a", 1, 10), ("b", 1, 10), ("a", 2, 9))
    kept.recover(2)
    kept.rows(("a", 3, 11))
    assert sorted(kept.take()) == [("+I", "a", 1, 10), ("+I", "b", 1, 10), ("+U", "a", 3, 11), ("-U", "a", 1, 10)]


def test_of_rows_with_the_same_time_the_one_that_comes_last_counts() -> None:
    kept = last(sends_before=False)
    kept.rows(("a", 1, 10), ("a", 2, 10))
    assert kept.take() == [("+I", "a", 1, 10), ("+U", "a", 2, 10)]


def test_by_processing_time_the_same_row_again_is_no_change() -> None:
    kept = last(None)
    kept.rows(("a", 2, 10), ("a", 2, 10), ("a", 1, 9))
    assert kept.take() == [("+I", "a", 2, 10), ("-U", "a", 2, 10), ("+U", "a", 1, 9)]


# --- the first row ----------------------------------------------------------------------------------------------------


def test_the_first_row_is_sent_when_the_watermark_has_reached_it() -> None:
    kept = first()
    kept.rows(("a", 1, 20), ("a", 2, 10), ("b", 3, 15))
    kept.watermark(9)
    assert kept.take() == []
    kept.recover(2)
    kept.rows(("a", 4, 10))
    kept.watermark(15)
    assert sorted(kept.take()) == [("+I", "a", 2, 10), ("+I", "b", 3, 15)]


def test_a_partition_has_one_row_for_ever() -> None:
    kept = first()
    kept.rows(("a", 1, 10))
    kept.watermark(10)
    kept.recover()
    kept.rows(("a", 2, 30))
    kept.watermark(MAX_WATERMARK)
    assert kept.take() == [("+I", "a", 1, 10)]


def test_rows_behind_the_watermark_are_late() -> None:
    kept = first()
    kept.watermark(10)
    kept.rows(("a", 1, 9), ("b", 2, 10))
    kept.watermark(11)
    assert kept.take() == [("+I", "b", 2, 10)]
    assert kept.harnesses[0].counters[LATE_RECORDS] == 1


def test_rows_that_are_sent_carry_their_time() -> None:
    kept = first()
    kept.rows(("a", 1, 10))
    kept.watermark(10)
    assert [record.timestamp for record in kept.harnesses[0].output] == [10]


# --- sorting ----------------------------------------------------------------------------------------------------------


def test_rows_come_in_order_of_time_and_then_of_the_other_columns() -> None:
    rows = in_time()
    rows.rows(("a", 1, 20), ("b", None, 10), ("c", 2, 10), ("d", 9, 30))
    rows.recover()
    rows.rows(("e", 5, 20))
    rows.watermark(20)
    assert rows.take() == [("+I", "c", 2, 10), ("+I", "b", None, 10), ("+I", "e", 5, 20), ("+I", "a", 1, 20)]


def test_rows_that_are_not_later_than_those_sent_are_late() -> None:
    """Rows behind the watermark are not, as long as nothing later has been sent."""
    rows = in_time()
    rows.rows(("a", 1, 10))
    rows.watermark(20)
    rows.recover()
    rows.rows(("b", 1, 10), ("c", 1, 15))
    rows.watermark(MAX_WATERMARK)
    assert rows.take() == [("+I", "a", 1, 10), ("+I", "c", 1, 15)]
    assert rows.harnesses[0].counters[LATE_RECORDS] == 1


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 20)), max_size=12),
    st.integers(1, 4),
)
def test_all_rows_come_in_order_and_the_first_is_that_of_all(rows: list[tuple[Any, ...]], size: int) -> None:
    every, one = in_time(), first()
    for begin in range(0, len(rows), size):
        for kept in (every, one):
            kept.rows(*rows[begin : begin + size])
            kept.recover()
    for kept in (every, one):
        kept.watermark(MAX_WATERMARK)
    assert [row[1:] for row in every.take()] == sorted(rows, key=lambda row: (row[2], -row[1]))
    wanted = {key: min((row for row in rows if row[0] == key), key=lambda row: row[2]) for key, _, _ in rows}
    assert sorted(row[1:] for row in one.take()) == sorted(wanted.values())


def test_rows_of_one_millisecond_are_sorted_when_it_has_passed() -> None:
    rows = Under(partial(ProcessingTimeSortOperator, (SortKey(V),), TYPES, NAMES), False)
    rows.rows(("a", 3), ("b", 1))
    assert rows.take() == []
    rows.recover()
    rows.rows(("c", 2))
    rows.harnesses[0].advance_processing_time(1)
    assert rows.take() == [("+I", "b", 1), ("+I", "c", 2), ("+I", "a", 3)]
    rows.rows(("d", 5), ("e", 4))
    rows.harnesses[0].end()
    assert rows.take() == [("+I", "e", 4), ("+I", "d", 5)]


# --- windows ----------------------------------------------------------------------------------------------------------


def of_windows(top: TopN, last_number: int) -> Under:
    """What keeps the first rows of windows; the time of a row stands for both ends of its window."""
    order, numbers = (SortKey(V),), (1, last_number)
    operator = partial(WindowRankOperator, (K,), (TS, TS), False, order, numbers, top, TYPES, NUMBERED, StreamSession())
    return Under(operator)


def test_the_first_rows_of_a_window_are_sent_at_its_end() -> None:
    windows = of_windows(TopN(1, True, False), 2)
    windows.rows(("a", 3, 10), ("a", 1, 10), ("a", 2, 10), ("a", 9, 20), ("b", 5, 10))
    windows.watermark(8)
    assert windows.take() == []
    windows.recover(2)
    windows.watermark(9)
    assert sorted(windows.take()) == [("+I", "a", 1, 10, 1), ("+I", "a", 2, 10, 2), ("+I", "b", 5, 10, 1)]
    windows.rows(("a", 0, 10))
    windows.watermark(MAX_WATERMARK)
    assert windows.take() == [("+I", "a", 9, 20, 1)]
    assert sum(harness.counters.get(LATE_RECORDS, 0) for harness in windows.harnesses) == 1


def test_rows_of_windows_that_were_sent_are_late_also_behind_a_restore() -> None:
    windows = of_windows(TopN(1, True, False), 1)
    windows.watermark(9)
    windows.recover(knows_time=False)
    windows.watermark(0)
    windows.rows(("a", 1, 10), ("a", 2, 20))
    windows.watermark(19)
    assert windows.take() == [("+I", "a", 2, 20, 1)]


def test_of_rows_with_the_same_key_the_one_that_comes_last_may_be_the_first() -> None:
    held = LatestTopN(1, False, False).create(1)
    for name in ("a", "b"):
        LatestTopN(1, False, False).add(held, 5, (name,), Sent())
    assert held[1] == [("b",)]
