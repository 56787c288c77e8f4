"""NOT NULL and lengths of the columns of a table that is written, also within rows and collections."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from tests.table.running import Rows
from tests.table.streaming.written import written

from penstock.base.errors import PenstockError
from penstock.base.types import Row
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import ArrayType, BinaryType, CharType, DataType, MapType, RowField, RowType
from penstock.sql.functions.definition import BIGINT, STRING
from penstock.table import EnvironmentSettings, ExplainDetail, TableEnvironment

NULLS = "table.exec.sink.not-null-enforcer"
LENGTHS = "table.exec.sink.type-length-enforcer"
NESTED = "table.exec.sink.nested-constraint-enforcer"


def values(kind: DataType, column: str, rows: list[Any], **options: str) -> list[Any]:
    """What a table with one column, of which the query has these values, is handed."""
    keys = {"nulls": NULLS, "lengths": LENGTHS, "nested": NESTED}
    table = Rows({"a": kind}, [("+I", (one,)) for one in rows])
    found = written("SELECT a FROM t", f"a {column}", options={keys[k]: v for k, v in options.items()}, t=table)
    return [row[0] for _, row in found]


def failure(kind: DataType, column: str, rows: list[Any], **options: str) -> str:
    with pytest.raises(PenstockError) as error:
        values(kind, column, rows, **options)
    return f"{error.value} {error.value.__cause__}"


def test_null_in_a_column_that_is_not_null_fails_or_is_dropped() -> None:
    assert "Column 'a' is NOT NULL, however" in failure(BIGINT, "BIGINT NOT NULL", [1, None])
    assert values(BIGINT, "BIGINT NOT NULL", [None, 1, None], nulls="DROP") == [1]


@pytest.mark.parametrize("value", ["x", "12345", "CAST(x AS DECIMAL(10, 1)) * 1"])
def test_a_query_fails_where_a_decimal_overflows_that_is_not_null(value: str) -> None:
    """K2: as in Flink, where casts of numbers and arithmetic make NULL of a decimal with too many digits."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local")
    sql = f"SELECT CAST({value} AS DECIMAL(3, 1)) AS d FROM (VALUES (1), (12345)) AS t (x)"
    with pytest.raises(PenstockError) as error:
        tables.execute_sql(sql).print()
    assert "Column 'd' is NOT NULL" in str(error.value)
    tables.get_config().set(NULLS, "DROP")
    with tables.execute_sql(sql).collect() as rows:
        assert list(rows) == ([] if value == "12345" else [Row(Decimal("1.0"))])
    nullable = f"SELECT CAST(NULLIF({value}, 0) AS DECIMAL(3, 1)) AS d FROM (VALUES (12345)) AS t (x)"
    with tables.execute_sql(nullable).collect() as rows:
        assert list(rows) == [Row(None)]


@pytest.mark.parametrize(("columns", "is_checked"), [("d, UPPER(s)", False), ("d * 2, s", True)])
def test_a_query_has_the_step_that_looks_only_where_a_decimal_may_overflow(columns: str, is_checked: bool) -> None:
    """A decimal that is handed on as it came cannot, whatever is made of other columns."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    table = tables.sql_query(f"SELECT {columns} FROM (VALUES (1.5, 'a'), (2.5, 'b')) AS t (d, s)")
    assert ("Constraint Enforcer" in table.explain(ExplainDetail.JSON_EXECUTION_PLAN)) is is_checked


INNER = RowType([RowField("x", BIGINT), RowField("y", BIGINT)])
ROW = RowType([RowField("id", BIGINT), RowField("ab", INNER)])
NOT_NULL = "ROW<id BIGINT NOT NULL, ab ROW<x BIGINT NOT NULL, y BIGINT> NOT NULL>"


def test_fields_are_only_looked_at_when_asked_for() -> None:
    assert values(ROW, NOT_NULL, [(1, None)]) == [(1, None)]
    assert "Column 'a.ab' is NOT NULL" in failure(ROW, NOT_NULL, [(1, None)], nested="ROWS")
    assert "Column 'a.ab.x' is NOT NULL" in failure(ROW, NOT_NULL, [(1, (None, 1))], nested="ROWS")
    rows = [(1, (None, 1)), (2, None), None, (3, (1, None)), (None, (1, 1))]
    assert values(ROW, NOT_NULL, rows, nested="ROWS", nulls="DROP") == [None, (3, (1, None))]


def test_collections_are_looked_at_when_asked_for() -> None:
    kind, column = ArrayType(ArrayType(BIGINT)), "ARRAY<ARRAY<BIGINT NOT NULL> NOT NULL>"
    rows: list[Any] = [[[1], [None]], [None], [], None, [[1, 2]]]
    assert values(kind, column, rows, nested="ROWS", nulls="DROP") == rows
    assert values(kind, column, rows, nested="ROWS_AND_COLLECTIONS", nulls="DROP") == [[], None, [[1, 2]]]


def test_values_of_maps_are_looked_at() -> None:
    kind, column = MapType(BIGINT, BIGINT), "MAP<BIGINT NOT NULL, BIGINT NOT NULL>"
    rows: list[Any] = [[(1, 1)], [(1, 1), (2, None)], None]
    assert values(kind, column, rows, nested="ROWS_AND_COLLECTIONS", nulls="DROP") == [[(1, 1)], None]
    assert "'a[value]'" in failure(kind, column, rows, nested="ROWS_AND_COLLECTIONS")


@pytest.mark.parametrize(
    ("column", "wrong", "length"),
    [("CHAR(2)", "a", 1), ("CHAR(2)", "äöü", 3), ("VARCHAR(2)", "abc", 3)],
)
def test_text_of_another_length_fails(column: str, wrong: str, length: int) -> None:
    message = f"Column 'a' is {column}, however, a string of length {length} is being written into it."
    assert message in failure(STRING, column, ["ab", None, wrong], lengths="ERROR")
    assert values(STRING, column, ["ab", None, wrong]) == ["ab", None, wrong]


def test_text_and_bytes_are_cut_and_padded() -> None:
    assert values(CharType(9), "CHAR(2)", ["a", "äöü", None], lengths="TRIM_PAD") == ["a ", "äö", None]
    assert values(STRING, "VARCHAR(2)", ["a", "abc"], lengths="TRIM_PAD") == ["a", "ab"]
    assert values(BinaryType(9), "BINARY(2)", [b"a", b"abc", None], lengths="TRIM_PAD") == [b"a\0", b"ab", None]
    assert values(BinaryType(9), "VARBINARY(2)", [b"a", b"abc"], lengths="TRIM_PAD") == [b"a", b"ab"]


def test_lengths_within_rows_fail_or_are_mended() -> None:
    kind = RowType([RowField("b", STRING)])
    assert "Column 'a.b' is CHAR(2)" in failure(kind, "ROW<b CHAR(2)>", [("abc",)], nested="ROWS", lengths="ERROR")
    rows = [("abc",), None, ("d",), (None,)]
    assert values(kind, "ROW<b CHAR(2)>", rows, nested="ROWS", lengths="TRIM_PAD") == [("ab",), None, ("d ",), (None,)]
    assert values(kind, "ROW<b CHAR(2)>", rows, lengths="TRIM_PAD") == rows


def test_lengths_within_rows_of_rows_are_mended() -> None:
    kind = RowType([RowField("b", BIGINT), RowField("c", RowType([RowField("d", STRING), RowField("e", STRING)]))])
    column = "ROW<b BIGINT, c ROW<d VARCHAR(2), e CHAR(3)>>"
    rows = [(1, ("abc", "abc")), (2, None), None, (None, ("a", "a"))]
    mended = [(1, ("ab", "abc")), (2, None), None, (None, ("a", "a  "))]
    assert values(kind, column, rows, nested="ROWS", lengths="TRIM_PAD") == mended


def test_lengths_within_collections_fail_and_are_not_mended() -> None:
    kind, column = ArrayType(RowType([RowField("b", STRING)])), "ARRAY<ROW<b CHAR(2)>>"
    all_of_them = {"nested": "ROWS_AND_COLLECTIONS"}
    assert "Column 'a[element].b' is CHAR(2)" in failure(kind, column, [[("abc",)]], **all_of_them, lengths="ERROR")
    with pytest.raises(ValidationError, match="neither trimmed nor padded"):
        values(kind, column, [], **all_of_them, lengths="TRIM_PAD")
    assert values(kind, column, [[("abc",)]], nested="ROWS", lengths="TRIM_PAD") == [[("abc",)]]


def test_a_value_that_an_option_has_not_is_refused() -> None:
    with pytest.raises(ValidationError, match="can be ERROR, DROP, and not 'IGNORE'"):
        values(BIGINT, "BIGINT", [], nulls="IGNORE")
