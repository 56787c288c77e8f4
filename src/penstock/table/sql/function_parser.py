"""Calls of functions: operands of every kind, what follows them, and functions with a syntax of their own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from penstock.table.data.logical_types import DataType
from penstock.table.sql import syntax
from penstock.table.sql.expression_parser import ExpressionParser
from penstock.table.sql.lexer import Kind
from penstock.table.sql.syntax import Call, Expression, OrderItem, Query, WindowSpecification

_TIME_UNITS: Final = frozenset(
    """
    CENTURY DAY DECADE DOW DOY EPOCH FRAC_SECOND HOUR ISODOW ISOYEAR MICROSECOND MILLENNIUM MILLISECOND MINUTE
    MONTH NANOSECOND QUARTER SECOND SQL_TSI_DAY SQL_TSI_FRAC_SECOND SQL_TSI_HOUR SQL_TSI_MICROSECOND
    SQL_TSI_MINUTE SQL_TSI_MONTH SQL_TSI_QUARTER SQL_TSI_SECOND SQL_TSI_WEEK SQL_TSI_YEAR WEEK YEAR
    """.split()  # noqa: SIM905
)


class FunctionParser(ExpressionParser):
    """See the module's text."""

    @abstractmethod
    def order_items(self) -> tuple[OrderItem, ...]:
        """What follows ORDER BY."""

    @abstractmethod
    def window_specification(self) -> WindowSpecification:
        """A window, without the parentheses around it."""

    @abstractmethod
    def table_query(self) -> Query:
        """What follows TABLE as an argument: a path, or a query in parentheses."""

    # --- calls -------------------------------------------------------------------------------------------------------

    def function(self, path: tuple[str, ...], at: int, is_quoted: bool) -> Expression:
        """What follows the name of a function."""
        self.expect("(")
        mode = self.accept_any("DISTINCT", "ALL")
        operands: tuple[Expression, ...] = ()
        if self.sees("*") and self.peek().text == ")":
            operands = (syntax.Star(at=self.take().at),)
        elif not self.sees(")"):
            operands = tuple(self.list_of(self._operand))
        order = self.order_items() if self.accept("ORDER", "BY") else ()
        nulls = self._nulls()
        self.expect(")")
        call = Call(path[-1].upper(), operands, path, mode == "DISTINCT", order, at=at, respects_nulls=nulls)
        return self._after(call)

    def _operand(self) -> Expression:
        at = self.token.at
        if self.token.kind in (Kind.WORD, Kind.QUOTED) and self.peek().text == "=>":
            token = self.take()
            self.take()
            name = token.text if token.kind is Kind.QUOTED else token.source
            return syntax.NamedArgument(name, self._operand(), at=at)
        if self.accept("DEFAULT"):
            return syntax.DefaultArgument(at=at)
        if self.sees("TABLE") and self.peek().text != "=>":
            return self._table_argument()
        if self.sees("MODEL") and self.peek().kind in (Kind.WORD, Kind.QUOTED):
            self.take()
            return syntax.ModelArgument(self.path(), at=at)
        if self.sees("DESCRIPTOR", "("):
            self.take()
            return syntax.DescriptorArgument(tuple(self.in_parentheses(lambda: self.list_of(self._column))), at=at)
        if self.token.text in ("SELECT", "WITH", "VALUES") and self.token.kind is Kind.WORD:
            return syntax.Subquery(self.query(), at=at)
        found = self.expression()
        if isinstance(found, syntax.Subquery) and (self.sees("PARTITION", "BY") or self.sees("ORDER", "BY")):
            return self._table_argument_of(found.query, at)
        return found

    def _column(self) -> tuple[str, ...]:
        path = self.path()
        if not self.sees_any(",", ")"):
            self.data_type()
        return path

    def _table_argument(self) -> Expression:
        at = self.token.at
        self.expect("TABLE")
        return self._table_argument_of(self.table_query(), at)

    def _table_argument_of(self, query: Query, at: int) -> Expression:
        partition: tuple[Expression, ...] = ()
        order: tuple[OrderItem, ...] = ()
        if self.accept("PARTITION", "BY"):
            partition = self.in_parentheses(self.expressions) if self.sees("(") else self._partition()
        if self.accept("ORDER", "BY"):
            if self.accept("("):
                order = self.order_items()
                self.expect(")")
            else:
                order = self.order_items_of(1)
        return syntax.TableArgument(query, partition, order, at=at)

    @abstractmethod
    def order_items_of(self, most: int) -> tuple[OrderItem, ...]:
        """At most so many of what follows ORDER BY, where a comma may mean something else."""

    def _partition(self) -> tuple[Expression, ...]:
        """Columns without parentheses: one, for a comma begins the next argument."""
        return (self.expression(),)

    def _nulls(self) -> bool | None:
        for word in ("RESPECT", "IGNORE"):
            if self.accept(word, "NULLS"):
                return word == "RESPECT"
        return None

    def _after(self, call: Call) -> Expression:
        """What may follow the parentheses of a call."""
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
        if (nulls := self._nulls()) is not None:
            changes["respects_nulls"] = nulls
        found = _with(call, changes)
        if not self.accept("OVER"):
            return found
        if not self.sees("("):
            return syntax.Over(found, self.name(), at=call.at)
        return syntax.Over(found, self.in_parentheses(self.window_specification), at=call.at)

    # --- functions with a syntax of their own ------------------------------------------------------------------------

    def special_function(self, word: str) -> Expression | None:
        """A function with a syntax of its own, if a word is one; its parenthesis comes next."""
        parsers: dict[str, Callable[[str, int], Expression]] = {
            "CAST": self._cast,
            "TRY_CAST": self._cast,
            "EXTRACT": self._extract,
            "POSITION": self._position,
            "CONVERT": self._convert,
            "TRANSLATE": self._convert,
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
            "JSON_OBJECTAGG": self._json_object,
            "JSON_ARRAY": self._json_array,
            "JSON_ARRAYAGG": self._json_array,
        }
        parse = parsers.get(word)
        if parse is None:
            return None
        at = self.take().at
        self.expect("(")
        found = parse(word, at)  # closes the parenthesis
        return self._after(found) if isinstance(found, Call) else found

    def _cast(self, word: str, at: int) -> Expression:
        operand = self.expression()
        self.expect("AS")
        found = syntax.Cast(operand, self.data_type(), word == "TRY_CAST", at=at)
        self.expect(")")
        return found

    def _call(self, word: str, at: int, *operands: Expression | None, options: tuple[str, ...] = ()) -> Call:
        self.expect(")")
        return Call(word, tuple(one for one in operands if one is not None), (word,), options=options, at=at)

    def _unit_of_time(self) -> Expression:
        token = self.token
        if token.kind is not Kind.WORD or token.text not in _TIME_UNITS:
            self.fail("expected a unit of time, such as DAY or SECOND")
        self.take()
        return syntax.Unit(token.text, at=token.at)

    def _extract(self, word: str, at: int) -> Expression:
        unit = self._unit_of_time()
        self.expect("FROM")
        return self._call(word, at, unit, self.expression())

    def _position(self, word: str, at: int) -> Expression:
        what = self.expression(33)  # above IN
        self.expect("IN")
        where = self.expression()
        return self._call(word, at, what, where, self.expression() if self.accept("FROM") else None)

    def _convert(self, word: str, at: int) -> Expression:
        operands = self.expressions()
        if self.accept("USING"):
            operands = (*operands, syntax.Reference(self.path()))
        return self._call(word, at, *operands)

    def _overlay(self, word: str, at: int) -> Expression:
        operands = list(self.expressions())
        for keyword in ("PLACING", "FROM", "FOR"):
            if self.accept(keyword):
                operands.append(self.expression())
        return self._call(word, at, *operands)

    def _substring(self, word: str, at: int) -> Expression:
        operands = list(self.expressions())
        for keyword in ("FROM", "FOR"):
            if self.accept(keyword):
                operands.append(self.expression())
        return self._call(word, at, *operands)

    def _round_time(self, word: str, at: int) -> Expression:
        operands = self.expressions()
        if self.accept("TO"):
            operands = (*operands, self._unit_of_time())
        return self._call("CEIL" if word == "CEILING" else word, at, *operands)

    def _trim(self, word: str, at: int) -> Expression:
        side = self.accept_any("BOTH", "LEADING", "TRAILING")
        characters = None if self.sees("FROM") else self.expression()
        if self.accept("FROM"):
            return self._call(word, at, self.expression(), characters, options=(side or "BOTH",))
        more = self.expressions() if side is None and self.accept(",") else ()
        return self._call(word, at, characters, *more, options=(side or "BOTH",))

    def _by_unit(self, word: str, at: int) -> Expression:
        operands: list[Expression] = [self._unit_of_time()]
        while self.accept(","):
            operands.append(self.expression())
        return self._call(word, at, *operands)

    # --- JSON --------------------------------------------------------------------------------------------------------

    def _json_path(self, word: str, at: int) -> Expression:
        operands = [self.expression()]
        self._format_json()
        self.expect(",")
        operands.append(self.expression())
        if self.accept("PASSING"):
            self.list_of(self._passed)
        returns: DataType | None = None
        options: list[str] = []
        while not self.sees(")"):
            if self.accept("RETURNING"):
                returns = self.data_type()
            elif self.sees_any("WITH", "WITHOUT"):
                options.append(self._wrapper())
            else:
                options.append(self._on(operands))
        self.expect(")")
        return Call(word, tuple(operands), (word,), options=tuple(options), returns=returns, at=at)

    def _passed(self) -> None:
        self.expression()
        self.expect("AS")
        self.name()

    def _format_json(self) -> None:
        if self.accept("FORMAT"):
            self.expect("JSON")

    def _wrapper(self) -> str:
        words = [self.take().text]
        while (word := self.accept_any("CONDITIONAL", "UNCONDITIONAL", "ARRAY")) is not None:
            words.append(word)
        self.expect("WRAPPER")
        return " ".join([*(word for word in words if word != "ARRAY"), "WRAPPER"])

    def _on(self, operands: list[Expression]) -> str:
        """What a JSON function does with nothing, or with an error."""
        if self.accept("DEFAULT"):
            operands.append(self.expression())
            behaviour = "DEFAULT"
        elif self.accept("EMPTY"):
            behaviour = f"EMPTY {self.accept_any('ARRAY', 'OBJECT') or ''}".strip()
        else:
            behaviour = self.accept_any("NULL", "ERROR", "TRUE", "FALSE", "UNKNOWN") or ""
        if not behaviour:
            self.fail("expected )")
        self.expect("ON")
        event = self.accept_any("EMPTY", "ERROR")
        if event is None:
            self.fail("expected EMPTY or ERROR")
        return f"{behaviour} ON {event}"

    def _on_null(self) -> tuple[str, ...]:
        for word in ("NULL", "ABSENT"):
            if self.accept(word, "ON", "NULL"):
                return (f"{word} ON NULL",)
        return ()

    def _json_object(self, word: str, at: int) -> Expression:
        operands: list[Expression] = []
        if not self.sees(")") and not self.sees_any("NULL", "ABSENT"):
            for key, value in self.list_of(self._key_and_value):
                operands += (key, value)
        return self._call(word, at, *operands, options=self._on_null())

    def _key_and_value(self) -> tuple[Expression, Expression]:
        self.accept("KEY")
        key = self.expression()
        if self.accept_any("VALUE", ":", ",") is None:
            self.fail("expected VALUE")
        value = self.expression()
        self._format_json()
        return key, value

    def _json_array(self, word: str, at: int) -> Expression:
        operands: list[Expression] = []
        begins_rule = self.sees_any("NULL", "ABSENT") and self.peek().text == "ON"
        if not self.sees(")") and not begins_rule:
            operands = self.list_of(self._json_item)
        order = self.order_items() if self.accept("ORDER", "BY") else ()
        options = self._on_null()
        self.expect(")")
        return Call(word, tuple(operands), (word,), order=order, options=options, at=at)

    def _json_item(self) -> Expression:
        found = self.expression()
        self._format_json()
        return found


def _with(call: Call, changes: dict[str, object]) -> Call:
    return replace(call, **changes) if changes else call  # type: ignore[arg-type]
