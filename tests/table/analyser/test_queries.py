"""The plans of queries."""

from __future__ import annotations

import textwrap

import pytest
from tests.table.planned import list_columns, planned

from penstock.sql.data.errors import ValidationError

ORDERS = """\
WatermarkAssigner(rowtime=[ts], watermark=[ts])
  Scan(table=[orders], fields=[id, customer, price, amount, ts, tags, place])"""
CUSTOMERS = "Scan(table=[customers], fields=[name, city, since])"


def below(*lines: str) -> str:
    """Nodes, each of which reads the next one; what has several lines comes last."""
    return "\n".join(textwrap.indent(line, "  " * depth) for depth, line in enumerate(lines))


def beside(first: str, *parts: str) -> str:
    """A node that reads several."""
    return "\n".join([first, *(textwrap.indent(part, "  ") for part in parts)])


PLANS = {
    "SELECT id, customer FROM orders WHERE amount > 3": below(
        "Project(select=[id, customer])", "Filter(where=(amount > 3))", ORDERS
    ),
    "SELECT o.*, name FROM orders AS o JOIN customers c ON o.customer = c.name AND c.city = 'Rome'": below(
        "Project(select=[id, customer, price, amount, ts, tags, place, name])",
        beside("Join(joinType=INNER, where=((customer = name) AND (city = 'Rome')))", ORDERS, CUSTOMERS),
    ),
    "SELECT customer, COUNT(*), SUM(price) AS total FROM orders GROUP BY customer HAVING COUNT(*) > 1": below(
        "Project(select=[customer, $agg0 AS EXPR$1, $agg1 AS total])",
        "Filter(where=($agg0 > 1))",
        "Aggregate(groupBy=[customer], select=[COUNT(*) AS $agg0, SUM($f1) AS $agg1])",
        "Project(select=[customer, price AS $f1])",
        ORDERS,
    ),
    "SELECT COUNT(DISTINCT customer) FILTER (WHERE amount > 1) AS n FROM orders": below(
        "Project(select=[$agg0 AS n])",
        "Aggregate(select=[COUNT(DISTINCT $f0) FILTER $f1 AS $agg0])",
        "Project(select=[customer AS $f0, (amount > 1) IS TRUE AS $f1])",
        ORDERS,
    ),
    "SELECT customer, amount FROM orders GROUP BY ROLLUP (customer, amount)": below(
        "Project(select=[customer, amount])",
        "Aggregate(groupBy=[customer, amount], groups=[{customer, amount}, {customer}, {}], select=[])",
        "Project(select=[customer, amount])",
        ORDERS,
    ),
    "SELECT customer AS c FROM orders GROUP BY customer ORDER BY COUNT(*)": below(
        "Project(select=[c])",
        "Sort(orderBy=[$sort0 ASC])",
        "Project(select=[customer AS c, $agg0 AS $sort0])",
        "Aggregate(groupBy=[customer], select=[COUNT(*) AS $agg0])",
        "Project(select=[customer])",
        ORDERS,
    ),
    "SELECT id, SUM(price) OVER w AS s, AVG(amount) OVER w AS a FROM orders "
    "WINDOW w AS (PARTITION BY customer ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)": below(
        "Project(select=[id, $over0 AS s, $over1 AS a])",
        "Over(partitionBy=[customer], orderBy=[ts ASC], ROWS, select=[SUM(price), AVG(amount)])",
        ORDERS,
    ),
    "SELECT window_start, SUM(price) AS total "
    "FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end": below(
        "Project(select=[window_start, $agg0 AS total])",
        "Aggregate(groupBy=[window_start, window_end], select=[SUM($f2) AS $agg0])",
        "Project(select=[window_start, window_end, price AS $f2])",
        "WindowTable(TUMBLE(ts, 60000 ms))",
        ORDERS,
    ),
    "SELECT customer FROM orders UNION SELECT name FROM customers": below(
        "Distinct",
        beside(
            "SetOperation(UNION ALL)",
            below("Project(select=[customer])", ORDERS),
            below("Project(select=[name])", CUSTOMERS),
        ),
    ),
    "SELECT customer, id FROM orders ORDER BY price DESC LIMIT 3": below(
        "Project(select=[customer, id])",
        "Sort(orderBy=[$sort0 DESC], fetch=3)",
        "Project(select=[customer, id, price AS $sort0])",
        ORDERS,
    ),
    "SELECT id, tag FROM orders CROSS JOIN UNNEST(tags) AS t (tag)": below(
        "Project(select=[id, tag])", "Correlate(UNNEST(tags), joinType=INNER)", ORDERS
    ),
    "SELECT id, city FROM orders JOIN customers FOR SYSTEM_TIME AS OF orders.ts AS c ON customer = c.name": below(
        "Project(select=[id, city])",
        beside("TemporalJoin(joinType=INNER, where=(customer = name))", ORDERS, CUSTOMERS),
    ),
    "VALUES (1, 'a'), (2, NULL)": "Values(2 rows, fields=[EXPR$0, EXPR$1])",
    "SELECT DISTINCT customer FROM orders": below("Distinct", "Project(select=[customer])", ORDERS),
    "WITH rich AS (SELECT name FROM customers) SELECT r.name FROM rich r, rich s": below(
        "Project(select=[name])",
        beside(
            "Join(joinType=INNER, where=True)",
            below("Project(select=[name])", CUSTOMERS),
            below("Project(select=[name])", CUSTOMERS),
        ),
    ),
}

SUBQUERIES = {
    "customer IN (SELECT name FROM customers WHERE city = 'Rome')": beside(
        "Join(joinType=SEMI, where=(customer = name))",
        ORDERS,
        below("Project(select=[name])", "Filter(where=(city = 'Rome'))", CUSTOMERS),
    ),
    # NULL is neither among the names nor not among them.
    "customer NOT IN (SELECT name FROM customers)": beside(
        "Join(joinType=ANTI, where=((customer = name) OR (customer = name) IS NULL))",
        ORDERS,
        below("Project(select=[name])", CUSTOMERS),
    ),
    "EXISTS (SELECT 1 FROM customers c WHERE c.name = o.customer)": beside(
        "Join(joinType=SEMI, where=($c1 = customer))",
        ORDERS,
        below("Project(select=[1 AS EXPR$0, name AS $c1])", CUSTOMERS),
    ),
    "NOT EXISTS (SELECT 1 FROM customers c WHERE c.name = o.customer AND o.amount > 1)": beside(
        "Join(joinType=ANTI, where=(($c1 = customer) AND (amount > 1)))",
        ORDERS,
        below("Project(select=[1 AS EXPR$0, name AS $c1])", CUSTOMERS),
    ),
}


@pytest.mark.parametrize("sql", PLANS)
def test_a_query_has_this_plan(sql: str) -> None:
    """Each step of the query is a node."""
    assert planned(sql) == PLANS[sql]


@pytest.mark.parametrize("condition", SUBQUERIES)
def test_a_query_in_a_condition_becomes_a_join(condition: str) -> None:
    """IN and EXISTS keep rows of the left side."""
    assert planned(f"SELECT id FROM orders o WHERE {condition}") == below("Project(select=[id])", SUBQUERIES[condition])


def test_a_query_that_gives_one_value_is_joined_to_each_row() -> None:
    """Its columns come after those of the row; columns of the query around it become conditions of the join."""
    sql = "SELECT id FROM orders o WHERE price > (SELECT AVG(price) FROM orders i WHERE i.customer = o.customer)"
    text = planned(sql)
    assert "Filter(where=(price > EXPR$0))" in text
    assert "Join(joinType=LEFT, where=($c1 = customer))" in text
    assert "Aggregate(groupBy=[$c1], select=[AVG($f0) AS $agg0])" in text


def test_columns_have_names_types_and_time_attributes() -> None:
    """A column that is only passed on stays a time attribute; what is computed from it is none."""
    assert list_columns("SELECT ts, COALESCE(ts, ts) AS other, amount > 1 FROM orders") == [
        "ts TIMESTAMP(3) *ROWTIME*",
        "other TIMESTAMP(3)",
        "EXPR$2 BOOLEAN",
    ]


def test_the_side_of_a_join_that_may_be_missing_has_null() -> None:
    """A LEFT JOIN gives NULL for columns of the right side, even where the table has none."""
    assert list_columns("SELECT id, name FROM orders LEFT JOIN customers ON customer = name") == [
        "id BIGINT NOT NULL",
        "name STRING",
    ]


def test_columns_of_using_are_one() -> None:
    """`*` has them once, and first."""
    sql = "SELECT * FROM customers JOIN (SELECT name, amount FROM orders, customers) USING (name)"
    assert list_columns(sql) == ["name STRING NOT NULL", "city STRING", "since DATE", "amount INT"]


def test_columns_of_a_star_get_names_of_their_own() -> None:
    """As in Flink: a column of `*` whose name another one has is numbered; what is selected by its name keeps it."""
    both = "SELECT * FROM customers a JOIN customers b ON a.name = b.name JOIN customers c ON a.name = c.name"
    assert [one.split()[0] for one in list_columns(both)] == [
        *("name", "city", "since"),
        *("name0", "city0", "since0"),
        *("name1", "city1", "since1"),
    ]
    assert list_columns(f"SELECT city1 FROM ({both})") == ["city1 STRING"]
    assert [one.split()[0] for one in list_columns("SELECT *, city FROM customers")] == [
        "name",
        "city",
        "since",
        "city",
    ]


REFUSED = {
    "SELECT nothing FROM orders": "Column 'nothing' not found in any table",
    "SELECT Customer FROM orders": "did you mean 'customer'?",
    "SELECT id FROM nowhere": "Object 'nowhere' not found",
    "SELECT name FROM customers a, customers b": "Column 'name' is ambiguous",
    "SELECT id, COUNT(*) FROM orders GROUP BY customer": "Expression 'id' is not being grouped",
    "SELECT SUM(COUNT(*)) FROM orders": "Aggregate expressions cannot be nested",
    "SELECT SUM(customer) FROM orders": "Invalid function call:\nSUM(STRING)",
    "SELECT ROW_NUMBER() FROM orders": "OVER must be specified for ROW_NUMBER",
    "SELECT ROW_NUMBER() OVER (PARTITION BY id) FROM orders": "ROW_NUMBER needs ORDER BY",
    "SELECT id FROM orders UNION SELECT id, amount FROM orders": "Column count mismatch in UNION",
    "SELECT id FROM orders UNION SELECT since FROM customers": "Type mismatch in column 1 of UNION",
    "SELECT id FROM orders WHERE amount": "WHERE clause must be a condition, not INT",
    "SELECT id FROM orders ORDER BY 3": "Ordinal out of range",
    "SELECT id FROM orders WHERE price > (SELECT name, city FROM customers)": "must give one column, not 2",
    "SELECT id FROM orders JOIN customers FOR SYSTEM_TIME AS OF since AS c ON TRUE": "not found in any table",
    "SELECT * FROM TABLE(TUMBLE(TABLE customers, DESCRIPTOR(since), INTERVAL '1' DAY))": "time attribute type",
    "SELECT * FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MONTH))": "an interval of days to seconds",
    "SELECT * FROM orders, UNNEST(amount) AS t (a)": "UNNEST takes an array, a map or a multiset, not INT",
    "SELECT unknown_function(id) FROM orders": "No match found for function signature UNKNOWN_FUNCTION",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_means_nothing_is_refused_with_the_reason(sql: str) -> None:
    """When it is planned, before anything runs."""
    with pytest.raises(ValidationError) as refusal:
        planned(sql)
    assert REFUSED[sql] in str(refusal.value)
