"""Splits a text into statements at its semicolons, except inside strings, comments and statement sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.service.sql_shell.scanning import Kind, Piece, scan

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
