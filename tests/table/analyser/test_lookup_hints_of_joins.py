"""The hint LOOKUP of a join that looks up no rows: its table may be named, and nothing changes."""

from __future__ import annotations

import pytest
from tests.table.planned import CUSTOMERS, ORDERS, manager_of, plan_query

from penstock.sql.data.errors import ValidationError

TABLES = (ORDERS, CUSTOMERS)


@pytest.mark.parametrize(
    ("name", "joined"),
    [
        ("customers", "JOIN customers ON name = customer"),
        ("customers", "LEFT JOIN customers ON name = customer"),
        ("customers", ", customers"),
        ("c", "JOIN customers AS c ON name = customer"),
        ("c", "JOIN (SELECT * FROM customers) AS c ON name = customer"),
        ("customers", "JOIN customers ON name = customer JOIN (SELECT 1 AS w) AS z ON amount = w"),
        ("z", "JOIN customers ON name = customer JOIN (SELECT 1 AS w) AS z ON amount = w"),
    ],
)
def test_the_second_table_of_a_join_may_be_named(name: str, joined: str) -> None:
    """K2: as in Flink, the plan is that of the query without the hint."""
    manager = manager_of(*TABLES)
    hinted = plan_query(f"SELECT /*+ LOOKUP('table'='{name}') */ id FROM orders {joined}", manager)
    assert hinted == plan_query(f"SELECT id FROM orders {joined}", manager)


@pytest.mark.parametrize(
    ("name", "joined"),
    [
        ("orders", "JOIN customers ON name = customer"),
        ("customers", "JOIN customers AS c ON name = customer"),
        ("nobody", "JOIN customers ON name = customer"),
    ],
)
def test_other_names_are_refused(name: str, joined: str) -> None:
    """K3: the first table, the name that an alias hides, and no table at all."""
    with pytest.raises(ValidationError, match=f"cannot match the name of input tables or views: `{name}` in `LOOKUP`"):
        plan_query(f"SELECT /*+ LOOKUP('table'='{name}') */ id FROM orders {joined}", manager_of(*TABLES))
