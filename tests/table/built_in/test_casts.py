"""CAST and TRY_CAST: which there are, and what they give."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.table.functions import Row, results, session_of, typed_sql

from penstock.sql.data.arrow import arrow_type, to_column, to_full_array, to_scalar, to_values
from penstock.sql.data.datetimes import parse_date, parse_timestamp
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import DataType
from penstock.sql.functions.casts import cast_kernel, supports_cast
from penstock.sql.functions.definition import Session
from penstock.sql.parser.types import TypeParser

INFINITY = float("inf")


def decimals(*texts: str) -> list[Decimal]:
    return [Decimal(text) for text in texts]


def days(*texts: str) -> list[int | None]:
    return [parse_date(text) for text in texts]


def times(*texts: str) -> list[int | None]:
    return [parse_timestamp(text) for text in texts]


def parse_sql_type(text: str) -> DataType:
    return TypeParser(text).data_type()


def value(sql: str, zone: str = "UTC") -> Any:
    row, session = Row([], [], []), session_of(zone)
    return results(typed_sql(sql, row, session), row, session)[0]


def cast_column(values: list[Any], found: str, to: str, zone: str = "UTC", is_try: bool = False) -> list[Any]:
    """A column, the same as a part of a longer one, and each value alone must all give the same."""
    one, other, session = parse_sql_type(found), parse_sql_type(to), session_of(zone)
    kernel = cast_kernel(one, other, session, is_try)
    column = to_column(values, one)
    answer = kernel(column)
    assert answer.type == arrow_type(other)
    found_values = to_values(answer, other)
    part = kernel(pa.concat_arrays([column, column, column]).slice(len(column), len(column)))
    assert repr(to_values(part, other)) == repr(found_values)
    many = kernel(pa.concat_arrays([column] * 20))
    assert repr(to_values(many, other)) == repr(found_values * 20)
    for single, wanted in zip(values, found_values, strict=True):
        assert repr(to_values(to_full_array(kernel(to_scalar(single, one)), 1), other)) == repr([wanted])
    return found_values


@pytest.mark.parametrize(
    ("found", "to", "values", "wanted"),
    [
        # whole numbers keep their lowest bits
        ("INT", "TINYINT", [1, 300, -129, None], [1, 44, 127, None]),
        ("BIGINT", "INT", [2**40 + 5, -1], [5, -1]),
        ("INT", "BIGINT", [5, None], [5, None]),
        # fractions are cut; what is too large is the largest
        ("DOUBLE", "INT", [1.9, -1.9, 1e300, float("nan"), None], [1, -1, 2**31 - 1, 0, None]),
        ("DOUBLE", "BIGINT", [1e300, float("-inf"), 2.0**62], [2**63 - 1, -(2**63), 2**62]),
        ("DOUBLE", "SMALLINT", [123456.78], [-7616]),
        ("FLOAT", "TINYINT", [3.99, 300.0], [3, 44]),
        ("DECIMAL(10, 3)", "SMALLINT", [Decimal("91235.870"), Decimal("-1.999")], [25699, -1]),
        ("DECIMAL(38, 0)", "BIGINT", [Decimal(2**64 + 7)], [7]),
        ("DECIMAL(5, 2)", "DOUBLE", [Decimal("1.25"), None], [1.25, None]),
        ("DOUBLE", "FLOAT", [0.5, 1e300, -1e300], [0.5, float("inf"), float("-inf")]),
        # decimals are rounded half up; NULL where they do not fit
        ("DECIMAL(5, 3)", "DECIMAL(3, 2)", [Decimal("1.255"), Decimal("-1.255")], [Decimal("1.26"), Decimal("-1.26")]),
        ("DECIMAL(5, 3)", "DECIMAL(3, 2)", [Decimal("12.345"), Decimal("9.995")], [None, None]),
        ("DECIMAL(5, 3)", "DECIMAL(38, 20)", [Decimal("1.255")], [Decimal("1.25500000000000000000")]),
        ("DECIMAL(38, 28)", "DECIMAL(38, 0)", [Decimal("2.5000000000000000000000000000")], [Decimal(3)]),
        ("INT", "DECIMAL(3, 1)", [12, 123, None], [Decimal("12.0"), None, None]),
        ("DOUBLE", "DECIMAL(4, 2)", [1.005, 100.0, None], [Decimal("1.01"), None, None]),
        # truth values
        ("BOOLEAN", "INT", [True, False, None], [1, 0, None]),
        ("BOOLEAN", "DECIMAL(3, 1)", [True], [Decimal("1.0")]),
        ("BIGINT", "BOOLEAN", [0, 5, None], [False, True, None]),
    ],
)
def test_numbers(found: str, to: str, values: list[Any], wanted: list[Any]) -> None:
    assert cast_column(values, found, to) == wanted


@pytest.mark.parametrize(
    ("to", "texts", "wanted"),
    [
        ("BOOLEAN", ["true", "T", "Yes", "1", "FALSE", "n", "0", None], [True] * 4 + [False] * 3 + [None]),
        ("INT", [" 12 ", "+1.9", "-7", ".5", None], [12, 1, -7, 0, None]),
        ("BIGINT", ["9223372036854775807", "-9223372036854775808"], [2**63 - 1, -(2**63)]),
        ("TINYINT", ["127", "-128"], [127, -128]),
        ("DOUBLE", ["1e3", ".5", " 2 ", "1.5d", "Infinity", "-Infinity"], [1000, 0.5, 2, 1.5, INFINITY, -INFINITY]),
        ("FLOAT", ["0.5", "1e39"], [0.5, INFINITY]),
        ("DECIMAL(4, 2)", ["1.005", "-1.005", "1e1", "99.994"], decimals("1.01", "-1.01", "10.00", "99.99")),
        ("DECIMAL(38, 0)", ["12" * 19], decimals("12" * 19)),
        ("DECIMAL(38, 0)", ["9" * 38, "-" + "9" * 38, "9" * 38 + ".4"], decimals("9" * 38, "-" + "9" * 38, "9" * 38)),
        ("DECIMAL(38, 2)", ["-" + "9" * 36 + ".99"], decimals("-" + "9" * 36 + ".99")),
        ("DATE", ["2021-09-27", "2021-9-7", "2021-09-27 12:34:56"], days("2021-09-27", "2021-09-07", "2021-09-27")),
        ("DATE", ["2021", "2021-02"], days("2021-01-01", "2021-02-01")),
        ("TIME(0)", ["23", "23:45", "12:34:56.789"], [82_800_000, 85_500_000, 45_296_000]),
        ("TIME(2)", ["12:34:56.789"], [45_296_780]),
        ("TIMESTAMP(3)", ["2021-09-27", "2021-9-7 1:2:3.9876"], times("2021-09-27", "2021-09-07 01:02:03.987")),
        ("TIMESTAMP(0)", ["2021-02-30 00:00:00"], times("2021-02-28 00:00:00")),
        ("TIMESTAMP(9)", ["2021-09-27 12:34:56.123456789"], times("2021-09-27 12:34:56.123456789")),
        ("TIMESTAMP(5)", ["2021-09-27 12:34:56.123456"], times("2021-09-27 12:34:56.12345")),
        ("BYTES", ["ä", None], ["ä".encode(), None]),
        ("BINARY(3)", ["ab", "abcd"], [b"ab\0", b"abc"]),
        ("VARBINARY(3)", ["ab", "abcd"], [b"ab", b"abc"]),
    ],
)
def test_text_is_read(to: str, texts: list[Any], wanted: list[Any]) -> None:
    assert cast_column(texts, "STRING", to) == wanted


@pytest.mark.parametrize(
    ("to", "text"),
    [
        ("BOOLEAN", "maybe"),
        ("BOOLEAN", ""),
        ("INT", "foo"),
        ("INT", ""),
        ("INT", "+"),
        ("INT", "1e3"),
        ("INT", "2147483648"),
        ("TINYINT", "128"),
        ("DOUBLE", "nan"),
        ("DOUBLE", "1_0"),
        ("DECIMAL(5, 2)", "1,5"),
        ("DECIMAL(5, 2)", ""),
        ("DECIMAL(6, 2)", "98765.43"),
        ("DECIMAL(4, 2)", "99.995"),
        ("DECIMAL(5, 2)", "1e999999"),
        ("DECIMAL(38, 0)", "9" * 38 + ".5"),
        ("DATE", "2021/09/27"),
        ("DATE", "2021-02-29"),
        ("DATE", "-1-01-01"),
        ("TIME(0)", "123"),
        ("TIME(0)", "2021-09-27"),
        ("TIME(0)", "12:60"),
        ("TIMESTAMP(3)", "2021-09-27T12:34:56"),
        ("TIMESTAMP(3)", "2021-13-27"),
        ("TIMESTAMP(3)", "21-09-27"),
        ("TIMESTAMP_LTZ(3)", "tomorrow"),
        ("TIMESTAMP(9)", "1500-01-01 00:00:00"),
    ],
)
def test_text_that_cannot_be_read_fails_or_is_null(to: str, text: str) -> None:
    assert cast_column([text, None], "STRING", to, is_try=True) == [None, None]
    with pytest.raises(TableRuntimeError):
        cast_kernel(parse_sql_type("STRING"), parse_sql_type(to), Session())(
            to_column([text] * 30, parse_sql_type("STRING"))
        )


def test_a_text_with_too_many_digits_fails_by_its_name() -> None:
    """K2: as in Flink, where numbers with too many digits become NULL, and TRUE fails."""
    with pytest.raises(
        TableRuntimeError, match=r"For input string: '98765.43'. Overflow: DECIMAL\(6, 2\) has 4 digits"
    ):
        cast_column(["1.5", "98765.43"], "STRING", "DECIMAL(6, 2)")
    assert cast_column(["1.5", "98765.43"], "STRING", "DECIMAL(6, 2)", is_try=True) == [Decimal("1.50"), None]
    texts = [["1", "12345"], ["1"]]
    with pytest.raises(TableRuntimeError, match="Overflow"):
        cast_column(texts, "ARRAY<STRING>", "ARRAY<DECIMAL(3, 1)>")
    found = cast_column(texts, "ARRAY<STRING>", "ARRAY<DECIMAL(3, 1)>", is_try=True)
    assert found == [None, [Decimal("1.0")]]
    assert cast_column([[1, 12345]], "ARRAY<INT>", "ARRAY<DECIMAL(3, 1)>") == [[Decimal("1.0"), None]]
    with pytest.raises(TableRuntimeError, match="TRUE is 1, which DECIMAL"):
        cast_column([True], "BOOLEAN", "DECIMAL(2, 2)")
    assert cast_column([True, False, None], "BOOLEAN", "DECIMAL(2, 2)", is_try=True) == [None, Decimal("0.00"), None]


def test_one_bad_text_does_not_spoil_the_others() -> None:
    texts = [str(one) for one in range(30)] + ["x", None]
    assert cast_column(texts, "STRING", "INT", is_try=True) == [*range(30), None, None]
    assert (
        cast_kernel(parse_sql_type("STRING"), parse_sql_type("INT"), Session(legacy_cast=True))(pa.scalar("x")).as_py()
        is None
    )


@pytest.mark.parametrize(
    ("found", "values", "texts"),
    [
        ("BOOLEAN", [True, False, None], ["TRUE", "FALSE", None]),
        ("INT", [-5, None], ["-5", None]),
        ("DOUBLE", [1.0, 0.001, -1.5, 0.0, None], ["1.0", "0.001", "-1.5", "0.0", None]),
        ("DOUBLE", [1e7, 9999999.0, 1.5e-4, 1e100], ["1.0E7", "9999999.0", "1.5E-4", "1.0E100"]),
        ("DOUBLE", [123456789.125, 12345678901234567.0], ["1.23456789125E8", "1.2345678901234568E16"]),
        ("DOUBLE", [float("nan"), float("inf"), float("-inf"), -0.0], ["NaN", "Infinity", "-Infinity", "-0.0"]),
        ("FLOAT", [0.1, 1e10, 5.0], ["0.1", "1.0E10", "5.0"]),
        ("DECIMAL(5, 2)", [Decimal("1.20"), Decimal("-0.05")], ["1.20", "-0.05"]),
        ("DECIMAL(30, 10)", [Decimal("0.0000006000")], ["0.0000006000"]),
        ("BYTES", [b"ab", "ä".encode(), b"\xff"], ["ab", "ä", "\ufffd"]),
        ("DATE", [0, -1, None], ["1970-01-01", "1969-12-31", None]),
        ("DATE", [3_000_000, -719_528], ["10183-09-21", "0000-01-01"]),
        ("TIME(0)", [45_296_123], ["12:34:56"]),
        ("TIME(3)", [45_296_123, 45_296_100, 45_296_000], ["12:34:56.123", "12:34:56.1", "12:34:56.0"]),
        ("TIMESTAMP(0)", [1_500_000_000], ["1970-01-01 00:00:01"]),
        ("TIMESTAMP(2)", [1_500_000_000], ["1970-01-01 00:00:01.50"]),
        ("TIMESTAMP(9)", [1_500_000_000], ["1970-01-01 00:00:01.500000000"]),
        ("TIMESTAMP_LTZ(3)", [0, None], ["1970-01-01 08:00:00.000", None]),
        ("INTERVAL YEAR TO MONTH", [24, -14], ["+2-00", "-1-02"]),
        ("INTERVAL DAY TO SECOND(3)", [180_000, -86_400_001], ["+0 00:03:00.000", "-1 00:00:00.001"]),
        ("ARRAY<INT>", [[1, None], [], None], ["[1, NULL]", "[]", None]),
        ("ARRAY<FLOAT>", [[0.1]], ["[0.1]"]),
        ("MAP<STRING, BOOLEAN>", [[("a", True), ("b", None)]], ["{a=TRUE, b=NULL}"]),
        ("MULTISET<STRING>", [[("a", 2)]], ["{a=2}"]),
        ("ROW<a INT, b STRING>", [(1, None), None], ["(1, NULL)", None]),
        ("STRUCTURED<'C', i INT, s STRING>", [(1, "x")], ["(i=1, s=x)"]),
        ("ARRAY<ROW<t TIMESTAMP_LTZ(0)>>", [[(0,)]], ["[(1970-01-01 08:00:00)]"]),
    ],
)
def test_all_types_become_text(found: str, values: list[Any], texts: list[Any]) -> None:
    assert cast_column(values, found, "STRING", "Asia/Shanghai") == texts


def test_text_has_the_length_of_its_type() -> None:
    assert cast_column(["foo", "foobar", None], "STRING", "CHAR(5)") == ["foo  ", "fooba", None]
    assert cast_column(["foo", "foobar"], "STRING", "VARCHAR(5)") == ["foo", "fooba"]
    assert cast_column([True], "BOOLEAN", "CHAR(6)") == ["TRUE  "]
    assert cast_column([12345], "INT", "VARCHAR(3)") == ["123"]
    assert cast_column(["foo "], "CHAR(4)", "VARCHAR(9)") == ["foo "]
    assert cast_column(["äöü"], "STRING", "CHAR(2)") == ["äö"]
    assert cast_column([b"\1\2", b"\1\2\3\4"], "BYTES", "BINARY(3)") == [b"\1\2\0", b"\1\2\3"]


def ns(text: str) -> int:
    found = parse_timestamp(text)
    assert found is not None
    return found


def test_points_in_time() -> None:
    before = ns("1969-12-31 23:59:59.123456789")
    assert cast_column([before, None], "TIMESTAMP(9)", "DATE") == [-1, None]
    assert cast_column([before], "TIMESTAMP(9)", "TIME(3)") == [86_399_123]
    assert cast_column([before], "TIMESTAMP(9)", "TIMESTAMP(7)") == [ns("1969-12-31 23:59:59.1234567")]
    assert cast_column([ns("2020-01-01 00:00:01.987")], "TIMESTAMP(3)", "TIMESTAMP(1)") == [ns("2020-01-01 00:00:01.9")]
    assert cast_column([ns("2020-01-01 00:00:01.9")], "TIMESTAMP(3)", "TIMESTAMP(9)") == [ns("2020-01-01 00:00:01.9")]
    assert cast_column([45_296_789], "TIME(3)", "TIME(1)") == [45_296_700]
    assert cast_column([45_296_789], "TIME(3)", "TIMESTAMP(3)") == [45_296_789_000_000]
    assert cast_column([1, None], "DATE", "TIMESTAMP(6)") == [86_400_000_000_000, None]


def test_time_zones() -> None:
    berlin = "Europe/Berlin"
    summer = ns("2021-07-01 12:00:00")
    assert cast_column([summer, None], "TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", berlin) == [summer - 7_200 * 10**9, None]
    assert cast_column([summer], "TIMESTAMP_LTZ(3)", "TIMESTAMP(0)", berlin) == [summer + 7_200 * 10**9]
    assert cast_column([ns("2021-07-01 22:30:00")], "TIMESTAMP_LTZ(3)", "DATE", berlin) == [parse_date("2021-07-02")]
    assert cast_column([parse_date("2021-07-01")], "DATE", "TIMESTAMP_LTZ(3)", berlin) == [ns("2021-06-30 22:00:00")]
    # the clock leaves out 02:00 to 03:00, and has it twice
    assert cast_column([ns("2021-03-28 02:30:00")], "TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", berlin) == [
        ns("2021-03-28 01:30:00")
    ]
    assert cast_column(["2021-10-31 02:30:00"], "STRING", "TIMESTAMP_LTZ(3)", berlin) == [ns("2021-10-31 00:30:00")]
    assert cast_column([ns("2021-07-01 00:00:00")], "TIMESTAMP_LTZ(3)", "STRING", "Etc/UTC") == [
        "2021-07-01 00:00:00.000"
    ]


def test_intervals_are_numbers() -> None:
    assert cast_column([14, None], "INT", "INTERVAL MONTH") == [14, None]
    assert cast_column([14], "INTERVAL MONTH", "INT") == [14]
    assert cast_column([14], "BIGINT", "INTERVAL SECOND(3)") == [14]
    assert cast_column([14, None], "INTERVAL DAY", "BIGINT") == [14, None]
    assert cast_column([14], "INTERVAL YEAR", "INTERVAL MONTH") == [14]


def test_nested_values_are_cast_part_by_part() -> None:
    assert cast_column([[1, None], None, []], "ARRAY<INT>", "ARRAY<STRING>") == [["1", None], None, []]
    assert cast_column([[(1, 2)], None], "MAP<INT, INT>", "MAP<STRING, DOUBLE>") == [[("1", 2.0)], None]
    assert cast_column([[(1, 2)], None], "MULTISET<INT>", "MULTISET<STRING>") == [[("1", 2)], None]
    assert cast_column([(1, "2"), None], "ROW<a INT, b STRING>", "ROW<x STRING, y INT>") == [("1", 2), None]
    assert cast_column([(1,)], "ROW<a INT>", "STRUCTURED<'C', a BIGINT>") == [(1,)]
    assert cast_column([[[1], None]], "ARRAY<ARRAY<INT>>", "ARRAY<ARRAY<BIGINT>>") == [[[1], None]]


def test_a_nested_value_of_which_a_part_fails_is_null() -> None:
    given = [["1", "2"], ["1", "x"], None, ["3"]]
    assert cast_column(given, "ARRAY<STRING>", "ARRAY<INT>", is_try=True) == [[1, 2], None, None, [3]]
    with pytest.raises(TableRuntimeError):
        cast_kernel(parse_sql_type("ARRAY<STRING>"), parse_sql_type("ARRAY<INT>"), Session())(
            to_column(given, parse_sql_type("ARRAY<STRING>"))
        )


@pytest.mark.parametrize(
    ("found", "to"),
    [
        ("BOOLEAN", "BYTES"),
        ("BOOLEAN", "DATE"),
        ("INT", "BYTES"),
        ("INT", "DATE"),
        ("INT", "TIMESTAMP(3)"),
        ("TIMESTAMP(3)", "INT"),
        ("TIMESTAMP_LTZ(3)", "BIGINT"),
        ("DECIMAL(5, 2)", "BOOLEAN"),
        ("DOUBLE", "BOOLEAN"),
        ("DATE", "TIME(0)"),
        ("TIME(0)", "DATE"),
        ("STRING", "INTERVAL MONTH"),
        ("STRING", "ARRAY<INT>"),
        ("INTERVAL YEAR TO MONTH", "INT"),
        ("INTERVAL MONTH", "BIGINT"),
        ("INTERVAL MONTH", "INTERVAL DAY"),
        ("BYTES", "INT"),
        ("BITMAP", "INT"),
        ("ARRAY<INT>", "ARRAY<DATE>"),
        ("ARRAY<INT>", "MULTISET<INT>"),
        ("MAP<INT, INT>", "ARRAY<INT>"),
        ("ROW<a INT, b INT>", "ROW<a INT>"),
        ("STRUCTURED<'A', i INT>", "STRUCTURED<'B', i INT>"),
    ],
)
def test_casts_that_there_are_not(found: str, to: str) -> None:
    assert not supports_cast(parse_sql_type(found), parse_sql_type(to))
    with pytest.raises(ValidationError):
        value(f"CAST(CAST(NULL AS {found}) AS {to})")


def test_types_and_null() -> None:
    row, session = Row([], [], []), session_of()
    sql = "CAST(1 AS BIGINT), TRY_CAST(1 AS BIGINT), CAST(CAST(NULL AS INT) AS BIGINT), CAST(NULL AS ROW<a INT>)"
    found = typed_sql(sql, row, session)
    assert [str(one.type) for one in found] == ["BIGINT NOT NULL", "BIGINT", "BIGINT", "ROW<`a` INT>"]
    assert results(found, row, session) == [1, 1, None, None]


def test_a_constant_that_cannot_be_cast_is_told_when_the_query_is_planned() -> None:
    with pytest.raises(ValidationError, match="Error when casting CHAR\\(3\\) NOT NULL to INT"):
        value("CAST('abc' AS INT)")
    with pytest.raises(ValidationError, match="The cast from NUMERIC type to TIMESTAMP type is not allowed"):
        value("CAST(1 AS TIMESTAMP(3))")


def test_bitmaps() -> None:
    numbers = bytes.fromhex("3a300000010000000000020010000000000001000200")
    assert cast_column([numbers, None], "BITMAP", "STRING") == ["{0,1,2}", None]
    assert cast_column([numbers], "BITMAP", "CHAR(5)") == ["{0,1,"]
    assert cast_column([numbers], "BITMAP", "BYTES") == [numbers]


def test_clocks_change_in_all_years() -> None:
    late = times("2050-07-01 12:00:00", "9999-07-01 12:00:00", "2050-01-01 12:00:00")
    local = times("2050-07-01 14:00:00", "9999-07-01 14:00:00", "2050-01-01 13:00:00")
    assert cast_column(late, "TIMESTAMP_LTZ(3)", "TIMESTAMP(3)", "Europe/Berlin") == local
    assert cast_column(local, "TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", "Europe/Berlin") == late
