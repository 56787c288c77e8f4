"""Joins of rows whose times lie within an interval of each other."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.table.planned import manager_of, plan_query
from tests.table.streaming.joined import CALLS, Change, Driven, folded

from penstock.runtime.records import MAX_WATERMARK
from penstock.sql.analyzer.subqueries import TRUE
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import IntType, TimestampType, VarCharType
from penstock.sql.logical.nodes import ALL, INSERTS, Filter, Join, JoinType, Node
from penstock.sql.optimizer.pushdown import Interval, find_interval, settled
from penstock.sql.stream.joins.interval import SqlIntervalJoinOperator
from penstock.sql.stream.joins.plan import changes, planned
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.typed import Field, Typed

ROW = [IntType(), TimestampType(3), VarCharType()]
DIFFERS = CALLS.call("<>", [Field(VarCharType(), 2), Field(VarCharType(), 5)])
MS = 1_000_000


def join(
    join_type: JoinType = JoinType.INNER,
    bounds: tuple[int, int] = (-5, 10),
    condition: Typed | None = None,
    is_event_time: bool = True,
) -> Driven:
    factory = partial(
        SqlIntervalJoinOperator,
        join_type,
        Interval(*bounds, 1, 1, is_event_time),
        ([0], [0]),
        [False],
        condition,
        (ROW, ROW),
        [f"c{place}" for place in range(6)],
        StreamSession(),
    )
    return Driven(factory, (ROW, ROW), [*ROW, *ROW])


def row(key: int | None, time: int, text: str | None = "a") -> Change:
    return ("+I", key, time * MS, text)


def pair(left: Change | None, right: Change | None) -> Change:
    nothing = (None,) * 3
    return ("+I", *(nothing if left is None else left[1:]), *(nothing if right is None else right[1:]))


# --- event time -------------------------------------------------------------------------------------------------------


def test_pairs_lie_within_both_bounds() -> None:
    driven = join()
    driven.send(0, row(1, 100))
    sent = driven.send(1, *[row(1, time) for time in (89, 90, 105, 106)], row(2, 100))
    assert sent == [pair(row(1, 100), row(1, 90)), pair(row(1, 100), row(1, 105))]


def test_rows_that_are_there_twice_make_two_pairs() -> None:
    driven = join()
    driven.send(1, row(1, 100), row(1, 100))
    assert driven.send(0, row(1, 100)) == [pair(row(1, 100), row(1, 100))] * 2


def test_a_row_leaves_when_no_match_can_come() -> None:
    driven = join(JoinType.LEFT)
    driven.send(0, row(1, 100), row(2, 100))
    assert driven.send(1, row(1, 100)) == [pair(row(1, 100), row(1, 100))]
    # What has waited long enough is looked for only now and then: half an interval later.
    driven.harness.watermark(105)
    assert driven.taken() == []
    driven.harness.watermark(113)
    assert driven.taken() == [pair(row(2, 100), None)]
    assert driven.send(1, row(2, 105)) == []


def test_a_row_that_comes_too_late_for_any_match_does_not_wait() -> None:
    driven = join(JoinType.FULL)
    driven.harness.watermark(200)
    assert driven.send(0, row(1, 100)) == [pair(row(1, 100), None)]
    assert driven.send(1, row(1, 190)) == [pair(None, row(1, 190))]
    assert driven.send(1, row(1, 191)) == []


def test_the_end_of_event_time_sends_what_has_no_match() -> None:
    driven = join(JoinType.FULL)
    driven.send(0, row(1, 100), row(None, 100))
    driven.send(1, row(2, 100), row(None, 100))
    driven.harness.end()
    assert folded(driven.taken()) == folded(
        [pair(row(key, 100), None) for key in (1, None)] + [pair(None, row(key, 100)) for key in (2, None)]
    )


def test_the_watermark_stays_behind_what_pairs_may_have() -> None:
    driven = join()
    driven.harness.watermark(100)
    driven.harness.watermark(MAX_WATERMARK)
    assert driven.harness.watermarks == [90, MAX_WATERMARK]


@pytest.mark.parametrize("kind", [JoinType.LEFT, JoinType.FULL])
def test_no_row_without_a_match_is_late(kind: JoinType) -> None:
    driven = join(kind)
    driven.send(0, row(1, 150), row(1, 100))
    for time in range(101, 200):
        driven.harness.watermark(time)
        late = [sent for sent in driven.taken() if sent[2] // MS <= max(driven.harness.watermarks[:-1], default=0)]
        assert not late, time
    assert driven.harness.watermarks[-1] == 199 - (10 + 7 + 1 if kind is JoinType.FULL else 5 + 7 + 1)


def test_the_rest_of_the_condition_decides_about_matches() -> None:
    driven = join(JoinType.LEFT, condition=DIFFERS)
    driven.send(0, row(1, 100, "a"), row(1, 101, "b"))
    assert driven.send(1, row(1, 100, "a")) == [pair(row(1, 101, "b"), row(1, 100, "a"))]
    driven.harness.end()
    assert driven.taken() == [pair(row(1, 100, "a"), None)]


def test_bounds_that_exclude_each_other_match_nothing() -> None:
    driven = join(JoinType.LEFT, (5, -5))
    assert driven.send(1, row(1, 100)) == []
    assert driven.send(0, row(1, 100)) == [pair(row(1, 100), None)]


@pytest.mark.parametrize("kind", [JoinType.INNER, JoinType.LEFT])
def test_a_row_without_event_time_matches_nothing(kind: JoinType) -> None:
    """An outer join ahead may leave the time NULL."""
    driven = join(kind)
    driven.send(1, row(1, 100, "b"))
    given = driven.send(0, ("+I", 1, None, "a"), row(1, 100, "a"))
    assert pair(row(1, 100, "a"), row(1, 100, "b")) in given
    driven.harness.end()
    alone = [one for one in [*given, *driven.taken()] if one[2] is None]
    assert len(alone) == (kind is JoinType.LEFT)


# --- processing time --------------------------------------------------------------------------------------------------


def test_by_the_clock_rows_are_pairs_that_come_within_the_interval() -> None:
    driven = join(JoinType.LEFT, (-5, 5), is_event_time=False)
    driven.send(0, row(1, 0))
    driven.harness.advance_processing_time(5)
    assert driven.send(1, row(1, 0, "x")) == [pair(row(1, 0), row(1, 0, "x"))]
    driven.send(0, row(2, 0))
    driven.harness.advance_processing_time(6)
    assert driven.send(1, row(2, 0, "x")) == [pair(row(2, 0), None)]
    assert driven.harness.watermarks == []


def test_by_the_clock_rows_that_wait_leave_by_timers() -> None:
    driven = join(JoinType.LEFT, (-5, 5), is_event_time=False)
    driven.send(0, row(1, 0))
    driven = driven.restored()
    driven.harness.advance_processing_time(100)
    assert driven.taken() == [pair(row(1, 0), None)]
    assert driven.harness.operator.next_timer_ms() is None


# --- against a nested loop --------------------------------------------------------------------------------------------

ROWS = st.tuples(st.integers(0, 1), st.sampled_from([None, 1, 2]), st.integers(0, 15), st.sampled_from("ab"))
BOUNDS = st.tuples(st.integers(-12, 12), st.integers(0, 20)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.lists(ROWS, max_size=6), st.integers(0, 15), st.booleans()), max_size=8),
    BOUNDS,
    st.sampled_from([JoinType.INNER, JoinType.LEFT, JoinType.RIGHT, JoinType.FULL]),
    st.booleans(),
)
def test_rows_that_are_not_late_meet_all_their_matches(
    steps: list[Any], bounds: tuple[int, int], join_type: JoinType, differs: bool
) -> None:
    driven = join(join_type, bounds, DIFFERS if differs else None)
    sides: tuple[list[Change], list[Change]] = ([], [])
    sent: list[Change] = []
    watermark = 0
    for rows, advance, restores in steps:
        for side in (0, 1):
            batch = [row(key, watermark + 1 + ahead, text) for of, key, ahead, text in rows if of == side]
            sides[side].extend(batch)
            sent += driven.send(side, *batch) if batch else []
        watermark += advance
        if restores:
            driven = driven.restored()
        driven.harness.watermark(watermark)
        sent += driven.taken()
    driven.harness.end()
    sent += driven.taken()
    lower, upper = bounds

    def match(left: Change, right: Change) -> bool:
        is_near = lower <= (left[2] - right[2]) // MS <= upper
        return is_near and left[1] is not None and left[1] == right[1] and not (differs and left[3] == right[3])

    pairs = [(left, right) for left in sides[0] for right in sides[1] if match(left, right)]
    expected = Counter(pair(*one) for one in pairs)
    if join_type.keeps_left:
        expected.update(pair(one, None) for one in sides[0] if not any(match(one, other) for other in sides[1]))
    if join_type.keeps_right:
        expected.update(pair(None, one) for one in sides[1] if not any(match(other, one) for other in sides[0]))
    assert Counter(sent) == expected


# --- conditions -------------------------------------------------------------------------------------------------------

TABLES = (
    "CREATE TABLE a (id INT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts)",
    "CREATE TABLE b (id INT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts)",
    "CREATE TABLE z (id INT, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts)",
)


def joins_in(node: Node) -> list[Join]:
    if isinstance(node, Filter) and isinstance(node.input, Join):
        return [settled(node.input, node.condition, CALLS)[0]]
    found = [settled(node, TRUE, CALLS)[0]] if isinstance(node, Join) else []
    return found + [one for inner in node.inputs() for one in joins_in(inner)]


def join_of(condition: str, kind: str = "JOIN", right: str = "b") -> Join:
    sql = f"SELECT a.id FROM a {kind} {right} b ON a.id = b.id AND {condition}"
    return joins_in(plan_query(sql, manager_of(*TABLES)))[0]


@pytest.mark.parametrize(
    ("condition", "bounds"),
    [
        ("a.ts BETWEEN b.ts - INTERVAL '5' SECOND AND b.ts + INTERVAL '1' MINUTE", (-5000, 60000)),
        ("a.ts > b.ts - INTERVAL '5' SECOND AND b.ts + INTERVAL '1' MINUTE > a.ts", (-4999, 59999)),
        ("b.ts <= a.ts AND a.ts - INTERVAL '1' SECOND <= b.ts", (0, 1000)),
        ("a.ts = b.ts", (0, 0)),
        ("a.p >= b.p AND a.p < b.p + INTERVAL '2' SECOND AND a.ts IS NOT NULL", (0, 1999)),
    ],
)
def test_two_comparisons_of_times_are_an_interval(condition: str, bounds: tuple[int, int]) -> None:
    found = find_interval(join_of(condition))
    assert found is not None
    assert (found[0].lower, found[0].upper) == bounds
    assert found[0].is_event_time == ("a.p" not in condition)


@pytest.mark.parametrize(
    "condition",
    [
        "a.ts > b.ts",
        "a.ts = b.ts + INTERVAL '1' SECOND",
        "a.ts > b.ts AND a.ts > b.ts - INTERVAL '5' SECOND",
        "a.ts > b.ts AND a.ts < TIMESTAMP '2020-01-01 00:00:00'",
        "a.ts > CAST(b.ts AS TIMESTAMP(3)) AND a.ts < b.ts + INTERVAL '1' SECOND",
        "a.p > b.p AND a.ts < b.ts + INTERVAL '1' SECOND",
    ],
)
def test_other_conditions_on_times_are_none(condition: str) -> None:
    assert find_interval(join_of(condition)) is None


def test_the_interval_may_be_asked_above_the_join() -> None:
    sql = "SELECT a.id FROM a, b WHERE a.id = b.id AND a.ts BETWEEN b.ts AND b.ts + INTERVAL '1' HOUR"
    assert find_interval(joins_in(plan_query(sql, manager_of(*TABLES)))[0]) is not None


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN", "FULL JOIN"])
def test_interval_joins_only_send_inserts(kind: str) -> None:
    assert changes(join_of("a.ts = b.ts", kind), lambda node: INSERTS) == INSERTS


def test_interval_joins_take_only_inserts() -> None:
    node = join_of("a.ts = b.ts")
    with pytest.raises(ValidationError, match="IntervalJoin doesn't support consuming update and delete changes"):
        planned(node, ["c0"], StreamSession(), CALLS, lambda node: ALL)


def test_event_times_of_an_interval_have_one_type() -> None:
    sql = "SELECT a.id FROM a JOIN z ON a.id = z.id AND a.p <= z.ts AND a.p >= z.ts"
    assert find_interval(joins_in(plan_query(sql, manager_of(*TABLES)))[0]) is None
