"""Queries FOR SYSTEM_TIME AS OF an event time: what a versioned table is, which answers come, what is refused."""

from __future__ import annotations

import pytest
from tests.table.streaming.system_time import SECOND, Job, Table

from penstock.sql.data.errors import ValidationError

ORDERS = Table(
    "id INT, currency STRING, amount INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts",
    [
        (1, "EUR", 2, 42 * SECOND),
        (2, "USD", 1, 43 * SECOND),
        (3, "YEN", 50, 44 * SECOND),
        (4, "EUR", 3, 45 * SECOND),
        (5, "EUR", 1, 58 * SECOND),
    ],
)
RATE_COLUMNS = "currency STRING, rate INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts"
RATE_ROWS = [
    ("USD", 102, 41 * SECOND),
    ("EUR", 114, 41 * SECOND),
    ("EUR", 116, 45 * SECOND),
    ("EUR", 119, 47 * SECOND),
    ("USD", 103, 58 * SECOND),
]
RATES = Table(f"{RATE_COLUMNS}, PRIMARY KEY (currency) NOT ENFORCED", RATE_ROWS)
HISTORY = Table(RATE_COLUMNS, RATE_ROWS)
JOIN = "FROM orders AS o {} JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency"
ANSWER = [(1, 114), (2, 102), (4, 116), (5, 119)]


def job(select: str, rates: Table = RATES, orders: Table = ORDERS, parallelism: int = 1, *views: str) -> Job:
    return Job(select, {"orders": orders, "rates": rates, "history": HISTORY}, views, parallelism=parallelism)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_each_row_has_the_version_of_its_time(parallelism: int) -> None:
    assert job(f"SELECT o.id, r.rate {JOIN.format('')}", parallelism=parallelism).rows() == ANSWER


def test_columns_of_using_are_compared() -> None:
    """K3: and shown once."""
    using = "SELECT currency, o.id, r.rate FROM orders AS o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r USING (currency)"
    assert [row[1:] for row in sorted(job(using).rows(), key=lambda row: row[1])] == ANSWER


def test_rows_without_a_version_have_null_in_a_left_join() -> None:
    assert job(f"SELECT o.id, r.rate {JOIN.format('LEFT')}").rows() == sorted([*ANSWER, (3, None)])


def test_other_conditions_are_asked_of_the_version_and_not_ahead_of_it() -> None:
    # The version of EUR at 45 is dropped, and the one before it does not take its place.
    inner = job(f"SELECT o.id, r.rate {JOIN.format('')} AND r.rate <> 116 AND o.amount < 3")
    assert inner.rows() == [(1, 114), (2, 102), (5, 119)]
    left = job(f"SELECT o.id, r.rate {JOIN.format('LEFT')} AND r.rate <> 116 AND o.amount < 3")
    assert left.rows() == [(1, 114), (2, 102), (3, None), (4, None), (5, 119)]
    behind = job(f"SELECT o.id, r.rate {JOIN.format('')} WHERE r.rate <> 116 AND o.amount < 3")
    assert behind.rows() == [(1, 114), (2, 102), (5, 119)]


def test_the_key_may_be_compared_with_a_wider_type() -> None:
    """A BIGINT that is no INT equals no key."""
    orders = Table("id BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts", [(1, 9 * SECOND), (2**32 + 1, 9 * SECOND)])
    columns = "id INT, name STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, PRIMARY KEY (id) NOT ENFORCED"
    sql = "SELECT o.id, r.name FROM orders AS o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.id = r.id"
    found = job(sql, Table(columns, [(1, "one", 2 * SECOND)]), orders)
    assert found.rows() == [(1, "one"), (2**32 + 1, None)]


def test_the_key_of_the_left_side_may_be_computed() -> None:
    sql = JOIN.format("").replace("o.currency = r", "UPPER(o.currency) = r")
    assert job(f"SELECT o.id, r.rate {sql}").rows() == ANSWER


def test_further_equalities_are_asked_of_the_version() -> None:
    rows = [("EUR", 1, 41 * SECOND), ("EUR", 2, 50 * SECOND)]
    rates = Table(f"{RATE_COLUMNS}, PRIMARY KEY (currency) NOT ENFORCED", rows)
    # At 58 the version has another amount, so an older one with this amount is none any more.
    assert job(f"SELECT o.id {JOIN.format('')} AND o.amount = r.rate", rates).rows() == []


def test_a_null_key_has_no_version() -> None:
    orders = Table(ORDERS.columns, [(1, None, 2, 42 * SECOND), (2, "USD", 1, 43 * SECOND)])
    assert job(f"SELECT o.id, r.rate {JOIN.format('LEFT')}", orders=orders).rows() == [(1, None), (2, 102)]


def test_the_last_rows_of_partitions_are_a_versioned_table() -> None:
    view = """CREATE VIEW latest AS SELECT currency, rate, ts FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY currency ORDER BY ts DESC) AS n FROM history) WHERE n = 1"""
    sql = JOIN.format("").replace("rates", "latest")
    assert job(f"SELECT o.id, r.rate {sql}", RATES, ORDERS, 1, view).rows() == ANSWER


def test_the_highest_rows_of_partitions_are_a_versioned_table() -> None:
    """A later row that is not the highest is no version."""
    view = """CREATE VIEW highest AS SELECT currency, rate, ts FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY currency ORDER BY rate DESC) AS n FROM rates) WHERE n = 1"""
    rates = Table(RATE_COLUMNS, [("USD", 102, 41 * SECOND), ("EUR", 114, 41 * SECOND), ("USD", 99, 42 * SECOND)])
    sql = JOIN.format("").replace("rates", "highest")
    assert job(f"SELECT o.id, r.rate {sql}", rates, ORDERS, 1, view).rows() == [(1, 114), (2, 102), (4, 114), (5, 114)]


def test_updates_and_deletions_are_versions() -> None:
    rates = Table(
        RATES.columns,
        [
            ("+I", ("EUR", 114, 41 * SECOND)),
            ("-U", ("EUR", 114, 41 * SECOND)),
            ("+U", ("EUR", 116, 45 * SECOND)),
            ("-D", ("EUR", 116, 50 * SECOND)),
        ],
    )
    assert job(f"SELECT o.id, r.rate {JOIN.format('')}", rates).rows() == [(1, 114), (4, 116)]


def test_a_row_that_a_filter_drops_ends_the_version_before_it() -> None:
    rates = Table(
        RATES.columns,
        [
            ("+I", ("EUR", 114, 41 * SECOND)),
            ("-U", ("EUR", 114, 41 * SECOND)),
            ("+U", ("EUR", 116, 57 * SECOND)),
            ("+I", ("USD", 102, 59 * SECOND)),
        ],
    )
    view = "CREATE VIEW cheap AS SELECT * FROM rates WHERE rate < 115"
    sql = JOIN.format("LEFT").replace("rates", "cheap")
    found = job(f"SELECT o.id, r.rate {sql} WHERE o.id > 4", rates, ORDERS, 1, view)
    assert found.rows() == [(5, None)]


def test_upserts_are_versions() -> None:
    rates = Table(RATES.columns, [("+I", row) for row in RATE_ROWS], is_upsert=True)
    assert job(f"SELECT o.id, r.rate {JOIN.format('')}", rates).rows() == ANSWER


def test_rows_that_go_are_joined_like_those_that_come() -> None:
    orders = Table(ORDERS.columns, [("+I", (1, "EUR", 2, 42 * SECOND)), ("-D", (1, "EUR", 2, 42 * SECOND))])
    found = job(f"SELECT o.id, r.rate {JOIN.format('')}", orders=orders).changes()
    assert found == [("+I", 1, 114), ("-D", 1, 114)]


def test_the_time_of_the_left_side_stays_a_time_attribute() -> None:
    sql = """SELECT window_start, SUM(rate) FROM TUMBLE(
        TABLE joined, DESCRIPTOR(ts), INTERVAL '10' SECONDS) GROUP BY window_start, window_end"""
    view = f"CREATE VIEW joined AS SELECT o.ts, r.rate {JOIN.format('')}"
    assert job(sql, RATES, ORDERS, 1, view).rows() == [(40 * SECOND, 332), (50 * SECOND, 119)]


@pytest.mark.parametrize(
    ("rates", "condition", "message"),
    [
        (HISTORY, "", "no primary key can be found"),
        (Table("currency STRING, rate INT, ts TIMESTAMP(3), PRIMARY KEY (currency) NOT ENFORCED"), "", "no row time"),
        (
            Table(
                "currency STRING, rate INT, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts, "
                "PRIMARY KEY (currency) NOT ENFORCED"
            ),
            "",
            "requires same rowtime type in left table and versioned table",
        ),
        (
            RATES,
            "o.amount = r.rate",
            r"primary key \[currency0\] must be included in the equivalence condition of temporal join, but current "
            r"temporal join condition is \[amount=rate\]",
        ),
    ],
)
def test_what_is_no_versioned_table_is_refused(rates: Table, condition: str, message: str) -> None:
    sql = JOIN.format("")
    if condition:
        sql = sql.replace("o.currency = r.currency", condition)
    with pytest.raises(ValidationError, match=message):
        job(f"SELECT * {sql}", rates)


@pytest.mark.parametrize("join_type", ["RIGHT", "FULL"])
def test_other_joins_are_refused(join_type: str) -> None:
    with pytest.raises(ValidationError, match=f"INNER JOIN and LEFT JOIN, but was {join_type} JOIN"):
        job(f"SELECT * {JOIN.format(join_type)}")


def test_a_time_that_is_no_attribute_is_refused() -> None:
    orders = Table("id INT, currency STRING, amount INT, ts TIMESTAMP(3)")
    with pytest.raises(ValidationError, match="left table's time attribute field"):
        job(f"SELECT * {JOIN.format('')}", orders=orders)


def test_a_time_of_rows_that_may_be_late_is_refused() -> None:
    """As those of a join are, see `rewrites/times.py`."""
    late = "(SELECT a.* FROM orders AS a JOIN history ON a.currency = history.currency) AS o"
    with pytest.raises(ValidationError, match="left table's time attribute field"):
        job(f"SELECT * {JOIN.format('').replace('orders AS o', late)}")


def test_columns_that_nobody_reads_do_not_wait() -> None:
    found = job(f"SELECT o.id, r.rate {JOIN.format('')}")
    left, right = found.planner.rewritten(found.plan).inputs()[0].inputs()
    assert left.schema.names == ["id", "currency", "ts"]
    assert right.schema.names == ["currency", "rate", "ts"]
