"""Parts of plans that give the same rows run once, and steps have ids that stay."""

from __future__ import annotations

import pytest
from tests.table.planned import manager_of, plan_query
from tests.table.running import Rows

from penstock.plan.transformation import Transformation
from penstock.sql.connectors.built_in import built_in
from penstock.sql.data.types import IntType
from penstock.sql.stream.planner import StreamPlanner
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.tables.tables import PushDown

TABLE = Rows({"a": IntType(), "b": IntType()}, [(1, 2)])


def steps(*queries: str, shares: bool = True, options: str = "'connector'='x'") -> list[Transformation]:
    """The steps of one job for some queries."""
    manager = manager_of(f"CREATE TABLE t (a INT, b INT) WITH ({options})")
    found: list[Transformation] = []
    planner = StreamPlanner(found.append, lambda scan: TABLE.reader(), StreamSession(), manager.calls(), shares)
    for query in queries:
        planner.query(plan_query(query, manager), True)
    return found


def kinds(*queries: str, shares: bool = True) -> list[str]:
    """What the steps are."""
    return [one.kind for one in steps(*queries, shares=shares)]


SUMS = "SELECT a, SUM(b) AS s FROM t GROUP BY a"


def test_what_two_queries_have_in_common_is_one_part_of_the_job() -> None:
    assert kinds(SUMS, f"SELECT MAX(s) FROM ({SUMS})") == ["Source", "Group Aggregate", "Calc", "Group Aggregate"]


def test_names_of_columns_do_not_matter() -> None:
    assert kinds(SUMS, "SELECT x AS y, SUM(z) AS w FROM (SELECT a AS x, b AS z FROM t) GROUP BY x") == [
        "Source",
        "Group Aggregate",
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (SUMS, "SELECT a, SUM(b) FROM t WHERE b > 1 GROUP BY a"),
        ("SELECT a + 1 FROM t", "SELECT a + 2 FROM t"),
        ("SELECT a FROM t WHERE b = 1", "SELECT a FROM t WHERE b = -1"),
        ("SELECT CAST(a AS BIGINT) FROM t", "SELECT CAST(a AS DOUBLE) FROM t"),
        ("SELECT a + RAND() FROM t", "SELECT a + RAND() FROM t"),
    ],
)
def test_different_queries_share_only_their_source(one: str, other: str) -> None:
    found = kinds(one, other)
    assert found.count("Source") == 1
    assert len(found) == len(kinds(one)) + len(kinds(other)) - 1


def test_sharing_can_be_turned_off() -> None:
    assert kinds(SUMS, SUMS, shares=False) == ["Source", "Group Aggregate"] * 2


def ids(query: str, options: str = "'connector'='x'") -> list[str | None]:
    """The ids of the steps of a query."""
    return [one.uid_hash for one in steps(query, options=options)]


def test_ids_are_the_same_each_time() -> None:
    assert ids(SUMS) == ids(SUMS)
    assert None not in ids(SUMS)


def test_ids_stay_when_names_and_options_change() -> None:
    renamed = "SELECT k, SUM(v) AS total FROM (SELECT a AS k, b AS v FROM t) GROUP BY k"
    assert ids(renamed, "'connector'='x', 'rate'='5'") == ids(SUMS)


def test_ids_change_with_what_a_step_reads() -> None:
    found, other = ids(SUMS), ids("SELECT a, SUM(b) AS s FROM t WHERE b > 0 GROUP BY a")
    assert found[0] == other[0]
    assert found[-1] != other[-1]


def test_ids_do_not_depend_on_other_queries_of_the_job() -> None:
    alone = {one.uid_hash for one in steps(SUMS)}
    assert alone <= {one.uid_hash for one in steps("SELECT DISTINCT b FROM t", SUMS)}


def test_a_step_that_is_there_twice_has_two_ids() -> None:
    found = [one.uid_hash for one in steps(SUMS, SUMS, shares=False)]
    assert len(set(found)) == len(found) == 4


def narrow_steps(*queries: str) -> list[Transformation]:
    """The steps of queries over a table that gives only the columns that are read."""
    manager = manager_of("CREATE TABLE t (a INT, b INT, c INT) WITH ('connector'='datagen', 'number-of-rows'='3')")
    found: list[Transformation] = []
    connectors = built_in()
    planner = StreamPlanner(
        found.append, connectors.reader, StreamSession(), manager.calls(), tables=PushDown(connectors.scan)
    )
    for query in queries:
        planner.query(plan_query(query, manager), True)
    return found


def test_a_source_gives_what_is_read_and_needs_no_step_for_it() -> None:
    assert [one.kind for one in narrow_steps("SELECT SUM(b) FROM t")] == ["Source", "Group Aggregate"]


def test_parts_of_a_query_that_read_other_columns_share_a_source() -> None:
    found = narrow_steps("SELECT * FROM (SELECT a FROM t) x JOIN (SELECT b FROM t) y ON x.a = y.b")
    assert [one.kind for one in found].count("Source") == 1


def test_a_position_in_a_table_is_good_for_another_query() -> None:
    one, other = narrow_steps("SELECT SUM(b) FROM t"), narrow_steps("SELECT SUM(a), MAX(c) FROM t")
    assert one[0].uid_hash == other[0].uid_hash


def test_state_of_another_column_is_other_state() -> None:
    one, other = narrow_steps("SELECT SUM(b) FROM t"), narrow_steps("SELECT SUM(a) FROM t")
    assert one[-1].uid_hash != other[-1].uid_hash
