"""What values of two types have in common, and which of them do not mix: each row is Flink's answer."""

from __future__ import annotations

from decimal import Decimal

import pytest
from tests.table.evaluated import column
from tests.table.functions import Row, session_of, typed_sql

from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.parser.types import TypeParser


def parse_sql_type(text: str) -> DataType:
    return TypeParser(text).data_type()


def kind(sql: str, one: str, other: str) -> str:
    row = Row(["a", "b"], [parse_sql_type(one), parse_sql_type(other)], [])
    return str(typed_sql(sql, row, session_of())[0].type)


CASE, COALESCE, IF = "CASE WHEN TRUE THEN a ELSE b END", "COALESCE(a, b)", "IF(TRUE, a, b)"


@pytest.mark.parametrize(
    ("sql", "one", "other", "wanted"),
    [
        (CASE, "FLOAT", "DOUBLE", "FLOAT"),
        (CASE, "DOUBLE", "FLOAT", "DOUBLE"),
        (COALESCE, "FLOAT", "DOUBLE", "DOUBLE"),
        ("a + b", "FLOAT", "DOUBLE", "FLOAT"),
        (CASE, "DECIMAL(5, 3)", "FLOAT", "DOUBLE"),
        (COALESCE, "DECIMAL(5, 3)", "FLOAT", "FLOAT"),
        ("GREATEST(a, b)", "DECIMAL(5, 3)", "FLOAT", "FLOAT"),
        (CASE, "DECIMAL(38, 2)", "DECIMAL(38, 18)", "DECIMAL(38, 2)"),
        (COALESCE, "DECIMAL(5, 3)", "DECIMAL(38, 2)", "DECIMAL(38, 2)"),
        (CASE, "TIMESTAMP_LTZ(3)", "TIMESTAMP(3)", "TIMESTAMP_LTZ(3)"),
        (CASE, "TIMESTAMP_LTZ(3)", "TIMESTAMP(9)", "TIMESTAMP(9)"),
        ("ARRAY[a, b]", "TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", "ARRAY<TIMESTAMP(3)> NOT NULL"),
        (COALESCE, "TIMESTAMP_LTZ(3)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(9)"),
        (COALESCE, "DATE", "TIMESTAMP(3)", "DATE"),
        (COALESCE, "TIMESTAMP(3)", "DATE NOT NULL", "DATE NOT NULL"),
        ("MAP[a, NULL]", "STRING NOT NULL", "INT", "MAP<STRING NOT NULL, STRING> NOT NULL"),
        (IF, "TIMESTAMP(3)", "TIMESTAMP(9)", "TIMESTAMP(3)"),
        (IF, "TIME(0)", "TIME(3)", "TIME(0)"),
        (IF, "TIMESTAMP_LTZ(3)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(3)"),
    ],
)
def test_the_type_of_both(sql: str, one: str, other: str, wanted: str) -> None:
    assert kind(sql, one, other) == wanted


@pytest.mark.parametrize("sql", ["a = b", "a < b", "a IN (b, b)", "NULLIF(a, b)", "ARRAY[a, b]", CASE, IF])
@pytest.mark.parametrize("other", ["TIMESTAMP(3)", "TIMESTAMP_LTZ(3)"])
def test_dates_and_timestamps_do_not_mix(sql: str, other: str) -> None:
    with pytest.raises(ValidationError):
        kind(sql, "DATE", other)


def test_a_date_and_a_moment_have_nothing_in_common() -> None:
    with pytest.raises(ValidationError):
        kind(COALESCE, "DATE", "TIMESTAMP_LTZ(3)")


@pytest.mark.parametrize(
    "sql", ["a + b", "b - a", "a * b", "a / b", "a % b", "MOD(a, b)", "ABS(b)", "SIN(b)", "ROUND(b, a)"]
)
def test_text_is_no_number(sql: str) -> None:
    with pytest.raises(ValidationError):
        kind(sql, "INT", "STRING")


def test_the_greatest_moment() -> None:
    types = {"a": parse_sql_type("TIMESTAMP_LTZ(3)"), "b": parse_sql_type("TIMESTAMP_LTZ(3)")}
    assert column("GREATEST(a, b)", types, a=[1_000_000, 5_000_000], b=[2_000_000, None]) == [2_000_000, None]
    assert column("LEAST(a, b)", types, a=[1_000_000, 5_000_000], b=[2_000_000, 3_000_000]) == [1_000_000, 3_000_000]


def test_arrays_among_arrays() -> None:
    types = {"a": parse_sql_type("ARRAY<INT>")}
    assert column("a IN (a, a)", types, a=[[1, None], None]) == [True, None]


def test_parts_of_intervals() -> None:
    types = {"m": parse_sql_type("INTERVAL YEAR TO MONTH"), "s": parse_sql_type("INTERVAL DAY TO SECOND(3)")}
    for sql, wanted in (("YEAR(m)", 2), ("MONTH(m)", 3), ("HOUR(s)", 2), ("DAYOFMONTH(s)", 1)):
        assert column(sql, types, m=[27], s=[93_784_567]) == [wanted]


def test_hashes_of_decimals() -> None:
    types = {"a": parse_sql_type("DECIMAL(5, 3)")}
    assert column("HASH_CODE(a)", types, a=[Decimal("12.345")]) == [382_698]
