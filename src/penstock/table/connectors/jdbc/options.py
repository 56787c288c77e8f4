"""The options of the connector `jdbc`."""

from __future__ import annotations

import re
from typing import Any, Final

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.connectors.postgres.client import Address
from penstock.connectors.postgres.options import DRIVER, LEDGER, MAX_RETRIES
from penstock.connectors.postgres.scan import FETCH_SIZE, Partitions
from penstock.connectors.postgres.unrepresentable import FAIL, OPTION, check_mode
from penstock.table.connectors.table_options import TableOptions


def _text(key: str, description: str) -> ConfigOption[str | None]:
    return ConfigOptions.key(key).string_type().no_default_value().with_description(description)


def _number(key: str, default: int, description: str) -> ConfigOption[int]:
    return ConfigOptions.key(key).int_type().default_value(default).with_description(description)


URL: Final = _text("url", "`jdbc:postgresql://HOST:PORT/DATABASE`, or `postgresql://…` with libpq's parameters.")
TABLE: Final = _text("table-name", "The name of a table or view; `schema.table` if it is in another schema.")
USERNAME: Final = _text("username", "The user name.")
PASSWORD: Final = _text("password", "The password.")
DRIVER_NAME: Final = _text("driver", "The name of a Java driver, for compatibility; only PostgreSQL's is accepted.")
PARTITION_COLUMN: Final = _text("scan.partition.column", "The integer column that partitions the scan.")
PARTITION_COUNT: Final = (
    ConfigOptions.key("scan.partition.num").int_type().no_default_value().with_description("The number of partitions.")
)
LOWER: Final = (
    ConfigOptions.key("scan.partition.lower-bound")
    .long_type()
    .no_default_value()
    .with_description(
        "The least value of the column. Rows below it, and rows with NULL, are read with the first partition."
    )
)
UPPER: Final = (
    ConfigOptions.key("scan.partition.upper-bound")
    .long_type()
    .no_default_value()
    .with_description("The greatest value of the column. Rows above it are read with the last partition.")
)
FETCH: Final = _number("scan.fetch-size", FETCH_SIZE, "The number of rows to fetch at a time.")
MAX_ROWS: Final = _number("sink.buffer-flush.max-rows", 5_000, "The number of buffered rows that triggers a write.")
INTERVAL: Final = (
    ConfigOptions.key("sink.buffer-flush.interval")
    .duration_type()
    .default_value(1_000)
    .with_description(
        "The maximum time that rows stay buffered; with `0`, until the buffer is full or a checkpoint is taken."
    )
)
RETRIES: Final = _number("sink.max-retries", MAX_RETRIES, "The maximum number of retries of a failed write.")
GUARANTEE: Final = (
    ConfigOptions.key("sink.delivery-guarantee")
    .string_type()
    .default_value("at-least-once")
    .with_description(
        "`exactly-once` buffers rows until the checkpoint completes, and writes them together with an entry in the "
        "ledger."
    )
)
LEDGER_TABLE: Final = (
    ConfigOptions.key("sink.ledger-table")
    .string_type()
    .default_value(LEDGER)
    .with_description("The table that records exactly-once writes; it is created if it does not exist.")
)
UNREPRESENTABLE: Final = (
    ConfigOptions.key(OPTION)
    .string_type()
    .default_value(FAIL)
    .with_description(
        "How to treat values that the declared type cannot represent, such as NaN for DECIMAL or `infinity` for "
        "TIMESTAMP: `fail` the job, or convert them to `null`. A STRING column holds every value as text."
    )
)
LOOKUP_OPTIONS: Final[tuple[ConfigOption[Any], ...]] = (
    ConfigOptions.key("lookup.cache")
    .string_type()
    .default_value("NONE")
    .with_description("`PARTIAL` caches the rows of some keys, `FULL` the whole table."),
    ConfigOptions.key("lookup.partial-cache.max-rows")
    .long_type()
    .no_default_value()
    .with_description("The maximum number of cached keys."),
    ConfigOptions.key("lookup.partial-cache.expire-after-write")
    .duration_type()
    .no_default_value()
    .with_description("The time after which a key expires once it is fetched."),
    ConfigOptions.key("lookup.partial-cache.expire-after-access")
    .duration_type()
    .no_default_value()
    .with_description("The time after which a key expires once it is last used."),
    ConfigOptions.key("lookup.partial-cache.cache-missing-key")
    .boolean_type()
    .default_value(True)
    .with_description("Whether to cache keys without rows."),
    ConfigOptions.key("lookup.max-retries")
    .int_type()
    .default_value(3)
    .with_description("The maximum number of retries of a failed lookup."),
)
OPTIONAL: Final[tuple[ConfigOption[Any], ...]] = (
    USERNAME,
    PASSWORD,
    DRIVER_NAME,
    PARTITION_COLUMN,
    PARTITION_COUNT,
    LOWER,
    UPPER,
    FETCH,
    UNREPRESENTABLE,
    *LOOKUP_OPTIONS,
    MAX_ROWS,
    INTERVAL,
    RETRIES,
    GUARANTEE,
    LEDGER_TABLE,
)

#: unsupported options of Flink's connector, and why
_REFUSED: Final = (
    (re.compile(r"scan\.auto-commit"), "a scan is one transaction, with one snapshot for all parts"),
    (re.compile(r"connection\.max-retry-timeout"), "the URL's connect_timeout says how long to wait for a connection"),
    (re.compile(r"compatible-mode|properties\..*"), "parameters of connections stand in the URL"),
)


def refuse_unsupported(options: TableOptions) -> None:
    """Raise `UnsupportedError` for options of Flink's connector that are not supported."""
    for key in options:
        for pattern, reason in _REFUSED:
            if pattern.fullmatch(key):
                raise UnsupportedError(
                    f"option '{key}' of table {options.title} is not supported ({reason}): leave it out"
                )


def read_address(options: TableOptions) -> Address:
    """Return the address of the database. Raises `ValidationError` if the URL is not a PostgreSQL URL."""
    driver = options.read(DRIVER_NAME)
    if driver not in (None, DRIVER):
        raise options.wrong(DRIVER_NAME.key(), f"the only driver there is is {DRIVER}, not {driver}")
    try:
        return Address(options.required(URL), options.read(USERNAME), options.read(PASSWORD))
    except ConfigurationError as error:
        raise options.wrong(URL.key(), str(error)) from error


def read_unrepresentable(options: TableOptions) -> str:
    """Return how to read values that a type cannot hold. Raises `ValidationError` for an unknown mode."""
    try:
        return check_mode(options.read(UNREPRESENTABLE))
    except ConfigurationError as error:
        raise options.wrong(OPTION, str(error)) from error


def read_partitions(options: TableOptions) -> Partitions | None:
    """Return how the table is partitioned; None if it is not.

    Raises `ValidationError` if only some of the options are set.
    """
    column, count = options.read(PARTITION_COLUMN), options.read(PARTITION_COUNT)
    lower, upper = options.read(LOWER), options.read(UPPER)
    if column is None and count is None and lower is None and upper is None:
        return None
    if column is None or count is None or lower is None or upper is None:
        raise options.wrong(
            PARTITION_COLUMN.key(),
            "either all of scan.partition.column, scan.partition.num, scan.partition.lower-bound and "
            "scan.partition.upper-bound are set, or none",
        )
    try:
        return Partitions(column, lower, upper, count)
    except ConfigurationError as error:
        raise options.wrong(PARTITION_COUNT.key(), str(error)) from error
