"""Queries with joins, from text to what a job sends."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest
from tests.table.planned import manager_of, plan_query
from tests.table.streaming.joined import Change, create_batch, folded

from penstock.common import Configuration
from penstock.connectors.collection import ColumnsSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.data_stream import DataStream
from penstock.plan.transformation import Transformation, Upstream
from penstock.sql.catalogs.manager import CatalogManager
from penstock.sql.logical.nodes import ALL, INSERTS, SHORT, Changes, Join, Node, Scan
from penstock.sql.stream.planner import StreamPlanner
from penstock.sql.stream.rows.rows import ToRowsOperator
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.tables.tables import TableReader

DDL = (
    "CREATE TABLE employee (deptno INT, salary BIGINT, name STRING)",
    "CREATE TABLE department (num INT, b2 BIGINT, title STRING)",
    "CREATE TABLE numbers (n INT NOT NULL)",
    "CREATE TABLE ids (id BIGINT NOT NULL)",
    "CREATE TABLE seen (id INT, seen_at AS PROCTIME())",
)
TABLES: dict[str, list[Change]] = {
    "employee": [
        ("+I", None, 101, "Adam"),
        ("+I", 1, 1, "Baker"),
        ("+I", 2, 2, "Charlie"),
        ("+I", 3, 2, "Don"),
        ("+I", 7, 6, "Victor"),
    ],
    "department": [
        ("+I", 1, 1, "Research"),
        ("+I", 2, 2, "Human Resources"),
        ("+I", 2, 3, "HR"),
        ("+I", 3, 1, "Sales"),
    ],
    "numbers": [("+I", 1), ("+I", 2)],
    "ids": [("+I", 1), ("+I", 3)],
    "seen": [("+I", 1), ("+I", 2), ("+I", 2)],
}
#: what happens to departments later on
MOVES: list[Change] = [("-D", 1, 1, "Research"), ("-U", 3, 1, "Sales"), ("+U", 7, 1, "Sales")]


class Query:
    """A query and how it is planned. `tables`: the changes of tables instead of the usual ones."""

    def __init__(self, sql: str, keys: dict[str, tuple[int, ...]] | None = None, **tables: list[Change]) -> None:
        configuration = Configuration()
        configuration.set_string("execution.target", "local")
        self.environment = StreamExecutionEnvironment.get_execution_environment(configuration)
        self.environment.set_parallelism(1)
        manager: CatalogManager = manager_of(*DDL)
        self.steps: list[Transformation] = []
        self._keys = keys or {}
        self._tables = {**TABLES, **tables}
        self.planner = StreamPlanner(self._add, self._reader, StreamSession(), manager.calls())
        self.plan: Node = plan_query(sql, manager)

    def _add(self, transformation: Transformation) -> None:
        self.steps.append(transformation)
        self.environment.add(transformation)

    def _reader(self, scan: Scan) -> TableReader:
        changes = self._tables[scan.path[-1]]
        batch = create_batch(scan.schema.types, changes)
        source = ColumnsSource(batch.columns, batch.kinds)
        has_before = any(change[0] == "-U" for change in changes)
        key = self._keys.get(scan.path[-1], ())
        return TableReader(source, INSERTS if batch.kinds is None else ALL, has_before, key)

    def rows(self, wants_before: bool = True) -> list[Change]:
        """What the query sends."""
        stream = self.planner.query(self.plan, wants_before)
        rows = Transformation("Rows", partial(ToRowsOperator, stream.schema.types), stream.upstreams)
        self.environment.add(rows)
        found = DataStream(self.environment, (Upstream(rows),), None).execute_and_collect()
        return [(SHORT[kind], *values) for kind, values in found]

    def kinds(self) -> list[str]:
        """The steps of the job."""
        self.planner.query(self.plan, True)
        return [step.kind for step in self.steps]

    @property
    def changes(self) -> Changes:
        return self.planner.changes(self.planner.rewritten(self.plan))


def table(*rows: tuple[Any, ...]) -> Counter[Any]:
    return Counter(rows)


# --- what queries give ------------------------------------------------------------------------------------------------


def test_an_inner_join_with_a_key_and_a_condition() -> None:
    query = Query("SELECT name, title FROM employee JOIN department ON deptno = num AND salary < b2")
    assert query.rows() == [("+I", "Charlie", "HR")]


def test_changes_of_a_table_are_passed_on_through_an_inner_join() -> None:
    query = Query("SELECT name, title FROM employee JOIN department ON deptno = num", department=MOVES)
    assert sorted(query.rows()) == [
        ("+U", "Victor", "Sales"),
        ("-D", "Baker", "Research"),
        ("-U", "Don", "Sales"),
    ]


def test_a_left_join_comes_to_each_row_with_its_matches_or_null() -> None:
    query = Query(
        "SELECT name, title FROM employee LEFT JOIN department ON deptno = num",
        department=TABLES["department"] + MOVES,
    )
    rows = query.rows()
    assert "+U" not in {row[0] for row in rows}
    assert folded(rows) == table(
        ("Adam", None),
        ("Baker", None),
        ("Charlie", "Human Resources"),
        ("Charlie", "HR"),
        ("Don", None),
        ("Victor", "Sales"),
    )


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT name FROM employee WHERE deptno IN (SELECT num FROM department)", ["Baker", "Charlie", "Don"]),
        ("SELECT name FROM employee WHERE deptno NOT IN (SELECT num FROM department)", ["Victor"]),
        (
            "SELECT name FROM employee WHERE NOT EXISTS (SELECT 1 FROM department WHERE num = deptno AND b2 > 1)",
            ["Adam", "Baker", "Don", "Victor"],
        ),
        ("SELECT name FROM employee WHERE salary > (SELECT MAX(b2) FROM department)", ["Adam", "Victor"]),
        ("SELECT title FROM employee RIGHT JOIN department ON deptno = num AND name = 'Don' WHERE name IS NULL", None),
        ("SELECT title FROM employee FULL JOIN department ON deptno = num WHERE name LIKE 'D%'", ["Sales"]),
        ("SELECT title FROM employee, department WHERE deptno = num AND salary + b2 = 3", ["Sales"]),
        ("SELECT name FROM employee JOIN ids ON deptno = id", ["Baker", "Don"]),
        ("SELECT name FROM employee JOIN numbers ON deptno = n + 1", ["Charlie", "Don"]),
        ("SELECT name FROM employee JOIN numbers ON deptno > n AND deptno < 5", ["Charlie", "Don", "Don"]),
    ],
)
def test_queries_come_to_these_rows(sql: str, expected: list[str] | None) -> None:
    names = ["HR", "Human Resources", "Research"] if expected is None else expected
    assert folded(Query(sql).rows()) == Counter((name,) for name in names)


def test_null_matches_null_if_it_is_not_distinct() -> None:
    sql = "SELECT e.name, f.name FROM employee e JOIN employee f ON e.deptno IS NOT DISTINCT FROM f.deptno"
    assert ("+I", "Adam", "Adam") in Query(sql).rows()


def test_a_cross_join_gives_all_pairs() -> None:
    assert len(Query("SELECT name, title FROM employee, department").rows()) == 20


def test_a_join_of_aggregates() -> None:
    sql = """SELECT deptno, num FROM (SELECT MIN(salary) AS salary, deptno FROM employee GROUP BY deptno) v1
    JOIN (SELECT MIN(b2) AS b2, num FROM department GROUP BY num) v2 ON deptno = num"""
    assert folded(Query(sql).rows()) == table((1, 1), (2, 2), (3, 3))


def test_four_tables_in_one_query() -> None:
    sql = """SELECT name, title, n, id FROM employee JOIN department ON deptno = num
    LEFT JOIN numbers ON n = deptno LEFT JOIN ids ON id = deptno WHERE salary < 5"""
    assert folded(Query(sql).rows()) == table(
        ("Baker", "Research", 1, 1),
        ("Charlie", "Human Resources", 2, None),
        ("Charlie", "HR", 2, None),
        ("Don", "Sales", None, 3),
    )


def test_an_interval_of_the_clock_joins_rows_that_come_close_together() -> None:
    sql = """SELECT a.id, b.id FROM seen a LEFT JOIN seen b ON a.id = b.id + 1
    AND a.seen_at BETWEEN b.seen_at - INTERVAL '1' HOUR AND b.seen_at + INTERVAL '1' HOUR"""
    query = Query(sql)
    assert "Interval Join LEFT" in query.kinds()
    assert Query(sql).rows() == [("+I", 2, 1)] * 2


# --- updates without the rows as they were ----------------------------------------------------------------------------

LEFT: list[Change] = [("+I", 1, 10, "a"), ("+I", 2, 20, "b"), ("+I", 3, 30, "c"), ("+U", 3, 40, "c")]
RIGHT: list[Change] = [("+I", 1, 0, "Alice"), ("+I", 2, 0, "Bob"), ("+I", 3, 0, "Emily"), ("+U", 2, 0, "BOB")]


def test_tables_joined_by_their_keys_send_updates_alone() -> None:
    sql = "SELECT deptno, title, salary FROM employee JOIN department ON deptno = num"
    query = Query(sql, {"employee": (0,), "department": (0,)}, employee=LEFT, department=RIGHT)
    assert not query.planner.query(query.plan, False).has_before
    sent = Query(sql, {"employee": (0,), "department": (0,)}, employee=LEFT, department=RIGHT).rows(False)
    assert {row[1]: row[2:] for row in sent} == {1: ("Alice", 10), 2: ("BOB", 20), 3: ("Emily", 40)}
    assert {row[0] for row in sent} <= {"+I", "+U"}


def test_a_join_by_other_columns_needs_the_rows_as_they_were() -> None:
    for condition, has_before in (("deptno = num", False), ("salary = b2", True)):
        sql = f"SELECT deptno, title FROM employee JOIN department ON {condition}"
        query = Query(sql, {"employee": (0,), "department": (0,)}, department=MOVES)
        assert query.planner.query(query.plan, False).has_before == has_before


def test_a_join_with_another_condition_needs_the_rows_as_they_were() -> None:
    sql = "SELECT d, s FROM {} JOIN department ON deptno = num AND s > b2"
    groups = "(SELECT deptno, COUNT(*) AS d, SUM(salary) AS s FROM employee GROUP BY deptno) t"
    query = Query(sql.format(groups))
    assert query.planner.query(query.plan, False).has_before


def test_groups_joined_by_their_keys_send_updates_alone() -> None:
    sql = """SELECT deptno, c, d FROM (SELECT deptno, COUNT(*) c FROM employee GROUP BY deptno) a
    LEFT JOIN (SELECT num, COUNT(*) d FROM department GROUP BY num) b ON num = deptno"""
    query = Query(sql)
    assert not query.planner.query(query.plan, False).has_before
    sent = Query(sql).rows(False)
    assert "-U" not in {row[0] for row in sent}
    last = {row[1]: row[2:] for row in sent if row[0] != "-D"}
    assert last == {None: (1, None), 1: (1, 1), 2: (1, 2), 3: (1, 1), 7: (1, None)}


@pytest.mark.parametrize(
    ("sql", "keys"),
    [
        ("SELECT deptno, name FROM employee", {(0,)}),
        ("SELECT name, deptno, salary FROM employee WHERE salary > 1", {(1,)}),
        ("SELECT name FROM employee", set()),
        ("SELECT name, COUNT(*) FROM employee GROUP BY name", {(0,)}),
        ("SELECT DISTINCT name, salary FROM employee", {(0, 1)}),
        ("SELECT * FROM employee, department WHERE deptno = num", {(0,), (3,), (0, 3)}),
        ("SELECT * FROM employee LEFT JOIN department ON deptno = num", {(0,), (0, 3)}),
        # Of either side there may be a row without a match whose key is NULL.
        ("SELECT * FROM employee FULL JOIN department ON deptno = num", set()),
        ("SELECT * FROM numbers FULL JOIN department ON n = num", {(0, 1)}),
        ("SELECT * FROM employee JOIN department ON salary = b2", set()),
        ("SELECT * FROM employee WHERE deptno IN (SELECT num FROM department)", {(0,)}),
        ("SELECT * FROM employee JOIN ids ON deptno = id", set()),
        ("SELECT deptno FROM employee UNION ALL SELECT num FROM department", set()),
    ],
)
def test_which_columns_tell_rows_apart(sql: str, keys: set[tuple[int, ...]]) -> None:
    query = Query(sql, {"employee": (0,), "department": (0,), "numbers": (0,)})
    assert {tuple(sorted(key)) for key in query.planner.upsert_keys.of(query.plan)} == keys


# --- how they are planned ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "changes"),
    [
        ("SELECT name FROM employee JOIN department ON deptno = num", INSERTS),
        ("SELECT name FROM employee WHERE deptno IN (SELECT num FROM department)", INSERTS),
        ("SELECT name FROM employee WHERE deptno NOT IN (SELECT num FROM department)", ALL),
        ("SELECT name FROM employee LEFT JOIN department ON deptno = num", ALL),
        ("SELECT name FROM employee LEFT JOIN department ON deptno = num WHERE title <> 'HR'", INSERTS),
        ("SELECT name FROM employee LEFT JOIN department ON deptno = num WHERE title IS NULL OR b2 > 3", ALL),
        ("SELECT name FROM employee RIGHT JOIN department ON deptno = num WHERE name = 'Don' AND b2 = 1", INSERTS),
        ("SELECT name FROM employee FULL JOIN department ON deptno = num WHERE salary > b2", INSERTS),
        (
            "SELECT name FROM employee JOIN (SELECT num, COUNT(*) FROM department GROUP BY num) d ON deptno = d.num",
            Changes.INSERT | Changes.UPDATE,
        ),
    ],
)
def test_which_changes_joins_send(sql: str, changes: Changes) -> None:
    assert Query(sql).changes == changes


def test_an_outer_join_whose_padded_rows_nobody_sees_is_none() -> None:
    sql = "SELECT name FROM employee LEFT JOIN department ON deptno = num WHERE b2 > 3"
    assert Query(sql).kinds() == ["Source", "Calc", "Source", "Calc", "Join INNER", "Calc"]


def test_conditions_on_one_side_are_asked_ahead_of_the_join() -> None:
    sql = "SELECT name FROM employee LEFT JOIN department ON deptno = num AND b2 > 3 WHERE salary > 1"
    assert Query(sql).kinds() == ["Source", "Calc", "Source", "Calc", "Join LEFT", "Calc"]


def test_a_condition_on_the_outer_side_is_part_of_the_join() -> None:
    sql = "SELECT name, title FROM employee LEFT JOIN department ON deptno = num AND salary > 1"
    query = Query(sql)
    assert query.kinds() == ["Source", "Source", "Calc", "Join LEFT", "Calc"]
    assert ("Baker", None) in folded(Query(sql).rows())


def test_the_key_of_a_join_may_be_computed() -> None:
    query = Query("SELECT name FROM employee JOIN ids ON deptno = id")
    assert query.kinds() == ["Source", "Calc", "Source", "Join INNER", "Calc"]


def test_a_join_without_a_key_runs_in_one_subtask() -> None:
    query = Query("SELECT name FROM employee JOIN department ON deptno < num")
    query.kinds()
    limits = {step.kind: step.parallelism_limit for step in query.steps if step.kind.startswith("Join")}
    assert limits == {"Join INNER": 1}


def test_the_plan_is_not_changed() -> None:
    query = Query("SELECT * FROM employee, department WHERE deptno = num")
    before = query.plan
    query.kinds()
    assert query.plan == before
    assert any(isinstance(node, Join) for node in before.inputs()[0].inputs())
