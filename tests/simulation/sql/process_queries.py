"""Queries of process table functions, each with what it means.

What a function emits depends on the order of rows and on when watermarks come, which differ from run to run. So these
functions emit what any order gives: numbers that count calls, and timers that each row sets for itself. Rows in the
order of their times, and timers that fire when all rows have come, show more.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Final

from tests.simulation.sql.evaluation import NS, RT, A, K, grouped, known
from tests.simulation.sql.queries import Query, Tables
from tests.simulation.sql.tables import INSERTED, Row, TableMaker

from penstock.common import Row as UserRow
from penstock.common import RowKind
from penstock.table import ChangelogMode, ListView, MapView, ProcessTableFunction
from penstock.table.udf import ArgumentTrait, ChangelogContext, Context, OnTimerContext, StateHint

SET: Final = ArgumentTrait.SET_SEMANTIC_TABLE
#: (ms) how long after a row its timer fires, and after this one another; the second time is odd, so it is never the
#: time of a row's timer
GAP_MS, CHAIN_MS = 20, 15
#: (ms) the time after all rows
FAR_MS: Final = 10**9


class Calls:
    """How many calls there were."""

    count: int = 0


class Sides:
    """How many rows came from each table."""

    left: int = 0
    right: int = 0


class Timers:
    """How many timers have fired, and the time of the latest row."""

    fired: int = 0
    last_ms: int = 0


class Meeting(ProcessTableFunction):
    """Counts the rows of each of two tables, and of each value; keeps them in all kinds of state."""

    result_type = "ROW<what STRING, n BIGINT>"

    def eval(
        self,
        sides: Annotated[Sides, StateHint()],
        both: Annotated[Calls, StateHint(ttl="10 d")],
        of_values: MapView[str, int],
        all_rows: ListView[int],
        left: Annotated[UserRow | None, SET],
        right: Annotated[UserRow | None, SET],
    ) -> Iterator[tuple[str, int]]:
        row = right if left is None else left
        assert row is not None
        if left is None:
            sides.right += 1
            yield "right", sides.right
        else:
            sides.left += 1
            yield "left", sides.left
        both.count += 1
        yield "both", both.count
        value = f"value {row.a}"
        of_value = (of_values.get(value) or 0) + 1
        of_values.put(value, of_value)
        yield value, of_value
        all_rows.add(both.count)
        yield "all", sum(all_rows)


def meetings(chance: random.Random, make: TableMaker) -> Query:
    """Two tables that share state."""
    sql = "SELECT k, what, n FROM f(`left` => TABLE t PARTITION BY k, `right` => TABLE u PARTITION BY k, uid => 'f')"

    def answer(tables: Tables) -> Counter[Row]:
        expected: Counter[Row] = Counter()
        for (key,), rows in grouped(tables["t"] + tables["u"], K).items():
            counts = Counter(f"value {row[A]}" for row in rows)
            counts["both"] = len(rows)
            for name, table in (("left", "t"), ("right", "u")):
                counts[name] = sum(row[K] == key for row in tables[table])
            expected.update((key, what, n) for what, count in counts.items() for n in range(1, count + 1))
            expected.update((key, "all", n * (n + 1) // 2) for n in range(1, len(rows) + 1))
        return expected

    return Query("meeting", sql, (make.table("t", (INSERTED,)), make.table("u", (INSERTED,))), answer, function=Meeting)


class Waking(ProcessTableFunction):
    """Sets, replaces and clears timers with and without names, which count themselves when they fire."""

    result_type = "ROW<what STRING, n BIGINT>"

    def eval(
        self,
        ctx: Context,
        calls: Annotated[Calls, StateHint()],
        timers: Annotated[Timers, StateHint(ttl="10 d")],
        left: Annotated[UserRow | None, SET],
        right: Annotated[UserRow | None, SET],
    ) -> Iterator[tuple[str, int]]:
        row, name = (right, "right") if left is None else (left, "left")
        assert row is not None
        times = ctx.time_context(int)
        time_ms, watermark_ms = times.time(), times.table_watermark()
        assert time_ms is not None
        assert watermark_ms is None or watermark_ms < time_ms
        calls.count += 1
        yield "row", calls.count
        times.register_on_time(time_ms + GAP_MS)
        times.register_on_time(time_ms + GAP_MS)
        times.register_on_time(f"{name} {time_ms}", time_ms + 1)
        times.register_on_time(f"{name} {time_ms}", time_ms + GAP_MS + 1)
        if row.a == 0:
            times.register_on_time(FAR_MS)
            times.clear_timer(FAR_MS)
        if row.a == -1:
            times.clear_timer(f"{name} {time_ms}")
        timers.last_ms = max(timers.last_ms, time_ms)
        times.register_on_time("last", FAR_MS + timers.last_ms)

    def on_timer(self, ctx: OnTimerContext, calls: Calls, timers: Timers) -> Iterator[tuple[str, int]]:
        """Count the timer, and set another one after some of them."""
        times = ctx.time_context(int)
        time_ms, name = times.time(), ctx.current_timer()
        assert time_ms is not None
        timers.fired += 1
        yield "fired", timers.fired
        if name == "last":
            yield "last", time_ms - FAR_MS
            yield "rows", calls.count
            return
        yield "timer" if name is None else name.split()[0], time_ms
        if name is None and time_ms % 6 == 0:
            times.register_on_time(time_ms + CHAIN_MS)


class WakingOfOne(Waking):
    """The same with one table."""

    def eval(  # type: ignore[override]
        self,
        ctx: Context,
        calls: Annotated[Calls, StateHint()],
        timers: Annotated[Timers, StateHint(ttl="10 d")],
        left: Annotated[UserRow, SET],
    ) -> Iterator[tuple[str, int]]:
        yield from super().eval(ctx, calls, timers, left, None)


def timers(chance: random.Random, make: TableMaker) -> Query:
    """Timers of the rows of one table, or of two."""
    has_two = chance.random() < 0.5
    second = "`right` => TABLE g PARTITION BY k, " if has_two else ""
    sql = f"SELECT k, what, n FROM f(`left` => TABLE e PARTITION BY k, {second}on_time => DESCRIPTOR(rt), uid => 'f')"

    def answer(tables: Tables) -> Counter[Row]:
        expected: Counter[Row] = Counter()
        named = [(name, row) for name, table in (("left", "e"), ("right", "g")) for row in tables.get(table, [])]
        for key in {row[K] for _, row in named}:
            rows = [(name, row[RT] // NS, row[A]) for name, row in named if row[K] == key]
            unnamed = {time_ms + GAP_MS for _, time_ms, _ in rows}
            unnamed |= {time_ms + CHAIN_MS for time_ms in unnamed if time_ms % 6 == 0}
            fired = [("timer", time_ms) for time_ms in unnamed]
            fired += [(name, time_ms + GAP_MS + 1) for name, time_ms, a in rows if a != -1]
            expected.update((key, *timer) for timer in fired)
            expected.update((key, "fired", n) for n in range(1, len(fired) + 2))
            expected.update((key, "row", n) for n in range(1, len(rows) + 1))
            expected.update([(key, "last", max(time_ms for _, time_ms, _ in rows)), (key, "rows", len(rows))])
        return expected

    sources = (make.timed("e"), make.timed("g")) if has_two else (make.timed("e"),)
    name = "timers of two tables" if has_two else "timers"
    return Query(name, sql, sources, answer, function=Waking if has_two else WakingOfOne)


class Following(ProcessTableFunction):
    """Shows each row with the one before; rows with 0 clear all state and timers."""

    result_type = "ROW<what STRING, n BIGINT, `before` BIGINT>"

    def eval(
        self,
        ctx: Context,
        calls: Annotated[Calls, StateHint()],
        before: Annotated[UserRow, StateHint(type="ROW<a INT>")],
        e: Annotated[UserRow, SET],
    ) -> Iterator[tuple[str, int, int | None]]:
        calls.count += 1
        yield f"row {e.a}", calls.count, before.a
        before["a"] = e.a
        times = ctx.time_context(int)
        time_ms = times.time()
        assert time_ms is not None
        if e.a == 0:
            ctx.clear_all()
        else:
            times.register_on_time(FAR_MS + time_ms)
            times.register_on_time(f"named {e.a}", FAR_MS + time_ms)

    def on_timer(
        self, ctx: OnTimerContext, calls: Calls, before: UserRow
    ) -> Iterator[tuple[str, int | None, int | None]]:
        """Show the state as all rows have left it."""
        yield ctx.current_timer() or "timer", ctx.time_context(int).time(), before.a
        yield "rows", calls.count, None


def in_order(chance: random.Random, make: TableMaker) -> Query:
    """Rows that wait for the watermark, and come in the order of their times."""
    order = "PARTITION BY k ORDER BY rt, on_time => DESCRIPTOR(rt)"
    sql = f"SELECT k, what, n, `before` FROM f(e => TABLE e {order}, uid => 'f')"

    def answer(tables: Tables) -> Counter[Row]:
        expected: Counter[Row] = Counter()
        for (key,), rows in grouped(tables["e"], K).items():
            timers: dict[str | int, int] = {}
            before, count = None, 0
            for row in sorted(rows, key=lambda row: row[RT]):
                count += 1
                expected[key, f"row {row[A]}", count, before] += 1
                before, time_ms = row[A], FAR_MS + row[RT] // NS
                timers[time_ms] = timers[f"named {before}"] = time_ms
                if before == 0:
                    before, count = None, 0
                    timers.clear()
            for timer, time_ms in timers.items():
                expected[key, timer if isinstance(timer, str) else "timer", time_ms, before] += 1
                expected[key, "rows", count, None] += 1
        return expected

    return Query("in order", sql, (make.timed("e"),), answer, function=Following)


class Summing(ProcessTableFunction):
    """Counts and sums rows of a changelog, and gives a changelog with previous rows."""

    result_type = "ROW<n BIGINT, total BIGINT>"

    def get_changelog_mode(self, context: ChangelogContext) -> ChangelogMode:
        """All changes."""
        return ChangelogMode.all()

    def eval(
        self,
        ctx: Context,
        sums: Annotated[UserRow, StateHint(type="ROW<n BIGINT, total BIGINT>")],
        t: Annotated[UserRow, SET, ArgumentTrait.SUPPORT_UPDATES],
    ) -> Iterator[UserRow]:
        before = [sums.n, sums.total]
        by = 1 if t.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1
        sums["n"] = (before[0] or 0) + by
        sums["total"] = (before[1] or 0) + by * (t.a or 0)
        if not sums.n:
            yield UserRow.of_kind(RowKind.DELETE, *before)
            ctx.clear_all_state()
        elif before[0] is None:
            yield UserRow(*sums)
        else:
            if ctx.get_changelog_mode().contains(RowKind.UPDATE_BEFORE):
                yield UserRow.of_kind(RowKind.UPDATE_BEFORE, *before)
            yield UserRow.of_kind(RowKind.UPDATE_AFTER, *sums)


class Upserting(Summing):
    """The same without previous rows."""

    def get_changelog_mode(self, context: ChangelogContext) -> ChangelogMode:
        """Updates by key."""
        return ChangelogMode.upsert()


def changelogs(chance: random.Random, make: TableMaker) -> Query:
    """Changes that arrive, and changes that leave."""
    function = chance.choice((Summing, Upserting))
    sql = "SELECT k, n, total FROM f(t => TABLE t PARTITION BY k, uid => 'f')"

    def answer(tables: Tables) -> Counter[Row]:
        groups = grouped(tables["t"], K).items()
        return Counter((*key, len(rows), sum(known(rows, A))) for key, rows in groups)

    return Query(f"changelog by {function.__name__.lower()}", sql, (make.table("t"),), answer, function=function)


SHAPES: Final = (meetings, timers, timers, in_order, changelogs)
