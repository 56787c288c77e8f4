"""STATE_TTL: whose state lives how long, by the names in FROM."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.table.planned import CUSTOMERS, ORDERS, create, manager_of, plan_query

from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.nodes import Aggregate, Distinct, Join, Node

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def lifetimes(sql: str) -> list[object]:
    """What the joins and aggregates of a query have, from the top."""
    manager = manager_of(ORDERS, CUSTOMERS)
    create(manager, "CREATE VIEW v AS SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer")

    def found(node: Node) -> Iterator[object]:
        if isinstance(node, Join | Aggregate | Distinct):
            yield node.state_ttl_ms
        for inner in node.inputs():
            yield from found(inner)

    return list(found(plan_query(sql, manager)))


@pytest.mark.parametrize(
    ("hints", "query", "expected"),
    [
        ("STATE_TTL('orders' = '1d')", "COUNT(*) FROM orders", [DAY_MS]),
        ("STATE_TTL('o' = '1 d')", "customer, COUNT(*) FROM orders o GROUP BY customer", [DAY_MS]),
        ("STATE_TTL('orders' = '12h')", "DISTINCT customer FROM orders", [12 * HOUR_MS]),
        ("STATE_TTL('v' = '1d')", "MAX(n) FROM v GROUP BY customer", [DAY_MS, None]),
        ("STATE_TTL('o' = '1d', 'c' = '12h')", "o.id FROM orders o JOIN customers c ON name = customer",
         [(DAY_MS, 12 * HOUR_MS)]),
        ("STATE_TTL('customers' = '1d')", "id FROM orders LEFT JOIN customers ON name = customer", [(None, DAY_MS)]),
        ("STATE_TTL('t' = '1d')", "id FROM (SELECT DISTINCT id FROM orders) t, customers", [(DAY_MS, None), None]),
        # an aggregate of a join reads nothing that has a name
        ("STATE_TTL('orders' = '1d')", "COUNT(*) FROM orders JOIN customers ON name = customer",
         [None, (DAY_MS, None)]),
        # the left side of the upper join has no name
        ("STATE_TTL('a' = '1h', 'b' = '2h', 'c' = '3h')",
         "a.id FROM orders a JOIN orders b ON a.id = b.id JOIN orders c ON b.id = c.id",
         [(None, 3 * HOUR_MS), (HOUR_MS, 2 * HOUR_MS)]),
        # in one hint the last one counts, of several hints the first
        ("STATE_TTL('orders' = '1h', 'orders' = '2h')", "COUNT(*) FROM orders", [2 * HOUR_MS]),
        ("STATE_TTL('orders' = '1h'), STATE_TTL('orders' = '2h')", "COUNT(*) FROM orders", [HOUR_MS]),
        ("STATE_TTL('orders' = '0')", "COUNT(*) FROM orders", [0]),
        ("state_ttl('orders' = '1 h')", "COUNT(*) FROM orders", [HOUR_MS]),
    ],
)  # fmt: skip
def test_a_hint_says_how_long_state_lives(hints: str, query: str, expected: list[object]) -> None:
    assert lifetimes(f"SELECT /*+ {hints} */ {query}") == expected


def test_a_hint_is_not_for_queries_inside() -> None:
    sql = """SELECT /*+ STATE_TTL('t' = '2d') */ MAX(n)
             FROM (SELECT /*+ STATE_TTL('orders' = '4d') */ customer, COUNT(*) AS n FROM orders GROUP BY customer) t"""
    assert lifetimes(sql) == [2 * DAY_MS, 4 * DAY_MS]


def test_a_hint_of_a_query_in_where() -> None:
    """The lifetimes of a join below IN or EXISTS are those that its own query says."""
    sql = """SELECT id FROM orders WHERE id IN (
                 SELECT /*+ STATE_TTL('o' = '1d') */ o.id FROM orders o JOIN customers c ON name = customer)"""
    assert lifetimes(sql) == [(None, None), (DAY_MS, None)]


@pytest.mark.parametrize(
    ("hint", "reason"),
    [
        ("STATE_TTL('x' = '1d', 'y' = '1d')",
         "cannot match the name of input tables or views: \n`x` in `STATE_TTL`, `y`"),
        ("STATE_TTL('orders' = 'soon')", "Invalid STATE_TTL hint: 'orders' = 'soon'"),
        ("STATE_TTL(orders)", "expecting pairs of name and time"),
    ],
)  # fmt: skip
def test_hints_that_mean_nothing_are_refused(hint: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        lifetimes(f"SELECT /*+ {hint} */ COUNT(*) FROM orders")
