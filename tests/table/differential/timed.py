"""Random queries over event time: windows, OVER, interval joins, temporal joins, and any further steps over them.

No result depends on the order of rows of one time. Rows are late in one table alone, which a query reads at most once:
in a query with two inputs the order in which their watermarks arrive would decide whether a row is late. Steps over
late rows carry the watermark that preceded each row, as a column that DuckDB alone has; what drops late rows in
Penstock compares it there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.table.differential.chance import Chance
from tests.table.differential.dialects import both
from tests.table.differential.kinds import DOUBLE, INT, ROWTIME, TEXT, TIME, Kind
from tests.table.differential.lateness import allows_sessions
from tests.table.differential.queries import EARLY, LATE_UNTIL_RESTART, NO_BATCH
from tests.table.differential.relations import Column, Relation, Timed, join_names, with_prefix
from tests.table.differential.tables import TableMaker
from tests.table.differential.window_queries import WindowQueries, is_new, last_ms
from tests.table.differential.windows import Window

#: the names of a view of the last version of each key, and of the table that it reads
VERSIONED_VIEW, VERSIONS_OF_VIEW = "last_w", "w"


class TimedQueries(WindowQueries):
    """Builds queries with event time.

    Args:
        chance: of the query.
        tables: of the world.
    """

    def __init__(self, chance: Chance, tables: TableMaker) -> None:
        super().__init__(chance, tables)
        columns = tables.timed_columns
        self._timed_tables = [
            Timed(Relation(f"SELECT {join_names(columns)} FROM {name}", columns), name != "g", name == "f")
            for name in "efg"
        ]
        #: The gap (ms) and the keys of sessions of late rows, by the name of the table that DuckDB has them in.
        self.sessions: dict[str, tuple[int, tuple[int, ...]]] = {}
        #: of the planner
        self.options: dict[str, str] = {}
        self._reads_late_rows = False

    def _steps(self) -> list[Callable[[int], Relation]]:
        return [*super()._steps(), *([self.timed_result] * 5), *([self.late_result] * 2)]

    def timed_result(self, depth: int) -> Relation:
        """A query whose last step works by event time."""
        steps: list[Callable[[int], Relation] | None] = [
            self._interval_outer_join,
            self._window_join,
            self._window_half_join,
            self._window_one_row,
            self._window_set_operation,
            self._window_result,
            self._last_row,
        ]
        step = self._pick([*[None] * len(steps), *steps])
        return self._settled(self.timed(depth)) if step is None or depth < 2 else step(depth)

    def early_result(self, depth: int) -> Relation:
        """Groups of windows in the older syntax, which may send results before the end of a window."""
        self.features.add(EARLY)
        lateness_s = 0
        if self._one_in(2):
            self.features.add(LATE_UNTIL_RESTART)
            inner = self._late_rows()
            lateness_s = self._number(0, 4)
            if lateness_s:
                late_fire = {"late-fire.enabled": "true", "late-fire.delay": "0 s", "allow-lateness": f"{lateness_s} s"}
                self.options |= {f"table.exec.emit.{key}": value for key, value in late_fire.items()}
        else:
            # Other windows refuse the option that asks for early results.
            rows = self._pick(self._timed_tables[:2])
            inner = self._select_kinds(rows, self._choose_kinds(rows), depth) if self._flag() else rows
        return self._settled(self._grouped_rows(inner, self._pick(["TUMBLE", "HOP"]), lateness_s))

    def result_of_versions(self, depth: int) -> Relation:
        """A query whose last step finds versions."""
        return self._settled(self._join_versions(depth))

    def timed(self, depth: int) -> Timed:
        """A query with a column of event time, which draws from a branch of its own."""
        outer, self._chance = self._chance, self._chance.next_branch()
        try:
            if depth == 0:
                return self._pick(self._timed_tables)
            return self._pick(self._timed_steps())(depth)
        finally:
            self._chance = outer

    def _timed_steps(self) -> list[Callable[[int], Timed]]:
        return [
            lambda _: self._pick(self._timed_tables),
            self._timed_select,
            self._timed_union,
            self._over_time,
            self._interval_join,
            self._join_versions,
            self._first_row,
            *([self._windowed] * 5),
            *([self._grouped] * 2),
        ]

    def _append_only(self, depth: int) -> Timed:
        """A query with event time and without updates and deletions."""
        timed = self.timed(depth)
        return timed if timed.is_append_only else self._timed_tables[0]

    def _of_distinct_times(self, depth: int) -> Timed:
        """An append-only query whose rows have different times."""
        timed = self._append_only(depth)
        return timed if timed.has_distinct_times else self._timed_tables[1]

    def _settled(self, timed: Timed) -> Relation:
        """The rows with their time as an ordinary column.

        OVER in the order of event time refuses updates, as in Flink, so the time of rows with updates is cast.
        """
        columns = [self._column(TIME if column.kind == ROWTIME else column.kind) for column in timed.relation.columns]
        casts = self._flag() or not timed.is_append_only
        selected = []
        for old, new in zip(timed.relation.columns, columns, strict=True):
            is_cast = casts and old.kind == ROWTIME
            text = both(f"CAST({old.name} AS TIMESTAMP(3))", old.name) if is_cast else old.name
            selected.append(f"{text} AS {new.name}")
        return Relation(f"SELECT {', '.join(selected)} FROM ({timed.relation.sql}){self._as()}", tuple(columns))

    # --- rows that keep their time ------------------------------------------------------------------------------------

    def _timed_select(self, depth: int) -> Timed:
        inner = self.timed(depth - 1)
        return self._select_kinds(inner, self._choose_kinds(inner), 2)

    def _choose_kinds(self, *inputs: Timed) -> list[Kind]:
        """Some kinds of columns that all inputs have."""
        kinds = [INT, TEXT]
        for kind in inputs[0].relation.kinds():
            has_all = all(kind in timed.relation.kinds() for timed in inputs)
            kinds += [kind] if has_all and kind not in (INT, TEXT, TIME, ROWTIME) else []
        return [self._pick(kinds) for _ in range(self._number(1, 3))]

    def _select_kinds(self, inner: Timed, kinds: list[Kind], depth: int) -> Timed:
        """Columns of these kinds, and the time."""
        columns = [*(self._column(kind) for kind in kinds), self._column(ROWTIME)]
        texts = [*(self.expression(inner.relation, kind, depth) for kind in kinds), inner.time]
        selected = ", ".join(f"{text} AS {column.name}" for text, column in zip(texts, columns, strict=True))
        carried, watermark = self._carried(inner)
        where = self._where(inner.relation, depth)
        sql = f"SELECT {selected}{carried} FROM ({inner.relation.sql}){self._as()}{where}"
        relation = Relation(sql, tuple(columns))
        return Timed(relation, inner.is_append_only, inner.has_distinct_times, watermark=watermark)

    def _carried(self, inner: Timed) -> tuple[str, str | None]:
        """What a select of DuckDB adds for the watermark before each row, and its new name."""
        if inner.watermark is None:
            return "", None
        name = self._column(TIME).name
        return both("", f", {inner.watermark} AS {name}"), name

    def _timed_union(self, depth: int) -> Timed:
        one, other = self.timed(depth - 1), self.timed(depth - 1)
        kinds = self._choose_kinds(one, other)
        one, other = self._select_kinds(one, kinds, 1), self._select_kinds(other, kinds, 1)
        sql = f"({one.relation.sql}) UNION ALL ({other.relation.sql})"
        return Timed(Relation(sql, one.relation.columns), one.is_append_only and other.is_append_only)

    def _over_time(self, depth: int) -> Timed:
        return self._over(self._append_only(depth - 1))

    def _over(self, inner: Timed) -> Timed:
        by = join_names(self._several(inner.others, 0, 2))
        seconds = self._number(0, 6)
        frames = ["", f" RANGE BETWEEN INTERVAL '{seconds}' SECOND PRECEDING AND CURRENT ROW"]
        if inner.watermark is not None:
            # A bounded frame takes rows that are late for the watermark, if none of their partition was later.
            frames = [""]
        elif inner.has_distinct_times:
            frames += [f" ROWS BETWEEN {self._number(1, 3)} PRECEDING AND CURRENT ROW"] * 2
        window = f"{f'PARTITION BY {by} ' if by else ''}ORDER BY {inner.time}{self._pick(frames)}"
        columns, selected = list(inner.relation.columns), [column.name for column in inner.relation.columns]
        for _ in range(self._number(1, 2)):
            call, kind = self._pick(self._calls_over(inner))
            columns.append(self._column(kind))
            selected.append(f"{call} OVER ({window}) AS {columns[-1].name}")
        late = "" if inner.watermark is None else both("", f" WHERE {is_new(inner.watermark, inner.time)}")
        sql = f"SELECT {', '.join(selected)} FROM ({inner.relation.sql}){self._as()}{late}"
        return Timed(Relation(sql, tuple(columns)), has_distinct_times=inner.has_distinct_times)

    @staticmethod
    def _calls_over(inner: Timed) -> list[tuple[str, Kind]]:
        calls = [("COUNT(*)", INT)]
        for column in inner.others:
            calls.append((f"COUNT({column.name})", INT))
            if column.kind.has_order:
                calls += [(f"{function}({column.name})", column.kind) for function in ("MIN", "MAX")]
            if column.kind in (INT, DOUBLE):
                calls.append((f"SUM({column.name})", column.kind))
        return calls

    def _first_row(self, depth: int) -> Timed:
        inner = self._of_distinct_times(depth - 1)
        return Timed(self._one_row(inner, "ASC", inner.relation.columns), has_distinct_times=True)

    def _last_row(self, depth: int) -> Relation:
        inner = self._of_distinct_times(depth - 1)
        return self._one_row(inner, "DESC", tuple(inner.others))

    def _one_row(self, inner: Timed, order: str, columns: tuple[Column, ...]) -> Relation:
        by, number = self._several(inner.others, 1, 2), self._column(INT).name
        window = f"PARTITION BY {join_names(by)} ORDER BY {inner.time} {order}"
        sql = (
            f"SELECT {join_names(columns)} FROM (SELECT *, ROW_NUMBER() OVER ({window}) AS {number} "
            f"FROM ({inner.relation.sql}){self._as()}){self._as()} WHERE {number} = 1"
        )
        return Relation(sql, columns)

    # --- interval joins -----------------------------------------------------------------------------------------------

    def _interval_join(self, depth: int) -> Timed:
        kind, kept = self._pick([("JOIN", 0), ("JOIN", 1), ("LEFT JOIN", 0), ("RIGHT JOIN", 1)])
        return Timed(self._within(self._two_sides(depth), kind, (kept,)))

    def _interval_outer_join(self, depth: int) -> Relation:
        """Pairs in which either side may be missing: they have no event time."""
        kind = self._pick(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        return self._within(self._two_sides(depth), kind, ())

    def _two_sides(self, depth: int) -> list[tuple[str, Timed]]:
        one, other = self._append_only(depth - 1), self._append_only(depth - 1)
        if not self._pairs_of(one, other):
            one = other = self._timed_tables[0]
        return self._sides(one, other)

    def _sides(self, *inputs: Timed) -> list[tuple[str, Timed]]:
        return [(self._alias(), timed) for timed in inputs]

    def _within(self, sides: list[tuple[str, Timed]], kind: str, kept: tuple[int, ...]) -> Relation:
        """Pairs of rows whose times are near. `kept`: the sides whose time is a column."""
        (one_side, one), (other_side, other) = sides
        time, near = f"{one_side}.{one.time}", f"{other_side}.{other.time}"
        lower, upper = self._number(0, 4), self._number(0, 4)
        first, last = f"{near} - INTERVAL '{lower}' SECOND", f"{near} + INTERVAL '{upper}' SECOND"
        between = self._pick([f"{time} BETWEEN {first} AND {last}", f"{time} > {first} AND {time} <= {last}"])
        equal = [
            f"{one_side}.{a.name} = {other_side}.{b.name}" for a, b in self._several(self._pairs_of(one, other), 1, 2)
        ]
        times = [Column((time, near)[place], ROWTIME) for place in kept]
        return self._joined(sides, kind, [*equal, between], times)

    def _joined(self, sides: list[tuple[str, Timed]], kind: str, on: list[str], more: list[Column]) -> Relation:
        """Pairs of rows. `more`: columns besides the others of both."""
        (one_side, one), (other_side, other) = sides
        found = [column for side, timed in sides for column in with_prefix(timed.others, side)]
        if self._flag():
            on = [*on, self.condition(Relation("", tuple(found)), 1)]
        found += more
        columns = tuple(self._column(column.kind) for column in found)
        selected = ", ".join(f"{old.name} AS {new.name}" for old, new in zip(found, columns, strict=True))
        joined = f"({one.relation.sql}) AS {one_side} {kind} ({other.relation.sql}) AS {other_side}"
        return Relation(f"SELECT {selected} FROM {joined} ON {' AND '.join(on)}", columns)

    def _pairs_of(self, one: Timed, other: Timed) -> list[tuple[Column, Column]]:
        """Columns that may be equal, besides times."""
        pairs = self._pairs(Relation("", tuple(one.others)), Relation("", tuple(other.others)))
        return [pair for pair in pairs if pair[0].kind != TIME]

    # --- versions -----------------------------------------------------------------------------------------------------

    def _join_versions(self, depth: int) -> Timed:
        """Rows with the version of a key at their time. In DuckDB each version says until when it holds."""
        inner = self.timed(depth - 1)
        numbers = inner.relation.list_columns(INT)
        if not numbers:
            return inner
        self.features.add(NO_BATCH)
        side, versions = self._alias(), self._alias()
        name, source = self._pick([("v", "v"), (VERSIONED_VIEW, VERSIONS_OF_VIEW)])
        time = f"{side}.{inner.time}"
        until = "lead(ts) OVER (PARTITION BY k ORDER BY ts) AS until"
        table = both(f"{name} FOR SYSTEM_TIME AS OF {time}", f"(SELECT *, {until} FROM {source})")
        holds = f" AND NOT {versions}.gone AND {versions}.ts <= {time}"
        on = f"{side}.{self._pick(numbers)} {self._pick(['=', '=', 'IS NOT DISTINCT FROM'])} {versions}.k"
        on += both("", f"{holds} AND ({versions}.until IS NULL OR {versions}.until > {time})")
        found = [*with_prefix(inner.others, side), *with_prefix(self._tables.columns, versions)]
        if self._flag():
            on += f" AND {self.condition(Relation('', tuple(found)), 1)}"
        names = [column.name for column in found]
        names += [both(f"CAST({versions}.ts AS TIMESTAMP(3))", f"{versions}.ts"), time]
        columns = [self._column(kind) for kind in (*(column.kind for column in found), TIME, ROWTIME)]
        selected = ", ".join(f"{text} AS {column.name}" for text, column in zip(names, columns, strict=True))
        where = f" WHERE {self.condition(Relation('', tuple(found)), 1)}" if self._one_in(3) else ""
        kind = self._pick(["JOIN", "LEFT JOIN"])
        sql = f"SELECT {selected} FROM ({inner.relation.sql}) AS {side} {kind} {table} AS {versions} ON {on}{where}"
        return Timed(Relation(sql, tuple(columns)), inner.is_append_only, inner.has_distinct_times)

    # --- late rows ----------------------------------------------------------------------------------------------------

    def late_result(self, depth: int) -> Relation:
        """A query over rows of which some are late. Further steps by event time may follow."""
        if self._reads_late_rows:
            return self.timed_result(depth)
        choices = [self._late_windows, self._late_windows, self._late_groups, self._late_over]
        if allows_sessions(self._tables.table("l")):
            choices.append(self._late_sessions)
        found = self._pick(choices)()
        if found.relation.list_columns(ROWTIME) and depth > 1 and self._flag():
            found = self._aggregate_windows(self._rows_in(found, self._window(), True))
        return self._settled(found)

    def _late_rows(self) -> Timed:
        """The rows of the table with late rows, or what a select makes of them."""
        self._reads_late_rows = True
        columns, watermark = self._tables.timed_columns, self._column(TIME).name
        carried = both("", f", wm AS {watermark}")
        rows = Timed(Relation(f"SELECT {join_names(columns)}{carried} FROM l", columns), watermark=watermark)
        return self._select_kinds(rows, self._choose_kinds(rows), 1) if self._one_in(3) else rows

    def _late_windows(self) -> Timed:
        window = self._window()
        if window.kind == "SESSION":
            window = Window("TUMBLE", (3,))
        rows = self._rows_in(self._late_rows(), window, True)
        if not self._one_in(4):
            return self._aggregate_windows(rows)
        late = is_new(rows.watermark, last_ms(rows.edges[1]))
        kept = Relation(
            f"SELECT * FROM ({rows.relation.sql}){self._as()}{both('', f' WHERE {late}')}", rows.relation.columns
        )
        return self._rank_windows(replace(rows, relation=kept, watermark=None))

    def _late_groups(self) -> Timed:
        self.features.add(LATE_UNTIL_RESTART)
        return self._grouped_rows(self._late_rows(), self._pick(["TUMBLE", "HOP"]))

    def _late_over(self) -> Timed:
        """OVER, whose last result a condition reads: without a reader it is no step, and drops no late row."""
        self.features.add(LATE_UNTIL_RESTART)
        over = self._over(self._late_rows())
        relation = over.relation
        read = f"COALESCE(CAST({relation.columns[-1].name} AS STRING), '') <> 'read'"
        return replace(
            over, relation=Relation(f"SELECT * FROM ({relation.sql}){self._as()} WHERE {read}", relation.columns)
        )

    def _late_sessions(self) -> Timed:
        """Sessions of late rows, which `lateness` finds."""
        self._reads_late_rows = True
        columns, gap = self._tables.timed_columns, self._number(1, 4)
        keys = self._several(columns[:3], 0, 2)
        name = f"sessions_{self._alias()}"
        self.sessions[name] = gap * 1000, tuple(columns.index(key) for key in keys)
        window = Window("SESSION", (gap,))
        by = f" PARTITION BY ({join_names(keys)})" if keys else ""
        edges = "s.window_start, s.window_end, s.window_end - INTERVAL '1 millisecond' AS window_time"
        table = both(
            f"TABLE(SESSION((SELECT {join_names(columns)} FROM l){by}, DESCRIPTOR(ts), {window.arguments}))",
            f"(SELECT l.*, {edges} FROM l JOIN {name} AS s ON s.number = l.number) AS {self._alias()}",
        )
        return self._aggregate_windows(self._windowed_rows(table, Relation("", columns), "ts", keys))
