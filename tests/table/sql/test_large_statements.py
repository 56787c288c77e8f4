"""Statements of many operands: long chains and lists, and what nests deep, at Python's own limit of calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest
from tests.table.batch.batches import run_batch
from tests.table.planned import manager_of, plan_query
from tests.table.running import Rows, run

from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import IntType
from penstock.sql.logical.explain import plan_text
from penstock.sql.logical.nodes import INSERTS, Node
from penstock.sql.logical.properties import rows_text, state_id
from penstock.sql.parser import SqlParserError, parse_statement, statements, to_sql
from penstock.sql.parser.statement_parser import _kept
from penstock.sql.parser.syntax import Call
from penstock.sql.stream.planning.upsert_keys import Course, courses
from penstock.sql.typed import Constants, FunctionCall
from penstock.table.expressions import and_, col, lit, or_
from penstock.table.plans import Plans

T = Rows({"id": IntType(), "v": IntType()}, [(1, 10), (2, 20), (3, None)])


@pytest.fixture(autouse=True)
def python_limit() -> Iterator[None]:
    """Begin with Python's own limit of calls, which an earlier test may have raised."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000)
    _kept.cache_clear()
    yield
    sys.setrecursionlimit(max(before, sys.getrecursionlimit()))


def chain(operator: str, count: int, part: Callable[[int], str]) -> str:
    return f" {operator} ".join(map(part, range(count)))


def listed(count: int, part: Callable[[int], str] = str) -> str:
    return ", ".join(map(part, range(count)))


#: queries over t, and their rows
QUERIES: dict[str, tuple[str, list[tuple[object, ...]]]] = {
    "OR": ("SELECT id FROM t WHERE " + chain("OR", 1_000, lambda i: f"v = {i}"), [(1,), (2,)]),
    "AND": ("SELECT id FROM t WHERE " + chain("AND", 1_000, lambda i: f"v <> {i + 11}"), [(1,)]),
    "AND in OR": ("SELECT id FROM t WHERE " + chain("OR", 200, lambda i: f"(v = {i} AND id = 1)"), [(1,)]),
    "||": ("SELECT " + chain("||", 1_000, lambda i: "CAST(id AS STRING)") + " FROM t WHERE id = 2", [("2" * 1_000,)]),
    "|| of constants": ("SELECT " + chain("||", 1_000, lambda i: f"'{i % 10}'"), [("0123456789" * 100,)]),
    "+": ("SELECT " + chain("+", 400, lambda i: "v") + " FROM t WHERE id = 1", [(4_000,)]),
    "+ of decimals": (
        "SELECT " + chain("+", 200, lambda i: "CAST(v AS DECIMAL(10, 2))") + " FROM t WHERE id = 1",
        [(Decimal("2000.00"),)],
    ),
    "+ of aggregates": ("SELECT " + chain("+", 100, lambda i: f"SUM(v + {i})") + " FROM t WHERE id = 1", [(5_950,)]),
    "parentheses": (f"SELECT {'(' * 400}v{')' * 400} FROM t WHERE id = 1", [(10,)]),
    "parentheses and +": (f"SELECT {'(1 + ' * 200}v{')' * 200} FROM t WHERE id = 1", [(210,)]),
    "calls in calls": (f"SELECT {'UPPER(' * 300}CAST(v AS STRING){')' * 300} FROM t WHERE id = 1", [("10",)]),
    "NOT": (f"SELECT id FROM t WHERE {'NOT ' * 200} v = 10", [(1,)]),
    "CASE": (
        "SELECT CASE" + "".join(f" WHEN v = {i} THEN {i}" for i in range(1_000)) + " END FROM t WHERE id = 1",
        [(10,)],
    ),
    "CASE in CASE": (
        "SELECT " + "".join(f"CASE WHEN v = {i} THEN {i} ELSE " for i in range(200)) + "0" + " END" * 200 + " FROM t",
        [(0,), (10,), (20,)],
    ),
    "IN": (f"SELECT id FROM t WHERE v IN ({listed(5_000)})", [(1,), (2,)]),
    "NOT IN": (f"SELECT id FROM t WHERE v NOT IN ({listed(5_000, lambda i: str(i + 11))})", [(1,)]),
    "NOT IN with NULL": (f"SELECT id FROM t WHERE v NOT IN (NULL, {listed(5_000, lambda i: str(i + 11))})", []),
    "IN with NULL": (
        f"SELECT id, v IN (NULL, {listed(15)}) FROM t",
        [(1, True), (2, None), (3, None)],
    ),
    "IN with many and NULL": (
        f"SELECT v IN (NULL, {listed(15 * 10, lambda i: str(i % 15))}) FROM t",
        [(None,), (None,), (True,)],
    ),
    "IN with columns": (f"SELECT id FROM t WHERE v IN (id + 9, {listed(200, lambda i: str(i + 20))})", [(1,), (2,)]),
    "IN of texts": (
        f"SELECT id FROM t WHERE CAST(v AS STRING) IN ({listed(500, lambda i: repr(str(i)))})",
        [(1,), (2,)],
    ),
    "IN of decimals": (
        f"SELECT id FROM t WHERE CAST(v AS DECIMAL(9, 3)) IN ({listed(500, lambda i: f'{i}.0')})",
        [(1,), (2,)],
    ),
    "IN of other numbers": (f"SELECT id FROM t WHERE v IN ({listed(90, lambda i: f'{i}.0')}, 2e1)", [(1,), (2,)]),
    "IN of dates": (
        "SELECT id FROM t WHERE DATE '2024-01-15' IN ("
        + listed(100, lambda i: f"DATE '2024-{i % 12 + 1:02d}-15'")
        + ")",
        [(1,), (2,), (3,)],
    ),
    "IN of rows": (
        f"SELECT id FROM t WHERE (id, v) IN ({listed(200, lambda i: f'({i}, {i * 10})')})",
        [(1,), (2,)],
    ),
    "ARRAY": (f"SELECT CARDINALITY(ARRAY[{listed(5_000)}])", [(5_000,)]),
    "COALESCE": (f"SELECT COALESCE({listed(1_000, lambda i: 'NULLIF(v, v)')}, 7) FROM t WHERE id = 1", [(7,)]),
    "UNION ALL": (f"SELECT MAX(a) FROM ({chain('UNION ALL', 300, lambda i: f'SELECT {i} AS a')})", [(299,)]),
    "UNION": (f"SELECT MAX(a) FROM ({chain('UNION', 300, lambda i: f'SELECT {i % 7} AS a')})", [(6,)]),
    "EXCEPT": (chain("EXCEPT", 40, lambda i: f"SELECT {i} AS a"), [(0,)]),
    "queries in queries": (f"SELECT COUNT(*) FROM {'(SELECT * FROM ' * 200} t {')' * 200}", [(3,)]),
    "WITH": (
        "WITH t0 AS (SELECT * FROM t)"
        + "".join(f", t{i} AS (SELECT * FROM t{i - 1})" for i in range(1, 200))
        + " SELECT COUNT(*) FROM t199",
        [(3,)],
    ),
    "joins": (
        "SELECT COUNT(*) FROM t AS t0 " + " ".join(f"JOIN t AS t{i} ON t{i}.id = t0.id" for i in range(1, 30)),
        [(3,)],
    ),
    "IN of queries": (
        f"SELECT id FROM t WHERE {'id IN (SELECT id FROM t WHERE ' * 50}v = 10{')' * 50}",
        [(1,)],
    ),
    "VALUES": (
        f"SELECT MAX(a), MAX(b) FROM (VALUES {listed(5_000, lambda i: f'({i}, {i!r})')}) AS s (a, b)",
        [(4_999, 4_999)],
    ),
    "VALUES of several types": (
        f"SELECT MAX(a) FROM (VALUES {listed(200, lambda i: f'({i}), ({i}.5)')}) AS s (a)",
        [(Decimal("199.5"),)],
    ),
    "columns": (f"SELECT {listed(1_000, lambda i: f'v + {i} AS c{i}')} FROM t WHERE id = 1", [tuple(range(10, 1_010))]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_a_large_statement_runs_in_a_stream(name: str) -> None:
    sql, rows = QUERIES[name]
    assert sorted(run(sql, t=T).rows(), key=repr) == sorted(rows, key=repr)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_a_large_statement_runs_in_batch(name: str) -> None:
    """K1: batch gives the rows of the stream."""
    sql, rows = QUERIES[name]
    assert sorted(run_batch(sql, t=T), key=repr) == sorted(rows, key=repr)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_a_large_statement_is_printed_explained_and_identified(name: str) -> None:
    sql, _ = QUERIES[name]
    statement = parse_statement(sql)
    assert isinstance(statement, statements.QueryStatement)
    printed = to_sql(statement.query)
    again = parse_statement(printed)
    assert isinstance(again, statements.QueryStatement)
    assert again.query == statement.query
    manager = manager_of(T.ddl("t"))
    one, other = plan_query(sql, manager), plan_query(printed, manager)
    assert one == other
    assert hash(one.schema.columns) == hash(other.schema.columns)
    assert plan_text(one) == plan_text(other)
    assert state_id(one, "Step") == state_id(other, "Step")
    assert rows_text(one) == rows_text(other)


@pytest.mark.slow
def test_lists_of_a_hundred_thousand_constants() -> None:
    """A list takes time in proportion to its length: were it to its square, this would take hours."""
    numbers = listed(100_000)
    assert sorted(run(f"SELECT id FROM t WHERE v IN ({numbers})", t=T).rows()) == [(1,), (2,)]
    assert run(f"SELECT id FROM t WHERE v NOT IN ({numbers})", t=T).rows() == []
    rows = listed(100_000, lambda i: f"({i})")
    assert run(f"SELECT a FROM (VALUES {rows}) AS s (a) WHERE a > 99998").rows() == [(99_999,)]


def test_many_constants_of_in_are_one_operand() -> None:
    def condition(count: int) -> FunctionCall:
        plan = plan_query(f"SELECT id FROM t WHERE v IN ({listed(count)})", manager_of(T.ddl("t")))
        found = plan.inputs()[0].condition  # type: ignore[attr-defined]
        assert isinstance(found, FunctionCall)
        return found

    assert len(condition(64).operands) == 65
    assert [type(one) for one in condition(65).operands[1:]] == [Constants]
    assert str(condition(65)) == f"IN(v, {listed(65)})"
    assert condition(65) != condition(66)
    manager = manager_of(T.ddl("t"))
    plans = [plan_query(f"SELECT id FROM t WHERE v IN ({listed(70)}, {last})", manager) for last in (100, 101)]
    assert state_id(plans[0], "Step") != state_id(plans[1], "Step")


def test_a_constant_of_a_list_that_cannot_be_cast_is_named() -> None:
    with pytest.raises(Exception, match="'soon'"):
        run(f"SELECT id FROM t WHERE DATE '2024-01-01' IN ('soon', {listed(100, lambda i: repr('2024-01-01'))})", t=T)


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("SELECT " + chain("+", 600, lambda i: "1"), 2014),
        (f"SELECT {'(' * 600}1{')' * 600}", 507),
        (f"SELECT {'UPPER(' * 600}'a'{')' * 600}", 3002),
        (f"SELECT {'- ' * 600}1", 1006),
        (f"SELECT * FROM {'(SELECT * FROM ' * 300}t{')' * 300}", 3751),
        (chain("EXCEPT", 600, lambda i: "SELECT 1"), 8026),
        ("SELECT 1 FROM t " + "JOIN t ON TRUE " * 600, 7532),
        (f"SELECT CAST(NULL AS {'ARRAY<' * 600}INT{'>' * 600})", 0),
    ],
)
def test_what_nests_too_deep_is_refused_with_its_place(sql: str, column: int) -> None:
    with pytest.raises(SqlParserError, match="nests more than 500 levels deep") as caught:
        parse_statement(sql)
    assert caught.value.line == 1
    if column:
        assert caught.value.column == column


def test_what_would_nest_too_deep_in_the_table_api_is_refused() -> None:
    total = col("v")
    for _ in range(600):
        total = total + 1
    with pytest.raises(ValidationError, match="nests more than 500 levels deep"):
        plans().select(table(), [total])


def test_chains_of_the_table_api() -> None:
    either, both, total = col("v") == 10, col("v") > 0, col("v")
    for number in range(1_000):
        either = either | (col("v") == number)
        both = both & (col("v") != number + 11)
    for _ in range(300):
        total = total + 1
    assert isinstance(either._node, Call)
    assert len(either._node.operands) == 1_001
    for condition in (
        either,
        both,
        or_(*(col("v") == one for one in range(500))),
        and_(*(col("v") != 0 for _ in range(500))),
    ):
        plan = plans().filtered(table(), condition)
        assert state_id(plan, "Step") == state_id(plans().filtered(table(), condition), "Step")
    plan = plans().select(table(), [total.alias("total"), col("v").in_(*range(100_000)).alias("known")])
    assert "known" in plan_text(plan)
    plan = table()
    for number in range(200):
        plan = plans().added(plan, [lit(number).alias(f"c{number}")], replaces=False)
    assert len(plan.schema) == 202
    for number in range(900):
        plan = plans().filtered(plan, col("v") != number)
    assert plan_text(plan).count("Filter") == 900


def table() -> Node:
    return plan_query("SELECT * FROM t", manager_of(T.ddl("t")))


def plans() -> Plans:
    return Plans(manager_of(T.ddl("t")))


def test_top_n_by_the_sum_of_any_constant() -> None:
    """A constant that is no whole number has a sign, too, so the sum of it grows or falls."""
    sign = {"2": Course.INCREASING, "2.5": Course.INCREASING, "2.5e0": Course.INCREASING, "-2.5": Course.DECREASING}
    sign |= {
        "CAST(2 AS FLOAT)": Course.INCREASING,
        "CAST('NaN' AS DOUBLE)": Course.UNKNOWN,
        "CAST(NULL AS INT)": Course.UNKNOWN,
    }
    for constant, course in sign.items():
        grouped = f"SELECT id, SUM({constant}) AS s FROM t GROUP BY id"
        aggregate = plan_query(grouped, manager_of(T.ddl("t"))).inputs()[0]
        assert courses(aggregate, lambda node: INSERTS)[1] is course, constant
        ranked = f"SELECT id, s, ROW_NUMBER() OVER (ORDER BY s DESC) AS rn FROM ({grouped})"
        rows = Rows({"id": IntType(), "v": IntType()}, [(1, 1), (1, 2), (2, 3)])
        top = run(f"SELECT id FROM ({ranked}) WHERE rn = 1", t=rows).rows()
        assert top == [(2 if constant == "-2.5" else 1,)], constant
