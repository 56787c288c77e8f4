"""LATERAL of a query, which sees the tables before it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.table.planned import ORDERS, manager_of, plan_query
from tests.table.running import Rows, run

from penstock.base.errors import UnsupportedError
from penstock.sql.data.errors import ValidationError
from penstock.table.types import DataTypes

INT, STRING = DataTypes.INT(), DataTypes.STRING()
CITIES = Rows(
    {"name": STRING, "state": STRING, "people": INT},
    [("a", "x", 5), ("b", "x", 9), ("c", "x", 7), ("d", "y", 1), ("e", None, 3)],
)
STATES = Rows({"state": STRING, "least": INT}, [("x", 6), ("y", 2), ("z", 0), (None, 0)])

QUERIES: dict[str, list[tuple[Any, ...]]] = {
    "SELECT s.state, name FROM states AS s, LATERAL (SELECT name, people FROM cities WHERE state = s.state "
    "ORDER BY people DESC LIMIT 2)": [("x", "b"), ("x", "c"), ("y", "d")],
    "SELECT s.state, name FROM states AS s, LATERAL (SELECT name, people FROM cities WHERE state = s.state "
    "ORDER BY people DESC OFFSET 1 ROWS FETCH NEXT 1 ROWS ONLY)": [("x", "c")],
    "SELECT s.state, t.name FROM states AS s LEFT JOIN LATERAL (SELECT name FROM cities WHERE state = s.state "
    "ORDER BY people LIMIT 1) AS t ON TRUE": [("x", "a"), ("y", "d"), ("z", None), (None, None)],
    "SELECT s.state, n FROM states AS s, LATERAL (SELECT name FROM cities WHERE state = s.state AND people > s.least) "
    "AS t (n)": [("x", "b"), ("x", "c")],
    "SELECT s.state, name FROM states AS s LEFT JOIN LATERAL (SELECT name, people FROM cities WHERE state = s.state) "
    "AS t ON people > least": [("x", "b"), ("x", "c"), ("y", None), ("z", None), (None, None)],
    "SELECT s.state, many FROM states AS s, LATERAL (SELECT state, COUNT(*) AS many FROM cities "
    "WHERE state = s.state GROUP BY state) AS t": [("x", 3), ("y", 1)],
    "SELECT s.state, many FROM states AS s, LATERAL (SELECT COUNT(*) FROM cities WHERE state = s.state) AS t (many)": [
        ("x", 3),
        ("y", 1),
        ("z", 0),
        (None, 0),
    ],
}


@pytest.mark.parametrize("sql", QUERIES)
def test_lateral_queries(sql: str) -> None:
    """The first rows are those of each row before it, and not of all."""
    found = run(sql, cities=CITIES, states=STATES).rows()
    assert sorted(found, key=str) == sorted(QUERIES[sql], key=str)


REFUSED: dict[str, tuple[type[Exception], str]] = {
    "SELECT * FROM orders AS o, LATERAL (SELECT id FROM orders WHERE id > o.id ORDER BY price LIMIT 1) AS t": (
        UnsupportedError,
        "compare columns with those by =",
    ),
    "SELECT * FROM orders AS o, LATERAL (SELECT id FROM orders WHERE id + 1 = o.id ORDER BY price LIMIT 1) AS t": (
        UnsupportedError,
        "compare columns with those by =",
    ),
    "SELECT * FROM orders AS o, LATERAL (SELECT x FROM UNNEST(o.tags) AS u (x)) AS t": (
        UnsupportedError,
        "UNNEST or a table function in a subquery that uses columns of a query around it is not supported",
    ),
    "SELECT * FROM orders AS o FULL JOIN LATERAL (SELECT id FROM orders WHERE id = o.id) AS t ON TRUE": (
        ValidationError,
        "FULL JOIN of LATERAL is not possible",
    ),
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_cannot_be_a_join_is_refused(sql: str) -> None:
    """With the reason."""
    error, message = REFUSED[sql]
    with pytest.raises(error, match=message):
        plan_query(sql, manager_of(ORDERS))
