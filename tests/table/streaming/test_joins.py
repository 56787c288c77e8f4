"""A4: joins of two changelogs: what each change sends, and that all of it comes to the join of the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.state.rocks import CanonicalRocks
from tests.table.streaming.joined import CALLS, Change, Driven, folded

from penstock.runtime.operators.base import UserCodeError
from penstock.sql.data.types import DoubleType, IntType, VarCharType
from penstock.sql.logical.nodes import JoinType
from penstock.sql.stream.joins import sides as join_sides
from penstock.sql.stream.joins.regular import JoinOperator, SemiJoinOperator
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.typed import Field, Typed
from penstock.state.backend import HeapKeyedStateBackend
from penstock.testing import operator_harness

LEFT = [IntType(), VarCharType()]
RIGHT = [IntType(), VarCharType()]
#: the text of the left row is not that of the right one
DIFFERS = CALLS.call("<>", [Field(VarCharType(), 1), Field(VarCharType(), 3)])


def join(
    join_type: JoinType,
    condition: Typed | None = None,
    keys: tuple[list[int], list[int]] = ([0], [0]),
    nulls_match: bool = False,
    left: list[Any] = LEFT,
    ids: tuple[list[int] | None, list[int] | None] = (None, None),
    snapshots: Sequence[bytes] = (),
    **options: Any,
) -> Driven:
    is_half = join_type in (JoinType.SEMI, JoinType.ANTI)
    types = left if is_half else [*left, *RIGHT]
    factory = partial(
        SemiJoinOperator if is_half else JoinOperator,
        join_type,
        keys,
        [nulls_match] * len(keys[0]),
        condition,
        (left, RIGHT),
        [f"c{index}" for index in range(len(types))],
        StreamSession(),
        ids,
    )
    return Driven(factory, (left, RIGHT), types, *snapshots, **options)


@pytest.mark.parametrize("backend", [HeapKeyedStateBackend, CanonicalRocks])
@pytest.mark.parametrize("join_type", [JoinType.LEFT, JoinType.FULL])
def test_keys_that_match_nothing_are_not_looked_up(
    join_type: JoinType, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the pairs of a batch are too many for one go, and a row of such a key begins the next one."""
    monkeypatch.setattr(join_sides, "_PAIRS_MAX", 2)
    monkeypatch.setattr(operator_harness, "HeapKeyedStateBackend", backend)
    driven = join(join_type)
    driven.send(1, ("+I", 1, "x"), ("+I", 1, "y"), ("+I", 1, "z"))
    driven = driven.restored()
    rows = [("+I", 1, "a"), ("+I", None, "c"), ("+I", 1, "b"), ("+I", 1, "d"), ("+I", None, "e"), ("+I", 1, "f")]
    pairs = {(1, text, 1, other) for text in "abdf" for other in "xyz"}
    alone = {(None, text, None, None) for text in "ce"}
    found = folded(driven.send(0, *rows))
    found.subtract(dict.fromkeys(pairs | alone, 1))
    before = Counter({(None, None, 1, other): -1 for other in "xyz"}) if join_type is JoinType.FULL else Counter()
    assert {row: count for row, count in found.items() if count} == before
    driven.harness.close()


# --- what each change sends -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("join_type", [JoinType.LEFT, JoinType.FULL])
def test_an_outer_join_sends_each_row_right_behind_what_it_takes_back(join_type: JoinType) -> None:
    """What counts the rows behind it shows how many there are after each change."""
    driven = join(join_type)
    driven.send(0, ("+I", 1, "a"), ("+I", 1, "b"), ("+I", 1, "b"))
    alone = [(1, "a", None, None), (1, "b", None, None), (1, "b", None, None)]
    pairs = [(*row[:2], 1, "x") for row in alone]
    assert driven.send(1, ("+I", 1, "x")) == [
        change for row, pair in zip(alone, pairs, strict=True) for change in (("-D", *row), ("+I", *pair))
    ]
    kind = "-D" if join_type is JoinType.FULL else "-U"
    assert driven.send(1, ("-U", 1, "x")) == [
        change for row, pair in zip(alone, pairs, strict=True) for change in ((kind, *pair), ("+I", *row))
    ]


def test_an_inner_join_sends_each_pair_once_the_later_row_has_come() -> None:
    driven = join(JoinType.INNER)
    assert driven.send(0, ("+I", 1, "a"), ("+I", 2, "b")) == []
    assert driven.send(1, ("+I", 1, "x"), ("+I", 3, "z")) == [("+I", 1, "a", 1, "x")]
    assert driven.send(0, ("+I", 1, "c"), ("+I", 3, "d")) == [("+I", 1, "c", 1, "x"), ("+I", 3, "d", 3, "z")]


def test_pairs_of_an_inner_join_have_the_kind_of_the_row_that_makes_them() -> None:
    driven = join(JoinType.INNER)
    driven.send(0, ("+I", 1, "a"))
    assert driven.send(1, ("+I", 1, "x"), ("-U", 1, "x"), ("+U", 1, "y"), ("-D", 1, "y")) == [
        ("+I", 1, "a", 1, "x"),
        ("-U", 1, "a", 1, "x"),
        ("+U", 1, "a", 1, "y"),
        ("-D", 1, "a", 1, "y"),
    ]


def test_rows_that_are_there_twice_make_two_pairs() -> None:
    driven = join(JoinType.INNER)
    driven.send(0, ("+I", 1, "a"), ("+I", 1, "a"))
    assert driven.send(1, ("+I", 1, "x")) == [("+I", 1, "a", 1, "x")] * 2
    driven.send(0, ("-D", 1, "a"))
    assert driven.send(1, ("-D", 1, "x")) == [("-D", 1, "a", 1, "x")]


def test_a_row_that_goes_before_it_comes_takes_its_pairs_back_ahead_of_time() -> None:
    driven = join(JoinType.INNER)
    driven.send(0, ("-D", 1, "a"))
    assert driven.send(1, ("+I", 1, "x")) == [("-D", 1, "a", 1, "x")]
    assert driven.send(0, ("+I", 1, "a")) == [("+I", 1, "a", 1, "x")]
    assert driven.send(1, ("-D", 1, "x")) == []


def test_a_left_join_sends_a_row_with_null_as_long_as_it_has_no_match() -> None:
    driven = join(JoinType.LEFT)
    assert driven.send(0, ("+I", 1, "a")) == [("+I", 1, "a", None, None)]
    assert driven.send(1, ("+I", 1, "x")) == [("-D", 1, "a", None, None), ("+I", 1, "a", 1, "x")]
    assert driven.send(1, ("+I", 1, "y")) == [("+I", 1, "a", 1, "y")]
    assert driven.send(1, ("-D", 1, "x")) == [("-D", 1, "a", 1, "x")]
    assert driven.send(1, ("-D", 1, "y")) == [("-D", 1, "a", 1, "y"), ("+I", 1, "a", None, None)]
    assert driven.send(0, ("-D", 1, "a")) == [("-D", 1, "a", None, None)]


def test_updates_of_an_outer_side_are_inserts_and_deletes() -> None:
    driven = join(JoinType.LEFT)
    driven.send(1, ("+I", 1, "x"))
    assert driven.send(0, ("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "b"), ("-U", 1, "b"), ("+U", 2, "b")) == [
        ("+I", 1, "a", 1, "x"),
        ("-D", 1, "a", 1, "x"),
        ("+I", 1, "b", 1, "x"),
        ("-D", 1, "b", 1, "x"),
        ("+I", 2, "b", None, None),
    ]


def test_an_update_of_the_inner_side_of_an_outer_join_takes_its_pair_back_as_an_update() -> None:
    driven = join(JoinType.LEFT)
    driven.send(0, ("+I", 1, "a"))
    driven.send(1, ("+I", 1, "x"))
    assert driven.send(1, ("-U", 1, "x"), ("+U", 1, "y")) == [
        ("-U", 1, "a", 1, "x"),
        ("+I", 1, "a", None, None),
        ("-D", 1, "a", None, None),
        ("+I", 1, "a", 1, "y"),
    ]


def test_a_right_join_is_a_left_join_with_sides_exchanged() -> None:
    driven = join(JoinType.RIGHT)
    assert driven.send(1, ("+I", 1, "x")) == [("+I", None, None, 1, "x")]
    assert driven.send(0, ("+I", 1, "a"), ("-D", 1, "a")) == [
        ("-D", None, None, 1, "x"),
        ("+I", 1, "a", 1, "x"),
        ("-D", 1, "a", 1, "x"),
        ("+I", None, None, 1, "x"),
    ]


def test_a_full_join_pads_both_sides() -> None:
    driven = join(JoinType.FULL)
    assert driven.send(0, ("+I", 1, "a"), ("+I", 2, "b")) == [("+I", 1, "a", None, None), ("+I", 2, "b", None, None)]
    assert driven.send(1, ("+I", 3, "z"), ("+I", 1, "x")) == [
        ("+I", None, None, 3, "z"),
        ("-D", 1, "a", None, None),
        ("+I", 1, "a", 1, "x"),
    ]
    assert driven.send(0, ("-D", 1, "a")) == [("-D", 1, "a", 1, "x"), ("+I", None, None, 1, "x")]


def test_a_semi_join_passes_rows_with_a_match_on_as_they_are() -> None:
    driven = join(JoinType.SEMI)
    driven.send(1, ("+I", 1, "x"))
    assert driven.send(0, ("+I", 1, "a"), ("+I", 2, "b"), ("-U", 1, "a"), ("+U", 1, "c")) == [
        ("+I", 1, "a"),
        ("-U", 1, "a"),
        ("+U", 1, "c"),
    ]


def test_the_first_match_and_the_last_one_send_the_row_of_a_semi_join() -> None:
    driven = join(JoinType.SEMI)
    driven.send(0, ("+I", 1, "a"), ("+I", 1, "a"))
    assert driven.send(1, ("+I", 1, "x")) == [("+I", 1, "a")] * 2
    assert driven.send(1, ("+I", 1, "y"), ("-D", 1, "x")) == []
    assert driven.send(1, ("-U", 1, "y"), ("+U", 1, "z")) == [("-U", 1, "a")] * 2 + [("+U", 1, "a")] * 2
    assert driven.send(1, ("-D", 1, "z")) == [("-D", 1, "a")] * 2


def test_an_anti_join_sends_rows_without_a_match() -> None:
    driven = join(JoinType.ANTI)
    assert driven.send(0, ("+I", 1, "a")) == [("+I", 1, "a")]
    assert driven.send(1, ("+I", 1, "x")) == [("-D", 1, "a")]
    assert driven.send(0, ("+I", 1, "b")) == []
    assert driven.send(1, ("-U", 1, "x"), ("+U", 2, "x")) == [("+I", 1, "a"), ("+I", 1, "b")]


# --- keys -------------------------------------------------------------------------------------------------------------


def test_null_keys_match_nothing() -> None:
    driven = join(JoinType.FULL)
    assert driven.send(0, ("+I", None, "a")) == [("+I", None, "a", None, None)]
    assert driven.send(1, ("+I", None, "x")) == [("+I", None, None, None, "x")]
    assert driven.send(0, ("-D", None, "a")) == [("-D", None, "a", None, None)]


def test_null_matches_null_where_the_key_is_not_distinct() -> None:
    driven = join(JoinType.INNER, nulls_match=True)
    driven.send(0, ("+I", None, "a"))
    assert driven.send(1, ("+I", None, "x")) == [("+I", None, "a", None, "x")]


def test_a_key_of_two_columns_needs_both() -> None:
    driven = join(JoinType.INNER, keys=([0, 1], [0, 1]))
    driven.send(0, ("+I", 1, "a"), ("+I", 1, "b"), ("+I", 1, None))
    assert driven.send(1, ("+I", 1, "b"), ("+I", 1, None)) == [("+I", 1, "b", 1, "b")]


def test_without_a_key_all_rows_are_pairs() -> None:
    driven = join(JoinType.INNER, keys=([], []))
    driven.send(0, ("+I", 1, "a"), ("+I", None, "b"))
    assert driven.send(1, ("+I", 2, "x")) == [("+I", 1, "a", 2, "x"), ("+I", None, "b", 2, "x")]


def test_a_row_with_nan_is_found_again_after_a_restore() -> None:
    left = [IntType(), DoubleType()]
    driven = join(JoinType.LEFT, left=left)
    driven.send(0, ("+I", 1, float("nan")))
    driven = driven.restored()
    driven.send(0, ("-D", 1, float("nan")))
    assert driven.send(1, ("+I", 1, "x")) == []


def test_the_rows_of_a_key_go_to_the_subtask_that_owns_it() -> None:
    driven = join(JoinType.LEFT)
    rows: list[Change] = [("+I", key, "a") for key in range(20)]
    driven.send(0, *rows)
    snapshot = driven.harness.snapshot(1)
    halves = [join(JoinType.LEFT, snapshots=[snapshot], parallelism=2, subtask=subtask) for subtask in (0, 1)]
    found = [half.send(1, *[("+I", key, "x") for key in range(20)]) for half in halves]
    assert 0 < len(found[0]) < 40
    expected: list[Change] = [("-D", key, "a", None, None) for key in range(20)]
    expected += [("+I", key, "a", key, "x") for key in range(20)]
    assert sorted(map(str, found[0] + found[1])) == sorted(map(str, expected))


# --- conditions -------------------------------------------------------------------------------------------------------


def test_the_rest_of_the_condition_decides_which_pairs_match() -> None:
    driven = join(JoinType.LEFT, DIFFERS)
    driven.send(0, ("+I", 1, "a"), ("+I", 1, "b"))
    assert driven.send(1, ("+I", 1, "a")) == [("-D", 1, "b", None, None), ("+I", 1, "b", 1, "a")]
    assert driven.send(1, ("+I", 1, None)) == []
    assert driven.send(0, ("+I", 1, "a"), ("-D", 1, "b")) == [("+I", 1, "a", None, None), ("-D", 1, "b", 1, "a")]


def test_a_condition_that_fails_names_the_operator() -> None:
    fails = CALLS.call("=", [CALLS.call("/", [Field(IntType(), 0), Field(IntType(), 2)]), Field(IntType(), 0)])
    driven = join(JoinType.INNER, fails, keys=([], []))
    driven.send(0, ("+I", 1, "a"))
    with pytest.raises(UserCodeError, match="Operator"):
        driven.send(1, ("+I", 0, "x"))


def test_a_batch_with_very_many_candidates_is_taken_in_parts() -> None:
    driven = join(JoinType.INNER, DIFFERS, keys=([], []))
    driven.send(0, *[("+I", number, "a") for number in range(700)])
    found = driven.send(1, *[("+I", number, "a" if number % 2 else "b") for number in range(300)])
    assert len(found) == 700 * 150
    assert folded(found) == Counter((left, "a", right, "b") for left in range(700) for right in range(0, 300, 2))


# --- updates without the rows as they were ----------------------------------------------------------------------------


def test_an_update_without_the_row_before_replaces_the_row_of_its_id() -> None:
    driven = join(JoinType.INNER, ids=([0], None))
    driven.send(0, ("+I", 1, "a"))
    driven.send(1, ("+I", 1, "x"))
    assert driven.send(0, ("+U", 1, "b")) == [("+U", 1, "b", 1, "x")]
    driven = driven.restored()
    assert driven.send(1, ("+I", 1, "y")) == [("+I", 1, "b", 1, "y")]
    assert driven.send(0, ("-D", 1, "b")) == [("-D", 1, "b", 1, "x"), ("-D", 1, "b", 1, "y")]
    assert driven.send(1, ("+I", 1, "z")) == []


def test_several_rows_of_a_key_have_their_own_ids() -> None:
    driven = join(JoinType.INNER, ids=(None, [0, 1]))
    driven.send(1, ("+I", 1, "x"), ("+I", 1, "y"), ("+U", 1, "x"))
    assert driven.send(0, ("+I", 1, "a")) == [("+I", 1, "a", 1, "x"), ("+I", 1, "a", 1, "y")]


def test_an_update_of_the_inner_side_does_not_count_as_another_match() -> None:
    driven = join(JoinType.LEFT, ids=(None, [0]))
    driven.send(0, ("+I", 1, "a"))
    assert driven.send(1, ("+I", 1, "x")) == [("-D", 1, "a", None, None), ("+I", 1, "a", 1, "x")]
    assert driven.send(1, ("+U", 1, "y")) == [("+I", 1, "a", 1, "y")]
    assert driven.send(1, ("-D", 1, "y")) == [("-D", 1, "a", 1, "y"), ("+I", 1, "a", None, None)]


def test_an_update_of_the_right_side_changes_nothing_for_a_semi_join() -> None:
    driven = join(JoinType.SEMI, ids=([0], [0]))
    driven.send(0, ("+I", 1, "a"), ("+U", 1, "b"))
    assert driven.send(1, ("+I", 1, "x"), ("+U", 1, "y")) == [("+I", 1, "b")]
    assert driven.send(1, ("-D", 1, "y"), ("-D", 1, "y")) == [("-D", 1, "b")]


# --- against the join of the tables -----------------------------------------------------------------------------------

KEYS = st.sampled_from([None, 1, 2])
TEXTS = st.sampled_from(["a", "b", None])
EVENTS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(["+I", "-U", "+U", "-D"]), KEYS, TEXTS), min_size=1, max_size=40
)


def joined(tables: list[Counter[Any]], join_type: JoinType, differs: bool, has_key: bool) -> Counter[Any]:
    """The join of two tables, by a nested loop."""

    def match(left: Any, right: Any) -> bool:
        is_key = not has_key or (left[0] is not None and left[0] == right[0])
        return is_key and (not differs or (None not in (left[1], right[1]) and left[1] != right[1]))

    left, right = tables
    found: Counter[Any] = Counter()
    for one, count in left.items():
        matches = [(other, often) for other, often in right.items() if match(one, other)]
        if join_type is JoinType.SEMI:
            found[one] += count * bool(matches)
        elif join_type is JoinType.ANTI:
            found[one] += count * (not matches)
        else:
            for other, often in matches:
                found[one + other] += count * often
            if join_type.keeps_left and not matches:
                found[(*one, None, None)] += count
    if join_type.keeps_right:
        for other, often in right.items():
            if not any(match(one, other) for one in left):
                found[(None, None, *other)] += often
    return Counter({row: count for row, count in found.items() if count})


@settings(max_examples=150)
@given(EVENTS, st.sampled_from(JoinType), st.booleans(), st.booleans(), st.data())
def test_what_is_sent_comes_to_the_join_of_the_tables(
    events: list[Any], join_type: JoinType, differs: bool, has_key: bool, data: Any
) -> None:
    driven = join(join_type, DIFFERS if differs else None, ([0], [0]) if has_key else ([], []))
    # Rows may go before they come; in the end none is missing.
    for side in (0, 1):
        missing = folded(event[1:] for event in events if event[0] == side)
        events = events + [(side, "+I", *row) for row, count in missing.items() for _ in range(-count)]
    sent: list[Change] = []
    waiting = list(events)
    while waiting:
        size = data.draw(st.integers(1, 5))
        for side in data.draw(st.permutations((0, 1))):
            batch = [event[1:] for event in waiting[:size] if event[0] == side]
            sent += driven.send(side, *batch) if batch else []
        del waiting[:size]
        if data.draw(st.booleans()):
            driven = driven.restored()
    tables = [folded(event[1:] for event in events if event[0] == side) for side in (0, 1)]
    assert folded(sent) == joined(tables, join_type, differs, has_key)
