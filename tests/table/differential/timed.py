"""Random queries over event time: windows, OVER, interval joins, and any other steps behind them.

No row is late, and no result depends on the order of rows of one time: so it does not matter when watermarks come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st
from tests.table.differential.queries import INT, ROWTIME, TEXT, TIME, Column, Queries, Relation
from tests.table.differential.tongues import both
from tests.table.differential.window_calls import Window, windows_of

NO_EDGES = ("", "")
#: of v, which has versions of its rows by the key k
VERSION_COLUMNS = (Column("k", INT), Column("a", INT), Column("b", TEXT))


@dataclass(frozen=True)
class Timed:
    """A query whose rows have event time.

    Args:
        relation: the query; one column is its event time.
        only_inserts: whether rows only come.
        in_order: whether no two rows are of the same time.
        edges: the names of the columns with start and end of the window of each row, if it has one.
        sessions_by: the columns that keep sessions apart, if the rows are those of sessions.
    """

    relation: Relation
    only_inserts: bool = True
    in_order: bool = False
    edges: tuple[str, str] = NO_EDGES
    sessions_by: tuple[Column, ...] | None = None

    @property
    def time(self) -> str:
        """The name of the column of event time."""
        (found,) = self.relation.of(ROWTIME)
        return found

    @property
    def others(self) -> list[Column]:
        """The columns that are no event time and no edge."""
        return [one for one in self.relation.columns if one.kind != ROWTIME and one.name not in self.edges]


class TimedQueries(Queries):
    """Builds queries with event time among their tables. `timed`: the queries of these tables."""

    def __init__(self, draw: st.DrawFn, tables: dict[str, tuple[Column, ...]], timed: Sequence[Timed]) -> None:
        super().__init__(draw, tables)
        self._timed_tables = timed

    def relation(self, depth: int) -> Relation:
        """See `Queries`."""
        return self.timed_result(depth) if self._number(1, 3) == 1 else super().relation(depth)

    def timed_result(self, depth: int) -> Relation:
        """A query whose last step works by event time."""
        if depth == 0 or self._flag():
            return self._settled(self.timed(depth))
        steps = [
            self._interval_outer_join,
            self._window_join,
            self._window_half_join,
            self._window_one_row,
            self._last_row,
        ]
        return self._one(steps)(depth)

    def result_of_versions(self, depth: int) -> Relation:
        """A query whose last step finds versions."""
        return self._settled(self._as_of(depth))

    def timed(self, depth: int) -> Timed:
        """A query with a column of event time."""
        if depth == 0:
            return self._one(self._timed_tables)
        steps = [
            self._timed_select,
            self._timed_union,
            self._over_time,
            self._interval_join,
            self._as_of,
            self._first_row,
            self._placed,
            self._placed,
            self._placed,
            self._placed,
        ]
        return self._one(steps)(depth)

    def _inserts(self, depth: int) -> Timed:
        """The same, of rows that only come."""
        found = self.timed(depth)
        return found if found.only_inserts else self._timed_tables[0]

    def _in_order(self, depth: int) -> Timed:
        """The same, of rows of different times."""
        found = self._inserts(depth)
        return found if found.in_order else self._timed_tables[1]

    def _settled(self, timed: Timed) -> Relation:
        """The rows with their time as any other column."""
        columns = [Column(self._name(), TIME if one.kind == ROWTIME else one.kind) for one in timed.relation.columns]
        casts = self._flag()
        selected = []
        for old, new in zip(timed.relation.columns, columns, strict=True):
            is_cast = casts and old.kind == ROWTIME
            text = both(f"CAST({old.name} AS TIMESTAMP(3))", old.name) if is_cast else old.name
            selected.append(f"{text} AS {new.name}")
        return Relation(f"SELECT {', '.join(selected)} FROM ({timed.relation.sql}){self._alias()}", tuple(columns))

    # --- rows that keep their time ------------------------------------------------------------------------------------

    def _timed_select(self, depth: int) -> Timed:
        return self._of_kinds(self.timed(depth - 1), self._kinds(), 2)

    def _kinds(self) -> list[str]:
        return self._draw(st.lists(st.sampled_from([INT, TEXT]), min_size=1, max_size=3))

    def _of_kinds(self, inner: Timed, kinds: list[str], depth: int) -> Timed:
        """Columns of these kinds, and the time."""
        columns = [*(Column(self._name(), kind) for kind in kinds), Column(self._name(), ROWTIME)]
        texts = [*(self._expression(inner.relation, kind, depth) for kind in kinds), inner.time]
        selected = ", ".join(f"{text} AS {one.name}" for text, one in zip(texts, columns, strict=True))
        where = f" WHERE {self._condition(inner.relation, depth)}" if self._flag() else ""
        sql = f"SELECT {selected} FROM ({inner.relation.sql}){self._alias()}{where}"
        return Timed(Relation(sql, tuple(columns)), inner.only_inserts, inner.in_order)

    def _timed_union(self, depth: int) -> Timed:
        kinds = self._kinds()
        one, other = (self._of_kinds(self.timed(depth - 1), kinds, 1) for _ in range(2))
        sql = f"({one.relation.sql}) UNION ALL ({other.relation.sql})"
        return Timed(Relation(sql, one.relation.columns), one.only_inserts and other.only_inserts)

    def _over_time(self, depth: int) -> Timed:
        inner = self._inserts(depth - 1)
        by = self._some(inner.others, 0, 2)
        partition = f"PARTITION BY {', '.join(one.name for one in by)} " if by else ""
        frames = ["", f" RANGE BETWEEN INTERVAL '{self._number(0, 6)}' SECOND PRECEDING AND CURRENT ROW"]
        if inner.in_order:
            frames += [f" ROWS BETWEEN {self._number(1, 3)} PRECEDING AND CURRENT ROW"] * 2
        window = f"{partition}ORDER BY {inner.time}{self._one(frames)}"
        names = [one.name for one in inner.relation.columns]
        columns = list(inner.relation.columns)
        for _ in range(self._number(1, 2)):
            call, kind = self._one(self._calls_over(inner))
            columns.append(Column(self._name(), kind))
            names.append(f"{call} OVER ({window}) AS {columns[-1].name}")
        sql = f"SELECT {', '.join(names)} FROM ({inner.relation.sql}){self._alias()}"
        return Timed(Relation(sql, tuple(columns)), in_order=inner.in_order)

    @staticmethod
    def _calls_over(inner: Timed) -> list[tuple[str, str]]:
        found = [("COUNT(*)", INT)]
        for one in inner.others:
            found += [(f"{name}({one.name})", one.kind) for name in ("MIN", "MAX")]
            found.append((f"COUNT({one.name})", INT))
            if one.kind == INT:
                found.append((f"SUM({one.name})", INT))
        return found

    def _first_row(self, depth: int) -> Timed:
        inner = self._in_order(depth - 1)
        return Timed(self._one_row(inner, "ASC", inner.relation.columns), in_order=True)

    def _last_row(self, depth: int) -> Relation:
        inner = self._in_order(depth - 1)
        return self._one_row(inner, "DESC", tuple(inner.others))

    def _one_row(self, inner: Timed, order: str, columns: tuple[Column, ...]) -> Relation:
        by = self._some(inner.others, 1, 2)
        number, names = self._name(), ", ".join(one.name for one in columns)
        window = f"PARTITION BY {', '.join(one.name for one in by)} ORDER BY {inner.time} {order}"
        sql = (
            f"SELECT {names} FROM (SELECT *, ROW_NUMBER() OVER ({window}) AS {number} "
            f"FROM ({inner.relation.sql}){self._alias()}){self._alias()} WHERE {number} = 1"
        )
        return Relation(sql, columns)

    # --- interval joins -----------------------------------------------------------------------------------------------

    def _interval_join(self, depth: int) -> Timed:
        kind, kept = self._one([("JOIN", 0), ("JOIN", 1), ("LEFT JOIN", 0), ("RIGHT JOIN", 1)])
        sides = self._two_sides(depth)
        return Timed(self._near(sides, kind, (kept,)))

    def _interval_outer_join(self, depth: int) -> Relation:
        """Rows of which either side may be missing: they have no time any more."""
        return self._near(self._two_sides(depth), self._one(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]), ())

    def _two_sides(self, depth: int) -> list[tuple[str, Timed]]:
        one, other = self._inserts(depth - 1), self._inserts(depth - 1)
        return self._sides(one, other if _pairs(one, other) else self._timed_tables[0])

    def _sides(self, *timed: Timed) -> list[tuple[str, Timed]]:
        return [(f"q{next(self._numbers)}", one) for one in timed]

    def _near(self, sides: list[tuple[str, Timed]], kind: str, kept: tuple[int, ...]) -> Relation:
        """Pairs of rows whose times are near. `kept`: of which side the time is a column."""
        (one_side, one), (other_side, other) = sides
        time, near = f"{one_side}.{one.time}", f"{other_side}.{other.time}"
        lower, upper = self._number(0, 4), self._number(0, 4)
        first, last = f"{near} - INTERVAL '{lower}' SECOND", f"{near} + INTERVAL '{upper}' SECOND"
        between = self._one([f"{time} BETWEEN {first} AND {last}", f"{time} > {first} AND {time} <= {last}"])
        times = [(time, near)[place] for place in kept]
        return self._paired(sides, kind, [between], times)

    def _paired(self, sides: list[tuple[str, Timed]], kind: str, on: list[str], times: list[str]) -> Relation:
        """Pairs of rows with an equal column. `times`: columns of event time."""
        (one_side, one), (other_side, other) = sides
        on = [f"{one_side}.{a.name} = {other_side}.{b.name}" for a, b in self._some(_pairs(one, other), 1, 2)] + on
        return self._joined(sides, kind, on, [Column(time, ROWTIME) for time in times])

    def _joined(self, sides: list[tuple[str, Timed]], kind: str, on: list[str], more: list[Column]) -> Relation:
        """Pairs of rows. `more`: columns besides the others of both."""
        (one_side, one), (other_side, other) = sides
        found = [Column(f"{side}.{column.name}", column.kind) for side, timed in sides for column in timed.others]
        if self._flag():
            on = [*on, self._condition(Relation("", tuple(found)), 1)]
        found += more
        columns = tuple(Column(self._name(), column.kind) for column in found)
        selected = ", ".join(f"{old.name} AS {new.name}" for old, new in zip(found, columns, strict=True))
        joined = f"({one.relation.sql}) AS {one_side} {kind} ({other.relation.sql}) AS {other_side}"
        return Relation(f"SELECT {selected} FROM {joined} ON {' AND '.join(on)}", columns)

    # --- versions -----------------------------------------------------------------------------------------------------

    def _as_of(self, depth: int) -> Timed:
        """Rows with the version of a key at their time. DuckDB is told how long each version holds."""
        inner = self.timed(depth - 1)
        side, versions = f"q{next(self._numbers)}", f"q{next(self._numbers)}"
        numbers = inner.relation.of(INT)
        if not numbers:
            return inner
        time = f"{side}.{inner.time}"
        until = "lead(ts) OVER (PARTITION BY k ORDER BY ts) AS until"
        table = both(f"v FOR SYSTEM_TIME AS OF {time}", f"(SELECT *, {until} FROM v)")
        holds = f" AND NOT {versions}.gone AND {versions}.ts <= {time}"
        on = f"{side}.{self._one(numbers)} {self._one(['=', '=', 'IS NOT DISTINCT FROM'])} {versions}.k"
        on += both("", f"{holds} AND ({versions}.until IS NULL OR {versions}.until > {time})")
        found = [Column(f"{side}.{one.name}", one.kind) for one in inner.others]
        found += [Column(f"{versions}.{one.name}", one.kind) for one in VERSION_COLUMNS]
        if self._flag():
            on += f" AND {self._condition(Relation('', tuple(found)), 1)}"
        names = [one.name for one in found] + [both(f"CAST({versions}.ts AS TIMESTAMP(3))", f"{versions}.ts"), time]
        kinds = [one.kind for one in found] + [TIME, ROWTIME]
        columns = [Column(self._name(), kind) for kind in kinds]
        selected = ", ".join(f"{name} AS {one.name}" for name, one in zip(names, columns, strict=True))
        where = f" WHERE {self._condition(Relation('', tuple(found)), 1)}" if self._number(1, 3) == 1 else ""
        kind = self._one(["JOIN", "LEFT JOIN"])
        sql = f"SELECT {selected} FROM ({inner.relation.sql}) AS {side} {kind} {table} AS {versions} ON {on}{where}"
        return Timed(Relation(sql, tuple(columns)), inner.only_inserts, inner.in_order)

    # --- windows ------------------------------------------------------------------------------------------------------

    def _placed(self, depth: int) -> Timed:
        """Rows with a window, or what is made of the windows."""
        return self._in_windows(depth, self._window())

    def _window(self) -> Window:
        step, times = self._number(1, 4), self._number(1, 3)
        sizes = {
            "TUMBLE": (step * times,),
            "HOP": (step, step * times + self._number(0, 1)),
            "CUMULATE": (step, step * times),
            "SESSION": (step,),
        }
        kind = self._one(list(sizes))
        return Window(kind, sizes[kind], 0 if kind == "SESSION" else self._one([0, 0, self._number(-3, 3)]))

    def _in_windows(self, depth: int, window: Window, by_window: bool = False, inserts: bool = False) -> Timed:
        """Rows in given windows.

        `by_window`: whether their time has to be that of the window. `inserts`: whether rows must not go.
        """
        if depth <= 1 or self._number(1, 3) == 1:
            return self._window_rows(max(depth, 1), window, by_window, inserts)
        if self._number(1, 3) > 1:
            return self._window_aggregate(depth, window)
        return self._one([self._window_rank, self._windows_joined])(depth, window, inserts)

    def _window_rows(self, depth: int, window: Window, by_window: bool, inserts: bool) -> Timed:
        """Each row with each of its windows. The time is that of the row, or of the window."""
        is_session = window.kind == "SESSION"
        inner = self._inserts(depth - 1) if is_session or inserts else self.timed(depth - 1)
        # The rows of a session come when it is over, and are late by their own time.
        return self._rows_in(inner, window, by_window or is_session or self._flag())

    def _window_rows_in_order(self, depth: int, window: Window) -> Timed:
        return self._rows_in(self._in_order(depth - 1), window, False)

    def _rows_in(self, inner: Timed, window: Window, by_window: bool) -> Timed:
        is_session = window.kind == "SESSION"
        plain = [one for one in inner.relation.columns if one.kind != ROWTIME]
        apart = self._some(plain, 0, 2) if is_session else []
        edges, time = (self._name(), self._name()), "window_time" if by_window else inner.time
        named = {one.name: Column(self._name(), one.kind) for one in plain}
        if time != inner.time and self._flag():
            named[inner.time] = Column(self._name(), TIME)
        found = {**named, "window_start": Column(edges[0], TIME), "window_end": Column(edges[1], TIME)}
        found[time] = Column(self._name(), ROWTIME)
        table = windows_of(window, inner.relation.sql, inner.time, [one.name for one in apart])
        sql = f"SELECT {', '.join(f'{old} AS {new.name}' for old, new in found.items())} FROM {table}"
        in_order = inner.in_order and not by_window and window.kind == "TUMBLE"
        sessions_by = tuple(named[one.name] for one in apart) if is_session else None
        return Timed(Relation(sql, tuple(found.values())), inner.only_inserts, in_order, edges, sessions_by)

    def _window_aggregate(self, depth: int, window: Window) -> Timed:
        """Groups of the rows of each window. Sessions are grouped by what keeps them apart."""
        inner = self._in_windows(depth - 1, window, by_window=True)
        if window.kind == "SESSION" and inner.sessions_by is None:
            return inner
        keys = self._some(inner.others, 0, 2) if inner.sessions_by is None else list(inner.sessions_by)
        edges = tuple(Column(name, TIME) for name in inner.edges)
        grouped = [*edges, Column(inner.time, ROWTIME), *keys]
        columns = [Column(self._name(), one.kind) for one in grouped]
        selected = [f"{old.name} AS {new.name}" for old, new in zip(grouped, columns, strict=True)]
        calls = [self._call(Relation("", tuple(inner.others))) for _ in range(self._number(1, 3))]
        for call, kind in calls:
            columns.append(Column(self._name(), kind))
            selected.append(f"{call} AS {columns[-1].name}")
        by = [*inner.edges, inner.time, *self._sets([one.name for one in keys], window)]
        # Rows that a condition leaves out do not hold a session together, in Flink and here.
        asks = window.kind != "SESSION" and self._number(1, 4) == 1
        where = f" WHERE {self._condition(inner.relation, 1)}" if asks else ""
        having = f" HAVING {calls[0][0]} IS NOT NULL" if self._number(1, 4) == 1 else ""
        sql = (
            f"SELECT {', '.join(selected)} FROM ({inner.relation.sql}){self._alias()}{where} "
            f"GROUP BY {', '.join(by)}{having}"
        )
        is_over = window.kind == "SESSION"
        return Timed(Relation(sql, tuple(columns)), edges=NO_EDGES if is_over else (columns[0].name, columns[1].name))

    def _sets(self, keys: list[str], window: Window) -> list[str]:
        if not keys or window.kind == "SESSION" or self._number(1, 6) > 1:
            return keys
        names = ", ".join(keys)
        return [self._one([f"ROLLUP ({names})", f"CUBE ({names})", f"GROUPING SETS (({names}), ())"])]

    def _window_rank(self, depth: int, window: Window, inserts: bool) -> Timed:
        """The first rows of each window, or of each group in a window."""
        inner = self._in_windows(depth - 1, window, by_window=True, inserts=inserts)
        if inner.edges == NO_EDGES:
            return inner
        columns = inner.relation.columns
        ranked = self._ranked(inner, self._order(inner.relation), self._number(1, 3), columns)
        return replace(inner, relation=ranked, sessions_by=None)

    def _window_one_row(self, depth: int) -> Relation:
        """The first or the last row of each window by its own time, by which it is late for other steps."""
        inner = self._window_rows_in_order(depth, Window("TUMBLE", (self._number(1, 6),)))
        order = f"{inner.time} {self._one(['ASC', 'DESC'])}"
        return self._ranked(inner, order, self._number(1, 2), tuple(inner.others))

    def _ranked(self, inner: Timed, order: str, last: int, columns: tuple[Column, ...]) -> Relation:
        by = ", ".join([*inner.edges, *(one.name for one in self._some(inner.others, 0, 1))])
        number, names = self._name(), ", ".join(one.name for one in columns)
        sql = (
            f"SELECT {names} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {order}) AS {number} "
            f"FROM ({inner.relation.sql}){self._alias()}){self._alias()} WHERE {number} <= {last}"
        )
        return Relation(sql, columns)

    def _windows_joined(self, depth: int, window: Window, inserts: bool) -> Timed:
        """Pairs of rows in the same window, with the window and its time."""
        if window.kind == "SESSION":
            return self._window_rows(depth, window, True, inserts)
        one, other = (self._in_windows(depth - 1, window, by_window=True, inserts=True) for _ in range(2))
        sides = self._sides(one, other)
        found = self._pairs_of_windows(sides, self._one(["JOIN", "LEFT JOIN"]), (one.time,))
        edges = found.columns[-3].name, found.columns[-2].name
        return Timed(found, edges=edges)

    def _window_join(self, depth: int) -> Relation:
        """Pairs of rows in the same window, or rows without a match."""
        sides = self._two_in_windows(depth)
        return self._pairs_of_windows(sides, self._one(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]), ())

    def _two_in_windows(self, depth: int) -> list[tuple[str, Timed]]:
        window = self._window()
        if window.kind == "SESSION":
            window = Window("TUMBLE", (3,))
        return self._sides(*(self._in_windows(depth - 1, window, inserts=True) for _ in range(2)))

    def _pairs_of_windows(self, sides: list[tuple[str, Timed]], kind: str, times: tuple[str, ...]) -> Relation:
        (one_side, one), (other_side, other) = sides
        on = [f"{one_side}.{a} = {other_side}.{b}" for a, b in zip(one.edges, other.edges, strict=True)]
        pairs = _pairs(one, other)
        if pairs and self._flag():
            on += [f"{one_side}.{a.name} = {other_side}.{b.name}" for a, b in self._some(pairs, 1, 2)]
        more = [Column(f"{one_side}.{name}", TIME) for name in one.edges]
        more += [Column(f"{one_side}.{name}", ROWTIME) for name in times]
        return self._joined(sides, kind, on, more)

    def _window_half_join(self, depth: int) -> Relation:
        """Rows that have, or do not have, a match in their window."""
        (one_side, one), (other_side, other) = self._two_in_windows(depth)
        columns = tuple(one.others)
        names = ", ".join(f"{one_side}.{column.name}" for column in columns)
        negated = "NOT " if self._flag() else ""
        on = [f"{one_side}.{a} = {other_side}.{b}" for a, b in zip(one.edges, other.edges, strict=True)]
        pairs = _pairs(one, other)
        right = f"({other.relation.sql}) AS {other_side}"
        if pairs and self._flag():
            a, b = self._one(pairs)
            found = (
                f"{one_side}.{a.name} {negated}IN (SELECT {other_side}.{b.name} FROM {right} WHERE {' AND '.join(on)})"
            )
        else:
            on += [f"{one_side}.{a.name} = {other_side}.{b.name}" for a, b in pairs[:1]]
            found = f"{negated}EXISTS (SELECT 1 FROM {right} WHERE {' AND '.join(on)})"
        return Relation(f"SELECT {names} FROM ({one.relation.sql}) AS {one_side} WHERE {found}", columns)


def _pairs(one: Timed, other: Timed) -> list[tuple[Column, Column]]:
    """Columns that may be equal."""
    return [(old, new) for old in one.others for new in other.others if old.kind == new.kind]
