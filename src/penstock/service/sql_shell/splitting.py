"""A text of many statements, told apart by semicolons: those in texts, comments and STATEMENT SET separate nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.service.sql_shell.scanning import Kind, Piece, scan

_BLOCK: Final = ["STATEMENT", "SET", "BEGIN"]
#: taken without a semicolon, too
_COMMANDS: Final = frozenset({"CLEAR", "EXIT", "HELP", "QUIT"})


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement without its semicolon, and where it begins: line and column count from 1.

    `is_closed`: it has a semicolon.
    """

    text: str
    line: int = 1
    column: int = 1
    is_closed: bool = True


def split(script: str) -> list[Statement]:
    """The statements of a text, without comments and blanks around them."""
    return list(_statements(script))


def is_complete(text: str) -> bool:
    """Whether nothing has to follow: each statement has its semicolon, and each text and comment its end."""
    if text.strip().upper() in _COMMANDS:
        return True
    return all(piece.is_closed for piece in scan(text)) and all(one.is_closed for one in _statements(text))


def _statements(script: str) -> Iterator[Statement]:
    found: list[Piece] = []
    block = _Block()
    for piece in scan(script):
        if piece.is_blank:
            continue
        if piece.text == ";" and not block.depth:
            if found:
                yield _statement(script, found, True)
            found, block = [], _Block()
            continue
        found.append(piece)
        if piece.kind is Kind.WORD:
            block.see(piece.text.upper())
    if found:
        yield _statement(script, found, False)


class _Block:
    """How deep words are inside of STATEMENT SET BEGIN … END. A CASE has an END, too."""

    def __init__(self) -> None:
        self.depth = 0
        self._last: list[str] = []

    def see(self, word: str) -> None:
        """The next word."""
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
