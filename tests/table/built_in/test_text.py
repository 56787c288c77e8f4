"""Functions of texts: what they give, and which type that has."""

from __future__ import annotations

from typing import Any

import pytest
from tests.table.evaluated import column, type_text, value

from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.functions.definition import INT


@pytest.mark.parametrize(
    ("sql", "expected", "data_type"),
    [
        ("'a' || 'bc'", "abc", "CHAR(3) NOT NULL"),
        ("'a' || CAST('b' AS VARCHAR(4))", "ab", "VARCHAR(5) NOT NULL"),
        ("'a' || CAST('b' AS STRING)", "ab", "STRING NOT NULL"),
        ("CONCAT('a', 'b', 'c')", "abc", "STRING NOT NULL"),
        ("CONCAT('a', CAST(NULL AS STRING))", None, "STRING"),
        ("CONCAT_WS('~', 'a', CAST(NULL AS STRING), '', 'b')", "a~~b", "STRING"),
        ("CONCAT_WS('~')", "", "STRING NOT NULL"),
        ("CONCAT_WS(CAST(NULL AS STRING), 'a')", None, "STRING"),
        ("UPPER('ßa')", "SSA", "CHAR(2) NOT NULL"),
        ("LOWER('ABC')", "abc", "CHAR(3) NOT NULL"),
        ("INITCAP('hello wORLD-x1Y é')", "Hello World-X1y é", "CHAR(17) NOT NULL"),
        ("CHAR_LENGTH('a😀')", 2, "INT NOT NULL"),
        ("CHARACTER_LENGTH('')", 0, "INT NOT NULL"),
        ("REVERSE('a😀b')", "b😀a", "STRING"),
        ("TRIM('  a ')", "a", "VARCHAR(4) NOT NULL"),
        ("TRIM(BOTH ' a ')", "a", "VARCHAR(3) NOT NULL"),
        ("TRIM(LEADING 'xy' FROM 'xyxax')", "ax", "VARCHAR(5) NOT NULL"),
        ("TRIM(TRAILING FROM ' a ')", " a", "VARCHAR(3) NOT NULL"),
        ("LTRIM('abcddcba', 'abc')", "ddcba", "VARCHAR(8) NOT NULL"),
        ("RTRIM('心情开开心心', '开心')", "心情", "VARCHAR(6) NOT NULL"),
        ("RTRIM('a ', '')", "a ", "VARCHAR(2) NOT NULL"),
        ("BTRIM('xxaxx', 'x')", "a", "STRING NOT NULL"),
        ("LPAD('hi', 5, 'ab')", "abahi", "STRING NOT NULL"),
        ("LPAD('hi', 1, 'ab')", "h", "STRING NOT NULL"),
        ("LPAD('hi', -1, 'ab')", None, "STRING NOT NULL"),
        ("RPAD('hi', 5, 'ab')", "hiaba", "STRING NOT NULL"),
        ("RPAD('hi', 5, '')", None, "STRING NOT NULL"),
        ("LPAD('a', 3, '😀')", "😀a", "STRING NOT NULL"),
        ("REPEAT('ab', 2)", "abab", "STRING NOT NULL"),
        ("REPEAT('ab', -1)", "", "STRING NOT NULL"),
        ("REPLACE('ababab', 'abab', 'z')", "zab", "STRING NOT NULL"),
        ("REPLACE('ab', '', '-')", "-a-b-", "STRING NOT NULL"),
        ("TRANSLATE('abcabc', 'ab', 'x')", "xcxc", "STRING NOT NULL"),
        ("TRANSLATE('abc', CAST(NULL AS STRING), 'x')", "abc", "STRING NOT NULL"),
        ("TRANSLATE('abc', 'a', CAST(NULL AS STRING))", "bc", "STRING NOT NULL"),
        ("OVERLAY('xxxxxtest' PLACING 'xxxx' FROM 6 FOR 2)", "xxxxxxxxxst", "VARCHAR(13) NOT NULL"),
        ("OVERLAY('abc' PLACING 'XY' FROM 2)", "aXY", "VARCHAR(5) NOT NULL"),
        ("OVERLAY('abc' PLACING 'XY' FROM 9)", "abc", "VARCHAR(5) NOT NULL"),
        ("ASCII('abc')", 97, "INT NOT NULL"),
        ("ASCII('')", 0, "INT NOT NULL"),
        ("ASCII('中')", -28, "INT NOT NULL"),
        ("CHR(353)", "a", "STRING"),
        ("CHR(-1)", "", "STRING"),
        ("HASH_CODE('a')", 97, "INT NOT NULL"),
        ("HASH_CODE(TRUE)", 1231, "INT NOT NULL"),
        ("IS_ALPHA('ab')", True, "BOOLEAN NOT NULL"),
        ("IS_ALPHA('')", False, "BOOLEAN NOT NULL"),
        ("IS_ALPHA(5)", False, "BOOLEAN NOT NULL"),
        ("IS_DIGIT('12')", True, "BOOLEAN NOT NULL"),
        ("IS_DIGIT(5)", True, "BOOLEAN NOT NULL"),
        ("IS_DECIMAL('-1.5e3')", True, "BOOLEAN NOT NULL"),
        ("IS_DECIMAL('1,5')", False, "BOOLEAN NOT NULL"),
        ("IS_DECIMAL(CAST(NULL AS STRING))", False, "BOOLEAN NOT NULL"),
        ("CHAR_LENGTH(UUID())", 36, "INT NOT NULL"),
    ],
)
def test_functions_of_a_whole_text(sql: str, expected: Any, data_type: str) -> None:
    assert value(sql) == expected
    assert type_text(sql) == data_type


@pytest.mark.parametrize(
    ("sql", "expected", "data_type"),
    [
        ("SUBSTRING('hello', 2)", "ello", "VARCHAR(5)"),
        ("SUBSTRING('hello' FROM 2 FOR 2)", "el", "VARCHAR(5)"),
        ("SUBSTRING('hello', -2, 1)", "l", "VARCHAR(5)"),
        ("SUBSTRING('hello', -9, 1)", "", "VARCHAR(5)"),
        ("SUBSTR('hello', 0, 2)", "he", "VARCHAR(5)"),
        ("SUBSTR('hello', 2, -1)", None, "VARCHAR(5)"),
        ("LEFT('hello', 2)", "he", "VARCHAR(5)"),
        ("LEFT('hello', -2)", "", "VARCHAR(5)"),
        ("RIGHT('hello', 2)", "lo", "VARCHAR(5)"),
        ("RIGHT('hello', 9)", "hello", "VARCHAR(5)"),
        ("RIGHT('hello', 0)", "", "VARCHAR(5)"),
        ("POSITION('b' IN 'abc')", 2, "INT NOT NULL"),
        ("LOCATE('a', 'aba', 2)", 3, "INT NOT NULL"),
        ("LOCATE('', 'aba', 3)", 1, "INT NOT NULL"),
        ("LOCATE('x', 'aba')", 0, "INT NOT NULL"),
        ("INSTR('Corporate Floor', 'or', 3, 2)", 14, "INT NOT NULL"),
        ("INSTR('Corporate Floor', 'or', -3, 2)", 2, "INT NOT NULL"),
        ("INSTR('abc', 'b', 0)", 0, "INT NOT NULL"),
        ("STARTSWITH('abc', 'ab')", True, "BOOLEAN NOT NULL"),
        ("STARTSWITH('abc', '')", True, "BOOLEAN NOT NULL"),
        ("ENDSWITH(x'0102', x'02')", True, "BOOLEAN NOT NULL"),
        ("SPLIT('a,b,,c,', ',')", ["a", "b", "", "c", ""], "ARRAY<STRING> NOT NULL"),
        ("SPLIT('abc', '')", ["a", "b", "c"], "ARRAY<STRING> NOT NULL"),
        ("SPLIT('', ',')", [], "ARRAY<STRING> NOT NULL"),
        ("SPLIT_INDEX('a,b', ',', 1)", "b", "STRING"),
        ("SPLIT_INDEX('a,b', ',', 2)", None, "STRING"),
        ("SPLIT_INDEX('', ',', 0)", None, "STRING"),
        ("SPLIT_INDEX('a,b', 44, 1)", "b", "STRING"),
        ("SUBSTRING_INDEX('www.apache.org', '.', 2)", "www.apache", "STRING NOT NULL"),
        ("SUBSTRING_INDEX('www.apache.org', '.', -2)", "apache.org", "STRING NOT NULL"),
        ("SUBSTRING_INDEX('www.apache.org', '.', 9)", "www.apache.org", "STRING NOT NULL"),
        ("SUBSTRING_INDEX('aaaa', 'aa', 2)", "a", "STRING NOT NULL"),
        ("SUBSTRING_INDEX(x'010203', x'02', 1)", b"\x01", "BYTES NOT NULL"),
        ("STR_TO_MAP('a=1,b,c=3=4,')", [("a", "1"), ("b", None), ("c", "3=4")], "MAP<STRING, STRING>"),
        ("STR_TO_MAP('a$$1|b$$2', '\\|', '\\$\\$')", [("a", "1"), ("b", "2")], "MAP<STRING, STRING>"),
        ("STR_TO_MAP('')", [], "MAP<STRING, STRING>"),
        ("ELT(2, 'a', 'bc')", "bc", "VARCHAR(2)"),
        ("ELT(0, 'a', 'bc')", None, "VARCHAR(2)"),
    ],
)
def test_functions_of_the_parts_of_a_text(sql: str, expected: Any, data_type: str) -> None:
    assert value(sql) == expected
    assert type_text(sql) == data_type


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("PRINTF('%08d|%-4d|%,d|%(d|%+d|%x', 42, 1, 1234567, -5, 5, -1)", "00000042|1   |1,234,567|(5)|+5|ffffffff"),
        ("PRINTF('%.1f %e %g', 0.25e0, 12345.678e0, 0.0001e0)", "0.3 1.234568e+04 0.000100000"),
        ("PRINTF('%2$s %1$s %s %<s %%', 'a', 'b')", "b a a a %"),
        ("PRINTF('%5s|%-5s|%.2s|%S|%c|%b', 'a', 'b', 'cde', 'x', 65, CAST(NULL AS INT))", "    a|b    |cd|X|A|false"),
        ("PRINTF('%s %s %s', 1e10, 0.5e0, 1e-5)", "1.0E10 0.5 1.0E-5"),
        ("PRINTF('%s', TIMESTAMP '2024-07-30 10:24:00')", "2024-07-30T10:24"),
        ("PRINTF('%s', TIMESTAMP '2024-07-30 10:24:00.256')", "2024-07-30T10:24:00.256"),
        ("PRINTF('%s', DATE '2024-07-30')", "19934"),
        ("PRINTF('%d', 'a')", None),
        ("PRINTF('%s')", None),
        ("PRINTF('%q', 1)", None),
    ],
)
def test_formats_are_those_of_java(sql: str, expected: str | None) -> None:
    assert value(sql) == expected
    assert type_text(sql) == "STRING"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("UPPER(a)", ["X,Y", "", None, "É,B,C"]),
        ("SUBSTRING(a, 2)", [",y", "", None, ",b,c"]),
        ("SUBSTRING(a, -2, 1)", [",", "", None, ","]),
        ("SPLIT_INDEX(a, ',', 1)", ["y", None, None, "b"]),
        ("REPLACE(a, ',', ';')", ["x;y", "", None, "é;b;c"]),
        ("STARTSWITH(a, 'x')", [True, False, None, False]),
        ("CONCAT_WS('-', a, 'z')", ["x,y-z", "-z", "z", "é,b,c-z"]),
        ("TRIM(a)", ["x,y", "", None, "é,b,c"]),
        ("IS_ALPHA(a)", [False, False, False, False]),
    ],
)
def test_columns_are_answered_row_by_row(sql: str, expected: list[Any]) -> None:
    texts = ["x,y", "", None, "é,b,c"]
    assert column(sql, a=texts) == expected
    assert column(sql, a=texts * 20) == expected * 20


def test_places_may_differ_from_row_to_row() -> None:
    types = {"n": INT}
    assert column("SUBSTRING(a, n)", types, a=["abc", "abc", None], n=[2, -1, 1]) == ["bc", "c", None]
    assert column("LEFT(a, n)", types, a=["abc", "abc", "abc"], n=[2, -1, None]) == ["ab", "", None]
    assert column("ELT(n, a, 'z')", types, a=["x", "y", "w", "v"], n=[1, 2, 3, None]) == ["x", "z", None, None]
    assert column("REPEAT(a, n)", types, a=["x", "y"], n=[2, -2]) == ["xx", ""]
    assert column("TRIM(LEADING b FROM a)", a=["xxa", "yb"], b=["x", "x"]) == ["a", "yb"]


@pytest.mark.parametrize("sql", ["LTRIM(5)", "CONCAT('a', 1)", "ELT(-1, 'a')", "STARTSWITH('a', x'01')", "REPEAT('a')"])
def test_operands_of_other_types_are_refused(sql: str) -> None:
    with pytest.raises(ValidationError):
        value(sql)


@pytest.mark.parametrize("sql", ["INSTR('abc', 'b', 1, 0)", "STR_TO_MAP('a', '(', '=')"])
def test_some_values_fail_when_the_query_runs(sql: str) -> None:
    with pytest.raises(TableRuntimeError):
        value(sql)


def test_identifiers_differ_from_row_to_row() -> None:
    assert len(set(column("UUID() || a", a=["", "", ""]))) == 3


def test_half_a_character_is_a_question_mark() -> None:
    assert value("ENDSWITH('😀', '\ude00')") is False
    assert value("LPAD('😀', 1, 'x')") == "?"
