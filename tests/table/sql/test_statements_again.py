"""A statement that comes again is not read again."""

from __future__ import annotations

import pytest

from penstock.sql.parser import SqlParserError, parse_statement
from penstock.sql.parser import statement_parser as script


def test_a_text_that_comes_again_gives_the_same_statement() -> None:
    assert parse_statement("SELECT 1 + 1 AS two") is parse_statement("SELECT 1 + 1 AS two")


def test_texts_that_differ_in_white_space_or_case_are_read_by_themselves() -> None:
    assert parse_statement("SELECT 'a'") != parse_statement("SELECT 'A'")
    assert parse_statement("SELECT 'a  b'") != parse_statement("SELECT 'a b'")


def test_a_long_text_is_not_kept() -> None:
    text = f"SELECT '{'x' * script._KEPT_CHARACTERS_MAX}'"
    assert parse_statement(text) == parse_statement(text)
    assert parse_statement(text) is not parse_statement(text)


def test_a_wrong_text_stays_wrong() -> None:
    for _ in range(2):
        with pytest.raises(SqlParserError):
            parse_statement("SELECT FROM WHERE")
