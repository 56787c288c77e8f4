"""`JdbcSink`: writes records to PostgreSQL with an SQL statement, at least once, or exactly once through a ledger.

**Exactly once.** Rows must stay invisible until the checkpoint that covers them is complete, and must be written
exactly once, although after a failure it is unknown whether a commit succeeded. Two designs were considered.

**PREPARE TRANSACTION** (used by Flink's `JdbcExactlyOnceOptions`, through XA). A writer inserts into an open
transaction and prepares it at the barrier; the prepared transaction survives any failure and is committed when the
checkpoint is complete.

- A prepared transaction holds its locks. If the writer's next transaction touches one of its keys, it waits for the
  prepared one, in the very thread that should commit it: upserting the same key in two checkpoints blocks forever.
- It has no owner. If its job disappears, it stays with its locks and holds back VACUUM for the whole server. Who may
  roll it back? A new attempt may, if it knows every checkpoint and savepoint that may name it, as with part files
  (`connectors/file/part_files.py`); but a forgotten file does no harm.
- Committing twice fails with "does not exist", which is the same error as for a transaction that an administrator
  rolled back. Data loss would look like success.
- It is off by default (`max_prepared_transactions = 0`), and turning it on needs a server restart; many users who rent
  a server, or reach it through a pooler, cannot do that.

**A ledger.** The writer holds rows until the barrier and returns them as a committable, which the checkpoint stores.
When the checkpoint is complete, one transaction writes the rows *and* records in a table that it did so. This design is
implemented here.

- *Duplicates.* A committable is named by the run of its writer (a string that no two runs share) and a number. A
  transaction that finds the name in the ledger does nothing. The rows and the name are written in the same transaction,
  so neither exists without the other.
- *Lost replies.* A commit whose reply was lost is retried, and the ledger shows whether it succeeded.
- *Zombies.* A task that was given up but still runs may commit at the same time as its successor. The first of them
  locks the run's row in the ledger; the second waits and then finds the name. The successor writes nothing newer before
  that, since restored committables are committed before its writer begins. If a zombie stalls in the middle of its
  transaction, the server ends it after `idle_in_transaction_session_timeout`, which every connection sets.
- *No leftovers.* Until the commit, the server has no lock, no transaction and no staged row. Rows without a complete
  checkpoint vanish with the process. Nothing ever needs to be rolled back, and a savepoint owns its rows because it
  contains them.
- *Order.* The rows of a key go to one run at a time, and the committables of a run are committed in order: at another
  parallelism, all of them go to one subtask. All restored committables are committed before the first checkpoint of the
  new attempt, which needs every task. So of two changes of a key, the later one is committed later.
- *Size.* The ledger does not rely on that order. It stores all numbers of a run as ranges: a run that has committed 1
  to 9000 is one row with `{[1,9001)}`. So the ledger grows by a row per writer and attempt, not per checkpoint.
- *Old savepoints.* A job that starts from an old savepoint finds its committables in the ledger, however old they are.
  Penstock never deletes rows of the ledger: delete the rows whose `committed_at` is older than every savepoint that you
  keep.

The cost: the rows between two checkpoints are kept in memory and in the checkpoint. Checkpoints every few seconds bound
it. For more rows than fit into memory, use the sink that writes immediately, with an idempotent statement.

**Buffers.** `GatheringWriter` buffers rows, or parts with columns (`Writing`).

**Statements.** `Statement` parses the `?` of a JDBC statement, and `Execution` writes many rows quickly. Most sink
statements are plain: `INSERT INTO table (columns) VALUES (?, …)`, perhaps with an ON CONFLICT that does nothing or
replaces the whole row. Many rows of such a statement are written with COPY, which takes a tenth of the time:

- without ON CONFLICT, straight into the table;
- with ON CONFLICT, into a temporary table of the session, followed by one INSERT … SELECT. An INSERT may not touch a
  row twice, so only the last row of each key is copied; it would have replaced the others anyway. Keys may be equal
  only in the database (citext, timestamp(0)); the server then refuses the INSERT, and the rows are executed one by one.

All other statements, small numbers of rows, and targets other than plain tables (views, tables with rules) are executed
row by row, in a pipeline: psycopg sends the next row without waiting for an answer.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.base.errors import ConfigurationError, MisuseError, UnsupportedError
from penstock.base.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation
from penstock.base.types import Row, RowKind, values_by_names
from penstock.connectors.postgres import client
from penstock.runtime.connector import Committer, RecordError, Sink, SinkWriter, SinkWriterContext

if TYPE_CHECKING:
    import psycopg


#: The key for `pg_advisory_xact_lock`, so that two subtasks do not create the table at the same time.
_MAKING: Final = zlib.crc32(b"penstock ledger")


@dataclass(frozen=True, slots=True)
class HeldRows:
    """A committable: rows to write, under a unique name.

    Attributes:
        run: the run of the writer.
        number: counted from 1 within the run.
        rows: in the form that the sink's `Writing` expects.
    """

    run: str
    number: int
    rows: Any


def run_name(context: SinkWriterContext) -> str:
    """Return the name of a run: no two jobs, operators, subtasks, attempts or duplicates of a task share one."""
    return f"{context.job_id}/{context.operator_id}/{context.subtask_index}/{context.run}"


class Writing(Protocol):
    """Writes rows within a transaction."""

    def prepare(self, connection: Any) -> None:
        """Prepare a connection, outside a transaction."""

    def run(self, connection: Any, rows: Any) -> None:
        """Write the rows, in an open transaction."""


class LedgerCommitter(Committer[HeldRows]):
    """Writes each committable together with its name, in one transaction each."""

    def __init__(self, link: client.Link, ledger_table: str, retries: int, writing: Writing) -> None:
        self._link = link
        self._ledger = client.quoted_path(ledger_table)
        self._retries = retries
        self._writing = writing
        self._ready: psycopg.Connection[Any] | None = None

    def commit(self, committables: Sequence[HeldRows]) -> None:
        """See `Committer`."""
        for committable in committables:
            self._link.retrying(self._retries, partial(self._commit, committable))

    def _commit(self, committable: HeldRows, connection: psycopg.Connection[Any]) -> None:
        self._prepare(connection)
        with connection.transaction():
            noted = connection.execute(
                f"INSERT INTO {self._ledger} AS known (run, numbers) "
                "VALUES (%s, int8multirange(int8range(%s, %s))) "
                "ON CONFLICT (run) DO UPDATE SET numbers = known.numbers + excluded.numbers, committed_at = now() "
                "WHERE NOT known.numbers @> excluded.numbers",
                (committable.run, committable.number, committable.number + 1),
            )
            if noted.rowcount:
                self._writing.run(connection, committable.rows)

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        if connection is self._ready:
            return
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
            row = connection.execute("SELECT to_regclass(%s)", (self._ledger,)).fetchone()
            if row is None or row[0] is None:
                connection.execute(
                    f"CREATE TABLE {self._ledger} (run text PRIMARY KEY, "
                    "numbers int8multirange NOT NULL, committed_at timestamptz NOT NULL DEFAULT now())"
                )
        self._writing.prepare(connection)
        self._ready = connection

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


class Gathered(ABC):
    """The buffered rows of one writer."""

    @abstractmethod
    def add(self, parts: Sequence[Any], count: int) -> None:
        """Add parts that contain `count` rows in total."""

    def next_flush_ms(self) -> int | None:
        """Return the time at which the buffered rows are due to be written; None if they have no deadline."""
        return None

    @abstractmethod
    def flush(self) -> None:
        """Write the buffered rows, unless they wait for a checkpoint to complete."""

    def take(self) -> list[HeldRows]:
        """Return the rows that a checkpoint must store."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Close the connection, if there is one."""


class WrittenRows(Gathered):
    """Writes rows when the batch is full, when they have waited long enough, and at every checkpoint."""

    def __init__(
        self,
        context: SinkWriterContext,
        link: Any,
        options: client.JdbcExecutionOptions,
        writing: Writing,
    ) -> None:
        self._context = context
        #: a `Link`, or a `MySqlLink`
        self._link = link
        self._options = options
        self._writing = writing
        self._parts: list[Any] = []
        self._count = 0
        self._due_ms: int | None = None

    def add(self, parts: Sequence[Any], count: int) -> None:
        """See `Gathered`."""
        self._parts += parts
        self._count += count
        if self._count >= self._options.batch_size:
            self.flush()
        elif self._due_ms is None and self._options.batch_interval_ms:
            self._due_ms = self._context.now_ms() + self._options.batch_interval_ms

    def next_flush_ms(self) -> int | None:
        """See `Gathered`."""
        return self._due_ms

    def flush(self) -> None:
        """See `Gathered`."""
        self._due_ms = None
        if self._parts:
            self._link.retrying(self._options.max_retries, self._write)
            self._parts, self._count = [], 0

    def _write(self, connection: Any) -> None:
        self._writing.prepare(connection)
        with self._link.transaction(connection):
            self._writing.run(connection, self._parts)

    def close(self) -> None:
        """See `Gathered`."""
        self._link.close()


class RowsToHold(Gathered):
    """Holds rows for the ledger until a checkpoint stores them."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._number = 0
        self._parts: list[Any] = []

    def add(self, parts: Sequence[Any], count: int) -> None:
        """See `Gathered`."""
        self._parts += parts

    def take(self) -> list[HeldRows]:
        """See `Gathered`."""
        if not self._parts:
            return []
        self._number += 1
        parts, self._parts = self._parts, []
        return [HeldRows(self._run, self._number, parts)]

    def flush(self) -> None:
        """Do nothing: no row is written before a checkpoint is complete."""

    def close(self) -> None:
        """Do nothing, because this buffer does not connect."""


class GatheringWriter(SinkWriter[Any, HeldRows]):
    """Buffers the rows that a subclass makes from records."""

    def __init__(self, gathered: Gathered) -> None:
        self._gathered = gathered

    def next_flush_ms(self) -> int | None:
        """See `SinkWriter`."""
        return self._gathered.next_flush_ms()

    def flush(self, end_of_input: bool) -> None:
        """See `SinkWriter`."""
        self._gathered.flush()

    def prepare_commit(self) -> list[HeldRows]:
        """See `SinkWriter`."""
        return self._gathered.take()

    def close(self) -> None:
        """See `SinkWriter`."""
        self._gathered.close()


#: Fewer rows are not worth a COPY, which needs more round trips.
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
#: parts that are not searched for `?`: string literals, quoted names, comments, dollar-quoted strings
_OPAQUE = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PlainInsert:
    """An INSERT that COPY can do.

    Attributes:
        table: the target, as written in the statement.
        columns: their names, as written in the statement.
        conflict: the ON CONFLICT clause, or an empty string.
        key: the indexes of the key columns if the last row of a key replaces the others; otherwise None.
    """

    table: str
    columns: tuple[str, ...]
    conflict: str = ""
    key: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement with `?` for the values of a row.

    Attributes:
        sql: the statement in JDBC's syntax.
        executed: the statement in psycopg's syntax, with `%s`.
        count: the number of values.
        plain: the equivalent for COPY, or None.
    """

    sql: str
    executed: str
    count: int
    plain: PlainInsert | None

    @staticmethod
    def of(sql: str) -> Statement:
        """Parse a statement. Raises `ConfigurationError` if it has no placeholder."""
        executed, count = _with_places(sql)
        if not count:
            raise ConfigurationError(f"the statement has no ? for the values of a record: {sql}")
        return Statement(sql, executed, count, _plain(sql))


def _with_places(sql: str) -> tuple[str, int]:
    """Replace each `?` by `%s`; return the statement and the placeholder count. `??` stands for the operator `?`."""
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
    match = _INSERT.fullmatch(sql)
    if match is None:
        return None
    columns = _split(match["columns"])
    if len(columns) != match["values"].count("?"):
        return None
    conflict = (match["conflict"] or "").strip()
    if not conflict:
        return PlainInsert(match["table"], columns)
    clause = _CONFLICT.fullmatch(conflict)
    if clause is None:
        return None
    if clause["nothing"]:
        return PlainInsert(match["table"], columns, conflict)
    indices = {_folded(column): index for index, column in enumerate(columns)}
    key = [_folded(name) for name in _split(clause["key"] or "")]
    assigned = [_ASSIGNMENT.fullmatch(part) for part in clause["set"].split(",")]
    if not key or not all(
        assignment is not None and _folded(assignment["to"]) == _folded(assignment["from"]) for assignment in assigned
    ):
        return None
    replaced = {_folded(assignment["to"]) for assignment in assigned if assignment is not None}
    if not set(key) <= indices.keys() or not indices.keys() - set(key) <= replaced <= indices.keys():
        return None
    return PlainInsert(match["table"], columns, conflict, tuple(indices[name] for name in key))


def _split(names: str) -> tuple[str, ...]:
    return tuple(re.findall(_NAME, names))


def _folded(name: str) -> str:
    """Return a name as the server resolves it."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()


class Execution:
    """Executes a statement for rows, on changing connections; once per transaction."""

    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        self._connection: psycopg.Connection[Any] | None = None
        self._copies = False
        digest = hashlib.blake2b(statement.sql.encode(), digest_size=6).hexdigest()
        self._stage = f"penstock_{digest}"

    def prepare(self, connection: psycopg.Connection[Any]) -> None:
        """Prepare a connection; call this outside a transaction."""
        if connection is self._connection:
            return
        plain = self._statement.plain
        self._copies = plain is not None and is_plain_table(connection, plain.table)
        if plain is not None and self._copies and plain.conflict:
            with client.naming(f"cannot make a temporary table for {plain.table}"):
                connection.execute(
                    f"CREATE TEMP TABLE IF NOT EXISTS {self._stage} ON COMMIT DELETE ROWS AS "
                    f"SELECT {', '.join(plain.columns)} FROM {plain.table} WITH NO DATA"
                )
        self._connection = connection

    def run(self, connection: psycopg.Connection[Any], rows: Sequence[Sequence[Any]]) -> None:
        """Execute the statement for each row, in an open transaction."""
        statement = self._statement
        with client.naming(f"PostgreSQL refuses what {statement.sql!r} writes"):
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
            except client.driver().errors.CardinalityViolation:
                cursor.executemany(self._statement.executed, rows)


def _last_of_each(rows: Sequence[Sequence[Any]], key: Sequence[int]) -> Sequence[Sequence[Any]]:
    """Return the last row of each key."""
    if len(key) == 1:
        index = key[0]
        last_rows: dict[Any, Sequence[Any]] = {row[index]: row for row in rows}
    else:
        last_rows = {tuple(row[position] for position in key): row for row in rows}
    return rows if len(last_rows) == len(rows) else list(last_rows.values())


def is_plain_table(connection: psycopg.Connection[Any], table: str) -> bool:
    """Return whether COPY can write into a table as INSERT does. `table`: its name in SQL."""
    row = connection.execute(
        "SELECT relkind IN ('r', 'p') AND NOT relhasrules FROM pg_class WHERE oid = to_regclass(%s)", (table,)
    ).fetchone()
    return row is not None and bool(row[0])


class JdbcSink(Sink[Any]):
    """Executes a statement for each record; created by `sink` or `exactly_once_sink`.

    Examples:
        >>> from penstock.common import Types
        >>> from penstock.datastream.connectors import JdbcConnectionOptions, JdbcSink
        >>> builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
        >>> options = builder.with_url("jdbc:postgresql://localhost/shop").build()
        >>> row_type = Types.ROW([Types.STRING(), Types.INT()])
        >>> sink = JdbcSink.sink("INSERT INTO orders VALUES (?, ?)", row_type, options)
    """

    def __init__(
        self,
        statement: Statement,
        address: Any,
        execution: client.JdbcExecutionOptions,
        exactly_once: client.JdbcExactlyOnceOptions | None,
        names: tuple[str, ...] = (),
    ) -> None:
        self._statement = statement
        #: the names of the records' fields, if they have any
        self._names = names
        self._address = address
        self._execution = execution
        self._exactly_once = exactly_once

    @staticmethod
    def sink(
        sql: str,
        type_info: TypeInformation | None,
        jdbc_connection_options: client.JdbcConnectionOptions,
        jdbc_execution_options: client.JdbcExecutionOptions | None = None,
    ) -> JdbcSink:
        """Create a sink that writes as records arrive: at least once.

        With an idempotent statement, such as an INSERT with ON CONFLICT (key) DO UPDATE, the table is correct even
        after a failure, provided that the job produces the same records again. It may not be if the result depends on
        the order of several sources: use `exactly_once_sink`.

        Args:
            sql: the statement, with a `?` for each field of a record, in their order, as in JDBC.
            type_info: the type of the records, ROW or TUPLE; its number of fields is checked against the statement.
            jdbc_connection_options: the database's address and user.
            jdbc_execution_options: when to write; by default 5000 rows at a time, and at checkpoints.

        Raises:
            MisuseError: if the statement does not fit the type.
            ConfigurationError: if the statement has no `?`, or the driver of the database is missing.
        """
        return JdbcSink._build_sink(sql, type_info, jdbc_connection_options, jdbc_execution_options, None)

    @staticmethod
    def exactly_once_sink(
        sql: str,
        type_info: TypeInformation | None,
        jdbc_connection_options: client.JdbcConnectionOptions,
        jdbc_exactly_once_options: client.JdbcExactlyOnceOptions | None = None,
    ) -> JdbcSink:
        """Create a sink that writes each record once, when the checkpoint that covers it is complete.

        Until then, rows are held in memory and in the checkpoint. A table in the database records each commit in the
        same transaction (`penstock.connectors.postgres.sink` explains why).
        """
        options = jdbc_exactly_once_options or client.JdbcExactlyOnceOptions.defaults()
        return JdbcSink._build_sink(sql, type_info, jdbc_connection_options, None, options)

    @staticmethod
    def _build_sink(
        sql: str,
        type_info: TypeInformation | None,
        connection: client.JdbcConnectionOptions,
        execution: client.JdbcExecutionOptions | None,
        exactly_once: client.JdbcExactlyOnceOptions | None,
    ) -> JdbcSink:
        address = connection.address()
        if isinstance(address, client.Address):
            client.driver()
            statement = Statement.of(sql)
        else:
            from penstock.connectors.mysql import client as mysql_client
            from penstock.connectors.mysql import sink as mysql_sink

            mysql_client.load_library()
            statement = mysql_sink.parse_statement(sql)
        fields = type_info.get_field_types() if isinstance(type_info, RowTypeInfo | TupleTypeInfo) else None
        if fields is not None and len(fields) != statement.count:
            raise MisuseError(
                f"records have {len(fields)} fields, but the statement takes {statement.count} values: {sql}"
            )
        names = tuple(type_info.get_field_names()) if isinstance(type_info, RowTypeInfo) else ()
        options = execution or client.JdbcExecutionOptions.defaults()
        return JdbcSink(statement, address, options, exactly_once, names)

    def _link_and_writing(self) -> tuple[Any, Writing]:
        if isinstance(self._address, client.Address):
            return client.Link(self._address), Execution(self._statement)
        from penstock.connectors.mysql.client import MySqlLink
        from penstock.connectors.mysql.sink import StatementWriting

        return MySqlLink(self._address), StatementWriting(self._statement)

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """See `Sink`."""
        to_row = _row_maker(self._statement, self._names)
        link, writing = self._link_and_writing()
        gathered: Gathered = (
            WrittenRows(context, link, self._execution, writing)
            if self._exactly_once is None
            else RowsToHold(run_name(context))
        )
        return _RecordsWriter(gathered, to_row)

    def create_committer(self, context: SinkWriterContext) -> Committer[Any] | None:
        """See `Sink`."""
        options = self._exactly_once
        if options is None:
            return None
        link, writing = self._link_and_writing()
        if isinstance(self._address, client.Address):
            return LedgerCommitter(link, options.ledger_table, options.max_retries, writing)
        from penstock.connectors.mysql.sink import MySqlLedger

        return MySqlLedger(link, options.ledger_table, options.max_retries, writing)

    @property
    def shows_on_commit(self) -> bool:
        """Whether rows wait for the checkpoint; only exactly-once sinks do."""
        return self._exactly_once is not None


def _row_maker(statement: Statement, names: tuple[str, ...]) -> Callable[[Sequence[Any]], list[tuple[Any, ...]]]:
    """Return a function that converts records into statement values: rows by these names, others by position."""
    count, insert = statement.count, RowKind.INSERT

    def made(values: Sequence[Any]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        append = rows.append
        for value in values:
            kind = type(value)
            if kind is Row:
                if value.get_row_kind() is not insert:
                    error = UnsupportedError(
                        "JdbcSink executes one statement for all records, but this is a change of a table that is no "
                        "insert: write changes by the table connector 'jdbc'"
                    )
                    raise RecordError(value, "the sink") from error
                row = tuple(values_by_names(value, names))
            elif isinstance(value, tuple | list):
                row = tuple(value)
            else:
                row = (value,)
            if len(row) != count:
                mismatch = MisuseError(f"the statement takes {count} values, but the record has {len(row)} fields")
                raise RecordError(value, "the sink") from mismatch
            append(row)
        return rows

    return made


class _RecordsWriter(GatheringWriter):
    """Buffers rows."""

    def __init__(self, gathered: Gathered, to_rows: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        super().__init__(gathered)
        self._to_rows = to_rows

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `SinkWriter`."""
        rows = self._to_rows(values)
        self._gathered.add(rows, len(rows))
