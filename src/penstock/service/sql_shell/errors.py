"""What a person reads when a statement fails: the reason, and the place in the text where it is known."""

from __future__ import annotations

import traceback

from penstock.base.secrets import hide
from penstock.service.sql_shell.splitting import Statement
from penstock.table.sql import SqlParserError


def error_text(error: BaseException, statement: Statement, source: str | None = None, verbose: bool = False) -> str:
    """The lines for an error of a statement.

    Args:
        error: what was raised.
        statement: the statement that raised it.
        source: the file that it is from; None for one that was typed.
        verbose: whether the traceback follows.
    """
    place = "" if source is None else f" in {source}, line {statement.line}"
    lines = [f"[ERROR] Could not execute SQL statement{place}. Reason:"]
    if isinstance(error, SqlParserError) and error.line:
        lines += [str(in_script(error, statement)), *_pointed_at(error, statement)]
    else:
        lines.append(reason(error))
    if verbose:
        lines.append("".join(traceback.format_exception(error)).rstrip())
    return hide("\n".join(lines) + "\n")


def reason(error: BaseException) -> str:
    """An error in one text, with its class and without secrets."""
    text = hide(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def in_script(error: SqlParserError, statement: Statement) -> SqlParserError:
    """The error with its place in the whole text that the statement is from."""
    column = error.column + statement.column - 1 if error.line == 1 else error.column
    return SqlParserError(error.reason, error.line + statement.line - 1, column)


def _pointed_at(error: SqlParserError, statement: Statement) -> list[str]:
    """The line of the statement that has the error, and a caret below it."""
    lines = statement.text.split("\n")
    if error.line > len(lines):
        return []
    line = lines[error.line - 1]
    number = str(error.line + statement.line - 1)
    # Tabs stay, so that the caret stands where the terminal puts the character.
    indent = "".join("\t" if char == "\t" else " " for char in line[: error.column - 1])
    return [f"{number} | {line}", f"{' ' * len(number)} | {indent}^"]
