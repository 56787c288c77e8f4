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


CATALOG_NAME: Final = _text("catalog-name", "the name of the catalog; pyiceberg adds its own configuration for it")
CATALOG_TYPE: Final = _text("catalog-type", "`rest`, `sql`, `hive`, `glue` and so on; by default what the URI says")
URI: Final = _text("uri", "where the catalog is")
WAREHOUSE: Final = _text("warehouse", "where new tables are put")
DATABASE: Final = (
    ConfigOptions.key("catalog-database")
    .string_type()
    .default_value("default")
    .with_description("the namespace of the table, `a.b` for one within another")
)
TABLE: Final = _text("catalog-table", "the name of the table in the catalog; by default its name here")
BRANCH: Final = _text("branch", f"which branch is read, followed or written; `{MAIN}` by default")

STREAMING: Final = _flag("streaming", False, "whether to go on with what is appended, without an end")
INTERVAL: Final = (
    ConfigOptions.key("monitor-interval")
    .duration_type()
    .default_value(INTERVAL_MS)
    .with_description("how often to look for new snapshots")
)
STRATEGY: Final = (
    ConfigOptions.key("starting-strategy")
    .string_type()
    .default_value(StreamingStartingStrategy.INCREMENTAL_FROM_LATEST_SNAPSHOT.value)
    .with_description(f"where following begins: {_STRATEGIES}")
)
START_ID: Final = _number("start-snapshot-id", "the first snapshot, for the strategy that needs it")
START_MS: Final = _number("start-snapshot-timestamp", "when the first snapshot was made at the earliest (ms)")
SKIP_OVERWRITES: Final = _flag(
    "streaming-skip-overwrite-snapshots", False, "pass over snapshots that replace rows, instead of failing"
)
SKIP_DELETES: Final = _flag(
    "streaming-skip-delete-snapshots", False, "pass over snapshots that remove rows, instead of failing"
)
SNAPSHOT_ID: Final = _number("snapshot-id", "read this snapshot")
AS_OF: Final = _number("as-of-timestamp", "read the snapshot that was current at this time (ms since 1970)")
TAG: Final = _text("tag", "read the snapshot of this tag")

UPSERT: Final = _flag(
    "write.upsert.enabled",
    True,
    "for a table with a primary key: write its changes by key; with `false` rows are only added",
)
CREATE: Final = _flag("sink.create-table", True, "make the table where it is not there, from the declared columns")
EVOLVE: Final = _flag("sink.schema-evolution", False, "add declared columns to the table that it does not have")
PARTITIONING: Final = _text(
    "sink.partitioning", "of a table that is made, in place of PARTITIONED BY: `day(ts), bucket(16, id)`"
)
TARGET: Final = (
    ConfigOptions.key("sink.target-file-size")
    .memory_type()
    .default_value(TARGET_BYTES)
    .with_description("write a file ahead of a checkpoint when a subtask holds so many bytes of rows")
)
RETENTION: Final = (
    ConfigOptions.key("sink.ledger-retention")
    .duration_type()
    .default_value(RETENTION_MS)
    .with_description("for how long the table remembers commits at least: longer than savepoints are kept")
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
