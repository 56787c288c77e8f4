"""Texts of one statement, scripts of many with semicolons after them, and paths."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from penstock.table.sql.statement_parser import StatementParser
from penstock.table.sql.statements import Statement

#: a text that is longer is read anew each time, and nothing of it is kept
_KEPT_CHARACTERS_MAX: Final = 20_000


def parse_statement(sql: str) -> Statement:
    """The one statement of a text, which may end with a semicolon. Raises `SqlParserError`.

    Statements never change, so texts that come again are not read again.
    """
    return _kept(sql) if len(sql) <= _KEPT_CHARACTERS_MAX else _statement(sql)


@lru_cache(maxsize=128)
def _kept(sql: str) -> Statement:
    return _statement(sql)


def _statement(sql: str) -> Statement:
    parser = StatementParser(sql)
    found = parser.statement()
    parser.accept(";")
    parser.finish()
    return found


def parse_script(sql: str) -> list[Statement]:
    """All statements of a text, which semicolons tell apart. Raises `SqlParserError`."""
    parser = StatementParser(sql)
    found = []
    while not parser.has_ended:
        if parser.accept(";"):
            continue
        found.append(parser.statement())
        if not parser.has_ended:
            parser.expect(";")
    return found


def parse_path(text: str) -> tuple[str, ...]:
    """The names of a path such as `` catalog.`data base`.table ``. Raises `SqlParserError` for text that is not one."""
    parser = StatementParser(text)
    found = parser.path()
    parser.finish()
    return found
