"""Parses function calls: operands of every kind, the clauses after them, and functions with their own syntax."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from penstock.sql.parser import syntax
from penstock.sql.parser.expressions import ExpressionParser
from penstock.sql.parser.lexer import Kind
from penstock.sql.parser.syntax import Call, Expression, OrderItem, Query, WindowSpecification

_TIME_UNITS: Final = frozenset(
    """
    CENTURY DAY DECADE DOW DOY EPOCH FRAC_SECOND HOUR ISODOW ISOYEAR MICROSECOND MILLENNIUM MILLISECOND MINUTE
    MONTH NANOSECOND QUARTER SECOND SQL_TSI_DAY SQL_TSI_FRAC_SECOND SQL_TSI_HOUR SQL_TSI_MICROSECOND
    SQL_TSI_MINUTE SQL_TSI_MONTH SQL_TSI_QUARTER SQL_TSI_SECOND SQL_TSI_WEEK SQL_TSI_YEAR WEEK YEAR
    """.split()  # noqa: SIM905
)


_DAYS: Final = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
#: The behaviours allowed before ON, and the events allowed after it.
_ON: Final = {
    "JSON_EXISTS": (("TRUE", "FALSE", "UNKNOWN", "ERROR"), ("ERROR",)),
    "JSON_VALUE": (("ERROR", "NULL", "DEFAULT"), ("EMPTY", "ERROR")),
    "JSON_QUERY": (("ERROR", "NULL", "EMPTY"), ("EMPTY", "ERROR")),
}


class FunctionParser(ExpressionParser):
    """See the module docstring."""

    @abstractmethod
    def order_items(self) -> tuple[OrderItem, ...]:
        """Parse the items of ORDER BY."""

    @abstractmethod
    def window_specification(self) -> WindowSpecification:
        """Parse a window specification without its parentheses."""

    @abstractmethod
    def table_query(self) -> Query:
        """Parse the operand of TABLE as an argument: a path, or a query in parentheses."""

    # --- calls -------------------------------------------------------------------------------------------------------

    def function(self, path: tuple[str, ...], at: int, is_quoted: bool) -> Expression:
        """Parse the rest of a function call after its name."""
        return self._after(self.call(path, at))

    def call(self, path: tuple[str, ...], at: int) -> Call:
        """Parse the operands of a function, without the clauses after them."""
        self.expect("(")
        operands: tuple[Expression, ...] = ()
        is_distinct = False
        if self.sees("*"):
            operands = (syntax.Star(at=self.take().at),)
        elif not self.sees(")"):
            is_distinct = self.accept_any("DISTINCT", "ALL") == "DISTINCT"
            operands = self._operands()
        self.expect(")")
        return Call(path[-1].upper(), operands, path, is_distinct, at=at)

    def _operands(self) -> tuple[Expression, ...]:
        operands = [self._operand(takes_query=True)]
        while self.accept(","):
            operands.append(self._operand())
        return tuple(operands)

    def _operand(self, takes_query: bool = False) -> Expression:
        """Parse an operand; with `takes_query`, a query needs no parentheses."""
        at = self.token.at
        if self.sees_name() and self.peek().text == "=>":
            name = self.name()
            self.take()
            return syntax.NamedArgument(name, self._value_of_operand(True), at=at)
        return self._value_of_operand(takes_query)

    def _value_of_operand(self, takes_query: bool) -> Expression:
        at = self.token.at
        if self.accept("DEFAULT"):
            return syntax.DefaultArgument(at=at)
        if self.sees("TABLE") and self.peek().text != "=>":
            return self._table_argument()
        if self.sees("MODEL") and self.peek().kind in (Kind.WORD, Kind.QUOTED):
            self.take()
            return syntax.ModelArgument(self.path(), at=at)
        if self.sees("DESCRIPTOR", "("):
            self.take()
            return syntax.DescriptorArgument(tuple(self.in_parentheses(lambda: self.parse_items(self.path))), at=at)
        if takes_query and self.token.text in ("SELECT", "WITH", "VALUES") and self.token.kind is Kind.WORD:
            return syntax.Subquery(self.query(), at=at)
        expression = self.expression()
        if isinstance(expression, syntax.Subquery) and (self.sees("PARTITION", "BY") or self.sees("ORDER", "BY")):
            return self._parse_table_argument(expression.query, at)
        return expression

    def _table_argument(self) -> Expression:
        at = self.token.at
        self.expect("TABLE")
        return self._parse_table_argument(self.table_query(), at)

    def _parse_table_argument(self, query: Query, at: int) -> Expression:
        partition: tuple[Expression, ...] = ()
        order: tuple[OrderItem, ...] = ()
        if self.accept("PARTITION", "BY"):
            partition = self.in_parentheses(self.expressions) if self.sees("(") else self._partition()
        if self.accept("ORDER", "BY"):
            if self.accept("("):
                order = self.order_items()
                self.expect(")")
            else:
                order = self.parse_order_items(1)
        return syntax.TableArgument(query, partition, order, at=at)

    @abstractmethod
    def parse_order_items(self, most: int) -> tuple[OrderItem, ...]:
        """Parse at most `most` items of ORDER BY, where a comma may end the list."""

    def _partition(self) -> tuple[Expression, ...]:
        """Parse columns without parentheses: only one, because a comma begins the next argument."""
        return (self.expression(),)

    def _nulls(self) -> bool | None:
        for word in ("RESPECT", "IGNORE"):
            if self.accept(word, "NULLS"):
                return word == "RESPECT"
        return None

    def _after(self, call: Call) -> Expression:
        """Parse the clauses after the parentheses of a call."""
        changes: dict[str, object] = {}
        if (nulls := self._nulls()) is not None:
            changes["respects_nulls"] = nulls
        if self.accept("WITHIN", "DISTINCT"):
            changes["within_distinct"] = self.in_parentheses(self.expressions)
        if self.accept("WITHIN", "GROUP"):
            self.expect("(", "ORDER", "BY")
            changes["order"] = self.order_items()
            self.expect(")")
        if self.sees("FILTER", "("):
            self.take()
            self.expect("(", "WHERE")
            changes["condition"] = self.expression()
            self.expect(")")
        return self._over(_replace_fields(call, changes))

    def _over(self, call: Call) -> Expression:
        if not self.accept("OVER"):
            return call
        if not self.sees("("):
            return syntax.Over(call, self.name(), at=call.at)
        return syntax.Over(call, self.in_parentheses(self.window_specification), at=call.at)

    # --- functions with a syntax of their own ------------------------------------------------------------------------

    def special_function(self, word: str) -> Expression | None:
        """Parse a function with its own syntax, if the word is one; its parenthesis comes next."""
        parsers: dict[str, Callable[[str, int], Expression]] = {
            "CAST": self._cast,
            "TRY_CAST": self._cast,
            "SAFE_CAST": self._cast,
            "DATE": self._plain,
            "DATETIME": self._plain,
            "TIME": self._plain,
            "TIMESTAMP": self._plain,
            "TUMBLE": self._plain,
            "HOP": self._plain,
            "SESSION": self._plain,
            "CLASSIFIER": self._call,
            "MATCH_NUMBER": self._call,
            "FIRST": self._navigation,
            "LAST": self._navigation,
            "NEXT": self._navigation,
            "PREV": self._navigation,
            "PERIOD": self._period,
            "ARRAY_AGG": self._array_agg,
            "PERCENTILE_CONT": self._percentile,
            "PERCENTILE_DISC": self._percentile,
            "DATE_DIFF": self._by_unit_at_end,
            "DATETIME_DIFF": self._by_unit_at_end,
            "TIMESTAMP_DIFF": self._by_unit_at_end,
            "TIME_DIFF": self._by_unit_at_end,
            "DATE_TRUNC": self._by_unit_at_end,
            "DATETIME_TRUNC": self._by_unit_at_end,
            "TIMESTAMP_TRUNC": self._by_unit_at_end,
            "TIME_TRUNC": self._by_unit_at_end,
            "EXTRACT": self._extract,
            "POSITION": self._position,
            "CONVERT": self._convert,
            "TRANSLATE": self._translate,
            "OVERLAY": self._overlay,
            "SUBSTRING": self._substring,
            "FLOOR": self._round_time,
            "CEIL": self._round_time,
            "CEILING": self._round_time,
            "TRIM": self._trim,
            "TIMESTAMPADD": self._by_unit,
            "TIMESTAMPDIFF": self._by_unit,
            "JSON_EXISTS": self._json_path,
            "JSON_VALUE": self._json_path,
            "JSON_QUERY": self._json_path,
            "JSON_OBJECT": self._json_object,
            "JSON_OBJECTAGG": self._json_object_aggregate,
            "JSON_ARRAY": self._json_array,
            "JSON_ARRAYAGG": self._json_array_aggregate,
        }
        parse = parsers.get(word)
        if parse is None:
            return None
        at = self.take().at
        self.expect("(")
        return parse(word, at)  # closes the parenthesis

    def _cast(self, word: str, at: int) -> Expression:
        operand = self.expression()
        self.expect("AS")
        cast = syntax.Cast(operand, self.unqualified_type(), word != "CAST", at=at)
        self.expect(")")
        return cast

    def _plain(self, word: str, at: int) -> Expression:
        """Parse at least one operand, without OVER or FILTER after it."""
        is_distinct = self.accept_any("DISTINCT", "ALL") == "DISTINCT"
        return replace(self._call(word, at, *self._operands()), is_distinct=is_distinct)

    def _navigation(self, word: str, at: int) -> Expression:
        """Parse a value of another row, optionally with its distance in rows."""
        operands = [self.expression()]
        if self.accept(","):
            begin, sign = self.token.at, self.accept_any("+", "-")
            if self.token.kind is not Kind.NUMBER:
                self.fail("expected a number of rows")
            distance: Expression = syntax.NumberLiteral(self.take().text, at=begin)
            operands.append(Call("MINUS_PREFIX", (distance,), at=begin) if sign == "-" else distance)
        return self._call(word, at, *operands)

    def _period(self, word: str, at: int) -> Expression:
        begin = self.expression()
        self.expect(",")
        return self._call(word, at, begin, self.expression())

    def _array_agg(self, word: str, at: int) -> Expression:
        mode = self.accept_any("DISTINCT", "ALL")
        operands = self.expressions()
        nulls = self._nulls()
        order = self.order_items() if self.accept("ORDER", "BY") else ()
        call = replace(self._call(word, at, *operands), is_distinct=mode == "DISTINCT", order=order)
        return self._after(call if nulls is None else replace(call, respects_nulls=nulls))

    def _percentile(self, word: str, at: int) -> Expression:
        operands = self.expressions()
        return self._after(self._call(word, at, *operands))

    def _call(self, word: str, at: int, *operands: Expression | None, options: tuple[str, ...] = ()) -> Call:
        self.expect(")")
        return Call(
            word, tuple(operand for operand in operands if operand is not None), (word,), options=options, at=at
        )

    def _unit_of_time(self) -> Expression:
        token = self.token
        if token.kind is Kind.WORD and token.text in _TIME_UNITS:
            self.take()
            if token.text == "WEEK" and self.sees("("):
                return syntax.Unit(f"WEEK_{self.in_parentheses(self._day_of_week)}", at=token.at)
            return syntax.Unit(token.text, at=token.at)
        if not self.sees_name():
            self.fail("expected a unit of time, such as DAY or SECOND")
        return syntax.Unit(self.name().upper(), at=token.at)

    def _day_of_week(self) -> str:
        return self.accept_any(*_DAYS) or self.name().upper()

    def _extract(self, word: str, at: int) -> Expression:
        unit = self._unit_of_time()
        self.expect("FROM")
        return self._call(word, at, unit, self.expression())

    def _position(self, word: str, at: int) -> Expression:
        needle = self.value()
        self.expect("IN")
        where = self.expression()
        return self._call(word, at, needle, where, self.expression() if self.accept("FROM") else None)

    def _convert(self, word: str, at: int) -> Expression:
        """Parse CONVERT of a string to a character set."""
        operands = [self.expression()]
        if self.accept("USING"):
            return self._call(word, at, *operands, syntax.Reference(self.path()))
        for _ in range(2):
            self.expect(",")
            operands.append(syntax.Reference((self.name(),)))
        return self._call(word, at, *operands)

    def _translate(self, word: str, at: int) -> Expression:
        operands = self._operands()
        if len(operands) == 1 and self.accept("USING"):
            operands = (*operands, syntax.Reference(self.path()))
        return self._call(word, at, *operands)

    def _overlay(self, word: str, at: int) -> Expression:
        operands = [self.expression()]
        for keyword in ("PLACING", "FROM"):
            self.expect(keyword)
            operands.append(self.expression())
        if self.accept("FOR"):
            operands.append(self.expression())
        return self._call(word, at, *operands)

    def _substring(self, word: str, at: int) -> Expression:
        operands = [self.expression()]
        if self.accept_any("FROM", ",") is None:
            self.fail("expected FROM or a comma")
        operands.append(self.expression())
        if self.accept_any("FOR", ",") is not None:
            operands.append(self.expression())
        return self._call(word, at, *operands)

    def _round_time(self, word: str, at: int) -> Expression:
        operands = [self.expression()]
        if self.accept("TO"):
            operands.append(self._unit_of_time())
        return self._over(self._call("CEIL" if word == "CEILING" else word, at, *operands))

    def _trim(self, word: str, at: int) -> Expression:
        side = self.accept_any("BOTH", "LEADING", "TRAILING")
        characters = None if side is not None and self.sees("FROM") else self.expression()
        if self.accept("FROM"):
            return self._call(word, at, self.expression(), characters, options=(side or "BOTH",))
        return self._call(word, at, characters, options=(side or "BOTH",))

    def _by_unit(self, word: str, at: int) -> Expression:
        operands: list[Expression] = [self._unit_of_time()]
        for _ in range(2):
            self.expect(",")
            operands.append(self.expression())
        return self._call(word, at, *operands)

    def _by_unit_at_end(self, word: str, at: int) -> Expression:
        operands: list[Expression] = []
        for _ in range(2 if word.endswith("_DIFF") else 1):
            operands.append(self.expression())
            self.expect(",")
        return self._call(word, at, *operands, self._unit_of_time())

    # --- JSON --------------------------------------------------------------------------------------------------------

    def _json_path(self, word: str, at: int) -> Expression:
        operands = [self._json_item()]
        self.expect(",")
        operands.append(self.expression())
        if self.accept("PASSING"):
            self.parse_items(self._passed)
        returns = self.unqualified_type() if word != "JSON_EXISTS" and self.accept("RETURNING") else None
        options: list[str] = []
        if word == "JSON_QUERY" and self.sees_any("WITH", "WITHOUT"):
            options.append(self._wrapper())
        behaviours, events = _ON[word]
        while not self.sees(")") and (word != "JSON_EXISTS" or not options):
            options.append(self._on(operands, behaviours, events))
        self.expect(")")
        return Call(word, tuple(operands), (word,), options=tuple(options), returns=returns, at=at)

    def _passed(self) -> None:
        self.expression()
        self.expect("AS")
        self.name()

    def _wrapper(self) -> str:
        words = [self.take().text]
        if words[0] == "WITH" and (condition := self.accept_any("CONDITIONAL", "UNCONDITIONAL")) is not None:
            words.append(condition)
        self.accept("ARRAY")
        self.expect("WRAPPER")
        return " ".join([*words, "WRAPPER"])

    def _on(self, operands: list[Expression], behaviours: tuple[str, ...], events: tuple[str, ...]) -> str:
        """Parse the behaviour of a JSON function on an empty result or an error."""
        behaviour = self.accept_any(*behaviours)
        if behaviour is None:
            self.fail("expected )")
        if behaviour == "DEFAULT":
            operands.append(self.expression())
        elif behaviour == "EMPTY":
            kind = self.accept_any("ARRAY", "OBJECT")
            if kind is None:
                self.fail("expected ARRAY or OBJECT")
            behaviour = f"EMPTY {kind}"
        self.expect("ON")
        event = self.accept_any(*events)
        if event is None:
            self.fail(f"expected {' or '.join(events)}")
        return f"{behaviour} ON {event}"

    def _on_null(self) -> tuple[str, ...]:
        for word in ("NULL", "ABSENT"):
            if self.accept(word, "ON", "NULL"):
                return (f"{word} ON NULL",)
        return ()

    def _json_object(self, word: str, at: int) -> Expression:
        operands: list[Expression] = []
        begins_rule = self.sees_any("NULL", "ABSENT") and self.peek().text == "ON"
        if not self.sees(")") and not begins_rule:
            for key, value in self.parse_items(self._key_and_value):
                operands += (key, value)
        return self._call(word, at, *operands, options=self._on_null())

    def _json_object_aggregate(self, word: str, at: int) -> Expression:
        return self._call(word, at, *self._key_and_value(), options=self._on_null())

    def _key_and_value(self) -> tuple[Expression, Expression]:
        self.accept("KEY")
        key = self.expression()
        if self.accept_any("VALUE", ":") is None:
            self.fail("expected VALUE")
        return key, self._json_item()

    def _json_array(self, word: str, at: int) -> Expression:
        operands: list[Expression] = [] if self.sees(")") else self.parse_items(self._json_item)
        return self._call(word, at, *operands, options=self._on_null())

    def _json_array_aggregate(self, word: str, at: int) -> Expression:
        item = self._json_item()
        order = self.order_items() if self.accept("ORDER", "BY") else ()
        call = self._call(word, at, item, options=self._on_null())
        if self.accept("WITHIN", "GROUP"):
            self.expect("(", "ORDER", "BY")
            order = self.order_items()
            self.expect(")")
        return replace(call, order=order)

    def _json_item(self) -> Expression:
        expression = self.expression()
        if self.accept("FORMAT"):
            self.expect("JSON")
        return expression


def _replace_fields(call: Call, changes: dict[str, object]) -> Call:
    return replace(call, **changes) if changes else call  # type: ignore[arg-type]
