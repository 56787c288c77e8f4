"""Statements that change tables: CREATE, ALTER, DROP, TRUNCATE and RENAME of MySQL and MariaDB, applied to definitions.

The log has these statements as text. The parser reads the clauses about columns, primary keys and character sets, and
skips the rest: indexes, constraints, partitions, engine options. `apply_statement` returns the tables after a
statement, and the events that describe it. A change that no event describes, such as a new column order or a new
primary key, becomes a `CreateTableEvent` with the whole schema.

Source: "ALTER TABLE Statement" and "CREATE TABLE Statement" of the MySQL 9 and MariaDB documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.base.errors import FormatError, UnsupportedError
from penstock.connectors.cdc import events
from penstock.connectors.cdc.events import ColumnPosition, SchemaChangeEvent, TableId
from penstock.connectors.mysql.cdc.binlog import QueryEvent
from penstock.connectors.mysql.cdc.tables import (
    SYNONYMS,
    TEXTS,
    ColumnDefinition,
    TableDefinition,
    TypeMapping,
    complete_type,
)
from penstock.connectors.mysql.cdc.tokens import END, Token, Tokens, split, tokenize

#: The effect of a statement: the table after it (None if it was dropped), and the events.
Change = tuple[TableId, TableDefinition | None, tuple[SchemaChangeEvent, ...]]

#: the first words of table elements other than columns
_ELEMENTS: Final = frozenset(
    {"INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "FOREIGN", "CONSTRAINT", "PRIMARY", "CHECK", "LIKE", "VECTOR"}
)
_BINARY_TWINS: Final = {"char": "binary", "varchar": "varbinary"} | {
    f"{size}text": f"{size}blob" for size in ("tiny", "", "medium", "long")
}
_STATEMENT: Final = re.compile(
    r"(?:\s+|--[^\n]*\n|\#[^\n]*\n|/\*.*?\*/)*(CREATE|ALTER|DROP|TRUNCATE|RENAME)\b", re.IGNORECASE | re.DOTALL
)


@dataclass(slots=True)
class _Column:
    """A column as a statement defines it."""

    definition: ColumnDefinition
    is_key: bool = False
    position: ColumnPosition | None = None


@dataclass(slots=True)
class _Options:
    """The table options of a statement."""

    charset: str | None = None
    collation: str | None = None
    comment: str | None = None


class _Statement:
    """Parses the parts of a statement."""

    def __init__(self, tokens: Tokens, is_mariadb: bool) -> None:
        self.tokens = tokens
        self._is_mariadb = is_mariadb

    # --- columns ---------------------------------------------------------------------------------------------------

    def column(self, charset: str | None, collation: str | None) -> _Column:
        """Parse a column: its name, its type and its attributes."""
        tokens = self.tokens
        name = tokens.name()
        kind, arguments, modifiers, text_charset = self._type()
        given = _Options()
        column = _Column(ColumnDefinition(name, kind))
        is_nullable, default, comment = kind != "serial", None, ""
        while tokens.peek() is not END and tokens.peek().word not in (",", ")"):
            if tokens.accept_any("UNSIGNED", "ZEROFILL"):
                modifiers += " unsigned"
            elif tokens.accept("NOT", "NULL"):
                is_nullable = False
            elif tokens.accept("NULL"):
                is_nullable = True
            elif tokens.accept("DEFAULT"):
                default = self._default()
            elif tokens.accept("CHARACTER", "SET") or tokens.accept("CHARSET"):
                tokens.accept("=")
                given.charset = tokens.name().lower()
            elif tokens.accept("COLLATE"):
                tokens.accept("=")
                given.collation = tokens.name().lower()
            elif tokens.accept("PRIMARY", "KEY"):
                column.is_key = True
            elif tokens.accept("UNIQUE"):
                tokens.accept("KEY")
            elif tokens.accept("KEY"):
                column.is_key = True
            elif tokens.accept("COMMENT"):
                comment = tokens.name()
            elif tokens.accept("ON", "UPDATE"):
                tokens.next()
            elif tokens.accept("FIRST"):
                column.position = ColumnPosition(first=True)
            elif tokens.accept("AFTER"):
                column.position = ColumnPosition(after=tokens.name())
            elif tokens.accept("ASCII"):
                given.charset = "latin1"
            elif tokens.accept("UNICODE"):
                given.charset = "ucs2"
            elif tokens.peek().word == "(":
                tokens.brackets()
            else:
                tokens.next()
        column.definition = self._finish(
            name, (kind, arguments, modifiers), given.charset or text_charset, given.collation, (charset, collation)
        )
        column.definition = replace(
            column.definition, is_nullable=is_nullable and not column.is_key, default=default, comment=comment
        )
        return column

    def _type(self) -> tuple[str, str | None, str, str | None]:
        """Return the name of a type, the text in its brackets, its modifiers, and the character set that it implies."""
        tokens = self.tokens
        kind, charset = tokens.name().lower(), None
        if kind == "national":
            kind, charset = tokens.name().lower(), "utf8mb3"
        elif kind in ("nchar", "nvarchar"):
            charset = "utf8mb3"
        if kind == "double":
            tokens.accept("PRECISION")
        elif kind == "long":
            word = tokens.accept_any("VARCHAR", "VARBINARY", "CHAR", "CHARACTER")
            kind = "mediumblob" if word == "VARBINARY" else "mediumtext"
            tokens.accept("VARYING")
        elif kind in ("char", "character", "nchar") and tokens.accept_any("VARYING", "VARCHAR", "VARCHARACTER"):
            kind = "varchar"
        arguments = None
        if tokens.peek().word == "(":
            arguments = ", ".join(
                "'" + token.text.replace("\\", "\\\\").replace("'", "''") + "'" if token.kind == "text" else token.text
                for token in tokens.brackets()
            )
        if tokens.accept("BYTE"):
            kind = _BINARY_TWINS.get(SYNONYMS.get(kind, kind), kind)
        return kind, arguments, "", charset

    def _finish(
        self,
        name: str,
        parts: tuple[str, str | None, str],
        charset: str | None,
        collation: str | None,
        defaults: tuple[str | None, str | None],
    ) -> ColumnDefinition:
        kind, is_unsigned, length, scale, words = complete_type(*parts)
        if kind == "json" and self._is_mariadb:
            return ColumnDefinition(name, "longtext", charset="utf8mb4", collation="utf8mb4_bin")
        if collation is not None and charset is None:
            charset = collation.partition("_")[0]
            if charset in ("uca1400", "nopad"):  # MariaDB's names of collations without a character set
                charset, collation = defaults[0], f"{defaults[0]}_{collation}"
        if kind in TEXTS and charset is None:
            charset, collation = defaults
        if charset == "utf8":
            charset = "utf8mb3"
        if charset == "binary" and kind in _BINARY_TWINS:
            kind = _BINARY_TWINS[kind]
        if kind not in TEXTS:
            charset = collation = None
        if kind in ("char", "varchar", "binary", "varbinary") or kind not in TEXTS:
            return ColumnDefinition(name, kind, is_unsigned, length, scale, words, charset, collation)
        return ColumnDefinition(name, kind, False, None, None, words, charset, collation)

    def _default(self) -> str | None:
        """Return the text of a default; None for NULL and for expressions."""
        tokens = self.tokens
        sign = tokens.accept_any("-", "+")
        token = tokens.peek()
        if token.word == "(":
            tokens.brackets()
            return None
        tokens.next()
        if token.kind in ("text", "number"):
            return ("-" if sign == "-" else "") + token.text
        if token.word == "NULL":
            return None
        if tokens.peek().kind == "text":  # b'1', x'41', _utf8mb4'tea'
            text = tokens.next().text
            return text if token.text.startswith("_") else f"{token.text.lower()}'{text}'"
        if tokens.peek().word == "(":
            inner = "".join(part.text for part in tokens.brackets())
            return f"{token.text}({inner})" if inner else token.text
        return {"TRUE": "1", "FALSE": "0"}.get(token.word, token.text)

    # --- elements and options --------------------------------------------------------------------------------------

    def primary_key(self) -> tuple[str, ...] | None:
        """Skip an element other than a column; return the columns of a primary key."""
        tokens = self.tokens
        if tokens.accept("CONSTRAINT") and tokens.peek().word not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
            tokens.name()
        if not tokens.accept("PRIMARY", "KEY"):
            tokens.skip_item()
            return None
        while tokens.peek() is not END and tokens.peek().word != "(":
            tokens.next()
        key = tuple(part[0].text for part in split(tokens.brackets()))
        tokens.skip_item()
        return key

    def is_element(self) -> bool:
        """Return whether the next element is something other than a column."""
        token = self.tokens.peek()
        if token.kind == "word" and token.word == "PERIOD":
            return self.tokens.peek(1).word == "FOR"
        if token.word == "VECTOR":
            return self.tokens.peek(1).word in ("INDEX", "KEY", "(")
        return token.kind == "word" and token.word in _ELEMENTS

    def option(self, options: _Options) -> bool:
        """Read a table option; return False if the next token is not an option."""
        tokens = self.tokens
        tokens.accept("DEFAULT")
        if tokens.accept("CHARACTER", "SET") or tokens.accept("CHARSET"):
            tokens.accept("=")
            options.charset = tokens.name().lower()
            options.charset = "utf8mb3" if options.charset == "utf8" else options.charset
        elif tokens.accept("COLLATE"):
            tokens.accept("=")
            options.collation = tokens.name().lower()
        elif tokens.accept("COMMENT"):
            tokens.accept("=")
            options.comment = tokens.name()
        else:
            return False
        return True


@dataclass(frozen=True, slots=True)
class StatementContext:
    """The context in which a statement is applied, besides the captured tables.

    Attributes:
        find: returns the current definition of a table that is not captured; None if it is unknown.
        types: the mapping of column types.
        captures: whether a table that the statement creates is captured.
        find_charset: returns the character set and the collation of a database.
        is_mariadb: whether the server is MariaDB.
    """

    find: Callable[[TableId], TableDefinition | None]
    types: TypeMapping
    captures: Callable[[TableId], bool]
    find_charset: Callable[[str], tuple[str | None, str | None]]
    is_mariadb: bool


def apply_statement(
    event: QueryEvent, known: Mapping[TableId, TableDefinition], context: StatementContext
) -> list[Change]:
    """Apply a statement of the log to the captured tables, `known`, and return the changes.

    Raises:
        FormatError: if a statement about a captured table is not understood.
        UnsupportedError: if a table whose rows were not captured is renamed to a captured name.
    """
    if _STATEMENT.match(event.sql) is None and not event.sql.lstrip().startswith("/*"):
        return []
    try:
        return _Applier(event, known, context).apply()
    except FormatError as error:
        raise FormatError(
            f"a statement of the log is not understood ({error}): {event.sql[:500]!r}. Begin without the state of the "
            "job, at a later position"
        ) from error


@dataclass(slots=True)
class _Alteration:
    """The actions of an ALTER TABLE."""

    added: list[_Column] = field(default_factory=list)
    #: new definitions of existing columns, by their old names in lower case
    changed: dict[str, _Column] = field(default_factory=dict)
    #: changed and added columns, in order
    ordered: list[tuple[str | None, _Column]] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)
    renamed: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str | None] = field(default_factory=dict)
    options: _Options = field(default_factory=_Options)
    converts: tuple[str | None, str | None] | None = None
    primary_key: tuple[str, ...] | None = None
    drops_key: bool = False
    new_name: TableId | None = None


class _Applier:
    def __init__(self, event: QueryEvent, known: Mapping[TableId, TableDefinition], context: StatementContext) -> None:
        self._event = event
        self._known = dict(known)
        self._context = context
        self._types = context.types
        self._tokens = Tokens(tokenize(event))

    def apply(self) -> list[Change]:
        tokens, schema = self._tokens, self._event.schema
        if tokens.accept("CREATE"):
            tokens.accept("OR", "REPLACE")
            return self._create() if tokens.accept("TABLE") else []
        if tokens.accept("ALTER"):
            tokens.accept_any("ONLINE", "OFFLINE")
            tokens.accept("IGNORE")
            return self._alter() if tokens.accept("TABLE") else []
        if tokens.accept("DROP"):
            return self._drop()
        if tokens.accept("TRUNCATE"):
            tokens.accept("TABLE")
            table_id = tokens.table(schema)
            if table_id not in self._known:
                return []
            return [(table_id, self._known[table_id], (events.TruncateTableEvent(table_id),))]
        if tokens.accept("RENAME") and tokens.accept_any("TABLE", "TABLES"):
            tokens.accept("IF", "EXISTS")
            return self._rename()
        return []

    def _drop(self) -> list[Change]:
        tokens, schema = self._tokens, self._event.schema
        if tokens.accept_any("DATABASE", "SCHEMA"):
            tokens.accept("IF", "EXISTS")
            name = tokens.name()
            return [self._gone(table_id) for table_id in self._known if table_id.schema == name]
        if tokens.accept("INDEX"):
            tokens.accept("IF", "EXISTS")
            index = tokens.name()
            if index.upper() != "PRIMARY" or not tokens.accept("ON"):
                return []
            old = self._known.get(tokens.table(schema))
            return [] if old is None else [self._diff(old, replace(old, primary_key=()), _Alteration())]
        if not tokens.accept_any("TABLE", "TABLES"):
            return []
        tokens.accept("IF", "EXISTS")
        dropped = [tokens.table(schema)]
        while tokens.accept(","):
            dropped.append(tokens.table(schema))
        return [self._gone(table_id) for table_id in dropped if table_id in self._known]

    def _gone(self, table_id: TableId) -> Change:
        return table_id, None, (events.DropTableEvent(table_id),)

    def _rename(self) -> list[Change]:
        tokens, schema = self._tokens, self._event.schema
        changes: list[Change] = []
        tables: dict[TableId, TableDefinition | None] = dict(self._known)
        while True:
            old = tokens.table(schema)
            if not tokens.accept("TO"):
                tokens.accept_any("WAIT", "NOWAIT")
                tokens.skip_item()
            else:
                new = tokens.table(schema)
                changes += self._move(old, new, tables)
            if not tokens.accept(","):
                return changes

    def _move(self, old: TableId, new: TableId, tables: dict[TableId, TableDefinition | None]) -> list[Change]:
        """Rename a table: away from a captured name drops it; to a captured name is refused, as its rows are unread."""
        if self._context.captures(new):
            raise UnsupportedError(
                f"table {old} was renamed to {new}, which is captured, but the log does not say which rows it has: "
                "begin without the state of the job, so that the tables are read again"
            )
        if tables.pop(old, None) is None:
            return []
        return [self._gone(old)]

    def _create(self) -> list[Change]:
        tokens, schema = self._tokens, self._event.schema
        if_absent = tokens.accept("IF", "NOT", "EXISTS")
        table_id = tokens.table(schema)
        if not (table_id in self._known or self._context.captures(table_id)) or (if_absent and table_id in self._known):
            return []
        definition = self._created(table_id)
        created = events.CreateTableEvent(table_id, self._types.describe(definition))
        dropped = (events.DropTableEvent(table_id),) if table_id in self._known else ()
        return [(table_id, definition, (*dropped, created))]

    def _created(self, table_id: TableId) -> TableDefinition:
        tokens = self._tokens
        statement = _Statement(tokens, self._context.is_mariadb)
        if tokens.accept("LIKE") or (tokens.peek(1).word == "LIKE" and tokens.accept("(", "LIKE")):
            other = tokens.table(self._event.schema)
            model = self._known.get(other) or self._context.find(other)
            if model is None:
                raise FormatError(f"table {other} is not known")
            return replace(model, table_id=table_id)
        if tokens.peek().word != "(":
            known = self._context.find(table_id)
            if known is None:
                raise FormatError("the columns come from a query")
            return known
        items = split(tokens.brackets())
        options = _Options()
        while tokens.peek() is not END and tokens.peek().word not in ("PARTITION", "AS", "SELECT"):
            if not statement.option(options):
                tokens.next()
        charset, collation = _resolve(options, *self._context.find_charset(table_id.schema))
        columns: list[ColumnDefinition] = []
        key: tuple[str, ...] = ()
        for item in items:
            part = _Statement(Tokens(item), self._context.is_mariadb)
            if part.is_element():
                key = part.primary_key() or key
                continue
            column = part.column(charset, collation)
            columns.append(column.definition)
            if column.is_key:
                key = (column.definition.name,)
        definition = TableDefinition(table_id, tuple(columns), key, charset, collation, options.comment or "")
        return _with_key(definition)

    # --- ALTER TABLE -----------------------------------------------------------------------------------------------

    def _alter(self) -> list[Change]:
        tokens, schema = self._tokens, self._event.schema
        tokens.accept("IF", "EXISTS")
        table_id = tokens.table(schema)
        old = self._known.get(table_id)
        if tokens.accept("WAIT"):
            tokens.next()
        tokens.accept("NOWAIT")
        alteration = _Alteration()
        # Options decide the character set of columns, whatever the order.
        actions = split(tokens.rest())
        for action in actions:
            self._read_options(action, alteration)
        charset, collation = (None, None) if old is None else (old.charset, old.collation)
        charset, collation = _resolve(alteration.options, charset, collation)
        for action in actions:
            part = _Statement(Tokens(action), self._context.is_mariadb)
            self._read_action(part, alteration, old, charset, collation)
        if alteration.new_name is not None:
            changes = self._move(table_id, alteration.new_name, dict(self._known))
            return changes
        if old is None:
            return []
        new = _altered(old, alteration, charset, collation)
        return [self._diff(old, new, alteration)]

    def _read_options(self, action: Sequence[Token], alteration: _Alteration) -> None:
        part = _Statement(Tokens(action), self._context.is_mariadb)
        tokens = part.tokens
        if tokens.accept("CONVERT", "TO"):
            options = _Options()
            while tokens.peek() is not END:
                if not part.option(options):
                    tokens.next()
            alteration.converts = (options.charset, options.collation)
            if alteration.options.charset is None:  # otherwise DEFAULT CHARACTER SET decides
                alteration.options.charset, alteration.options.collation = options.charset, options.collation
            return
        while tokens.peek() is not END and part.option(alteration.options):
            pass

    def _read_action(
        self,
        part: _Statement,
        alteration: _Alteration,
        old: TableDefinition | None,
        charset: str | None,
        collation: str | None,
    ) -> None:
        tokens = part.tokens
        if tokens.accept("ADD"):
            self._read_add(part, alteration, old, charset, collation)
        elif tokens.accept("DROP"):
            self._read_drop(tokens, alteration)
        elif word := tokens.accept_any("MODIFY", "CHANGE"):
            tokens.accept("COLUMN")
            is_optional = tokens.accept("IF", "EXISTS")
            name = tokens.name() if word == "CHANGE" else tokens.peek().text
            if is_optional and old is not None and old.find(name) is None:
                return
            column = part.column(charset, collation)
            alteration.changed[name.lower()] = column
            alteration.ordered.append((name.lower(), column))
        elif tokens.accept("RENAME", "COLUMN"):
            is_optional = tokens.accept("IF", "EXISTS")
            name = tokens.name()
            tokens.accept("TO")
            if not (is_optional and old is not None and old.find(name) is None):
                alteration.renamed[name.lower()] = tokens.name()
        elif tokens.accept("RENAME"):
            if not tokens.accept_any("INDEX", "KEY"):
                tokens.accept_any("TO", "AS", "=")
                alteration.new_name = tokens.table(self._event.schema)
        elif tokens.accept("ALTER"):
            if tokens.peek().word in ("INDEX", "KEY", "CHECK", "CONSTRAINT") and tokens.peek(1).word != "SET":
                return
            tokens.accept("COLUMN")
            tokens.accept("IF", "EXISTS")
            name = tokens.name().lower()
            if tokens.accept("SET", "DEFAULT"):
                alteration.defaults[name] = part._default()
            elif tokens.accept("DROP", "DEFAULT"):
                alteration.defaults[name] = None

    def _read_add(
        self,
        part: _Statement,
        alteration: _Alteration,
        old: TableDefinition | None,
        charset: str | None,
        collation: str | None,
    ) -> None:
        tokens = part.tokens
        if part.is_element():
            alteration.primary_key = part.primary_key() or alteration.primary_key
            return
        if tokens.accept("PARTITION") or tokens.accept("SYSTEM", "VERSIONING"):
            return
        tokens.accept("COLUMN")
        is_optional = tokens.accept("IF", "NOT", "EXISTS")
        parts = [part]
        if tokens.peek().word == "(":
            parts = [_Statement(Tokens(item), part._is_mariadb) for item in split(tokens.brackets())]
        for item in parts:
            if item.is_element():
                alteration.primary_key = item.primary_key() or alteration.primary_key
                continue
            column = item.column(charset, collation)
            if is_optional and old is not None and old.find(column.definition.name) is not None:
                continue
            alteration.added.append(column)
            alteration.ordered.append((None, column))
            if column.is_key:
                alteration.primary_key = (column.definition.name,)

    @staticmethod
    def _read_drop(tokens: Tokens, alteration: _Alteration) -> None:
        if tokens.accept("PRIMARY", "KEY"):
            alteration.drops_key = True
        elif tokens.accept_any("INDEX", "KEY"):
            tokens.accept("IF", "EXISTS")
            alteration.drops_key |= tokens.name().upper() == "PRIMARY"
        elif (
            tokens.accept_any("FOREIGN", "CHECK", "CONSTRAINT", "PARTITION")
            or tokens.accept("PERIOD", "FOR")
            or tokens.accept("SYSTEM", "VERSIONING")
        ):
            tokens.skip_item()
        else:
            tokens.accept("COLUMN")
            tokens.accept("IF", "EXISTS")
            alteration.dropped.add(tokens.name().lower())

    def _diff(self, old: TableDefinition, new: TableDefinition, alteration: _Alteration) -> Change:
        """Return the change of a table with the events that describe it."""
        table_id, types = old.table_id, self._types
        changes: list[SchemaChangeEvent] = [
            events.DropColumnEvent(table_id, column.name)
            for column in old.columns
            if column.name.lower() in alteration.dropped
        ]
        names: dict[str, str] = {
            column.name: alteration.renamed.get(column.name.lower(), column.name) for column in old.columns
        }
        for column in old.columns:
            changed = alteration.changed.get(column.name.lower())
            if changed is not None:
                names[column.name] = changed.definition.name
        changes += _rename_columns(table_id, names)
        before = {names[column.name]: column for column in old.columns if column.name.lower() not in alteration.dropped}
        added = {column.definition.name for column in alteration.added}
        previous: str | None = None
        adds: list[SchemaChangeEvent] = []
        for column in new.columns:
            if column.name in added:
                position = ColumnPosition(first=previous is None, after=previous)
                adds.append(events.AddColumnEvent(table_id, types.describe_column(column), position))
            elif types.describe_column(replace(before[column.name], name=column.name)) != types.describe_column(column):
                changes.append(events.AlterColumnTypeEvent(table_id, types.describe_column(column)))
            previous = column.name
        changes += adds
        schema = types.describe(old)
        for change in changes:
            schema = schema.apply(change)
        if schema != types.describe(new):
            changes.append(events.CreateTableEvent(table_id, types.describe(new)))
        return table_id, new, tuple(changes)


def _rename_columns(table_id: TableId, names: Mapping[str, str]) -> list[SchemaChangeEvent]:
    """Return the events that rename columns, including columns that swap their names."""
    waiting = {old: new for old, new in names.items() if old != new}
    renames: list[SchemaChangeEvent] = []
    while waiting:
        free = next((old for old, new in waiting.items() if new not in waiting), None)
        if free is None:
            old, new = next(iter(waiting.items()))
            between = f"{old}__renamed"
            renames.append(events.RenameColumnEvent(table_id, old, between))
            del waiting[old]
            waiting[between] = new
            continue
        renames.append(events.RenameColumnEvent(table_id, free, waiting.pop(free)))
    return renames


def _resolve(options: _Options, charset: str | None, collation: str | None) -> tuple[str | None, str | None]:
    """Return the character set and the collation after options override the defaults of a table or database."""
    if options.charset is None and options.collation is None:
        return charset, collation
    if options.charset is None and options.collation is not None:
        prefix = options.collation.partition("_")[0]
        if prefix in ("uca1400", "nopad"):
            return charset, f"{charset}_{options.collation}"
        return ("utf8mb3" if prefix == "utf8" else prefix), options.collation
    return options.charset, options.collation


def _altered(
    old: TableDefinition, alteration: _Alteration, charset: str | None, collation: str | None
) -> TableDefinition:
    """Return a table after the actions of an ALTER TABLE, in the order in which the server applies them."""
    columns: list[ColumnDefinition] = []
    names: dict[str, str] = {}

    def convert(column: ColumnDefinition) -> ColumnDefinition:
        """Apply CONVERT TO CHARACTER SET to a column; it overrides the other clauses of the same statement."""
        if alteration.converts is None or column.kind not in TEXTS:
            return column
        wanted = _Options()
        wanted.charset, wanted.collation = alteration.converts
        to_charset, to_collation = _resolve(wanted, charset, collation)
        return replace(column, charset=to_charset, collation=to_collation)

    for column in old.columns:
        key = column.name.lower()
        if key in alteration.dropped:
            continue
        changed = alteration.changed.get(key)
        if changed is not None:
            names[key] = changed.definition.name
            if changed.position is None:
                columns.append(convert(changed.definition))
            continue
        column = convert(column)
        if key in alteration.defaults:
            column = replace(column, default=alteration.defaults[key])
        if key in alteration.renamed:
            names[key] = alteration.renamed[key]
            column = replace(column, name=alteration.renamed[key])
        columns.append(column)
    for was, defined in alteration.ordered:
        position = defined.position
        if was is not None and position is None:
            continue
        if position is None:
            columns.append(convert(defined.definition))
        elif position.first:
            columns.insert(0, convert(defined.definition))
        else:
            after = (position.after or "").lower()
            index = next((i for i, column in enumerate(columns) if column.name.lower() == after), None)
            if index is None:
                raise FormatError(f"there is no column {position.after!r} in {old.table_id}")
            columns.insert(index + 1, convert(defined.definition))
    primary_key = () if alteration.drops_key else old.primary_key
    primary_key = tuple(names.get(name.lower(), name) for name in primary_key if name.lower() not in alteration.dropped)
    if alteration.primary_key is not None:
        primary_key = alteration.primary_key
    keys = [column.definition.name for _, column in alteration.ordered if column.is_key]
    if keys and alteration.primary_key is None:
        primary_key = (keys[-1],)
    comment = old.comment if alteration.options.comment is None else alteration.options.comment
    return _with_key(TableDefinition(old.table_id, tuple(columns), primary_key, charset, collation, comment))


def _with_key(definition: TableDefinition) -> TableDefinition:
    """Return a table whose key columns are not nullable."""
    key = {name.lower() for name in definition.primary_key}
    columns = tuple(
        replace(column, is_nullable=False) if column.name.lower() in key else column for column in definition.columns
    )
    return replace(definition, columns=columns)
