"""Splits SQL into tokens, even if it is unfinished: the parser's lexer rejects unfinished text, this accepts any."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, NamedTuple


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
