"""Queries over event time, each with what it means. No row is late, so nothing depends on when watermarks come."""

from __future__ import annotations

import random
from collections import Counter

from tests.simulation.sql.evaluation import (
    NS,
    RT,
    A,
    K,
    descending,
    equal,
    grouped,
    joined,
    known,
    sessions,
    total,
    windows,
)
from tests.simulation.sql.queries import Query, Tables
from tests.simulation.sql.tables import Row, TableMaker


def _window(chance: random.Random) -> tuple[str, int, int]:
    """A kind of window, its size and its step (ms)."""
    step = chance.choice((20, 50))
    return chance.choice(("TUMBLE", "HOP", "CUMULATE")), step * chance.choice((1, 2, 3)), step


def _called(kind: str, table: str, size_ms: int, step_ms: int) -> str:
    first = f"INTERVAL '0.{step_ms:03}' SECOND, " if kind != "TUMBLE" else ""
    return f"TABLE({kind}(TABLE {table}, DESCRIPTOR(rt), {first}INTERVAL '0.{size_ms:03}' SECOND))"


def _placed(rows: list[Row], kind: str, size_ms: int, step_ms: int) -> list[Row]:
    """Rows with the edges of each of their windows behind."""
    return [
        (*row, start * NS, end * NS) for row in rows for start, end in windows(kind, row[RT] // NS, size_ms, step_ms)
    ]


def window_aggregates(chance: random.Random, make: TableMaker) -> Query:
    """Aggregates of windows with edges."""
    kind, size, step = _window(chance)
    sql = (
        "SELECT k, window_start, window_end, COUNT(*), SUM(a), COUNT(DISTINCT a) FROM "
        f"{_called(kind, 'e', size, step)} GROUP BY k, window_start, window_end"
    )

    def answer(tables: Tables) -> Counter[Row]:
        found: Counter[Row] = Counter()
        for key, rows in grouped(_placed(tables["e"], kind, size, step), K, 4, 5).items():
            values = known(rows, A)
            found[(*key, len(rows), total(values), len(set(values)))] += 1
        return found

    return Query(f"{kind.lower()} aggregate", sql, (make.timed("e"),), answer)


def session_aggregates(chance: random.Random, make: TableMaker) -> Query:
    """Aggregates of sessions."""
    gap = chance.choice((11, 25))
    sql = (
        "SELECT k, window_start, window_end, COUNT(*), SUM(a) FROM TABLE(SESSION(TABLE e PARTITION BY k, "
        f"DESCRIPTOR(rt), INTERVAL '0.{gap:03}' SECOND)) GROUP BY k, window_start, window_end"
    )

    def answer(tables: Tables) -> Counter[Row]:
        return Counter(
            (*key, start * NS, end * NS, len(inside), total(known(inside, A)))
            for key, rows in grouped(tables["e"], K).items()
            for start, end, inside in sessions(rows, gap)
        )

    return Query("session aggregate", sql, (make.timed("e"),), answer)


def window_joins(chance: random.Random, make: TableMaker) -> Query:
    """Joins of the rows of a window."""
    window, join = _window(chance), chance.choice(("INNER", "LEFT", "FULL"))
    sql = (
        f"SELECT x.id, x.k, x.a, y.id, y.k, y.a FROM (SELECT * FROM {_called(window[0], 'e', *window[1:])}) AS x "
        f"{join} JOIN (SELECT * FROM {_called(window[0], 'f', *window[1:])}) AS y ON x.k = y.k AND "
        "x.window_start = y.window_start AND x.window_end = y.window_end"
    )

    def matches(one: Row, other: Row) -> bool:
        return equal(one[K], other[K]) and one[4:] == other[4:]

    def answer(tables: Tables) -> Counter[Row]:
        left, right = (_placed(tables[name], *window) for name in "ef")
        return Counter((*row[:3], *row[6:9]) for row in joined(left, right, matches, join, (6, 6)))

    return Query(f"{join.lower()} window join", sql, (make.timed("e"), make.timed("f")), answer)


def window_ranks(chance: random.Random, make: TableMaker) -> Query:
    """The first rows of each window."""
    kind, size, step = _window(chance)
    sql = (
        "SELECT id, k, a, window_start, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k "
        f"ORDER BY a DESC, rt ASC) AS n FROM {_called(kind, 'e', size, step)}) WHERE n <= 2"
    )

    def answer(tables: Tables) -> Counter[Row]:
        found: Counter[Row] = Counter()
        for rows in grouped(_placed(tables["e"], kind, size, step), K, 4, 5).values():
            ordered = sorted(rows, key=lambda row: (descending(row[A]), row[RT]))[:2]
            found.update((*row[:3], row[4], place) for place, row in enumerate(ordered, 1))
        return found

    return Query(f"{kind.lower()} rank", sql, (make.timed("e"),), answer)


def interval_joins(chance: random.Random, make: TableMaker) -> Query:
    """Joins of rows whose times are near."""
    join, reach = chance.choice(("INNER", "LEFT", "RIGHT", "FULL")), chance.choice((10, 30))
    sql = (
        f"SELECT x.id, x.k, x.a, y.id, y.k, y.a FROM e AS x {join} JOIN f AS y ON x.k = y.k AND x.rt BETWEEN "
        f"y.rt - INTERVAL '0.0{reach}' SECOND AND y.rt + INTERVAL '0.0{reach}' SECOND"
    )

    def matches(one: Row, other: Row) -> bool:
        return equal(one[K], other[K]) and abs(one[RT] - other[RT]) <= reach * NS

    def answer(tables: Tables) -> Counter[Row]:
        pairs = joined(tables["e"], tables["f"], matches, join, (4, 4))
        return Counter((*row[:3], *row[4:7]) for row in pairs)

    return Query(f"{join.lower()} interval join", sql, (make.timed("e"), make.timed("f")), answer)


def over_time(chance: random.Random, make: TableMaker) -> Query:
    """OVER in the order of event time, by rows or by time, with a bound or without."""
    frame = chance.choice(("rows", "range", "all"))
    said = {
        "rows": " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
        "range": " RANGE BETWEEN INTERVAL '0.030' SECOND PRECEDING AND CURRENT ROW",
        "all": "",
    }
    sql = (
        f"SELECT id, k, a, SUM(a) OVER w, COUNT(*) OVER w FROM e WINDOW w AS (PARTITION BY k ORDER BY rt{said[frame]})"
    )

    def answer(tables: Tables) -> Counter[Row]:
        found: Counter[Row] = Counter()
        for rows in grouped(tables["e"], K).values():
            ordered = sorted(rows, key=lambda row: row[RT])
            for place, row in enumerate(ordered):
                begin = max(0, place - 2) if frame == "rows" else 0
                inside = ordered[begin : place + 1]
                if frame == "range":
                    inside = [one for one in inside if one[RT] >= row[RT] - 30 * NS]
                found[(*row[:3], total(known(inside, A)), len(inside))] += 1
        return found

    return Query(f"over {frame}", sql, (make.timed("e"),), answer)


def one_row(chance: random.Random, make: TableMaker) -> Query:
    """The first row of each key by event time, or the last one."""
    is_last = chance.random() < 0.6
    sql = (
        "SELECT id, k, a FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY rt "
        f"{'DESC' if is_last else 'ASC'}) AS n FROM e) WHERE n = 1"
    )

    def answer(tables: Tables) -> Counter[Row]:
        chosen = max if is_last else min
        return Counter(chosen(rows, key=lambda row: row[RT])[:3] for rows in grouped(tables["e"], K).values())

    return Query("last row" if is_last else "first row", sql, (make.timed("e"),), answer)


def groups_of_windows(chance: random.Random, make: TableMaker) -> Query:
    """Groups over what windows give, and the latest of them in order."""
    sql = (
        "SELECT c, COUNT(*), MAX(s) FROM (SELECT k, COUNT(*) AS c, SUM(a) AS s FROM "
        f"{_called('TUMBLE', 'e', 50, 50)} GROUP BY k, window_start, window_end) GROUP BY c"
    )

    def answer(tables: Tables) -> Counter[Row]:
        placed = grouped(_placed(tables["e"], "TUMBLE", 50, 50), K, 4, 5)
        inner = [(len(rows), total(known(rows, A))) for rows in placed.values()]
        return Counter((*key, len(rows), max(known(rows, 1), default=None)) for key, rows in grouped(inner, 0).items())

    return Query("groups of windows", sql, (make.timed("e"),), answer)


def temporal_joins(chance: random.Random, make: TableMaker) -> Query:
    """Each row with the version of its key at its time."""
    join = chance.choice(("", "LEFT "))
    sql = f"SELECT e.id, e.k, e.a, r.a FROM e {join}JOIN r FOR SYSTEM_TIME AS OF e.rt AS r ON e.k = r.id"

    def answer(tables: Tables) -> Counter[Row]:
        found: Counter[Row] = Counter()
        for row in tables["e"]:
            versions = [one for one in tables["r"] if one[0] == row[K] and one[RT] <= row[RT]]
            if versions or join:
                value = max(versions, key=lambda one: one[RT])[A] if versions else None
                found[(*row[:3], value)] += 1
        return found

    return Query(f"temporal {join.lower()}join", sql, (make.timed("e"), make.timed("r", True)), answer)
