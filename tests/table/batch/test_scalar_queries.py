"""Queries of one value for each row around them: Spark gets them as such, where they are NULL of no rows."""

from __future__ import annotations

import pytest
from tests.table.batch.batches import check_agrees, show_query
from tests.table.running import Rows

from penstock.sql.data.types import IntType

pytestmark = pytest.mark.spark

ORDERS = Rows({"k": IntType(), "v": IntType()}, [(1, 10), (2, 20), (3, 30), (None, 40), (1, 5)])
ITEMS = Rows({"k": IntType(), "n": IntType()}, [(1, 4), (1, 6), (2, 7), (None, 9), (2, None)])


def _text(sql: str) -> str:
    return show_query(sql, o=ORDERS, i=ITEMS)


def _agrees(sql: str) -> None:
    assert len(check_agrees(sql, o=ORDERS, i=ITEMS).rows()) > 0


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT v FROM o WHERE v > (SELECT SUM(n) FROM i WHERE i.k = o.k) - 8",
        "SELECT v FROM o WHERE v * 2 > (SELECT 2 * MIN(n) FROM i WHERE o.k = i.k AND n > 4)",
        "SELECT v, (SELECT MAX(n) FROM i WHERE i.k = o.k) FROM o",
        "SELECT o.v FROM o, i WHERE o.k = i.k AND n = (SELECT MAX(n) FROM i j WHERE j.k = o.k)",
        "SELECT v FROM o WHERE (SELECT MAX(n) FROM i WHERE i.k = o.k) IS NULL",
    ],
)
def test_spark_gets_the_query(sql: str) -> None:
    assert "GROUP BY" not in _text(sql)
    assert "LEFT JOIN" not in _text(sql)
    _agrees(sql)


@pytest.mark.parametrize(
    "sql",
    [
        # of no rows these are not NULL
        "SELECT v, (SELECT COUNT(n) FROM i WHERE i.k = o.k) FROM o",
        "SELECT v FROM o WHERE 0 = (SELECT COUNT(*) FROM i WHERE i.k = o.k)",
        # it would run for each place
        "SELECT v FROM o WHERE (SELECT MAX(n) FROM i WHERE i.k = o.k) BETWEEN 5 AND v",
        # it would stand in a query that is in a condition itself
        "SELECT v FROM o WHERE EXISTS (SELECT 1 FROM i WHERE i.k = o.k AND n > 4) "
        "AND v > (SELECT MAX(n) FROM i WHERE i.k = o.k)",
        # one value for each of two
        "SELECT v FROM (SELECT v, (SELECT MAX(n) FROM i WHERE i.k = o.k) m FROM o) WHERE m > 5 AND m < v",
    ],
)
def test_others_give_the_same(sql: str) -> None:
    _agrees(sql)


def test_a_count_stays_a_join() -> None:
    assert "LEFT JOIN" in _text("SELECT v, (SELECT COUNT(n) FROM i WHERE i.k = o.k) FROM o")


def test_a_query_whose_value_is_asked_twice_stays_a_join() -> None:
    text = _text("SELECT v FROM o WHERE (SELECT MAX(n) FROM i WHERE i.k = o.k) BETWEEN 5 AND v")
    assert text.count("max(") == 1


def test_joins_without_conditions_of_their_own_have_no_on() -> None:
    """Spark moves a condition with a query in it past such joins only."""
    assert " ON " not in _text("SELECT v, n FROM o, i WHERE o.k = i.k")
    assert " ON " in _text("SELECT v, n FROM o JOIN i ON o.k = i.k")
    assert " ON true" in _text("SELECT v, n FROM o LEFT JOIN i ON TRUE")
