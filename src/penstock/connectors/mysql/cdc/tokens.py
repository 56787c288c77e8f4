"""The tokens of statements of MySQL and MariaDB."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.base.errors import FormatError
from penstock.connectors.cdc.events import TableId
from penstock.connectors.mysql.cdc.binlog import QueryEvent

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|--(?=\s|$)[^\n]*|\#[^\n]*|/\*(?![!M]).*?\*/)
    |(?P<open>/\*M?!\d*)|(?P<close>\*/)
    |(?P<tick>`(?:[^`]|``)*`)
    |(?P<quote>'(?:[^'\\]|''|\\.)*')|(?P<double>"(?:[^"\\]|""|\\.)*")
    |(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w$]))|(?P<word>[\w$@\x80-\uffff]+)|(?P<sign>.)""",
    re.DOTALL | re.VERBOSE,
)
_PLAIN_QUOTES: Final = {"quote": re.compile(r"'(?:[^']|'')*'"), "double": re.compile(r'"(?:[^"]|"")*"')}
_ESCAPES: Final = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a", "%": "\\%", "_": "\\_"}


class Token(NamedTuple):
    """A token: a `word`, a `name` in quotes, a `text`, a `number`, or a `sign`."""

    kind: str
    text: str

    @property
    def word(self) -> str:
        """The token in upper case if it is an unquoted word, or the sign; otherwise empty."""
        return self.text.upper() if self.kind in ("word", "sign") else ""


END: Final = Token("end", "")


def tokenize(event: QueryEvent) -> list[Token]:
    """Split a statement into tokens; comments are left out, except comments that the server executes."""
    tokens: list[Token] = []
    at, sql = 0, event.sql
    while at < len(sql):
        match = _TOKEN.match(sql, at)
        assert match is not None
        kind = str(match.lastgroup)
        if kind in _PLAIN_QUOTES and not event.has_backslash_escapes:
            match = _PLAIN_QUOTES[kind].match(sql, at) or match
        text = match[0]
        at = match.end()
        if kind in ("space", "open", "close"):
            continue
        if kind == "tick":
            tokens.append(Token("name", text[1:-1].replace("``", "`")))
        elif kind in ("quote", "double"):
            quote = text[0]
            text = text[1:-1].replace(quote * 2, quote)
            if kind == "double" and event.has_ansi_quotes:
                tokens.append(Token("name", text))
                continue
            if event.has_backslash_escapes:
                text = re.sub(r"\\(.)", lambda escaped: _ESCAPES.get(escaped[1], escaped[1]), text, flags=re.DOTALL)
            tokens.append(Token("text", text))
        else:
            tokens.append(Token(kind, text))
    return tokens


class Tokens:
    """A cursor over tokens."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def peek(self, ahead: int = 0) -> Token:
        """Return the next token, or the token `ahead` positions after it; `END` after the last token."""
        index = self._at + ahead
        return self._tokens[index] if index < len(self._tokens) else END

    def rest(self) -> Sequence[Token]:
        """Return the remaining tokens."""
        return self._tokens[self._at :]

    def next(self) -> Token:
        """Return the next token and advance."""
        token = self.peek()
        self._at += 1
        return token

    def accept(self, *words: str) -> bool:
        """Skip these words if they are next; return whether they were."""
        if all(self.peek(index).word == word for index, word in enumerate(words)):
            self._at += len(words)
            return True
        return False

    def accept_any(self, *words: str) -> str:
        """Skip one of these words if it is next, and return it; otherwise return an empty string."""
        word = self.peek().word
        if word and word in words:
            self._at += 1
            return word
        return ""

    def name(self) -> str:
        """Return the next token, which must be a name, and advance."""
        token = self.next()
        if token.kind not in ("word", "name", "text"):
            raise FormatError(f"a name should come where {token.text!r} is")
        return token.text

    def table(self, schema: str) -> TableId:
        """Return the next table name, which may have a database prefix, and advance."""
        name = self.name()
        if self.accept("."):
            return TableId(name, self.name())
        if "." in name and self._tokens[self._at - 1].kind == "word":
            raise FormatError(f"the name {name!r} is not understood")
        return TableId(schema, name)

    def brackets(self) -> list[Token]:
        """Return the tokens within the next brackets, and advance past them."""
        if not self.accept("("):
            raise FormatError(f"an opening bracket should come where {self.peek().text!r} is")
        begin, depth = self._at, 1
        while depth:
            token = self.next()
            if token is END:
                raise FormatError("a bracket is not closed")
            depth += {"(": 1, ")": -1}.get(token.word, 0)
        return list(self._tokens[begin : self._at - 1])

    def skip_item(self) -> None:
        """Skip up to the next comma outside of brackets, or the end."""
        while self.peek() is not END and self.peek().word != ",":
            if self.peek().word == "(":
                self.brackets()
            else:
                self.next()


def split(tokens: Sequence[Token]) -> list[list[Token]]:
    """Split at commas outside of brackets."""
    items: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token.word, 0)
        if token.word == "," and not depth:
            items.append([])
        else:
            items[-1].append(token)
    return items
