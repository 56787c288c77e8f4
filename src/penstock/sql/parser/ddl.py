"""Parsers of CREATE TABLE and CREATE VIEW, and of ALTER statements.

`TableParser` parses columns of all kinds, keys, watermarks, options, LIKE and AS. `AlterParser` parses tables with
their many actions, views, and objects with options.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.sql.parser import statements, syntax
from penstock.sql.parser.lexer import Kind
from penstock.sql.parser.queries import PatternParser
from penstock.sql.parser.statements import (
    AlterAction,
    Column,
    Distribution,
    Elements,
    KeyConstraint,
    Options,
    Path,
    Statement,
    Watermark,
)
from penstock.sql.parser.syntax import Expression, Query

_LIKE_RULES: Final = ("INCLUDING", "EXCLUDING", "OVERWRITING")
_LIKE_PARTS: Final = (
    *("ALL", "CONSTRAINTS", "DISTRIBUTION", "GENERATED", "METADATA", "OPTIONS", "PARTITIONS", "WATERMARKS"),
)
_LITERALS: Final = (
    *(syntax.NumberLiteral, syntax.TextLiteral, syntax.BinaryLiteral, syntax.BooleanLiteral, syntax.NullLiteral),
    *(syntax.TemporalLiteral, syntax.IntervalLiteral),
)
#: units of ages, in ms
_AGES: Final = {"DAYS": 86_400_000, "HOURS": 3_600_000, "MINUTES": 60_000}
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


class AlterParser(TableParser):
    """See the module docstring."""

    def alter_table(self, at: int, is_materialized: bool) -> Statement:
        """Parse the rest of an ALTER TABLE statement."""
        if_exists = not is_materialized and self.if_exists()
        path = self.path()
        actions = self._actions(is_materialized)
        return statements.AlterTable(path, tuple(actions), if_exists, is_materialized, at=at)

    def _actions(self, is_materialized: bool) -> list[AlterAction]:
        if not is_materialized and self.accept("RENAME"):
            return [self._rename()]
        if is_materialized and self.accept("SET", "FRESHNESS", "="):
            return [AlterAction("SET FRESHNESS", freshness=self.freshness())]
        if is_materialized and self.accept("SET", "REFRESH_MODE", "="):
            return [AlterAction("SET REFRESH_MODE", refresh_mode=self.refresh_mode())]
        if self.accept("SET"):
            return [AlterAction("SET", options=self.options())]
        if self.accept("RESET"):
            return [AlterAction("RESET", names=tuple((key,) for key in self.keys()))]
        verb = self.accept_any("ADD", "MODIFY", "DROP")
        if verb == "DROP":
            return self._drops(is_materialized)
        if not is_materialized and verb is None and self.sees_any("CREATE", "REPLACE"):
            return [self._created_reference()]
        if is_materialized and self.sees("PARTITION"):
            self.fail("a materialized table takes no partitions")
        if verb is not None:
            return self._additions(verb)
        if is_materialized:
            return [self._materialized()]
        self.fail("expected RENAME, SET, RESET, ADD, MODIFY or DROP")

    def _rename(self) -> AlterAction:
        if self.accept("TO"):
            return AlterAction("RENAME TO", names=(self.path(),))
        old = self.path()
        self.expect("TO")
        return AlterAction("RENAME COLUMN", names=(old, self.path()))

    def keys(self) -> tuple[str, ...]:
        """Parse a possibly empty list of option keys in parentheses."""
        self.expect("(")
        keys = () if self.sees(")") else tuple(self.parse_items(self.text))
        self.expect(")")
        return keys

    def _additions(self, verb: str) -> list[AlterAction]:
        if verb == "ADD" and (self.sees("PARTITION") or self.sees("IF", "NOT", "EXISTS")):
            if_not_exists = self.if_not_exists()
            actions = []
            while self.accept("PARTITION"):
                values = self.partition_values()
                options: Options = self.options() if self.accept("WITH") else ()
                actions.append(AlterAction("ADD PARTITION", partition=values, options=options, if_exists=if_not_exists))
            return actions
        if not self.accept("("):
            return [self._addition(verb)]
        actions = self.parse_items(lambda: self._addition(verb))
        self.expect(")")
        return actions

    def _addition(self, verb: str) -> AlterAction:
        if self.sees("WATERMARK", "FOR"):
            return AlterAction(f"{verb} WATERMARK", watermark=self.watermark())
        if self.sees_any("CONSTRAINT", "PRIMARY", "UNIQUE"):
            return AlterAction(f"{verb} CONSTRAINT", constraint=self.constraint())
        if self.accept("DISTRIBUTION"):
            return AlterAction(f"{verb} DISTRIBUTION", distribution=self.distribution())
        column, position = self._placed_column()
        return AlterAction(f"{verb} COLUMN", column=column, position=position)

    def _placed_column(self) -> tuple[Column, str | None]:
        column = self.column()
        return column, self._place_of_column()

    def _place_of_column(self) -> str | None:
        if self.accept("FIRST"):
            return "FIRST"
        return f"AFTER {'.'.join(self.path())}" if self.accept("AFTER") else None

    def _drops(self, is_materialized: bool) -> list[AlterAction]:
        if not is_materialized and (self.sees("PARTITION") or self.sees("IF", "EXISTS")):
            return self._dropped_partitions(self.if_exists())
        if not is_materialized and (kind := self._accept_reference()) is not None:
            if_exists = self.if_exists()
            reference = statements.VersionReference(self.name())
            return [AlterAction(f"DROP {kind}", if_exists=if_exists, reference=reference)]
        if self.accept("CONSTRAINT"):
            return [AlterAction("DROP CONSTRAINT", names=((self.name(),),))]
        if self.accept("PRIMARY", "KEY"):
            return [AlterAction("DROP PRIMARY KEY")]
        for word in ("WATERMARK", "DISTRIBUTION"):
            if self.accept(word):
                return [AlterAction(f"DROP {word}")]
        names = tuple(self.in_parentheses(lambda: self.parse_items(self.path))) if self.sees("(") else (self.path(),)
        return [AlterAction("DROP COLUMN", names=names)]

    def _accept_reference(self) -> str | None:
        """Take BRANCH or TAG before a name; a column can have these names too."""
        return self.accept_any("BRANCH", "TAG") if self.peek().kind in (Kind.WORD, Kind.QUOTED) else None

    def _created_reference(self) -> AlterAction:
        verb = self.take().text
        replaces = verb == "CREATE" and self.accept("OR", "REPLACE")
        kind = self.accept_any("BRANCH", "TAG")
        if kind is None:
            self.fail("expected BRANCH or TAG")
        if_not_exists = verb == "CREATE" and not replaces and self.if_not_exists()
        name = self.name()
        version = int(self._signed_number()) if self.accept("AS", "OF", "VERSION") else None
        age_ms = self._age_ms() if self.accept("RETAIN") else None
        snapshots = snapshot_age_ms = None
        if kind == "BRANCH" and self.accept("WITH", "SNAPSHOT", "RETENTION"):
            if self.peek().text == "SNAPSHOTS":
                snapshots = self.whole_number()
                self.expect("SNAPSHOTS")
            if snapshots is None or self.token.kind is Kind.NUMBER:
                snapshot_age_ms = self._age_ms()
        reference = statements.VersionReference(
            name, version, age_ms, snapshots, snapshot_age_ms, replaces, if_not_exists
        )
        return AlterAction(f"{verb} {kind}", reference=reference)

    def _age_ms(self) -> int:
        number = self.whole_number()
        unit = self.accept_any(*_AGES)
        if unit is None:
            self.fail(f"expected {', '.join(_AGES)}")
        return number * _AGES[unit]

    def _dropped_partitions(self, if_exists: bool) -> list[AlterAction]:
        self.expect("PARTITION")
        actions = [AlterAction("DROP PARTITION", partition=self.partition_values(), if_exists=if_exists)]
        while self.accept(",", "PARTITION"):
            actions.append(AlterAction("DROP PARTITION", partition=self.partition_values(), if_exists=if_exists))
        return actions

    def _materialized(self) -> AlterAction:
        """Parse an action that only materialized tables have."""
        if self.accept("AS"):
            return AlterAction("AS", query=self.query())
        if self.accept("REFRESH"):
            return AlterAction("REFRESH", partition=self.partition_values() if self.accept("PARTITION") else ())
        if self.accept("RESUME"):
            return AlterAction("RESUME", options=self.options() if self.accept("WITH") else ())
        self.expect("SUSPEND")
        return AlterAction("SUSPEND")

    # --- what is not a table -----------------------------------------------------------------------------------------

    def alter_view(self, at: int) -> Statement:
        """Parse the rest of an ALTER VIEW statement."""
        path = self.path()
        if self.accept("RENAME"):
            self.expect("TO")
            return statements.AlterView(path, self.path(), at=at)
        self.expect("AS")
        return statements.AlterView(path, (), self.query(), at=at)

    def alter_other(self, object_type: str, at: int) -> Statement:
        """Parse the rest of an ALTER CATALOG, DATABASE, MODEL or CONNECTION statement."""
        if_exists = object_type in ("MODEL", "CONNECTION") and self.if_exists()
        path: Path = (self.name(),) if object_type == "CATALOG" else self.path()
        if self.accept("SET"):
            return statements.Alter(object_type, path, "SET", self.options(), if_exists=if_exists, at=at)
        if object_type == "DATABASE":
            self.fail("expected SET")
        if self.accept("RESET"):
            return statements.Alter(object_type, path, "RESET", keys=self.keys(), if_exists=if_exists, at=at)
        if object_type == "CATALOG" and self.accept("COMMENT"):
            return statements.Alter(object_type, path, "COMMENT", text=self.text(), if_exists=if_exists, at=at)
        if object_type == "CATALOG":
            self.fail("expected SET, RESET or COMMENT")
        self.expect("RENAME", "TO")
        return statements.Alter(object_type, path, "RENAME TO", renamed=self.path(), if_exists=if_exists, at=at)
