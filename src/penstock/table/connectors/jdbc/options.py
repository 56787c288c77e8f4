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


URL: Final = _text("url", "`jdbc:postgresql://HOST:PORT/DATABASE`, or `postgresql://…` with the parameters of libpq")
TABLE: Final = _text("table-name", "a table or view, `schema.table` for one of another schema")
USERNAME: Final = _text("username", "who connects")
PASSWORD: Final = _text("password", "with which password")
DRIVER_NAME: Final = _text("driver", "a driver in Java, for tables that name it: only PostgreSQL's is taken")
PARTITION_COLUMN: Final = _text("scan.partition.column", "of whole numbers, by which the table is cut")
PARTITION_COUNT: Final = (
    ConfigOptions.key("scan.partition.num").int_type().no_default_value().with_description("into how many parts")
)
LOWER: Final = (
    ConfigOptions.key("scan.partition.lower-bound")
    .long_type()
    .no_default_value()
    .with_description("the least value of the column; rows below are read with the first part, as those with NULL are")
)
UPPER: Final = (
    ConfigOptions.key("scan.partition.upper-bound")
    .long_type()
    .no_default_value()
    .with_description("the greatest value of the column; rows above are read with the last part")
)
FETCH: Final = _number("scan.fetch-size", FETCH_SIZE, "how many rows are fetched at a time")
MAX_ROWS: Final = _number("sink.buffer-flush.max-rows", 5_000, "how many rows are worth a write")
INTERVAL: Final = (
    ConfigOptions.key("sink.buffer-flush.interval")
    .duration_type()
    .default_value(1_000)
    .with_description("how long rows wait at most; `0` for until there are enough, or a checkpoint comes")
)
RETRIES: Final = _number("sink.max-retries", MAX_RETRIES, "how often a write is tried again")
GUARANTEE: Final = (
    ConfigOptions.key("sink.delivery-guarantee")
    .string_type()
    .default_value("at-least-once")
    .with_description(
        "`exactly-once`: rows are held until the checkpoint is complete, and written with a note in the ledger"
    )
)
LEDGER_TABLE: Final = (
    ConfigOptions.key("sink.ledger-table")
    .string_type()
    .default_value(LEDGER)
    .with_description("the table of what was written exactly once; it is made if it is not there")
)
UNREPRESENTABLE: Final = (
    ConfigOptions.key(OPTION)
    .string_type()
    .default_value(FAIL)
    .with_description(
        "what values do that the declared type cannot hold, such as NaN in a DECIMAL or `infinity` in a TIMESTAMP: "
        "`fail` the job, or become `null`; a column declared as STRING has each value as text"
    )
)
LOOKUP_OPTIONS: Final[tuple[ConfigOption[Any], ...]] = (
    ConfigOptions.key("lookup.cache")
    .string_type()
    .default_value("NONE")
    .with_description("`PARTIAL` remembers rows of some keys, `FULL` holds the whole table"),
    ConfigOptions.key("lookup.partial-cache.max-rows")
    .long_type()
    .no_default_value()
    .with_description("how many keys are remembered"),
    ConfigOptions.key("lookup.partial-cache.expire-after-write")
    .duration_type()
    .no_default_value()
    .with_description("for how long after they were asked for"),
    ConfigOptions.key("lookup.partial-cache.expire-after-access")
    .duration_type()
    .no_default_value()
    .with_description("for how long after they were needed"),
    ConfigOptions.key("lookup.partial-cache.cache-missing-key")
    .boolean_type()
    .default_value(True)
    .with_description("whether it is remembered, too, that a key has no rows"),
    ConfigOptions.key("lookup.max-retries")
    .int_type()
    .default_value(3)
    .with_description("how often a question is asked again"),
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
