"""Lines of a `Database` as statements of MariaDB, MySQL and PostgreSQL, for pipelines that read a real server.

A statement whose answer is lost with a killed server is executed again: rows are written so that this changes nothing,
and a schema change that is there already is no error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from tests.servers.mysql import MARIADB, MYSQL, mysql_server
from tests.servers.postgres import postgres_server

from penstock.connectors.mysql import client

SCHEMA = "shop"
_TYPES: Mapping[str, Mapping[str, str]] = {
    "mysql": {"STRING": "VARCHAR(200)", "TIMESTAMP(6)": "DATETIME(6)", "BOOLEAN": "TINYINT(1)"},
    "postgres": {"STRING": "TEXT", "FLOAT": "REAL", "DOUBLE": "DOUBLE PRECISION"},
}
#: errors of MySQL and MariaDB for a schema change that was made: the column is there, or is not there
_MADE = (1054, 1060, 1091)
_QUOTES: Mapping[str, str] = {"mysql": "`", "postgres": '"'}
_PASSWORD = "of the tests"


@dataclass
class Source:
    """A database that pipelines read.

    Attributes:
        dialect: `mysql`, also for MariaDB, or `postgres`.
        has_positions: whether a new column may have another position than the last.
    """

    dialect: str
    server: Any
    has_positions: bool

    def definition(self, pipeline: str) -> str:
        """Return the section `source` of a pipeline."""
        if self.dialect == "mysql":
            more = {"tables": rf"{SCHEMA}.\.*", "username": "reader"}
        else:
            more = {"tables": rf"{SCHEMA}.{SCHEMA}.\.*", "slot.name": f"slot_{pipeline}", "username": "postgres"}
            more["publication.name"] = f"publication_{pipeline}"
        more |= {"type": self.dialect, "hostname": "127.0.0.1", "port": self.server.port, "password": _PASSWORD}
        return "\n".join(f"  {key}: {value}" for key, value in more.items())

    def execute(self, connection: Any, line: Mapping[str, Any]) -> None:
        """Make a change, also if it was made before."""
        for statement in self._statements(line):
            try:
                if self.dialect == "mysql":
                    client.execute(connection, statement)
                else:
                    connection.execute(statement)
            except (psycopg.errors.DuplicateColumn, psycopg.errors.UndefinedColumn):
                continue
            except client.load_library().err.MySQLError as error:
                if error.args[0] not in _MADE:
                    raise

    def _statements(self, line: Mapping[str, Any]) -> Iterator[str]:
        (kind, name), *_ = line.items()
        q, table = self._quote, name
        match kind:
            case "create":
                columns = ", ".join(f"{q(column)} {self._type(of)}" for column, of in line["columns"].items())
                yield f"CREATE TABLE IF NOT EXISTS {table} ({columns}, PRIMARY KEY (id))"
                if self.dialect == "postgres":
                    yield f"ALTER TABLE {table} REPLICA IDENTITY FULL"
            case "insert":
                names = ", ".join(map(q, line["row"]))
                values = ", ".join(map(self._literal, line["row"].values()))
                if self.dialect == "mysql":
                    yield f"INSERT IGNORE INTO {table} ({names}) VALUES ({values})"
                else:
                    yield f"INSERT INTO {table} ({names}) VALUES ({values}) ON CONFLICT DO NOTHING"
            case "update":
                values = ", ".join(f"{q(column)} = {self._literal(value)}" for column, value in line["after"].items())
                yield f"UPDATE {table} SET {values} WHERE id = {line['before']['id']}"
            case "delete":
                yield f"DELETE FROM {table} WHERE id = {line['row']['id']}"
            case "add-column":
                ((column, of),) = line["column"].items()
                place = " FIRST" if line.get("first") else f" AFTER {q(line['after'])}" if "after" in line else ""
                place = place if self.has_positions else ""
                yield f"ALTER TABLE {table} ADD COLUMN {q(column)} {self._type(of)}{place}"
            case "drop-column":
                yield f"ALTER TABLE {table} DROP COLUMN {q(line['name'])}"
            case "rename-column":
                yield f"ALTER TABLE {table} RENAME COLUMN {q(line['name'])} TO {q(line['new-name'])}"
            case "alter-column":
                ((column, of),) = line["column"].items()
                verb, become = ("MODIFY", "") if self.dialect == "mysql" else ("ALTER", "TYPE ")
                yield f"ALTER TABLE {table} {verb} COLUMN {q(column)} {become}{self._type(of)}"
            case _:
                raise AssertionError(kind)

    def _quote(self, name: str) -> str:
        return name.join(2 * [_QUOTES[self.dialect]])

    def _type(self, declared: str) -> str:
        kind = declared.removesuffix(" NOT NULL")
        return declared.replace(kind, _TYPES[self.dialect].get(kind, kind))

    def _literal(self, value: Any) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        return str(value)


@contextmanager
def start_source(kind: str) -> Iterator[Source]:
    """Start `mariadb`, `mysql` or `postgres` with an empty schema."""
    if kind == "postgres":
        with postgres_server() as postgres:
            postgres.execute(f"CREATE DATABASE {SCHEMA}")
            postgres.execute(f"CREATE SCHEMA {SCHEMA}", SCHEMA)
            yield Source("postgres", postgres, has_positions=False)
    else:
        with mysql_server(MARIADB if kind == "mariadb" else MYSQL) as mysql:
            mysql.execute(f"CREATE DATABASE {SCHEMA} CHARACTER SET utf8mb4", None)
            mysql.execute(f"CREATE USER reader IDENTIFIED BY '{_PASSWORD}'", None)
            mysql.execute("GRANT ALL ON *.* TO reader", None)
            yield Source("mysql", mysql, has_positions=True)


class SqlFeeder(threading.Thread):
    """Executes the lines of a database at a rate, through deaths of the server."""

    def __init__(self, source: Source, lines: list[dict[str, Any]], rate: float) -> None:
        super().__init__(daemon=True)
        self._source, self._lines, self._rate = source, lines, rate
        self.count = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        begun, connection = time.monotonic(), None
        try:
            while self.count < len(self._lines):
                if time.monotonic() - begun < self.count / self._rate:
                    time.sleep(0.01)
                    continue
                try:
                    connection = connection or self._source.server.connect(SCHEMA)
                    self._source.execute(connection, self._lines[self.count])
                    self.count += 1
                except Exception as error:
                    if not is_lost(error):
                        raise
                    connection = None
                    time.sleep(0.1)
        except BaseException as error:  # noqa: BLE001 - `check` raises it
            self.failure = error
        finally:
            with suppress(Exception):
                connection.close()  # type: ignore[union-attr]

    def await_tables(self, count: int) -> None:
        """Return when the tables are there, which are the first lines."""
        while self.count < count:
            self.check()
            time.sleep(0.05)

    def check(self) -> None:
        if self.failure is not None:
            raise AssertionError(f"line {self.count}: {self._lines[self.count]}") from self.failure


def is_lost(error: BaseException) -> bool:
    """Whether the connection, and not the statement, is the reason."""
    if isinstance(error, psycopg.OperationalError):
        return True
    return isinstance(error, client.load_library().err.MySQLError | OSError) and client.is_passing(error)
