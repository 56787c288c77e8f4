"""Entry points of the parser: single statements, scripts of statements separated by semicolons, and paths."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from penstock.table.sql.statement_parser import StatementParser
from penstock.table.sql.statements import Statement

#: longer texts are parsed each time, without caching
_KEPT_CHARACTERS_MAX: Final = 20_000


def parse_statement(sql: str) -> Statement:
    """Parse one statement, optionally terminated by a semicolon. Raises `SqlParserError`.

    Statements are immutable, so repeated texts are parsed once and cached.
    """
    return _kept(sql) if len(sql) <= _KEPT_CHARACTERS_MAX else _statement(sql)


@lru_cache(maxsize=128)
def _kept(sql: str) -> Statement:
    return _statement(sql)


def _statement(sql: str) -> Statement:
    parser = StatementParser(sql)
    statement = parser.statement()
    parser.accept(";")
    parser.finish()
    return statement


def parse_script(sql: str) -> list[Statement]:
    """Parse all statements of a text, separated by semicolons. Raises `SqlParserError`."""
    parser = StatementParser(sql)
    statements = []
    while not parser.has_ended:
        if parser.accept(";"):
            continue
        statements.append(parser.statement())
        if not parser.has_ended:
            parser.expect(";")
    return statements


def parse_path(text: str) -> tuple[str, ...]:
    """Parse a path such as `` catalog.`data base`.table `` into its names.

    Raises `SqlParserError` if it is not a path.
    """
    parser = StatementParser(text)
    path = parser.path()
    parser.finish()
    return path
