"""A position in the tokens of a text.

Parsers look ahead, consume the tokens they expect, and report unexpected ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn, TypeVar

from penstock.base.deep_calls import NESTING_MAX, SHALLOW_LEVELS, allow_deep_calls
from penstock.table.sql.lexer import Kind, SqlParserError, Token, place, tokenize
from penstock.table.sql.words import RESERVED

T = TypeVar("T")
#: the kinds of tokens that parsers match by text
_SEEN: Final = (Kind.WORD, Kind.OPERATOR, Kind.HINT)


class Cursor:
    """The base class of all parsers, which share one position in one text."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.tokens = tokenize(sql)
        self.index = 0
        #: a run of opening parentheses: the index of the first one, and the index after the last one
        self._opening = (0, 0)
        #: the current nesting depth of expressions, queries and types
        self._open_levels = 0
        #: the most levels added on one path of the tree since the innermost level was opened
        self._added_levels = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.index]

    def peek(self, ahead: int = 1) -> Token:
        """Return a token further ahead; past the end, always the last one."""
        return self.tokens[min(self.index + ahead, len(self.tokens) - 1)]

    def take(self) -> Token:
        """Consume the next token and return it."""
        token = self.token
        if token.kind is not Kind.END:
            self.index += 1
        return token

    # --- words and operators -----------------------------------------------------------------------------------------

    def sees(self, *texts: str) -> bool:
        """Return whether these words and operators come next."""
        tokens, index = self.tokens, self.index
        for text in texts:
            # The last token is the end marker, which callers never match by its text.
            token = tokens[index]
            if token.text != text or token.kind not in _SEEN:
                return False
            index += 1
        return True

    def sees_any(self, *texts: str) -> bool:
        """Return whether one of these words and operators comes next."""
        return any(self._is(self.token, text) for text in texts)

    @staticmethod
    def _is(token: Token, text: str) -> bool:
        return token.text == text and token.kind in _SEEN

    def accept(self, *texts: str) -> bool:
        """Consume these if they come next."""
        if self.sees(*texts):
            self.index += len(texts)
            return True
        return False

    def accept_any(self, *texts: str) -> str | None:
        """Consume one of these if it comes next."""
        return self.take().text if self.sees_any(*texts) else None

    def expect(self, *texts: str) -> None:
        """Consume these. Raises `SqlParserError` for anything else."""
        for text in texts:
            if not self.accept(text):
                self.fail(f'expected "{text}"')

    def fail(self, expected: str) -> NoReturn:
        """Raise `SqlParserError` for an unexpected next token."""
        self.refuse(f'Encountered "{self.token.source}": {expected},', self.token.at)

    def refuse(self, reason: str, at: int) -> NoReturn:
        """Raise `SqlParserError` for a construct that begins at an offset."""
        raise SqlParserError(reason, *place(self.sql, at))

    # --- levels ------------------------------------------------------------------------------------------------------

    def open_level(self) -> int:
        """Begin a nested tree. Returns the argument for `close_level`. Raises `SqlParserError` if it is too deep.

        The parser recurses once for each open level. `a + b + c` opens no level, but its tree has two nested operators:
        `add_level` counts these. A tree is thus at most as tall as both limits together.
        """
        self._open_levels += 1
        if self._open_levels > SHALLOW_LEVELS:
            self._check_levels(self._open_levels)
        before, self._added_levels = self._added_levels, 0
        return before

    def close_level(self, before: int) -> None:
        """End the tree that `open_level` began."""
        self._open_levels -= 1
        self._added_levels = max(before, self._added_levels)

    def add_level(self) -> None:
        """Count one more node above the tree that was parsed last. Raises `SqlParserError` if the tree is too tall."""
        self._added_levels += 1
        if self._added_levels > SHALLOW_LEVELS:
            self._check_levels(self._added_levels)

    def _check_levels(self, levels: int) -> None:
        allow_deep_calls()
        if levels > NESTING_MAX:
            self.refuse(
                f"The statement nests more than {NESTING_MAX} levels deep: split it, for example by views or WITH,",
                self.token.at,
            )

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Restore the starting position if a `SqlParserError` is raised, and re-raise it."""
        before = self.index, self._open_levels, self._added_levels
        try:
            yield
        except SqlParserError:
            self.index, self._open_levels, self._added_levels = before
            raise

    # --- names and literals ------------------------------------------------------------------------------------------

    def sees_name(self) -> bool:
        """Return whether a name comes next."""
        token = self.token
        return token.kind is Kind.QUOTED or (token.kind is Kind.WORD and token.text not in RESERVED)

    def name(self) -> str:
        """Parse a name, keeping its case."""
        if not self.sees_name():
            word = self.token
            if word.kind is Kind.WORD:
                self.fail(f"expected a name, and this word is reserved; put it in backticks (`{word.source}`)")
            self.fail("expected a name")
        token = self.take()
        return token.text if token.kind is Kind.QUOTED else token.source

    def accept_name(self) -> str | None:
        """Parse a name if one comes next."""
        return self.name() if self.sees_name() else None

    def path(self) -> tuple[str, ...]:
        """Parse names separated by dots."""
        parts = [self.name()]
        while self.sees("."):
            self.take()
            parts.append(self.name())
        return tuple(parts)

    def text(self) -> str:
        """Parse a string literal; adjacent literals are concatenated."""
        parts = [self.single_text()]
        while self.token.kind is Kind.TEXT:
            parts.append(self.take().text)
        return "".join(parts)

    def single_text(self) -> str:
        """Parse one string literal, without concatenating the literals after it."""
        if self.token.kind is not Kind.TEXT:
            self.fail("expected a text in single quotes")
        return self.take().text

    def accept_text(self) -> str | None:
        """Parse a string literal if one comes next."""
        return self.text() if self.token.kind is Kind.TEXT else None

    def whole_number(self) -> int:
        """Parse a whole number without a sign."""
        if self.token.kind is not Kind.NUMBER or not self.token.text.isdecimal():
            self.fail("expected a whole number")
        return int(self.take().text)

    # --- lists -------------------------------------------------------------------------------------------------------

    def parse_items(self, parse: Callable[[], T]) -> list[T]:
        """Parse one or more items separated by commas."""
        items = [parse()]
        tokens = self.tokens
        while tokens[self.index].text == "," and tokens[self.index].kind is Kind.OPERATOR:
            self.index += 1
            items.append(parse())
        return items

    def in_parentheses(self, parse: Callable[[], T]) -> T:
        """Parse an item in parentheses."""
        self.expect("(")
        parsed = parse()
        self.expect(")")
        return parsed

    def names_in_parentheses(self) -> tuple[str, ...]:
        """Parse names separated by commas, in parentheses."""
        return tuple(self.in_parentheses(lambda: self.parse_items(self.name)))

    @property
    def has_ended(self) -> bool:
        """Whether all tokens are consumed."""
        return self.token.kind is Kind.END

    def finish(self) -> None:
        """Check that all tokens are consumed."""
        if not self.has_ended:
            self.fail("expected the end of the statement")
