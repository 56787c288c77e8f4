"""The SQL tokenizer: words, names in backticks, strings, numbers, operators, and hints, which look like comments."""

from __future__ import annotations

import re
import sys
from enum import Enum, auto
from typing import Final, NamedTuple

from penstock.base.errors import PenstockError


class SqlParserError(PenstockError, ValueError):
    """Raised for text that is not valid Flink SQL. `line` and `column` count from 1."""

    suppresses_restart = True

    def __init__(self, reason: str, line: int = 0, column: int = 0) -> None:
        super().__init__(reason, line, column)
        self.reason, self.line, self.column = reason, line, column

    def __str__(self) -> str:
        return f"SQL parse failed. {self.reason} at line {self.line}, column {self.column}."


class Kind(Enum):
    """The kind of a token."""

    WORD = auto()
    QUOTED = auto()
    TEXT = auto()
    BINARY = auto()
    NUMBER = auto()
    OPERATOR = auto()
    HINT = auto()
    END = auto()


class Token(NamedTuple):
    """`text`: the word in capitals, the name, the value of a string, or the operator; `source`: the original text."""

    kind: Kind
    text: str
    source: str
    at: int


#: Longer operators come first.
_OPERATORS: Final = ("=>", "->", "<=", ">=", "<>", "!=", "||", "{-", "-}", *"+-*/%=<>(),.;[]{}?:|^$")
_TOKEN: Final = re.compile(
    r"\s*(?:"
    r"(?P<SPACE>(?:--|//)[^\n]*|\Z)"
    r"|(?P<HINT>/\*\+)"
    r"|(?P<COMMENT>/\*)"
    r"|(?P<TEXT>'(?:[^']|'')*')"
    r"|(?P<ESCAPED>[eE]'(?:[^'\\]|\\[\s\S]|'')*')"
    r"|(?P<PREFIXED>(?:[xX]|[nN]|[uU]&|_\w+)'(?:[^']|'')*')"
    r"|(?P<QUOTED>(?:[uU]&)?`(?:[^`]|``)+`)"
    r"|(?P<NUMBER>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<WORD>[^\W\d][\w$]*|\$[\w$]+)"
    rf"|(?P<OPERATOR>{'|'.join(map(re.escape, _OPERATORS))}))"
)
#: the tokens whose text equals their source
_PLAIN: Final = {"NUMBER": Kind.NUMBER, "OPERATOR": Kind.OPERATOR}
#: the escapes in E'…'
_ESCAPES: Final = re.compile(
    r"''|\\(?:(?P<CHAR>[bfnrt\\'\"])|x(?P<HEX>[0-9a-fA-F]{0,2})|u(?P<SHORT>[0-9a-fA-F]{4})|U(?P<LONG>[0-9a-fA-F]{8})"
    r"|(?P<OCTAL>[0-3][0-7]{2})|(?P<BROKEN>[uU]))"
)
_CONTROLS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SPACE: Final = re.compile(r"\s*")
_UESCAPE: Final = re.compile(r"\s*UESCAPE\s+'(.)'", re.IGNORECASE)


def place(sql: str, at: int) -> tuple[int, int]:
    """Return the line and column of an offset, from 1."""
    before = sql[:at]
    return before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1


def tokenize(sql: str) -> list[Token]:
    """Return all tokens, the last of kind END. Raises `SqlParserError`."""
    tokens: list[Token] = []
    at, hint_end, end = 0, -1, len(sql)
    match_at, new = _TOKEN.match, tuple.__new__
    while at < end:
        match = match_at(sql, at)
        if match is None:
            at = _SPACE.match(sql, at).end()  # type: ignore[union-attr]
            raise SqlParserError(_unknown(sql, at), *place(sql, at))
        name = match.lastgroup or ""
        begin, at = match.span(name)
        if begin == hint_end:
            tokens.append(Token(Kind.HINT, "*/", "*/", begin))
            at = begin + 2
            continue
        source = sql[begin:at]
        kind = _PLAIN.get(name)
        if kind is not None:
            tokens.append(new(Token, (kind, source, source, begin)))
            if kind is Kind.NUMBER and at < end and sql[at] in ",)":
                # A fast path for long lists of numbers: it saves matching the separator.
                tokens.append(new(Token, (Kind.OPERATOR, sql[at], sql[at], at)))
                at += 1
        elif name == "SPACE":
            continue
        elif name == "WORD":
            tokens.append(Token(Kind.WORD, source.upper(), source, begin))
        elif name == "TEXT":
            tokens.append(Token(Kind.TEXT, source[1:-1].replace("''", "'"), source, begin))
        elif name == "ESCAPED":
            tokens.append(Token(Kind.TEXT, _unescaped(sql, source, begin), source, begin))
        elif name == "COMMENT":
            at = _end_of_comment(sql, begin) + 2
        elif name == "HINT":
            hint_end = _end_of_comment(sql, begin)
            tokens.append(Token(Kind.HINT, "/*+", source, begin))
        elif name == "QUOTED":
            quoted = source[source.index("`") + 1 : -1].replace("``", "`")
            tokens.append(Token(Kind.QUOTED, _decoded(quoted) if source[0] in "uU" else quoted, source, begin))
        else:
            escape = _UESCAPE.match(sql, at) if source[0] in "uU" else None
            tokens.append(_prefixed(sql, source, begin, "\\" if escape is None else escape[1]))
            at = at if escape is None else escape.end()
    tokens.append(Token(Kind.END, "", "<EOF>", end))
    return tokens


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


def _unescaped(sql: str, source: str, at: int) -> str:
    """Return the value of E'…', with backslash escapes as in C. Unknown escapes are kept verbatim, as in Flink."""

    def character(match: re.Match[str]) -> str:
        if match["BROKEN"] is not None:
            digits = "four" if match["BROKEN"] == "u" else "eight"
            raise SqlParserError(f"{match[0]} needs {digits} hexadecimal digits, in the text", *place(sql, at))
        if match["CHAR"] is not None:
            return _CONTROLS.get(match["CHAR"], match["CHAR"])
        if match["OCTAL"] is not None:
            return chr(int(match["OCTAL"], 8))
        if match["HEX"] == "":
            return "x"
        digits = match["HEX"] or match["SHORT"] or match["LONG"]
        if digits is None:
            return "'"
        if int(digits, 16) > sys.maxunicode:
            raise SqlParserError(f"{match[0]} is no character, in the text", *place(sql, at))
        return chr(int(digits, 16))

    return _ESCAPES.sub(character, source[2:-1])


def _decoded(text: str, escape: str = "\\") -> str:
    """Decode Unicode escapes, which have four hexadecimal digits, or a + and six."""
    mark = re.escape(escape)
    pattern = rf"{mark}({mark}|[0-9a-fA-F]{{4}}|\+[0-9a-fA-F]{{6}})"
    return re.sub(pattern, lambda match: escape if match[1] == escape else chr(int(match[1].lstrip("+"), 16)), text)


def _unknown(sql: str, at: int) -> str:
    character = sql[at]
    if character in "'`":
        kind = "text" if character == "'" else "name"
        return f"A {kind} begins with {character} and does not end,"
    if character == '"':
        return 'Encountered "\\"": names are in backticks (`name`), and texts in single quotes,'
    return f"Encountered {character!r}, which means nothing,"
