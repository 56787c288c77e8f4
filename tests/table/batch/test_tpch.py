"""TPC-H's queries give what Spark gives for the same SQL, over a few rows that each query finds some of."""

from __future__ import annotations

import contextlib
import io
import random
import re
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from benchmarks.tpch import differences, environment
from benchmarks.tpch_queries import QUERIES, TABLES
from tests.table.batch.batches import SETTINGS, spark_of_tests

from penstock.table import TableEnvironment

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NATIONS = ("BRAZIL", "CANADA", "FRANCE", "GERMANY", "SAUDI ARABIA", "INDIA")
REGIONS = ("AMERICA", "EUROPE", "ASIA")
TYPES = ("ECONOMY ANODIZED STEEL", "PROMO BRUSHED BRASS", "MEDIUM POLISHED TIN", "SMALL PLATED BRASS")
ORDERS, PARTS, SUPPLIERS, CUSTOMERS = 400, 40, 10, 40


def rows_of_tables() -> dict[str, list[tuple[Any, ...]]]:
    """Rows of all tables, the same in every run."""
    chance = random.Random(7)

    def pick(*among: Any) -> Any:
        return chance.choice(among)

    def money(most: int) -> Decimal:
        return Decimal(chance.randrange(100, most)) / 100

    suppliers = range(SUPPLIERS)
    found: dict[str, list[tuple[Any, ...]]] = {
        "region": [(key, name, "") for key, name in enumerate(REGIONS)],
        "nation": [(key, name, key % 3, "") for key, name in enumerate(NATIONS)],
        "supplier": [
            (key, f"S{key}", "here", key % 6, "13-1", money(9999), pick("", "Customer x Complaints"))
            for key in suppliers
        ],
        "customer": [
            (key, f"C{key}", "there", key % 6, f"{pick(13, 31, 99)}-5", money(9999), "BUILDING", "")
            for key in range(CUSTOMERS)
        ],
        "part": [
            (
                key,
                pick("forest green", "navy green", "red"),
                "M",
                pick("Brand#12", "Brand#23", "Brand#34"),
                pick(*TYPES),
                pick(3, 15, 9),
                pick("SM CASE", "MED BOX", "LG BOX"),
                money(9999),
                "",
            )
            for key in range(PARTS)
        ],
        "partsupp": [
            (part, (part + one) % SUPPLIERS, chance.randrange(1, 9999), money(999), "")
            for part in range(PARTS)
            for one in range(3)
        ],
        "orders": [],
        "lineitem": [],
    }
    for key in range(ORDERS):
        ordered = date(1992, 1, 1) + timedelta(days=chance.randrange(2400))
        customer = chance.randrange(CUSTOMERS - 9)
        comment = pick("plain", "special x requests")
        found["orders"].append(
            (key, customer, pick("F", "O"), money(10**6), ordered, pick("1-URGENT", "3-MEDIUM"), "", 0, comment)
        )
        for line in range(chance.randrange(1, 8)):
            part = chance.randrange(PARTS)
            days = [ordered + timedelta(days=chance.randrange(1, 99)) for _ in range(3)]
            found["lineitem"].append(
                (
                    *(key, part, (part + chance.randrange(3)) % SUPPLIERS, line),
                    *(Decimal(chance.randrange(1, 51)), money(10**5), Decimal(chance.randrange(11)) / 100),
                    *(Decimal(chance.randrange(9)) / 100, pick("R", "N"), pick("O", "F"), *days),
                    *("DELIVER IN PERSON", pick("AIR", "MAIL", "SHIP"), ""),
                )
            )
    # one order that is large enough for query 18
    found["lineitem"] += [(0, 1, 1, 9 + line, Decimal(50), *found["lineitem"][0][5:]) for line in range(7)]
    return found


@pytest.fixture(scope="module")
def tables() -> Iterator[TableEnvironment]:
    spark = spark_of_tests().session
    for name, rows in rows_of_tables().items():
        spark.createDataFrame(rows, TABLES[name]).coalesce(1).cache().createOrReplaceTempView(name)
    yield environment(SETTINGS)
    for name in TABLES:
        spark.catalog.uncacheTable(name)
        spark.catalog.dropTempView(name)


@pytest.mark.parametrize("number", QUERIES)
def test_a_query_gives_what_spark_gives(number: int, tables: TableEnvironment) -> None:
    wanted = [tuple(row) for row in spark_of_tests().session.sql(QUERIES[number]).collect()]
    with tables.sql_query(QUERIES[number]).execute().collect() as rows:
        found = [tuple(row) for row in rows]
    assert differences(found, wanted) == ""
    assert wanted, "the rows of the test give nothing to compare"


def test_joins_that_follow_one_another_are_one_query(tables: TableEnvironment) -> None:
    """Spark then finds their order: no pair of tables is joined without a condition."""
    assert "NestedLoop" not in tables.explain_sql(QUERIES[2])
    assert "CartesianProduct" not in tables.explain_sql(QUERIES[2])


def test_no_query_leaves_spark(tables: TableEnvironment) -> None:
    for query in QUERIES.values():
        assert "InArrow" not in tables.explain_sql(query)


def test_spark_runs_the_operators_that_it_runs_for_the_same_sql(tables: TableEnvironment) -> None:
    """Scans, joins, subqueries and exchanges of each query, in their order: that of joins makes queries quick or slow.

    Projections do not count: they are part of others' code.
    """
    session = spark_of_tests().session
    # By sizes that are estimated Spark may choose either way.
    session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        for number, query in QUERIES.items():
            with contextlib.redirect_stdout(io.StringIO()) as by_hand:
                session.sql(query).explain()
            ours = tables.explain_sql(query)
            assert _operators(ours) == _operators(by_hand.getvalue()), number
    finally:
        session.conf.unset("spark.sql.autoBroadcastJoinThreshold")


def _operators(plan: str) -> list[str]:
    """The operators of a plan of Spark from the top down, and of a scan how many columns it has."""
    _, _, physical = plan.partition("== Physical Plan ==")
    found = re.findall(r"^[\s:|+*()\d-]*([A-Z]\w+)( \[.*?\])?", physical, re.M)
    assert found
    return [
        f"{name} of {columns.count(',') + 1}" if "Scan" in name else name
        for name, columns in found
        if name != "Project"
    ]
