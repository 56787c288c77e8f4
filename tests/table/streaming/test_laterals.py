"""LATERAL queries and queries in expressions that use columns of the query around them, from text to rows."""

from __future__ import annotations

from typing import Any

import pytest
from tests.table.running import Rows, run

from penstock.base.errors import PenstockError, UnsupportedError
from penstock.sql.data.errors import ValidationError
from penstock.sql.functions.definition import BIGINT, STRING

LEFT: list[Any] = [(1, "x"), (2, "y"), (3, "z"), (None, "n")]
RIGHT: list[Any] = [("+I", (1, 10)), ("+I", (1, 20)), ("+I", (2, 30)), ("+I", (2, 40)), ("-D", (2, 40))]


def rows(sql: str) -> list[Any]:
    left, right = Rows({"a": BIGINT, "b": STRING}, LEFT), Rows({"a": BIGINT, "c": BIGINT}, RIGHT)
    return sorted(run(sql, t=left, u=right).rows(), key=str)


def test_a_lateral_query_sees_the_columns_before_it() -> None:
    assert rows("SELECT b, c FROM t, LATERAL (SELECT c FROM u WHERE u.a = t.a AND c > t.a * 10) AS v") == [
        ("x", 20),
        ("y", 30),
    ]


def test_what_it_selects_may_use_them() -> None:
    assert rows("SELECT b, s FROM t, LATERAL (SELECT t.a + u.c FROM u WHERE u.a = t.a) AS v(s)") == [
        ("x", 11),
        ("x", 21),
        ("y", 32),
    ]
    assert rows("SELECT b, s FROM t CROSS JOIN LATERAL (SELECT t.a + 1 AS s) AS v WHERE b <> 'n'") == [
        ("x", 2),
        ("y", 3),
        ("z", 4),
    ]


def test_left_join_keeps_rows_for_which_there_is_nothing() -> None:
    assert rows("SELECT t.a, v.* FROM t LEFT JOIN LATERAL (SELECT c FROM u WHERE u.a = t.a) AS v ON TRUE") == [
        (1, 10),
        (1, 20),
        (2, 30),
        (3, None),
        (None, None),
    ]


def test_an_aggregate_has_a_row_for_no_rows() -> None:
    sql = "SELECT b, n, m FROM t, LATERAL (SELECT COUNT(*) AS n, MAX(c) AS m FROM u WHERE u.a = t.a) AS v"
    assert rows(sql) == [("n", 0, None), ("x", 2, 20), ("y", 1, 30), ("z", 0, None)]
    assert rows(f"SELECT b FROM ({sql}) WHERE n = 0") == [("n",), ("z",)]


def test_the_first_rows_for_each_row_before_it() -> None:
    assert rows("SELECT b, c FROM t, LATERAL (SELECT c FROM u WHERE u.a = t.a ORDER BY c DESC LIMIT 1) AS v") == [
        ("x", 20),
        ("y", 30),
    ]


def test_one_value_without_an_aggregate() -> None:
    assert rows("SELECT b, (SELECT c FROM u WHERE u.a = t.a AND c > 10 AND c < 40) FROM t WHERE a IS NOT NULL") == [
        ("x", 20),
        ("y", 30),
        ("z", None),
    ]
    with pytest.raises(PenstockError):
        rows("SELECT b, (SELECT c FROM u WHERE u.a = t.a) FROM t")


def test_some_is_in_and_not_equal_to_all_is_not_in() -> None:
    assert rows("SELECT b FROM t WHERE a = SOME (SELECT a FROM u)") == [("x",), ("y",)]
    assert rows("SELECT b FROM t WHERE a <> ALL (SELECT a FROM u)") == [("z",)]
    assert rows("SELECT b FROM t WHERE NOT a = ANY (SELECT a FROM u)") == [("z",)]


@pytest.mark.parametrize(
    ("relation", "message"),
    [
        ("LEFT JOIN LATERAL (SELECT t.a + c AS s FROM u WHERE u.a = t.a) AS v ON TRUE", "cannot be joined by LEFT"),
        ("LEFT JOIN LATERAL (SELECT COUNT(*) AS n FROM u WHERE u.a = t.a) AS v ON v.n > 1", "takes ON TRUE"),
        ("CROSS JOIN LATERAL (SELECT COUNT(*) + 1 AS s FROM u WHERE u.a = t.a) AS v", "must be the aggregate itself"),
        ("CROSS JOIN LATERAL (SELECT c FROM u WHERE u.a > t.a LIMIT 1) AS v", "compare columns with those by ="),
    ],
)
def test_what_is_not_supported_says_so(relation: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        rows(f"SELECT * FROM t {relation}")


def test_a_join_that_keeps_the_right_side_cannot_be_lateral() -> None:
    with pytest.raises(ValidationError, match="RIGHT JOIN of LATERAL is not possible"):
        rows("SELECT * FROM t RIGHT JOIN LATERAL (SELECT c FROM u WHERE u.a = t.a) AS v ON TRUE")


def test_columns_of_using_are_there_once() -> None:
    assert rows("SELECT * FROM t JOIN u USING (a)") == [(1, "x", 10), (1, "x", 20), (2, "y", 30)]
    assert rows("SELECT * FROM t NATURAL JOIN u") == [(1, "x", 10), (1, "x", 20), (2, "y", 30)]


def test_rows_of_values_are_a_table() -> None:
    assert rows("SELECT y FROM (VALUES (1, 'a'), (2, 'b')) AS v(x, y) WHERE x > 1") == [("b",)]
    assert rows("SELECT 1 + 1") == [(2,)]


@pytest.mark.parametrize("on", ["ON TRUE", "ON 1 = 1"])
def test_a_lateral_aggregate_is_joined_by_a_left_join_on_true(on: str) -> None:
    """It has a row for each row anyway, so LEFT changes nothing."""
    for select, rest in (("COUNT(*)", 0), ("MAX(c)", None), ("COUNT(c)", 0)):
        query = f"SELECT t.b, v.n FROM t LEFT JOIN LATERAL (SELECT {select} AS n FROM u WHERE u.a = t.a) AS v {on}"
        crossed = query.replace("LEFT JOIN", "CROSS JOIN").removesuffix(on)
        assert rows(query) == rows(crossed)
        assert dict(rows(query))["z"] == rest
    first = "(SELECT c FROM u WHERE u.a = t.a ORDER BY c DESC LIMIT 1)"
    assert rows(f"SELECT b, c FROM t LEFT JOIN LATERAL {first} AS v {on}") == [
        *(("n", None), ("x", 20), ("y", 30), ("z", None)),
    ]


def test_a_further_condition_on_a_lateral_aggregate_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="takes ON TRUE"):
        rows("SELECT * FROM t LEFT JOIN LATERAL (SELECT COUNT(*) AS n FROM u WHERE u.a = t.a) AS v ON v.n > 1")


OUTER: dict[str, list[Any]] = {
    # in the ON of a subquery
    "SELECT b FROM t WHERE EXISTS (SELECT 1 FROM u JOIN t AS w ON u.a = w.a AND u.a = t.a AND c > 15)": [
        ("x",),
        ("y",),
    ],
    "SELECT b FROM t WHERE EXISTS (SELECT 1 FROM u LEFT JOIN t AS w ON u.a = w.a AND t.a = w.a)": [
        *(("n",), ("x",), ("y",), ("z",)),
    ],
    "SELECT b FROM t WHERE NOT EXISTS (SELECT 1 FROM u JOIN t AS w ON u.a = w.a AND u.a = t.a)": [("n",), ("z",)],
    "SELECT b, (SELECT COUNT(*) FROM u JOIN t AS w ON u.a = w.a AND u.a = t.a) FROM t": [
        *(("n", 0), ("x", 2), ("y", 1), ("z", 0)),
    ],
    # two levels down
    "SELECT b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.c IN (SELECT c FROM u AS w WHERE w.a = "
    "t.a))": [
        *(("x",), ("y",)),
    ],
    "SELECT b FROM t WHERE a IN (SELECT a FROM u WHERE EXISTS (SELECT 1 FROM u AS w WHERE w.a = t.a AND w.c > u.c))": [
        ("x",)
    ],
    "SELECT b FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND EXISTS (SELECT 1 FROM u AS w WHERE "
    "w.a = t.a AND w.c > u.c))": [("n",), ("y",), ("z",)],
    "SELECT b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE EXISTS (SELECT 1 FROM u AS w WHERE EXISTS (SELECT 1 FROM "
    "u AS x WHERE x.a = t.a AND x.c = w.c AND w.c = u.c)))": [("x",), ("y",)],
}


@pytest.mark.parametrize("sql", OUTER)
def test_outer_columns_are_found_in_joins_and_further_levels(sql: str) -> None:
    assert rows(sql) == OUTER[sql]


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        (
            "SELECT b FROM t WHERE EXISTS (SELECT 1 FROM UNNEST(ARRAY[t.a]) AS v (x) WHERE x = 1)",
            "UNNEST or a table function",
        ),
        (
            "SELECT b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE NOT EXISTS (SELECT 1 FROM u AS w WHERE w.a = t.a AND "
            "w.c > u.c))",
            "NOT IN or NOT EXISTS in a subquery, that uses columns of a query around it is not supported",
        ),
        ("SELECT b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.nope)", "Column 't.nope' not found"),
    ],
)
def test_outer_columns_that_are_not_supported_are_named(sql: str, error: str) -> None:
    with pytest.raises(PenstockError, match=error):
        rows(sql)
