"""GROUPING SETS, ROLLUP and CUBE over tables that change, and in windows."""

from __future__ import annotations

from typing import Any

import pytest
from tests.table.planned import list_columns, planned
from tests.table.running import Rows, run

from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import TimestampType
from penstock.sql.functions.definition import BIGINT, STRING

COLUMNS = {"a": BIGINT, "b": STRING, "c": BIGINT}
DATA: list[Any] = [(1, "x", 1), (1, "y", 2), (None, "x", 4)]


def rows(sql: str, data: list[Any] = DATA) -> list[Any]:
    return sorted(run(sql, t=Rows(COLUMNS, data)).rows(), key=str)


def test_rollup_has_a_group_for_each_prefix_and_null_of_the_data_is_another_group() -> None:
    assert rows("SELECT a, b, SUM(c), GROUPING_ID(a, b) FROM t GROUP BY ROLLUP (a, b)") == [
        (1, "x", 1, 0),
        (1, "y", 2, 0),
        (1, None, 3, 1),
        (None, "x", 4, 0),
        (None, None, 4, 1),
        (None, None, 7, 3),
    ]


def test_cube_has_all_subsets() -> None:
    assert rows("SELECT GROUPING(a), GROUPING(b), COUNT(*) FROM t GROUP BY CUBE (a, b)") == [
        (0, 0, 1),
        (0, 0, 1),
        (0, 0, 1),
        (0, 1, 1),
        (0, 1, 2),
        (1, 0, 1),
        (1, 0, 2),
        (1, 1, 3),
    ]


def test_a_key_that_is_aggregated_is_not_nulled_for_the_aggregate() -> None:
    assert rows("SELECT SUM(a), COUNT(a) FROM t GROUP BY GROUPING SETS ((), (b))") == [
        (1, 1),
        (1, 1),
        (2, 2),
    ]


def test_a_set_that_is_there_twice_gives_its_groups_twice() -> None:
    assert rows("SELECT b, COUNT(*) FROM t GROUP BY GROUPING SETS (b, b) HAVING b = 'x'") == [("x", 2), ("x", 2)]


def test_group_id_tells_the_sets_apart() -> None:
    assert rows("SELECT GROUP_ID(), COUNT(DISTINCT b) FROM t GROUP BY GROUPING SETS ((a), ())") == [
        (0, 1),
        (0, 2),
        (0, 2),
    ]
    twice = "SELECT b, GROUP_ID(), COUNT(*) FROM t GROUP BY GROUPING SETS ((a, b), (b, a), (b))"
    assert [row[1] for row in rows(twice)].count(1) == 3
    assert len(rows(twice)) == 8
    assert rows("SELECT a, GROUPING(a), GROUP_ID() FROM t GROUP BY a") == [(1, 0, 0), (None, 0, 0)]


def test_a_number_in_group_by_is_a_constant() -> None:
    """K2: as Flink answers; a position is what it would refuse."""
    data: list[Any] = [(1, "x", 1), (2, "y", 2)]
    assert rows("SELECT SUM(c) FROM t GROUP BY 1", data) == [(3,)]
    assert rows("SELECT SUM(c), b FROM t GROUP BY 1, b", data) == [(1, "x"), (2, "y")]
    assert rows("SELECT b, SUM(c) FROM t GROUP BY b, 9", data) == [("x", 1), ("y", 2)]
    assert rows("SELECT 5, COUNT(*) FROM t GROUP BY 1", data) == [(5, 2)]
    assert rows("SELECT COUNT(*) FROM t WHERE c > 9 GROUP BY 1", data) == []
    sets = "SELECT b, COUNT(*), GROUPING(b) FROM t GROUP BY GROUPING SETS ((b), (1))"
    assert rows(sets, data) == [("x", 1, 0), ("y", 1, 0), (None, 2, 1)]


def test_a_number_in_group_by_is_a_position_where_flink_refuses_the_statement() -> None:
    data: list[Any] = [(1, "x", 1), (2, "x", 2)]
    assert rows("SELECT b, SUM(c) FROM t GROUP BY 1", data) == [("x", 3)]
    assert rows("SELECT SUM(c), UPPER(b) FROM t GROUP BY 2", data) == [(3, "X")]
    with pytest.raises(ValidationError, match="'b' is not being grouped"):
        rows("SELECT b, SUM(c) FROM t GROUP BY 9", data)


def test_distinct_sets_are_there_once() -> None:
    """K3: as in Flink."""
    assert rows("SELECT b, COUNT(*) FROM t GROUP BY DISTINCT GROUPING SETS ((b), (b))") == [("x", 2), ("y", 1)]
    twice = "SELECT a, b, COUNT(*) FROM t GROUP BY {} ROLLUP (a, b), ROLLUP (a)"
    assert len(rows(twice.format("ALL"))) > len(rows(twice.format("DISTINCT"))) == 6


def test_rows_that_go_leave_all_their_groups() -> None:
    data = [*(("+I", row) for row in DATA), ("-U", (1, "x", 1)), ("+U", (1, "x", 8)), ("-D", (1, "y", 2))]
    assert rows("SELECT a, SUM(c) FILTER (WHERE b = 'x') FROM t GROUP BY ROLLUP (a)", data) == [
        (1, 8),
        (None, 12),
        (None, 4),
    ]


def test_sets_within_windows() -> None:
    table = Rows(
        {"a": BIGINT, "ts": TimestampType(3)},
        [(1, 1_000_000_000), (2, 2_000_000_000), (1, 11_000_000_000)],
    )
    sql = """
        SELECT window_start, a, COUNT(*) FROM TABLE(TUMBLE(TABLE w, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        GROUP BY window_start, window_end, ROLLUP (a)
    """
    found = run(sql, w=Watermarked(table.columns, table.rows))
    assert all(kind == "+I" for kind, _ in found.changes)
    assert {(row[0] // 1_000_000_000, *row[1:]) for row in found.rows()} == {
        (0, 1, 1),
        (0, 2, 1),
        (0, None, 2),
        (10, 1, 1),
        (10, None, 1),
    }


class Watermarked(Rows):
    def ddl(self, name: str) -> str:
        return super().ddl(name)[:-1] + ", WATERMARK FOR ts AS ts)"


def test_keys_that_a_set_leaves_out_may_be_null() -> None:
    assert list_columns("SELECT id, id + 1 AS next_id, GROUPING(id) AS g FROM orders GROUP BY ROLLUP (id)") == [
        "id BIGINT",
        "next_id BIGINT",
        "g BIGINT NOT NULL",
    ]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("GROUPING(price)", "must be a grouped expression"),
        ("GROUPING()", "Invalid number of arguments to function 'GROUPING'"),
        ("GROUP_ID(id)", "Invalid number of arguments to function 'GROUP_ID'"),
    ],
)
def test_what_is_not_grouped_by_has_no_grouping(call: str, error: str) -> None:
    with pytest.raises(ValidationError, match=error.replace("(", r"\(")):
        planned(f"SELECT {call} FROM orders GROUP BY ROLLUP (id)")
