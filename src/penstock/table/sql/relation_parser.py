"""What may stand in FROM: tables, queries, functions, joins of them, and MATCH_RECOGNIZE on one."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from penstock.table.sql import relations
from penstock.table.sql.lexer import Kind
from penstock.table.sql.query_parser import QueryParser
from penstock.table.sql.relations import Relation


class RelationParser(QueryParser):
    """See the module's text."""

    @abstractmethod
    def match_recognize(self, source: Relation) -> Relation:
        """The parentheses after MATCH_RECOGNIZE."""

    def relation(self) -> Relation:
        """What follows FROM."""
        left = self._joined()
        while self.accept(","):
            left = relations.Join(left, self._joined(), "CROSS", at=left.at)
        return left

    def _joined(self) -> Relation:
        left = self._aliased()
        while (join := self._join_words()) is not None:
            join_type, is_natural = join
            right = self._aliased()
            condition = self.expression() if self.accept("ON") else None
            using = self.names_in_parentheses() if condition is None and self.accept("USING") else ()
            left = relations.Join(left, right, join_type, condition, using, is_natural, at=left.at)
        return left

    def _join_words(self) -> tuple[str, bool] | None:
        begin = self.index
        is_natural = self.accept("NATURAL")
        side = self.accept_any("INNER", "LEFT", "RIGHT", "FULL", "CROSS", "ASOF")
        if side in ("LEFT", "RIGHT", "FULL"):
            self.accept("OUTER")
            if side == "LEFT" and (kind := self.accept_any("SEMI", "ANTI")) is not None:
                side = kind
        if self.accept("JOIN"):
            return side or "INNER", is_natural
        self.index = begin
        return None

    # --- one of what is joined ---------------------------------------------------------------------------------------

    def _aliased(self) -> Relation:
        found = self._unnamed()
        if self.sees("FOR", "SYSTEM_TIME"):
            found = self._as_of(found)
        if self.sees("MATCH_RECOGNIZE", "("):
            self.take()
            found = self.match_recognize(self._with_alias(found))
        while self.sees_any("PIVOT", "UNPIVOT") and self.peek().text in ("(", "INCLUDE", "EXCLUDE"):
            found = relations.Pivot(self._with_alias(found), self._skipped(), at=found.at)
        found = self._with_alias(found)
        if self.sees("MATCH_RECOGNIZE", "("):
            self.take()
            found = self._with_alias(self.match_recognize(found))
        if self.accept("TABLESAMPLE"):
            found = self._sampled(found)
        return found

    def _with_alias(self, found: Relation) -> Relation:
        """With the name, and the names of columns, that follow."""
        if self.accept("AS") or (self.sees_name() and not self._begins_clause()):
            alias = self.name()
        else:
            return found
        columns = self.names_in_parentheses() if self.sees("(") else ()
        return replace(found, alias=alias, columns=columns)

    def _begins_clause(self) -> bool:
        """Whether a word that may be a name begins something else here."""
        return self.sees("MATCH_RECOGNIZE") or (
            self.token.kind is Kind.WORD
            and self.token.text in ("ASOF", "PIVOT", "UNPIVOT", "SEMI", "ANTI")
            and self.peek().text in ("JOIN", "(")
        )

    def _unnamed(self) -> Relation:
        at = self.token.at
        is_lateral = self.accept("LATERAL")
        if self.sees("TABLE", "("):
            self.take()
            return self._function_table(is_lateral, at)
        if self.accept("UNNEST"):
            expressions = self.in_parentheses(self.expressions)
            return relations.UnnestedTable(expressions, self.accept("WITH", "ORDINALITY"), at=at)
        if self.sees("("):
            return self._in_parentheses(is_lateral, at)
        if self.accept("TABLE"):
            return relations.NamedTable(self.path(), self.hints(), at=at)
        if self.sees("VALUES"):
            self.fail("expected a table, and VALUES is one only in parentheses")
        path_at = self.token.at
        path = self.path()
        if self.sees("("):
            return relations.FunctionTable(self.function(path, path_at, False), is_lateral, at=at)
        if is_lateral:
            self.fail("expected ( after LATERAL")
        return relations.NamedTable(path, self.hints(), at=at)

    def _function_table(self, is_lateral: bool, at: int) -> Relation:
        self.expect("(")
        call = self.expression()
        self.expect(")")
        return relations.FunctionTable(call, is_lateral, at=at)

    def _in_parentheses(self, is_lateral: bool, at: int) -> Relation:
        query = self.try_query()
        if query is not None:
            return relations.DerivedTable(query, is_lateral, self.hints(), at=at)
        return relations.AliasedJoin(self.in_parentheses(self.relation), at=at)

    def _as_of(self, found: Relation) -> Relation:
        self.expect("FOR", "SYSTEM_TIME", "AS", "OF")
        moment = self.expression(40)
        if not isinstance(found, relations.NamedTable):
            self.refuse("FOR SYSTEM_TIME AS OF follows the name of a table, and not what begins", found.at)
        return replace(found, as_of=moment)

    def _sampled(self, found: Relation) -> Relation:
        begin = self.token.at
        self.accept_any("BERNOULLI", "SYSTEM", "SUBSTITUTE")
        self._skip_parentheses()
        if self.accept("REPEATABLE"):
            self._skip_parentheses()
        text = self.sql[begin : self.token.at].strip()
        return replace(found, sample=text) if isinstance(found, relations.NamedTable) else found

    def _skipped(self) -> str:
        begin = self.token.at
        while not self.sees("("):
            self.take()
        self._skip_parentheses()
        return self.sql[begin : self.token.at].strip()

    def _skip_parentheses(self) -> None:
        self.expect("(")
        depth = 1
        while depth:
            token = self.take()
            if token.kind is Kind.END:
                self.fail("expected )")
            depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind is Kind.OPERATOR else 0
