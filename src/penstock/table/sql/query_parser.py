"""Parses queries: SELECT, VALUES, set operations, WITH, ORDER BY and LIMIT, windows and hints."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from penstock.table.sql import relations, syntax
from penstock.table.sql.function_parser import FunctionParser
from penstock.table.sql.lexer import Kind
from penstock.table.sql.relations import GroupItem, Hint, Relation, SelectItem
from penstock.table.sql.syntax import Bound, Expression, OrderItem, Query, WindowSpecification

_UNIONS: Final = ("UNION", "EXCEPT")


class QueryParser(FunctionParser):
    """See the module docstring."""

    @abstractmethod
    def relation(self) -> Relation:
        """Parse the relation after FROM."""

    def query(self) -> Query:
        """Parse a query that is not in parentheses."""
        before = self.open_level()
        query = self._query()
        self.close_level(before)
        return query

    def _query(self) -> Query:
        at = self.token.at
        if not self.accept("WITH"):
            return self._ordered(self._set_operation())
        is_recursive = self.accept("RECURSIVE")
        tables = tuple(self.parse_items(self._common_table))
        return self._ordered(relations.With(tables, self._set_operation(), is_recursive, at=at))

    def _common_table(self) -> relations.CommonTable:
        name = self.name()
        columns = self.names_in_parentheses() if self.sees("(") else ()
        self.expect("AS")
        return relations.CommonTable(name, columns, self.in_parentheses(self.query))

    def _set_operation(self) -> Query:
        query = self._intersection()
        while (operator := self.accept_any(*_UNIONS)) is not None:
            is_all = self._is_all()
            parts = [query, self._intersection()]
            if operator == "UNION":
                # A chain of UNIONs becomes one operation with any number of parts.
                while self.sees("UNION") and (self.peek().text == "ALL") == is_all:
                    self.take()
                    self._is_all()
                    parts.append(self._intersection())
            query = relations.SetOperation(operator, tuple(parts), is_all, at=query.at)
            self.add_level()
        return query

    def _intersection(self) -> Query:
        query = self._simple_query()
        while self.accept("INTERSECT"):
            is_all = self._is_all()
            query = relations.SetOperation("INTERSECT", (query, self._simple_query()), is_all, at=query.at)
            self.add_level()
        return query

    def _is_all(self) -> bool:
        return self.accept_any("ALL", "DISTINCT") == "ALL"

    def _simple_query(self) -> Query:
        at = self.token.at
        if self.sees("SELECT"):
            return self._select()
        if self.accept_any("VALUES", "VALUE"):
            return relations.Values(tuple(self.parse_items(self._row_of_values)), at=at)
        if self.sees("TABLE"):
            self.take()
            return relations.TableQuery(self.path(), at=at)
        if self.sees("("):
            return self.in_parentheses(self.query)
        self.fail("expected a query")

    def _row_of_values(self) -> tuple[Expression, ...]:
        expression = self.expression()
        return expression.items if isinstance(expression, syntax.RowValue) else (expression,)

    def table_query(self) -> Query:
        """Parse the operand of TABLE as an argument."""
        return self.in_parentheses(self.query) if self.sees("(") else relations.TableQuery(self.path())

    # --- SELECT ------------------------------------------------------------------------------------------------------

    def _select(self) -> Query:
        at = self.token.at
        self.expect("SELECT")
        hints = self.hints()
        is_stream = self.accept("STREAM")
        mode = self.accept_any("DISTINCT", "ALL")
        items = tuple(self.parse_items(self.select_item))
        source = self.relation() if self.accept("FROM") else None
        if source is None:
            return relations.Select(items, is_distinct=mode == "DISTINCT", hints=hints, is_stream=is_stream, at=at)
        where = self.expression() if self.accept("WHERE") else None
        has_groups = self.accept("GROUP", "BY")
        has_distinct_sets = has_groups and self.accept_any("ALL", "DISTINCT") == "DISTINCT"
        group = tuple(self.parse_items(self._group_item)) if has_groups else None
        having = self.expression() if self.accept("HAVING") else None
        windows = tuple(self.parse_items(self._named_window)) if self.accept("WINDOW") else ()
        qualify = self.expression() if self.accept("QUALIFY") else None
        return relations.Select(
            items,
            source,
            where,
            group,
            having,
            windows,
            qualify,
            is_distinct=mode == "DISTINCT",
            hints=hints,
            has_distinct_sets=has_distinct_sets,
            is_stream=is_stream,
            at=at,
        )

    def select_item(self) -> SelectItem:
        """Parse an expression with an optional alias."""
        at = self.token.at
        expression = syntax.Star(at=at) if self.accept("*") else self.expression()
        if self.accept("AS"):
            return SelectItem(expression, self.name())
        return SelectItem(expression, self.accept_name())

    def _group_item(self) -> GroupItem:
        if self.accept("GROUPING", "SETS"):
            return GroupItem(
                "GROUPING SETS", sets=tuple(self.in_parentheses(lambda: self.parse_items(self._group_item)))
            )
        if self.sees_any("ROLLUP", "CUBE") and self.peek().text == "(":
            kind = self.take().text
            return GroupItem(kind, sets=tuple(self.in_parentheses(lambda: self.parse_items(self._group_item))))
        if self.sees("(", ")"):
            self.index += 2
            return GroupItem("SET")
        expression = self.expression()
        return GroupItem("SET", expression.items if isinstance(expression, syntax.RowValue) else (expression,))

    def _named_window(self) -> tuple[str, WindowSpecification]:
        name = self.name()
        self.expect("AS")
        return name, self.in_parentheses(self.window_specification)

    # --- ORDER BY and LIMIT ------------------------------------------------------------------------------------------

    def _ordered(self, query: Query) -> Query:
        order = self.order_items() if self.accept("ORDER", "BY") else ()
        offset = fetch = None
        while True:
            at = self.token.at
            if fetch is None and self.sees("LIMIT"):
                if offset is not None:
                    self.refuse("'OFFSET start LIMIT count' is not allowed, and LIMIT comes first:", at)
                self.take()
                if not self.accept("ALL"):
                    fetch = self._count()
                if self.sees(","):
                    self.refuse("LIMIT takes one number, and OFFSET says where to begin: a comma is unexpected", at)
            elif offset is None and self.accept("OFFSET"):
                offset = self._count()
                self.accept_any("ROW", "ROWS")
            elif fetch is None and self.accept("FETCH"):
                if self.accept_any("FIRST", "NEXT") is None:
                    self.fail("expected FIRST or NEXT")
                fetch = self._count()
                if self.accept_any("ROW", "ROWS") is None:
                    self.fail("expected ROWS")
                self.expect("ONLY")
            else:
                break
        if not order and offset is None and fetch is None:
            return query
        return relations.Ordered(query, order, offset, fetch, at=query.at)

    def _count(self) -> Expression:
        token = self.token
        if token.kind is Kind.NUMBER:
            return syntax.NumberLiteral(str(self.whole_number()), at=token.at)
        if self.accept("?"):
            return syntax.Reference(("?",), at=token.at)
        self.fail("expected a whole number")

    def order_items(self) -> tuple[OrderItem, ...]:
        """Parse the items of ORDER BY."""
        return tuple(self.parse_items(self._order_item))

    def parse_order_items(self, most: int) -> tuple[OrderItem, ...]:
        """Parse at most `most` items of ORDER BY."""
        items = [self._order_item()]
        while len(items) < most and self.accept(","):
            items.append(self._order_item())
        return tuple(items)

    def _order_item(self) -> OrderItem:
        expression = self.expression()
        is_descending = self.accept_any("ASC", "DESC") == "DESC"
        nulls = None
        if self.accept("NULLS"):
            nulls = self.accept_any("FIRST", "LAST")
            if nulls is None:
                self.fail("expected FIRST or LAST")
        return OrderItem(expression, is_descending, nulls)

    # --- windows -----------------------------------------------------------------------------------------------------

    def window_specification(self) -> WindowSpecification:
        """Parse a window specification without its parentheses."""
        base = None if self.sees_any("PARTITION", "ORDER", "ROWS", "RANGE") else self.accept_name()
        partition = self.expressions() if self.accept("PARTITION", "BY") else ()
        order = self.order_items() if self.accept("ORDER", "BY") else ()
        unit = self.accept_any("ROWS", "RANGE")
        lower = upper = None
        if unit is not None and self.accept("BETWEEN"):
            lower = self._bound()
            self.expect("AND")
            upper = self._bound()
        elif unit is not None:
            lower = self._bound()
        exclusion = self._exclusion() if unit is not None and self.accept("EXCLUDE") else None
        partial = self.accept_any("ALLOW", "DISALLOW")
        if partial is not None:
            self.expect("PARTIAL")
        return WindowSpecification(
            base, partition, order, unit, lower, upper, exclusion, disallows_partial=partial == "DISALLOW"
        )

    def _bound(self) -> Bound:
        if self.accept("CURRENT", "ROW"):
            return Bound("CURRENT ROW")
        distance = None if self.accept("UNBOUNDED") else self.expression()
        direction = self.accept_any("PRECEDING", "FOLLOWING")
        if direction is None:
            self.fail("expected PRECEDING or FOLLOWING")
        return Bound(direction, distance)

    def _exclusion(self) -> str:
        for words in (("CURRENT", "ROW"), ("NO", "OTHERS")):
            if self.accept(*words):
                return " ".join(words)
        self.fail("expected CURRENT ROW or NO OTHERS")

    # --- hints -------------------------------------------------------------------------------------------------------

    def hints(self) -> tuple[Hint, ...]:
        """Parse the hints of one comment, if one comes next."""
        if not (self.token.kind is Kind.HINT and self.accept("/*+")):
            return ()
        hints = self.parse_items(self._hint)
        self.expect("*/")
        return tuple(hints)

    def _signed_number(self) -> str:
        sign = "-" if self.accept("-") else ""
        if self.token.kind is not Kind.NUMBER:
            self.fail("expected a number")
        return sign + self.take().text

    def _hint(self) -> Hint:
        name = self.name().upper()
        options: list[tuple[str, str]] = []
        arguments: list[str] = []
        if self.accept("("):
            while not self.accept(")"):
                if self.token.kind is Kind.TEXT:
                    key = self.text()
                    if self.accept("="):
                        options.append((key, self.text()))
                    else:
                        arguments.append(key)
                elif self.token.kind is Kind.NUMBER or self.sees("-"):
                    arguments.append(self._signed_number())
                else:
                    arguments.append(self.name())
                    if self.accept("="):
                        options.append((arguments.pop(), self.text()))
                if not self.sees(")"):
                    self.expect(",")
        return Hint(name, tuple(options), tuple(arguments))
