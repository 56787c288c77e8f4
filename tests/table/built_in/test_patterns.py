"""LIKE and its kin, and regular expressions as Java has them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.table.evaluated import column, type_text, value

from penstock.base.errors import UnsupportedError
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.functions.java_regex import InvalidPatternError, compiled, matches, split


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("'abc' LIKE 'abc'", True),
        ("'abc' LIKE 'a%'", True),
        ("'abc' LIKE '%c'", True),
        ("'abc' LIKE '%b%'", True),
        ("'abc' LIKE 'a%c'", True),
        ("'abc' LIKE 'a_c'", True),
        ("'abc' LIKE 'A%'", False),
        ("'' LIKE '%'", True),
        ("'abc' LIKE ''", False),
        ("'a.c' LIKE 'a.%'", True),
        ("'abc' LIKE 'a.%'", False),
        ("'a%c' LIKE 'a!%c' ESCAPE '!'", True),
        ("'abc' LIKE 'a!%c' ESCAPE '!'", False),
        ("'te_st' LIKE 'te__st' ESCAPE '_'", True),
        ("'test\\' LIKE 'test\\' ESCAPE '!'", True),
        ("'test' LIKE 'test' ESCAPE ''", True),
        ("'a' || CHR(10) || 'b' LIKE 'a%b'", True),
        ("'a' || CHR(10) || 'b' LIKE 'a_b'", False),
        ("CAST(NULL AS STRING) LIKE 'a'", None),
        ("'abc' ILIKE 'A%'", True),
        ("'abc' SIMILAR TO 'a(b|x)_'", True),
        ("'abc' SIMILAR TO 'ab'", False),
        ("'a1' SIMILAR TO '[[:ALPHA:]][[:DIGIT:]]'", True),
        ("'*_a' SIMILAR TO '&*&__' ESCAPE '&'", True),
        ("'abc' RLIKE '^a.c$'", True),
        ("REGEXP('abc', 'b')", True),
        ("REGEXP('abc', '')", False),
        ("REGEXP('abc', '(')", False),
    ],
)
def test_texts_are_compared_with_patterns(sql: str, expected: bool | None) -> None:
    assert value(sql) is expected


@pytest.mark.parametrize(
    "sql",
    [
        "'a' LIKE 'a' ESCAPE 'ab'",
        "'a' LIKE 'a!b' ESCAPE '!'",
        "'a' LIKE 'a!' ESCAPE '!'",
        "'a' SIMILAR TO '['",
        "'a' SIMILAR TO '('",
        "'a' SIMILAR TO 'a]'",
    ],
)
def test_wrong_patterns_are_refused(sql: str) -> None:
    with pytest.raises(ValidationError):
        value(sql)


def test_patterns_may_differ_from_row_to_row() -> None:
    assert column("a LIKE b", a=["abc", "abc", None], b=["a%", "_", "a"]) == [True, False, None]
    assert column("a LIKE '%b_'", a=["abc", "b", None] * 10) == [True, False, None] * 10
    with pytest.raises(TableRuntimeError):
        column("a LIKE b ESCAPE '!'", a=["abc"], b=["a!b"])


@pytest.mark.parametrize(
    ("sql", "expected", "data_type"),
    [
        ("REGEXP_COUNT('a.b.c', '\\.')", 2, "INT"),
        ("REGEXP_COUNT('abc', '(')", None, "INT"),
        ("REGEXP_COUNT('abc', '|a')", 4, "INT"),
        ("REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)', 2)", "bar", "STRING"),
        ("REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)')", "foothebar", "STRING"),
        ("REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)', 3)", None, "STRING"),
        ("REGEXP_EXTRACT('abc', '(x)?b', 1)", None, "STRING"),
        ("REGEXP_EXTRACT_ALL('1-2, 3-4', '(\\d)-(\\d)')", ["1", "3"], "ARRAY<STRING>"),
        ("REGEXP_EXTRACT_ALL('1-2, 3-4', '(\\d)-(\\d)', 0)", ["1-2", "3-4"], "ARRAY<STRING>"),
        ("REGEXP_EXTRACT_ALL('1-2', '(\\d)', 2)", None, "ARRAY<STRING>"),
        ("REGEXP_INSTR('😀ab', 'b')", 4, "INT"),
        ("REGEXP_INSTR('ab', 'x')", 0, "INT"),
        ("REGEXP_REPLACE('a1b22', '\\d+', '$1')", "a$1b$1", "STRING NOT NULL"),
        ("REGEXP_REPLACE('ab', '(', '')", None, "STRING NOT NULL"),
        ("REGEXP_SPLIT('a1b22c3', '\\d+')", ["a", "b", "c", ""], "ARRAY<STRING> NOT NULL"),
        ("REGEXP_SUBSTR('abc12', '\\d')", "1", "STRING"),
        ("REGEXP_SUBSTR('abc', '\\d')", None, "STRING"),
    ],
)
def test_functions_of_regular_expressions(sql: str, expected: Any, data_type: str) -> None:
    assert value(sql) == expected
    assert type_text(sql) == data_type


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("a++b", "aab", "aab"),
        ("(?>a+)b", "aab", "aab"),
        ("(?<n>a)\\k<n>", "baa", "aa"),
        ("(a)\\1", "baa", "aa"),
        ("\\Qa.\\E+", "xa..", "a.."),
        ("[a-z&&[^aeiou]]+", "aebcd", "bcd"),
        ("[a-c[x-z]]+", "-axz", "axz"),
        ("[^\\d\\s]+", "1 ab", "ab"),
        ("[]a]+", "x]a", "]a"),
        ("[a-]+", "b-a", "-a"),
        ("\\p{L}+", "1éa", "éa"),
        ("\\p{IsHan}+", "a中文", "中文"),
        ("\\p{Upper}\\P{Upper}", "aBc", "Bc"),
        ("\\pL", "1é", "é"),
        ("(?i)ab", "xAB", "AB"),
        ("a(?i)b|c", "C", "C"),
        ("a(?i:b)c", "aBc", "aBc"),
        ("(?i)é", "É", None),
        ("(?iu)é", "É", "É"),
        ("a.c", "a\rc", None),
        ("(?s)a.c", "a\rc", "a\rc"),
        ("a$", "a\r\n", "a"),
        ("(?m)^b$", "a\nb\nc", "b"),
        ("(?x)a b # c", "ab", "ab"),
        ("(?<=a|bc)d", "bcd", "d"),
        ("(?<!a|bc)d", "ad", None),
        ("\\x41\\u0042\\0103\\x{44}", "ABCD", "ABCD"),
        ("a\\R", "a\r\n", "a\r\n"),
        ("\\h\\w\\b", "é a", " a"),
        ("a{2,3}?", "aaa", "aa"),
        ("\\Aab\\z", "ab", "ab"),
        ("\\tb", "\tb", "\tb"),
    ],
)
def test_regular_expressions_are_those_of_java(pattern: str, text: str, found: str | None) -> None:
    match = compiled(pattern).search(text)
    assert (None if match is None else match.group()) == found


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "*a",
        "a**",
        "[a",
        "[b-a]",
        "a{",
        "{2}",
        "\\y",
        "\\",
        "(?<1>a)",
        "(?<a>.)(?<a>.)",
        "\\k<x>",
        "(?z)a",
        "\\x4",
    ],
)
def test_what_java_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPatternError):
        compiled(pattern)


@pytest.mark.parametrize("pattern", ["\\p{IsKlingon}", "(?<=a+)b"])
def test_what_cannot_be_translated_is_told(pattern: str) -> None:
    with pytest.raises(UnsupportedError):
        compiled(pattern)


def test_behind_an_empty_match_the_next_character_follows() -> None:
    assert [found.group() for found in matches(compiled("|a"), "a")] == ["", ""]


@pytest.mark.parametrize(
    ("pattern", "text", "limit", "parts"),
    [
        (",", "a,b,,", 0, ["a", "b"]),
        (",", "a,b,,", -1, ["a", "b", "", ""]),
        (",", "a,b,c", 2, ["a", "b,c"]),
        (",", ",", 0, []),
        (",", "", 0, [""]),
        ("", "ab", 0, ["a", "b"]),
    ],
)
def test_texts_are_split_as_in_java(pattern: str, text: str, limit: int, parts: list[str]) -> None:
    assert split(compiled(pattern), text, limit) == parts


def test_a_group_below_zero_is_not_there() -> None:
    assert column(r"REGEXP_EXTRACT(s, '(\w+)', -1)", s=["a b"]) == [None]
