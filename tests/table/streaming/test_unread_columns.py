"""A3: columns that nobody reads are left out of plans, and results stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.table.planned import manager_of, plan_query
from tests.table.running import Rows, run
from tests.table.streaming.written import RETRACTS, Source, by_key, written

from penstock.connectors.collect import CollectSink
from penstock.sql.data.types import IntType, VarCharType
from penstock.sql.logical.explain import plan_text
from penstock.sql.logical.nodes import ALL, ChangelogNormalize, RowSchema, Scan
from penstock.sql.optimizer.pruning import no_narrower, without_unread_columns
from penstock.sql.optimizer.top_n import with_ranks
from penstock.sql.stream.changelog import with_normalizers
from penstock.sql.stream.planning.rule import with_relations
from penstock.sql.tables.tables import TableReader

TABLES = """
CREATE TABLE t (a INT, b STRING, c INT, d INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts);
CREATE TABLE v (a INT, b STRING, c INT, d INT, e INT, ts AS TO_TIMESTAMP(b), WATERMARK FOR ts AS ts);
CREATE TABLE u (a INT, b STRING, c INT, d INT, PRIMARY KEY (a) NOT ENFORCED)
"""
ROWS = Rows(
    {"a": IntType(), "b": VarCharType(10), "c": IntType(), "d": IntType()},
    [(1, "x", 1, 10), (2, "y", 2, 20), (1, "y", 3, 30), (3, None, None, 40)],
)


def rewritten(sql: str) -> str:
    """A query's plan as it is run."""
    manager = manager_of(*TABLES.strip().split(";"))
    return plan_text(without_unread_columns(with_ranks(plan_query(sql, manager), manager.calls()), no_narrower))


@pytest.mark.parametrize(
    ("sql", "line"),
    [
        ("SELECT t.a, u.c FROM t JOIN u ON t.a = u.a", "Project(select=[a, c])"),
        ("SELECT SUM(c) FROM t GROUP BY b", "Project(select=[b, c AS $f1])"),
        ("SELECT s FROM (SELECT b, SUM(c) AS s, COUNT(a) AS n FROM t GROUP BY b)", "Project(select=[b, c AS $f1])"),
        ("SELECT COUNT(*) FROM t", "Project(select=[])"),
        ("SELECT a FROM (SELECT a, b, c FROM t UNION ALL SELECT a, b, d FROM u)", "Project(select=[a])"),
        ("SELECT a FROM (SELECT a, SUM(c) OVER (PARTITION BY b ORDER BY ts) AS s FROM t)", "Project(select=[a])"),
        (
            "SELECT a FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY b ORDER BY c) AS n FROM t) WHERE n <= 3",
            "Project(select=[a, b, c])",
        ),
        (
            "SELECT window_end, COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND) "
            "GROUP BY window_start, window_end",
            "Project(select=[ts])",
        ),
    ],
)
def test_a_step_reads_only_what_is_asked_for(sql: str, line: str) -> None:
    assert line in [one.strip() for one in rewritten(sql).splitlines()]


def test_a_window_that_nobody_reads_is_not_worked_out() -> None:
    assert "Over" not in rewritten("SELECT a FROM (SELECT a, SUM(c) OVER (PARTITION BY b ORDER BY ts) AS s FROM t)")


def test_what_two_steps_read_is_worked_out_once() -> None:
    """Both sides read the table with all that either reads, so what is computed from it is one part of a job."""
    plan = rewritten("SELECT x.c, y.d FROM v AS x JOIN v AS y ON x.a = y.a")
    lines = [one.strip() for one in plan.splitlines()]
    timed = [place for place, line in enumerate(lines) if line.startswith("WatermarkAssigner")]
    assert len(timed) == 2
    (below,) = {lines[place + 1] for place in timed}
    assert below == "Project(select=[a, c, d, TO_TIMESTAMP(b) AS ts])"
    assert {"Project(select=[a, c])", "Project(select=[a, d])"} <= set(lines)


def test_a_table_that_is_updated_by_key_is_read_with_its_key() -> None:
    def two_columns(scan: Scan, columns: Sequence[int]) -> Scan:
        key = tuple(columns.index(place) for place in scan.key)
        return replace(scan, schema=RowSchema(tuple(scan.schema[place] for place in columns)), key=key)

    by_key = TableReader(CollectSink(True), ALL, key=(0,), is_upsert=True)
    plan = with_normalizers(
        plan_query("SELECT SUM(d) FROM u", manager_of(*TABLES.strip().split(";"))), _as(by_key), False
    )
    found = without_unread_columns(plan, two_columns)
    while not isinstance(found, ChangelogNormalize):
        (found,) = found.inputs()
    assert (found.schema.names, found.input.schema.names, found.key) == (["a", "d"], ["a", "d"], (0,))


def _as(reader: TableReader) -> Callable[[Scan], TableReader]:
    return lambda scan: reader


def test_sets_of_groups_carry_only_what_is_read() -> None:
    manager = manager_of(*TABLES.strip().split(";"))
    sql = "SELECT a FROM (SELECT a, SUM(c) AS s, MAX(d) AS m FROM t GROUP BY ROLLUP (a)) WHERE m > 1"
    plan = without_unread_columns(with_relations(plan_query(sql, manager), manager.calls()), no_narrower)
    assert "Project(select=[a, d AS $f2])" in [one.strip() for one in plan_text(plan).splitlines()]


def test_a_plan_that_loses_nothing_stays_the_same_object() -> None:
    manager = manager_of(*TABLES.strip().split(";"))
    plan = plan_query("SELECT * FROM u WHERE a > 1", manager)
    assert without_unread_columns(plan, no_narrower) is plan


def test_updates_of_columns_that_nobody_reads_change_nothing() -> None:
    """Also where the table itself is read whole, as here: the rows are told apart by what is left of them."""
    changes: list[Any] = [("+I", (1, "x", 1, 10)), ("+U", (1, "x", 2, 20)), ("+U", (1, "y", 2, 30))]
    table = Source(ROWS.columns, changes, more=", PRIMARY KEY (a) NOT ENFORCED", by=by_key())
    assert written("SELECT b FROM t", "b STRING", writer=RETRACTS, t=table) == [
        ("+I", ("x",)),
        ("-U", ("x",)),
        ("+U", ("y",)),
    ]


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT x.d FROM t AS x JOIN t AS y ON x.a = y.c AND x.c < y.d", [(10,), (20,), (30,)]),
        ("SELECT d FROM t WHERE a IN (SELECT c FROM t WHERE b = 'y')", [(20,), (40,)]),
        ("SELECT d FROM t WHERE NOT EXISTS (SELECT 1 FROM t AS o WHERE o.c = t.a)", []),
        ("SELECT n FROM (SELECT b, MAX(d) AS m, COUNT(*) AS n FROM t GROUP BY b)", [(1,), (1,), (2,)]),
        ("SELECT 1 FROM t UNION ALL SELECT 2 FROM t WHERE c IS NULL", [(1,), (1,), (1,), (1,), (2,)]),
        ("SELECT c FROM (SELECT * FROM t UNION SELECT * FROM t)", [(None,), (1,), (2,), (3,)]),
        (
            "SELECT d FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY b ORDER BY c DESC) AS n FROM t) WHERE n = 1",
            [(10,), (30,), (40,)],
        ),
        ("SELECT (SELECT MAX(d) FROM t) FROM t WHERE a = 2", [(40,)]),
    ],
)
def test_results_are_as_they_were(sql: str, rows: list[tuple[object, ...]]) -> None:
    assert sorted(map(repr, run(sql, t=ROWS).rows())) == sorted(map(repr, rows))
