"""Texts of one statement, and scripts of many with semicolons after them."""

from __future__ import annotations

from penstock.table.sql.statement_parser import StatementParser
from penstock.table.sql.statements import Statement


def parse_statement(sql: str) -> Statement:
    """The one statement of a text, which may end with a semicolon. Raises `SqlParserError`."""
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
