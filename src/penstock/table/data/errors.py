"""What can be wrong with a query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.base.errors import ConfigurationError, OperationError


class ValidationError(ConfigurationError):
    """A query, a table or a call of a function cannot be planned: the message says which part and why."""


class UnknownNameError(ValidationError):
    """A query names a table or a column that is not there.

    Args:
        reason: a sentence without a full stop.
        at: the offset of the name in the text of the statement; below 0 if it is unknown.
    """

    def __init__(self, reason: str, at: int = -1) -> None:
        super().__init__(reason)
        self.reason, self.at = reason, at

    def located(self, sql: str) -> UnknownNameError:
        """The same error with line, column and a caret below the name. `sql`: the text of the statement."""
        if not 0 <= self.at < len(sql):
            return self
        begin = sql.rfind("\n", 0, self.at) + 1
        line = sql[begin:].split("\n", 1)[0]
        column = self.at - begin
        caret = "".join("\t" if character == "\t" else " " for character in line[:column]) + "^"
        number = sql.count("\n", 0, self.at) + 1
        return UnknownNameError(f"{self.reason}, at line {number}, column {column + 1}:\n  {line}\n  {caret}")


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
