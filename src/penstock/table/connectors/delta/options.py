"""The options of the connector `delta`, named as in Flink's connector where it has them."""

from __future__ import annotations

from typing import Any, Final

from penstock.base.config_options import ConfigOption, ConfigOptions
from penstock.base.errors import ConfigurationError
from penstock.connectors.delta.data_files import TARGET_BYTES
from penstock.connectors.delta.place import TablePlace
from penstock.connectors.delta.source import INTERVAL_MS, parse_start
from penstock.connectors.delta.split import Start
from penstock.table.connectors.table_options import TableOptions


def _text(key: str, description: str) -> ConfigOption[str | None]:
    return ConfigOptions.key(key).string_type().no_default_value().with_description(description)


def _flag(key: str, description: str) -> ConfigOption[bool]:
    return ConfigOptions.key(key).boolean_type().default_value(False).with_description(description)


BATCH: Final = "batch"
STREAMING: Final = "streaming"

PATH: Final = _text("table-path", "The directory of the table, or a URL such as `s3://bucket/table`.")
MODE: Final = (
    ConfigOptions.key("mode")
    .string_type()
    .default_value(BATCH)
    .with_description("`batch` reads one version; `streaming` reads the current table, then the rows added to it.")
)
VERSION_AS_OF: Final = (
    ConfigOptions.key("versionAsOf")
    .long_type()
    .no_default_value()
    .with_description("With `batch`, the version to read; by default the latest.")
)
TIMESTAMP_AS_OF: Final = _text("timestampAsOf", "The same as a timestamp, such as `2026-01-31T12:00:00Z`.")
STARTING_VERSION: Final = _text(
    "startingVersion",
    "With `streaming`, skip the current table and read from this version on; `latest` reads new rows only.",
)
STARTING_TIMESTAMP: Final = _text("startingTimestamp", "The same as a timestamp.")
INTERVAL: Final = (
    ConfigOptions.key("updateCheckIntervalMillis")
    .long_type()
    .default_value(INTERVAL_MS)
    .with_description("The interval at which new versions are discovered.")
)
IGNORE_DELETES: Final = _flag("ignoreDeletes", "Whether to skip versions that only delete rows, instead of failing.")
IGNORE_CHANGES: Final = _flag(
    "ignoreChanges", "Whether to read the rows of rewritten files as new rows, instead of failing."
)
CHANGE_FEED: Final = _flag(
    "readChangeFeed",
    "With `streaming`, whether to read a changelog; the table must have `delta.enableChangeDataFeed`.",
)
MERGE_SCHEMA: Final = _flag("mergeSchema", "Whether a sink adds missing columns to the table.")
FILE_SIZE: Final = (
    ConfigOptions.key("targetFileSize")
    .memory_type()
    .default_value(TARGET_BYTES)
    .with_description("The size at which a data file is closed.")
)
COMPACTION: Final = (
    ConfigOptions.key("compactAfterVersions")
    .int_type()
    .no_default_value()
    .with_description("The number of table versions after which a sink compacts small files. If unset, it never does.")
)
OPTIONAL: Final[tuple[ConfigOption[Any], ...]] = (
    MODE,
    VERSION_AS_OF,
    TIMESTAMP_AS_OF,
    STARTING_VERSION,
    STARTING_TIMESTAMP,
    INTERVAL,
    IGNORE_DELETES,
    IGNORE_CHANGES,
    CHANGE_FEED,
    MERGE_SCHEMA,
    FILE_SIZE,
    COMPACTION,
)
#: the prefix of options for delta-rs's storage
STORAGE: Final = "storage."
#: the prefix of properties for a new table
PROPERTIES: Final = "delta."
_OF_BATCH: Final = (VERSION_AS_OF, TIMESTAMP_AS_OF)
_OF_STREAMING: Final = (STARTING_VERSION, STARTING_TIMESTAMP, IGNORE_DELETES, IGNORE_CHANGES, CHANGE_FEED)


def read_place(options: TableOptions) -> TablePlace:
    """Return the location of the table."""
    return TablePlace.of(options.required(PATH), dict(options.below(STORAGE)))


def read_table_properties(options: TableOptions) -> dict[str, str]:
    """Return the properties for a new table."""
    return {f"{PROPERTIES}{key}": value for key, value in options.below(PROPERTIES).items()}


def follows(options: TableOptions) -> bool:
    """Return whether new versions are followed. Raises `ValidationError` for options that conflict with the mode."""
    mode = options.read(MODE).lower()
    if mode not in (BATCH, STREAMING):
        raise options.wrong(MODE.key(), f"it is {BATCH} or {STREAMING}, not {mode}")
    for option in _OF_BATCH if mode == STREAMING else _OF_STREAMING:
        if option.key() in options:
            other = STREAMING if mode == BATCH else BATCH
            raise options.wrong(option.key(), f"it goes with '{MODE.key()}' = '{other}'")
    return mode == STREAMING


def where_to_begin(options: TableOptions) -> Start:
    """Return where reading begins. Raises `ValidationError` if both a version and a timestamp are set."""
    version = options.read(STARTING_VERSION) if options.read(VERSION_AS_OF) is None else options.read(VERSION_AS_OF)
    timestamp = options.read(STARTING_TIMESTAMP) or options.read(TIMESTAMP_AS_OF)
    if version is not None and timestamp is not None:
        raise options.wrong(MODE.key(), "reading begins at a version or at a time, not at both")
    if version is None:
        return Start(timestamp=timestamp)
    try:
        return Start(**parse_start(version))
    except ConfigurationError as error:
        raise options.wrong(STARTING_VERSION.key(), str(error)) from error
