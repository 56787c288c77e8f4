"""The options of the connector `iceberg`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.connectors.iceberg.catalog import CatalogLoader, TableLoader
from penstock.connectors.iceberg.scanned import INTERVAL_MS, StreamingStartingStrategy
from penstock.connectors.iceberg.settings import MAIN, RETENTION_MS, TARGET_BYTES
from penstock.table.connectors.table_options import TableOptions

_STRATEGIES: Final = ", ".join(f"`{strategy.value}`" for strategy in StreamingStartingStrategy)


def _text(key: str, description: str) -> ConfigOption[str | None]:
    return ConfigOptions.key(key).string_type().no_default_value().with_description(description)


def _number(key: str, description: str) -> ConfigOption[int | None]:
    return ConfigOptions.key(key).long_type().no_default_value().with_description(description)


def _flag(key: str, default: bool, description: str) -> ConfigOption[bool]:
    return ConfigOptions.key(key).boolean_type().default_value(default).with_description(description)


CATALOG_NAME: Final = _text("catalog-name", "The name of the catalog; pyiceberg adds its own configuration for it.")
CATALOG_TYPE: Final = _text("catalog-type", "`rest`, `sql`, `hive`, `glue` and so on; by default derived from the URI.")
URI: Final = _text("uri", "The URI of the catalog.")
WAREHOUSE: Final = _text("warehouse", "The location of new tables.")
DATABASE: Final = (
    ConfigOptions.key("catalog-database")
    .string_type()
    .default_value("default")
    .with_description("The namespace of the table; `a.b` for a nested one.")
)
TABLE: Final = _text("catalog-table", "The name of the table in the catalog; by default its name in SQL.")
BRANCH: Final = _text("branch", f"The branch to read, follow or write; by default `{MAIN}`.")

STREAMING: Final = _flag("streaming", False, "Whether to keep reading appended rows, as an unbounded table.")
INTERVAL: Final = (
    ConfigOptions.key("monitor-interval")
    .duration_type()
    .default_value(INTERVAL_MS)
    .with_description("The interval at which new snapshots are discovered.")
)
STRATEGY: Final = (
    ConfigOptions.key("starting-strategy")
    .string_type()
    .default_value(StreamingStartingStrategy.INCREMENTAL_FROM_LATEST_SNAPSHOT.value)
    .with_description(f"Where a streaming read starts: {_STRATEGIES}.")
)
START_ID: Final = _number("start-snapshot-id", "The first snapshot, for the strategy that needs it.")
START_MS: Final = _number("start-snapshot-timestamp", "The earliest creation time of the first snapshot (ms).")
SKIP_OVERWRITES: Final = _flag(
    "streaming-skip-overwrite-snapshots", False, "Whether to skip snapshots that replace rows, instead of failing."
)
SKIP_DELETES: Final = _flag(
    "streaming-skip-delete-snapshots", False, "Whether to skip snapshots that delete rows, instead of failing."
)
SNAPSHOT_ID: Final = _number("snapshot-id", "The snapshot to read.")
AS_OF: Final = _number("as-of-timestamp", "Read the snapshot that was current at this time (ms since 1970).")
TAG: Final = _text("tag", "Read the snapshot with this tag.")

UPSERT: Final = _flag(
    "write.upsert.enabled",
    True,
    "For a table with a primary key, whether to write upserts; `false` only appends rows.",
)
CREATE: Final = _flag("sink.create-table", True, "Whether to create a missing table from the declared columns.")
EVOLVE: Final = _flag("sink.schema-evolution", False, "Whether to add declared columns that the table lacks.")
PARTITIONING: Final = _text(
    "sink.partitioning", "The partitioning of a new table, instead of PARTITIONED BY: `day(ts), bucket(16, id)`."
)
TARGET: Final = (
    ConfigOptions.key("sink.target-file-size")
    .memory_type()
    .default_value(TARGET_BYTES)
    .with_description("The number of buffered bytes at which a subtask writes a file before the checkpoint.")
)
RETENTION: Final = (
    ConfigOptions.key("sink.ledger-retention")
    .duration_type()
    .default_value(RETENTION_MS)
    .with_description("The minimum time that the table remembers commits; keep it longer than savepoints.")
)
OPTIONAL: Final[tuple[ConfigOption[Any], ...]] = (
    CATALOG_TYPE,
    URI,
    WAREHOUSE,
    DATABASE,
    TABLE,
    BRANCH,
    STREAMING,
    INTERVAL,
    STRATEGY,
    START_ID,
    START_MS,
    SKIP_OVERWRITES,
    SKIP_DELETES,
    SNAPSHOT_ID,
    AS_OF,
    TAG,
    UPSERT,
    CREATE,
    EVOLVE,
    PARTITIONING,
    TARGET,
    RETENTION,
)

#: Options passed unchanged to the catalog and its file system; others need the prefix `catalog.`.
_OF_CATALOG: Final = re.compile(
    r"(s3|adls|gcs|hdfs|hf|rest|glue|hive|client|oauth2|header|ssl)\..+|token|credential|scope|prefix|py-io-impl"
)
#: Options that become properties of a new table.
_OF_TABLE: Final = re.compile(r"write\.(?!upsert\.enabled).+|commit\..+|history\..+|format-version|gc\.enabled")
_BEHIND: Final = "catalog."
#: unsupported options of Iceberg's connector, and why
_REFUSED: Final = (
    (re.compile(r"catalog-impl"), "catalogs are pyiceberg's: use 'catalog-type', or 'catalog.py-catalog-impl'"),
    (re.compile(r"(start|end)-tag|end-snapshot-id"), "a part of the history is not read by itself"),
    (re.compile(r"write-parallelism|(sink|scan)\.parallelism"), "set parallelism.default for the job"),
    (re.compile(r"write\.distribution-mode|distribution-mode"), "rows are not sent to writers by their partition"),
)


def more_keys(options: TableOptions) -> Iterable[str]:
    """Return the options of a table that belong to the catalog or to the Iceberg table.

    Raises:
        UnsupportedError: for options of Iceberg's connector that are not supported.
    """
    for key in options:
        for pattern, reason in _REFUSED:
            if pattern.fullmatch(key):
                raise UnsupportedError(
                    f"option '{key}' of table {options.title} is not supported ({reason}): leave it out"
                )
        if _OF_CATALOG.fullmatch(key) or _OF_TABLE.fullmatch(key) or key.startswith(_BEHIND):
            yield key


def build_table_loader(options: TableOptions, path: tuple[str, ...]) -> TableLoader:
    """Return the loader of the table."""
    properties = {key: options[key] for key in options if _OF_CATALOG.fullmatch(key)}
    properties |= {key.removeprefix(_BEHIND): options[key] for key in options if key.startswith(_BEHIND)}
    for option, name in ((CATALOG_TYPE, "type"), (URI, "uri"), (WAREHOUSE, "warehouse")):
        value = options.read(option)
        if value is not None:
            properties[name] = value
    catalog = CatalogLoader.of(options.required(CATALOG_NAME), properties)
    table = options.read(TABLE) or path[-1]
    try:
        return TableLoader.from_catalog(catalog, (*options.read(DATABASE).split("."), table))
    except ConfigurationError as error:
        raise options.wrong(DATABASE.key(), str(error)) from error


def table_properties(options: TableOptions) -> tuple[tuple[str, str], ...]:
    """Return the properties for a new table."""
    return tuple(sorted((key, options[key]) for key in options if _OF_TABLE.fullmatch(key)))


def read_strategy(options: TableOptions) -> StreamingStartingStrategy:
    """Return where following begins. Raises `ValidationError` for an unknown strategy."""
    text = options.read(STRATEGY).upper().replace("-", "_")
    try:
        return StreamingStartingStrategy(text)
    except ValueError:
        raise options.wrong(STRATEGY.key(), f"it is one of {_STRATEGIES.replace('`', '')}") from None
