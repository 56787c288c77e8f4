"""The profile, and connections and cursors as dbt knows them: each connection is a session of the gateway.

Every statement runs in batch mode and ends with its job, unless the adapter says otherwise. So what dbt reads in tests,
tables and `dbt show` is bounded. A stream that has no end is read up to where it is now: when the gateway says that a
table is unbounded, the cursor hides it behind a temporary one with the option that bounds it, and asks again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from dbt.adapters.contracts.connection import AdapterResponse, Connection, ConnectionState, Credentials
from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.penstock.declarations import option_text, options_of, quoted, with_clause
from dbt.adapters.penstock.gateway import Gateway, GatewayError, GatewayUnreachableError, Rows, Session
from dbt.adapters.sql import SQLConnectionManager
from dbt_common.exceptions import DbtConfigError, DbtDatabaseError, DbtRuntimeError

_logger: Final = AdapterLogger("Penstock")
#: the catalog that holds what the adapter records of streaming jobs
JOBS_CATALOG: Final = "dbt_jobs"
BATCH: Final = {"execution.runtime-mode": "batch", "table.dml-sync": "true"}
#: catalogs that store tables themselves, and replace one together with its rows in one commit
STORES_TABLES: Final = ("iceberg", "delta")
#: the options that bound tables that otherwise never end, by connector
BOUNDS: Final = {
    "kafka": ("scan.bounded.mode", "latest-offset"),
    "upsert-kafka": ("scan.bounded.mode", "latest-offset"),
    "postgres-cdc": ("scan.startup.mode", "snapshot"),
}
_UNBOUNDED: Final = re.compile(r"Querying an unbounded table '([^']+)' in batch mode is not allowed")
_STAGING: Final = re.compile(r"create table (\S+__dbt_new`)", re.IGNORECASE)
_COMMENTS: Final = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)


@dataclass
class PenstockCredentials(Credentials):
    """What a profile says.

    Attributes:
        path: a directory that the gateway reaches. It holds the catalog, what is recorded of streaming jobs, and,
            unless said otherwise, the tables, checkpoints and savepoints.
        database: the catalog in which models are built; one of `catalogs`, or a catalog of files in `path`.
        warehouse: where tables are stored, if not in `path`: any file system of the gateway.
        checkpoints: where jobs keep checkpoints and savepoints, if not in `path`.
        catalogs: further catalogs, each with its options.
        options: options of all sessions.
        token: the token of the gateway's operator.
        ssl: whether the gateway speaks TLS; a text is the file with the issuer's certificate.
    """

    database: str = "dbt"
    schema: str = ""
    path: str = ""
    host: str = "localhost"
    port: int = 8083
    warehouse: str | None = None
    checkpoints: str | None = None
    catalogs: dict[str, dict[str, Any]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    token: str | None = None
    ssl: bool | str = False

    _ALIASES: ClassVar[dict[str, str]] = {"catalog": "database"}

    def __post_init__(self) -> None:
        if not self.path or not self.schema:
            raise DbtConfigError("the profile needs 'schema', and 'path': a directory that the gateway reaches")
        self.path = self.path.rstrip("/")
        self.warehouse = (self.warehouse or f"{self.path}/tables").rstrip("/")
        self.checkpoints = (self.checkpoints or f"{self.path}/checkpoints").rstrip("/")

    @property
    def type(self) -> str:
        """See `Credentials`."""
        return "penstock"

    @property
    def unique_field(self) -> str:
        """See `Credentials`."""
        return self.host

    @property
    def url(self) -> str:
        """The address of the gateway."""
        return f"{'https' if self.ssl else 'http'}://{self.host}:{self.port}"

    def all_catalogs(self) -> dict[str, dict[str, str]]:
        """Return the options of all catalogs of a session."""
        own = {self.database: {"type": "file", "path": f"{self.path}/catalog"}}
        jobs = {JOBS_CATALOG: {"type": "file", "path": f"{self.path}/jobs", "default-database": "jobs"}}
        given = {
            name: {key: option_text(text) for key, text in options.items()} for name, options in self.catalogs.items()
        }
        return own | given | jobs

    def session_options(self) -> dict[str, str]:
        """Return the options of all sessions. dbt takes times without a zone for UTC."""
        given = {key: option_text(text) for key, text in self.options.items()}
        return {"table.local-time-zone": "UTC"} | given

    def stores_tables(self, catalog: str) -> bool:
        """Whether the tables of a catalog are its own, rather than declarations."""
        return self.all_catalogs().get(catalog, {}).get("type") in STORES_TABLES

    def _connection_keys(self) -> tuple[str, ...]:
        return ("host", "port", "ssl", "database", "schema", "path", "warehouse", "checkpoints")


class Cursor:
    """Runs statements in a session, as the cursor of a DB-API."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._result = Rows()
        self._next = 0

    def execute(self, sql: str, bindings: Sequence[Any] | None = None, options: Mapping[str, str] = BATCH) -> Cursor:
        """Run a statement; one without text does nothing."""
        if bindings is not None:
            raise DbtRuntimeError("Penstock has no parameters in statements: write values as literals")
        self._next = 0
        has_text = _COMMENTS.sub("", sql).strip(" \t\r\n;")
        self._result = self._run_bounded(sql, options) if has_text else Rows()
        return self

    def _run_bounded(self, sql: str, options: Mapping[str, str]) -> Rows:
        """Run a statement, and again with bounds for the tables that turn out to have none."""
        hidden: list[str] = []
        try:
            while True:
                try:
                    return self._session.run(sql, options)
                except GatewayError as error:
                    unbounded = _UNBOUNDED.search(str(error))
                    name = quoted(*unbounded[1].split(".")) if unbounded else ""
                    if not name or name in hidden or not self._hide(name):
                        raise
                    hidden.append(name)
                    created = _STAGING.search(sql)
                    if created:
                        self._session.run(f"DROP TABLE IF EXISTS {created[1]}")
        finally:
            for name in hidden:
                self._session.run(f"DROP TEMPORARY TABLE IF EXISTS {name}")

    def _hide(self, name: str) -> bool:
        """Hide a table behind a bounded one of its name; return whether its connector can have bounds."""
        text = str(self._session.run(f"SHOW CREATE TABLE {name}").rows[0][0])
        declared = options_of(text)
        key, bound = BOUNDS.get(declared.get("connector", ""), ("", ""))
        if not key or text.startswith("CREATE TEMPORARY"):
            return False
        columns, _, _ = text.rpartition("\nWITH (")
        columns = columns.replace("CREATE TABLE", "CREATE TEMPORARY TABLE", 1)
        self._session.run(f"{columns} {with_clause(declared | {key: bound})}")
        return True

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """The columns of the result."""
        columns = self._result.columns
        return [(column.name, column.type, None, None, None, None, column.is_nullable) for column in columns] or None

    @property
    def rows(self) -> Rows:
        """The whole result."""
        return self._result

    def fetchmany(self, size: int) -> list[tuple[Any, ...]]:
        """Return the next rows."""
        rows = self._result.rows[self._next : self._next + size]
        self._next += len(rows)
        return rows

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows that are left."""
        return self.fetchmany(len(self._result.rows))

    def close(self) -> None:
        """Do nothing: the result is released already."""


class Handle:
    """A session with the catalogs of the profile. `open_another` opens one like it."""

    def __init__(self, credentials: PenstockCredentials) -> None:
        self.credentials = credentials
        self._gateway = Gateway(credentials.url, credentials.token, credentials.ssl or True)
        self.session = self._open()

    def _open(self) -> Session:
        session = self._gateway.open(BATCH | self.credentials.session_options())
        for name, catalog_options in self.credentials.all_catalogs().items():
            session.run(f"CREATE CATALOG IF NOT EXISTS {quoted(name)} {with_clause(catalog_options)}")
        session.run(f"USE CATALOG {quoted(self.credentials.database)}")
        return session

    def open_another(self) -> Handle:
        """Return a session with the same catalogs."""
        return Handle(self.credentials)

    def cursor(self) -> Cursor:
        """Return a cursor."""
        return Cursor(self.session)

    def run(self, sql: str, options: Mapping[str, str] = BATCH) -> Rows:
        """Run a statement."""
        return self.session.run(sql, options)

    def close(self) -> None:
        """End the session."""
        self.session.close()


class PenstockConnectionManager(SQLConnectionManager):
    """Opens and closes connections."""

    TYPE = "penstock"

    @contextmanager
    def exception_handler(self, sql: str) -> Iterator[None]:
        """See `SQLConnectionManager`."""
        try:
            yield
        except GatewayError as error:
            self.release()
            raise DbtDatabaseError(str(error)) from error
        except Exception:
            self.release()
            raise

    @classmethod
    def open(cls, connection: Connection) -> Connection:
        """Open a session."""
        if connection.state == ConnectionState.OPEN:
            return connection
        return cls.retry_connection(
            connection,
            connect=lambda: Handle(connection.credentials),
            logger=_logger,
            retry_limit=3,
            retryable_exceptions=[GatewayUnreachableError],
        )

    def cancel(self, connection: Connection) -> None:
        """Cancel the statement of a connection."""
        connection.handle.session.cancel()

    @classmethod
    def get_response(cls, cursor: Cursor) -> AdapterResponse:
        """Return what dbt shows of a statement."""
        return AdapterResponse("OK", query_id=cursor.rows.job_id)

    @classmethod
    def data_type_code_to_name(cls, type_code: int | str) -> str:
        """Return the name of a type of a cursor's description, as dbt's contracts compare them."""
        return {"INTEGER": "INT", "VARCHAR": "STRING"}.get(str(type_code), str(type_code))

    def add_begin_query(self) -> None:
        """Do nothing: there are no transactions."""

    def add_commit_query(self) -> None:
        """Do nothing: each statement is its own commit."""

    def begin(self) -> None:
        """Do nothing."""

    def commit(self) -> None:
        """Do nothing."""

    def clear_transaction(self) -> None:
        """Do nothing."""
