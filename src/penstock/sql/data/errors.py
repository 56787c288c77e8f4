"""The errors of queries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.base.errors import ConfigurationError, OperationError


class ValidationError(ConfigurationError):
    """A query, a table or a function call cannot be planned; the message names the part and the reason."""


class UnknownNameError(ValidationError):
    """A query names a table or a column that does not exist.

    Args:
        reason: a sentence without a full stop.
        at: the offset of the name in the statement; negative if it is unknown.
        name: the name, with an opening parenthesis if it is a function; without `at` it is searched in the statement.
    """

    def __init__(self, reason: str, at: int = -1, name: str = "") -> None:
        super().__init__(reason)
        self.reason, self.at, self.name = reason, at, name

    def located(self, sql: str) -> UnknownNameError:
        """Return the same error with line, column and a caret below the name. `sql`: the statement."""
        at = self.at if self.at >= 0 or not self.name else _find_offset(self.name, sql)
        if not 0 <= at < len(sql):
            return self
        begin = sql.rfind("\n", 0, at) + 1
        line = sql[begin:].split("\n", 1)[0]
        column = at - begin
        caret = "".join("\t" if character == "\t" else " " for character in line[:column]) + "^"
        number = sql.count("\n", 0, at) + 1
        return UnknownNameError(
            f"{self.reason.removesuffix('.')}, at line {number}, column {column + 1}:\n  {line}\n  {caret}"
        )


_NAMES: Final = re.compile(
    r"'(?:[^']|'')*'|--[^\n]*|/\*(?!\+).*?\*/|(?:`(?P<quoted>[^`]+)`|(?P<plain>\w+))(?P<call>\s*\()?", re.DOTALL
)


def _find_offset(name: str, sql: str) -> int:
    """Return the offset of a name in a statement; negative if the name is missing or ambiguous.

    A name that ends in a parenthesis is a function's, and all calls mean the same one.
    """
    is_call = name.endswith("(")
    name = name.removesuffix("(")
    offsets: list[int] = []
    for match in _NAMES.finditer(sql):
        word = match["quoted"] or match["plain"] or ""
        if word == name or (is_call and word.upper() == name.upper() and match["call"]):
            offsets.append(match.start())
    return offsets[0] if len(offsets) == 1 or (offsets and is_call) else -1


@contextmanager
def names_located(sql: str) -> Iterator[None]:
    """Add the position in this statement to errors about unknown names."""
    try:
        yield
    except UnknownNameError as error:
        raise error.located(sql) from error.__cause__


class TableRuntimeError(OperationError):
    """A function of a query cannot process a value. The job fails without a restart, which would fail again."""

    suppresses_restart = True
