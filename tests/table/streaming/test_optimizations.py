"""A3: a query gives the same rows without the optimizations that a session excludes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from tests.table.planned import manager_of, plan_query
from tests.table.running import Rows, run_over

from penstock.base.errors import ConfigurationError
from penstock.datastream import StreamExecutionEnvironment
from penstock.sql.data.types import IntType, TimestampType
from penstock.sql.stream.planner import StreamPlanner
from penstock.sql.stream.planning.options import EXCLUDED, Optimization, plan_options
from penstock.sql.stream.rows.state_ttl import StreamSession

SECOND_NS = 1_000_000_000
ROWS = [(1, 2, 0), (2, 3, 4 * SECOND_NS), (1, 5, 2 * SECOND_NS), (3, None, 9 * SECOND_NS), (1, 2, 9 * SECOND_NS)]
TABLES = {
    "e": Rows(
        {"k": IntType(), "a": IntType(), "ts": TimestampType(3)},
        ROWS,
        2,
        "WATERMARK FOR ts AS ts - INTERVAL '9' SECOND",
    ),
    "c": Rows({"k": IntType(), "a": IntType()}, [("+I", (1, 2)), ("+I", (2, 4)), ("-D", (1, 2)), ("+I", (1, 7))], 1),
}
WINDOWS = "TABLE(TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '3' SECOND))"
QUERIES = {
    Optimization.COLUMN_WINDOWS: f"SELECT window_start, SUM(a) FROM {WINDOWS} GROUP BY k, window_start, window_end",
    Optimization.WINDOWS_IN_AGGREGATES: f"SELECT k, COUNT(*) FROM {WINDOWS} GROUP BY k, window_start, window_end",
    Optimization.COLUMN_JOINS: "SELECT x.a, y.a FROM e AS x JOIN e AS y ON x.k = y.k",
    Optimization.COLUMN_RANKS: (
        "SELECT k, a FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY a) AS n FROM e) WHERE n <= 2"
    ),
    Optimization.UPDATING_RANKS: (
        "SELECT k, n FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY n DESC) AS r "
        "FROM (SELECT k, COUNT(*) AS n FROM e GROUP BY k)) WHERE r = 1"
    ),
    Optimization.DISTINCT_REMOVAL: "SELECT DISTINCT k, n FROM (SELECT k, COUNT(*) AS n FROM c GROUP BY k)",
}


def planned(sql: str, excluded: str) -> list[str]:
    """The operators of a query, by their class names."""
    environment = StreamExecutionEnvironment.get_execution_environment()
    manager = manager_of(*(table.ddl(name) for name, table in TABLES.items()))
    planner = StreamPlanner(
        environment.add,
        lambda scan: TABLES[scan.path[-1]].reader(),
        StreamSession(),
        manager.calls(),
        options=plan_options({EXCLUDED.key(): excluded}),
    )
    planner.query(plan_query(sql, manager), True)
    return [f"{step.name}: {name}" for step, _ in planner.steps for name in collect_classes(step.node)]


def collect_classes(operator: Any) -> Iterator[str]:
    """The classes that a factory of operators names, and those of the objects that it hands them."""
    if isinstance(operator, partial):
        for part in (operator.func, *operator.args):
            yield from collect_classes(part)
    elif isinstance(operator, type):
        yield operator.__name__
    elif type(operator).__module__.startswith("penstock."):
        yield type(operator).__name__


@pytest.mark.parametrize("optimization", QUERIES, ids=lambda optimization: optimization.value)
def test_an_excluded_optimization_changes_the_operators_and_no_row(optimization: Optimization) -> None:
    sql = QUERIES[optimization]
    assert planned(sql, optimization.value) != planned(sql, "")
    with_it = run_over(TABLES, sql)
    without_it = run_over(TABLES, sql, options={EXCLUDED.key(): optimization.value})
    assert sorted(without_it.rows(), key=repr) == sorted(with_it.rows(), key=repr)
    assert with_it.rows()


def test_all_optimizations_can_be_excluded_at_once() -> None:
    everything = ";".join(optimization.value for optimization in Optimization)
    for sql in QUERIES.values():
        without_any = run_over(TABLES, sql, options={EXCLUDED.key(): everything})
        assert sorted(without_any.rows(), key=repr) == sorted(run_over(TABLES, sql).rows(), key=repr), sql


def test_an_unknown_optimization_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(ConfigurationError, match="column-windows, windows-in-aggregates"):
        plan_options({EXCLUDED.key(): "fast-windows"})
