"""Which queries give event time, and rows of windows, decides the plan as it runs."""

from __future__ import annotations

import pytest
from tests.table.running import run
from tests.table.streaming.windowed import Timed

from penstock.sql.data.errors import ValidationError

WINDOWS = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
ROWS = f"SELECT k, v, window_start AS s, window_end AS e, window_time AS w FROM {WINDOWS}"
TOP = f"SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY s, e ORDER BY v) AS n FROM ({ROWS})) WHERE n <= 2"
NUMBERED = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY w) AS n FROM ({ROWS})"
BOTH = f"{ROWS} UNION ALL {ROWS.replace('TABLE t', 'TABLE u')}"
NESTED = f"SELECT k, x AS v, s, e, w FROM ({ROWS}) CROSS JOIN UNNEST(ARRAY[v, v + 1]) AS a (x)"
DISTINCT = f"SELECT DISTINCT k, v, s, e, w FROM ({BOTH})"

T = Timed(("a", 1, 1000), ("b", 2, 3000), ("a", 3, 4000), ("a", 4, 12_000))
U = Timed(("a", 1, 2000), ("c", 9, 5000), ("a", 5, 15_000))


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        (TOP, [(2, 3), (1, 4)]),
        (NUMBERED, [(3, 6), (1, 4)]),
        (BOTH, [(5, 16), (2, 9)]),
        (NESTED, [(6, 15), (2, 9)]),
        (DISTINCT, [(4, 15), (2, 9)]),
        (f"{ROWS} INTERSECT {ROWS}", [(3, 6), (1, 4)]),
        (f"{BOTH.replace('ALL', '')} EXCEPT {ROWS} WHERE v > 3", [(4, 15), (1, 5)]),
    ],
    ids=["top-N", "numbers that nobody reads", "union", "unnested", "distinct", "intersect", "except"],
)
def test_groups_of_windows_have_event_time(rows: str, wanted: list[tuple[int, int]]) -> None:
    """Each window comes once, when it is over, and its time orders and has windows again."""
    groups = f"SELECT w, COUNT(*) AS n, SUM(v) AS total FROM ({rows}) GROUP BY s, e, w"
    found = run(f"SELECT n, total FROM ({groups})", t=T, u=U)
    assert found.shown() == [("+I", *one) for one in wanted]
    frame = "ORDER BY w RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW"
    over = f"SELECT SUM(total) OVER ({frame}) FROM ({groups})"
    assert run(over, t=T, u=U).shown() == [("+I", wanted[0][1]), ("+I", wanted[0][1] + wanted[1][1])]
    again = f"SELECT SUM(n) FROM TABLE(TUMBLE((SELECT w, n FROM ({groups})), DESCRIPTOR(w), INTERVAL '1' HOUR))"
    assert run(f"{again} GROUP BY window_start, window_end", t=T, u=U).shown() == [("+I", wanted[0][0] + wanted[1][0])]


def test_windows_of_different_sizes_together_are_groups_that_change() -> None:
    other = ROWS.replace("'10' SECOND", "'20' SECOND")
    found = run(f"SELECT COUNT(*) FROM ({ROWS} UNION ALL {other}) GROUP BY s, e, w", t=T)
    assert {kind for kind, _ in found.changes} == {"+I", "-U", "+U"}
    assert sorted(found.rows()) == [(1,), (3,), (4,)]


def test_the_first_rows_of_windows_together_come_when_these_are_over() -> None:
    found = run(f"SELECT k, v, n FROM ({TOP.replace(ROWS, BOTH)})", t=T, u=U)
    assert found.shown() == [("+I", "a", 1, 1), ("+I", "a", 1, 2), ("+I", "a", 4, 1), ("+I", "a", 5, 2)]


@pytest.mark.parametrize(
    "rows",
    [
        "SELECT t.k, t.ts AS w FROM t JOIN u ON t.k = u.k",
        "SELECT k, ts AS w FROM t WHERE k IN (SELECT k FROM u)",
        "SELECT k, ts AS w FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.v > t.v)",
        "SELECT DISTINCT k, ts AS w FROM t",
        f"SELECT w, SUM(n) AS k FROM ({NUMBERED}) GROUP BY s, e, w",
        f"SELECT w, k FROM ({ROWS}) GROUP BY w, k",
    ],
    ids=["join", "semi join", "anti join", "distinct", "numbers that are read", "no windows"],
)
@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM TABLE(TUMBLE(({}), DESCRIPTOR(w), INTERVAL '1' HOUR))", "timecol is a time attribute type"),
        (
            "SELECT k, COUNT(*) OVER (ORDER BY w ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM ({})",
            "Non-time attribute sort|consuming update",
        ),
        (
            "SELECT * FROM ({}) MATCH_RECOGNIZE (ORDER BY w MEASURES A.k AS x PATTERN (A) DEFINE A AS TRUE)",
            "rowtime or proctime|consuming update",
        ),
    ],
    ids=["windows", "OVER", "patterns"],
)
def test_rows_that_may_be_late_have_no_event_time(rows: str, query: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        run(query.format(rows), t=T, u=U)


def test_joins_within_an_interval_keep_event_time() -> None:
    joined = "SELECT t.k, t.ts AS w FROM t JOIN u ON t.k = u.k AND u.ts BETWEEN t.ts AND t.ts + INTERVAL '5' SECOND"
    windows = f"SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(({joined}), DESCRIPTOR(w), INTERVAL '1' HOUR))"
    assert run(f"SELECT * FROM ({windows} GROUP BY window_start, window_end)", t=T, u=U).rows()[0][1] == 2
