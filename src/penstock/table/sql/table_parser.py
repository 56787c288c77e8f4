"""Parses CREATE TABLE and CREATE VIEW: columns of all kinds, keys, watermarks, options, LIKE and AS."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.table.sql import statements, syntax
from penstock.table.sql.lexer import Kind
from penstock.table.sql.pattern_parser import PatternParser
from penstock.table.sql.statements import (
    Column,
    Distribution,
    Elements,
    KeyConstraint,
    Options,
    Path,
    Statement,
    Watermark,
)
from penstock.table.sql.syntax import Expression, Query

_LIKE_RULES: Final = ("INCLUDING", "EXCLUDING", "OVERWRITING")
_LIKE_PARTS: Final = (
    *("ALL", "CONSTRAINTS", "DISTRIBUTION", "GENERATED", "METADATA", "OPTIONS", "PARTITIONS", "WATERMARKS"),
)
_LITERALS: Final = (
    *(syntax.NumberLiteral, syntax.TextLiteral, syntax.BinaryLiteral, syntax.BooleanLiteral, syntax.NullLiteral),
    *(syntax.TemporalLiteral, syntax.IntervalLiteral),
)
_REFRESH_MODES: Final = ("FULL", "CONTINUOUS")
_START_MODES: Final = (
    *("FROM_BEGINNING", "FROM_NOW", "FROM_TIMESTAMP"),
    *("RESUME_OR_FROM_BEGINNING", "RESUME_OR_FROM_NOW", "RESUME_OR_FROM_TIMESTAMP"),
)


class Words(NamedTuple):
    """The modifiers after CREATE."""

    is_temporary: bool = False
    is_system: bool = False
    replaces: bool = False
    alters: bool = False


class TableParser(PatternParser):
    """See the module docstring."""

    # --- what several statements have --------------------------------------------------------------------------------

    def options(self) -> Options:
        """Parse a possibly empty list of options in parentheses."""
        self.expect("(")
        pairs: list[tuple[str, str]] = []
        while not self.sees(")"):
            key = self.text()
            self.expect("=")
            pairs.append((key, self.text()))
            if not self.accept(","):
                break
            if self.sees(")"):
                self.fail("expected another option after the comma")
        self.expect(")")
        return tuple(pairs)

    def if_not_exists(self) -> bool:
        """Parse IF NOT EXISTS, if it comes next."""
        return self.accept("IF", "NOT", "EXISTS")

    def if_exists(self) -> bool:
        """Parse IF EXISTS, if it comes next."""
        return self.accept("IF", "EXISTS")

    def comment(self) -> str | None:
        """Parse COMMENT and a string, if they come next."""
        return self.text() if self.accept("COMMENT") else None

    def partition_values(self) -> tuple[tuple[str, Expression], ...]:
        """Parse `(a = 1, b = 'x')` after PARTITION."""
        return tuple(self.in_parentheses(lambda: self.parse_items(self._partition_value)))

    def _partition_value(self) -> tuple[str, Expression]:
        name = self.name()
        self.expect("=")
        return name, self.literal()

    def literal(self) -> Expression:
        """Parse a literal, such as the value of a partition column."""
        at = self.token.at
        sign = self.accept_any("+", "-")
        value = self.value()
        if not isinstance(value, _LITERALS) or (sign and not isinstance(value, syntax.NumberLiteral)):
            self.refuse("Expected a literal, and none begins", at)
        return syntax.Call("MINUS_PREFIX", (value,), at=at) if sign == "-" else value

    def computed(self) -> Expression:
        """Parse an expression that is not a query."""
        at = self.token.at
        expression = self.expression()
        if isinstance(expression, syntax.Subquery):
            self.refuse("Expected an expression, and a query begins", at)
        return expression

    # --- columns, keys, watermarks -----------------------------------------------------------------------------------

    def elements(self) -> Elements:
        """Parse the elements of a table, in parentheses."""
        columns: list[Column] = []
        constraints: list[KeyConstraint] = []
        watermarks: list[Watermark] = []
        self.expect("(")
        while True:
            if self.sees("WATERMARK", "FOR"):
                if watermarks:
                    self.fail("a table has one watermark, and this is another")
                watermarks.append(self.watermark())
            elif self.sees_any("CONSTRAINT", "PRIMARY", "UNIQUE"):
                constraints.append(self.constraint())
            else:
                columns.append(self.column())
            if not self.accept(","):
                break
        self.expect(")")
        return Elements(tuple(columns), tuple(constraints), tuple(watermarks))

    def watermark(self) -> Watermark:
        """Parse WATERMARK FOR column AS expression."""
        self.expect("WATERMARK", "FOR")
        column = self.path()
        self.expect("AS")
        return Watermark(column, self.computed())

    def constraint(self) -> KeyConstraint:
        """Parse a key with its columns."""
        name = self.name() if self.accept("CONSTRAINT") else None
        is_unique = self.accept("UNIQUE")
        if not is_unique:
            self.expect("PRIMARY", "KEY")
        return KeyConstraint(self.names_in_parentheses(), name, is_unique, self._enforcement())

    def _enforcement(self) -> bool | None:
        if self.accept("NOT", "ENFORCED"):
            return False
        return True if self.accept("ENFORCED") else None

    def column(self) -> Column:
        """Parse a column of any kind, with its comment."""
        at = self.token.at
        path = self.path()
        if len(path) == 1 and self.accept("AS"):
            return Column(path, expression=self.computed(), comment=self.comment(), at=at)
        if self.sees("NULL"):
            self.fail("expected a type")
        data_type = self.data_type()
        if self.accept("METADATA"):
            metadata = self.text() if self.accept("FROM") else None
            is_virtual = self.accept("VIRTUAL")
            return Column(path, data_type, None, metadata, True, is_virtual, comment=self.comment(), at=at)
        is_primary, name, enforced = self._column_key()
        return Column(
            path, data_type, None, is_primary=is_primary, is_enforced=enforced, constraint=name, comment=self.comment(),
            at=at,
        )  # fmt: skip

    def _column_key(self) -> tuple[bool, str | None, bool | None]:
        name = self.name() if self.accept("CONSTRAINT") else None
        if self.accept("PRIMARY", "KEY"):
            return True, name, self._enforcement()
        if self.accept("UNIQUE"):
            return False, name, self._enforcement()
        if name is not None:
            self.fail("expected PRIMARY KEY or UNIQUE after CONSTRAINT")
        return False, None, None

    def distribution(self) -> Distribution:
        """Parse the rest of a distribution, after DISTRIBUTED or DISTRIBUTION."""
        kind = None
        columns: tuple[str, ...] = ()
        if not self.sees_any("BY", "INTO"):
            self.fail("expected BY or INTO")
        if self.accept("BY"):
            kind = self.accept_any("HASH", "RANGE")
            columns = self.names_in_parentheses()
        buckets = None
        if self.accept("INTO"):
            buckets = self.whole_number()
            self.expect("BUCKETS")
        return Distribution(kind, columns, buckets)

    # --- CREATE TABLE ------------------------------------------------------------------------------------------------

    def create_table(self, words: Words, at: int, is_replace: bool = False) -> Statement:
        """Parse the rest of CREATE TABLE or REPLACE TABLE."""
        if_not_exists = self.if_not_exists()
        path = self.path()
        elements = Elements()
        names: tuple[str, ...] = ()
        if self._sees_names_alone():
            names = self.names_in_parentheses()
        elif self.sees("("):
            elements = self.elements()
        comment = self.comment()
        distribution = self.distribution() if self.accept("DISTRIBUTED") else None
        partition_keys = self.names_in_parentheses() if self.accept("PARTITIONED", "BY") else ()
        options = self.options() if self.accept("WITH") else ()
        like = self._like() if self.accept("LIKE") else None
        query = self.query() if like is None and self.accept("AS") else None
        if is_replace and query is None:
            self.fail("expected AS and a query")
        if names and query is None:
            self.fail("expected AS and a query, because the columns have no types")
        return statements.CreateTable(
            path=path,
            elements=elements,
            names=names,
            comment=comment,
            distribution=distribution,
            partition_keys=partition_keys,
            options=options,
            like=like,
            query=query,
            is_temporary=words.is_temporary,
            if_not_exists=if_not_exists,
            replaces=words.replaces or is_replace,
            is_replace=is_replace,
            at=at,
        )

    def _sees_names_alone(self) -> bool:
        return (
            self.sees("(")
            and self.peek().kind in (Kind.WORD, Kind.QUOTED)
            and self.peek(2).text in (",", ")")
            and self.peek(2).kind is Kind.OPERATOR
        )

    def _like(self) -> statements.Like:
        path = self.path()
        rules: list[tuple[str, str]] = []
        if self.accept("("):
            while not rules or not self.accept(")"):
                rule = self.accept_any(*_LIKE_RULES)
                part = self.accept_any(*_LIKE_PARTS)
                if rule is None or part is None:
                    self.fail(f"expected {', '.join(_LIKE_RULES)} and then one of {', '.join(_LIKE_PARTS)}")
                rules.append((rule, part))
        return statements.Like(path, tuple(rules))

    def create_materialized_table(self, words: Words, at: int) -> Statement:
        """Parse the rest of CREATE MATERIALIZED TABLE."""
        path = self.path()
        names: tuple[str, ...] = ()
        elements = Elements()
        if self._sees_names_alone():
            names = self.names_in_parentheses()
        elif self.sees("("):
            elements = self.elements()
        comment = self.comment()
        distribution = self.distribution() if self.accept("DISTRIBUTED") else None
        partition_keys = self.names_in_parentheses() if self.accept("PARTITIONED", "BY") else ()
        options = self.options() if self.accept("WITH") else ()
        start_mode = self._start_mode() if self.accept("START_MODE", "=") else None
        freshness = self.freshness() if self.accept("FRESHNESS", "=") else None
        refresh_mode = self.refresh_mode() if self.accept("REFRESH_MODE", "=") else None
        self.expect("AS")
        return statements.CreateMaterializedTable(
            path=path,
            elements=elements,
            names=names,
            comment=comment,
            distribution=distribution,
            partition_keys=partition_keys,
            options=options,
            query=self.query(),
            freshness=freshness,
            refresh_mode=refresh_mode,
            start_mode=start_mode,
            alters=words.alters,
            replaces=words.replaces,
            at=at,
        )

    def freshness(self) -> Expression:
        """Parse the maximum age of a materialized table's rows: an interval."""
        at = self.token.at
        interval = self.expression()
        if not isinstance(interval, syntax.IntervalLiteral) or self.sql[at:].split()[1:][0][:1] not in "'+-":
            self.refuse("FRESHNESS is an interval, and what it is here begins", at)
        return interval

    def refresh_mode(self) -> str:
        """Parse the refresh mode of a materialized table."""
        mode = self.accept_any(*_REFRESH_MODES)
        if mode is None:
            self.fail("expected FULL or CONTINUOUS")
        return mode

    def _start_mode(self) -> tuple[str, Expression | None]:
        mode = self.accept_any(*_START_MODES)
        if mode is None:
            self.fail(f"expected one of {', '.join(_START_MODES)}")
        if mode.endswith("FROM_TIMESTAMP"):
            return mode, self.in_parentheses(self.literal)
        takes_operand = mode.endswith("FROM_NOW") and self.sees("(")
        return mode, self.in_parentheses(self.freshness) if takes_operand else None

    # --- CREATE VIEW -------------------------------------------------------------------------------------------------

    def create_view(self, words: Words, at: int) -> Statement:
        """Parse the rest of CREATE VIEW."""
        if_not_exists = self.if_not_exists()
        path: Path = self.path()
        columns = self.names_in_parentheses() if self.sees("(") else ()
        comment = self.comment()
        self.expect("AS")
        begin = self.token.at
        query: Query = self.query()
        return statements.CreateView(
            path=path,
            query=query,
            text=self.sql[begin : self.token.at].strip(),
            columns=columns,
            comment=comment,
            is_temporary=words.is_temporary,
            if_not_exists=if_not_exists,
            replaces=words.replaces,
            at=at,
        )
