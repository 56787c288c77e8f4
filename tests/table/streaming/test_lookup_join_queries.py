"""Queries FOR SYSTEM_TIME AS OF a processing time: what is asked of a table, which answers come, what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.table.running import folded
from tests.table.streaming.system_time import Job, Table

from penstock.base.errors import UnsupportedError
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.explain import plan_text

ORDERS = Table(
    "id INT, customer INT, total DOUBLE, p AS PROCTIME()",
    [(1, 3, 44.0), (2, 5, 100.0), (3, 1, 23.0), (4, None, 9.0), (5, 9, 12.0), (6, 1, 7.0)],
)
CUSTOMER_COLUMNS = "id INT, name STRING, age INT, city STRING, PRIMARY KEY (id) NOT ENFORCED"
CUSTOMER_ROWS = [
    (1, "Bob", 28, "Rome"),
    (2, "Alice", 32, "Oslo"),
    (3, "Claire", 37, "Bern"),
    (5, "Jake", 42, "Rome"),
]
CUSTOMERS = Table(CUSTOMER_COLUMNS, CUSTOMER_ROWS, answers="now")
PAIRS = [(1, "Claire"), (2, "Jake"), (3, "Bob"), (6, "Bob")]
JOIN = "FROM orders AS o {} JOIN customers FOR SYSTEM_TIME AS OF o.p AS c ON o.customer = c.id"


def job(
    select: str,
    customers: Table = CUSTOMERS,
    orders: Table = ORDERS,
    views: tuple[str, ...] = (),
    parallelism: int = 1,
    **options: str,
) -> Job:
    options = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return Job(select, {"orders": orders, "customers": customers}, views, options, parallelism)


def shown(found: Job) -> str:
    return plan_text(found.planner.rewritten(found.plan)).replace("default_catalog.default_database.", "")


@pytest.mark.parametrize("answers", ["now", "later", "now and later"])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_each_row_has_what_the_table_has_for_its_key(answers: str, parallelism: int) -> None:
    customers = Table(CUSTOMER_COLUMNS, CUSTOMER_ROWS, answers=answers)
    assert job(f"SELECT o.id, c.name {JOIN.format('')}", customers, parallelism=parallelism).rows() == PAIRS


def test_what_was_found_by_one_key_may_be_the_key_of_another_look_up() -> None:
    """All of the row is read, and of what was found only that key."""
    pairs = Table("id INT, name STRING, other INT", [(3, "x", 1), (1, "y", 5), (5, "z", 2)], answers="now")
    again = "JOIN customers FOR SYSTEM_TIME AS OF o.p AS d ON c.other = d.id"
    select = "o.id, o.customer, o.total, o.p IS NULL, d.name"
    found = job(f"SELECT {select} {JOIN.format('')} {again}", pairs).rows()
    assert found == [(1, 3, 44.0, False, "y"), (3, 1, 23.0, False, "z"), (6, 1, 7.0, False, "z")]


def test_rows_without_a_match_have_null_in_a_left_join() -> None:
    expected = sorted([*PAIRS, (4, None), (5, None)], key=repr)
    assert job(f"SELECT o.id, c.name {JOIN.format('LEFT')}").rows() == expected


def test_a_key_may_have_several_rows() -> None:
    customers = Table("id INT, name STRING", [(1, "a"), (3, "b"), (1, "c")], answers="now")
    found = job(f"SELECT o.id, c.name {JOIN.format('')}", customers).changes()
    assert found == [("+I", 1, "b"), ("+I", 3, "a"), ("+I", 3, "c"), ("+I", 6, "a"), ("+I", 6, "c")]


@pytest.mark.parametrize("together", [1, 6])
@pytest.mark.parametrize(
    ("condition", "lookup", "rows"),
    [
        # the left side alone: asked ahead of the look-up
        ("o.total > 20", "lookup=[id=customer], where=(total > 20.0)", [(1, 37), (2, 42), (3, 28)]),
        # the table alone: asked of what was found
        ("c.age > 30", "lookup=[id=customer], lookupWhere=(age > 30)", [(1, 37), (2, 42)]),
        # a constant is a key
        ("c.city = 'Rome'", "lookup=[id=customer, city='Rome']", [(2, 42), (3, 28), (6, 28)]),
        # both sides: asked of pairs
        ("o.total < c.age", "lookup=[id=customer], where=(total < CAST(age AS DOUBLE))", [(3, 28), (6, 28)]),
    ],
)
def test_each_condition_is_asked_where_it_can_be(condition: str, lookup: str, rows: list[Any], together: int) -> None:
    orders = replace(ORDERS, together=together)
    left = job(f"SELECT o.id, c.age {JOIN.format('LEFT')} AND {condition}", orders=orders)
    assert lookup in shown(left)
    alone = [(number, None) for number in range(1, 7) if number not in dict(rows)]
    assert left.rows() == sorted([*rows, *alone], key=repr)
    assert job(f"SELECT o.id, c.age {JOIN.format('')} AND {condition}", orders=orders).rows() == rows
    assert job(f"SELECT o.id, c.age {JOIN.format('')} WHERE {condition}", orders=orders).rows() == rows


def test_a_second_equality_with_the_same_column_is_asked_of_pairs() -> None:
    assert job(f"SELECT o.id {JOIN.format('')} AND o.id = c.id").rows() == []
    assert job(f"SELECT o.id {JOIN.format('')} AND o.id + 2 = c.id").rows() == [(1,)]


def test_columns_of_the_table_may_be_computed() -> None:
    columns = "id INT, name STRING, loud AS UPPER(name), seen AS PROCTIME(), PRIMARY KEY (id) NOT ENFORCED"
    customers = Table(columns, [row[:2] for row in CUSTOMER_ROWS], answers="now")
    found = job(f"SELECT o.id, c.loud, c.seen IS NULL {JOIN.format('')} AND c.loud <> 'BOB'", customers)
    assert found.rows() == [(1, "CLAIRE", False), (2, "JAKE", False)]


def test_a_view_with_filters_and_projections_is_asked_for_its_table() -> None:
    view = "CREATE VIEW romans AS SELECT name AS n, id AS number FROM customers WHERE city = 'Rome'"
    sql = "SELECT o.id, r.n FROM orders o JOIN romans FOR SYSTEM_TIME AS OF o.p AS r ON o.customer = r.number"
    found = job(sql, views=(view,))
    assert "lookup=[id=customer, city='Rome']" in shown(found)
    assert found.rows() == [(2, "Jake"), (3, "Bob"), (6, "Bob")]


def test_columns_that_nobody_reads_are_not_given() -> None:
    found = job(f"SELECT o.id, c.name {JOIN.format('')}")
    below = found.planner.rewritten(found.plan).inputs()[0]
    assert below.schema.names == ["id", "customer", "name"]


# --- rows that come and go --------------------------------------------------------------------------------------------

CHANGING = Table(
    f"{ORDERS.columns}, PRIMARY KEY (id) NOT ENFORCED",
    [("+I", (1, 3, 44.0)), ("-U", (1, 3, 44.0)), ("+U", (1, 1, 45.0)), ("-D", (1, 1, 45.0)), ("+I", (2, 5, 1.0))],
)
CHANGES = [("+I", 1, "Claire"), ("-U", 1, "Claire"), ("+U", 1, "Bob"), ("-D", 1, "Bob"), ("+I", 2, "Jake")]


@pytest.mark.parametrize("answers", ["now", "later"])
def test_rows_that_go_take_their_matches_along(answers: str) -> None:
    customers = Table(CUSTOMER_COLUMNS, CUSTOMER_ROWS, answers=answers)
    assert job(f"SELECT o.id, c.name {JOIN.format('')}", customers, CHANGING).changes() == CHANGES


@pytest.mark.parametrize("parallelism", [1, 2])
def test_what_was_found_can_be_kept_for_rows_that_go(parallelism: int) -> None:
    found = job(
        f"SELECT o.id, c.name {JOIN.format('')}",
        orders=CHANGING,
        parallelism=parallelism,
        table__optimizer__non_deterministic_update__strategy="TRY_RESOLVE",
    )
    (join,) = [step for step in found.steps if step.kind == "Lookup Join"]
    assert join.is_stateful
    changes = found.changes()
    assert parallelism > 1 or changes == CHANGES
    assert folded([(kind, tuple(values)) for kind, *values in changes]) == [(2, "Jake")]


@pytest.mark.parametrize(
    ("orders", "strategy", "is_warned"),
    [(CHANGING, "IGNORE", True), (CHANGING, "TRY_RESOLVE", False), (ORDERS, "IGNORE", False)],
)
def test_advice_warns_of_rows_that_are_looked_up_again(orders: Table, strategy: str, is_warned: bool) -> None:
    advice: list[str] = []
    found = job(
        f"SELECT o.id, c.name {JOIN.format('')}",
        orders=orders,
        table__optimizer__non_deterministic_update__strategy=strategy,
    )
    assert ("LookupJoin(advice=[1], table=" in found.planner.explained(found.plan, advice=advice)) is is_warned
    assert [text.partition("]")[0] for text in advice] == ["[WARNING"] * is_warned


def test_nothing_is_kept_for_rows_that_only_come() -> None:
    found = job(
        f"SELECT o.id, c.name {JOIN.format('')}",
        table__optimizer__non_deterministic_update__strategy="TRY_RESOLVE",
    )
    assert not [step for step in found.steps if step.kind == "Lookup Join" and step.is_stateful]


def test_a_table_that_answers_later_cannot_keep_what_was_found() -> None:
    customers = Table(CUSTOMER_COLUMNS, CUSTOMER_ROWS, answers="later")
    with pytest.raises(UnsupportedError, match="TRY_RESOLVE"):
        job(
            f"SELECT o.id {JOIN.format('')}",
            customers,
            CHANGING,
            table__optimizer__non_deterministic_update__strategy="TRY_RESOLVE",
        )


# --- hints ------------------------------------------------------------------------------------------------------------

BOTH = Table(CUSTOMER_COLUMNS, CUSTOMER_ROWS, answers="now and later")


@pytest.mark.parametrize(("hint", "is_async"), [("'async'='true'", True), ("'async'='false'", False)])
def test_a_hint_says_whether_answers_come_later(hint: str, is_async: bool) -> None:
    found = job(f"SELECT /*+ LOOKUP('table'='c', {hint}) */ o.id, c.name {JOIN.format('')}", BOTH)
    (join,) = [step for step in found.steps if step.kind == "Lookup Join"]
    assert join.is_stateful is is_async
    assert found.rows() == PAIRS


def test_a_hint_sends_rows_to_subtasks_by_their_keys() -> None:
    sql = f"SELECT /*+ LOOKUP('table'='c', 'shuffle'='true') */ o.id, c.name {JOIN.format('')} AND c.city = 'Rome'"
    found = job(sql, parallelism=2)
    (join,) = [step for step in found.steps if step.kind == "Lookup Join"]
    assert type(join.inputs[0].partitioner).__name__ == "HashPartitioner"
    assert found.rows() == [(2, "Jake"), (3, "Bob"), (6, "Bob")]


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        ("'table'='nobody'", "cannot match the name of input tables or views: `nobody` in `LOOKUP`"),
        ("'async'='true'", "'table'"),
        ("'table'='c', 'asynch'='true'", "unknown option 'asynch'"),
        ("'table'='c', 'output-mode'='any'", "'output-mode' has to be"),
        ("'table'='c', 'capacity'='0'", "'capacity' has to be"),
        ("'table'='c', 'timeout'='soon'", "'timeout' has to be"),
        ("'table'='c', 'retry-predicate'='lookup_miss'", "missing: retry-strategy, fixed-delay, max-attempts"),
    ],
)
def test_hints_that_say_nothing_are_refused(hint: str, message: str) -> None:
    with pytest.raises(ValidationError) as error:
        job(f"SELECT /*+ LOOKUP({hint}) */ o.id {JOIN.format('')}")
    assert message in str(error.value)


def test_hints_belong_to_one_query() -> None:
    inner = f"SELECT /*+ LOOKUP('table'='c', 'async'='false') */ o.id, c.name {JOIN.format('')}"
    assert job(f"SELECT * FROM ({inner})", BOTH).rows() == PAIRS
    with pytest.raises(ValidationError, match="cannot match"):
        job(f"SELECT /*+ LOOKUP('table'='c') */ * FROM (SELECT o.id {JOIN.format('')})")


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_table_that_cannot_be_asked_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="Processing-time temporal join is not supported yet"):
        job(f"SELECT * {JOIN.format('')}", Table(CUSTOMER_COLUMNS))


def test_a_query_cannot_be_asked() -> None:
    view = "CREATE VIEW counted AS SELECT id, COUNT(*) AS n FROM customers GROUP BY id"
    sql = "SELECT * FROM orders o JOIN counted FOR SYSTEM_TIME AS OF o.p AS c ON o.customer = c.id"
    with pytest.raises(UnsupportedError, match=r"Processing-time temporal join is not supported yet\..*Aggregate"):
        job(sql, views=(view,))


def test_a_look_up_needs_a_key() -> None:
    sql = "SELECT * FROM orders o JOIN customers FOR SYSTEM_TIME AS OF o.p AS c ON o.customer < c.id"
    with pytest.raises(ValidationError, match="requires an equality condition on fields of table"):
        job(sql)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"lookup.cache": "FULL"}, ValidationError, "Missing 'lookup.full-cache.periodic-reload.interval'"),
        ({"lookup.cache": "SOME"}, ValidationError, "Invalid value for option 'lookup.cache'"),
        ({"lookup.cache": "PARTIAL"}, ValidationError, "would hold all keys for ever"),
        (
            {"lookup.cache": "PARTIAL", "lookup.partial-cache.max-rows": "many"},
            ValidationError,
            "'many' is no whole number",
        ),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        job(f"SELECT o.id {JOIN.format('')}", Table(CUSTOMER_COLUMNS, CUSTOMER_ROWS, answers="now", options=options))
