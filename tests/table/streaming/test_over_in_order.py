"""OVER windows in the order of a column that is no time: results are changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.table.streaming.over_windows import Window, calls_over

ROWS = "PARTITION BY k ORDER BY v ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
RANGE = "PARTITION BY k ORDER BY v"


def changes(calls: str, window: str, *batches: list[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
    """What each batch sends, with a recovery in between."""
    over = Window(calls_over(calls, window))
    found = []
    for batch in batches:
        over.rows(*batch)
        found.append(over.take())
        over.recover()
    return found


def test_a_row_behind_the_others_is_an_insert() -> None:
    assert changes("SUM(v)", ROWS, [("a", 1)], [("a", 2)], [("b", 5)]) == [
        [("a", 1, 1)],
        [("a", 2, 3)],
        [("b", 5, 5)],
    ]


def test_a_row_ahead_of_others_updates_these() -> None:
    assert changes("SUM(v)", ROWS, [("a", 1), ("a", 5)], [("a", 3)])[1] == [
        ("a", 3, 4),
        ("-U", "a", 5, 6),
        ("+U", "a", 5, 9),
    ]


def test_a_row_that_goes_is_a_delete_even_before_an_update() -> None:
    first, second, third = changes(
        "SUM(v)", ROWS, [("a", 2), ("a", 5)], [("-U", "a", 2), ("+U", "a", 3)], [("-D", "a", 5)]
    )
    assert first == [("a", 2, 2), ("a", 5, 7)]
    assert second == [
        ("-D", "a", 2, 2),
        ("-U", "a", 5, 7),
        ("+U", "a", 5, 5),
        ("+U", "a", 3, 3),
        ("-U", "a", 5, 5),
        ("+U", "a", 5, 8),
    ]
    assert third == [("-D", "a", 5, 8)]


def test_with_rows_rows_of_one_value_are_in_the_order_in_which_they_came() -> None:
    assert changes("COUNT(*)", ROWS, [("a", 1), ("a", 2), ("a", 1)]) == [
        [("a", 1, 1), ("a", 2, 2), ("a", 1, 2), ("-U", "a", 2, 2), ("+U", "a", 2, 3)]
    ]


def test_with_range_rows_of_one_value_share_their_result() -> None:
    first, second = changes("COUNT(*)", RANGE, [("a", 1), ("a", 1)], [("-D", "a", 1)])
    assert first == [("a", 1, 1), ("-U", "a", 1, 1), ("+U", "a", 1, 2), ("a", 1, 2)]
    assert second == [("-D", "a", 1, 2), ("-U", "a", 1, 2), ("+U", "a", 1, 1)]


def test_results_that_stay_the_same_are_not_sent() -> None:
    """The largest value of all rows so far is not changed by a smaller one."""
    assert changes("MAX(v)", "PARTITION BY k ORDER BY -v", [("a", 5), ("a", 1)], [("a", 3)])[1] == [("a", 3, 5)]


def test_what_the_calls_hold_decides_whether_a_result_is_the_same() -> None:
    """As in Flink: an average may be updated to the same value."""
    assert changes("AVG(v)", ROWS, [("a", 2), ("a", 4)], [("a", 3)])[1] == [
        ("a", 3, 2),
        ("-U", "a", 4, 3),
        ("+U", "a", 4, 3),
    ]


def test_a_sum_is_sent_again_where_a_value_of_nothing_comes_before_it() -> None:
    assert changes("SUM(v)", ROWS, [("a", 2)], [("a", 0)])[1] == [("a", 0, 0), ("-U", "a", 2, 2), ("+U", "a", 2, 2)]


def test_null_is_ahead_of_all_values_unless_it_is_said_otherwise() -> None:
    rows = [("a", 1), ("a", None)]
    assert changes("COUNT(*)", RANGE, rows) == [
        [("a", 1, 1), ("a", None, 1), ("-U", "a", 1, 1), ("+U", "a", 1, 2)],
    ]
    assert changes("COUNT(*)", f"{RANGE} NULLS LAST", rows) == [[("a", 1, 1), ("a", None, 2)]]


def test_a_row_may_go_before_it_comes() -> None:
    first, second, third = changes("SUM(v)", ROWS, [("a", 1), ("-U", "a", 3)], [("+U", "a", 3)], [("a", 3)])
    assert (first, second, third) == ([("a", 1, 1)], [], [("a", 3, 4)])


def test_numbers_of_rows() -> None:
    rows = [("a", 1), ("a", 1), ("a", 2)]
    for call, wanted in (("ROW_NUMBER()", [1, 2, 3]), ("RANK()", [1, 1, 3]), ("DENSE_RANK()", [1, 1, 2])):
        assert sorted(folded(changes(call, RANGE, rows)[0]).elements()) == [
            (*row, number) for row, number in zip(rows, wanted, strict=True)
        ]


def test_a_partition_without_rows_is_gone() -> None:
    over = Window(calls_over("SUM(v)", RANGE))
    over.rows(("a", 1), ("a", 2), ("-D", "a", 1), ("-D", "a", 2))
    assert over.held == 0


# --- against the table ------------------------------------------------------------------------------------------------


def folded(sent: list[tuple[Any, ...]]) -> Counter[Any]:
    """The table that changes give: no row goes that is not there, and each -U comes ahead of a +U."""
    table: Counter[Any] = Counter()
    for row in sent:
        if row[0] in ("-U", "-D"):
            assert table[row[1:]] > 0
            table[row[1:]] -= 1
        else:
            table[row[1:] if row[0] == "+U" else row] += 1
    return +table


def from_table(rows: list[tuple[str, Any]], is_rows: bool) -> Counter[Any]:
    """The results of all rows of a table."""
    found: Counter[Any] = Counter()
    for key in "ab":
        mine = sorted((value for one, value in rows if one == key), key=lambda value: (value is not None, value or 0))
        for index, value in enumerate(mine):
            end = index + 1 if is_rows else len(mine) - mine[::-1].index(value)
            frame = [one for one in mine[:end] if one is not None]
            found[key, value, sum(frame) if frame else None, end, len(set(frame)), max(frame, default=None)] += 1
    return found


STEPS = st.lists(
    st.one_of(
        st.lists(st.tuples(st.booleans(), st.sampled_from("ab"), st.none() | st.integers(0, 4)), max_size=6),
        st.integers(1, 3),
    ),
    max_size=12,
)


@pytest.mark.parametrize("is_rows", [True, False])
@settings(deadline=None, max_examples=100)
@given(steps=STEPS)
def test_changes_give_the_results_of_the_table(is_rows: bool, steps: list[Any]) -> None:
    """Whatever comes and goes, the batches, the recoveries and the parallelism after them."""
    over = Window(calls_over("SUM(v); COUNT(*); COUNT(DISTINCT v); MAX(v)", ROWS if is_rows else RANGE))
    rows: list[tuple[str, Any]] = []
    sent: list[tuple[Any, ...]] = []
    for step in steps:
        if isinstance(step, int):
            over.recover(step)
            continue
        batch = []
        for comes, key, value in step:
            if comes or (key, value) not in rows:
                rows.append((key, value))
                batch.append(("+I", key, value))
            else:
                rows.remove((key, value))
                batch.append(("-D", key, value))
        over.rows(*batch)
        sent += over.take()
        assert folded(sent) == from_table(rows, is_rows)
    over.close()
