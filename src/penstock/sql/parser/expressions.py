"""Parses expressions: operators by precedence, literals, names, and parentheses.

The precedences are Calcite's. From loosest to tightest: OR, AND, NOT, IS, comparisons, BETWEEN / IN / LIKE, + and -,
* / % and ||, signs, and suffixes (`.name`, `[index]`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Final

from penstock.sql.parser import syntax
from penstock.sql.parser.lexer import BARE_FUNCTIONS, CALLABLE, RESERVED, Kind, SqlParserError, Token
from penstock.sql.parser.syntax import Call, Expression, Query
from penstock.sql.parser.types import TypeParser

_OR, _AND, _NOT, _IS, _COMPARES, _RANGES, _ADDS, _TIMES, _SIGN = 22, 24, 26, 28, 30, 32, 40, 60, 80
_BINARY: Final = {
    "OR": _OR,
    "AND": _AND,
    **dict.fromkeys(("=", "<>", "!=", "<", "<=", ">", ">="), _COMPARES),
    "+": _ADDS,
    "-": _ADDS,
    "*": _TIMES,
    "/": _TIMES,
    "%": _TIMES,
    "||": _TIMES,
}
#: operators that form one call with all operands of a chain
_CHAINED: Final = ("OR", "AND", "||")
_COMPARISONS: Final = ("=", "<>", "!=", "<", "<=", ">", ">=")
#: Operators on periods and multisets, with the words that form them.
_WORDS: Final = (
    ("IMMEDIATELY", "PRECEDES"),
    ("IMMEDIATELY", "SUCCEEDS"),
    ("OVERLAPS",),
    ("CONTAINS",),
    ("EQUALS",),
    ("PRECEDES",),
    ("SUCCEEDS",),
    ("MEMBER", "OF"),
    ("SUBMULTISET", "OF"),
)
#: tokens that end an expression
_ENDS: Final = frozenset((",", ")", "]"))
_SET_WORDS: Final = ("UNION", "EXCEPT", "INTERSECT")
_TESTS: Final = (
    ("NULL",),
    ("TRUE",),
    ("FALSE",),
    ("UNKNOWN",),
    ("A", "SET"),
    ("EMPTY",),
    ("JSON", "VALUE"),
    ("JSON", "OBJECT"),
    ("JSON", "ARRAY"),
    ("JSON", "SCALAR"),
    ("JSON",),
)
_BEGIN_VALUES: Final = (
    "ARRAY",
    "CASE",
    "CAST",
    "DATE",
    "FALSE",
    "INTERVAL",
    "NULL",
    "ROW",
    "TIME",
    "TIMESTAMP",
    "TRUE",
)
_BEGIN_QUERIES: Final = ("SELECT", "VALUES", "WITH")


class ExpressionParser(TypeParser):
    """See the module docstring."""

    @abstractmethod
    def query(self) -> Query:
        """Parse a query that is not in parentheses."""

    @abstractmethod
    def function(self, path: tuple[str, ...], at: int, is_quoted: bool) -> Expression:
        """Parse the rest of a function call after its name: the operands and the clauses after them."""

    @abstractmethod
    def call(self, path: tuple[str, ...], at: int) -> Call:
        """Parse the operands of a function, without the clauses after them."""

    @abstractmethod
    def special_function(self, word: str) -> Expression | None:
        """Parse a function with its own syntax, if the word is one."""

    def expression(self, least: int = 0) -> Expression:
        """Parse an expression whose operators bind at least as tightly as `least`."""
        literal = self._lone_literal()
        if literal is not None:
            return literal
        before = self.open_level()
        left = self._prefixed()
        while (operation := self._operator(left, least)) is not None:
            left = operation
            self.add_level()
        self.close_level(before)
        return left

    def _lone_literal(self) -> Expression | None:
        """Parse a number or string that no operator follows, a fast path for long lists."""
        token = self.tokens[self.index]
        if token.kind is not Kind.NUMBER and token.kind is not Kind.TEXT:
            return None
        following = self.tokens[self.index + 1]
        if following.kind is not Kind.OPERATOR or following.text not in _ENDS:
            return None
        self.index += 1
        if token.kind is Kind.NUMBER:
            return syntax.NumberLiteral(token.text, at=token.at)
        return syntax.TextLiteral(token.text, at=token.at)

    def expressions(self) -> tuple[Expression, ...]:
        """Parse one or more expressions separated by commas."""
        return tuple(self.parse_items(self.expression))

    def _prefixed(self) -> Expression:
        token = self.token
        if token.kind is Kind.WORD and token.text == "NOT":
            self.take()
            return Call("NOT", (self.expression(_NOT),), at=token.at)
        if token.kind is Kind.OPERATOR and token.text in ("+", "-"):
            self.take()
            name = "MINUS_PREFIX" if token.text == "-" else "PLUS_PREFIX"
            return Call(name, (self.expression(_SIGN),), at=token.at)
        return self._suffixed(self._primary())

    # --- operators ---------------------------------------------------------------------------------------------------

    def _operator(self, left: Expression, least: int) -> Expression | None:
        """Parse an operator and its right operands; return None if no operator comes next."""
        token = self.token
        if token.kind is not Kind.WORD and token.kind is not Kind.OPERATOR:
            return None
        strength = _BINARY.get(token.text)
        if strength is not None:
            if strength < least:
                return None
            self.take()
            return self._binary(left, token.text, strength)
        if token.kind is Kind.OPERATOR:
            return None
        if token.text == "IS" and least <= _IS:
            return self._test(left)
        if least <= _RANGES and (predicate := self._range(left)) is not None:
            return predicate
        return self._words(left, least)

    def _binary(self, left: Expression, operator: str, strength: int) -> Expression:
        if operator == "!=":
            self.refuse("'!=' is not allowed, and <> says the same,", self.tokens[self.index - 1].at)
        if operator in _COMPARISONS and self.sees_any("SOME", "ANY", "ALL") and self.peek().text == "(":
            quantifier = self.take().text
            among = self._among()
            return syntax.Quantified(operator, left, "SOME" if quantifier == "ANY" else quantifier, among, at=left.at)
        operands = [left, self.expression(strength + 1)]
        if operator in _CHAINED:
            while self.accept(operator):
                operands.append(self.expression(strength + 1))
        return Call(operator, tuple(operands), at=left.at)

    def _test(self, left: Expression) -> Expression:
        self.expect("IS")
        negation = "NOT " if self.accept("NOT") else ""
        if self.accept("DISTINCT", "FROM"):
            return Call(f"IS {negation}DISTINCT FROM", (left, self.expression(_COMPARES + 1)), at=left.at)
        for words in _TESTS:
            if self.accept(*words):
                return Call(f"IS {negation}{' '.join(words)}", (left,), at=left.at)
        self.fail("expected NULL, TRUE, FALSE, UNKNOWN, DISTINCT FROM or JSON after IS")

    def _range(self, left: Expression) -> Expression | None:
        """Parse BETWEEN, IN or LIKE, optionally negated."""
        is_negated = self.sees("NOT") and self.peek().text in ("BETWEEN", "IN", "LIKE", "ILIKE", "SIMILAR", "RLIKE")
        if is_negated:
            self.take()
        at = left.at
        if self.accept("BETWEEN"):
            is_symmetric = self.accept_any("SYMMETRIC", "ASYMMETRIC") == "SYMMETRIC"
            low = self.expression(_RANGES + 1)
            self.expect("AND")
            return syntax.Between(left, low, self.expression(_RANGES + 1), is_negated, is_symmetric, at=at)
        if self.accept("IN"):
            return syntax.In(left, self._among(), is_negated, at=at)
        kind = self.accept_any("LIKE", "ILIKE", "RLIKE") or ("SIMILAR TO" if self.accept("SIMILAR", "TO") else None)
        if kind is None:
            return None
        pattern = self.expression(_RANGES + 1)
        escape = self.expression(_RANGES + 1) if self.accept("ESCAPE") else None
        return syntax.Like(left, pattern, escape, kind, is_negated, at=at)

    def _among(self) -> tuple[Expression, ...] | Query:
        """Parse a list or a query, in parentheses."""
        query = self.try_query()
        return query if query is not None else self.in_parentheses(self.expressions)

    def _words(self, left: Expression, least: int) -> Expression | None:
        if self.sees("MULTISET") and self.peek().text in _SET_WORDS and least <= _ADDS:
            self.take()
            operator = self.take().text
            mode = " ALL" if self.accept_any("ALL", "DISTINCT") == "ALL" else ""
            return Call(f"MULTISET {operator}{mode}", (left, self.expression(_ADDS + 1)), at=left.at)
        if least <= _COMPARES:
            negation = "NOT " if self.sees("NOT", "SUBMULTISET") else ""
            if negation:
                self.take()
            for words in _WORDS:
                if self.accept(*words):
                    return Call(negation + " ".join(words), (left, self.expression(_COMPARES + 1)), at=left.at)
        return None

    # --- what follows a value ----------------------------------------------------------------------------------------

    def _suffixed(self, value: Expression) -> Expression:
        while True:
            if self.accept("["):
                value = syntax.Item(value, self.expression(), at=value.at)
                self.expect("]")
            elif self.sees(".") and not isinstance(value, syntax.Star):
                self.take()
                value = syntax.FieldAccess(value, self.name(), at=value.at)
            else:
                return value
            self.add_level()

    def value(self) -> Expression:
        """Parse a value without operators before or after it."""
        return self._suffixed(self._primary())

    # --- values ------------------------------------------------------------------------------------------------------

    def _primary(self) -> Expression:
        token = self.token
        if token.kind is Kind.NUMBER:
            return syntax.NumberLiteral(self.take().text, at=token.at)
        if token.kind is Kind.TEXT:
            return syntax.TextLiteral(self.text(), at=token.at)
        if token.kind is Kind.BINARY:
            return syntax.BinaryLiteral(self._bytes(), at=token.at)
        if token.kind is Kind.WORD and (expression := self._by_word(token.text)) is not None:
            return expression
        if self.sees("("):
            return self._parenthesised()
        if self.accept("?"):
            return syntax.Reference(("?",), at=token.at)
        if self.sees("{"):
            return self._escaped()
        return self._named()

    def _bytes(self) -> str:
        """Parse the digits of a binary literal; adjacent string literals continue it."""
        digits = self.take().text
        while self.token.kind is Kind.TEXT:
            digits += self.take().text
        return digits

    def _escaped(self) -> Expression:
        """Parse a JDBC escape in braces: {fn function(…)}, {d 'date'}, {t 'time'}, {ts 'timestamp'}."""
        at = self.token.at
        self.expect("{")
        root = {"D": "DATE", "T": "TIME", "TS": "TIMESTAMP"}.get(self.token.text)
        if self.accept("FN"):
            expression = self.expression()
        elif root is not None:
            self.take()
            expression = syntax.TemporalLiteral(root, self.text(), at=at)
        else:
            self.fail("expected fn, d, t or ts")
        self.expect("}")
        return expression

    def _by_word(self, word: str) -> Expression | None:
        """Parse an expression that begins with a keyword; return None if the word is just a name."""
        at, following = self.token.at, self.peek()
        if word in ("TRUE", "FALSE", "UNKNOWN", "NULL"):
            self.take()
            if word == "NULL":
                return syntax.NullLiteral(at=at)
            return syntax.BooleanLiteral({"TRUE": True, "FALSE": False, "UNKNOWN": None}[word], at=at)
        if word in ("DATE", "TIME", "TIMESTAMP") and following.kind is Kind.TEXT:
            self.take()
            return syntax.TemporalLiteral(word, self.single_text(), at=at)
        if self.accept("TIMESTAMP", "WITH", "LOCAL", "TIME", "ZONE"):
            return syntax.TemporalLiteral("TIMESTAMP_LTZ", self.single_text(), at=at)
        if word == "INTERVAL":
            return self._interval()
        begins: dict[str, Callable[[], Expression]] = {"CASE": self._case}
        begins |= {"EXISTS": self._exists, "UNIQUE": self._exists}
        if following.text == "(":
            begins |= {"ROW": self._row}
        if word in ("ARRAY", "MULTISET", "MAP") and following.text == "[":
            return self._collection()
        if word in ("ARRAY", "MULTISET") and following.text == "(":
            return self._collection()
        if word == "MAP" and following.text == "(":
            return self._map(at)
        if word in begins:
            return begins[word]()
        if word in BARE_FUNCTIONS and following.text != "(":
            return Call(word, path=(self.take().source,), at=at)
        if word in ("NEXT", "CURRENT") and following.text == "VALUE":
            self.take()
            self.expect("VALUE", "FOR")
            return Call(f"{word} VALUE", (syntax.Reference(self.path()),), at=at)
        if word == "RUNNING" or (word == "FINAL" and self._begins_value(following)):
            self.take()
            return Call(word, (self.expression(_SIGN),), (word,), at=at)
        return self.special_function(word) if following.text == "(" else None

    def _interval(self) -> Expression:
        at = self.token.at
        self.expect("INTERVAL")
        is_negative = self.accept_any("+", "-") == "-"
        if self.token.kind is Kind.TEXT:
            return syntax.IntervalLiteral(self.take().text, self.interval_qualifier(), is_negative, at=at)
        operand = self.value()
        qualifier = self.interval_qualifier(is_range=False)
        if isinstance(operand, syntax.NumberLiteral):
            return syntax.IntervalLiteral(operand.text, qualifier, is_negative, at=at)
        return Call("INTERVAL", (operand, syntax.IntervalLiteral("1", qualifier, is_negative, at=at)), at=at)

    @staticmethod
    def _begins_value(token: Token) -> bool:
        """Return whether a token begins a value, rather than continuing after a name."""
        if token.kind is Kind.WORD:
            return token.text not in RESERVED or token.text in CALLABLE or token.text in _BEGIN_VALUES
        return token.kind in (Kind.QUOTED, Kind.TEXT, Kind.NUMBER)

    def _case(self) -> Expression:
        at = self.token.at
        self.expect("CASE")
        operand = None if self.sees("WHEN") else self.expression()
        branches = []
        while self.accept("WHEN"):
            when = self.expression()
            if operand is not None and self.sees(","):
                self.take()
                when = syntax.RowValue((when, *self.expressions()), at=when.at)
            self.expect("THEN")
            branches.append((when, self.expression()))
        if not branches:
            self.fail("expected WHEN")
        otherwise = self.expression() if self.accept("ELSE") else None
        self.expect("END")
        return syntax.Case(operand, tuple(branches), otherwise, at=at)

    def _exists(self) -> Expression:
        at = self.token.at
        word = self.take().text
        query = self.try_query()
        if query is None:
            return Call(word, (self.expression(_SIGN),), (word,), at=at)
        return syntax.Exists(query, word == "UNIQUE", at=at)

    def _row(self) -> Expression:
        at = self.token.at
        self.expect("ROW")
        query = self.try_query()
        if query is not None:
            return syntax.RowValue((syntax.Subquery(query, at=at),), at=at)
        return syntax.RowValue(self.in_parentheses(self.expressions), at=at)

    def _map(self, at: int) -> Expression:
        """Parse MAP of a query, or MAP with operands like a function."""
        word = self.take().source
        query = self.try_query()
        if query is not None:
            return syntax.Collection("MAP", query, at=at)
        call = self.call((word,), at)
        return syntax.Collection("MAP", call.operands, at=at)

    def _collection(self) -> Expression:
        at = self.token.at
        root = self.take().text
        if self.accept("["):
            items = () if self.sees("]") else self.expressions()
            self.expect("]")
            return syntax.Collection(root, items, at=at)
        query = self.try_query()
        if query is not None:
            return syntax.Collection(root, query, at=at)
        if root == "MULTISET":
            self.fail("expected a query in parentheses, or elements in brackets")
        self.expect("(")
        items = () if self.sees(")") else self.expressions()
        self.expect(")")
        return syntax.Collection(root, items, at=at)

    def _parenthesised(self) -> Expression:
        """Parse a query, a row, or an expression in parentheses."""
        at = self.token.at
        query = self.try_query()
        if query is not None:
            return syntax.Subquery(query, at=at)
        self.expect("(")
        if self._sees_parameters():
            return self._lambda(at)
        items = self.expressions()
        self.expect(")")
        if len(items) > 1:
            return syntax.RowValue(items, at=at)
        (expression,) = items
        if (
            isinstance(expression, Call)
            and expression.name == "-"
            and len(expression.operands) == 2
            and self.sees_unit()
        ):
            unit = syntax.IntervalLiteral("1", self.interval_qualifier(), at=self.token.at)
            return Call("MINUS_DATE", (*expression.operands, unit), at=at)
        return expression

    def _sees_parameters(self) -> bool:
        ahead = 0
        while self.peek(ahead).kind in (Kind.WORD, Kind.QUOTED) and self.peek(ahead + 1).text == ",":
            ahead += 2
        return self.peek(ahead + 1).text == ")" and self.peek(ahead + 2).text == "->"

    def _lambda(self, at: int) -> Expression:
        parameters = tuple(self.parse_items(self.name))
        self.expect(")", "->")
        return syntax.LambdaFunction(parameters, self.expression(), at=at)

    def try_query(self) -> Query | None:
        """Parse a query in parentheses; return None and keep the position if none comes next."""
        ahead = self._parentheses_ahead()
        first = self.peek(ahead)
        is_table = first.text == "TABLE" and self.peek(ahead + 1).text != "("
        if not ahead or first.kind is not Kind.WORD or not (first.text in _BEGIN_QUERIES or is_table):
            return None
        try:
            with self.trying():
                return self.in_parentheses(self.query)
        except SqlParserError:
            if ahead == 1:
                raise
            return None

    def _parentheses_ahead(self) -> int:
        """Return how many parentheses open one after another; the end of such a run is remembered."""
        begin, end = self._opening
        if not begin <= self.index < end:
            end = self.index
            while self.tokens[end].text == "(" and self.tokens[end].kind is Kind.OPERATOR:
                end += 1
            self._opening = self.index, end
        return end - self.index

    def _named(self) -> Expression:
        """Parse a column or a function call."""
        first = self.token
        is_quoted = first.kind is Kind.QUOTED
        if first.kind is Kind.WORD and first.text in RESERVED:
            if not (first.text in CALLABLE and self.peek().text == "("):
                self.fail("expected an expression")
            path = [self.take().source]
        else:
            path = [self.name()]
        if self.sees("->") and not is_quoted:
            self.take()
            return syntax.LambdaFunction((path[0],), self.expression(), at=first.at)
        while self.sees("."):
            if self.peek().text == "*":
                self.index += 2
                return syntax.Star(tuple(path), at=first.at)
            self.take()
            path.append(self.name())
        if self.sees("("):
            return self.function(tuple(path), first.at, is_quoted)
        return syntax.Reference(tuple(path), at=first.at)
