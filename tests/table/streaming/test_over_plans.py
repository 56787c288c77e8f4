"""Which OVER windows streams can have, and what they send."""

from __future__ import annotations

from typing import Any

import pytest
from tests.table.planned import manager_of, plan_query
from tests.table.streaming.over_windows import TABLE, over_node, plan_stream

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.data_stream import DataStream
from penstock.plan.transformation import Transformation, Upstream
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.nodes import ALL, INSERTS, SHORT, TimeAttribute
from penstock.sql.optimizer.optimizer import check_windows
from penstock.sql.stream.over.operators import over_changes, over_operator
from penstock.sql.stream.planner import StreamPlanner
from penstock.sql.stream.planning.rule import name_columns
from penstock.sql.stream.rows.rows import ToRowsOperator
from penstock.sql.stream.rows.state_ttl import StreamSession


def plan(selected: str) -> None:
    """Plan a window as far as what runs it."""
    node = over_node(f"SELECT {selected} FROM t")
    check_windows(node)
    over_operator(node, name_columns(node.schema), StreamSession())


@pytest.mark.parametrize(
    ("selected", "reason"),
    [
        ("SUM(v) OVER (PARTITION BY k)", "The window can only be ordered by a single time column."),
        ("SUM(v) OVER (ORDER BY ts, v)", "The window can only be ordered by a single time column."),
        ("SUM(v) OVER (ORDER BY ts DESC)", "The window can only be ordered in ASCENDING mode."),
        (
            "SUM(v) OVER (ORDER BY ts ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING)",
            "OVER RANGE FOLLOWING windows are not supported yet.",
        ),
        (
            "SUM(v) OVER (ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
            "OVER RANGE FOLLOWING windows are not supported yet.",
        ),
        (
            "SUM(v) OVER (ORDER BY ts RANGE 3 PRECEDING)",
            "Data Type mismatch between ORDER BY and RANGE clause",
        ),
        (
            "SUM(v) OVER (ORDER BY v ROWS 3 PRECEDING)",
            "Non-time attribute sort is not supported for bounded OVER window.",
        ),
        (
            "SUM(v) OVER (ORDER BY ts), SUM(v) OVER (PARTITION BY k ORDER BY ts)",
            "Over Agg: Unsupported use of OVER windows. All aggregates must be computed on the same window. "
            "please re-check the over window statement.",
        ),
        (
            "RANK() OVER (ORDER BY ts ROWS 1 PRECEDING)",
            "ROW/RANGE not allowed with RANK, DENSE_RANK, ROW_NUMBER, PERCENTILE_CONT/DISC or LAG/LEAD functions",
        ),
        ("LEAD(v) OVER (ORDER BY ts)", "LEAD Function is not supported in stream mode."),
        ("NTILE(2) OVER (ORDER BY ts)", "NTILE Function is not supported in stream mode."),
        ("CUME_DIST() OVER (ORDER BY ts)", "CUME_DIST Function is not supported in stream mode."),
        ("PERCENT_RANK() OVER (ORDER BY ts)", "PERCENT_RANK Function is not supported in stream mode."),
        (
            "SUM(v) OVER (ORDER BY MAP[k, v])",
            "Type(MAP<STRING, INT> NOT NULL) is not an orderable data type, "
            "it is not supported as a ORDER_BY/GROUP_BY/JOIN_EQUAL field.",
        ),
    ],
)
def test_refused(selected: str, reason: str) -> None:
    with pytest.raises(ValidationError) as raised:
        plan(selected)
    assert str(raised.value) == reason


def test_time_gives_inserts_and_other_columns_give_changes() -> None:
    assert over_changes(over_node("SELECT SUM(v) OVER (ORDER BY ts) FROM t")) == INSERTS
    assert over_changes(over_node("SELECT SUM(v) OVER (ORDER BY p) FROM t")) == INSERTS
    assert over_changes(over_node("SELECT SUM(v) OVER (ORDER BY v) FROM t")) == ALL


def test_time_attributes_stay() -> None:
    found = plan_query("SELECT ts, SUM(v) OVER (ORDER BY ts) FROM t", manager_of(TABLE))
    assert found.schema[0].time is TimeAttribute.ROWTIME


def test_in_the_order_of_time_rows_may_only_come() -> None:
    with pytest.raises(ValidationError) as raised:
        plan_stream("SELECT SUM(c) OVER (ORDER BY PROCTIME()) FROM (SELECT k, COUNT(*) AS c FROM u GROUP BY k)")
    assert str(raised.value).startswith(
        "OverAggregate doesn't support consuming update changes which is produced by node Aggregate("
    )


def test_changes_come_with_the_row_before_even_if_nobody_asks() -> None:
    assert plan_stream("SELECT SUM(v) OVER (ORDER BY v) FROM u", wants_before=False).has_before
    assert not plan_stream("SELECT SUM(v) OVER (ORDER BY p) FROM u").has_before


def run(sql: str) -> list[Any]:
    """The changes of a query, run locally."""
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(1)
    manager = manager_of()
    planner = StreamPlanner(environment.add, lambda scan: None, StreamSession(), manager.calls())  # type: ignore[arg-type,return-value]
    stream = planner.query(plan_query(sql, manager), True)
    rows = Transformation("To Rows", lambda: ToRowsOperator(stream.schema.types), stream.upstreams)
    environment.add(rows)
    found = DataStream(environment, (Upstream(rows),), None).execute_and_collect()
    return [(SHORT[kind], *values) for kind, values in found]


def test_a_query() -> None:
    values = "(VALUES ('a', 1), ('b', 2), ('a', 3), ('a', 1)) AS t (k, v)"
    assert run(f"SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY v) AS s FROM {values}") == [
        ("+I", "a", 1, 1),
        ("+I", "b", 2, 2),
        ("+I", "a", 3, 4),
        ("-U", "a", 1, 1),
        ("+U", "a", 1, 2),
        ("+I", "a", 1, 2),
        ("-U", "a", 3, 4),
        ("+U", "a", 3, 5),
    ]


def test_a_window_over_changes() -> None:
    counted = "(SELECT k, COUNT(*) AS c FROM (VALUES ('a'), ('b'), ('b')) AS t (k) GROUP BY k)"
    assert run(f"SELECT k, c, SUM(c) OVER (ORDER BY c ROWS UNBOUNDED PRECEDING) FROM {counted}") == [
        ("+I", "a", 1, 1),
        ("+I", "b", 1, 2),
        ("-D", "b", 1, 2),
        ("+U", "b", 2, 3),
    ]


def test_the_order_of_processing_time() -> None:
    values = "(SELECT k, v, PROCTIME() AS p FROM (VALUES ('a', 1), ('b', 2), ('a', 3)) AS t (k, v))"
    assert run(f"SELECT k, LAG(v, 1, 0) OVER (PARTITION BY k ORDER BY p) FROM {values}") == [
        ("+I", "a", 0),
        ("+I", "b", 0),
        ("+I", "a", 1),
    ]
