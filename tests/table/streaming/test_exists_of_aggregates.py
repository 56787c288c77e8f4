"""EXISTS of queries that have a row whatever they read, and groups of nothing at all. The answers are Flink 2.3's."""

from __future__ import annotations

import pytest
from tests.table.batch.batches import run_batch
from tests.table.planned import manager_of, plan_query
from tests.table.running import Rows, run

from penstock.sql.data.types import IntType
from penstock.sql.logical.nodes import Aggregate, Join
from penstock.sql.logical.properties import least_rows, most_rows

M = Rows({"id": IntType(), "v": IntType()}, [(1, 10), (2, 20)])
NOTHING = Rows({"e": IntType()})
#: queries that have a row, and queries that have none
WITH_ROWS = [
    "SELECT COUNT(*) FROM nothing",
    "SELECT MAX(e), COUNT(DISTINCT e), COUNT(*) FILTER (WHERE e > 1) FROM nothing",
    "SELECT COUNT(*) FROM nothing GROUP BY ()",
    "SELECT 1 FROM nothing GROUP BY ()",
    "SELECT 1 FROM nothing GROUP BY GROUPING SETS (())",
    "SELECT DISTINCT MAX(e) FROM nothing",
    "SELECT MAX(e) FROM nothing WHERE FALSE",
    "SELECT MAX(e) FROM nothing ORDER BY 1 LIMIT 1",
    "SELECT 1 FROM (SELECT COUNT(*) AS c FROM nothing)",
    "SELECT ROW_NUMBER() OVER (ORDER BY c) FROM (SELECT COUNT(*) AS c FROM nothing)",
    "WITH w AS (SELECT MAX(e) AS x FROM nothing) SELECT x FROM w",
    "SELECT MAX(e) FROM nothing UNION ALL SELECT e FROM nothing",
    "SELECT MAX(e) FROM nothing UNION SELECT e FROM nothing",
    "SELECT k, COUNT(*) FROM (VALUES (1), (2)) AS t (k) GROUP BY k",
    "SELECT k FROM (VALUES (1), (2)) AS t (k) OFFSET 1",
    "SELECT SUM(z.id) FROM m z WHERE z.id = m.id + 1",
    "SELECT MAX(z.id) FROM m z WHERE z.id > m.id",
    "SELECT m.id FROM (SELECT MAX(e) FROM nothing)",
]
WITHOUT_ROWS = [
    "SELECT MAX(e) FROM nothing LIMIT 0",
    "SELECT MAX(e) FROM nothing OFFSET 1",
    "SELECT COUNT(*) FROM nothing LIMIT 1 OFFSET 1",
    "SELECT k FROM (VALUES (1), (2)) AS t (k) OFFSET 2",
    "SELECT id FROM m LIMIT 0",
    "SELECT COUNT(*) FROM nothing GROUP BY e",
    "SELECT COUNT(*) FROM nothing GROUP BY ROLLUP (e)",
    "SELECT MAX(e) FROM nothing HAVING COUNT(*) > 0",
]
BOTH = [(1,), (2,)]


@pytest.mark.parametrize(
    ("query", "has_rows"), [*((one, True) for one in WITH_ROWS), *((one, False) for one in WITHOUT_ROWS)]
)
def test_exists_of_a_query_that_has_a_row_whatever_it_reads(query: str, has_rows: bool) -> None:
    """K2: an aggregate without GROUP BY has a row for no rows, so EXISTS of it holds everywhere."""

    def answer(sql: str) -> list[tuple[object, ...]]:
        answers = run(sql.format(f"({query})"), m=M, nothing=NOTHING)
        assert {kind for kind, _ in answers.changes} <= {"+I"}, answers.changes
        return sorted(answers.rows())

    assert answer("SELECT id FROM m WHERE EXISTS {}") == (BOTH if has_rows else [])
    assert answer("SELECT id FROM m WHERE NOT EXISTS {}") == ([] if has_rows else BOTH)
    assert answer("SELECT id FROM m WHERE EXISTS {} OR id = 2") == (BOTH if has_rows else [(2,)])
    assert answer("SELECT id, EXISTS {0}, NOT EXISTS {0} FROM m") == [(one, has_rows, not has_rows) for one in (1, 2)]
    assert answer("SELECT CASE WHEN NOT EXISTS {} THEN id END FROM m WHERE id = 1") == [(None if has_rows else 1,)]


def test_exists_of_an_aggregate_in_groups() -> None:
    over = "SELECT id, COUNT(*) FROM m GROUP BY id HAVING {}EXISTS (SELECT MAX(e) FROM nothing)"
    assert sorted(run(over.format(""), m=M, nothing=NOTHING).rows()) == [(1, 1), (2, 1)]
    assert run(over.format("NOT "), m=M, nothing=NOTHING).rows() == []
    summed = "SELECT SUM(CASE WHEN EXISTS (SELECT MAX(e) FROM nothing) THEN 1 ELSE 0 END) FROM m"
    assert run(summed, m=M, nothing=NOTHING).rows() == [(2,)]


def test_exists_of_a_query_that_may_have_no_rows_stays_a_join() -> None:
    """HAVING may drop the one row. In a stream an aggregate of nothing has none yet, as in Flink."""
    for having in ("COUNT(*) = 0", "COUNT(*) > 0"):
        sql = f"SELECT id FROM m WHERE EXISTS (SELECT MAX(e) FROM nothing HAVING {having})"
        assert run(sql, m=M, nothing=NOTHING).rows() == []
    sql = "SELECT id FROM m WHERE EXISTS (SELECT MAX(z.id) FROM m z WHERE z.id = m.id + 1 HAVING COUNT(*) > 0)"
    assert run(sql, m=M).rows() == [(1,)]


def test_what_exists_selects_does_not_count() -> None:
    sql = "SELECT id FROM m WHERE {}EXISTS (SELECT m.id + z.id FROM m z WHERE z.id = m.id + 1)"
    assert run(sql.format(""), m=M).rows() == [(1,)]
    assert run(sql.format("NOT "), m=M).rows() == [(2,)]


@pytest.mark.parametrize("group", ["GROUP BY ()", "GROUP BY GROUPING SETS (())", "HAVING TRUE"])
@pytest.mark.parametrize("table", ["m", "nothing"])
def test_groups_of_nothing_without_aggregates_are_one_row(group: str, table: str) -> None:
    """K2: Flink gives the row in a stream, too: it depends on no input."""
    answer = run(f"SELECT 1 FROM {table} {group}", m=M, nothing=NOTHING)
    assert answer.shown() == [("+I", 1)]


@pytest.mark.spark
@pytest.mark.slow
def test_batch_has_the_same_answers() -> None:
    """K1: EXISTS of an aggregate says the same in a stream and in batch."""
    selected = ", ".join(f"EXISTS ({query})" for query in (*WITH_ROWS, *WITHOUT_ROWS))
    wanted = [True] * len(WITH_ROWS) + [False] * len(WITHOUT_ROWS)
    assert run_batch(f"SELECT {selected} FROM m WHERE id = 1", m=M, nothing=NOTHING) == [tuple(wanted)]
    for query in WITH_ROWS:
        assert run_batch(f"SELECT id FROM m WHERE NOT EXISTS ({query})", m=M, nothing=NOTHING) == []
    assert run_batch("SELECT 1 FROM nothing GROUP BY ()", m=M, nothing=NOTHING) == [(1,)]


def bounds(sql: str) -> tuple[int, int | None]:
    plan = plan_query(sql, manager_of(M.ddl("m"), NOTHING.ddl("nothing")))
    return least_rows(plan), most_rows(plan)


@pytest.mark.parametrize(
    ("sql", "least", "most"),
    [
        ("SELECT * FROM m", 0, None),
        ("VALUES (1), (2), (3)", 3, 3),
        ("SELECT a FROM (VALUES (1), (2), (3)) AS t (a) WHERE a > 1", 0, 3),
        ("SELECT a FROM (VALUES (1), (2), (3)) AS t (a) LIMIT 2 OFFSET 2", 1, 1),
        ("SELECT DISTINCT a FROM (VALUES (1), (1)) AS t (a)", 1, 2),
        ("SELECT COUNT(*) FROM m", 1, 1),
        ("SELECT id, COUNT(*) FROM m GROUP BY id", 0, None),
        ("SELECT COUNT(*) FROM m UNION ALL SELECT id FROM m", 1, None),
        ("SELECT COUNT(*) FROM m UNION ALL VALUES (CAST(1 AS BIGINT))", 2, 2),
        ("SELECT COUNT(*) FROM m INTERSECT SELECT COUNT(*) FROM nothing", 0, 1),
        ("SELECT COUNT(*) FROM m EXCEPT SELECT COUNT(*) FROM nothing", 0, 1),
        ("SELECT * FROM (SELECT COUNT(*) FROM m), (SELECT COUNT(*) FROM nothing)", 0, 1),
        ("SELECT id FROM m LIMIT 0", 0, 0),
    ],
)
def test_how_many_rows_a_plan_has(sql: str, least: int, most: int | None) -> None:
    assert bounds(sql) == (least, most)


def test_a_settled_test_leaves_no_join_in_the_plan() -> None:
    plan = plan_query(
        "SELECT id FROM m WHERE EXISTS (SELECT MAX(e) FROM nothing)", manager_of(M.ddl("m"), NOTHING.ddl("nothing"))
    )
    nodes = [plan]
    for node in nodes:
        nodes += node.inputs()
    assert not any(isinstance(one, Join | Aggregate) for one in nodes)
