"""Rows pass through steps without a key in the order in which they come: these are as parallel as their input."""

from __future__ import annotations

import pytest
from tests.table.planned import manager_of, plan_query
from tests.table.running import Rows

from penstock.plan.transformation import Transformation, Upstream
from penstock.runtime.operators.base import StreamOperator
from penstock.sql.data.types import IntType
from penstock.sql.logical.nodes import ALL
from penstock.sql.stream.planner import StreamPlanner
from penstock.sql.stream.planning.rule import parallelism_in_order
from penstock.sql.stream.rows.state_ttl import StreamSession

CHANGES = Rows({"k": IntType(), "a": IntType()}, [("+I", (1, 1)), ("-D", (1, 1))])
INSERTS = Rows({"k": IntType(), "a": IntType()}, [(1, 1)])


def parallelisms(sql: str, t: Rows) -> dict[str, int | None]:
    """That of each kind of step; None for that of the job. Tables are read by one subtask."""
    manager, made = manager_of(t.ddl("t")), list[Transformation]()
    planner = StreamPlanner(made.append, lambda scan: t.reader(), StreamSession(), manager.calls())
    planner.rows(plan_query(sql, manager), ALL, True, "rows")
    return {one.kind: one.parallelism for one in made}


@pytest.mark.parametrize("table", [CHANGES, INSERTS])
def test_rows_of_one_subtask_are_not_dealt_out(table: Rows) -> None:
    found = parallelisms("SELECT a + 1 FROM t WHERE k > 0", table)
    assert (found["Calc"], found["Rows"]) == (1, 1)


def test_rows_by_key_go_to_all_subtasks() -> None:
    found = parallelisms("SELECT s + 1 FROM (SELECT k, SUM(a) AS s FROM t GROUP BY k)", CHANGES)
    assert (found["Group Aggregate"], found["Calc"], found["Rows"]) == (None, None, None)


def test_changes_that_are_united_meet_in_one_subtask() -> None:
    sql = "SELECT a FROM t UNION ALL SELECT SUM(a) FROM t GROUP BY k"
    assert parallelisms(sql, CHANGES)["Rows"] == 1


def test_inserts_that_are_united_go_to_all_subtasks() -> None:
    one = Upstream(Transformation("one", StreamOperator, parallelism_limit=1))
    all_of_job = Upstream(Transformation("other", StreamOperator))
    assert parallelism_in_order([one, all_of_job], are_changes=False) is None
    assert parallelism_in_order([one, all_of_job], are_changes=True) == 1
    assert parallelism_in_order([], are_changes=True) is None
