"""What can be wrong with a query."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.base.errors import ConfigurationError, OperationError


class ValidationError(ConfigurationError):
    """A query, a table or a call of a function cannot be planned: the message says which part and why."""


class UnknownNameError(ValidationError):
    """A query names a table or a column that is not there.

    Args:
        reason: a sentence without a full stop.
        at: the offset of the name in the text of the statement; below 0 if it is unknown.
        name: the name, and a parenthesis after that of a function; without `at` it is looked up in the text.
    """

    def __init__(self, reason: str, at: int = -1, name: str = "") -> None:
        super().__init__(reason)
        self.reason, self.at, self.name = reason, at, name

    def located(self, sql: str) -> UnknownNameError:
        """The same error with line, column and a caret below the name. `sql`: the text of the statement."""
        at = self.at if self.at >= 0 or not self.name else _place_of(self.name, sql)
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


def _place_of(name: str, sql: str) -> int:
    """The offset of a name in a statement; below 0 if it is not there, or if there are several that could be meant.

    A name that ends in a parenthesis is that of a function, and all calls mean the same one.
    """
    is_call = name.endswith("(")
    name = name.removesuffix("(")
    places: list[int] = []
    for match in _NAMES.finditer(sql):
        word = match["quoted"] or match["plain"] or ""
        if word == name or (is_call and word.upper() == name.upper() and match["call"]):
            places.append(match.start())
    return places[0] if len(places) == 1 or (places and is_call) else -1


@contextmanager
def names_located(sql: str) -> Iterator[None]:
    """Let errors of unknown names say where in this text the names stand."""
    try:
        yield
    except UnknownNameError as error:
        raise error.located(sql) from error.__cause__


class TableRuntimeError(OperationError):
    """A query met a value that one of its functions cannot take. The job fails at once: it would meet it again."""

    suppresses_restart = True
