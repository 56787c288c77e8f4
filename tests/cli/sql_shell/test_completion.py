"""What may come next: by the words before, and by what the session knows."""

from typing import cast

import pytest
from tests.cli.sql_shell.shells import shell_of

from penstock.cli.sql_shell.prompt import SessionNames, candidates
from penstock.table import TableEnvironment

SETUP = """CREATE TABLE orders (order_id BIGINT, customer STRING) WITH ('connector' = 'blackhole');
CREATE TEMPORARY VIEW others AS SELECT 1 AS other_id;
CREATE DATABASE archive;
CREATE TABLE archive.old_orders (old_id BIGINT) WITH ('connector' = 'blackhole');
CREATE TABLE `order` (`my price` INT, `value` INT) WITH ('connector' = 'blackhole');
CREATE CATALOG spare WITH ('type' = 'generic_in_memory');
"""
NAMES = SessionNames(cast(TableEnvironment, shell_of(SETUP).tables))


def found(text: str) -> list[str]:
    """What may come at the `|` of a text."""
    before, _, after = text.partition("|")
    return list(candidates(before, after, NAMES).texts)


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("SELECT * FROM o|", ["`order`", "orders", "others"]),
        ("INSERT INTO ord|", ["`order`", "orders"]),
        ("SELECT * FROM `o|", ["`order`", "`orders`", "`others`"]),
        ("SELECT `order`.| FROM `order`", ["`my price`", "`value`"]),
        ("DESCRIBE ot|", ["others"]),
        ("SELECT * FROM archive.|", ["old_orders"]),
        ("SELECT * FROM default_catalog.archive.o|", ["old_orders"]),
        ("SELECT * FROM default_catalog.arch|", ["archive"]),
        ("SELECT * FROM spa|", ["spare"]),
        ("USE CATALOG |", ["default_catalog", "spare"]),
        ("USE arch|", ["archive"]),
        ("SELECT o.| FROM orders AS o", ["order_id", "customer"]),
        ("SELECT o.cu| FROM orders o JOIN others", ["customer"]),
        ("SELECT others.| FROM others", ["other_id"]),
        ("SELECT old| FROM archive.old_orders", ["old_id", "old", "old_orders"]),
        ("SELECT nothing.|", []),
        ("SET 'sql-client.exec|", ["sql-client.execution.max-table-result.rows", "sql-client.execution.result-mode"]),
        ("SET 'table.dml-sync' = 't|", []),
        ("SELECT 'o|", []),
        ("SELECT 1 /* o|", []),
        ("SELECT 1 -- o|", []),
        ("SELECT 1 /* */ regexp_extract_|", ["regexp_extract_all"]),
        ("sele|", ["select"]),
        ("SELE|", ["SELECT"]),
        ("SELECT regexp_extr|", ["regexp_extract", "regexp_extract_all"]),
    ],
)
def test_what_may_come(text: str, texts: list[str]) -> None:
    assert sorted(found(text), key=str.lower) == sorted(texts, key=str.lower)


def test_columns_of_the_tables_that_are_read_come_before_words() -> None:
    assert found("SELECT c| FROM orders")[0] == "customer"


def test_a_table_that_is_not_there_stops_nothing() -> None:
    assert "COUNT" in found("SELECT COU| FROM nowhere")


def test_what_is_replaced_is_the_word_before_the_place() -> None:
    assert candidates("SELECT cust", " FROM orders", NAMES).length == 4
    assert candidates("SET 'table.d", "", NAMES).length == 7
