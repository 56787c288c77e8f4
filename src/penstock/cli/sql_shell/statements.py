"""SQL text in the shell: tokens, statements, and the messages for statements that fail.

`scan` splits SQL into tokens, even if it is unfinished: the parser's lexer rejects unfinished text, `scan` accepts any.

`split` splits a text into statements at its semicolons, except inside strings, comments and statement sets.

`error_text` gives the reason, and the position in the text if it is known.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from penstock.base.errors import OperationError
from penstock.base.secrets import hide
from penstock.sql.parser import SqlParserError


class Kind(Enum):
    """The kind of a token."""

    SPACE = auto()
    COMMENT = auto()
    HINT = auto()
    TEXT = auto()
    QUOTED = auto()
    NUMBER = auto()
    WORD = auto()
    OPERATOR = auto()


class Piece(NamedTuple):
    """A token: characters of a text, starting at offset `at`. `is_closed`: a string, name or comment is terminated."""

    kind: Kind
    text: str
    at: int
    is_closed: bool = True

    @property
    def end(self) -> int:
        """The offset after the token."""
        return self.at + len(self.text)

    @property
    def is_blank(self) -> bool:
        """Whether the token has no meaning: a space or a comment."""
        return self.kind in (Kind.SPACE, Kind.COMMENT)


_PIECE: Final = re.compile(
    r"(?P<SPACE>\s+)"
    r"|(?P<COMMENT>(?:--|//)[^\n]*|/\*(?!\+).*?(?:\*/|\Z))"
    r"|(?P<HINT>/\*\+.*?(?:\*/|\Z))"
    r"|(?P<TEXT>'(?:[^']|'')*'?)"
    r"|(?P<QUOTED>`(?:[^`]|``)*`?)"
    r"|(?P<NUMBER>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<WORD>[^\W\d][\w$]*|\$[\w$]+)"
    r"|(?P<OPERATOR>.)",
    re.DOTALL,
)


def scan(sql: str) -> Iterator[Piece]:
    """Yield all tokens of a text, in order, without gaps."""
    for match in _PIECE.finditer(sql):
        kind, text = Kind[match.lastgroup or ""], match[0]
        yield Piece(kind, text, match.start(), _is_closed(kind, text))


def _is_closed(kind: Kind, text: str) -> bool:
    if kind is Kind.TEXT or kind is Kind.QUOTED:
        return text.count(text[0]) % 2 == 0
    if text.startswith("/*") and kind is not Kind.OPERATOR:
        return text.endswith("*/") and len(text) >= 4
    return True


_BLOCK: Final = ["STATEMENT", "SET", "BEGIN"]
#: accepted without a semicolon
_COMMANDS: Final = frozenset({"CLEAR", "EXIT", "HELP", "QUIT"})


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement without its semicolon, and its position: line and column count from 1.

    `is_closed`: it has a semicolon.
    """

    text: str
    line: int = 1
    column: int = 1
    is_closed: bool = True


def split(script: str) -> list[Statement]:
    """Return the statements of a text, without surrounding comments and blanks."""
    return list(_statements(script))


def is_complete(text: str) -> bool:
    """Return whether the text is complete: each statement has its semicolon, and each string and comment its end."""
    if text.strip().upper() in _COMMANDS:
        return True
    return all(piece.is_closed for piece in scan(text)) and all(statement.is_closed for statement in _statements(text))


def _statements(script: str) -> Iterator[Statement]:
    pieces: list[Piece] = []
    block = _Block()
    for piece in scan(script):
        if piece.is_blank:
            continue
        if piece.text == ";" and not block.depth:
            if pieces:
                yield _statement(script, pieces, True)
            pieces, block = [], _Block()
            continue
        pieces.append(piece)
        if piece.kind is Kind.WORD:
            block.see(piece.text.upper())
    if pieces:
        yield _statement(script, pieces, False)


class _Block:
    """The nesting depth inside STATEMENT SET BEGIN … END. CASE has an END as well."""

    def __init__(self) -> None:
        self.depth = 0
        self._last: list[str] = []

    def see(self, word: str) -> None:
        """Process the next word."""
        self._last = [*self._last[-2:], word]
        if not self.depth:
            self.depth = int(self._last == _BLOCK)
        elif word == "CASE":
            self.depth += 1
        elif word == "END":
            self.depth -= 1


def _statement(script: str, pieces: list[Piece], is_closed: bool) -> Statement:
    begin, end = pieces[0].at, pieces[-1].end
    line = script.count("\n", 0, begin) + 1
    return Statement(script[begin:end], line, begin - (script.rfind("\n", 0, begin) + 1) + 1, is_closed)


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


class RefusedStatement(OperationError):
    """The error of a statement that ran in a gateway. Its message begins with the class that the gateway names."""


def reason(error: BaseException) -> str:
    """Return an error as text, with its class and without secrets."""
    text = hide(str(error))
    if isinstance(error, RefusedStatement):
        return text
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
