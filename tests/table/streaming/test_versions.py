"""K1: versions of a key are those of its rows, in whatever order the rows come."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given
from tests.table.streaming.system_time import SECOND, Job, Table

from penstock.sql.data.types import IntType
from penstock.sql.logical.nodes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from penstock.sql.stream.joins.temporal import TableVersions, Versions, ViewVersions
from penstock.sql.stream.rows.rows import RowEquality

Change = tuple[int, int, tuple[Any, ...], bool]
TIMES = st.integers(0, 8)
#: time, value, whether the row passes the filters of the view
ROWS = st.lists(st.tuples(TIMES, st.integers(0, 2), st.booleans()), max_size=8)


def of_table() -> Versions:
    return TableVersions(ends_by_before=False)


def of_view() -> Versions:
    return ViewVersions(ends_by_before=False, equality=RowEquality([IntType()]))


class Key:
    """The versions of one key."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._times: list[int] = []
        self._kept: list[Any] = []

    def note(self, kind: int, time: int, value: int, is_shown: bool = True) -> None:
        self._versions.note(self._times, self._kept, time, kind, (value,), is_shown)

    def valid(self, time: int) -> tuple[Any, ...] | None:
        return self._versions.valid(self._times, self._kept, time)

    def clean(self, time: int) -> None:
        self._versions.clean(self._times, self._kept, time)


def last_until(rows: list[tuple[int, int, bool]], time: int) -> tuple[Any, ...] | None:
    """The last of these rows until a time; of those with the same time the one that came last."""
    earlier = [row for row in rows if row[0] <= time]
    if not earlier:
        return None
    latest = max(row[0] for row in earlier)
    _, value, is_shown = [row for row in earlier if row[0] == latest][-1]
    return (value,) if is_shown else None


@given(ROWS, st.sampled_from([of_table, of_view]))
def test_inserts_in_any_order(rows: list[tuple[int, int, bool]], kind: Any) -> None:
    key = Key(kind())
    for row in rows:
        key.note(INSERT, *row)
    for time in range(10):
        assert key.valid(time) == last_until(rows, time)


@given(ROWS, st.data())
def test_deleted_rows_of_a_view_have_no_versions(rows: list[tuple[int, int, bool]], data: st.DataObject) -> None:
    distinct = [(time, number, is_shown) for number, (time, _, is_shown) in enumerate(rows)]
    deleted = data.draw(st.lists(st.sampled_from(distinct), unique=True)) if distinct else []
    key = Key(of_view())
    for row in distinct:
        key.note(INSERT, *row)
    for row in deleted:
        key.note(DELETE, *row)
    rest = [row for row in distinct if row not in deleted]
    for time in range(10):
        assert key.valid(time) == last_until(rest, time)


@given(st.lists(TIMES, min_size=1, max_size=6, unique=True).map(sorted), st.booleans())
def test_updates_of_one_row_are_its_versions_in_a_view_as_in_a_table(times: list[int], is_deleted: bool) -> None:
    table, view = Key(of_table()), Key(of_view())
    for key in (table, view):
        for number, time in enumerate(times):
            if number:
                key.note(UPDATE_BEFORE, times[number - 1], number - 1)
            key.note(UPDATE_AFTER if number else INSERT, time, number)
        if is_deleted:
            key.note(DELETE, times[-1], len(times) - 1)
    for time in range(10):
        assert view.valid(time) == table.valid(time)


@given(
    st.lists(st.tuples(st.sampled_from([INSERT, DELETE, UPDATE_BEFORE]), TIMES, st.integers(0, 1)), max_size=12),
    TIMES,
    st.sampled_from([of_table, of_view]),
)
def test_versions_from_a_time_on_stay_when_earlier_ones_are_forgotten(
    changes: list[tuple[int, int, int]], time: int, kind: Any
) -> None:
    key, cleaned = Key(kind()), Key(kind())
    for change in changes:
        key.note(*change)
        cleaned.note(*change)
    cleaned.clean(time)
    for later in range(time, 10):
        assert cleaned.valid(later) == key.valid(later)


# --- queries ----------------------------------------------------------------------------------------------------------

VIEW = """CREATE VIEW v AS SELECT k, rate, ts FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS place FROM rates) WHERE place = 1{}"""
ORDERS = Table(
    "id INT, k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '30' SECOND",
    [(1, 1, 7 * SECOND), (2, 1, 12 * SECOND), (3, 1, 22 * SECOND), (4, 2, 7 * SECOND)],
)
RATE = "k INT, rate INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '30' SECOND"
OUT_OF_ORDER: list[Any] = [(1, 200, 10 * SECOND), (1, 100, 5 * SECOND), (1, 50, 20 * SECOND)]
UPDATED: list[Any] = [
    ("+I", (1, 100, 5 * SECOND)),
    ("-U", (1, 100, 5 * SECOND)),
    ("+U", (1, 200, 10 * SECOND)),
    ("+I", (1, 50, 20 * SECOND)),
]


def joined(rates: Table, condition: str = "", parallelism: int = 1) -> list[tuple[Any, ...]]:
    sql = "SELECT o.id, v.rate FROM o LEFT JOIN v FOR SYSTEM_TIME AS OF o.ts AS v ON o.k = v.k"
    return Job(sql, {"o": ORDERS, "rates": rates}, [VIEW.format(condition)], parallelism=parallelism).rows()


def test_versions_of_a_view_that_come_out_of_order() -> None:
    for parallelism in (1, 3):
        answer = joined(Table(RATE, OUT_OF_ORDER), parallelism=parallelism)
        assert answer == [(1, 100), (2, 200), (3, 50), (4, None)]


def test_filter_of_a_view_asks_the_version_and_no_earlier_row() -> None:
    answer = joined(Table(RATE, OUT_OF_ORDER), " AND rate > 60 AND rate <> 200")
    assert answer == [(1, 100), (2, None), (3, None), (4, None)]


def test_view_of_a_table_with_updates_keeps_replaced_versions() -> None:
    assert joined(Table(RATE, UPDATED)) == [(1, 100), (2, 200), (3, 50), (4, None)]
    inserts = [("+I", row) for row in OUT_OF_ORDER]
    deleted = [*inserts, ("-D", (1, 50, 20 * SECOND))]
    assert joined(Table(RATE, deleted)) == [(1, 100), (2, 200), (3, 200), (4, None)]
    assert joined(Table(RATE, [*UPDATED, ("-D", (1, 50, 20 * SECOND)), ("-D", (1, 200, 10 * SECOND))])) == [
        (1, 100),
        (2, None),
        (3, None),
        (4, None),
    ]


def test_view_of_a_table_by_key_is_the_table() -> None:
    by_key = Table(f"{RATE}, PRIMARY KEY (k) NOT ENFORCED", [*UPDATED[:3], ("-D", (1, 200, 10 * SECOND))])
    assert joined(by_key) == [(1, 100), (2, None), (3, None), (4, None)]


def test_declared_key_of_an_append_only_table_has_versions() -> None:
    rates = Table(f"{RATE}, PRIMARY KEY (k) NOT ENFORCED", OUT_OF_ORDER)
    sql = "SELECT o.id, r.rate FROM o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.k = r.k"
    assert Job(sql, {"o": ORDERS, "rates": rates}).rows() == [(1, 100), (2, 200), (3, 50), (4, None)]
