"""Connections to MySQL and MariaDB, quoting of SQL names, settings of sessions, and definitions of tables.

The client library is PyMySQL. A session has settings of its own, whatever the server's are: the time zone is UTC, text
is utf8mb4, and rows that do not fit are errors instead of being cut (`sql_mode`). MySQL 8.0 and MariaDB 10.5 are the
oldest servers.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote

from penstock.base.errors import (
    ConfigurationError,
    MissingPathError,
    OperationError,
    UnknownNameError,
    UnsupportedError,
)
from penstock.base.secrets import hide, remember
from penstock.connectors.base import require

T = TypeVar("T")

MYSQL, MARIADB = "mysql", "mariadb"
PORT: Final = 3306
_SCHEME: Final = re.compile(r"(?:jdbc:)?(mysql|mariadb)://")
_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+)?(?::(\d{1,5}))?")
_OLDEST: Final[Mapping[str, tuple[int, int]]] = {MYSQL: (8, 0), MARIADB: (10, 5)}
#: How long (s) to wait for a connection, unless the URL says it.
CONNECT_TIMEOUT_S: Final = 10.0
#: How long (s) the server waits for a reader that is busy with other things. Its default, a minute, ends slow jobs.
_WRITE_TIMEOUT_S: Final = 86_400
_RETRY_PAUSE_S: Final = 1.0
#: A dead peer is noticed within about a minute: seconds of idleness, between probes, and the number of probes.
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 60_000))

#: The modes of TLS by the names of Connector/J and of MariaDB's driver, in small letters.
_TLS_MODES: Final[Mapping[str, str]] = {
    "disabled": "disabled",
    "disable": "disabled",
    "preferred": "preferred",
    "required": "required",
    "trust": "required",
    "verify_ca": "verify_ca",
    "verify-ca": "verify_ca",
    "verify_identity": "verify_identity",
    "verify-full": "verify_identity",
}
_TLS_FILES: Final[Mapping[str, str]] = {"sslca": "ca", "serversslcert": "ca", "sslcert": "cert", "sslkey": "key"}
#: Parameters that tune a Java driver and have no meaning here.
_TUNING: Final = (
    "useUnicode characterEncoding rewriteBatchedStatements useServerPrepStmts cachePrepStmts prepStmtCacheSize "
    "prepStmtCacheSqlLimit allowPublicKeyRetrieval useCursorFetch defaultFetchSize useCompression autoReconnect "
    "tinyInt1isBit yearIsDateType nullCatalogMeansCurrent useBulkStmts maintainTimeStats cacheResultSetMetadata "
    "cacheServerConfiguration useLocalSessionState elideSetAutoCommits permitMysqlScheme useLegacyDatetimeCode"
)
_OF_JAVA: Final = frozenset(_TUNING.lower().split())
_UTC: Final = frozenset({"utc", "gmt", "z", "+00:00", "+0000", "etc/utc", "gmt+0", "gmt+00:00"})

#: Errors after which the same work may succeed: the server is away, is going, is not primary, or undid a transaction.
_PASSING: Final = frozenset(
    {0, 1040, 1053, 1077, 1078, 1079, 1080, 1158, 1159, 1160, 1161, 1184, 1203, 1205, 1213, 1226, 1290, 1836, 1927}
    | {2002, 2003, 2006, 2013, 2014, 2055, 3032, 4031}
)


def load_library() -> Any:
    """Import and return PyMySQL. Raises `ConfigurationError` if it is not installed."""
    require("pymysql", "a connector of MySQL and MariaDB", "PyMySQL", "mysql")
    import pymysql

    return pymysql


@dataclass(frozen=True, slots=True)
class MySqlAddress:
    """The address of a server, with the user who connects. Its printed form does not include the password.

    Attributes:
        host: a name or an address.
        port: 3306 by default.
        user: None for PyMySQL's default, the user of the operating system.
        password: None without any.
        database: the default database; None for none.
        dialect: `mysql` or `mariadb`, as the URL says. Either connects to both servers.
        tls_mode: `disabled`, `preferred` (TLS if the server offers it), `required` (any certificate), `verify_ca`, or
            `verify_identity`, which also checks the name of the host.
        tls_files: paths of PEM files by `ca`, `cert` and `key`.
        connect_timeout_s: how long to wait for a connection (s).
        read_timeout_s: how long to wait for an answer (s); None without a limit.

    Examples:
        >>> from penstock.connectors.mysql.client import MySqlAddress
        >>> address = MySqlAddress.of_url("jdbc:mysql://ann:secret@db:3307/shop?sslMode=REQUIRED")
        >>> address, address.user, address.tls_mode
        (MySqlAddress('db:3307/shop'), 'ann', 'required')
    """

    host: str
    port: int = PORT
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: str | None = None
    dialect: str = MYSQL
    tls_mode: str = "preferred"
    tls_files: Mapping[str, str] = field(default_factory=dict)
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    read_timeout_s: float | None = None

    def __post_init__(self) -> None:
        remember({"password": self.password or ""})
        if not 0 < self.port < 65_536:
            raise ConfigurationError(f"the port of a server is 1 to 65535, not {self.port}")
        if self.tls_mode not in _TLS_MODES.values():
            known = ", ".join(dict.fromkeys(_TLS_MODES.values()))
            raise ConfigurationError(f"the mode of TLS is one of {known}, not {self.tls_mode!r}")

    def __repr__(self) -> str:
        return f"MySqlAddress({self.shown!r})"

    @property
    def shown(self) -> str:
        """The host, port and database."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" + (f"/{self.database}" if self.database else "")

    @staticmethod
    def of_url(url: str, user: str | None = None, password: str | None = None) -> MySqlAddress:
        """Parse `jdbc:mysql://HOST:PORT/DATABASE?NAME=VALUE`, or the same with `mariadb` or without `jdbc:`.

        Args:
            url: may have a user and a password before the host, or as parameters.
            user: overrides that of the URL; None to keep it.
            password: likewise.

        Raises:
            ConfigurationError: if the URL is malformed, or a parameter is not known here. The error quotes nothing
                that may be part of a password.
        """
        remember({"url": url, "password": password or ""})
        scheme = _SCHEME.match(url)
        if scheme is None:
            raise ConfigurationError(
                "a URL of MySQL begins with jdbc:mysql://HOST:PORT/DATABASE, and one of MariaDB with jdbc:mariadb://; "
                "several hosts, with replication: or loadbalance:, are not supported"
            )
        plain, _, query = url[scheme.end() :].partition("?")
        authority, _, path = plain.partition("/")
        credentials, _, server = authority.rpartition("@")
        host = _HOST.fullmatch(server)
        if host is None or "@" in path or "/" in path:
            raise ConfigurationError(
                "the URL of the database is malformed: after user and password comes one HOST:PORT/DATABASE. In a user "
                "or a password, / ? # @ : and % are written as %2F %3F %23 %40 %3A %25; or give both as options of "
                "their own"
            )
        given = {}
        if credentials:
            name, colon, secret = credentials.partition(":")
            given = {"user": unquote(name)} | ({"password": unquote(secret)} if colon else {})
        parameters, arguments = dict(parse_qsl(query, keep_blank_values=True)), {}
        for key in ("user", "password"):
            if key in parameters:
                given[key] = parameters.pop(key)
        arguments = _read_parameters(parameters)
        return MySqlAddress(
            host=(host[1] or "localhost").strip("[]"),
            port=int(host[2] or PORT),
            user=given.get("user") if user is None else user,
            password=given.get("password") if password is None else password,
            database=unquote(path) or None,
            dialect=scheme[1],
            **arguments,
        )

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of `pymysql.connect`: the server, the user, and TLS.

        Raises:
            ConfigurationError: if a file of TLS cannot be read.
        """
        arguments: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            # The library would encode it as latin1, where drivers of Java take UTF-8.
            "password": (self.password or "").encode(),
            "database": self.database,
            "charset": "utf8mb4",
            "connect_timeout": max(1, round(self.connect_timeout_s)),
        }
        if self.tls_mode == "disabled":
            arguments["ssl_disabled"] = True
        elif self.tls_mode != "preferred" or self.tls_files:
            arguments["ssl"] = self._tls_context()
        return arguments

    def _tls_context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.tls_files.get("ca"))
            if "cert" in self.tls_files:
                context.load_cert_chain(self.tls_files["cert"], self.tls_files.get("key"))
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"{self.shown}: a file of TLS cannot be read: {error}") from error
        # Certificates that the server makes for itself break newer rules.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = self.tls_mode == "verify_identity"
        if self.tls_mode not in ("verify_ca", "verify_identity"):
            context.verify_mode = ssl.CERT_NONE
        return context


def _read_parameters(parameters: Mapping[str, str]) -> dict[str, Any]:
    """Translate the parameters of a JDBC URL into fields of the address."""
    fields: dict[str, Any] = {}
    files: dict[str, str] = {}
    for key, value in parameters.items():
        name = key.lower()
        if name == "sslmode":
            if value.lower() not in _TLS_MODES:
                raise ConfigurationError(f"parameter {key!r} is one of {', '.join(_TLS_MODES)}, not {value!r}")
            fields["tls_mode"] = _TLS_MODES[value.lower()]
        elif name in ("usessl", "requiressl", "verifyservercertificate"):
            mode = {"usessl": "preferred", "requiressl": "required"}.get(name, "verify_ca")
            if value.lower() == "true":
                fields["tls_mode"] = max(mode, fields.get("tls_mode", mode), key=tuple(_TLS_MODES.values()).index)
            elif name == "usessl":
                fields["tls_mode"] = "disabled"
        elif name in _TLS_FILES:
            files[_TLS_FILES[name]] = value
        elif name in ("connecttimeout", "sockettimeout"):
            if not value.isdigit():
                raise ConfigurationError(f"parameter {key!r} is a number of milliseconds, not {value!r}")
            if int(value):
                target = "connect_timeout_s" if name == "connecttimeout" else "read_timeout_s"
                fields[target] = int(value) / 1_000
        elif name in ("servertimezone", "connectiontimezone", "timezone"):
            if value.lower() not in _UTC:
                raise ConfigurationError(
                    f"parameter {key!r} is {value!r}, but sessions are in UTC here: leave it out, and declare moments "
                    "as TIMESTAMP_LTZ"
                )
        elif name == "zerodatetimebehavior":
            raise ConfigurationError(
                f"parameter {key!r}: the option 'unrepresentable-values' says how to read dates such as 0000-00-00, "
                "'fail' or 'null'"
            )
        elif name not in _OF_JAVA:
            raise ConfigurationError(
                f"parameter {key!r} of a URL of MySQL is not known here: leave it out. Known ones are user, password, "
                "sslMode, sslCa, sslCert, sslKey, connectTimeout and socketTimeout"
            )
    if files:
        fields["tls_files"] = files
    return fields


@dataclass(frozen=True, slots=True)
class Server:
    """The product and the version of a server.

    Attributes:
        dialect: `mysql` or `mariadb`.
        version: the first three numbers of its version.
        shown: a name for messages, such as `MySQL 9.7.4`.
    """

    dialect: str
    version: tuple[int, ...]

    @property
    def shown(self) -> str:
        """The name and the version, such as `MariaDB 10.11.6`."""
        name = "MariaDB" if self.dialect == MARIADB else "MySQL"
        return f"{name} {'.'.join(map(str, self.version))}"


def read_server(connection: Any) -> Server:
    """Return the product and the version of a connection's server."""
    (text,) = query(connection, "SELECT VERSION()")[0]
    numbers = tuple(int(part) for part in re.findall(r"\d+", text.partition("-")[0])[:3])
    return Server(MARIADB if "mariadb" in text.lower() else MYSQL, numbers)


def read_variables(connection: Any, *names: str) -> dict[str, str]:
    """Return global variables of the server, such as `gtid_mode`, by name. Unknown ones are left out."""
    wanted = ", ".join(map(literal, names))
    return dict(query(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({wanted})"))


def connect(address: MySqlAddress, **more: Any) -> Any:
    """Open a connection of PyMySQL, in autocommit mode, with the settings of the module docstring.

    Args:
        address: the server.
        more: other arguments of `pymysql.connect`.

    Raises:
        pymysql.err.OperationalError: if the server cannot be reached or refuses the user; the message names the server.
        UnsupportedError: if the server is too old.
    """
    library = load_library()
    arguments = address.arguments() | {"read_timeout": address.connect_timeout_s, "autocommit": True} | more
    try:
        connection = library.connect(**arguments)
    except library.err.MySQLError as error:
        text = hide(str(error.args[-1]) if error.args else type(error).__name__)
        raise library.err.OperationalError(get_error_code(error), f"{address.shown}: {text}") from error
    try:
        server = read_server(connection)
        oldest = _OLDEST[server.dialect]
        if server.version < oldest:
            raise UnsupportedError(
                f"{address.shown} is {server.shown}: connectors need {'.'.join(map(str, oldest))} or newer"
            )
        # By default MySQL rounds fractions of a second, and MariaDB truncates them.
        cuts = ",TIME_TRUNCATE_FRACTIONAL" if server.dialect == MYSQL else ""
        connection.query(
            f"SET SESSION time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION{cuts}', "
            f"net_write_timeout = {_WRITE_TIMEOUT_S}"
        )
        connection._read_timeout = more.get("read_timeout", address.read_timeout_s)
        _keep_alive(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _keep_alive(connection: Any) -> None:
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            with contextlib.suppress(OSError, AttributeError):
                connection._sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def query(connection: Any, sql: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
    """Run a query with `%s` for values, and return all rows."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return list(cursor.fetchall())


def execute(connection: Any, sql: str) -> int:
    """Run a statement without placeholders, and return the number of affected rows."""
    return int(connection.query(sql))


def get_error_code(error: BaseException) -> int:
    """Return the number of an error of the server or the library; -1 if it has none."""
    code = error.args[0] if error.args else -1
    return code if isinstance(code, int) else -1


def is_passing(error: BaseException) -> bool:
    """Return whether the same work may succeed later: the server is away, or undid the transaction."""
    errors = load_library().err
    if isinstance(error, errors.InterfaceError):
        return True  # the connection was closed by an earlier error
    return isinstance(error, OSError) or (isinstance(error, errors.MySQLError) and get_error_code(error) in _PASSING)


def describe(error: BaseException) -> str:
    """Return an error as one line: the server's number and its words, without secrets."""
    words = " ".join(hide(str(error.args[-1] if error.args else error)).split())[:500]
    code = get_error_code(error)
    return f"{words} (error {code})" if code > 0 else words


@contextlib.contextmanager
def naming(problem: str) -> Iterator[None]:
    """Prefix the server's errors with the operation `problem`. Errors that may pass are unchanged."""
    errors = load_library().err
    try:
        yield
    except errors.MySQLError as error:
        if is_passing(error):
            raise
        raise OperationError(f"{problem}: {describe(error)}") from error


class MySqlLink:
    """A connection that is opened on demand, and reopened after it breaks."""

    def __init__(self, address: MySqlAddress) -> None:
        self.address = address
        self._connection: Any = None

    def get(self) -> Any:
        """Return the connection, opening it if needed."""
        if self._connection is None or not self._connection.open:
            self._connection = connect(self.address)
        return self._connection

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection.close()

    def transaction(self, connection: Any) -> contextlib.AbstractContextManager[None]:
        """Return a transaction of the connection, which is undone after an error."""
        return transaction(connection)

    def retrying(self, retries: int, work: Callable[[Any], T]) -> T:
        """Return the result of `work`; retry if the server is unreachable, disconnects or undoes its transaction.

        Raises:
            OperationError: if the last retry fails, or the server refuses the connection; the message names the server.
        """
        errors = load_library().err
        for attempt in range(retries + 1):
            if attempt:
                time.sleep(_RETRY_PAUSE_S * attempt)
            try:
                return work(self.get())
            except (errors.MySQLError, OSError) as error:
                # Closing the connection rolls its transaction back.
                self.close()
                if not is_passing(error):
                    raise OperationError(f"{self.address.shown} refuses: {describe(error)}") from error
                last = error
            except BaseException:
                self.close()
                raise
        raise OperationError(
            f"{self.address.shown} did not do it, also not when asked again ({retries} retries): {describe(last)}"
        ) from last


@contextlib.contextmanager
def transaction(connection: Any) -> Iterator[None]:
    """Run statements in a transaction, which is undone after an error."""
    execute(connection, "START TRANSACTION")
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            connection.rollback()
        raise
    connection.commit()


def quoted(name: str) -> str:
    """Quote a name for SQL; it may contain any character."""
    return "`" + name.replace("`", "``") + "`"


def quoted_path(path: str) -> str:
    """Quote each name in `database.table` or `table`; names already in backticks stay unchanged."""
    return ".".join(map(quoted, split_path(path)))


def split_path(path: str) -> list[str]:
    """Split a path into its names. A dot within backticks belongs to the name."""
    parts = re.findall(r"(?:`(?:[^`]|``)*`|[^.`])+|(?=\.\.)|^(?=\.)|(?<=\.)$", path)
    return [part[1:-1].replace("``", "`") if part.startswith("`") else part for part in parts]


def literal(text: str) -> str:
    """Return a text as an SQL literal; it may contain any character."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class ServerColumn:
    """A column of a table.

    Attributes:
        name: its name.
        kind: the server's type without lengths, in small letters, such as `bigint` or `enum`.
        sql_type: the server's type, such as `bigint(20) unsigned` or `enum('a','b')`.
        charset: the character set of text; None for others.
        collation: the collation of text; None for others.
        is_nullable: whether it may be NULL.
        is_generated: whether the server computes it.
        length: how many characters text has at most; None for others.
        precision: the digits of a number, or of a fraction of a second; None for others.
        scale: the digits after the point; None for others.
        comment: its comment; empty without any.
    """

    name: str
    kind: str
    sql_type: str
    charset: str | None
    collation: str | None
    is_nullable: bool
    is_generated: bool
    length: int | None
    precision: int | None
    scale: int | None
    comment: str

    @property
    def is_unsigned(self) -> bool:
        """Whether a number has no sign."""
        return "unsigned" in self.sql_type


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or view.

    Attributes:
        path: its quoted path, with the database.
        columns: its columns, in order.
        key: the names of its primary key columns; empty without one.
        uniques: the columns of each unique index, the primary key's first. Indexes of expressions are left out.
    """

    path: str
    columns: tuple[ServerColumn, ...]
    key: tuple[str, ...]
    uniques: tuple[tuple[str, ...], ...]

    def column(self, name: str) -> ServerColumn:
        """Return a column; case does not matter, as in the server. Raises `UnknownNameError` if there is none."""
        for candidate in self.columns:
            if candidate.name.lower() == name.lower():
                return candidate
        names = ", ".join(column.name for column in self.columns)
        raise UnknownNameError(f"table {self.path} has no column {name!r}; it has {names}")


_COLUMNS: Final = """
    SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, IS_NULLABLE, EXTRA,
           CHARACTER_MAXIMUM_LENGTH, COALESCE(NUMERIC_PRECISION, DATETIME_PRECISION), NUMERIC_SCALE, COLUMN_COMMENT
    FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_INDEXES: Final = """
    SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0
    ORDER BY INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX
"""


def read_relation(connection: Any, path: str) -> Relation:
    """Read the definition of a table, named `database.table`, or `table` in the connection's database.

    Raises:
        MissingPathError: if it does not exist, or the user may not see it.
        ConfigurationError: if neither the path nor the connection names a database.
    """
    names = split_path(path)
    if not all(names) or len(names) > 2:
        raise ConfigurationError(f"a table is named TABLE or DATABASE.TABLE, not {path!r}")
    database = names[0] if len(names) == 2 else query(connection, "SELECT DATABASE()")[0][0]
    if database is None:
        raise ConfigurationError(
            f"the database of table {path!r} is not known: name it in the URL, or as DATABASE.TABLE"
        )
    full = f"{quoted(database)}.{quoted(names[-1])}"
    rows = query(connection, _COLUMNS, (database, names[-1]))
    if not rows:
        raise MissingPathError(f"there is no table {full}, or the user may not see it")
    columns = tuple(
        ServerColumn(
            name,
            kind.lower(),
            _text(sql_type).lower() if kind.lower() not in ("enum", "set") else _text(sql_type),
            charset,
            collation,
            nullable == "YES",
            "generated" in extra.lower() and "default_generated" not in extra.lower().split(),
            length,
            precision,
            scale,
            _text(comment),
        )
        for name, kind, sql_type, charset, collation, nullable, extra, length, precision, scale, comment in rows
    )
    indexes: dict[str, list[str | None]] = {}
    for index, column, part in query(connection, _INDEXES, (database, names[-1])):
        indexes.setdefault(index, []).append(None if part is not None else column)
    uniques = {index: tuple(map(str, names)) for index, names in indexes.items() if None not in names}
    return Relation(full, columns, uniques.get("PRIMARY", ()), tuple(uniques.values()))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
