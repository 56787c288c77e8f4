"""Queries that are top-Ns, deduplications and sorts: how they are planned, and what they give."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from tests.table.planned import manager_of, plan_query
from tests.table.running import Rows, run
from tests.table.streaming.windowed import Timed

from penstock.connectors.collection import ColumnsSource
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DoubleType, IntType, VarCharType
from penstock.sql.stream.planner import StreamPlanner
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.tables.tables import TableReader

COLUMNS = {"a": IntType(), "b": VarCharType(10), "c": IntType()}
TABLE = Rows(COLUMNS, [(2, "a", 6), (4, "b", 8), (6, "c", 10), (1, "a", 5), (3, "b", 7), (5, "c", 9)])
TIMED = """CREATE TABLE t (id INT, k STRING, v INT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts)"""


def top(
    condition: str, selected: str = "a, b", over: str = "PARTITION BY b ORDER BY a", rank: str = "ROW_NUMBER"
) -> str:
    """A query of rows whose number fulfils a condition."""
    return f"SELECT {selected} FROM (SELECT *, {rank}() OVER ({over}) AS n FROM t) WHERE {condition}"


def explained(sql: str) -> str:
    """How a query over a table with times is planned."""
    manager = manager_of(TIMED)
    source = ColumnsSource(pa.RecordBatch.from_arrays([pa.array([1])], ["c0"]))
    planner = StreamPlanner(lambda one: None, lambda scan: TableReader(source), StreamSession(), manager.calls())
    plan = plan_query(sql, manager)
    planner.query(plan, True)
    return planner.explained(plan)


def changes(sql: str) -> list[tuple[Any, ...]]:
    """What a query over a table of numbers sends."""
    return run(sql, t=TABLE).shown()


def replaced_by(sql: str) -> set[tuple[int, ...]]:
    """The columns by which a change of a query's rows tells which row it replaces."""
    manager = manager_of(TIMED)
    source = ColumnsSource(pa.RecordBatch.from_arrays([pa.array([1])], ["c0"]))
    planner = StreamPlanner(lambda one: None, lambda scan: TableReader(source), StreamSession(), manager.calls())
    return {tuple(sorted(key)) for key in planner.upsert_keys.of(planner.rewritten(plan_query(sql, manager)))}


# --- top-N ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "numbers"),
    [
        ("n <= 3", "rankStart=1, rankEnd=3"),
        ("n < 3", "rankStart=1, rankEnd=2"),
        ("3 > n", "rankStart=1, rankEnd=2"),
        ("n = 2", "rankStart=2, rankEnd=2"),
        ("n BETWEEN 2 AND 4", "rankStart=2, rankEnd=4"),
        ("n > 1 AND n <= 4 AND n < 3 AND v > 2", "rankStart=2, rankEnd=2"),
        ("n <= v", "rankStart=1, rankEnd=v"),
    ],
)
def test_a_bound_of_the_number_makes_a_top_n(condition: str, numbers: str) -> None:
    assert f"rankRange=[{numbers}]" in explained(top(condition, "id", "PARTITION BY k ORDER BY v"))


def test_conditions_that_are_no_bounds_are_left_to_a_filter() -> None:
    query = top("n <= 2 AND a > 1 AND n + a > 3", "a, b, n")
    wanted = [(2, "a", 2), (3, "b", 1), (4, "b", 2), (5, "c", 1), (6, "c", 2)]
    assert sorted(run(query, t=TABLE).rows()) == wanted


def test_filters_one_upon_the_other_count_together() -> None:
    found = explained(f"SELECT id FROM ({top('n > 1', 'id, n', 'ORDER BY v')}) WHERE n <= 4")
    assert "rankRange=[rankStart=2, rankEnd=4]" in found


def test_a_number_that_nobody_reads_sends_no_changes() -> None:
    assert changes(top("n <= 1 AND c > 0")) == [
        ("+I", 2, "a"),
        ("+I", 4, "b"),
        ("+I", 6, "c"),
        ("-U", 2, "a"),
        ("+U", 1, "a"),
        ("-U", 4, "b"),
        ("+U", 3, "b"),
        ("-U", 6, "c"),
        ("+U", 5, "c"),
    ]
    assert Counter(one[0] for one in changes(top("n <= 2"))) == {"+I": 6}
    assert Counter(one[0] for one in changes(top("n <= 2", "a, n"))) == {"+I": 6, "-U": 3, "+U": 3}


@pytest.mark.parametrize(
    ("columns", "condition", "keys"),
    [
        ("k, id, c, n", "n <= 2", {(0, 3)}),
        ("k, id, c", "n <= 2", {(0, 1)}),
        ("k, id, c", "n = 1", {(0,)}),
        ("k, id, c", "n BETWEEN 2 AND 3", set()),
    ],
)
def test_a_row_that_takes_the_number_of_another_one_replaces_it(
    columns: str, condition: str, keys: set[tuple[int, ...]]
) -> None:
    """Whatever else tells the rows apart: a table by (k, id) would keep the row that has lost its number."""
    counts = "SELECT k, id, COUNT(*) AS c FROM t GROUP BY k, id"
    ranked = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY c DESC) AS n FROM ({counts})"
    assert replaced_by(f"SELECT {columns} FROM ({ranked}) WHERE {condition}") == keys


@pytest.mark.parametrize(
    ("window", "partition", "keys"),
    [
        ("TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)", "window_start, window_end", {(1, 2), (1,), (2,)}),
        ("SESSION(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)", "window_start, window_end", {(1, 2), (2,)}),
        ("SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' SECOND)", "window_start, window_end", {(1, 2)}),
        (
            "SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' SECOND)",
            "k, window_start, window_end",
            {(0, 1, 2), (0, 2)},
        ),
    ],
)
def test_one_edge_of_a_session_tells_it_apart_among_those_of_its_key(
    window: str, partition: str, keys: set[tuple[int, ...]]
) -> None:
    """Sessions of several keys may end together."""
    ranked = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {partition} ORDER BY v) AS n FROM TABLE({window})"
    assert replaced_by(f"SELECT k, window_start, window_end, v FROM ({ranked}) WHERE n = 1") == keys


def test_a_number_that_is_known_is_a_constant() -> None:
    assert run(top("n = 2", "a, n"), t=TABLE).rows() == [(2, 2), (4, 2), (6, 2)]


@pytest.mark.parametrize("rank", ["RANK", "DENSE_RANK"])
def test_other_ranks_are_refused(rank: str) -> None:
    with pytest.raises(ValidationError, match=rf"^{rank}\(\) on streaming table is not supported currently$"):
        explained(top("n <= 2", "id", "PARTITION BY k ORDER BY v", rank))


@pytest.mark.parametrize("condition", ["n < 1", "n <= -1"])
def test_ranges_without_a_number_are_refused(condition: str) -> None:
    with pytest.raises(ValidationError, match=r"^Rank "):
        explained(top(condition, "id", "PARTITION BY k ORDER BY v"))


def test_input_with_updates_is_taken_back_unless_it_only_gets_better() -> None:
    counts = "SELECT b, COUNT(*) AS n FROM t GROUP BY b ORDER BY n DESC LIMIT 2"
    assert ("-U", "a", 1) in changes(counts)
    least = "SELECT b, COUNT(*) AS n FROM t GROUP BY b ORDER BY n LIMIT 2"
    assert ("-D", "a", 1) in changes(least)
    assert [count for _, count in run(least, t=TABLE).rows()] == [2, 2]


def test_a_sum_of_values_that_are_not_below_zero_only_grows() -> None:
    query = "SELECT b, SUM(a) AS s FROM t {} GROUP BY b ORDER BY s DESC LIMIT 1"
    assert {kind for kind, *_ in changes(query.format("WHERE a > 0"))} == {"+I", "-U", "+U"}
    assert "-D" in {kind for kind, *_ in changes(query.format(""))}


def test_rows_that_go() -> None:
    rows: list[Any] = [("+I", (1, "a", 1)), ("+I", (2, "a", 2)), ("-D", (1, "a", 1)), ("+I", (3, "a", 3))]
    assert run(top("n = 1"), t=Rows(COLUMNS, rows)).shown() == [("+I", 1, "a"), ("-D", 1, "a"), ("+I", 2, "a")]


def test_nan_is_the_greatest_number() -> None:
    table = Rows({"x": DoubleType()}, [(float("nan"),), (1.0,), (None,), (float("inf"),)])
    found = run("SELECT x FROM t ORDER BY x DESC LIMIT 2", t=table).rows()
    assert sorted(str(row[0]) for row in found) == ["inf", "nan"]


# --- deduplication ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "mode"),
    [("ts", "[I]"), ("ts DESC", "[I,UB,UA,D]"), ("p", "[I]"), ("p DESC", "[I,UB,UA,D]"), ("v", "[I,UB,UA,D]")],
)
def test_the_first_row_by_time_is_final(order: str, mode: str) -> None:
    found = explained(top("n = 1", "id", f"PARTITION BY k ORDER BY {order}"))
    (rank,) = [line for line in found.splitlines() if "Rank(" in line]
    assert rank.endswith(f"changelogMode={mode})")


def test_the_first_and_the_last_row_by_processing_time() -> None:
    view = "(SELECT a, b, PROCTIME() AS p FROM t)"
    first = top("n = 1", over="PARTITION BY b ORDER BY p").replace("FROM t", f"FROM {view}")
    assert changes(first) == [("+I", 2, "a"), ("+I", 4, "b"), ("+I", 6, "c")]
    final = first.replace("ORDER BY p", "ORDER BY p DESC")
    assert run(final, t=TABLE).rows() == [(1, "a"), (3, "b"), (5, "c")]


# --- sorts ------------------------------------------------------------------------------------------------------------


def test_order_by_with_limit() -> None:
    assert changes("SELECT a FROM t ORDER BY a DESC LIMIT 3") == [
        ("+I", 2),
        ("+I", 4),
        ("+I", 6),
        ("-D", 2),
        ("+I", 3),
        ("-D", 3),
        ("+I", 5),
    ]
    assert sorted(run("SELECT a FROM t ORDER BY a LIMIT 2 OFFSET 1", t=TABLE).rows()) == [(2,), (3,)]


def test_limit_alone() -> None:
    assert changes("SELECT a FROM t LIMIT 2") == [("+I", 2), ("+I", 4)]
    assert changes("SELECT a FROM t LIMIT 2 OFFSET 1") == [("+I", 4), ("+I", 6)]
    assert changes("SELECT a FROM t LIMIT 0") == []
    assert changes("SELECT COUNT(*) FROM (SELECT a FROM t LIMIT 2)")[-1] == ("+U", 2)


def test_limit_of_rows_that_change() -> None:
    found = run("SELECT b, COUNT(*) FROM t GROUP BY b LIMIT 2", t=TABLE).rows()
    assert len(found) == 2


@pytest.mark.parametrize("order", ["v", "ts DESC", "v, ts", "p DESC"])
def test_other_orders_without_limit_are_refused(order: str) -> None:
    with pytest.raises(ValidationError, match=r"^Sort on a non-time-attribute field is not supported\.$"):
        explained(f"SELECT id FROM t ORDER BY {order}")


def test_an_offset_without_a_limit_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"^FETCH is missed"):
        explained("SELECT id FROM t ORDER BY v OFFSET 2")


def test_the_order_of_a_subquery_means_nothing() -> None:
    assert "Sort" not in explained("SELECT COUNT(*) FROM (SELECT id FROM t ORDER BY v)")
    assert "Sort(orderBy=[v ASC], fetch=2" in explained("SELECT COUNT(*) FROM (SELECT v FROM t ORDER BY v LIMIT 2)")


def test_updates_cannot_be_sorted_by_time() -> None:
    with pytest.raises(ValidationError, match=r"^Sort doesn't support consuming update and delete changes"):
        explained(f"SELECT id FROM ({top('n = 1', 'id, ts', 'PARTITION BY k ORDER BY v')}) ORDER BY ts")


# --- windows ----------------------------------------------------------------------------------------------------------


def test_a_top_n_of_each_window_is_final() -> None:
    windows = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
    rank = "ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY v) AS n"
    found = explained(f"SELECT id, n FROM (SELECT *, {rank} FROM {windows}) WHERE n <= 2")
    assert found.splitlines()[0].endswith("changelogMode=[I])")


@pytest.mark.parametrize(
    ("order", "last_number", "kept"), [("ts", 1, [1]), ("ts DESC", 1, [5]), ("ts DESC", 2, [3, 4])]
)
def test_rows_of_a_window_with_the_same_time(order: str, last_number: int, kept: list[int]) -> None:
    """The first to come is the first, but for the newest row alone: that is the last to come."""
    table = Timed(("a", 1, 0), ("a", 2, 0), ("a", 3, 1), ("a", 4, 1), ("a", 5, 1))
    windows = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
    rank = f"ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY {order}) AS n"
    found = run(f"SELECT v FROM (SELECT *, {rank} FROM {windows}) WHERE n <= {last_number}", t=table)
    assert found.rows() == [(v,) for v in kept]
