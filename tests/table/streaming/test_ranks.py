"""Top-N: which rows there are, and which changes tell of them."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.table.streaming.ranked import NAMES, NUMBERED, TYPES, K, Under, V

from penstock.sql.data.types import DoubleType, IntType
from penstock.sql.logical.nodes import SHORT, SortKey
from penstock.sql.stream.ranking.deduplicate import FirstRowsOperator
from penstock.sql.stream.ranking.top_n import PARTITIONS, RankOperator, RetractableTopN, Sent, Top1, TopN, UpdatableTopN
from penstock.sql.stream.rows.rows import RowEquality
from penstock.state.keys import NAN

ASCENDING = (SortKey(V),)
DESCENDING = (SortKey(V, True, False),)


def under(top: TopN, end: int, shows: bool = False, order: Any = ASCENDING, partition: Any = (K,)) -> Under:
    """An operator that keeps rows by `top`."""
    names = NUMBERED if shows else NAMES
    operator = partial(RankOperator, partition, order, end, False, top, TYPES, names)
    return Under(operator, bool(partition))


def changes(top: TopN, end: int, *rows: tuple[Any, ...], shows: bool = False) -> list[tuple[Any, ...]]:
    """What rows one by one send."""
    ranked = under(top, end, shows)
    for row in rows:
        ranked.rows(row)
        ranked.recover()
    return ranked.take()


# --- rows that only come ----------------------------------------------------------------------------------------------


def test_a_row_ahead_of_others_pushes_the_last_one_out() -> None:
    assert changes(TopN(1, False, True), 2, ("a", 5), ("a", 7), ("b", 1), ("a", 6), ("a", 9)) == [
        ("+I", "a", 5),
        ("+I", "a", 7),
        ("+I", "b", 1),
        ("-D", "a", 7),
        ("+I", "a", 6),
    ]


def test_with_numbers_each_one_that_has_another_row_is_updated() -> None:
    found = changes(TopN(1, True, True), 2, ("a", 5), ("a", 7), ("a", 3), shows=True)
    assert found == [
        ("+I", "a", 5, 1),
        ("+I", "a", 7, 2),
        ("-U", "a", 5, 1),
        ("+U", "a", 3, 1),
        ("-U", "a", 7, 2),
        ("+U", "a", 5, 2),
    ]


def test_rows_before_updates_are_sent_only_if_they_are_asked_for() -> None:
    assert changes(TopN(1, True, False), 1, ("a", 5), ("a", 3), shows=True) == [("+I", "a", 5, 1), ("+U", "a", 3, 1)]


def test_numbers_that_begin_later_are_told_of_by_updates_even_if_nobody_sees_them() -> None:
    assert changes(TopN(2, False, True), 3, ("a", 5), ("a", 7), ("a", 3)) == [
        ("+I", "a", 7),
        ("-U", "a", 7),
        ("+U", "a", 5),
        ("+I", "a", 7),
    ]


def test_rows_with_the_same_key_stay_in_the_order_in_which_they_come() -> None:
    found = changes(TopN(1, True, True), 3, ("a", 5), ("a", 5), ("a", 4), shows=True)
    assert found[:2] == [("+I", "a", 5, 1), ("+I", "a", 5, 2)]
    assert changes(TopN(1, False, True), 1, ("a", 5), ("a", 5)) == [("+I", "a", 5)]


def test_the_first_row_alone_is_updated() -> None:
    """As in Flink, which has an operator of its own for it."""
    assert changes(Top1(False, True), 1, ("a", 5), ("a", 5), ("a", 3), ("a", 4)) == [
        ("+I", "a", 5),
        ("-U", "a", 5),
        ("+U", "a", 3),
    ]


def test_the_end_may_be_in_a_column_of_the_first_row_of_a_partition() -> None:
    operator = partial(RankOperator, (K,), (), V, True, TopN(1, False, True), TYPES, NAMES)
    ranked = Under(operator)
    ranked.rows(("a", 2), ("b", 0))
    ranked.recover()
    ranked.rows(("a", 9), ("a", 9), ("b", 9))
    assert ranked.take() == [("+I", "a", 2), ("+I", "a", 9)]


def test_the_end_stays_when_the_first_row_has_gone() -> None:
    operator = partial(RankOperator, (K,), (), V, True, RetractableTopN(1, False, True), TYPES, NAMES)
    ranked = Under(operator)
    ranked.rows(("a", 1), ("-D", "a", 1), ("a", 5), ("a", 6))
    assert ranked.take() == [("+I", "a", 1), ("-D", "a", 1), ("+I", "a", 5)]


def test_no_more_rows_are_held_than_are_asked_for() -> None:
    ranked = under(TopN(1, False, True), 2)
    ranked.rows(*[("a", value) for value in range(10)])
    assert len(ranked.harnesses[0].context.keyed.table(PARTITIONS).entries(None)["a"][1]) == 2


# --- rows that come and go --------------------------------------------------------------------------------------------


def test_a_row_that_goes_lets_another_one_in() -> None:
    assert changes(RetractableTopN(1, False, True), 1, ("a", 5), ("a", 3), ("-D", "a", 3)) == [
        ("+I", "a", 5),
        ("-D", "a", 5),
        ("+I", "a", 3),
        ("-D", "a", 3),
        ("+I", "a", 5),
    ]


def test_with_numbers_a_row_that_goes_moves_the_others_up() -> None:
    found = changes(RetractableTopN(1, True, True), 2, ("a", 3), ("a", 5), ("-U", "a", 3), ("+U", "a", 6), shows=True)
    assert found == [
        ("+I", "a", 3, 1),
        ("+I", "a", 5, 2),
        ("-U", "a", 3, 1),
        ("+U", "a", 5, 1),
        ("-D", "a", 5, 2),
        ("+I", "a", 6, 2),
    ]


def test_a_row_may_go_before_it_comes() -> None:
    ranked = under(RetractableTopN(1, False, True), 2)
    ranked.rows(("-D", "a", 3), ("a", 5))
    ranked.recover()
    ranked.rows(("a", 3))
    assert ranked.take() == [("+I", "a", 5)]


def test_many_rows_with_one_sort_key_may_hold_python_objects_that_are_no_keys() -> None:
    top = RetractableTopN(1, False, True)
    held, sent = top.create(1), Sent()
    for value in range(40):
        top.add(held, 0, (value, {"of": value}), sent)
    top.remove(held, 0, (7, {"of": 7}), sent)
    assert [row[0] for row in held[1]] == [value for value in range(40) if value != 7]


def test_a_partition_without_rows_leaves_nothing() -> None:
    ranked = under(RetractableTopN(1, False, True), 2)
    ranked.rows(("a", 3), ("-D", "a", 3), ("-D", "b", 1), ("b", 1))
    assert not ranked.harnesses[0].context.keyed.table(PARTITIONS).entries(None)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1)), max_size=120), st.booleans(), st.booleans())
def test_of_many_rows_with_one_sort_key_the_oldest_that_is_the_same_goes(
    steps: list[tuple[int, float]], newest_first: bool, resumes: bool
) -> None:
    """As if each row was looked at: here the first of a list that is the table, by the order of the rows."""
    top = RetractableTopN(1, True, True, newest_first)
    top.equality = RowEquality([IntType(), DoubleType()])
    rows: list[tuple[Any, ...]] = [(value, math.nan) for value in (0, 1, 2, 3) for _ in range(10)]
    held, sent = top.create(5), Sent()
    for row in rows:
        top.add(held, 0, row, sent)
    for value, part in steps:
        row = (value, float("nan"))
        goes = part < len(rows) / 80
        if goes:
            top.remove(held, 0, row, sent)
            same = [place for place, one in enumerate(rows) if one[0] == value]
            if same:
                del rows[same[0]]
            else:
                assert held[3].pop((value, NAN)) == 1
        else:
            top.add(held, 0, row, sent)
            rows.append(row)
        if resumes:
            held = top.resumed(pickle.loads(pickle.dumps(held)))
        in_order = rows[::-1] if newest_first else rows
        assert [one[0] for one in held[1]] == [one[0] for one in in_order]


@pytest.mark.parametrize("is_numbered", [False, True])
@pytest.mark.parametrize("many", [1, 40])
def test_a_row_that_goes_is_retracted_as_it_was_sent(is_numbered: bool, many: int) -> None:
    """0.0 and -0.0 are equal: the row that goes may be another one than the one whose retraction comes."""
    top = RetractableTopN(1, is_numbered, True)
    top.equality = RowEquality([IntType(), DoubleType()])
    held, sent = top.create(1), Sent()
    for zero in (0.0, *[-0.0] * many):
        top.add(held, 0, (1, zero), sent)
    top.remove(held, 0, (1, -0.0), sent)
    shown = [(SHORT[kind], str(row[1])) for kind, row in zip(sent.kinds, sent.rows, strict=True)]
    gone, come = ("-U", "+U") if is_numbered else ("-D", "+I")
    assert shown == [("+I", "0.0"), (gone, "0.0"), (come, "-0.0")]


# --- rows that get better ---------------------------------------------------------------------------------------------


def updated(shows: bool, *rows: tuple[Any, ...], end: int = 2) -> list[tuple[Any, ...]]:
    """What rows send that take the place of those with the same k: higher ones come first."""
    ranked = under(UpdatableTopN(1, shows, True, (K,)), end, shows, DESCENDING, ())
    for row in rows:
        ranked.rows(row)
        ranked.recover()
    return ranked.take()


def test_a_row_that_gets_better_takes_the_place_of_the_one_before() -> None:
    assert updated(False, ("a", 1), ("b", 2), ("+U", "a", 3), ("c", 1), ("+U", "c", 4)) == [
        ("+I", "a", 1),
        ("+I", "b", 2),
        ("-U", "a", 1),
        ("+U", "a", 3),
        ("-D", "b", 2),
        ("+I", "c", 4),
    ]


def test_with_numbers_the_ones_between_the_places_are_updated() -> None:
    assert updated(True, ("a", 1), ("b", 2), ("+U", "a", 3), ("+U", "a", 4)) == [
        ("+I", "a", 1, 1),
        ("-U", "a", 1, 1),
        ("+U", "b", 2, 1),
        ("+I", "a", 1, 2),
        ("-U", "b", 2, 1),
        ("+U", "a", 3, 1),
        ("-U", "a", 1, 2),
        ("+U", "b", 2, 2),
        ("-U", "a", 3, 1),
        ("+U", "a", 4, 1),
    ]


def test_the_first_row_is_updated_when_it_alone_changes() -> None:
    """What it is sorted by may stay the same while another column changes."""
    order = (SortKey(2, True),)
    ranked = Under(partial(RankOperator, (), order, 1, False, Top1(False, True, (K,)), TYPES, NAMES), False)
    ranked.rows(("a", 1, 10), ("b", 5, 10), ("+U", "a", 2, 10))
    assert ranked.take() == [("+I", "a", 1, 10), ("-U", "a", 1, 10), ("+U", "a", 2, 10)]


# --- order ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        (SortKey(V, False, True), [None, 1, 3]),
        (SortKey(V, False, False), [1, 3, None]),
        (SortKey(V, True, True), [None, 3, 1]),
        (SortKey(V, True, False), [3, 1, None]),
    ],
)
def test_null_is_first_or_last(key: SortKey, wanted: list[int | None]) -> None:
    ranked = under(TopN(1, True, False), 3, True, (key,))
    ranked.rows(("a", 1), ("a", None), ("a", 3))
    found = {number: value for _, _, value, number in ranked.take()}
    assert [found[number] for number in (1, 2, 3)] == wanted


def test_null_is_a_partition_of_its_own() -> None:
    assert changes(TopN(1, False, True), 1, (None, 2), ("a", 3), (None, 1)) == [
        ("+I", None, 2),
        ("+I", "a", 3),
        ("-D", None, 2),
        ("+I", None, 1),
    ]


# --- the first rows as they come --------------------------------------------------------------------------------------


def test_the_first_rows_as_they_come() -> None:
    first = Under(partial(FirstRowsOperator, (K,), 2, 3, NUMBERED, True))
    first.rows(("a", 1), ("a", 2), ("b", 1))
    first.recover()
    first.rows(("a", 3), ("a", 4), ("b", 2))
    assert first.take() == [("+I", "a", 2, 2), ("+I", "a", 3, 3), ("+I", "b", 2, 2)]


# --- any changes ------------------------------------------------------------------------------------------------------

ROWS = st.tuples(st.sampled_from("ab"), st.one_of(st.none(), st.integers(0, 4)))


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Rows that come, and some that go again, at times before they come."""
    found: list[tuple[Any, ...]] = []
    for row in draw(st.lists(ROWS, max_size=16)):
        found.append(("+I", *row))
        if draw(st.booleans()):
            found.insert(draw(st.integers(0, len(found))), ("-D", *row))
    return found


def folded(sent: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """The table that changes stand for; nothing goes that is not there."""
    table: Counter[tuple[Any, ...]] = Counter()
    for kind, *row in sent:
        table[tuple(row)] += 1 if kind in ("+I", "+U") else -1
        assert table[tuple(row)] >= 0
    return +table


def relation(history: list[tuple[Any, ...]], start: int, end: int, shows: bool) -> Counter[tuple[Any, ...]]:
    """The same table, worked out from the rows that are left."""
    left: Counter[tuple[Any, ...]] = Counter()
    for kind, *row in history:
        left[tuple(row)] += 1 if kind == "+I" else -1
    found: Counter[tuple[Any, ...]] = Counter()
    for key in "ab":
        values = [row[1] for row in left.elements() if row[0] == key]
        values.sort(key=lambda value: -1 if value is None else value)
        for number, value in enumerate(values[start - 1 : end], start):
            found[(key, value, number) if shows else (key, value)] += 1
    return found


@settings(deadline=None, max_examples=120)
@given(histories(), st.integers(1, 2), st.integers(0, 2), st.booleans(), st.integers(1, 5), st.booleans())
def test_changes_stand_for_the_first_rows(
    history: list[tuple[Any, ...]], start: int, more: int, shows: bool, size: int, recovers: bool
) -> None:
    end = start + more
    ranked = under(RetractableTopN(start, shows, True), end, shows)
    for begin in range(0, len(history), size):
        ranked.rows(*history[begin : begin + size])
        if recovers:
            ranked.recover(1 + begin % 3)
    assert folded(ranked.take()) == relation(history, start, end, shows)


@settings(deadline=None, max_examples=80)
@given(st.lists(ROWS, max_size=16), st.integers(1, 2), st.integers(0, 2), st.booleans(), st.integers(1, 5))
def test_rows_that_only_come_give_the_same_table(
    rows: list[tuple[Any, ...]], start: int, more: int, shows: bool, size: int
) -> None:
    end = start + more
    ranked = under(TopN(start, shows, True), end, shows)
    for begin in range(0, len(rows), size):
        ranked.rows(*rows[begin : begin + size])
        ranked.recover(1 + begin % 3)
    assert folded(ranked.take()) == relation([("+I", *row) for row in rows], start, end, shows)


@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 3)), max_size=16), st.integers(1, 3), st.booleans())
def test_rows_that_get_better_give_the_same_table(steps: list[tuple[str, int]], end: int, shows: bool) -> None:
    sums: Counter[str] = Counter()
    ranked = under(UpdatableTopN(1, shows, True, (K,)), end, shows, DESCENDING, ())
    for name, step in steps:
        sums[name] += step
        ranked.rows(("+U" if sums[name] > step else "+I", name, sums[name]))
        ranked.recover()
    table = folded(ranked.take())
    found = sorted(row[1] for row in table.elements())
    assert found == sorted(sorted(sums.values())[-end:])
    assert all(sums[row[0]] == row[1] for row in table)
    assert not shows or sorted(row[2] for row in table) == list(range(1, len(found) + 1))
