"""Options of PostgreSQL sinks: PyFlink's `JdbcConnectionOptions` and `JdbcExecutionOptions`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from penstock.base.errors import ConfigurationError
from penstock.connectors.postgres.client import Address, split_path

DRIVER: Final = "org.postgresql.Driver"
BATCH_SIZE: Final = 5_000
MAX_RETRIES: Final = 3
LEDGER: Final = "penstock_commits"


@dataclass(frozen=True, slots=True)
class JdbcConnectionOptions:
    """The address of a database and its user; built by `JdbcConnectionOptionsBuilder`."""

    url: str = field(repr=False)  # it may contain a password
    driver_name: str | None = None
    user_name: str | None = None
    password: str | None = field(default=None, repr=False)

    def get_db_url(self) -> str:
        """Return the URL."""
        return self.url

    def get_driver_name(self) -> str | None:
        """Return the class of the Java driver: PostgreSQL's, or None."""
        return self.driver_name

    def get_user_name(self) -> str | None:
        """Return the user name."""
        return self.user_name

    def get_password(self) -> str | None:
        """Return the password."""
        return self.password

    def address(self) -> Address:
        """Return the address to connect to."""
        return Address(self.url, self.user_name, self.password)

    class JdbcConnectionOptionsBuilder:
        """Builds `JdbcConnectionOptions`."""

        def __init__(self) -> None:
            self._url: str | None = None
            self._driver_name: str | None = None
            self._user_name: str | None = None
            self._password: str | None = None

        def with_url(self, url: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Set the URL: `jdbc:postgresql://HOST:PORT/DATABASE`, or `postgresql://…` with libpq parameters."""
            self._url = url
            return self

        def with_driver_name(self, driver_name: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Set the Java driver class, for programs that name it: psycopg connects regardless."""
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
                ConfigurationError: if the URL is missing or not a PostgreSQL URL, or the driver is not PostgreSQL's.
            """
            if self._url is None:
                raise ConfigurationError("connection options need a URL: call with_url()")
            if self._driver_name not in (None, DRIVER):
                raise ConfigurationError(f"the only driver there is is that of PostgreSQL, not {self._driver_name!r}")
            connection_options = JdbcConnectionOptions(self._url, self._driver_name, self._user_name, self._password)
            connection_options.address()
            return connection_options


@dataclass(frozen=True, slots=True)
class JdbcExecutionOptions:
    """When a sink writes its buffered rows; built by `builder()`."""

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
