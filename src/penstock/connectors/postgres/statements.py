"""Statements of JDBC with their rows: what `?` is, and how many rows are written quickly.

Most statements of sinks are plain: `INSERT INTO table (columns) VALUES (?, …)`, perhaps with an ON CONFLICT that does
nothing or replaces the whole row. Many rows of such a statement go by COPY, which takes a tenth of the time:

- without ON CONFLICT, straight into the table;
- with it, into a temporary table of the session, from which one INSERT … SELECT takes them. An INSERT may not touch a
  row twice, so of rows of one key only the last goes there. The others it would have replaced anyhow. Keys may be equal
  in the database alone (citext, timestamp(0)); it then refuses the INSERT, and the rows are executed one by one.

All other statements, few rows at a time, and what is no plain table (views, tables with rules) are executed row by
row, in a pipeline: psycopg waits for no answer before it sends the next.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.base.errors import ConfigurationError
from penstock.connectors.postgres.client import driver, naming

if TYPE_CHECKING:
    import psycopg

#: Fewer rows are not worth a COPY, which takes more turns.
COPY_ROWS_MIN: Final = 20
_NAME = r'(?:"(?:[^"]|"")+"|[A-Za-z_][\w$]*)'
_NAMES = rf"{_NAME}(?:\s*,\s*{_NAME})*"
_INSERT = re.compile(
    rf"\s*INSERT\s+INTO\s+(?P<table>{_NAME}(?:\.{_NAME})*)\s*\(\s*(?P<columns>{_NAMES})\s*\)\s*"
    r"VALUES\s*\((?P<values>\s*\?(?:\s*,\s*\?)*)\s*\)\s*(?P<conflict>ON\s+CONFLICT\b[^;?]*)?;?\s*",
    re.IGNORECASE,
)
_CONFLICT = re.compile(
    rf"ON\s+CONFLICT\s*(?:\(\s*(?P<key>{_NAMES})\s*\))?\s*DO\s+(?:(?P<nothing>NOTHING)|UPDATE\s+SET\s+(?P<set>.*))",
    re.IGNORECASE | re.DOTALL,
)
_ASSIGNMENT = re.compile(rf"\s*(?P<to>{_NAME})\s*=\s*EXCLUDED\s*\.\s*(?P<from>{_NAME})\s*", re.IGNORECASE)
#: what is not looked at for `?`: texts, names in quotes, comments, texts between dollars
_OPAQUE = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PlainInsert:
    """An INSERT that COPY can do.

    Attributes:
        table: where to, as the statement has it.
        columns: their names, as the statement has them.
        conflict: the clause, or the empty text.
        key: the places of the columns by which the last row replaces the others; None where none does.
    """

    table: str
    columns: tuple[str, ...]
    conflict: str = ""
    key: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement with `?` for the values of a row.

    Attributes:
        sql: as JDBC writes it.
        executed: as psycopg does, with `%s`.
        count: how many values it takes.
        plain: what it is if COPY can do it.
    """

    sql: str
    executed: str
    count: int
    plain: PlainInsert | None

    @staticmethod
    def of(sql: str) -> Statement:
        """Raises `ConfigurationError` for a statement without a place for a value."""
        executed, count = _with_places(sql)
        if not count:
            raise ConfigurationError(f"the statement has no ? for the values of a record: {sql}")
        return Statement(sql, executed, count, _plain(sql))


def _with_places(sql: str) -> tuple[str, int]:
    """The statement with `%s` for each `?`, and how many there are. `??` stands for the operator `?`."""
    parts: list[str] = []
    count = at = 0
    while at < len(sql):
        opaque = _OPAQUE.match(sql, at)
        if opaque is not None:
            parts.append(opaque[0].replace("%", "%%"))
            at = opaque.end()
            continue
        letter = sql[at]
        if letter == "?" and sql[at + 1 : at + 2] == "?":
            at += 1
        elif letter == "?":
            letter, count = "%s", count + 1
        elif letter == "%":
            letter = "%%"
        parts.append(letter)
        at += 1
    return "".join(parts), count


def _plain(sql: str) -> PlainInsert | None:
    found = _INSERT.fullmatch(sql)
    if found is None:
        return None
    columns = _split(found["columns"])
    if len(columns) != found["values"].count("?"):
        return None
    conflict = (found["conflict"] or "").strip()
    if not conflict:
        return PlainInsert(found["table"], columns)
    clause = _CONFLICT.fullmatch(conflict)
    if clause is None:
        return None
    if clause["nothing"]:
        return PlainInsert(found["table"], columns, conflict)
    places = {_folded(column): place for place, column in enumerate(columns)}
    key = [_folded(one) for one in _split(clause["key"] or "")]
    assigned = [_ASSIGNMENT.fullmatch(part) for part in clause["set"].split(",")]
    if not key or not all(one is not None and _folded(one["to"]) == _folded(one["from"]) for one in assigned):
        return None
    replaced = {_folded(one["to"]) for one in assigned if one is not None}
    if not set(key) <= places.keys() or not places.keys() - set(key) <= replaced <= places.keys():
        return None
    return PlainInsert(found["table"], columns, conflict, tuple(places[one] for one in key))


def _split(names: str) -> tuple[str, ...]:
    return tuple(re.findall(_NAME, names))


def _folded(name: str) -> str:
    """A name as the server knows it."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()


class Execution:
    """Executes a statement for rows on connections that come and go; once in a transaction."""

    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        self._connection: psycopg.Connection[Any] | None = None
        self._copies = False
        digest = hashlib.blake2b(statement.sql.encode(), digest_size=6).hexdigest()
        self._stage = f"penstock_{digest}"

    def prepare(self, connection: psycopg.Connection[Any]) -> None:
        """Get a connection ready; call it outside of a transaction."""
        if connection is self._connection:
            return
        plain = self._statement.plain
        self._copies = plain is not None and is_plain_table(connection, plain.table)
        if plain is not None and self._copies and plain.conflict:
            with naming(f"cannot make a temporary table for {plain.table}"):
                connection.execute(
                    f"CREATE TEMP TABLE IF NOT EXISTS {self._stage} ON COMMIT DELETE ROWS AS "
                    f"SELECT {', '.join(plain.columns)} FROM {plain.table} WITH NO DATA"
                )
        self._connection = connection

    def run(self, connection: psycopg.Connection[Any], rows: Sequence[Sequence[Any]]) -> None:
        """Execute it for each row, in a transaction that is open already."""
        statement = self._statement
        with naming(f"PostgreSQL refuses what {statement.sql!r} writes"):
            if statement.plain is not None and self._copies and len(rows) >= COPY_ROWS_MIN:
                self._copy(connection, statement.plain, rows)
            else:
                with connection.cursor() as cursor:
                    cursor.executemany(statement.executed, rows)

    def _copy(self, connection: psycopg.Connection[Any], plain: PlainInsert, rows: Sequence[Sequence[Any]]) -> None:
        names = ", ".join(plain.columns)
        target = self._stage if plain.conflict else plain.table
        last = rows if plain.key is None else _last_of_each(rows, plain.key)
        with connection.cursor() as cursor:
            with cursor.copy(f"COPY {target} ({names}) FROM STDIN") as copy:
                for row in last:
                    copy.write_row(row)
            if not plain.conflict:
                return
            insert = f"INSERT INTO {plain.table} ({names}) SELECT {names} FROM {target} {plain.conflict}"
            if plain.key is None:
                cursor.execute(insert)
                return
            try:
                with connection.transaction():
                    cursor.execute(insert)
            except driver().errors.CardinalityViolation:
                cursor.executemany(self._statement.executed, rows)


def _last_of_each(rows: Sequence[Sequence[Any]], key: Sequence[int]) -> Sequence[Sequence[Any]]:
    """The last row of each key."""
    if len(key) == 1:
        place = key[0]
        found: dict[Any, Sequence[Any]] = {row[place]: row for row in rows}
    else:
        found = {tuple(row[place] for place in key): row for row in rows}
    return rows if len(found) == len(rows) else list(found.values())


def is_plain_table(connection: psycopg.Connection[Any], table: str) -> bool:
    """Whether COPY can write into it as INSERT does. `table`: as SQL has it."""
    found = connection.execute(
        "SELECT relkind IN ('r', 'p') AND NOT relhasrules FROM pg_class WHERE oid = to_regclass(%s)", (table,)
    ).fetchone()
    return found is not None and bool(found[0])
