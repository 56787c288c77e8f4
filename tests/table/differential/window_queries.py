"""Random queries over windows: their rows, groups, ranks, joins and set operations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.table.differential.dialects import both
from tests.table.differential.kinds import INT, MAP, ROWTIME, TEXT, TIME
from tests.table.differential.queries import SET_OPERATORS, Queries
from tests.table.differential.relations import NO_EDGES, Column, Relation, Timed, join_names, with_prefix
from tests.table.differential.windows import Window, edges_around, grouped_call, render_windows


class WindowQueries(Queries):
    """Builds queries over windows of rows with event time, which a subclass knows."""

    @abstractmethod
    def timed(self, depth: int) -> Timed:
        """A query with a column of event time."""

    @abstractmethod
    def _append_only(self, depth: int) -> Timed:
        """The same without updates and deletions."""

    @abstractmethod
    def _of_distinct_times(self, depth: int) -> Timed:
        """An append-only query whose rows have different times."""

    @abstractmethod
    def _settled(self, timed: Timed) -> Relation:
        """The rows with their time as an ordinary column."""

    @abstractmethod
    def _sides(self, *inputs: Timed) -> list[tuple[str, Timed]]:
        """Queries with their aliases."""

    @abstractmethod
    def _joined(self, sides: list[tuple[str, Timed]], kind: str, on: list[str], more: list[Column]) -> Relation:
        """Pairs of rows."""

    @abstractmethod
    def _pairs_of(self, one: Timed, other: Timed) -> list[tuple[Column, Column]]:
        """Columns that may be equal, besides times."""

    @abstractmethod
    def _carried(self, inner: Timed) -> tuple[str, str | None]:
        """What a select of DuckDB adds for the watermark before each row, and its new name."""

    # --- rows in windows ----------------------------------------------------------------------------------------------

    def _window(self) -> Window:
        step, times = self._number(1, 4), self._number(1, 3)
        sizes = {
            "TUMBLE": (step * times,),
            "HOP": (step, step * times + self._number(0, 1)),
            "CUMULATE": (step, step * times),
            "SESSION": (step,),
        }
        kind = self._pick(["TUMBLE", *sizes])
        return Window(kind, sizes[kind], 0 if kind == "SESSION" else self._pick([0, 0, self._number(-3, 3)]))

    def _aligned_window(self) -> Window:
        window = self._window()
        return Window("TUMBLE", (3,)) if window.kind == "SESSION" else window

    def _windowed(self, depth: int) -> Timed:
        """Rows with a window and its time, or what is computed of the windows."""
        return self._in_windows(depth, self._window(), needs_time=True)

    def _window_result(self, depth: int) -> Relation:
        """The same, perhaps without event time."""
        return self._settled(self._in_windows(depth, self._window(), by_window=True))

    def _in_windows(
        self,
        depth: int,
        window: Window,
        by_window: bool = False,
        append_only: bool = False,
        needs_time: bool = False,
    ) -> Timed:
        """Rows in given windows.

        `by_window`: whether their time has to be that of the window. `append_only`: whether rows must not leave.
        `needs_time`: whether they have to have event time.
        """
        if depth <= 1 or self._one_in(3):
            return self._window_rows(max(depth, 1), window, by_window, append_only)
        if self._number(1, 3) < 3:
            return self._window_aggregate(depth, window, needs_time)
        return self._pick([self._window_rank, self._windows_joined])(depth, window, append_only, needs_time)

    def _window_rows(self, depth: int, window: Window, by_window: bool, append_only: bool) -> Timed:
        """Each row with each of its windows. The time is that of the row, or of the window."""
        is_session = window.kind == "SESSION"
        inner = self._append_only(depth - 1) if is_session or append_only else self.timed(depth - 1)
        # The rows of a session come when it is over, and are late by their own time.
        return self._rows_in(inner, window, by_window or is_session or self._flag())

    def _rows_in(self, inner: Timed, window: Window, by_window: bool) -> Timed:
        is_session = window.kind == "SESSION"
        sortable = [column for column in inner.relation.columns if column.kind not in (ROWTIME, MAP)]
        keys = self._several(sortable, 0, 2) if is_session and sortable else []
        table = render_windows(window, inner.relation.sql, inner.time, [column.name for column in keys])
        rows = self._windowed_rows(table, inner.relation, inner.time, keys if is_session else None, by_window, inner)
        has_distinct_times = inner.has_distinct_times and not by_window and window.kind == "TUMBLE"
        return replace(rows, is_append_only=inner.is_append_only, has_distinct_times=has_distinct_times)

    def _windowed_rows(
        self,
        table: str,
        inner: Relation,
        row_time: str,
        keys: Sequence[Column] | None,
        by_window: bool = True,
        carrier: Timed | None = None,
    ) -> Timed:
        """A select of a window table. `keys`: of sessions; `carrier`: the query that may carry watermarks."""
        edges, time = (self._column(TIME), self._column(TIME)), "window_time" if by_window else row_time
        named = {column.name: self._column(column.kind) for column in inner.columns if column.kind != ROWTIME}
        if by_window and self._flag():
            # Without the cast the rows would have two event times.
            named[both(f"CAST({row_time} AS TIMESTAMP(3))", row_time)] = self._column(TIME)
        columns = {**named, "window_start": edges[0], "window_end": edges[1], time: self._column(ROWTIME)}
        carried, watermark = ("", None) if carrier is None else self._carried(carrier)
        selected = ", ".join(f"{old} AS {new.name}" for old, new in columns.items())
        relation = Relation(f"SELECT {selected}{carried} FROM {table}", tuple(columns.values()))
        session_keys = None if keys is None else tuple(named[column.name] for column in keys)
        names = edges[0].name, edges[1].name
        return Timed(relation, edges=names, session_keys=session_keys, watermark=watermark)

    # --- groups of windows --------------------------------------------------------------------------------------------

    def _window_aggregate(self, depth: int, window: Window, needs_time: bool) -> Timed:
        """Groups of the rows of each window. Sessions are grouped by their keys."""
        inner = self._in_windows(depth - 1, window, by_window=True, needs_time=needs_time)
        if window.kind == "SESSION" and inner.session_keys is None:
            return inner
        return self._aggregate_windows(inner, needs_time)

    def _aggregate_windows(self, inner: Timed, needs_time: bool = False) -> Timed:
        """Groups by the edges of windows, perhaps by their time, and by other columns."""
        is_session = inner.session_keys is not None
        keys = list(inner.session_keys) if inner.session_keys is not None else self._several(inner.others, 0, 2)
        times = [column for column in inner.relation.columns if column.kind == ROWTIME]
        times = times if needs_time or self._flag() else []
        grouped = [*(Column(name, TIME) for name in inner.edges), *times, *keys]
        columns = [self._column(column.kind) for column in grouped]
        selected = [f"{old.name} AS {new.name}" for old, new in zip(grouped, columns, strict=True)]
        calls = [self.call(Relation("", tuple(inner.others))) for _ in range(self._number(1, 3))]
        for call, kind in calls:
            columns.append(self._column(kind))
            selected.append(f"{call} AS {columns[-1].name}")
        names = [column.name for column in keys]
        by = [*inner.edges, *(column.name for column in times), *(names if is_session else self._sets(names))]
        # Rows that a condition leaves out do not hold a session together, in Flink and in Penstock.
        where = f" WHERE {self.condition(inner.relation, 1)}" if not is_session and self._one_in(4) else ""
        having = f" HAVING {calls[0][0]} IS NOT NULL" if self._one_in(4) else ""
        where = _with_new_rows(where, inner, last_ms(inner.edges[1]))
        sql = (
            f"SELECT {', '.join(selected)} FROM ({inner.relation.sql}){self._as()}{where} "
            f"GROUP BY {', '.join(by)}{having}"
        )
        return Timed(
            Relation(sql, tuple(columns)), edges=NO_EDGES if is_session else (columns[0].name, columns[1].name)
        )

    def _sets(self, keys: list[str]) -> list[str]:
        if not keys or not self._one_in(6):
            return keys
        names = ", ".join(keys)
        return [self._pick([f"ROLLUP ({names})", f"CUBE ({names})", f"GROUPING SETS (({names}), ())"])]

    def _grouped(self, depth: int) -> Timed:
        """Groups of windows in the older syntax."""
        return self._grouped_rows(self._append_only(depth - 1), self._pick(["TUMBLE", "HOP", "SESSION"]))

    def _grouped_rows(self, inner: Timed, kind: str, lateness_s: int = 0) -> Timed:
        """The groups of rows. `lateness_s`: how long (s) after its end a window still takes rows."""
        size = self._number(1, 4)
        window = Window(kind, (size, size * self._number(1, 3)) if kind == "HOP" else (size,))
        sortable = [column for column in inner.others if column.kind != MAP]
        keys = self._several(sortable, 0, min(2, len(sortable)))
        call = grouped_call(window, inner.time)
        of_window = {
            f"{kind}_{name}({inner.time}, {window.arguments})": column
            for name, column in (("START", "window_start"), ("END", "window_end"), ("ROWTIME", "window_time"))
        }
        shown = [both(text, column) for text, column in of_window.items()]
        columns = [self._column(TIME), self._column(TIME), self._column(ROWTIME)]
        columns += [self._column(key.kind) for key in keys]
        calls = [self.call(Relation("", tuple(inner.others))) for _ in range(self._number(1, 2))]
        columns += [self._column(result) for _, result in calls]
        texts = [*shown, *(key.name for key in keys), *(text for text, _ in calls)]
        selected = ", ".join(f"{text} AS {column.name}" for text, column in zip(texts, columns, strict=True))
        before, after = edges_around(window, inner.time, [key.name for key in keys])
        rows = f"{both('', before)}({inner.relation.sql}){both('', after)}{both(self._as(), '')}"
        where = _with_new_rows("", inner, f"{last_ms('window_end')} + INTERVAL '{lateness_s}' SECOND")
        names = join_names(keys)
        by = both(call, "window_start, window_end, window_time") + (f", {names}" if names else "")
        return Timed(Relation(f"SELECT {selected} FROM {rows}{where} GROUP BY {by}", tuple(columns)))

    # --- ranks, joins and set operations of windows -------------------------------------------------------------------

    def _window_rank(self, depth: int, window: Window, append_only: bool, needs_time: bool) -> Timed:
        """The first rows of each window, or of each group in a window."""
        inner = self._in_windows(depth - 1, window, by_window=True, append_only=append_only, needs_time=needs_time)
        return inner if inner.edges == NO_EDGES else self._rank_windows(inner)

    def _rank_windows(self, inner: Timed) -> Timed:
        sortable = self._sortable(inner)
        order = self._order(sortable.relation)
        ranked = self._ranked(sortable, order, self._number(1, 3), sortable.relation.columns)
        return replace(sortable, relation=ranked, session_keys=None)

    def _sortable(self, inner: Timed) -> Timed:
        """The rows without columns that cannot be sorted by: rows that tie have to be equal."""
        columns = tuple(column for column in inner.relation.columns if column.kind.has_order)
        if len(columns) == len(inner.relation.columns):
            return inner
        sql = f"SELECT {join_names(columns)} FROM ({inner.relation.sql}){self._as()}"
        return replace(inner, relation=Relation(sql, columns), session_keys=None)

    def _window_one_row(self, depth: int) -> Relation:
        """The first or the last row of each window by its own time, by which it is late for other steps."""
        inner = self._rows_in(self._of_distinct_times(depth - 1), Window("TUMBLE", (self._number(1, 6),)), False)
        order = f"{inner.time} {self._pick(['ASC', 'DESC'])}"
        return self._ranked(inner, order, self._number(1, 2), tuple(inner.others))

    def _ranked(self, inner: Timed, order: str, last: int, columns: tuple[Column, ...]) -> Relation:
        by = ", ".join([*inner.edges, *(column.name for column in self._several(inner.others, 0, 1))])
        number = self._column(INT).name
        sql = (
            f"SELECT {join_names(columns)} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {order}) "
            f"AS {number} FROM ({inner.relation.sql}){self._as()}){self._as()} WHERE {number} <= {last}"
        )
        return Relation(sql, columns)

    def _windows_joined(self, depth: int, window: Window, append_only: bool, needs_time: bool) -> Timed:
        """Pairs of rows in the same window, with the window and its time."""
        if window.kind == "SESSION":
            return self._window_rows(depth, window, True, append_only)
        one = self._in_windows(depth - 1, window, by_window=True, append_only=True, needs_time=needs_time)
        other = self._in_windows(depth - 1, window, by_window=True, append_only=True)
        kept = [one.time] if one.relation.list_columns(ROWTIME) else []
        found = self._pairs_of_windows(self._sides(one, other), self._pick(["JOIN", "LEFT JOIN"]), kept)
        edges = [column.name for column in found.columns[-2 - len(kept) :][:2]]
        return Timed(found, edges=(edges[0], edges[1]))

    def _window_join(self, depth: int) -> Relation:
        """Pairs of rows in the same window, or rows without a match."""
        kind = self._pick(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        return self._pairs_of_windows(self._two_in_windows(depth), kind, [])

    def _two_in_windows(self, depth: int) -> list[tuple[str, Timed]]:
        window = self._aligned_window()
        return self._sides(*(self._in_windows(depth - 1, window, append_only=True) for _ in range(2)))

    def _pairs_of_windows(self, sides: list[tuple[str, Timed]], kind: str, times: list[str]) -> Relation:
        """Pairs of rows in the same window. `times`: of the first side, to keep."""
        (one_side, one), (other_side, other) = sides
        on = [f"{one_side}.{a} = {other_side}.{b}" for a, b in zip(one.edges, other.edges, strict=True)]
        pairs = self._pairs_of(one, other)
        if pairs and self._flag():
            on += [f"{one_side}.{a.name} = {other_side}.{b.name}" for a, b in self._several(pairs, 1, 2)]
        more = [Column(f"{one_side}.{name}", TIME) for name in one.edges]
        more += [Column(f"{one_side}.{name}", ROWTIME) for name in times]
        return self._joined(sides, kind, on, more)

    def _window_half_join(self, depth: int) -> Relation:
        """Rows that have, or do not have, a match in their window."""
        (one_side, one), (other_side, other) = self._two_in_windows(depth)
        columns = tuple(one.others) or tuple(Column(name, TIME) for name in one.edges)
        names = join_names(with_prefix(columns, one_side))
        negated = "NOT " if self._flag() else ""
        on = [f"{one_side}.{a} = {other_side}.{b}" for a, b in zip(one.edges, other.edges, strict=True)]
        pairs = [pair for pair in self._pairs_of(one, other) if pair[0].kind in (INT, TEXT)]
        right = f"({other.relation.sql}) AS {other_side}"
        if pairs and self._flag():
            a, b = self._pick(pairs)
            query = f"SELECT {other_side}.{b.name} FROM {right} WHERE {' AND '.join(on)}"
            condition = f"{one_side}.{a.name} {negated}IN ({query})"
        else:
            on += [f"{one_side}.{a.name} = {other_side}.{b.name}" for a, b in pairs[:1]]
            condition = f"{negated}EXISTS (SELECT 1 FROM {right} WHERE {' AND '.join(on)})"
        return Relation(f"SELECT {names} FROM ({one.relation.sql}) AS {one_side} WHERE {condition}", columns)

    def _window_set_operation(self, depth: int) -> Relation:
        """A set operation of windows alone, or of windows and further columns."""
        operator = self._pick(SET_OPERATORS)
        (_, one), (_, other) = self._two_in_windows(depth)
        pairs = [pair for pair in self._pairs_of(one, other) if pair[0].kind in (INT, TEXT)]
        more = self._several(pairs, 0, 1) if pairs else []
        columns = tuple(self._column(kind) for kind in (TIME, TIME, *(mine.kind for mine, _ in more)))
        names: Mapping[int, list[str]] = {
            0: [*one.edges, *(mine.name for mine, _ in more)],
            1: [*other.edges, *(theirs.name for _, theirs in more)],
        }
        selects = []
        for place, timed in enumerate((one, other)):
            selected = ", ".join(f"{name} AS {column.name}" for name, column in zip(names[place], columns, strict=True))
            selects.append(f"SELECT {selected} FROM ({timed.relation.sql}){self._as()}")
        return Relation(f" {operator} ".join(selects), columns)


def last_ms(end: str) -> str:
    """The last millisecond of a window, in DuckDB."""
    return f"{end} - INTERVAL '1 millisecond'"


def is_new(watermark: str | None, bound: str) -> str:
    """Whether a row is not late, in DuckDB: whether the watermark before it is below a bound."""
    return f"({watermark} IS NULL OR {watermark} < {bound})"


def _with_new_rows(where: str, inner: Timed, bound: str) -> str:
    """A WHERE clause, or none, with the condition of DuckDB that a row is not late."""
    if inner.watermark is None:
        return where
    condition = is_new(inner.watermark, bound)
    return where + both("", f" AND {condition}" if where else f" WHERE {condition}")
