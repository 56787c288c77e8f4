"""Parses relations in FROM: tables, queries, functions, joins of them, and MATCH_RECOGNIZE on one."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from penstock.table.sql import relations, syntax
from penstock.table.sql.lexer import Kind
from penstock.table.sql.query_parser import QueryParser
from penstock.table.sql.relations import Relation


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
        if self.sees("FOR", "SYSTEM_TIME"):
            relation = self._parse_as_of(relation)
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
        self.expect("FOR", "SYSTEM_TIME", "AS", "OF")
        moment = self.expression()
        if not isinstance(relation, relations.NamedTable):
            self.refuse("FOR SYSTEM_TIME AS OF follows the name of a table, and not what begins", relation.at)
        return replace(relation, as_of=moment)

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
