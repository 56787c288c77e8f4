"""Programs about windows for `tests.table.beside_flink`: `python -m tests.table.beside_flink.window_programs > FILE`.

Rows of windows pass each kind of step, and are then read in each way that asks whether they still have windows and
event time. No row is late, whenever watermarks come.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

START: Final = "2024-01-01T00:00:"
WATERMARK: Final = "WATERMARK FOR ts AS ts - INTERVAL '3' SECOND"
WINDOWS: Final = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '{}' SECOND))"


def _to_row(row: tuple[Any, ...]) -> list[Any]:
    """A row whose last value is the second of its event time. It may have a kind ahead, which begins with a sign."""
    kind, values = (row[0], row[1:]) if isinstance(row[0], str) and row[0][:1] in ("+", "-") else ("+I", row)
    return [kind, *values[:-1], {"$": "timestamp", "v": f"{START}{values[-1]}"}]


def _table(name: str, columns: str, *rows: tuple[Any, ...], **more: str) -> dict[str, Any]:
    return {"name": name, "columns": f"{columns}, ts TIMESTAMP(3), {WATERMARK}", "rows": [*map(_to_row, rows)], **more}


TABLES: Final = {
    table["name"]: table
    for table in (
        _table(
            "bid",
            "k STRING, id INT, p INT, xs ARRAY<INT>",
            ("a", 1, 10, [1, 2], "01"),
            ("b", 2, 20, [], "02"),
            ("a", 3, 10, [4], "03"),
            (None, 4, None, None, "06"),
            ("b", 5, 50, [5, None], "05"),
            ("a", 6, 5, [6], "11"),
            ("a", 7, 70, [7, 7], "12"),
            ("c", 8, 8, [8], "13"),
            ("a", 9, 7, None, "11"),
            ("c", 10, 1, [1], "21"),
            ("b", 11, 20, [2], "22"),
            ("b", 12, 33, [3, 3, 3], "35"),
        ),
        _table("item", "k STRING, n STRING", ("a", "x", "02"), ("b", "y", "04"), ("a", "z", "09"), ("c", "w", "12")),
        _table(
            "rate",
            "k STRING PRIMARY KEY NOT ENFORCED, r INT",
            ("+I", "a", 100, "00"),
            ("+I", "b", 200, "00"),
            ("+U", "a", 101, "03"),
            ("-D", "b", 200, "04"),
            ("+I", "c", 300, "20"),
            mode="I,UA,D",
        ),
    )
}


def _rows(x: str, table: str = "bid", seconds: int = 10) -> str:
    """The rows of a table in windows: the key, a number, and the start, end and time of the window."""
    return f"SELECT k, {x} AS x, window_start AS s, window_end AS e, window_time AS w FROM {_windows(table, seconds)}"


def _windows(table: str = "bid", seconds: int = 10) -> str:
    return WINDOWS.format(table, seconds)


def _top(partition: str, order: str, last: int) -> str:
    number = f"ROW_NUMBER() OVER (PARTITION BY {partition} ORDER BY {order}) AS n"
    return f"SELECT k, x, s, e, w FROM (SELECT *, {number} FROM ({_rows('p')})) WHERE n <= {last}"


_BIDS: Final = f"(SELECT *, window_start AS s, window_end AS e, window_time AS w FROM {_windows()}) AS b"
_OVER: Final = "(PARTITION BY {} ORDER BY ts)"
#: what rows of windows pass
STEPS: Final = {
    "nothing": _rows("p"),
    "numbers": _rows(f"ROW_NUMBER() OVER {_OVER.format('window_start, window_end')}"),
    "sums": _rows(f"SUM(p) OVER {_OVER.format('k')}"),
    "top-N": _top("s, e", "x", 2),
    "top-N by time": _top("s, e, w", "x", 1),
    "first by time": _top("s, e, k", "w", 1),
    "top-N of groups": f"SELECT k, x, s, e, w FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY s, e ORDER BY x DESC, k) "
    f"AS n FROM (SELECT k, COUNT(*) AS x, s, e, w FROM ({_rows('p')}) GROUP BY k, s, e, w)) WHERE n <= 2",
    "union all": f"{_rows('p')} UNION ALL {_rows('1', 'item')}",
    "union": f"{_rows('p')} UNION {_rows('p')}",
    "unions of other sizes": f"{_rows('p')} UNION ALL {_rows('p', seconds=20)}",
    "intersect": f"{_rows('p')} INTERSECT {_rows('p')}",
    "except": f"{_rows('p')} EXCEPT {_rows('p')} WHERE p > 10",
    "distinct": f"SELECT DISTINCT k, x, s, e, w FROM ({_rows('1')})",
    "unnest": f"SELECT k, u AS x, s, e, w FROM {_BIDS} CROSS JOIN UNNEST(xs) AS t (u)",
    "unnest, left": f"SELECT k, u AS x, s, e, w FROM {_BIDS} LEFT JOIN UNNEST(xs) AS t (u) ON TRUE",
    "window join": f"SELECT b.k, p AS x, s, e, w FROM {_BIDS} JOIN (SELECT * FROM {_windows('item')}) AS i "
    "ON b.s = i.window_start AND b.e = i.window_end AND b.k = i.k",
    "join": f"SELECT b.k, id AS x, s, e, w FROM {_BIDS} JOIN item AS i ON b.k = i.k",
    "left join": f"SELECT b.k, id AS x, s, e, w FROM {_BIDS} LEFT JOIN item AS i ON b.k = i.k",
    "semi join": f"{_rows('p')} WHERE k IN (SELECT k FROM item)",
    "interval join": f"SELECT b.k, id AS x, s, e, w FROM {_BIDS} JOIN item AS i "
    "ON b.k = i.k AND i.ts BETWEEN b.ts - INTERVAL '2' SECOND AND b.ts",
    "temporal join": f"SELECT b.k, r AS x, s, e, w FROM {_BIDS} JOIN rate FOR SYSTEM_TIME AS OF b.ts AS v ON b.k = v.k",
}

_FRAME: Final = "(ORDER BY w RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND CURRENT ROW)"
_GROUPS: Final = "SELECT w, COUNT(*) AS n{} FROM ({}) GROUP BY s, e, w"
_AGAIN: Final = "TABLE(TUMBLE((SELECT w, {} FROM ({})), DESCRIPTOR(w), INTERVAL '20' SECOND))"


def reads(rows: str) -> Iterator[tuple[str, str]]:
    """The names of ways in which rows are read, and the queries."""
    yield "groups", f"SELECT s, e, COUNT(*), SUM(x) FROM ({rows}) GROUP BY s, e"
    yield "groups and keys", f"SELECT s, k, MAX(x) FROM ({rows}) GROUP BY s, e, w, k"
    yield (
        "top-N",
        (
            "SELECT k, s, x, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY s, e ORDER BY x DESC, k) AS n "
            f"FROM ({rows})) WHERE n <= 2"
        ),
    )
    yield "over", f"SELECT k, x, COUNT(*) OVER {_FRAME} FROM ({rows})"
    again = f"{_AGAIN.format('k', rows)} GROUP BY window_start, window_end"
    yield "windows again", f"SELECT window_start, COUNT(*) FROM {again}"
    for name, call in (("counts", ""), ("sums", ", SUM(x) AS total")):
        groups = _GROUPS.format(call, rows)
        column = "total" if call else "n"
        yield f"over of {name}", f"SELECT w, {column}, COUNT(*) OVER {_FRAME} FROM ({groups})"
        again = f"{_AGAIN.format(column, groups)} GROUP BY window_start, window_end"
        yield f"windows again of {name}", f"SELECT window_start, SUM({column}) FROM {again}"


def programs() -> Iterator[dict[str, Any]]:
    """All programs, in the simple form of `cases.full`."""
    for step, rows in STEPS.items():
        tables = [table for name, table in TABLES.items() if name in rows]
        for read, query in reads(rows):
            yield {"uid": f"{step}: {read}", "sources": tables, "query": query}


if __name__ == "__main__":
    print(json.dumps([*programs()], indent=1))
