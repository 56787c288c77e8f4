"""How sinks of PostgreSQL connect and how they write: PyFlink's `JdbcConnectionOptions` and `JdbcExecutionOptions`."""

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
    """Where a database is, made by `JdbcConnectionOptionsBuilder`."""

    url: str = field(repr=False)  # it may have a password
    driver_name: str | None = None
    user_name: str | None = None
    password: str | None = field(default=None, repr=False)

    def get_db_url(self) -> str:
        """The URL."""
        return self.url

    def get_driver_name(self) -> str | None:
        """The class of a driver in Java; PostgreSQL's, or None."""
        return self.driver_name

    def get_user_name(self) -> str | None:
        """Who connects."""
        return self.user_name

    def get_password(self) -> str | None:
        """With which password."""
        return self.password

    def address(self) -> Address:
        """The same for a connection."""
        return Address(self.url, self.user_name, self.password)

    class JdbcConnectionOptionsBuilder:
        """Builds `JdbcConnectionOptions`."""

        def __init__(self) -> None:
            self._url: str | None = None
            self._driver_name: str | None = None
            self._user_name: str | None = None
            self._password: str | None = None

        def with_url(self, url: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """`jdbc:postgresql://HOST:PORT/DATABASE`, or `postgresql://…` with the parameters of libpq."""
            self._url = url
            return self

        def with_driver_name(self, driver_name: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """The class of a driver in Java, for programs that say it: psycopg connects, whatever it is."""
            self._driver_name = driver_name
            return self

        def with_user_name(self, user_name: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Who connects."""
            self._user_name = user_name
            return self

        def with_password(self, password: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """With which password."""
            self._password = password
            return self

        def build(self) -> JdbcConnectionOptions:
            """The options.

            Raises:
                ConfigurationError: if there is no URL, or it is none of PostgreSQL, or the driver is another's.
            """
            if self._url is None:
                raise ConfigurationError("connection options need a URL: call with_url()")
            if self._driver_name not in (None, DRIVER):
                raise ConfigurationError(f"the only driver there is is that of PostgreSQL, not {self._driver_name!r}")
            made = JdbcConnectionOptions(self._url, self._driver_name, self._user_name, self._password)
            made.address()
            return made


@dataclass(frozen=True, slots=True)
class JdbcExecutionOptions:
    """When a sink writes what it has gathered, made by `builder()`."""

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
        """A builder with the defaults."""
        return JdbcExecutionOptions.Builder()

    @staticmethod
    def defaults() -> JdbcExecutionOptions:
        """5000 rows at a time, no interval, 3 retries."""
        return JdbcExecutionOptions()

    def get_batch_interval_ms(self) -> int:
        """How long (ms) rows wait at most; 0 for until the batch is full or a checkpoint comes."""
        return self.batch_interval_ms

    def get_batch_size(self) -> int:
        """How many rows are worth a write."""
        return self.batch_size

    def get_max_retries(self) -> int:
        """How often a write is tried again."""
        return self.max_retries

    class Builder:
        """Builds `JdbcExecutionOptions`."""

        def __init__(self) -> None:
            self._interval_ms = 0
            self._size = BATCH_SIZE
            self._max_retries = MAX_RETRIES

        def with_batch_interval_ms(self, interval_ms: int) -> JdbcExecutionOptions.Builder:
            """How long (ms) rows wait at most; 0 for until the batch is full or a checkpoint comes."""
            self._interval_ms = interval_ms
            return self

        def with_batch_size(self, size: int) -> JdbcExecutionOptions.Builder:
            """How many rows are worth a write. What comes at once is written at once, though it may be more."""
            self._size = size
            return self

        def with_max_retries(self, max_retries: int) -> JdbcExecutionOptions.Builder:
            """How often a write is tried again, after one second, two, and so on, before the job fails."""
            self._max_retries = max_retries
            return self

        def build(self) -> JdbcExecutionOptions:
            """The options. Raises `ConfigurationError` for numbers that are too low."""
            return JdbcExecutionOptions(self._interval_ms, self._size, self._max_retries)


@dataclass(frozen=True, slots=True)
class JdbcExactlyOnceOptions:
    """How a sink that writes each record once remembers what it has written.

    Attributes:
        ledger_table: the table of what is committed, made if it is not there; `schema.table` for another schema.
        max_retries: how often a commit is tried again. It is safe: the ledger tells whether it was done.
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
        """The table `penstock_commits` in the schema where tables are made unless said otherwise; 3 retries."""
        return JdbcExactlyOnceOptions()
