"""Tokens of SQL text: words, names in backticks, texts, numbers, operators; and hints, which look like comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, NamedTuple

from penstock.base.errors import PenstockError


class SqlParserError(PenstockError, ValueError):
    """A text that is no SQL as Flink has it. `line` and `column` count from 1."""

    suppresses_restart = True

    def __init__(self, reason: str, line: int = 0, column: int = 0) -> None:
        super().__init__(reason, line, column)
        self.reason, self.line, self.column = reason, line, column

    def __str__(self) -> str:
        return f"SQL parse failed. {self.reason} at line {self.line}, column {self.column}."


class Kind(Enum):
    """What a token is."""

    WORD = auto()
    QUOTED = auto()
    TEXT = auto()
    BINARY = auto()
    NUMBER = auto()
    OPERATOR = auto()
    HINT = auto()
    END = auto()


class Token(NamedTuple):
    """`text`: the word in capitals, the name, the value of a text, or the operator; `source`: as it is written."""

    kind: Kind
    text: str
    source: str
    at: int


#: Longer ones first.
_OPERATORS: Final = ("=>", "->", "<=", ">=", "<>", "!=", "||", "{-", "-}", *"+-*/%=<>(),.;[]{}?:|^$")
_TOKEN: Final = re.compile(
    r"(?P<SPACE>\s+|(?:--|//)[^\n]*)"
    r"|(?P<HINT>/\*\+)"
    r"|(?P<COMMENT>/\*)"
    r"|(?P<TEXT>'(?:[^']|'')*')"
    r"|(?P<PREFIXED>(?:[xX]|[nN]|[uU]&|_\w+)'(?:[^']|'')*')"
    r"|(?P<QUOTED>(?:[uU]&)?`(?:[^`]|``)+`)"
    r"|(?P<NUMBER>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<WORD>[^\W\d][\w$]*|\$[\w$]+)"
    rf"|(?P<OPERATOR>{'|'.join(map(re.escape, _OPERATORS))})"
)
_UESCAPE: Final = re.compile(r"\s*UESCAPE\s+'(.)'", re.IGNORECASE)


def place(sql: str, at: int) -> tuple[int, int]:
    """Line and column of an offset, from 1."""
    before = sql[:at]
    return before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1


def tokens_of(sql: str) -> list[Token]:
    """All tokens, the last of kind END. Raises `SqlParserError`."""
    return list(_tokens(sql))


def _tokens(sql: str) -> Iterator[Token]:
    at, hint_end = 0, -1
    while at < len(sql):
        if at == hint_end:
            yield Token(Kind.HINT, "*/", "*/", at)
            at += 2
            continue
        match = _TOKEN.match(sql, at)
        if match is None:
            raise SqlParserError(_unknown(sql, at), *place(sql, at))
        kind, source = match.lastgroup or "", match[0]
        begin, at = at, match.end()
        if kind == "COMMENT":
            at = _end_of_comment(sql, begin) + 2
        elif kind == "HINT":
            hint_end = _end_of_comment(sql, begin)
            yield Token(Kind.HINT, "/*+", source, begin)
        elif kind == "WORD":
            yield Token(Kind.WORD, source.upper(), source, begin)
        elif kind == "QUOTED":
            name = source[source.index("`") + 1 : -1].replace("``", "`")
            yield Token(Kind.QUOTED, _decoded(name) if source[0] in "uU" else name, source, begin)
        elif kind == "TEXT":
            yield Token(Kind.TEXT, source[1:-1].replace("''", "'"), source, begin)
        elif kind == "PREFIXED":
            escape = _UESCAPE.match(sql, at) if source[0] in "uU" else None
            yield _prefixed(sql, source, begin, "\\" if escape is None else escape[1])
            at = at if escape is None else escape.end()
        elif kind != "SPACE":
            yield Token(Kind[kind], source, source, begin)
    yield Token(Kind.END, "", "<EOF>", len(sql))


def _end_of_comment(sql: str, begin: int) -> int:
    end = sql.find("*/", begin + 2)
    if end < 0:
        raise SqlParserError("The comment has no end, which begins", *place(sql, begin))
    return end


def _prefixed(sql: str, source: str, at: int, escape: str) -> Token:
    prefix, _, rest = source.partition("'")
    text = rest[:-1].replace("''", "'")
    if prefix in "xX":
        if len(text) % 2 or re.search(r"[^0-9a-fA-F]", text):
            raise SqlParserError(f"{source} does not consist of pairs of hexadecimal digits,", *place(sql, at))
        return Token(Kind.BINARY, text, source, at)
    return Token(Kind.TEXT, _decoded(text, escape) if prefix in ("u&", "U&") else text, source, at)


def _decoded(text: str, escape: str = "\\") -> str:
    """With characters by their numbers in hexadecimal digits: four, or + and six."""
    mark = re.escape(escape)
    pattern = rf"{mark}({mark}|[0-9a-fA-F]{{4}}|\+[0-9a-fA-F]{{6}})"
    return re.sub(pattern, lambda match: escape if match[1] == escape else chr(int(match[1].lstrip("+"), 16)), text)


def _unknown(sql: str, at: int) -> str:
    character = sql[at]
    if character in "'`":
        what = "text" if character == "'" else "name"
        return f"A {what} begins with {character} and does not end,"
    if character == '"':
        return 'Encountered "\\"": names are in backticks (`name`), and texts in single quotes,'
    return f"Encountered {character!r}, which means nothing,"
