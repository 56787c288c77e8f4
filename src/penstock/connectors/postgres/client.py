"""PostgreSQL connections, quoting of SQL names, sink options, and table definitions from a database's catalog.

The options of sinks are PyFlink's `JdbcConnectionOptions` and `JdbcExecutionOptions`, and `JdbcExactlyOnceOptions`.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit

import pyarrow as pa

from penstock.base.errors import (
    ConfigurationError,
    MissingPathError,
    OperationError,
    UnknownNameError,
    UnsupportedError,
    write_install_command,
)
from penstock.base.secrets import remember
from penstock.connectors.postgres.text_columns import to_arrow_type

if TYPE_CHECKING:
    import psycopg


T = TypeVar("T")

#: JDBC URL parameters that have other names in libpq
_RENAMED: Final = {
    "user": "user",
    "password": "password",
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "connectTimeout": "connect_timeout",
    "loginTimeout": "connect_timeout",
    "ApplicationName": "application_name",
    "targetServerType": "target_session_attrs",
    "options": "options",
}
_SERVER_TYPES: Final = {"primary": "read-write", "master": "read-write", "secondary": "standby", "any": "any"}
#: parameters that tune the Java driver and have no meaning here
_OF_JAVA: Final = frozenset({"reWriteBatchedInserts", "defaultRowFetchSize", "prepareThreshold", "stringtype"})
#: Connection parameters that apply unless the URL sets them. A dead peer is noticed within about a minute.
_DEFAULTS: Final = {
    "connect_timeout": "10",
    "application_name": "penstock",
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
#: How long a process that stalls in the middle of a transaction may hold its locks.
IDLE_IN_TRANSACTION_MS: Final = 60_000
RETRY_PAUSE_S: Final = 1.0
#: The hosts of a URL with their ports: names, addresses, or socket directories in %2F form.
_HOST: Final = r"(?:\[[0-9a-fA-F:.%]*\]|[\w.%~-]*)(?::\d*)?"
_HOSTS: Final = re.compile(rf"{_HOST}(?:,{_HOST})*")
_SCHEME: Final = re.compile(r"(?:jdbc:)?[a-z][a-z0-9+.-]{0,20}(?:://|:)")
_OLDEST: Final = 140_000


def driver() -> Any:
    """Import and return psycopg.

    Raises:
        ConfigurationError: if it is not installed.
    """
    try:
        import psycopg
    except ImportError as error:
        raise ConfigurationError(
            f"connectors of PostgreSQL need the package psycopg: {write_install_command('postgres')}"
        ) from error
    return psycopg


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a database, with the user who connects. Its printed form does not include the password.

    Attributes:
        url: `postgresql://…`, as in libpq, or `jdbc:postgresql://…`, as in JDBC.
        user: overrides the user in the URL; None to keep that.
        password: likewise.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        remember({"url": self.url, "password": self.password or ""})
        self._place()

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"

    @property
    def shown(self) -> str:
        """The host, port and database."""
        return self._place()

    def _place(self) -> str:
        """Return the host, port and database, without credentials.

        Raises:
            ConfigurationError: if the URL is malformed. The error quotes nothing that may be part of a password.
        """
        authority, slash, path = self.conninfo().partition("://")[2].partition("/")
        host, database = authority.rpartition("@")[2].partition("?")[0], path.partition("?")[0]
        if not _HOSTS.fullmatch(host) or "@" in database:
            raise ConfigurationError(
                "the URL of the database is malformed: after user and password come HOST:PORT/DATABASE. In a user or a "
                "password, / ? # @ : and % are written as %2F %3F %23 %40 %3A %25; or give both as options of their own"
            )
        return host + slash + database

    def conninfo(self) -> str:
        """Return the URL for libpq.

        Raises:
            ConfigurationError: if it is not a PostgreSQL URL.
        """
        if self.url.startswith(("postgresql://", "postgres://")):
            return self.url
        if not self.url.startswith("jdbc:postgresql://"):
            raise ConfigurationError(describe_dialects(self.url))
        plain, _, query = self.url.removeprefix("jdbc:").partition("?")
        parameters = [part for key, value in parse_qsl(query) for part in _parameter(key, value)]
        return plain + ("?" + "&".join(parameters) if parameters else "")

    def keywords(self, **more: Any) -> dict[str, Any]:
        """Return the keyword arguments that psycopg needs besides `conninfo`."""
        query = urlsplit(self.conninfo()).query
        arguments: dict[str, Any] = {key: value for key, value in _DEFAULTS.items() if f"{key}=" not in query}
        if self.user is not None:
            arguments["user"] = self.user
        if self.password is not None:
            arguments["password"] = self.password
        return {**arguments, **more}


#: The dialects of Flink that this connector has no driver for, by what follows `jdbc:`.
_OTHERS: Final[Mapping[str, str]] = {
    "crate": "CrateDB",
    "cratedb": "CrateDB",
    "sqlserver": "SQL Server",
    "oracle": "Oracle",
    "db2": "DB2",
    "derby": "Derby",
    "trino": "Trino",
    "presto": "Presto",
    "oceanbase": "OceanBase",
    "dm": "Dameng",
    "sqlite": "SQLite",
}
#: The classes of Java's drivers that programs may name, by the dialect of the URL.
DRIVERS: Final[Mapping[str, tuple[str, ...]]] = {
    "postgresql": ("org.postgresql.Driver",),
    "mysql": ("com.mysql.cj.jdbc.Driver", "com.mysql.jdbc.Driver"),
    "mariadb": ("org.mariadb.jdbc.Driver",),
}


def find_dialect(url: str) -> str:
    """Return the dialect of a URL: `postgresql`, `mysql` or `mariadb`; empty for any other."""
    scheme = url.removeprefix("jdbc:").partition(":")[0]
    return "postgresql" if scheme == "postgres" else scheme if scheme in DRIVERS else ""


def describe_dialects(url: str) -> str:
    """Return why a URL is refused, without quoting more of it than its scheme."""
    scheme = _SCHEME.match(url)
    other = _OTHERS.get(url.removeprefix("jdbc:").partition(":")[0])
    begins = f"with {scheme[0]!r}" if scheme is not None else "with anything else"
    return (
        "the connector jdbc speaks to PostgreSQL, MySQL and MariaDB: a URL begins with jdbc:postgresql://, "
        f"jdbc:mysql:// or jdbc:mariadb://, and HOST:PORT/DATABASE follows; it does not begin {begins}"
        + (f": there is no dialect of {other} here" if other else "")
    )


def read_address(url: str, user: str | None = None, password: str | None = None) -> Any:
    """Return the address of a database: an `Address` of PostgreSQL, or a `MySqlAddress` of MySQL or MariaDB.

    Raises:
        ConfigurationError: if the URL is malformed, or of another database, which the message names.
    """
    if find_dialect(url) in ("mysql", "mariadb"):
        from penstock.connectors.mysql.client import MySqlAddress

        return MySqlAddress.of_url(url, user, password)
    return Address(url, user, password)


def check_driver(url: str, driver_name: str | None) -> None:
    """Raise `ConfigurationError` unless the class of Java's driver, if one is named, fits the URL."""
    known = DRIVERS.get(find_dialect(url), ())
    if driver_name is not None and known and driver_name not in known:
        raise ConfigurationError(f"the driver of this URL is {known[0]}, not {driver_name}: leave it out")


def _parameter(key: str, value: str) -> list[str]:
    """Translate a JDBC parameter into libpq parameters."""
    if key in _OF_JAVA:
        return []
    if key == "currentSchema":
        key, value = "options", f"-c search_path={value}"
    elif key == "ssl":
        key, value = "sslmode", "require" if value.lower() == "true" else "prefer"
    elif key == "targetServerType":
        value = _SERVER_TYPES.get(value, value)
    elif key not in _RENAMED:
        raise ConfigurationError(
            f"parameter {key!r} of a jdbc:postgresql URL is not known here: leave it out, or write a postgresql:// URL "
            "with the parameters of libpq"
        )
    return [f"{_RENAMED.get(key, key)}={quote(value)}"]


def connect(address: Address, **more: Any) -> psycopg.Connection[Any]:
    """Open a connection in autocommit mode."""
    psycopg = driver()
    connection = psycopg.connect(address.conninfo(), autocommit=True, **address.keywords(**more))
    try:
        version = connection.info.server_version
        if version < _OLDEST:
            raise UnsupportedError(f"{address.shown} is PostgreSQL {version // 10_000}: connectors need 14 or newer")
        connection.execute(f"SET idle_in_transaction_session_timeout = {IDLE_IN_TRANSACTION_MS}")
        # A role or a database may turn it off, and then a backslash would change where a quoted text ends.
        connection.execute("SET standard_conforming_strings = on")
    except BaseException:
        connection.close()
        raise
    return connection  # type: ignore[no-any-return]


class Link:
    """A connection that is opened on demand, and reopened after it breaks."""

    def __init__(self, address: Address, **more: Any) -> None:
        self.address = address
        self._more = more
        self._connection: psycopg.Connection[Any] | None = None

    def get(self) -> psycopg.Connection[Any]:
        """Return the connection, opening it if needed."""
        if self._connection is None or self._connection.closed:
            self._connection = connect(self.address, **self._more)
        return self._connection

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def transaction(self, connection: psycopg.Connection[Any]) -> contextlib.AbstractContextManager[Any]:
        """Return a transaction of the connection, which is undone after an error."""
        return connection.transaction()

    def retrying(self, retries: int, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Return the result of `work`; retry if the server is unreachable, disconnects or aborts it in a deadlock.

        Raises:
            OperationError: if the last retry fails; the message names the server.
        """
        errors = driver()
        for attempt in range(retries + 1):
            if attempt:
                time.sleep(RETRY_PAUSE_S * attempt)
            try:
                return work(self.get())
            except errors.OperationalError as error:
                last = error
                if not isinstance(error, errors.errors.DeadlockDetected | errors.errors.SerializationFailure):
                    self.close()
        raise OperationError(
            f"PostgreSQL at {self.address.shown} did not do it, also not when asked again ({retries} retries): {last}"
        ) from last


def quoted(name: str) -> str:
    """Quote a name for SQL; it may contain any character."""
    return '"' + name.replace('"', '""') + '"'


def quoted_path(path: str) -> str:
    """Quote each name in `schema.table` or `table`; names already in quotes stay unchanged."""
    return ".".join(quoted(name) for name in split_path(path))


def split_path(path: str) -> list[str]:
    """Split a path into its names. A dot within quotes belongs to the name."""
    parts = re.findall(r'(?:"(?:[^"]|"")*"|[^."])+|(?=\.\.)|^(?=\.)|(?<=\.)$', path)
    return [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts]


def quoted_list(names: Sequence[str]) -> str:
    """Quote names and join them with commas."""
    return ", ".join(map(quoted, names))


@contextlib.contextmanager
def naming(problem: str) -> Iterator[None]:
    """Prefix the server's errors with the operation `problem`. Errors of a lost connection pass through unchanged."""
    errors = driver()
    try:
        yield
    except errors.OperationalError:
        raise
    except errors.Error as error:
        raise OperationError(f"{problem}: {error}") from error


BATCH_SIZE: Final = 5_000
MAX_RETRIES: Final = 3
LEDGER: Final = "penstock_commits"


@dataclass(frozen=True, slots=True)
class JdbcConnectionOptions:
    """The address of a database and its user; built by `JdbcConnectionOptionsBuilder`.

    Examples:
        >>> from penstock.datastream.connectors import JdbcConnectionOptions
        >>> builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
        >>> options = builder.with_url("jdbc:postgresql://localhost/shop").with_user_name("ann").build()
        >>> options.get_db_url(), options.get_user_name()
        ('jdbc:postgresql://localhost/shop', 'ann')
    """

    url: str = field(repr=False)  # it may contain a password
    driver_name: str | None = None
    user_name: str | None = None
    password: str | None = field(default=None, repr=False)

    def get_db_url(self) -> str:
        """Return the URL."""
        return self.url

    def get_driver_name(self) -> str | None:
        """Return the class of the Java driver, or None."""
        return self.driver_name

    def get_user_name(self) -> str | None:
        """Return the user name."""
        return self.user_name

    def get_password(self) -> str | None:
        """Return the password."""
        return self.password

    def address(self) -> Any:
        """Return the address to connect to: an `Address`, or a `MySqlAddress`."""
        return read_address(self.url, self.user_name, self.password)

    class JdbcConnectionOptionsBuilder:
        """Builds `JdbcConnectionOptions`."""

        def __init__(self) -> None:
            self._url: str | None = None
            self._driver_name: str | None = None
            self._user_name: str | None = None
            self._password: str | None = None

        def with_url(self, url: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Set the URL: `jdbc:postgresql://HOST:PORT/DATABASE`, `jdbc:mysql://…` or `jdbc:mariadb://…`."""
            self._url = url
            return self

        def with_driver_name(self, driver_name: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Set the Java driver class, for programs that name it: a driver of Python connects regardless."""
            self._driver_name = driver_name
            return self

        def with_user_name(self, user_name: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Set the user name."""
            self._user_name = user_name
            return self

        def with_password(self, password: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Set the password."""
            self._password = password
            return self

        def build(self) -> JdbcConnectionOptions:
            """Build the options.

            Raises:
                ConfigurationError: if the URL is missing or of another database, or the driver is not that of the URL.
            """
            if self._url is None:
                raise ConfigurationError("connection options need a URL: call with_url()")
            check_driver(self._url, self._driver_name)
            connection_options = JdbcConnectionOptions(self._url, self._driver_name, self._user_name, self._password)
            connection_options.address()
            return connection_options


@dataclass(frozen=True, slots=True)
class JdbcExecutionOptions:
    """When a sink writes its buffered rows; built by `builder()`.

    Examples:
        >>> from penstock.datastream.connectors import JdbcExecutionOptions
        >>> options = JdbcExecutionOptions.builder().with_batch_size(500).with_batch_interval_ms(1_000).build()
        >>> options.get_batch_size(), options.get_batch_interval_ms(), options.get_max_retries()
        (500, 1000, 3)
    """

    batch_interval_ms: int = 0
    batch_size: int = BATCH_SIZE
    max_retries: int = MAX_RETRIES

    def __post_init__(self) -> None:
        if self.batch_interval_ms < 0 or self.max_retries < 0:
            raise ConfigurationError("the interval of batches and the number of retries must be 0 or above")
        if self.batch_size < 1:
            raise ConfigurationError(f"the size of batches must be 1 or above, not {self.batch_size}")

    @staticmethod
    def builder() -> JdbcExecutionOptions.Builder:
        """Return a builder with the defaults."""
        return JdbcExecutionOptions.Builder()

    @staticmethod
    def defaults() -> JdbcExecutionOptions:
        """Return the defaults: 5000 rows at a time, no interval, 3 retries."""
        return JdbcExecutionOptions()

    def get_batch_interval_ms(self) -> int:
        """Return how long (ms) rows wait at most; 0 means until the batch is full or a checkpoint comes."""
        return self.batch_interval_ms

    def get_batch_size(self) -> int:
        """Return the number of rows that triggers a write."""
        return self.batch_size

    def get_max_retries(self) -> int:
        """Return how often a write is retried."""
        return self.max_retries

    class Builder:
        """Builds `JdbcExecutionOptions`."""

        def __init__(self) -> None:
            self._interval_ms = 0
            self._size = BATCH_SIZE
            self._max_retries = MAX_RETRIES

        def with_batch_interval_ms(self, interval_ms: int) -> JdbcExecutionOptions.Builder:
            """Set how long (ms) rows wait at most; 0 means until the batch is full or a checkpoint comes."""
            self._interval_ms = interval_ms
            return self

        def with_batch_size(self, size: int) -> JdbcExecutionOptions.Builder:
            """Set how many rows trigger a write. Rows that arrive together are written together, even if more."""
            self._size = size
            return self

        def with_max_retries(self, max_retries: int) -> JdbcExecutionOptions.Builder:
            """Set how often a write is retried, after one second, two, and so on, before the job fails."""
            self._max_retries = max_retries
            return self

        def build(self) -> JdbcExecutionOptions:
            """Build the options. Raises `ConfigurationError` for numbers that are too low."""
            return JdbcExecutionOptions(self._interval_ms, self._size, self._max_retries)


@dataclass(frozen=True, slots=True)
class JdbcExactlyOnceOptions:
    """How an exactly-once sink records its commits.

    Attributes:
        ledger_table: the table of commits, created if missing; `schema.table` for another schema.
        max_retries: how often a commit is retried. Retrying is safe: the ledger shows whether the commit succeeded.

    Examples:
        >>> from penstock.datastream.connectors.jdbc import JdbcExactlyOnceOptions
        >>> JdbcExactlyOnceOptions.defaults()
        JdbcExactlyOnceOptions(ledger_table='penstock_commits', max_retries=3)
    """

    ledger_table: str = LEDGER
    max_retries: int = MAX_RETRIES

    def __post_init__(self) -> None:
        if not all(split_path(self.ledger_table)):
            raise ConfigurationError(f"the name of the ledger's table is empty: {self.ledger_table!r}")
        if self.max_retries < 0:
            raise ConfigurationError("the number of retries must be 0 or above")

    @staticmethod
    def defaults() -> JdbcExactlyOnceOptions:
        """Return the defaults: the table `penstock_commits` in the default schema, and 3 retries."""
        return JdbcExactlyOnceOptions()


_COLUMNS = """
    SELECT a.attname, t.typname, a.atttypmod, format_type(a.atttypid, a.atttypmod),
           coalesce(array_position(i.indkey::int2[], a.attnum), -1), a.attgenerated <> ''
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
    WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column: its name, its Arrow type, its type in the server's notation, and whether the server computes it."""

    name: str
    type: pa.DataType
    sql_type: str
    is_generated: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or view: its quoted path, its columns, and the names of its primary key columns."""

    path: str
    columns: tuple[RelationColumn, ...]
    key: tuple[str, ...]

    def column(self, name: str) -> RelationColumn:
        """Return a column. Raises `UnknownNameError` if no column has the name."""
        for candidate in self.columns:
            if candidate.name == name:
                return candidate
        names = ", ".join(column.name for column in self.columns)
        raise UnknownNameError(f"table {self.path} of PostgreSQL has no column {name!r}; it has {names}")


def relation(connection: psycopg.Connection[Any], path: str) -> Relation:
    """Read the definition of a table. Raises `MissingPathError` if it does not exist."""
    quoted = quoted_path(path)
    rows = connection.execute(_COLUMNS, (quoted,)).fetchall()
    if not rows:
        raise MissingPathError(f"PostgreSQL at {connection.info.host}:{connection.info.port} has no table {quoted}")
    columns = tuple(
        RelationColumn(name, to_arrow_type(kind, modifier), sql_type, is_generated)
        for name, kind, modifier, sql_type, _, is_generated in rows
    )
    key = sorted((position, name) for name, _, _, _, position, _ in rows if position >= 0)
    return Relation(quoted, columns, tuple(name for _, name in key))
