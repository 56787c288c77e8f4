"""Comparisons of different types, GREATEST and LEAST, TYPEOF."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.table.functions import Row, session_of, typed_sql

from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.parser.types import TypeParser


def parse_sql_type(text: str) -> DataType:
    return TypeParser(text).data_type()


def given(sql: str, **columns: tuple[str, list[Any]]) -> list[Any]:
    """What an expression gives for these columns: their types and values."""
    kinds = [parse_sql_type(kind) for kind, _ in columns.values()]
    arrays = [to_column(values, kind) for kind, (_, values) in zip(kinds, columns.values(), strict=True)]
    row = Row(list(columns), kinds, [])
    (found,) = typed_sql(sql, row, session_of())
    (answer,) = Evaluator([found], session_of())(Columns(arrays, len(arrays[0]) if arrays else 1))
    assert isinstance(answer, pa.Array)
    return to_values(answer, found.type)


def kind(sql: str, **columns: str) -> str:
    types = [parse_sql_type(text) for text in columns.values()]
    return str(typed_sql(sql, Row(list(columns), types, []), session_of())[0].type)


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("1 = '1'", True),
        ("1 < '2'", True),
        ("NULL = NULL", None),
        ("NULL > NULL", None),
        ("(NULL <> NULL) IS NULL", True),
        ("1.5 = ' 1 '", False),
        ("TRUE = 'true'", False),
        ("'TRUE' = TRUE", False),
        ("TRUE <> 'true'", True),
        ("'true' IN (TRUE, FALSE)", False),
        ("'true' IS DISTINCT FROM TRUE", True),
        ("CAST(NULL AS STRING) = TRUE", None),
        ("CAST(NULL AS STRING) IS NOT DISTINCT FROM CAST(NULL AS BOOLEAN)", True),
        ("DATE '2020-01-01' < '2020-01-02'", True),
        ("'2020-01-01 00:00:00' < TIMESTAMP '2020-01-01 00:00:00.5'", True),
        ("TIME '12:00:00' = '12'", True),
        ("CAST(1 AS FLOAT) = CAST(1 AS DECIMAL(1, 0))", True),
        ("x'01' < x'02'", True),
        ("'a' = NULL", None),
        ("1 IN (1.0, 2.5)", True),
        ("(1, 'a') IN ((2, 'b'), (1, 'a'))", True),
    ],
)
def test_operands_of_different_types(sql: str, wanted: object) -> None:
    assert given(sql) == [wanted]


def test_text_is_read_as_what_it_is_compared_with() -> None:
    texts = ("STRING", ["2020-01-01", "soon", None, "2020-01-02"])
    assert given("d = DATE '2020-01-01'", d=texts) == [True, None, None, False]
    assert given("n > 5", n=("STRING", ["4", " 6", None])) == [False, True, None]
    with pytest.raises(TableRuntimeError):
        given("n > 5", n=("STRING", ["many"]))


@pytest.mark.parametrize("constant", ["'invalid'", "'2020-13-01'"])
def test_a_constant_that_is_no_point_in_time_is_told_when_the_query_is_planned(constant: str) -> None:
    with pytest.raises(ValidationError, match=r"Error when casting CHAR.* NOT NULL to DATE"):
        kind(f"d = {constant}", d="DATE")


@pytest.mark.parametrize(
    "sql",
    ["TRUE = 1", "x'01' = 'a'", "DATE '2020-01-01' = 1", "ARRAY[1] < ARRAY[2]", "TIME '12:00:00' = DATE '2020-01-01'"],
)
def test_types_that_cannot_be_compared(sql: str) -> None:
    with pytest.raises(ValidationError):
        kind(sql)


def test_greatest_and_least() -> None:
    one, other = ("INT", [1, 5, None, 2]), ("INT", [3, 4, 1, None])
    assert given("GREATEST(a, b)", a=one, b=other) == [3, 5, None, None]
    assert given("LEAST(a, b, 2)", a=one, b=other) == [1, 2, None, None]
    assert given("GREATEST('b', 'abc')") == ["b"]
    assert given("LEAST(1, 2.5)") == [Decimal("1.0")]
    assert given("GREATEST(TRUE, FALSE)") == [True]
    assert given("LEAST(TRUE, FALSE)") == [False]
    assert given("GREATEST(a)", a=one) == [1, 5, None, 2]
    assert given("GREATEST(a, b)", a=("BYTES", [b"a", None]), b=("BYTES", [b"b", b""])) == [b"b", None]


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("(1, 2) = (1, a)", [True, None]),
        ("ROW(1, 2) = ROW(2, a)", [False, False]),
        ("ROW(1, 2) <> ROW(1, a)", [False, True]),
        ("(1, 2) IN ((1, a), (3, 4))", [True, None]),
        ("ROW(1, a) = b", [True, False]),
        ("ROW(1, a) IS NOT DISTINCT FROM ROW(1, CAST(NULL AS INT))", [False, True]),
    ],
)
def test_rows_that_are_written_out_are_compared_field_by_field(sql: str, wanted: list[bool | None]) -> None:
    """As in Flink for `=` and IN alone; elsewhere a NULL in a row is a value like others."""
    columns: dict[str, tuple[str, list[Any]]] = {
        "a": ("INT", [2, None]),
        "b": ("ROW<x INT, y INT>", [(1, 2), (1, 2)]),
    }
    assert given(sql, **columns) == wanted


def test_the_type_of_if() -> None:
    assert kind("IF(a, 'x', 'y')", a="BOOLEAN NOT NULL") == "CHAR(1) NOT NULL"
    assert kind("IF(a, 'x', 'y')", a="BOOLEAN") == "CHAR(1)"
    assert kind("CASE WHEN a THEN 'x' ELSE 'y' END", a="BOOLEAN") == "CHAR(1) NOT NULL"


def test_ifnull_takes_values_that_have_a_type_in_common() -> None:
    assert kind("IFNULL(a, 2.5)", a="INT") == "DECIMAL(11, 1) NOT NULL"
    assert kind("IFNULL(a, 2)", a="INT NOT NULL") == "INT NOT NULL"
    assert kind("IFNULL(a, 0.005)", a="INT NOT NULL") == "DECIMAL(13, 3) NOT NULL"
    assert kind("IFNULL(a, b)", a="INT NOT NULL", b="BIGINT") == "BIGINT NOT NULL"
    assert kind("IFNULL('a', 'abc')") == "CHAR(1) NOT NULL"
    assert kind("IFNULL(X'41', X'4142')") == "BINARY(1) NOT NULL"
    for sql in ("IFNULL('a', 2)", "IFNULL(1, 'a')"):
        with pytest.raises(ValidationError):
            kind(sql)


def test_the_type_of_greatest() -> None:
    assert kind("GREATEST(a, b)", a="INT NOT NULL", b="BIGINT NOT NULL") == "BIGINT NOT NULL"
    assert kind("LEAST(a, b)", a="INT NOT NULL", b="DECIMAL(3, 2)") == "DECIMAL(12, 2)"
    for sql in ("GREATEST(1, 'a')", "LEAST('a', DATE '2020-01-01')", "GREATEST(TRUE, 1)", "GREATEST()"):
        with pytest.raises(ValidationError):
            kind(sql)


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("TYPEOF(1)", "INT NOT NULL"),
        ("TYPEOF('abc')", "CHAR(3) NOT NULL"),
        ("TYPEOF(a)", "ROW<`x` STRING, `y` TIMESTAMP_LTZ(3)>"),
        ("TYPEOF(a, FALSE)", "ROW<`x` STRING, `y` TIMESTAMP_LTZ(3)>"),
        ("TYPEOF(a, TRUE)", "ROW<`x` VARCHAR(2147483647), `y` TIMESTAMP(3) WITH LOCAL TIME ZONE>"),
        ("TYPEOF(b, TRUE)", "MAP<VARBINARY(2147483647) NOT NULL, ARRAY<INT>>"),
        ("TYPEOF(NULL)", "NULL"),
        ("TYPEOF(NULL, TRUE)", None),
    ],
)
def test_typeof(sql: str, wanted: str | None) -> None:
    columns = {
        "a": ("ROW<x STRING, y TIMESTAMP_LTZ(3)>", [None, None]),
        "b": ("MAP<BYTES NOT NULL, ARRAY<INT>>", [None, None]),
    }
    assert given(sql, **columns) == [wanted, wanted]
    assert kind("TYPEOF(1)") == "STRING"
