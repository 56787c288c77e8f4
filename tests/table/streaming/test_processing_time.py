"""Processing time of rows that are updated or go: steps that keep rows find them again, whenever they go."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from tests.table.planned import manager_of, plan_query
from tests.table.running import Answer, Rows, run, run_over

from penstock.connectors.collection import ColumnsSource
from penstock.drivers.event_loop import SystemClock
from penstock.drivers.local import mini_cluster as local_job
from penstock.sql.data.types import IntType, VarCharType
from penstock.sql.logical.nodes import ALL
from penstock.sql.stream.planner import StreamPlanner
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.tables.tables import TableReader

COLUMNS = {"k": VarCharType(10), "v": IntType()}
GROUPS = "(SELECT k, SUM(v) AS s, PROCTIME() AS p FROM t GROUP BY k)"


class _Ticking(SystemClock):
    """A clock that never shows the same time twice."""

    _ticks = 0

    def now_ms(self) -> int:
        _Ticking._ticks += 1
        return super().now_ms() + _Ticking._ticks


def answer(sql: str, *rows: Any, **more: Rows) -> Answer:
    """What a query over rows of `t` gives, which are read one by one."""
    with mock.patch.object(local_job, "SystemClock", _Ticking):
        return run_over({"t": Rows(COLUMNS, rows, 1), **more}, sql)


def kept(order: str, *rows: Any, last: int = 1, columns: str = "k, v") -> list[tuple[Any, ...]]:
    """The rows that a top-N by processing time leaves in the end."""
    ranked = (
        f"SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {order}) AS n FROM (SELECT *, PROCTIME() AS p FROM t)"
    )
    return sorted(answer(f"SELECT {columns} FROM ({ranked}) WHERE n <= {last}", *rows).rows())


ROWS = [
    ("+I", ("a", 1)),
    ("+I", ("a", 2)),
    ("+I", ("b", 3)),
    ("-U", ("a", 1)),
    ("+U", ("a", 4)),
    ("+I", ("a", 5)),
    ("-D", ("a", 5)),
    ("-D", ("b", 3)),
]


def test_the_first_row_to_come_of_those_that_are_there() -> None:
    assert kept("p", *ROWS) == [("a", 2)]


def test_the_last_row_to_come_of_those_that_are_there() -> None:
    assert kept("p DESC", *ROWS) == [("a", 4)]


def test_a_row_that_goes_is_told_apart_by_columns_that_nobody_reads() -> None:
    rows = [("+I", ("a", 1)), ("+I", ("a", 2)), ("+I", ("a", 3)), ("-D", ("a", 2)), ("-D", ("a", 3))]
    assert kept("v", *rows, columns="k, p > TIMESTAMP '1970-01-02 00:00:00'") == [("a", True)]
    assert kept("p DESC", *rows[:4], last=2, columns="v") == [(1,), (3,)]


def test_of_rows_that_only_come_too_the_last_ones() -> None:
    rows = [("+I", ("a", one)) for one in range(5)]
    assert kept("p DESC", *rows, last=2) == [("a", 3), ("a", 4)]
    ranked = "SELECT *, ROW_NUMBER() OVER (ORDER BY p DESC) AS n FROM (SELECT *, PROCTIME() AS p FROM t)"
    found = run(f"SELECT v FROM ({ranked}) WHERE n <= 2", t=Rows(COLUMNS, rows))
    assert sorted(found.rows()) == [(3,), (4,)]


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT k, s, p IS NULL FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY s) AS n FROM {GROUPS}) "
        "WHERE n <= 2",
        f"SELECT g.k, g.s, p IS NULL FROM {GROUPS} AS g JOIN u ON g.k = u.k",
        f"SELECT g.k, g.s, p IS NULL FROM u LEFT JOIN {GROUPS} AS g ON g.k = u.k",
        f"SELECT k, s, p IS NULL FROM {GROUPS} WHERE k IN (SELECT k FROM u)",
        f"SELECT k, s, p IS NULL FROM (SELECT * FROM {GROUPS} UNION ALL SELECT * FROM {GROUPS} WHERE s < 0) "
        "ORDER BY s LIMIT 1",
    ],
)
def test_steps_that_keep_rows_keep_no_processing_time(query: str) -> None:
    rows = [("+I", ("a", one)) for one in (1, 2, 3)]
    assert answer(query, *rows, u=Rows(COLUMNS, [("a", 1)])).rows() == [("a", 6, False)]


def test_a_processing_time_that_is_read_behind_such_a_step_is_of_the_present() -> None:
    manager = manager_of("CREATE TABLE t (k STRING, v INT, p AS PROCTIME())")
    table = TableReader(ColumnsSource.__new__(ColumnsSource), ALL, has_before=True)
    planner = StreamPlanner(lambda one: None, lambda scan: table, StreamSession(), manager.calls())
    query = "SELECT k, p FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM t) WHERE n = 1"
    shown = planner.explained(plan_query(query, manager)).splitlines()
    assert shown[0] == "Project(select=[k, PROCTIME() AS p], changelogMode=[I,UB,UA,D])"
    assert "PROCTIME" not in shown[2]
