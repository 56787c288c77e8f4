"""PostgreSQL and MySQL (or MariaDB) as targets of pipelines.

Each step is a transaction that also notes the step's name in a ledger, the table `penstock_cdc_ledger` of the same
schema. The entry is locked first, so that of two committers the second one waits and then finds the name.

- *PostgreSQL* alters tables within transactions, so a change of the schema and its name are one transaction.
- *MySQL* commits before and after each such statement. A change of the schema therefore looks at the columns of the
  table first: it skips ADD for an existing column, and DROP or RENAME for a missing column; the statement that sets the
  type of a column may run twice. Then it records the name.

The ledger has a row for each run of the writer and each table. Rows that are older than all savepoints may be deleted.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.base.errors import ConfigurationError, OperationError, UnsupportedError
from penstock.base.secrets import remember
from penstock.cdc.definition import Settings
from penstock.cdc.expressions import parse_type
from penstock.cdc.sinks import IS_DELETED, PipelineSink, Step, TableTarget, staged
from penstock.connectors.base import require
from penstock.connectors.cdc import events
from penstock.connectors.cdc.events import Column, SchemaChangeEvent, TableId, TableSchema
from penstock.connectors.iceberg.committer import CommitName
from penstock.connectors.postgres import client
from penstock.runtime.connector import SinkWriterContext
from penstock.sql.data import types

LEDGER: Final = "penstock_cdc_ledger"
_TEXT_MAX: Final = 16_383
_KEY_TEXT: Final = 255


class Dialect(ABC):
    """The differences between the databases. Instances are pickled into the job."""

    #: Whether statements that change a table belong to transactions.
    ddl_in_transactions: bool

    @abstractmethod
    def connect(self) -> Any:
        """Open a connection without autocommit."""

    @abstractmethod
    def quote(self, name: str) -> str:
        """Quote a name."""

    @abstractmethod
    def sql_type(self, column: Column, is_key: bool) -> str:
        """Return the database type of a column; raises `UnsupportedError` for a type that the database lacks."""

    @abstractmethod
    def default_schema(self) -> str:
        """Return the schema of tables that name none."""

    @abstractmethod
    def upsert(self, table: str, schema: TableSchema) -> str:
        """Return the statement that inserts or replaces a row."""

    @abstractmethod
    def alter(self, table: str, change: SchemaChangeEvent, known: Sequence[str]) -> list[str]:
        """Return the statements of a schema change; `known` are the columns that the table has."""

    @abstractmethod
    def create_schema(self, name: str) -> str:
        """Return the statement that creates a schema if it is missing."""

    def note_run(self, ledger: str) -> str:
        """Return the statement that notes a run in the ledger if it is missing."""
        return f"INSERT INTO {ledger} (run, number) VALUES (%s, 0) ON CONFLICT (run) DO NOTHING"

    def to_value(self, value: Any) -> Any:
        """Convert a value to the driver's form."""
        return value


@dataclass(frozen=True)
class Postgres(Dialect):
    """PostgreSQL.

    Attributes:
        url: the URL, without user and password.
        user: the user.
        password: the password.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ddl_in_transactions = True

    def connect(self) -> Any:
        """See `Dialect`."""
        connection = client.connect(client.Address(self.url, self.user, self.password))
        connection.autocommit = False
        return connection

    def quote(self, name: str) -> str:
        """See `Dialect`."""
        return client.quoted(name)

    def default_schema(self) -> str:
        """See `Dialect`."""
        return "public"

    def create_schema(self, name: str) -> str:
        """See `Dialect`."""
        return f"CREATE SCHEMA IF NOT EXISTS {self.quote(name)}"

    def sql_type(self, column: Column, is_key: bool) -> str:
        """See `Dialect`."""
        return self._type(parse_type(column.sql_type))

    def _type(self, data_type: types.DataType) -> str:
        match data_type:
            case types.BooleanType():
                return "boolean"
            case types.TinyIntType() | types.SmallIntType():
                return "smallint"
            case types.IntType():
                return "integer"
            case types.BigIntType():
                return "bigint"
            case types.FloatType():
                return "real"
            case types.DoubleType():
                return "double precision"
            case types.DecimalType():
                return f"numeric({data_type.precision}, {data_type.scale})"
            case types.CharType() | types.VarCharType():
                return "text" if data_type.length > 10_485_760 else f"varchar({data_type.length})"
            case types.BinaryType() | types.VarBinaryType():
                return "bytea"
            case types.DateType():
                return "date"
            case types.TimeType():
                return f"time({min(data_type.precision, 6)})"
            case types.LocalZonedTimestampType() if data_type.precision <= 6:
                return f"timestamptz({data_type.precision})"
            case types.TimestampType() if data_type.precision <= 6:
                return f"timestamp({data_type.precision})"
            case types.ArrayType() if not isinstance(data_type, types.MultisetType):
                return f"{self._type(data_type.element_type)}[]"
            case _:
                raise UnsupportedError(f"PostgreSQL has no type for a column of {data_type}")

    def upsert(self, table: str, schema: TableSchema) -> str:
        """See `Dialect`."""
        names = ", ".join(map(self.quote, schema.names))
        key = ", ".join(map(self.quote, schema.primary_key))
        others = [name for name in schema.names if name not in schema.primary_key]
        sets = ", ".join(f"{self.quote(name)} = EXCLUDED.{self.quote(name)}" for name in others)
        placeholders = ", ".join("%s" for _ in schema.names)
        does = f"UPDATE SET {sets}" if sets else "NOTHING"
        return f"INSERT INTO {table} ({names}) VALUES ({placeholders}) ON CONFLICT ({key}) DO {does}"

    def alter(self, table: str, change: SchemaChangeEvent, known: Sequence[str]) -> list[str]:
        """See `Dialect`."""
        match change:
            case events.AddColumnEvent(column=column):
                new = f"{self.quote(column.name)} {self.sql_type(column, False)}"
                return [f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {new}"]
            case events.DropColumnEvent(name=name):
                return [f"ALTER TABLE {table} DROP COLUMN IF EXISTS {self.quote(name)}"]
            case events.RenameColumnEvent(name=name, new_name=new_name):
                return [f"ALTER TABLE {table} RENAME COLUMN {self.quote(name)} TO {self.quote(new_name)}"]
            case events.AlterColumnTypeEvent(column=column):
                name, kind = self.quote(column.name), self.sql_type(column, False)
                statements = [f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {kind} USING {name}::{kind}"]
                if column.is_nullable:
                    statements.append(f"ALTER TABLE {table} ALTER COLUMN {name} DROP NOT NULL")
                return statements
            case _:
                raise AssertionError(change)


@dataclass(frozen=True)
class MySql(Dialect):
    """MySQL and MariaDB. Sessions are in UTC, in utf8mb4, and refuse values that do not fit.

    Attributes:
        host: the host.
        port: the port.
        user: the user.
        password: the password.
    """

    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ddl_in_transactions = False

    def connect(self) -> Any:
        """See `Dialect`."""
        require("pymysql", "a pipeline into MySQL", "PyMySQL", "mysql")
        import pymysql

        try:
            return pymysql.connect(
                host=self.host,
                port=self.port,
                user=self.user,
                password=self.password or "",
                charset="utf8mb4",
                sql_mode="TRADITIONAL,ANSI_QUOTES,NO_BACKSLASH_ESCAPES",
                init_command="SET time_zone = '+00:00'",
                autocommit=False,
            )
        except pymysql.err.OperationalError as error:
            raise OperationError(f"MySQL at {self.host}:{self.port} cannot be reached: {error.args[-1]}") from error

    def quote(self, name: str) -> str:
        """See `Dialect`."""
        return "`" + name.replace("`", "``") + "`"

    def default_schema(self) -> str:
        """See `Dialect`."""
        return "penstock"

    def create_schema(self, name: str) -> str:
        """See `Dialect`."""
        return f"CREATE DATABASE IF NOT EXISTS {self.quote(name)}"

    def note_run(self, ledger: str) -> str:
        """See `Dialect`."""
        return f"INSERT IGNORE INTO {ledger} (run, number) VALUES (%s, 0)"

    def sql_type(self, column: Column, is_key: bool) -> str:
        """See `Dialect`."""
        data_type = parse_type(column.sql_type)
        match data_type:
            case types.BooleanType():
                return "tinyint(1)"
            case types.TinyIntType():
                return "tinyint"
            case types.SmallIntType():
                return "smallint"
            case types.IntType():
                return "int"
            case types.BigIntType():
                return "bigint"
            case types.FloatType():
                return "float"
            case types.DoubleType():
                return "double"
            case types.DecimalType():
                return f"decimal({data_type.precision}, {data_type.scale})"
            case types.CharType() | types.VarCharType():
                if is_key:
                    return f"varchar({min(data_type.length, _KEY_TEXT)})"
                return "longtext" if data_type.length > _TEXT_MAX else f"varchar({data_type.length})"
            case types.BinaryType() | types.VarBinaryType():
                return f"varbinary({min(data_type.length, _KEY_TEXT)})" if is_key else "longblob"
            case types.DateType():
                return "date"
            case types.TimeType():
                return f"time({min(data_type.precision, 6)})"
            case types.LocalZonedTimestampType() if data_type.precision <= 6:
                return f"timestamp({data_type.precision})"
            case types.TimestampType() if data_type.precision <= 6:
                return f"datetime({data_type.precision})"
            case _:
                raise UnsupportedError(f"MySQL has no type for a column of {data_type}")

    def upsert(self, table: str, schema: TableSchema) -> str:
        """See `Dialect`."""
        names = ", ".join(map(self.quote, schema.names))
        key = self.quote(schema.primary_key[0])
        others = [name for name in schema.names if name not in schema.primary_key]
        sets = ", ".join(f"{self.quote(name)} = VALUES({self.quote(name)})" for name in others) or f"{key} = {key}"
        placeholders = ", ".join("%s" for _ in schema.names)
        return f"INSERT INTO {table} ({names}) VALUES ({placeholders}) ON DUPLICATE KEY UPDATE {sets}"

    def alter(self, table: str, change: SchemaChangeEvent, known: Sequence[str]) -> list[str]:
        """See `Dialect`."""
        match change:
            case events.AddColumnEvent(column=column, position=position) if column.name not in known:
                clause = " FIRST" if position.first else ""
                if position.after is not None and position.after in known:
                    clause = f" AFTER {self.quote(position.after)}"
                new = f"{self.quote(column.name)} {self.sql_type(column, False)} NULL"
                return [f"ALTER TABLE {table} ADD COLUMN {new}{clause}"]
            case events.DropColumnEvent(name=name) if name in known:
                return [f"ALTER TABLE {table} DROP COLUMN {self.quote(name)}"]
            case events.RenameColumnEvent(name=name, new_name=new_name) if name in known and new_name not in known:
                return [f"ALTER TABLE {table} RENAME COLUMN {self.quote(name)} TO {self.quote(new_name)}"]
            case events.AlterColumnTypeEvent(column=column) if column.name in known:
                null = "NULL" if column.is_nullable else "NOT NULL"
                kind = self.sql_type(column, False)
                return [f"ALTER TABLE {table} MODIFY COLUMN {self.quote(column.name)} {kind} {null}"]
        return []

    def to_value(self, value: Any) -> Any:
        """See `Dialect`."""
        # A session in UTC takes a point in time without its zone.
        if getattr(value, "tzinfo", None) is not None:
            import datetime

            return value.astimezone(datetime.UTC).replace(tzinfo=None)
        return value


@dataclass(frozen=True)
class SqlTargets:
    """The tables of a database server, which are created on demand."""

    dialect: Dialect

    def open(self, context: SinkWriterContext) -> TableTarget:
        """See `TargetFactory`."""
        return SqlTarget(self.dialect)

    def refuses(self, schema: TableSchema, change: SchemaChangeEvent) -> str | None:
        """See `TargetFactory`."""
        try:
            match change:
                case events.CreateTableEvent(schema=new):
                    for column in new.columns:
                        self.dialect.sql_type(column, column.name in new.primary_key)
                case events.AddColumnEvent(column=column) | events.AlterColumnTypeEvent(column=column):
                    self.dialect.sql_type(column, column.name in schema.primary_key)
        except UnsupportedError as error:
            return str(error)
        return None


class SqlTarget(TableTarget):
    """Applies steps to the tables of a database server, each in a transaction with its name."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._local = threading.local()
        self._connections: list[Any] = []
        self._ledgers: set[str] = set()
        self._lock = threading.Lock()

    def _connection(self) -> Any:
        """Return the connection of this thread."""
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._dialect.connect()
            self._connections.append(connection)
        return connection

    def _title(self, table_id: TableId) -> str:
        quote = self._dialect.quote
        return f"{quote(table_id.schema or self._dialect.default_schema())}.{quote(table_id.table)}"

    def _ledger(self, table_id: TableId) -> str:
        """Return the ledger of a table's schema, creating both if they are missing."""
        schema = table_id.schema or self._dialect.default_schema()
        ledger = self._title(TableId(schema, LEDGER))
        with self._lock:
            if ledger not in self._ledgers:
                connection = self._connection()
                with connection.cursor() as cursor:
                    cursor.execute(self._dialect.create_schema(schema))
                    cursor.execute(
                        f"CREATE TABLE IF NOT EXISTS {ledger} (run varchar(255) PRIMARY KEY, number bigint NOT NULL, "
                        "committed_at timestamp DEFAULT CURRENT_TIMESTAMP)"
                    )
                connection.commit()
                self._ledgers.add(ledger)
        return ledger

    @contextmanager
    def _step(self, table_id: TableId, name: CommitName) -> Iterator[Any]:
        """Run a step in a transaction, with a cursor, or with None if the step was applied before."""
        ledger, run = self._ledger(table_id), f"{name.key}/{table_id}"[:255]
        connection = self._connection()
        try:
            with connection.cursor() as cursor:
                cursor.execute(self._dialect.note_run(ledger), (run,))
                cursor.execute(f"SELECT number FROM {ledger} WHERE run = %s FOR UPDATE", (run,))
                (number,) = cursor.fetchone()
                if number >= name.number:
                    yield None
                else:
                    yield cursor
                    cursor.execute(
                        f"UPDATE {ledger} SET number = %s, committed_at = CURRENT_TIMESTAMP WHERE run = %s",
                        (name.number, run),
                    )
            connection.commit()
        except BaseException:
            self._local.connection = None
            self._connections.remove(connection)
            connection.close()
            raise

    def _columns(self, cursor: Any, table_id: TableId) -> list[str]:
        cursor.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s "
            "ORDER BY ordinal_position",
            (table_id.schema or self._dialect.default_schema(), table_id.table),
        )
        return [row[0] for row in cursor.fetchall()]

    def create_table(self, table_id: TableId, schema: TableSchema, name: CommitName) -> None:
        """See `TableTarget`."""
        dialect, title = self._dialect, self._title(table_id)
        with self._step(table_id, name) as cursor:
            if cursor is None:
                return
            known = self._columns(cursor, table_id)
            if known:
                for column in schema.columns:
                    if column.name not in known:
                        for statement in dialect.alter(title, events.AddColumnEvent(table_id, column), known):
                            cursor.execute(statement)
                return
            columns = []
            for column in schema.columns:
                is_key = column.name in schema.primary_key
                null = "" if column.is_nullable and not is_key else " NOT NULL"
                columns.append(f"{dialect.quote(column.name)} {dialect.sql_type(column, is_key)}{null}")
            key = ", ".join(map(dialect.quote, schema.primary_key))
            cursor.execute(f"CREATE TABLE {title} ({', '.join(columns)}, PRIMARY KEY ({key}))")

    def drop_table(self, table_id: TableId, name: CommitName) -> None:
        """See `TableTarget`."""
        with self._step(table_id, name) as cursor:
            if cursor is not None:
                cursor.execute(f"DROP TABLE IF EXISTS {self._title(table_id)}")

    def change_schema(self, table_id: TableId, change: SchemaChangeEvent, name: CommitName) -> None:
        """See `TableTarget`."""
        title = self._title(table_id)
        with self._step(table_id, name) as cursor:
            if cursor is None:
                return
            if isinstance(change, events.TruncateTableEvent):
                cursor.execute(f"DELETE FROM {title}")
                return
            known = self._columns(cursor, table_id)
            if not known:
                raise ConfigurationError(f"there is no table {table_id} whose schema could change")
            for statement in self._dialect.alter(title, change, known):
                cursor.execute(statement)

    def write_rows(self, table_id: TableId, step: Step, is_in_doubt: bool) -> None:
        """See `TableTarget`."""
        assert step.schema is not None
        schema, title, to_value = step.schema, self._title(table_id), self._dialect.to_value
        rows = step.rows()
        is_deleted = rows.column(IS_DELETED).to_pylist()
        columns = [rows.column(name).to_pylist() for name in schema.names]
        key = [schema.get_position(part) for part in schema.primary_key]
        upserts: list[tuple[Any, ...]] = []
        deletions: list[tuple[Any, ...]] = []
        for gone, row in zip(is_deleted, zip(*columns, strict=True), strict=True):
            values = tuple(map(to_value, row))
            if gone:
                deletions.append(tuple(values[index] for index in key))
            else:
                upserts.append(values)
        matches = " AND ".join(f"{self._dialect.quote(part)} = %s" for part in schema.primary_key)
        with self._step(table_id, step.name) as cursor:
            if cursor is None:
                return
            if deletions:
                cursor.executemany(f"DELETE FROM {title} WHERE {matches}", deletions)
            if upserts:
                cursor.executemany(self._dialect.upsert(title, schema), upserts)

    def close(self) -> None:
        """See `TableTarget`."""
        for connection in self._connections:
            connection.close()


def create_postgres(settings: Settings) -> PipelineSink:
    """Return the sink of the type `postgres`."""
    client.driver()
    url = settings.text("url")
    if url is None:
        host, port = settings.need("hostname"), settings.integer("port", 5432)
        url = f"postgresql://{host}:{port}/{settings.text('database', 'postgres')}"
    return _create(settings, lambda user, password: Postgres(url, user, password))


def create_mysql(settings: Settings) -> PipelineSink:
    """Return the sink of the type `mysql`."""
    require("pymysql", "a pipeline into MySQL", "PyMySQL", "mysql")
    host, port = settings.need("hostname"), settings.integer("port", 3306)
    return _create(settings, lambda user, password: MySql(host, port, user, password))


def _create(settings: Settings, make: Callable[[str | None, str | None], Dialect]) -> PipelineSink:
    user, password = settings.text("username"), settings.text("password")
    remember({"password": password or ""})
    return staged(SqlTargets(make(user, password)))
