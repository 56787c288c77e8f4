"""K1: aggregates and set operations of windows without further keys give each window once, in any order of rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.table.running import Answer, Rows, run

from penstock.sql.data.types import IntType, TimestampType

SIZE = 4
TUMBLE = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '4' SECOND))"
#: each gives the same windows
SAME_WINDOWS = {
    "TUMBLE": TUMBLE,
    "HOP": "TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '4' SECOND))",
    "CUMULATE": "TABLE(CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '4' SECOND))",
}
CALLS = "COUNT(*), COUNT(v), SUM(v), MIN(v), MAX(v), AVG(v)"
_ANY_ROWS = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.integers(0, 20)), min_size=1, max_size=15)
#: rows in any order, or in that of their times, so that windows fire while rows come
ROWS = st.one_of(_ANY_ROWS, _ANY_ROWS.map(lambda rows: sorted(rows, key=lambda row: row[1])))
BATCH_SIZES = st.sampled_from([1, 2, 5, None])

Row = tuple[Any, ...]


def table(rows: list[Row], batch_size: int | None) -> Rows:
    seconds = [second for _, second in rows]
    delay = max(max(seconds[:place], default=0) - second for place, second in enumerate(seconds)) + 1
    return Rows(
        {"v": IntType(), "ts": TimestampType(3)},
        [(value, second * 10**9) for value, second in rows],
        batch_size,
        f"WATERMARK FOR ts AS ts - INTERVAL '{max(delay, 1)}' SECOND",
    )


def results(values: list[int | None]) -> Row:
    known = [value for value in values if value is not None]
    total = sum(known) if known else None
    mean = sum(known) // len(known) if known else None
    return (len(values), len(known), total, min(known, default=None), max(known, default=None), mean)


def by_window(rows: list[Row], size: int = SIZE) -> dict[int, list[int | None]]:
    windows: dict[int, list[int | None]] = {}
    for value, second in rows:
        windows.setdefault(second // size * size, []).append(value)
    return windows


def assert_each_once(answer: Answer, wanted: list[Row]) -> None:
    assert all(kind == "+I" for kind, _ in answer.changes)
    found = [(row[0] // 10**9, *row[1:]) for row in answer.rows()]
    assert Counter(found) == Counter(wanted)


@pytest.mark.parametrize("kind", list(SAME_WINDOWS))
@given(rows=ROWS, batch_size=BATCH_SIZES)
@settings(max_examples=20, deadline=None)
def test_window_fires_once_when_rows_are_out_of_order(kind: str, rows: list[Row], batch_size: int | None) -> None:
    sql = f"SELECT window_start, {CALLS} FROM {SAME_WINDOWS[kind]} GROUP BY window_start, window_end"
    assert_each_once(
        run(sql, t=table(rows, batch_size)), [(start, *results(values)) for start, values in by_window(rows).items()]
    )


@given(rows=ROWS, batch_size=BATCH_SIZES)
@settings(max_examples=20, deadline=None)
def test_group_window_fires_once_when_rows_are_out_of_order(rows: list[Row], batch_size: int | None) -> None:
    sql = f"SELECT TUMBLE_START(ts, INTERVAL '4' SECOND), {CALLS} FROM t GROUP BY TUMBLE(ts, INTERVAL '4' SECOND)"
    assert_each_once(
        run(sql, t=table(rows, batch_size)), [(start, *results(values)) for start, values in by_window(rows).items()]
    )


@given(rows=ROWS, batch_size=BATCH_SIZES)
@settings(max_examples=20, deadline=None)
def test_window_of_windows_fires_once(rows: list[Row], batch_size: int | None) -> None:
    first = (
        "SELECT window_time AS rt, SUM(v) AS s, COUNT(*) AS n "
        f"FROM {TUMBLE} GROUP BY window_start, window_end, window_time"
    )
    sql = (
        "SELECT window_start, SUM(s), SUM(n), COUNT(*) FROM TABLE(TUMBLE((" + first + "), DESCRIPTOR(rt), "
        "INTERVAL '8' SECOND)) GROUP BY window_start, window_end"
    )
    wanted = []
    for start, values in by_window(rows, 8).items():
        known = [value for value in values if value is not None]
        panes = len({second // SIZE for _, second in rows if second // 8 * 8 == start})
        wanted.append((start, sum(known) if known else None, len(values), panes))
    assert_each_once(run(sql, t=table(rows, batch_size)), wanted)


@given(rows=ROWS, batch_size=BATCH_SIZES)
@settings(max_examples=20, deadline=None)
def test_top_window_and_join_of_windows_see_whole_windows(rows: list[Row], batch_size: int | None) -> None:
    counted = f"SELECT window_start, window_end, COUNT(*) AS n FROM {TUMBLE} GROUP BY window_start, window_end"
    top = (
        "SELECT window_start, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end "
        f"ORDER BY n DESC) AS place FROM ({counted})) WHERE place = 1"
    )
    joined = (
        f"SELECT a.window_start, a.n + b.n FROM ({counted}) a JOIN ({counted}) b "
        "ON a.window_start = b.window_start AND a.window_end = b.window_end"
    )
    windows = by_window(rows)
    assert_each_once(run(top, t=table(rows, batch_size)), [(start, len(values)) for start, values in windows.items()])
    assert_each_once(
        run(joined, t=table(rows, batch_size)), [(start, 2 * len(values)) for start, values in windows.items()]
    )


@pytest.mark.parametrize("kind", list(SAME_WINDOWS))
@pytest.mark.parametrize("operation", ["UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"])
@given(rows=ROWS, batch_size=BATCH_SIZES, filters=st.booleans())
@settings(max_examples=25, deadline=None)
def test_set_operations_of_windows_alone(
    kind: str, operation: str, rows: list[Row], batch_size: int | None, filters: bool
) -> None:
    windows = f"SELECT window_start, window_end FROM {SAME_WINDOWS[kind]}"
    answer = run(f"{windows} {operation} {windows}{' WHERE v > 1' * filters}", t=table(rows, batch_size))
    left = Counter(second // SIZE * SIZE for _, second in rows)
    right = Counter(second // SIZE * SIZE for value, second in rows if not filters or (value is not None and value > 1))
    wanted = {
        "UNION": Counter(set(left)),
        "INTERSECT": Counter(set(left & right)),
        "EXCEPT": Counter(set(left) - set(right)),
        "INTERSECT ALL": left & right,
        "EXCEPT ALL": left - right,
    }[operation]
    assert Counter(row[0] // 10**9 for row in answer.rows()) == wanted
