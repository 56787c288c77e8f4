"""Connections to PostgreSQL, and what SQL text is made of."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit

from penstock.base.errors import ConfigurationError, OperationError, UnsupportedError
from penstock.base.secrets import remember

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

#: parameters of JDBC's URLs that libpq has under other names
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
#: parameters that say how the driver in Java works, which has no meaning here
_OF_JAVA: Final = frozenset({"reWriteBatchedInserts", "defaultRowFetchSize", "prepareThreshold", "stringtype"})
#: What a connection has unless its URL says otherwise. A peer that is gone is noticed within a minute or so.
_DEFAULTS: Final = {
    "connect_timeout": "10",
    "application_name": "penstock",
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
#: How long a process that stands still in the middle of a transaction may hold its locks.
IDLE_IN_TRANSACTION_MS: Final = 60_000
RETRY_PAUSE_S: Final = 1.0
#: The hosts of a URL with their ports: names, addresses, or directories of sockets in %2F form.
_HOST: Final = r"(?:\[[0-9a-fA-F:.%]*\]|[\w.%~-]*)(?::\d*)?"
_HOSTS: Final = re.compile(rf"{_HOST}(?:,{_HOST})*")
_SCHEME: Final = re.compile(r"(?:jdbc:)?[a-z][a-z0-9+.-]{0,20}(?:://|:)")
_OLDEST: Final = 140_000


def driver() -> Any:
    """The package psycopg.

    Raises:
        ConfigurationError: if it is not installed.
    """
    try:
        import psycopg
    except ImportError as error:
        raise ConfigurationError(
            "connectors of PostgreSQL need the package psycopg: pip install 'penstock[postgres]'"
        ) from error
    return psycopg


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is, and who connects to it. What is shown of it has no password.

    Attributes:
        url: `postgresql://…`, as libpq takes it, or the same as JDBC writes it, `jdbc:postgresql://…`.
        user: goes before what the URL says; None for that.
        password: the same.
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
        """Host, port and database."""
        return self._place()

    def _place(self) -> str:
        """Host, port and database, without who connects.

        Raises:
            ConfigurationError: if the URL is malformed. The error quotes nothing that may be a part of a password.
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
        """The URL for libpq.

        Raises:
            ConfigurationError: if it is none of PostgreSQL.
        """
        if self.url.startswith(("postgresql://", "postgres://")):
            return self.url
        if not self.url.startswith("jdbc:postgresql://"):
            scheme = _SCHEME.match(self.url)
            raise ConfigurationError(
                "the connector jdbc speaks to PostgreSQL alone: a URL begins with jdbc:postgresql://HOST:PORT/DATABASE "
                f"or postgresql://, not with {scheme[0] if scheme is not None else 'anything else'!r}"
            )
        plain, _, query = self.url.removeprefix("jdbc:").partition("?")
        parameters = [part for key, value in parse_qsl(query) for part in _parameter(key, value)]
        return plain + ("?" + "&".join(parameters) if parameters else "")

    def keywords(self, **more: Any) -> dict[str, Any]:
        """What goes with `conninfo` to psycopg."""
        said = urlsplit(self.conninfo()).query
        found: dict[str, Any] = {key: value for key, value in _DEFAULTS.items() if f"{key}=" not in said}
        if self.user is not None:
            found["user"] = self.user
        if self.password is not None:
            found["password"] = self.password
        return {**found, **more}


def _parameter(key: str, value: str) -> list[str]:
    """A parameter of JDBC as those of libpq."""
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
    """A connection that commits each statement unless told otherwise."""
    psycopg = driver()
    connection = psycopg.connect(address.conninfo(), autocommit=True, **address.keywords(**more))
    try:
        version = connection.info.server_version
        if version < _OLDEST:
            raise UnsupportedError(f"{address.shown} is PostgreSQL {version // 10_000}: connectors need 14 or newer")
        connection.execute(f"SET idle_in_transaction_session_timeout = {IDLE_IN_TRANSACTION_MS}")
        # A role or a database may set it off, and then a backslash would end a quoted text in another place.
        connection.execute("SET standard_conforming_strings = on")
    except BaseException:
        connection.close()
        raise
    return connection  # type: ignore[no-any-return]


class Link:
    """A connection that is made when it is needed, and made again after it broke."""

    def __init__(self, address: Address, **more: Any) -> None:
        self.address = address
        self._more = more
        self._connection: psycopg.Connection[Any] | None = None

    def get(self) -> psycopg.Connection[Any]:
        """The connection."""
        if self._connection is None or self._connection.closed:
            self._connection = connect(self.address, **self._more)
        return self._connection

    def close(self) -> None:
        """Close it, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def retrying(self, retries: int, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """What `work` returns, tried again when the server is not there, went away or chose it as a deadlock's victim.

        Raises:
            OperationError: after so many retries; it names the server.
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
    """A name as SQL has it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def quoted_path(path: str) -> str:
    """`schema.table`, or `table`, with each name in quotes; names that are in quotes already stay."""
    return ".".join(quoted(name) for name in split_path(path))


def split_path(path: str) -> list[str]:
    """The names of a path. A point within quotes belongs to its name."""
    parts = re.findall(r'(?:"(?:[^"]|"")*"|[^."])+|(?=\.\.)|^(?=\.)|(?<=\.)$', path)
    return [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts]


def quoted_list(names: Sequence[str]) -> str:
    """Names with commas between."""
    return ", ".join(map(quoted, names))


@contextlib.contextmanager
def naming(what: str) -> Iterator[None]:
    """Errors of the server say what it was asked for. Those of a lost connection go through as they are."""
    errors = driver()
    try:
        yield
    except errors.OperationalError:
        raise
    except errors.Error as error:
        raise OperationError(f"{what}: {error}") from error
