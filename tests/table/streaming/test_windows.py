"""A4: windows of tables: which rows they have, when they give their result, and what a recovery keeps."""

from __future__ import annotations

from collections import Counter
from typing import Any
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.table.running import run
from tests.table.streaming.windowed import CALLS, VALUES, ByRow, Timed, in_columns, session_table

from penstock.base.errors import UnsupportedError
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.sql.data.errors import ValidationError
from penstock.sql.stream.windows.session_table import SESSIONS
from penstock.sql.stream.windows.window_aggregate import WindowEnds

S = 1_000
TABLES = {
    "TUMBLE": "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '1' SECOND)",
    "HOP": "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '6' SECOND)",
    "CUMULATE": "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '6' SECOND)",
    "SESSION": "SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '3' SECOND)",
}
TWO_SECONDS = "DESCRIPTOR(ts), INTERVAL '2' SECOND"
WINDOWS = "SELECT k, window_start, window_end, {} FROM TABLE({}) GROUP BY k, window_start, window_end"


def seconds(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows with points in time, which are ns, in seconds."""
    return [tuple(one // 10**9 if isinstance(one, int) and one >= 10**8 else one for one in row) for row in rows]


def compute_windows(kind: str, times: list[int]) -> list[tuple[int, int, list[int]]]:
    """Windows of these times (s), each with the places of the times in it."""
    if kind == "SESSION":
        found: list[list[int]] = []
        for place in sorted(range(len(times)), key=lambda one: times[one]):
            if found and times[place] <= times[found[-1][-1]] + 3:
                found[-1].append(place)
            else:
                found.append([place])
        return [(times[one[0]], times[one[-1]] + 3, one) for one in found]
    spans = {
        "TUMBLE": [(start, start + 4) for start in range(-3, 60, 4)],
        "HOP": [(start, start + 6) for start in range(-6, 60, 2)],
        "CUMULATE": [(start, start + size) for start in range(0, 60, 6) for size in (2, 4, 6)],
    }[kind]
    inside = [(start, end, [i for i, time in enumerate(times) if start <= time < end]) for start, end in spans]
    return [one for one in inside if one[2]]


@pytest.mark.parametrize("kind", list(TABLES))
@pytest.mark.parametrize("more", ["", ", LISTAGG(CAST(v AS STRING))"], ids=["by kernel", "by row"])
@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["a", "b"]), st.one_of(st.none(), st.integers(0, 3)), st.integers(0, 30)), max_size=12
    )
)
@settings(max_examples=8, deadline=None)
def test_each_row_counts_in_all_its_windows(kind: str, more: str, rows: list[tuple[Any, ...]]) -> None:
    calls = "COUNT(*), COUNT(v), SUM(v), MIN(v), AVG(v), COUNT(DISTINCT v), COUNT(*) FILTER (WHERE v > 1)"
    answer = run(WINDOWS.format(calls + more, TABLES[kind]), t=Timed(*((k, v, ts * S) for k, v, ts in rows), delay=60))
    wanted = []
    for key in ("a", "b"):
        mine = [(v, ts) for k, v, ts in rows if k == key]
        for start, end, places in compute_windows(kind, [ts for _, ts in mine]):
            values = [mine[place][0] for place in places]
            known = [value for value in values if value is not None]
            total = sum(known) if known else None
            mean = None if not known else sum(known) // len(known)
            above = sum(value > 1 for value in known)
            least = min(known, default=None)
            wanted.append((key, start, end, len(values), len(known), total, least, mean, len(set(known)), above))
    found = [(row[0], *((one // 10**9) for one in row[1:3]), *row[3:10]) for row in answer.rows()]
    assert Counter(found) == Counter(wanted)
    assert all(change[0] == "+I" for change in answer.shown())


# --- when windows are over --------------------------------------------------------------------------------------------


def test_a_window_gives_its_result_when_the_watermark_has_passed_it() -> None:
    windows = in_columns("TUMBLE", (5,))
    windows.rows(("a", 1, 1), ("a", 2, 4), ("b", 3, 6))
    windows.watermark(3)
    assert windows.take() == []
    windows.watermark(4)
    assert windows.take() == [("+I", "a", 0, 5, 2, 3)]
    windows.rows(("a", 9, 4), ("b", 4, 9))
    windows.watermark(9)
    assert windows.take() == [("+I", "b", 5, 10, 2, 7)]
    assert windows.harnesses[0].counters[LATE_RECORDS] == 1


def test_a_row_that_is_late_for_one_window_counts_in_the_next() -> None:
    windows = in_columns("HOP", (5, 10), *CALLS, VALUES)
    windows.rows(("a", 1, 1))
    windows.watermark(4)
    assert windows.take() == [("+I", "a", -5, 5, 1, 1, 1)]
    windows.rows(("a", 1, 2))
    windows.watermark(20)
    assert windows.take() == [("+I", "a", 0, 10, 2, 2, 1)]
    assert LATE_RECORDS not in windows.harnesses[0].counters


@pytest.mark.parametrize("parallelism", [1, 2])
def test_values_of_windows_survive_a_recovery(parallelism: int) -> None:
    windows = in_columns("CUMULATE", (5, 10), *CALLS, VALUES)
    windows.rows(("a", 1, 1), ("a", 2, 2), ("b", 7, 6))
    windows.watermark(4)
    assert windows.take() == [("+I", "a", 0, 5, 2, 3, 2)]
    windows.recover(parallelism)
    windows.rows(("a", 2, 7))
    windows.watermark(9)
    assert sorted(windows.take()) == [("+I", "a", 0, 10, 3, 5, 2), ("+I", "b", 0, 10, 1, 7, 1)]


@pytest.mark.parametrize("kind", ["TUMBLE", "SESSION"])
def test_rows_of_windows_that_fired_are_late_after_a_restore_too(kind: str) -> None:
    windows = in_columns(kind, (5,))
    windows.rows(("a", 1, 1))
    windows.watermark(9)
    windows.take()
    windows.recover(2, knows_time=False)
    windows.watermark(0)
    windows.rows(("a", 9, 1), ("b", 2, 7))
    windows.watermark(12)
    assert [row[1] for row in windows.take()] == (["b"] if kind == "SESSION" else [])


def test_rows_of_windows_by_row_are_late_after_a_restore() -> None:
    windows = ByRow(10, is_processing=False)
    windows.watermark(9)
    windows.windows.recover(knows_time=False)
    windows.table.rows(("a", 9, 1))
    windows.watermark(9)
    assert windows.windows.take() == []


def test_a_row_puts_sessions_together() -> None:
    windows = in_columns("SESSION", (5,))
    windows.rows(("a", 1, 0), ("a", 2, 9), ("b", 3, 0))
    windows.recover(2)
    windows.rows(("a", 4, 5))
    windows.watermark(8)
    assert windows.take() == [("+I", "b", 0, 5, 1, 3)]
    windows.watermark(14)
    assert windows.take() == [("+I", "a", 0, 14, 3, 7)]


# --- session tables ---------------------------------------------------------------------------------------------------


def test_rows_of_a_session_come_when_it_is_over() -> None:
    sessions = session_table(5)
    sessions.rows(("a", 1, 9), ("a", 2, 0), ("b", 3, 1))
    sessions.recover(2)
    sessions.rows(("a", 4, 5))
    sessions.watermark(6)
    assert sessions.take() == [("+I", "b", 3, 1, 1, 6, 5)]
    sessions.watermark(14)
    edges = (0, 14, 13)
    taken = sessions.take()
    assert sorted(taken) == [("+I", "a", 1, 9, *edges), ("+I", "a", 2, 0, *edges), ("+I", "a", 4, 5, *edges)]


def test_a_row_without_an_open_session_is_late() -> None:
    sessions = session_table(5)
    sessions.rows(("a", 1, 10))
    sessions.watermark(12)
    sessions.rows(("a", 2, 6), ("a", 3, 0))
    sessions.watermark(20)
    assert [row[2] for row in sessions.take()] == [1, 2]
    assert sessions.harnesses[0].counters[LATE_RECORDS] == 1


def test_a_session_splits_when_its_bridge_is_retracted() -> None:
    """K1: the sessions are those of the rows that are left. Flink's stay in one piece."""
    changes = [("a", 1, 0), ("a", 2, 2 * S), ("a", 4, 4 * S), ("-D", "a", 2, 2 * S), ("b", 1, 0), ("-D", "b", 1, 0)]
    rows = Timed(*changes, delay=9)
    answer = run(WINDOWS.format("COUNT(*), SUM(v)", TABLES["SESSION"]), t=rows)
    assert seconds(answer.rows()) == [("a", 0, 3, 1, 1), ("a", 4, 7, 1, 4)]


def test_a_retraction_shortens_its_session() -> None:
    sessions = session_table(5)
    sessions.rows(("a", 1, 0), ("a", 2, 4), ("a", 3, 8))
    sessions.recover(2)
    sessions.rows(("-D", "a", 3, 8), ("-U", "a", 1, 0), ("+U", "a", 9, 1))
    sessions.watermark(9)
    assert sessions.take() == [("+I", "a", 2, 4, 1, 9, 8), ("+I", "a", 9, 1, 1, 9, 8)]


def test_a_retraction_may_come_before_its_row() -> None:
    """It holds no session together, and is dropped when its row does not come in time."""
    sessions = session_table(5)
    sessions.rows(("-D", "a", 2, 4), ("a", 1, 0), ("a", 3, 8), ("-D", "b", 1, 0))
    sessions.recover(2)
    sessions.rows(("a", 2, 4))
    sessions.watermark(30)
    assert sorted(sessions.take()) == [("+I", "a", 1, 0, 0, 5, 4), ("+I", "a", 3, 8, 8, 13, 12)]
    assert not sessions.harnesses[0].context.keyed.table(SESSIONS).entries(None)
    assert LATE_RECORDS not in sessions.harnesses[0].counters


def test_a_part_that_the_watermark_has_passed_stays_with_the_next_one() -> None:
    """It could only come late."""
    sessions = session_table(5)
    sessions.rows(("a", 1, 0), ("a", 2, 4), ("a", 3, 8), ("a", 4, 12), ("a", 5, 16))
    sessions.watermark(6)
    sessions.rows(("-D", "a", 2, 4), ("-D", "a", 4, 12))
    sessions.watermark(13)
    assert sorted(sessions.take()) == [("+I", "a", 1, 0, 0, 13, 12), ("+I", "a", 3, 8, 0, 13, 12)]
    sessions.watermark(21)
    assert sessions.take() == [("+I", "a", 5, 16, 16, 21, 20)]


def test_the_rest_of_a_session_comes_in_time_when_its_last_row_is_retracted() -> None:
    sessions = session_table(5)
    sessions.rows(("a", 1, 0), ("a", 2, 4))
    sessions.watermark(6)
    sessions.rows(("-D", "a", 2, 4), ("-D", "a", 9, 0))
    sessions.watermark(9)
    assert sessions.take() == [("+I", "a", 1, 0, 0, 9, 8)]
    assert sessions.harnesses[0].counters[LATE_RECORDS] == 1


sessions_of_rows = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 40)), max_size=12)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(sessions_of_rows, st.data())
def test_sessions_of_changes_are_those_of_the_rows_that_are_left(rows: list[Any], data: st.DataObject) -> None:
    left, changes = list(rows), list(rows)
    for _ in range(data.draw(st.integers(0, len(rows)))):
        row = data.draw(st.sampled_from(left))
        left.remove(row)
        changes.insert(data.draw(st.integers(0, len(changes))), ("-D", *row))
    sessions, wanted = session_table(5), session_table(5)
    sessions.rows(*changes)
    wanted.rows(*left)
    for each in (sessions, wanted):
        each.watermark(100)
    assert sorted(sessions.take()) == sorted(wanted.take())


def test_sessions_of_all_rows_are_groups_that_change() -> None:
    sql = "SELECT k, COUNT(*) FROM TABLE(SESSION(TABLE t, DESCRIPTOR(ts), INTERVAL '3' SECOND))"
    rows = Timed(("a", 1, 0), ("b", 1, 2 * S), ("a", 1, 4 * S), ("a", 1, 20 * S))
    answer = run(f"{sql} GROUP BY k, window_start, window_end", t=rows)
    assert Counter(answer.shown()) == Counter(
        [("+I", "a", 1), ("-U", "a", 1), ("+U", "a", 2), ("+I", "b", 1), ("+I", "a", 1)]
    )


def test_rows_that_a_filter_leaves_out_hold_a_session_together_but_not_for_an_aggregate() -> None:
    sql = f"SELECT k, window_end, SUM(v) FROM TABLE({TABLES['SESSION']}) WHERE v <> 2 AND k <> 'b' "
    rows = Timed(("a", 1, 0), ("a", 2, 2 * S), ("a", 3, 4 * S), ("b", 5, 0))
    answer = run(f"{sql} GROUP BY k, window_start, window_end", t=rows)
    assert seconds(answer.rows()) == [("a", 3, 1), ("a", 7, 3)]
    answer = run(f"SELECT v, window_end FROM TABLE({TABLES['SESSION']}) WHERE v <> 2 AND k = 'a'", t=rows)
    assert seconds(answer.rows()) == [(1, 7), (3, 7)]


def test_sessions_in_group_by_are_of_what_else_rows_are_grouped_by() -> None:
    sql = (
        "SELECT k, SESSION_START(ts, INTERVAL '3' SECOND), SESSION_END(ts, INTERVAL '3' SECOND), SUM(v) FROM t "
        "GROUP BY SESSION(ts, INTERVAL '3' SECOND), k"
    )
    answer = run(sql, t=Timed(("a", 1, 0), ("b", 5, 1 * S), ("a", 2, 2 * S), ("a", 3, 9 * S)))
    assert sorted(seconds(answer.rows())) == [("a", 0, 5, 3), ("a", 9, 12, 3), ("b", 1, 4, 5)]
    assert all(change[0] == "+I" for change in answer.shown())


def test_sessions_in_group_by_are_apart_by_what_is_computed_too() -> None:
    sql = "SELECT v / 2, COUNT(*) FROM t GROUP BY SESSION(ts, INTERVAL '3' SECOND), v / 2"
    answer = run(sql, t=Timed(("a", 2, 0), ("a", 4, 1 * S), ("a", 3, 2 * S), ("a", 5, 4 * S)))
    assert answer.names == ["EXPR$0", "EXPR$1"]
    assert sorted(answer.rows()) == [(1, 2), (2, 2)]


def test_times_of_windows_in_group_by_have_no_names_of_their_own() -> None:
    ends = "TUMBLE_START(ts, INTERVAL '1' SECOND), TUMBLE_END(ts, INTERVAL '1' SECOND) AS e"
    answer = run(f"SELECT k, {ends} FROM t GROUP BY k, TUMBLE(ts, INTERVAL '1' SECOND)", t=Timed())
    assert answer.names == ["k", "EXPR$1", "e"]


def test_the_time_of_a_window_in_group_by_has_windows_again() -> None:
    inner = (
        "SELECT TUMBLE_ROWTIME(ts, INTERVAL '2' SECOND) AS at_time, v FROM t "
        "GROUP BY v, TUMBLE(ts, INTERVAL '2' SECOND)"
    )
    sql = f"SELECT SUM(v) FROM ({inner}) GROUP BY TUMBLE(at_time, INTERVAL '4' SECOND)"
    assert run(sql, t=Timed(("a", 1, 0), ("a", 1, 1 * S), ("a", 2, 3 * S), ("a", 4, 5 * S))).rows() == [(3,), (4,)]


@pytest.mark.parametrize("kind", ["TUMBLE", "HOP", "CUMULATE", "SESSION"])
def test_aggregates_may_be_of_the_times_of_windows(kind: str) -> None:
    sql = WINDOWS.format("MIN(window_time), MAX(ts)", TABLES[kind])
    for _, _, end, time, latest in seconds(run(sql, t=Timed(("a", 1, 0), ("a", 2, 5 * S))).rows()):
        assert latest <= time < end <= time + 1


def test_distinct_windows_come_when_they_are_over() -> None:
    sql = f"SELECT DISTINCT window_start, window_end, k FROM TABLE({TABLES['TUMBLE']})"
    answer = run(sql, t=Timed(("a", 1, 1 * S), ("a", 2, 2 * S), ("b", 1, 6 * S), ("c", 9, 0)))
    assert seconds(answer.rows()) == [(1, 5, "a"), (5, 9, "b")]


def test_a_window_table_takes_a_query_in_parentheses() -> None:
    sql = "SELECT v FROM TABLE(TUMBLE((SELECT * FROM t WHERE v > 1), DESCRIPTOR(ts), INTERVAL '1' SECOND))"
    assert run(sql, t=Timed(("a", 1, 0), ("a", 2, 0))).rows() == [(2,)]


# --- processing time --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "sizes"), [("TUMBLE", (10,)), ("SESSION", (10,))])
def test_a_window_of_processing_time_fires_by_the_clock(kind: str, sizes: tuple[int, ...]) -> None:
    windows = in_columns(kind, sizes, is_processing=True)
    harness = windows.harnesses[0]
    harness.advance_processing_time(-harness.clock.now_ms() % 10)
    windows.rows(("a", 1), ("a", 2), ("b", 3))
    harness.watermark(10**15)
    harness.advance_processing_time(9)
    assert windows.take() == []
    harness.advance_processing_time(1)
    assert sorted((row[1], *row[-2:]) for row in windows.take()) == [("a", 2, 3), ("b", 1, 3)]
    assert harness.operator.next_timer_ms() is None


def test_aggregates_without_kernels_fire_by_the_clock_too() -> None:
    windows = ByRow(10)
    windows.wait(-windows.table.harnesses[0].clock.now_ms() % 10)
    windows.table.rows(("a", 1), ("b", 3))
    assert windows.wait(4) == []
    windows.table.rows(("a", 2))
    assert windows.wait(5) == []
    assert sorted((row[1], *row[-2:]) for row in windows.wait(1)) == [("a", 2, 3), ("b", 1, 3)]


def test_rows_of_a_session_of_processing_time_come_by_the_clock() -> None:
    sessions = session_table(10, is_processing=True)
    (harness,) = sessions.harnesses
    sessions.rows(("a", 1))
    harness.advance_processing_time(7)
    sessions.rows(("a", 2))
    harness.advance_processing_time(9)
    assert sessions.take() == []
    harness.advance_processing_time(1)
    assert [row[2] for row in sessions.take()] == [1, 2]


def test_windows_of_processing_time_that_are_not_over_give_nothing_at_the_end() -> None:
    table = "TUMBLE(TABLE t, DESCRIPTOR(p), INTERVAL '1' DAY)"
    assert run(WINDOWS.format("COUNT(*)", table), t=Timed(("a", 1, 0))).rows() == []
    grouped = "SELECT k, COUNT(*), LISTAGG(k), TUMBLE_PROCTIME(p, INTERVAL '1' DAY) FROM t "
    assert run(grouped + "GROUP BY k, TUMBLE(p, INTERVAL '1' DAY)", t=Timed(("a", 1, 0))).rows() == []


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT * FROM TABLE({})", "Window TableFunction is not supported"),
        (
            "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY v) AS n "
            "FROM (SELECT window_start, window_end, SUM(v) AS v FROM TABLE({}) GROUP BY window_start, window_end)) "
            "WHERE n < 3",
            "Window TopN is not supported",
        ),
    ],
)
def test_what_flink_refuses_of_processing_time(sql: str, error: str) -> None:
    with pytest.raises(UnsupportedError, match=error):
        run(sql.format("TUMBLE(TABLE t, DESCRIPTOR(p), INTERVAL '1' DAY)"), t=Timed())


# --- plans ------------------------------------------------------------------------------------------------------------


def test_a_filter_and_expressions_between_window_and_groups() -> None:
    sql = (
        "SELECT u, window_time, SUM(w) FROM (SELECT UPPER(k) AS u, v * 2 AS w, window_start, window_end, window_time "
        f"FROM TABLE({TABLES['TUMBLE']}) WHERE v > 1) GROUP BY u, window_start, window_end, window_time"
    )
    answer = run(sql, t=Timed(("a", 1, 1 * S), ("a", 2, 2 * S), ("A", 3, 3 * S)))
    assert answer.rows() == [("A", 4_999_000_000, 10)]


@pytest.mark.parametrize("kind", list(TABLES))
def test_windows_without_aggregates_tell_which_groups_there_are(kind: str) -> None:
    sql = f"SELECT k FROM TABLE({TABLES[kind]}) GROUP BY k, window_start, window_end"
    found = run(sql, t=Timed(("a", 1, 0), ("a", 1, 0), ("b", 1, 0))).rows()
    assert set(found) == {("a",), ("b",)}
    assert len(found) == (2 if kind in ("TUMBLE", "SESSION") else 6)


def test_windows_of_windows() -> None:
    inner = "SELECT window_time AS t2, SUM(v) AS v FROM TABLE({}) GROUP BY window_start, window_end, window_time"
    fine = inner.format("TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND)")
    sql = (
        f"WITH f AS ({fine}) SELECT window_end, SUM(v), COUNT(*) FROM "
        "TABLE(TUMBLE(TABLE f, DESCRIPTOR(t2), INTERVAL '10' SECOND)) GROUP BY window_start, window_end"
    )
    answer = run(sql, t=Timed(("a", 1, 0), ("a", 2, 1 * S), ("b", 3, 9 * S), ("b", 4, 10 * S)))
    assert seconds(answer.rows()) == [(10, 6, 2), (20, 4, 1)]


def test_edges_of_windows_may_have_other_names() -> None:
    fine = "SELECT v, window_start AS s, window_end AS e, window_time AS t2 FROM TABLE(TUMBLE(TABLE t, {}))"
    sums = f"SELECT t2 AS t3, SUM(v) AS v FROM ({fine.format(TWO_SECONDS)}) GROUP BY s, e, t2"
    sql = f"SELECT window_end, v FROM TABLE(TUMBLE(({sums}), DESCRIPTOR(t3), INTERVAL '4' SECOND))"
    answer = run(sql, t=Timed(("a", 1, 0), ("a", 2, 1 * S), ("b", 3, 3 * S)))
    assert seconds(answer.rows()) == [(4, 3), (4, 3)]


def test_edges_of_different_windows_are_groups_that_change() -> None:
    fine = f"SELECT v, ts, window_start AS s FROM TABLE(TUMBLE(TABLE t, {TWO_SECONDS}))"
    coarse = f"TABLE(TUMBLE(({fine}), DESCRIPTOR(ts), INTERVAL '8' SECOND))"
    sql = f"SELECT s, window_end, SUM(v) FROM {coarse} GROUP BY s, window_end"
    answer = run(sql, t=Timed(("a", 1, 2 * S), ("a", 2, 3 * S), ("b", 3, 6 * S)))
    assert Counter(seconds(answer.rows())) == Counter([(2, 8, 3), (6, 8, 3)])
    assert [kind for kind, *_ in answer.shown()] == ["+I", "-U", "+U", "+I"]


@pytest.mark.parametrize("more", ["", ", LISTAGG(k)"], ids=["by kernel", "by row"])
def test_the_results_of_windows_are_grouped_by_window(more: str) -> None:
    sql = (
        f"SELECT window_end, MAX(total), COUNT(*), COUNT(DISTINCT total){more} FROM "
        f"({WINDOWS.format('SUM(v) AS total', TABLES['TUMBLE'])}) GROUP BY window_start, window_end"
    )
    answer = run(sql, t=Timed(("a", 1, 1 * S), ("a", 2, 2 * S), ("b", 3, 3 * S), ("b", 4, 6 * S)))
    assert [row[:4] for row in seconds(answer.rows())] == [(5, 3, 2, 1), (9, 4, 1, 1)]


def test_time_attributes_survive_union_all() -> None:
    sql = (
        "WITH u AS (SELECT k, v, ts FROM t UNION ALL SELECT k, v, ts FROM s) SELECT window_end, SUM(v) FROM "
        "TABLE(TUMBLE(TABLE u, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end"
    )
    answer = run(sql, t=Timed(("a", 1, 0)), s=Timed(("a", 2, 1 * S)))
    assert seconds(answer.rows()) == [(10, 3)]


def test_a_column_that_is_no_time_attribute_has_no_windows() -> None:
    sql = "WITH u AS (SELECT ts + INTERVAL '1' SECOND AS x FROM t) SELECT * FROM TABLE(TUMBLE(TABLE u, DESCRIPTOR(x), "
    with pytest.raises(ValidationError, match="requires the timecol is a time attribute type"):
        run(sql + "INTERVAL '1' SECOND))", t=Timed())


# --- ends of windows in time zones ------------------------------------------------------------------------------------

BERLIN = WindowEnds(ZoneInfo("Europe/Berlin"))
#: 2021-10-31 01:00 UTC: until then the clock shows 02:00 to 03:00, and then it does so again
SET_BACK = 1_635_642_000_000
HOUR = 3_600_000
AT_TWO = SET_BACK + HOUR  # what the clock shows at the beginning of both hours


def test_an_hour_that_comes_twice_ends_with_the_second_one() -> None:
    assert BERLIN.due_ms(AT_TWO) == SET_BACK - HOUR - 1
    assert BERLIN.due_ms(AT_TWO + HOUR) == SET_BACK + HOUR - 1


@given(st.integers(SET_BACK - 3 * HOUR, SET_BACK + 3 * HOUR), st.integers(AT_TWO - 2 * HOUR, AT_TWO + 4 * HOUR))
def test_a_clock_has_reached_the_windows_that_are_due(watermark: int, end: int) -> None:
    assert (end - 1 <= BERLIN.reached(watermark)) == (BERLIN.due_ms(end) <= watermark)
