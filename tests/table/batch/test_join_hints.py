"""Join hints in batch: Flink's names, and what Spark makes of the joins."""

from __future__ import annotations

import re

import pytest
from tests.table.batch.batches import check_agrees, planning
from tests.table.planned import create, manager_of, plan_query
from tests.table.running import Rows

from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import IntType, VarCharType

INT = IntType()
TABLES = {
    "t1": Rows({"a": INT, "b": VarCharType(9)}, [(1, "x"), (2, "y"), (2, "z"), (None, "n"), (4, None)]),
    "t2": Rows({"a": INT, "c": INT}, [(1, 10), (2, 20), (2, 30), (None, 40), (7, 50)]),
    "t3": Rows({"a": INT, "d": INT}, [(2, 0), (7, 1), (1, 3)]),
}
VIEWS = (
    "CREATE VIEW v1 AS SELECT t1.a, t1.b, t2.c FROM t1 JOIN t2 ON t1.a = t2.a",
    "CREATE VIEW v2 AS SELECT /*+ SHUFFLE_HASH(t1) */ t1.a, t1.b, t2.c FROM t1 JOIN t2 ON t1.a = t2.a",
)

#: a join in Spark's plan, and the rest of its line
_JOIN = re.compile(r"(BroadcastHash|SortMerge|ShuffledHash|CartesianProduct|BroadcastNestedLoop)(?:Join)?(.*)")


def _joins(sql: str) -> list[str]:
    """The joins in Spark's plan of a query, from the top: the operator, and the side it builds if it builds one."""
    manager = manager_of(*(table.ddl(name) for name, table in TABLES.items()))
    for view in VIEWS:
        create(manager, view)
    with planning(TABLES) as planner:
        text = planner.frame(plan_query(sql, manager))._jdf.queryExecution().executedPlan().toString()
    found = [match for match in map(_JOIN.search, text.splitlines()) if match is not None]
    sides = [re.search("Build(Left|Right)", match[2]) for match in found]
    return [f"{match[1]} {side[1] if side else ''}".strip() for match, side in zip(found, sides, strict=True)]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("hints", "query", "joins"),
    [
        ("BROADCAST(t1)", "* FROM t1 JOIN t2 ON t1.a = t2.a", ["BroadcastHash Left"]),
        ("broadcast('t2')", "* FROM t1 JOIN t2 ON t1.a = t2.a", ["BroadcastHash Right"]),
        ("SHUFFLE_HASH(t1)", "* FROM t1 JOIN t2 ON t1.a = t2.a", ["ShuffledHash Left"]),
        ("SHUFFLE_HASH(t2)", "* FROM t1 JOIN t2 ON t1.a = t2.a", ["ShuffledHash Right"]),
        ("SHUFFLE_MERGE(t1)", "* FROM t1 JOIN t2 ON t1.a = t2.a", ["SortMerge"]),
        ("NEST_LOOP(t1)", "* FROM t1 JOIN t2 ON t1.a = t2.a", ["CartesianProduct"]),
        # of the names in a hint the first counts, as of hints for the same join
        ("BROADCAST(t2, t1)", "* FROM t1 JOIN t2 ON t1.a = t2.a", ["BroadcastHash Right"]),
        ("SHUFFLE_HASH(t2), BROADCAST(t1)", "* FROM t1 JOIN t2 ON t1.a = t2.a", ["ShuffledHash Right"]),
        # a side whose rows are kept is not broadcast
        ("BROADCAST(t2)", "* FROM t1 LEFT JOIN t2 ON t1.a = t2.a", ["BroadcastHash Right"]),
        ("BROADCAST(t1)", "* FROM t1 RIGHT JOIN t2 ON t1.a = t2.a", ["BroadcastHash Left"]),
        ("BROADCAST(t1), SHUFFLE_MERGE(t1)", "* FROM t1 LEFT JOIN t2 ON t1.a = t2.a", ["SortMerge"]),
        ("BROADCAST(t2), SHUFFLE_HASH(t2)", "* FROM t1 FULL JOIN t2 ON t1.a = t2.a", ["ShuffledHash Right"]),
        ("SHUFFLE_HASH(t1)", "* FROM t1 LEFT JOIN t2 ON t1.a = t2.a", ["ShuffledHash Left"]),
        # each join has the hints that name one of its sides
        ("BROADCAST(t2), SHUFFLE_HASH(t3)", "* FROM t1 JOIN t2 ON t1.a = t2.a JOIN t3 ON t2.a = t3.a",
         ["ShuffledHash Right", "BroadcastHash Right"]),
        ("SHUFFLE_MERGE(t1), BROADCAST(t3)", "* FROM t1 JOIN t2 ON t1.a = t2.a LEFT JOIN t3 ON t2.a = t3.a",
         ["BroadcastHash Right", "SortMerge"]),
        ("SHUFFLE_HASH(t3), SHUFFLE_MERGE(t1)", "t1.a FROM t1 JOIN (t2 JOIN t3 ON t2.a = t3.a) ON t1.a = t2.a",
         ["SortMerge", "ShuffledHash Right"]),
        # the condition of a join may stand in WHERE
        ("SHUFFLE_HASH(t2)", "* FROM t1, t2 WHERE t1.a = t2.a", ["ShuffledHash Right"]),
        ("SHUFFLE_HASH(t2), BROADCAST(t1)", "* FROM t1, t2 WHERE t1.a = t2.a AND c > 10", ["ShuffledHash Right"]),
        # without equalities
        ("NEST_LOOP(t2)", "* FROM t1 JOIN t2 ON t1.a < t2.a", ["CartesianProduct"]),
        ("SHUFFLE_HASH(t1), NEST_LOOP(t1)", "* FROM t1 JOIN t2 ON t1.a < t2.a", ["CartesianProduct"]),
        ("BROADCAST(t1)", "* FROM t1 JOIN t2 ON t1.a < t2.a", ["BroadcastNestedLoop Left"]),
        ("BROADCAST(t2)", "* FROM t1 CROSS JOIN t2", ["BroadcastNestedLoop Right"]),
        # conditions that Spark does not evaluate
        ("SHUFFLE_MERGE(t2)", "* FROM t1 JOIN t2 ON REPEAT(b, 1) = REPEAT(CAST(c AS STRING), 1)", ["SortMerge"]),
        # queries, WITH, views
        ("SHUFFLE_HASH(x)", "x.a FROM t1 JOIN (SELECT a, SUM(c) FROM t2 GROUP BY a) x ON t1.a = x.a",
         ["ShuffledHash Right"]),
        ("SHUFFLE_MERGE(x)", "b FROM t1 JOIN (SELECT MAX(a) AS a FROM t2) x ON t1.a = x.a", ["SortMerge"]),
        ("SHUFFLE_MERGE(v1)", "* FROM v1 JOIN t3 ON v1.a = t3.a", ["SortMerge", "BroadcastHash Right"]),
        ("SHUFFLE_MERGE(v2)", "* FROM v2 JOIN t3 ON v2.a = t3.a", ["SortMerge", "ShuffledHash Left"]),
        ("SHUFFLE_MERGE(t3)", "* FROM t3 JOIN v2 ON v2.a = t3.a", ["SortMerge", "ShuffledHash Left"]),
        ("SHUFFLE_HASH(t2)", "t1.a, COUNT(*) FROM t1 JOIN t2 ON t1.a = t2.a GROUP BY t1.a", ["ShuffledHash Right"]),
        ("SHUFFLE_HASH(x)", "b FROM (SELECT * FROM t1) JOIN t2 AS x USING (a)", ["ShuffledHash Right"]),
        # a query inside has its own
        ("SHUFFLE_MERGE(t1)", "t1.a FROM t1 JOIN t3 ON t1.a = t3.a WHERE t1.a IN "
         "(SELECT /*+ SHUFFLE_HASH(t3) */ t2.a FROM t2 JOIN t3 ON t2.a = t3.a)",
         ["SortMerge", "BroadcastHash Right", "ShuffledHash Right", "BroadcastHash Right"]),
    ],
)  # fmt: skip
def test_spark_joins_as_a_hint_says(hints: str, query: str, joins: list[str]) -> None:
    assert _joins(f"SELECT /*+ {hints} */ {query}") == joins


@pytest.mark.spark
@pytest.mark.parametrize(
    "query",
    [
        "* FROM t1 JOIN t2 ON t1.a = t2.a",
        "* FROM t1 LEFT JOIN t2 ON t1.a = t2.a",
        "* FROM t1 FULL JOIN t2 ON t1.a = t2.a AND c > 10",
        "* FROM t1 JOIN t2 ON t1.a < t2.a",
    ],
)
def test_hints_change_no_rows(query: str) -> None:
    for strategy in ("BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP"):
        for table in ("t1", "t2"):
            check_agrees(f"SELECT /*+ {strategy}({table}) */ {query}", t1=TABLES["t1"], t2=TABLES["t2"])


def _plan(sql: str) -> None:
    plan_query(sql, manager_of(*(table.ddl(name) for name, table in TABLES.items())))


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT /*+ BROADCAST(x), SHUFFLE_HASH(t1, y, z) */ t1.a FROM t1 JOIN t2 ON t1.a = t2.a",
         "cannot match the name of input tables or views: \n`x` in `BROADCAST`\n`y, z` in `SHUFFLE_HASH`"),
        ("SELECT /*+ BROADCAST(t1) */ x.a FROM t1 x JOIN t2 ON x.a = t2.a", "`t1` in `BROADCAST`"),
        ("SELECT /*+ BROADCAST(T1) */ t1.a FROM t1 JOIN t2 ON t1.a = t2.a", "`T1` in `BROADCAST`"),
        ("SELECT /*+ NEST_LOOP(t2) */ t1.a FROM t1 JOIN (SELECT a FROM t2) x ON TRUE", "`t2` in `NEST_LOOP`"),
        ("SELECT /*+ BROADCAST */ t1.a FROM t1 JOIN t2 ON t1.a = t2.a", "expecting at least one table or view"),
        ("SELECT /*+ BROADCAST('t1' = 'v') */ t1.a FROM t1", "expecting at least one table or view"),
        ("SELECT t1.a FROM t1 /*+ BROADCAST */ JOIN t2 ON t1.a = t2.a", "expecting at least one table or view"),
        ("SELECT /*+ SHUFFLE_REPLICATE_NL(t1) */ t1.a FROM t1", "There is no hint SHUFFLE_REPLICATE_NL"),
    ],
)  # fmt: skip
def test_names_are_checked(sql: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(reason)):
        _plan(sql)


@pytest.mark.parametrize(
    "sql",
    [
        # as in Flink, where FROM has no join, nothing looks at the names
        "SELECT /*+ BROADCAST(nothing) */ a FROM t1",
        "SELECT /*+ BROADCAST(t2) */ a FROM t1 WHERE a IN (SELECT a FROM t2)",
        "SELECT /*+ BROADCAST(u) */ x FROM t1, UNNEST(ARRAY[1, 2]) AS u (x)",
        "SELECT t1.a FROM t1 /*+ BROADCAST(t1) */ JOIN t2 ON t1.a = t2.a",
    ],
)
def test_hints_that_have_no_effect(sql: str) -> None:
    _plan(sql)
