"""Writing into MySQL and MariaDB: upserts and deletes by key, inserts, and statements; at least or exactly once.

`JdbcSink` and the table connector `jdbc` choose these classes by the URL. Buffers and guarantees are the same as in
`penstock.connectors.postgres.sink`, which says why a **ledger** records the commits of exactly-once sinks, and not
prepared transactions. XA has the same flaws here: a prepared transaction survives its client and the server, and keeps
its locks, so that an upsert of the same key waits for it; and committing one twice is the same error as committing one
that was rolled back (1397, unknown XID). MariaDB's sessions also do nothing else until a prepared transaction ends.

**The ledger** has a row for each run of a writer, with the ranges of its numbers as text, such as `1-9000,9002-9002`.
The row is locked, read, and written in the transaction that writes the rows. Tables must have a transactional engine,
such as InnoDB.

**Upserts.** `INSERT … ON DUPLICATE KEY UPDATE` takes the row of *any* unique index that the new row violates. So the
table must have a unique index of exactly the key columns; without one, rows would come twice. If it has others, each
statement checks that the row to update has the key, and fails otherwise, as PostgreSQL does.

**Equal keys.** Keys that differ here may be equal in the database: most collations ignore case, and columns store fewer
digits than a type has. Where that may be so, the changes of a batch are executed in their order. Otherwise only the
last change of each key is written.

Values are sent as literals in statements with many rows, see `values.to_literals`.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import ConfigurationError, FormatError, OperationError, UnsupportedError
from penstock.connectors.mysql import client, values
from penstock.connectors.postgres.sink import HeldRows, Statement, Writing
from penstock.runtime.connector import Committer

#: The approximate size of a statement in bytes, unless a row is longer.
STATEMENT_BYTES: Final = 1 << 20
#: The keys of one DELETE.
_DELETES_MAX: Final = 1_000
#: How long (s) a process that stalls in the middle of a transaction may hold its locks.
_IDLE_S: Final = 60
_SUBQUERY_ROWS: Final = 1242
_INTEGERS: Final = ("tinyint", "smallint", "mediumint", "int", "bigint")


def limit_idleness(connection: Any) -> None:
    """Have the server end transactions of this session whose client stalls."""
    if client.read_server(connection).dialect == client.MARIADB:
        client.execute(connection, f"SET SESSION idle_transaction_timeout = {_IDLE_S}")


@dataclass(frozen=True, slots=True)
class MySqlTarget:
    """The table to write.

    Attributes:
        table: its path.
        names: the names of the written columns, in order.
        key: the positions of the key columns; empty if rows are only inserted.
        is_exactly_once: whether rows and ledger are written in one transaction.
    """

    table: str
    names: tuple[str, ...]
    key: tuple[int, ...]
    is_exactly_once: bool = False


class TableWriting:
    """Writes columns within a transaction."""

    def __init__(self, target: MySqlTarget) -> None:
        self._target = target
        self._table = client.quoted_path(target.table)
        self._connection: Any = None
        self._relation: client.Relation | None = None
        self._longest = 0
        self._guards = False

    def prepare(self, connection: Any) -> None:
        """Prepare a connection, outside a transaction.

        Raises:
            MissingPathError: if the table does not exist.
            UnknownNameError: if it does not have one of the columns.
            ConfigurationError: if it has no unique index of the key columns.
            UnsupportedError: if it is not transactional, and rows are to be written exactly once.
        """
        if connection is self._connection:
            return
        target = self._target
        relation = client.read_relation(connection, target.table)
        for name in target.names:
            if relation.column(name).is_generated:
                raise ConfigurationError(
                    f"column {name!r} of table {relation.path} is computed by the server: leave it out of the table "
                    "that is written"
                )
        key = {relation.column(target.names[index]).name for index in target.key}
        if key and key not in [set(names) for names in relation.uniques]:
            raise ConfigurationError(
                f"table {relation.path} has no unique index of {', '.join(sorted(key))}, so rows could not be replaced "
                "by that key: create one, or declare another PRIMARY KEY"
            )
        if target.is_exactly_once:
            check_engine(connection, relation.path)
        self._guards = any(set(names) != key for names in relation.uniques)
        self._longest = read_longest(connection)
        limit_idleness(connection)
        self._relation, self._connection = relation, connection

    def run(self, connection: Any, columns: Sequence[pa.Array], deleted: Any) -> None:
        """Write rows, in an open transaction. `deleted` is a mask of the deletions."""
        assert self._relation is not None
        literals = [values.to_literals(column, name) for column, name in zip(columns, self._target.names, strict=True)]
        with self._naming():
            if not self._target.key:
                self._insert(connection, literals)
                return
            bounds = [0, *(np.flatnonzero(np.diff(deleted.astype(np.int8))) + 1), len(deleted)]
            for begin, end in pairwise(map(int, bounds)):
                part = [column.slice(begin, end - begin) for column in literals]
                if begin < end and deleted[begin]:
                    self._delete(connection, part)
                elif begin < end:
                    self._insert(connection, part)

    def has_exact_keys(self, kinds: Sequence[pa.DataType]) -> bool:
        """Return whether key columns of these types keep all values distinct that differ here."""
        assert self._relation is not None
        stored = [self._relation.column(self._target.names[index]) for index in self._target.key]
        return all(
            (pa.types.is_integer(kind) and column.kind in _INTEGERS)
            or (pa.types.is_date(kind) and column.kind == "date")
            or (pa.types.is_binary(kind) and column.kind == "varbinary")
            or (pa.types.is_string(kind) and column.collation == "utf8mb4_0900_bin")
            for kind, column in zip(kinds, stored, strict=True)
        )

    def _naming(self) -> Any:
        return _RefusedRows(self._table, self._target)

    def _insert(self, connection: Any, columns: Sequence[pa.Array]) -> None:
        names = ", ".join(map(client.quoted, self._target.names))
        head, tail = f"INSERT INTO {self._table} ({names}) VALUES ", self._clause()
        longest = self._longest - len((head + tail).encode())
        for rows in split_rows(values.to_rows(columns), longest, f"table {self._table}"):
            client.execute(connection, head + rows + tail)

    def _clause(self) -> str:
        target = self._target
        if not target.key:
            return ""
        key = [client.quoted(target.names[index]) for index in target.key]
        others = [client.quoted(name) for name in target.names if client.quoted(name) not in key]
        # With no other column, a column of the key keeps its value.
        sets = [f"{name} = VALUES({name})" for name in others] or [f"{key[0]} = {key[0]}"]
        if self._guards:
            first, _, value = sets[0].partition(" = ")
            same = " AND ".join(f"{name} <=> VALUES({name})" for name in key)
            # Two rows where one value belongs are an error of the statement.
            sets[0] = f"{first} = IF({same}, {value}, (SELECT 1 UNION ALL SELECT 2))"
        return " ON DUPLICATE KEY UPDATE " + ", ".join(sets)

    def _delete(self, connection: Any, columns: Sequence[pa.Array]) -> None:
        target = self._target
        names = [client.quoted(target.names[index]) for index in target.key]
        keys = [columns[index].to_pylist() for index in target.key]
        for begin in range(0, len(keys[0]), _DELETES_MAX):
            parts = [texts[begin : begin + _DELETES_MAX] for texts in keys]
            if len(names) == 1:
                condition = f"{names[0]} IN ({','.join(parts[0])})"
            else:
                rows = zip(*parts, strict=True)
                condition = " OR ".join(
                    "(" + " AND ".join(f"{name} = {text}" for name, text in zip(names, row, strict=True)) + ")"
                    for row in rows
                )
            client.execute(connection, f"DELETE FROM {self._table} WHERE {condition}")


def split_rows(rows: pa.Array, longest: int, table: str) -> Iterator[str]:
    """Yield the rows in lists of about `STATEMENT_BYTES`, and never of more bytes than the longest.

    Raises:
        OperationError: for a row that is longer.
    """
    sizes = np.cumsum(pc.binary_length(rows).to_numpy().astype(np.int64) + 1)
    begin, done = 0, 0
    while begin < len(rows):
        end = max(begin + 1, int(np.searchsorted(sizes, done + min(STATEMENT_BYTES, longest), "right")))
        size = int(sizes[end - 1]) - done
        if size > longest:
            raise OperationError(
                f"a row of {table} makes a statement of {size} bytes, and the server takes {longest}: raise its "
                "variable max_allowed_packet"
            )
        yield ",".join(rows.slice(begin, end - begin).to_pylist())
        begin, done = end, done + size


def read_longest(connection: Any) -> int:
    """Return how many bytes a statement may have, with some to spare."""
    return int(client.query(connection, "SELECT @@max_allowed_packet")[0][0]) - 1_024


class _RefusedRows:
    """Names errors of statements that write rows."""

    def __init__(self, table: str, target: MySqlTarget) -> None:
        self._table = table
        self._target = target

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if not isinstance(error, client.load_library().err.MySQLError) or client.is_passing(error):
            return
        if client.get_error_code(error) == _SUBQUERY_ROWS:
            key = ", ".join(self._target.names[index] for index in self._target.key)
            raise OperationError(
                f"a row of table {self._table} has, in a unique index besides that of {key}, the values of another "
                "row: rows are replaced by their key alone"
            ) from error
        raise OperationError(f"the server refuses rows of table {self._table}: {client.describe(error)}") from error


def check_engine(connection: Any, path: str) -> None:
    """Raise `UnsupportedError` unless a table has transactions. Views are not checked. `path`: its quoted path."""
    names = client.split_path(path)
    rows = client.query(
        connection,
        "SELECT t.ENGINE, e.TRANSACTIONS FROM information_schema.TABLES AS t JOIN information_schema.ENGINES AS e "
        "ON e.ENGINE = t.ENGINE WHERE t.TABLE_SCHEMA = %s AND t.TABLE_NAME = %s",
        names,
    )
    for engine, transactions in rows:
        if transactions != "YES":
            raise UnsupportedError(
                f"table {path} has the engine {engine}, which has no transactions: rows can be written into it at "
                "least once; exactly once needs one such as InnoDB"
            )


class MySqlLedger(Committer[HeldRows]):
    """Writes each committable together with its name, in one transaction each.

    Args:
        link: the connection.
        ledger_table: the path of the ledger.
        retries: how often a commit is retried.
        writing: writes the rows of a committable.
    """

    def __init__(self, link: client.MySqlLink, ledger_table: str, retries: int, writing: Writing) -> None:
        self._link = link
        self._ledger = client.quoted_path(ledger_table)
        self._retries = retries
        self._writing = writing
        self._ready: Any = None

    def commit(self, committables: Sequence[HeldRows]) -> None:
        """See `Committer`."""
        for committable in committables:
            self._link.retrying(self._retries, partial(self._commit, committable))

    def _commit(self, committable: HeldRows, connection: Any) -> None:
        self._prepare(connection)
        run = client.literal(committable.run)
        with client.transaction(connection):
            # This also locks the row, so that another commit of the run waits here.
            client.execute(
                connection,
                f"INSERT INTO {self._ledger} (run, numbers) VALUES ({run}, '') ON DUPLICATE KEY UPDATE run = run",
            )
            ((text,),) = client.query(connection, f"SELECT numbers FROM {self._ledger} WHERE run = {run} FOR UPDATE")
            numbers = add_number(text, committable.number)
            if numbers is None:
                return
            self._writing.run(connection, committable.rows)
            client.execute(
                connection,
                f"UPDATE {self._ledger} SET numbers = '{numbers}', committed_at = UTC_TIMESTAMP(6) WHERE run = {run}",
            )

    def _prepare(self, connection: Any) -> None:
        if connection is self._ready:
            return
        with client.naming(f"the ledger {self._ledger} cannot be made"):
            if not _exists(connection, self._ledger):
                client.execute(
                    connection,
                    f"CREATE TABLE IF NOT EXISTS {self._ledger} (run VARCHAR(512) CHARACTER SET utf8mb4 "
                    "COLLATE utf8mb4_bin PRIMARY KEY, numbers LONGTEXT CHARACTER SET ascii NOT NULL, "
                    "committed_at DATETIME(6) NULL) ENGINE = InnoDB",
                )
            check_engine(connection, client.read_relation(connection, self._ledger).path)
        self._writing.prepare(connection)
        self._ready = connection

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


def _exists(connection: Any, path: str) -> bool:
    names = client.split_path(path)
    rows = client.query(
        connection,
        "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = COALESCE(%s, DATABASE()) AND TABLE_NAME = %s",
        (names[0] if len(names) == 2 else None, names[-1]),
    )
    return bool(rows)


def add_number(text: str, number: int) -> str | None:
    """Add a number to ranges such as `1-4,6-6`; return None if they have it.

    Examples:
        >>> from penstock.connectors.mysql.sink import add_number
        >>> add_number("1-4,6-6", 5), add_number("1-4", 3), add_number("", 7)
        ('1-6', None, '7-7')
    """
    ranges = [tuple(map(int, part.split("-"))) for part in text.split(",") if part]
    if any(low <= number <= high for low, high in ranges):
        return None
    merged: list[list[int]] = []
    for low, high in sorted([*ranges, (number, number)]):
        if merged and merged[-1][1] == low - 1:
            merged[-1][1] = high
        else:
            merged.append([low, high])
    return ",".join(f"{low}-{high}" for low, high in merged)


#: parts of a statement that are not searched for `?`: literals, quoted names, comments
_OPAQUE: Final = re.compile(
    r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\"|`(?:[^`]|``)*`|--[ \t][^\n]*|#[^\n]*|/\*.*?\*/", re.DOTALL
)


def parse_statement(sql: str) -> Statement:
    """Parse a statement with `?` for the values of a row. Raises `ConfigurationError` if it has none."""
    parts: list[str] = []
    count = at = 0
    while at < len(sql):
        opaque = _OPAQUE.match(sql, at)
        text = opaque[0] if opaque is not None else sql[at]
        at += len(text)
        if text == "?":
            count += 1
            parts.append("%s")
        else:
            parts.append(text.replace("%", "%%"))
    if not count:
        raise ConfigurationError(f"the statement has no ? for the values of a record: {sql}")
    return Statement(sql, "".join(parts), count, None)


#: An INSERT of one row of placeholders, with the text before and after it.
_PLAIN: Final = re.compile(
    r"(?P<head>\s*(?:INSERT|REPLACE)\b[^%]*?\bVALUES\s*)\(\s*%s(?:\s*,\s*%s)*\s*\)"
    r"(?P<tail>\s*(?:(?:AS|ON\s+DUPLICATE)\s[^%]*)?)",
    re.IGNORECASE,
)


class StatementWriting:
    """Executes a statement for rows, once per transaction. An INSERT is sent with many rows at a time."""

    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        self._connection: Any = None
        self._longest = 0
        match = _PLAIN.fullmatch(statement.executed.rstrip(" ;\n"))
        is_plain = match is not None and statement.executed.count("%s") == statement.count
        self._ends = (match["head"], match["tail"]) if match is not None and is_plain else None

    def prepare(self, connection: Any) -> None:
        """Prepare a connection, outside a transaction."""
        if connection is not self._connection:
            limit_idleness(connection)
            self._longest = read_longest(connection)
            self._connection = connection

    def run(self, connection: Any, rows: Sequence[Sequence[Any]]) -> None:
        """Execute the statement for each row, in an open transaction."""
        statement = self._statement
        literals = None if self._ends is None else to_literal_rows(rows)
        with client.naming(f"the server refuses what {statement.sql!r} writes"):
            if self._ends is not None and literals is not None:
                head, tail = self._ends
                longest = self._longest - len((head + tail).encode())
                for some in split_rows(literals, longest, f"{statement.sql!r}"):
                    client.execute(connection, head + some + tail)
                return
            with connection.cursor() as cursor:
                cursor.executemany(statement.executed, [tuple(map(to_parameter, row)) for row in rows])


def to_literal_rows(rows: Sequence[Sequence[Any]]) -> pa.Array | None:
    """Return rows as `(a,b)` in SQL; None if the values of a field have no common type.

    Raises:
        FormatError: for NaN and infinity.
    """
    try:
        columns = [pa.array(column) for column in zip(*rows, strict=True)]
        literals = [values.to_literals(column, f"#{number}") for number, column in enumerate(columns, 1)]
    except (pa.ArrowException, UnsupportedError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, FormatError):
            raise
        return None
    return values.to_rows(literals)


def to_parameter(value: Any) -> Any:
    """Convert a value for PyMySQL: moments are in UTC, and values of NumPy are plain."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, list | tuple | dict | set | frozenset):
        raise UnsupportedError(
            f"MySQL and MariaDB have no {type(value).__name__}: write it as text, such as JSON, not {value!r}"
        )
    return value
