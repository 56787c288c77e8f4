"""Parsers of queries, of relations in FROM, and of MATCH_RECOGNIZE.

`QueryParser` parses SELECT, VALUES, set operations, WITH, ORDER BY and LIMIT, windows and hints. `RelationParser`
parses tables, queries, functions, joins of them, and MATCH_RECOGNIZE on one. `PatternParser` parses the clauses of
MATCH_RECOGNIZE and its pattern, which is a regular expression over row variables.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Final

from penstock.sql.data.types import TimestampType
from penstock.sql.parser import syntax
from penstock.sql.parser import syntax as relations
from penstock.sql.parser.functions import FunctionParser
from penstock.sql.parser.lexer import Kind
from penstock.sql.parser.syntax import (
    Bound,
    Expression,
    GroupItem,
    Hint,
    IntervalLiteral,
    IntervalQualifier,
    OrderItem,
    Pattern,
    Query,
    Relation,
    SelectItem,
    WindowSpecification,
)

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


class RelationParser(QueryParser):
    """See the module docstring."""

    @abstractmethod
    def match_recognize(self, source: Relation) -> Relation:
        """Parse the parentheses after MATCH_RECOGNIZE."""

    def relation(self) -> Relation:
        """Parse the relation after FROM: commas are cross joins, and joins associate left to right, as in Flink."""
        return self._joined(takes_commas=True)

    def _joined(self, takes_commas: bool = False) -> Relation:
        before = self.open_level()
        left = self._aliased()
        while True:
            if takes_commas and self.accept(","):
                left = relations.Join(left, self._aliased(), "CROSS", at=left.at)
                self.add_level()
                continue
            join = self._join_words()
            if join is None:
                break
            join_type, is_natural = join
            right = self._aliased()
            condition = self.expression() if self.accept("ON") else None
            using = self.names_in_parentheses() if condition is None and self.accept("USING") else ()
            left = relations.Join(left, right, join_type, condition, using, is_natural, at=left.at)
            self.add_level()
        self.close_level(before)
        return left

    def _join_words(self) -> tuple[str, bool] | None:
        begin = self.index
        is_natural = self.accept("NATURAL")
        side = self.accept_any("INNER", "LEFT", "RIGHT", "FULL", "CROSS", "ASOF")
        if side in ("LEFT", "RIGHT", "FULL"):
            self.accept("OUTER")
        if self.accept("JOIN"):
            return side or "INNER", is_natural
        self.index = begin
        return None

    # --- one of what is joined ---------------------------------------------------------------------------------------

    def _aliased(self) -> Relation:
        relation = self._unnamed()
        if self.sees("FOR", "SYSTEM_TIME") or self.sees("TIMESTAMP", "AS", "OF"):
            relation = self._parse_as_of(relation)
        elif self.accept("VERSION", "AS", "OF") or self.accept("FOR", "VERSION", "AS", "OF"):
            relation = self._parse_version(relation)
        relation = self._matched_or_pivoted(relation)
        is_named = self.sees("AS")
        relation = self._with_alias(relation)
        if is_named and self.sees("MATCH_RECOGNIZE"):
            relation = self._with_alias(self._matched(relation))
        if self.accept("TABLESAMPLE"):
            relation = self._sampled(relation)
        return relation

    def _matched_or_pivoted(self, relation: Relation) -> Relation:
        """Parse MATCH_RECOGNIZE, PIVOT or UNPIVOT after a relation, if one comes next."""
        if self.sees("MATCH_RECOGNIZE"):
            return self._matched(relation)
        begin = self.token.at
        if self.accept("PIVOT"):
            self.in_parentheses(self._pivot)
        elif self.accept("UNPIVOT"):
            if self.accept_any("INCLUDE", "EXCLUDE") is not None:
                self.expect("NULLS")
            self.in_parentheses(self._unpivot)
        else:
            return relation
        return relations.Pivot(relation, self.sql[begin : self.token.at].strip(), at=relation.at)

    def _matched(self, relation: Relation) -> Relation:
        return self.match_recognize(relation) if self.accept("MATCH_RECOGNIZE") else relation

    def _pivot(self) -> None:
        """Parse aggregates FOR columns IN values."""
        self.parse_items(self._pivoted_aggregate)
        self.expect("FOR")
        self._name_or_names()
        self.expect("IN")
        self.in_parentheses(lambda: None if self.sees(")") else self.parse_items(self._named_expression))

    def _pivoted_aggregate(self) -> None:
        at = self.token.at
        self.function(self.path() if self.sees_name() else (self.take().source,), at, False)
        self._optional_alias()

    def _named_expression(self) -> None:
        self.expression()
        self._optional_alias()

    def _optional_alias(self) -> None:
        if self.accept("AS"):
            self.name()
        else:
            self.accept_name()

    def _unpivot(self) -> None:
        """Parse measures FOR axes IN columns."""
        self._name_or_names()
        self.expect("FOR")
        self._name_or_names()
        self.expect("IN")
        self.in_parentheses(lambda: self.parse_items(self._unpivoted))

    def _unpivoted(self) -> None:
        self._name_or_names()
        if self.accept("AS"):
            self.expression()

    def _name_or_names(self) -> tuple[str, ...]:
        return self.names_in_parentheses() if self.sees("(") else (self.name(),)

    def _with_alias(self, relation: Relation) -> Relation:
        """Parse an optional alias after a relation, with optional column names."""
        if self.accept("AS") or (self.sees_name() and not self._begins_clause()):
            if isinstance(relation, relations.AliasedJoin):
                self.refuse("A join in parentheses takes no name, and here is one", self.tokens[self.index - 1].at)
            alias = self.name()
        else:
            return relation
        columns = self.names_in_parentheses() if self.sees("(") else ()
        return replace(relation, alias=alias, columns=columns)

    def _begins_clause(self) -> bool:
        """Return whether a word that could be a name begins a clause here."""
        return self.sees("ASOF", "JOIN")

    def _unnamed(self) -> Relation:
        at = self.token.at
        is_lateral = self.accept("LATERAL")
        if self.sees("TABLE", "("):
            self.take()
            return self._function_table(is_lateral, at)
        if self.accept("UNNEST"):
            query = self.try_query()
            expressions = self.in_parentheses(self.expressions) if query is None else (syntax.Subquery(query, at=at),)
            return relations.UnnestedTable(expressions, self.accept("WITH", "ORDINALITY"), at=at)
        if self.sees("("):
            return self._in_parentheses(is_lateral, at)
        if self.sees("VALUES"):
            self.fail("expected a table, and VALUES is one only in parentheses")
        if is_lateral:
            self.fail("expected TABLE or ( after LATERAL")
        path = self.path()
        if self.sees("("):
            return relations.FunctionTable(self.call(path, at), is_lateral, at=at)
        return relations.NamedTable(path, self.hints(), at=at)

    def _function_table(self, is_lateral: bool, at: int) -> Relation:
        self.expect("(")
        path_at = self.token.at
        call = self.call(self.path(), path_at)
        self.expect(")")
        return relations.FunctionTable(call, is_lateral, at=at)

    def _in_parentheses(self, is_lateral: bool, at: int) -> Relation:
        query = self.try_query()
        if query is not None:
            return relations.DerivedTable(query, is_lateral, self.hints(), at=at)
        joined = self.in_parentheses(self._joined)
        if not isinstance(joined, relations.Join | relations.AliasedJoin):
            self.refuse("Expected a query or a join in the parentheses that begin", at)
        return relations.AliasedJoin(joined, at=at)

    def _parse_as_of(self, relation: Relation) -> Relation:
        is_plain = self.accept("TIMESTAMP", "AS", "OF")
        if not is_plain:
            self.expect("FOR", "SYSTEM_TIME", "AS", "OF")
        moment = self.expression()
        if is_plain and isinstance(moment, syntax.TextLiteral):
            moment = syntax.Cast(moment, TimestampType(6), at=moment.at)
        if not isinstance(relation, relations.NamedTable):
            self.refuse("FOR SYSTEM_TIME AS OF follows the name of a table, and not what begins", relation.at)
        return replace(relation, as_of=moment)

    def _parse_version(self, relation: Relation) -> Relation:
        version = self.text() if self.token.kind is Kind.TEXT else self._signed_number()
        if not isinstance(relation, relations.NamedTable):
            self.refuse("VERSION AS OF follows the name of a table, and not what begins", relation.at)
        return replace(relation, version=version)

    def _sampled(self, relation: Relation) -> Relation:
        begin = self.token.at
        if self.accept("SUBSTITUTE"):
            self.in_parentheses(self.text)
        elif self.accept_any("BERNOULLI", "SYSTEM") is not None:
            self.in_parentheses(self._share)
            if self.accept("REPEATABLE"):
                self.in_parentheses(self._seed)
        else:
            self.fail("expected BERNOULLI or SYSTEM")
        text = self.sql[begin : self.token.at].strip()
        return replace(relation, sample=text)

    def _seed(self) -> None:
        self.accept("-")
        self.whole_number()

    def _share(self) -> None:
        if self.take().kind is not Kind.NUMBER:
            self.index -= 1
            self.fail("expected a number")


class PatternParser(RelationParser):
    """See the module docstring."""

    def match_recognize(self, source: Relation) -> Relation:
        """Parse the parentheses after MATCH_RECOGNIZE."""
        self.expect("(")
        partition = self.expressions() if self.accept("PARTITION", "BY") else ()
        order = self.order_items() if self.accept("ORDER", "BY") else ()
        measures = tuple(self.parse_items(self._measure)) if self.accept("MEASURES") else ()
        rows_per_match = self._rows_per_match()
        skip = self._skip()
        self.expect("PATTERN", "(")
        pattern = self._alternatives()
        self.expect(")")
        within = self._within() if self.accept("WITHIN") else None
        subsets = tuple(self.parse_items(self._subset)) if self.accept("SUBSET") else ()
        self.expect("DEFINE")
        definitions = tuple(self.parse_items(self._definition))
        self.expect(")")
        clauses = (partition, order, measures, rows_per_match, skip, pattern, within, subsets, definitions)
        return relations.MatchRecognize(source, *clauses, at=source.at)

    def _measure(self) -> SelectItem:
        expression = self.expression()
        self.expect("AS")
        return SelectItem(expression, self.name())

    def _rows_per_match(self) -> str:
        if self.accept("ALL", "ROWS", "PER", "MATCH"):
            return "ALL ROWS PER MATCH"
        self.accept("ONE", "ROW", "PER", "MATCH")
        return "ONE ROW PER MATCH"

    def _skip(self) -> str:
        if not self.accept("AFTER", "MATCH", "SKIP"):
            return "TO NEXT ROW"
        if self.accept("PAST", "LAST", "ROW"):
            return "PAST LAST ROW"
        self.expect("TO")
        if self.accept("NEXT", "ROW"):
            return "TO NEXT ROW"
        begins_name = self.sees_any("FIRST", "LAST") and self.peek().text == "PATTERN"
        where = (None if begins_name else self.accept_any("FIRST", "LAST")) or "LAST"
        return f"TO {where} {self.name()}"

    def _within(self) -> tuple[str, IntervalQualifier]:
        interval: Expression = self.expression()
        if not isinstance(interval, IntervalLiteral):
            self.refuse("WITHIN takes an interval, and not what begins", interval.at)
        return ("-" if interval.is_negative else "") + interval.text, interval.qualifier

    def _subset(self) -> tuple[str, tuple[str, ...]]:
        name = self.name()
        self.expect("=")
        return name, self.names_in_parentheses()

    def _definition(self) -> tuple[str, Expression]:
        name = self.name()
        self.expect("AS")
        return name, self.expression()

    # --- the pattern -------------------------------------------------------------------------------------------------

    def _alternatives(self) -> Pattern:
        before = self.open_level()
        parts = [self._sequence()]
        while self.accept("|"):
            parts.append(self._sequence())
        self.close_level(before)
        return parts[0] if len(parts) == 1 else Pattern("ALTER", parts=tuple(parts))

    def _sequence(self) -> Pattern:
        parts = []
        while not self.sees_any("|", ")", "-}") and self.token.kind is not Kind.END:
            parts.append(self._factor())
        if not parts:
            self.fail("expected the name of a row in the pattern")
        return parts[0] if len(parts) == 1 else Pattern("CONCAT", parts=tuple(parts))

    def _factor(self) -> Pattern:
        part = self._term()
        quantifier = self.accept_any("*", "+", "?", "{")
        if quantifier is None:
            return part
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(quantifier) or self._times()
        return Pattern("REPEAT", parts=(part,), least=least, most=most, is_reluctant=self.accept("?"))

    def _times(self) -> tuple[int, int | None]:
        """Parse a quantifier in braces: {2}, {2,}, {,3}, {2, 3}."""
        least = 0 if self.sees(",") else self.whole_number()
        if not self.accept(","):
            most: int | None = least
        else:
            most = None if self.sees("}") else self.whole_number()
        self.expect("}")
        return least, most

    def _term(self) -> Pattern:
        if self.accept("("):
            if self.accept(")"):
                return Pattern("CONCAT")
            inner = self._alternatives()
            self.expect(")")
            return inner
        if self.accept("{-"):
            inner = self._alternatives()
            self.expect("-}")
            return Pattern("EXCLUDE", parts=(inner,))
        if self.accept("PERMUTE"):
            return Pattern(
                "PERMUTE", parts=tuple(self.in_parentheses(lambda: self.parse_items(self._alternatives_of_one)))
            )
        if anchor := self.accept_any("^", "$"):
            return Pattern(anchor)
        return Pattern("VARIABLE", self.name())

    def _alternatives_of_one(self) -> Pattern:
        return Pattern("VARIABLE", self.name())
