"""Joins of the rows of two tables that are in the same window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.state.rocks import CanonicalRocks
from tests.table.running import run
from tests.table.streaming.joined import CALLS, Driven
from tests.table.streaming.windowed import Timed

from penstock.base.errors import UnsupportedError
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.records import MAX_WATERMARK
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import IntType, TimestampType, VarCharType
from penstock.sql.logical.nodes import JoinType
from penstock.sql.stream.joins import window as column_window_join_operator
from penstock.sql.stream.joins import window as window_join_operator
from penstock.sql.stream.joins.window import ColumnWindowJoinOperator, WindowJoining, WindowJoinOperator
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.typed import Field
from penstock.state.keys import assign_key_group
from penstock.testing import operator_harness

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


Kind = Callable[[WindowJoining], StreamOperator]
DIFFERS = CALLS.call("<>", [Field(IntType(), 1), Field(IntType(), 5)])


def by_row(joining: WindowJoining) -> StreamOperator:
    return WindowJoinOperator(joining)


def by_columns(joining: WindowJoining) -> StreamOperator:
    return ColumnWindowJoinOperator(joining, [joining.types[0][place] for place in joining.keys[0]])


FORMS = pytest.mark.parametrize("form", [by_row, by_columns])


def joined(
    form: Kind, kind: JoinType = JoinType.FULL, keys: tuple[int, ...] = (0,), nulls_match: bool = False, **more: Any
) -> Driven:
    """A join by some of the first columns, of rows (k, v, start, end)."""
    is_half = kind in (JoinType.SEMI, JoinType.ANTI)
    output = ROW if is_half else (*ROW, *ROW)
    names = tuple(f"c{place}" for place in range(len(output)))
    matches, edges = (nulls_match,) * len(keys), ((2, 3), (2, 3))
    joining = WindowJoining(
        kind, (keys, keys), matches, more.get("condition"), (ROW, ROW), names, StreamSession(), edges
    )
    return Driven(partial(form, joining), (ROW, ROW), output)


def row(k: str | None, v: int, start: int = 0, size: int = 10) -> tuple[Any, ...]:
    """A row of a window of 10 ms."""
    return ("+I", k, v, start * NS, (start + size) * NS)


@FORMS
def test_a_row_whose_window_is_over_is_late_on_either_side(form: Kind) -> None:
    join = joined(form)
    join.harness.operator.process_watermark(9)
    assert join.send(0, row("a", 1), row("a", 2, 10)) == []
    assert join.send(1, row("a", 3)) == []
    assert join.harness.context.counters[LATE_RECORDS] == 2
    join.harness.operator.process_watermark(MAX_WATERMARK)
    assert [change[2] for change in join.taken()] == [2]


@FORMS
@pytest.mark.parametrize("kind", [JoinType.INNER, JoinType.FULL])
def test_windows_fire_in_the_order_of_time_after_a_recovery(form: Kind, kind: JoinType) -> None:
    join = joined(form, kind)
    join.send(0, row("a", 1, 10), row("a", 2))
    join.send(1, row("a", 3))
    join = join.restored()
    join.send(1, row("a", 4, 10))
    join.harness.operator.process_watermark(19)
    assert [(change[2], change[6]) for change in join.taken()] == [(2, 3), (1, 4)]
    join.harness.operator.process_watermark(MAX_WATERMARK)
    assert join.taken() == []


@FORMS
def test_rows_without_a_match_come_in_the_order_of_time_too(form: Kind) -> None:
    join = joined(form)
    join.send(0, row("a", 1, 10), row("a", 2), row("b", 5, 20))
    join.send(1, row("a", 3, 10), row("b", 4))
    join.harness.operator.process_watermark(MAX_WATERMARK)
    numbers = [(change[2], change[6]) for change in join.taken()]
    assert set(numbers[:2]) == {(2, None), (None, 4)}
    assert numbers[2:] == [(1, 3), (5, None)]


SENT = st.lists(
    st.tuples(
        st.sampled_from((0, 1)),
        st.tuples(st.sampled_from(("a", "b", "c", None)), st.integers(0, 2)),
        st.sampled_from([(0, 10), (5, 5), (10, 10), (0, 20), (20, 10)]),
    ),
    max_size=16,
)
KEYS: list[tuple[int, ...]] = [(), (0,), (1,), (0, 1)]


@given(
    sent=SENT,
    kind=st.sampled_from(list(JoinType)),
    keys=st.sampled_from(KEYS),
    nulls_match=st.booleans(),
    differs=st.booleans(),
    pairs_max=st.sampled_from([1, 3, 1 << 18]),
    data=st.data(),
)
def test_columns_give_what_rows_give(
    sent: list[Any],
    kind: JoinType,
    keys: tuple[int, ...],
    nulls_match: bool,
    differs: bool,
    pairs_max: int,
    data: st.DataObject,
) -> None:
    """Late rows included, and whichever of the two goes on from what the other one has left (H4)."""
    condition = DIFFERS if differs else None
    wanted = joined(by_row, kind, keys, nulls_match, condition=condition)
    found = joined(by_columns, kind, keys, nulls_match, condition=condition)
    watermark = checkpoint = 0

    def look(at: int) -> None:
        for driven in (wanted, found):
            driven.harness.operator.process_watermark(at)
        assert Counter(found.taken()) == Counter(wanted.taken())

    with mock.patch.object(column_window_join_operator, "_PAIRS_MAX", pairs_max):
        while sent:
            size = data.draw(st.integers(1, 5))
            for side in (0, 1):
                rows = [row(*values, *window) for of_side, values, window in sent[:size] if of_side == side]
                for driven in (wanted, found) if rows else ():
                    driven.send(side, *rows)
            sent = sent[size:]
            late = [driven.harness.context.counters.get(LATE_RECORDS, 0) for driven in (wanted, found)]
            assert late[0] == late[1]
            match data.draw(st.sampled_from(["nothing", "time", "restored", "in the other form"])):
                case "time":
                    watermark += data.draw(st.integers(0, 12))
                    look(watermark)
                case "restored" | "in the other form" as what:
                    checkpoint += 1
                    other = by_row if what == "in the other form" else by_columns
                    taken = joined(other, kind, keys, nulls_match, condition=condition)
                    taken = Driven(*taken._arguments, found.harness.snapshot(checkpoint))
                    if other is by_row:
                        taken.harness.snapshot(100 + checkpoint)
                        taken.harness.notify_complete(100 + checkpoint)
                        back = joined(by_columns, kind, keys, nulls_match, condition=condition)
                        taken = Driven(*back._arguments, taken.harness.snapshot(200 + checkpoint))
                    found, wanted = taken, wanted.restored(checkpoint)
        look(MAX_WATERMARK)


def test_many_small_batches_and_windows_that_a_part_shares() -> None:
    join = joined(by_columns, JoinType.INNER)
    for number in range(200):
        join.send(number % 2, row("a", number, number // 20 * 10), row("b", number, 1000))
    for end in range(10, 110, 10):
        join.harness.operator.process_watermark(end - 1)
        assert len(join.taken()) == 100, end
    join.harness.operator.process_watermark(MAX_WATERMARK)
    assert len(join.taken()) == 10_000


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
@FORMS
def test_rows_go_to_the_subtasks_of_their_keys(form: Kind, before: int, after: int) -> None:
    """D4: at another parallelism."""
    driven = joined(form)
    drivens = [Driven(*driven._arguments, parallelism=before, subtask=index) for index in range(before)]
    keys = [f"k{number}" for number in range(20)]
    for place, key in enumerate(keys):
        drivens[assign_key_group(key, 128) * before // 128].send(place % 2, row(key, place))
    snapshots = [one.harness.snapshot(1) for one in drivens]
    seen = []
    for index in range(after):
        other = by_columns if form is by_row else by_row
        one = Driven(*joined(other)._arguments, *snapshots, parallelism=after, subtask=index)
        one.harness.operator.process_watermark(MAX_WATERMARK)
        found = [change[1] or change[5] for change in one.taken()]
        assert all(assign_key_group(key, 128) * after // 128 == index for key in found)
        seen += found
    assert sorted(seen) == sorted(keys)


@pytest.mark.parametrize("keys", KEYS)
def test_rows_of_columns_go_on_in_rocksdb(keys: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_join_operator, "_ROWS_AT_ONCE", 3)
    wanted, driven = joined(by_row, keys=keys), joined(by_columns, keys=keys)
    for number in range(12):
        for one in (wanted, driven):
            one.send(number % 2, row("abc"[number % 3], number // 4, number % 4 * 10), row(None, number, 100))
    snapshot = driven.harness.snapshot(1)
    monkeypatch.setattr(operator_harness, "HeapKeyedStateBackend", CanonicalRocks)
    driven = Driven(*joined(by_row, keys=keys)._arguments, snapshot).restored(2)
    for time in (9, 19, MAX_WATERMARK):
        for one in (wanted, driven):
            one.harness.operator.process_watermark(time)
        assert Counter(driven.taken()) == Counter(wanted.taken())
