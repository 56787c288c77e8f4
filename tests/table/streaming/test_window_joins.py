"""Joins of the rows of two tables that are in the same window."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest
from tests.table.running import run
from tests.table.streaming.joined import Driven
from tests.table.streaming.windowed import Timed

from penstock.base.errors import UnsupportedError
from penstock.core.operators.watermarks import LATE_RECORDS
from penstock.core.records import MAX_WATERMARK
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import IntType, TimestampType, VarCharType
from penstock.table.plan.logical import JoinType
from penstock.table.streaming.joins.window_join_operator import WindowJoinOperator
from penstock.table.streaming.rows.sessions import StreamSession

S = 1_000
NS = 1_000_000
ROW = (VarCharType(10), IntType(), TimestampType(3), TimestampType(3))
WINDOW = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
LEFT, RIGHT = WINDOW.format("t"), WINDOW.format("s")
SAME = "l.window_start = r.window_start AND l.window_end = r.window_end"
T = Timed(("a", 1, 0), ("b", 2, 1 * S), (None, 3, 2 * S), ("a", 4, 11 * S))
S_ROWS = Timed(("a", 10, 3 * S), ("a", 0, 4 * S), (None, 30, 2 * S), ("c", 5, 12 * S))


def pairs(kind: str, more: str = " AND l.k = r.k") -> list[tuple[Any, ...]]:
    """What a join gives of the keys and numbers of both sides. Rows only come."""
    sql = f"SELECT l.k, l.v, r.k, r.v FROM (SELECT * FROM {LEFT}) l {kind} (SELECT * FROM {RIGHT}) r ON {SAME}{more}"
    answer = run(sql, t=T, s=S_ROWS)
    assert all(change[0] == "+I" for change in answer.shown())
    return answer.rows()


BOTH = [("a", 1, "a", 10), ("a", 1, "a", 0)]
ONLY_LEFT = [("b", 2, None, None), (None, 3, None, None), ("a", 4, None, None)]
ONLY_RIGHT = [(None, None, None, 30), (None, None, "c", 5)]


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("JOIN", BOTH),
        ("LEFT JOIN", BOTH + ONLY_LEFT),
        ("RIGHT JOIN", BOTH + ONLY_RIGHT),
        ("FULL JOIN", BOTH + ONLY_LEFT + ONLY_RIGHT),
    ],
)
def test_rows_of_a_window_are_joined_when_it_is_over(kind: str, wanted: list[tuple[Any, ...]]) -> None:
    assert Counter(pairs(kind)) == Counter(wanted)


def test_what_else_has_to_be_true_of_pairs() -> None:
    assert Counter(pairs("LEFT JOIN", " AND l.k = r.k AND l.v < r.v")) == Counter([BOTH[0], *ONLY_LEFT])


def test_a_window_alone_pairs_all_its_rows() -> None:
    assert len(pairs("JOIN", "")) == 3 * 3 + 1


def test_null_matches_null_where_the_condition_says_so() -> None:
    wanted = [*BOTH, (None, 3, None, 30)]
    assert Counter(pairs("JOIN", " AND l.k IS NOT DISTINCT FROM r.k")) == Counter(wanted)


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (f"l.k IN (SELECT k FROM {RIGHT} r WHERE {SAME})", [("a", 1)]),
        (f"EXISTS (SELECT * FROM {RIGHT} r WHERE {SAME} AND l.k = r.k)", [("a", 1)]),
        (f"NOT EXISTS (SELECT * FROM {RIGHT} r WHERE {SAME} AND l.k = r.k)", [("b", 2), (None, 3), ("a", 4)]),
    ],
)
def test_rows_with_and_without_a_match_in_their_window(condition: str, wanted: list[tuple[Any, ...]]) -> None:
    answer = run(f"SELECT k, v FROM (SELECT * FROM {LEFT}) l WHERE {condition}", t=T, s=S_ROWS)
    assert Counter(answer.shown()) == Counter(("+I", *row) for row in wanted)


def test_windows_of_joined_rows_are_windows_still() -> None:
    sql = (
        f"SELECT l.window_end, SUM(r.v) FROM (SELECT * FROM {LEFT}) l JOIN (SELECT * FROM {RIGHT}) r "
        f"ON {SAME} AND l.k = r.k GROUP BY l.window_start, l.window_end"
    )
    assert run(sql, t=T, s=S_ROWS).shown() == [("+I", 10 * S * NS, 10)]


def test_a_join_of_other_windows_is_a_regular_one() -> None:
    other = "TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '5' SECOND))"
    sql = f"SELECT l.k FROM (SELECT * FROM {LEFT}) l LEFT JOIN (SELECT * FROM {other}) r ON {SAME} AND l.k = r.k"
    answer = run(sql, t=Timed(("a", 1, 0)), s=Timed(("a", 1, 6 * S)))
    assert answer.rows() == [("a",)]


def test_edges_of_other_windows_are_columns_like_any_other() -> None:
    fine = "SELECT k, v, ts, window_end AS fine FROM TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '{}' SECOND))"
    sides = [
        f"SELECT * FROM TABLE(TUMBLE(({fine.format(name, size)}), DESCRIPTOR(ts), INTERVAL '10' SECOND))"
        for name, size in (("t", 2), ("s", 1))
    ]
    sql = f"SELECT l.v, r.v FROM ({sides[0]}) l JOIN ({sides[1]}) r ON {SAME} AND l.fine = r.fine"
    assert run(sql, t=T, s=S_ROWS).rows() == [(3, 10)]


def test_rows_that_change_are_refused() -> None:
    sql = f"SELECT l.k FROM (SELECT * FROM {LEFT}) l JOIN (SELECT * FROM {RIGHT}) r ON {SAME}"
    with pytest.raises(ValidationError, match="WindowJoin doesn't support consuming update and delete changes"):
        run(sql, t=Timed(("a", 1, 0), ("-D", "a", 1, 0)), s=Timed())


def test_windows_of_processing_time_are_refused() -> None:
    by_clock = [WINDOW.format(name).replace("(ts)", "(p)") for name in ("t", "s")]
    sql = f"SELECT l.k FROM (SELECT * FROM {by_clock[0]}) l JOIN (SELECT * FROM {by_clock[1]}) r ON {SAME}"
    with pytest.raises(UnsupportedError, match="Processing time Window Join is not supported"):
        run(sql, t=Timed(), s=Timed())


# --- the operator -----------------------------------------------------------------------------------------------------


def joined(kind: JoinType = JoinType.FULL) -> Driven:
    """A join by the first column, of rows (k, v, start, end)."""
    names = [f"c{place}" for place in range(8)]
    operator = partial(
        WindowJoinOperator,
        kind,
        ((0,), (0,)),
        (False,),
        None,
        (ROW, ROW),
        names,
        StreamSession(),
        ((2, 3), (2, 3)),
        False,
    )
    return Driven(operator, (ROW, ROW), (*ROW, *ROW))


def row(k: str, v: int, start: int = 0) -> tuple[Any, ...]:
    """A row of a window of 10 ms."""
    return ("+I", k, v, start * NS, (start + 10) * NS)


def test_a_row_whose_window_is_over_is_late_on_either_side() -> None:
    join = joined()
    join.harness.operator.process_watermark(9)
    assert join.send(0, row("a", 1), row("a", 2, 10)) == []
    assert join.send(1, row("a", 3)) == []
    assert join.harness.context.counters[LATE_RECORDS] == 2
    join.harness.operator.process_watermark(MAX_WATERMARK)
    assert [change[2] for change in join.taken()] == [2]


def test_windows_fire_in_the_order_of_time_after_a_recovery() -> None:
    join = joined()
    join.send(0, row("a", 1, 10), row("a", 2))
    join.send(1, row("a", 3))
    join = join.restored()
    join.send(1, row("a", 4, 10))
    join.harness.operator.process_watermark(19)
    assert [(change[2], change[6]) for change in join.taken()] == [(2, 3), (1, 4)]
    join.harness.operator.process_watermark(MAX_WATERMARK)
    assert join.taken() == []
