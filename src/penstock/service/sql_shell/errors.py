"""Messages for statements that fail: the reason, and the position in the text if it is known."""

from __future__ import annotations

import traceback

from penstock.base.secrets import hide
from penstock.service.sql_shell.splitting import Statement
from penstock.table.sql import SqlParserError


def error_text(error: BaseException, statement: Statement, source: str | None = None, verbose: bool = False) -> str:
    """Return the message for an error of a statement.

    Args:
        error: the exception.
        statement: the statement that raised it.
        source: the file that contains the statement; None if it was typed.
        verbose: whether to append the traceback.
    """
    location = "" if source is None else f" in {source}, line {statement.line}"
    lines = [f"[ERROR] Could not execute SQL statement{location}. Reason:"]
    if isinstance(error, SqlParserError) and error.line:
        lines += [str(in_script(error, statement)), *_render_error_line(error, statement)]
    else:
        lines.append(reason(error))
    if verbose:
        lines.append("".join(traceback.format_exception(error)).rstrip())
    return hide("\n".join(lines) + "\n")


def reason(error: BaseException) -> str:
    """Return an error as text, with its class and without secrets."""
    text = hide(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def in_script(error: SqlParserError, statement: Statement) -> SqlParserError:
    """Return the error with its position in the whole text that contains the statement."""
    column = error.column + statement.column - 1 if error.line == 1 else error.column
    return SqlParserError(error.reason, error.line + statement.line - 1, column)


def _render_error_line(error: SqlParserError, statement: Statement) -> list[str]:
    """Return the line of the statement that has the error, and a caret below it."""
    lines = statement.text.split("\n")
    if error.line > len(lines):
        return []
    line = lines[error.line - 1]
    number = str(error.line + statement.line - 1)
    # Keep tabs, so that the caret is below the character in the terminal.
    indent = "".join("\t" if char == "\t" else " " for char in line[: error.column - 1])
    return [f"{number} | {line}", f"{' ' * len(number)} | {indent}^"]
