"""Filters go down a plan as far as the rows stay the same."""

from __future__ import annotations

import pytest
from tests.table.planned import manager_of, plan_query

from penstock.sql.logical.explain import plan_text
from penstock.sql.optimizer.pushdown import with_early_filters

TABLE = "CREATE TABLE t (a INT, b STRING, c INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)"


def lines(sql: str) -> list[str]:
    """The plan of a query with its filters further down, a node a line."""
    manager = manager_of(TABLE)
    return [
        line.strip() for line in plan_text(with_early_filters(plan_query(sql, manager), manager.calls())).splitlines()
    ]


def below(found: list[str], upper: str, lower: str) -> bool:
    """Whether the first node of one kind comes below the first of another one."""
    kinds = [line.partition("(")[0] for line in found]
    return kinds.index(upper) < kinds.index(lower)


@pytest.mark.parametrize(
    ("sql", "upper"),
    [
        ("SELECT * FROM (SELECT b, SUM(a) FROM t GROUP BY b) WHERE b = 'x'", "Aggregate"),
        ("SELECT * FROM (SELECT a FROM t UNION ALL SELECT c FROM t) WHERE a > 1", "SetOperation"),
        ("SELECT * FROM (SELECT a FROM t UNION SELECT c FROM t) WHERE a > 1", "Distinct"),
        ("SELECT * FROM (SELECT b, SUM(a) OVER (PARTITION BY b ORDER BY ts) FROM t) WHERE b = 'x'", "Over"),
        ("SELECT * FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND) WHERE a > 1", "WindowTable"),
        ("SELECT * FROM (SELECT x.a FROM t AS x JOIN t AS y ON x.a = y.a) WHERE a > 1", "Join"),
        ("SELECT * FROM t LEFT JOIN UNNEST(ARRAY[a, c]) AS u (e) ON e > 2 WHERE a > 1", "Correlate"),
        (
            "SELECT * FROM (SELECT x.a FROM t AS x LEFT JOIN (SELECT b, COUNT(*) AS n FROM t GROUP BY b) AS y "
            "ON x.b = y.b AND y.b = 'x')",
            "Aggregate",
        ),
    ],
)
def test_a_filter_goes_below(sql: str, upper: str) -> None:
    assert below(lines(sql), upper, "Filter")


@pytest.mark.parametrize(
    ("sql", "lower"),
    [
        ("SELECT * FROM (SELECT b, SUM(a) AS s FROM t GROUP BY b) WHERE s > 1", "Aggregate"),
        ("SELECT * FROM (SELECT b, COUNT(*) FROM t GROUP BY b) WHERE RAND() > 0.5", "Aggregate"),
        ("SELECT * FROM (SELECT a, b, SUM(a) OVER (PARTITION BY b ORDER BY ts) FROM t) WHERE a = 1", "Over"),
        (
            "SELECT * FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND) WHERE window_start > TIMESTAMP "
            "'2020-01-01 00:00:00'",
            "WindowTable",
        ),
        (
            "SELECT * FROM TABLE(SESSION(TABLE t PARTITION BY b, DESCRIPTOR(ts), INTERVAL '1' SECOND)) WHERE a = 1",
            "WindowTable",
        ),
        ("SELECT * FROM t WHERE a > 1", "WatermarkAssigner"),
        ("SELECT * FROM t, UNNEST(ARRAY[a, c]) AS u (e) WHERE a > e", "Correlate"),
        ("SELECT * FROM (SELECT * FROM t ORDER BY ts LIMIT 3) WHERE a = 1", "Sort"),
    ],
)
def test_a_filter_stays_above(sql: str, lower: str) -> None:
    assert below(lines(sql), "Filter", lower)


def test_the_part_of_a_session_that_is_its_partition_goes_below() -> None:
    sql = "SELECT * FROM TABLE(SESSION(TABLE t PARTITION BY b, DESCRIPTOR(ts), INTERVAL '1' SECOND)) WHERE b = 'x'"
    assert below(lines(sql), "WindowTable", "Filter")


def test_a_plan_without_such_filters_stays_the_same_object() -> None:
    manager = manager_of(TABLE)
    plan = plan_query("SELECT b, SUM(a) FROM t WHERE a > 1 GROUP BY b", manager)
    assert with_early_filters(plan, manager.calls()) is plan
