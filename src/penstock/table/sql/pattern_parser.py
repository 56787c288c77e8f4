"""Parses MATCH_RECOGNIZE: its clauses, and its pattern, which is a regular expression over row variables."""

from __future__ import annotations

from penstock.table.sql import relations
from penstock.table.sql.lexer import Kind
from penstock.table.sql.relation_parser import RelationParser
from penstock.table.sql.relations import Pattern, Relation, SelectItem
from penstock.table.sql.syntax import Expression, IntervalLiteral, IntervalQualifier


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
